"""Manifests that the tests apply. Pure builders; every pod meets the restricted PodSecurity level."""

from typing import Any

from e2e.paths import ROOT

Json = dict[str, Any]

CONTAINER = "simserver"
METRICS_PORT = 9464
PHASE = "simserver.slimscale.dev/phase"
LOAD = "steering.slimscale.dev/load"
FAULT = "steering.slimscale.dev/fault"

QUICK_TUNING: Json = {
    "windowSeconds": 6,
    "minTasks": 20,
    "minDwellSeconds": 5,
    "cpuAware": False,
    "search": False,
}
QUICK_METRICS: Json = {"intervalSeconds": 2, "maxAgeSeconds": 10}
"""Short windows, so that a test waits for the operator and not for its patience; no probes, so that
what a test looks at stays where it is. The tests of the load and of the demo leave them on."""


def simworkload(name: str, target: str, *, mode: str = "InPlace", **spec: Any) -> Json:
    """A SimWorkload on a Deployment; `spec` replaces whole fields of the spec."""
    given = {"updatePolicy": {"mode": mode}, **spec}
    return {
        "apiVersion": "slimscale.dev/v1alpha1",
        "kind": "SimWorkload",
        "metadata": {"name": name},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
            "containerName": CONTAINER,
            "threads": {"min": 1, "max": 64, "env": ["POOL_THREADS"]},
            "cpu": {"min": "100m", "max": "1500m"},
            "tuning": QUICK_TUNING,
            "metrics": QUICK_METRICS,
            **given,
        },
    }


def simulation(
    name: str,
    image: str,
    *,
    phase: str = "light",
    threads: int = 16,
    request: str = "300m",
    limit: str = "1500m",
    injected: bool = True,
) -> Json:
    """The project's own simulation, held in one phase until the annotation says otherwise."""
    container = {
        "args": ["run"],
        "env": [{"name": "SIM_THREADS", "value": str(threads)}],
        "volumeMounts": [{"name": "phase", "mountPath": "/etc/simserver", "readOnly": True}],
    }
    volume = _annotation_files("phase", {"phase": PHASE})
    return _deployment(
        name,
        image,
        container,
        volumes=[volume],
        annotations={PHASE: phase},
        request=request,
        limit=limit,
        injected=injected,
    )


def contract_server(
    name: str,
    image: str,
    *,
    load: str = "light",
    threads: int = 16,
    request: str = "100m",
    limit: str = "1",
    injected: bool = True,
    replicas: int = 1,
) -> list[Json]:
    """A pod that serves exact metrics and misbehaves on command: see contract_server.py."""
    script = (ROOT / "e2e" / "contract_server.py").read_text()
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{name}-script"},
        "data": {"contract_server.py": script},
    }
    container = {
        "command": ["python3", "-u", "/srv/contract_server.py"],
        "env": [{"name": "SIM_THREADS", "value": str(threads)}],
        "volumeMounts": [
            {"name": "script", "mountPath": "/srv", "readOnly": True},
            {"name": "steering", "mountPath": "/etc/steering", "readOnly": True},
        ],
    }
    volumes = [
        {"name": "script", "configMap": {"name": f"{name}-script"}},
        _annotation_files("steering", {"load": LOAD, "fault": FAULT}),
    ]
    deployment = _deployment(
        name,
        image,
        container,
        volumes=volumes,
        annotations={LOAD: load, FAULT: "ok"},
        request=request,
        limit=limit,
        injected=injected,
    )
    deployment["spec"]["replicas"] = replicas
    return [config, deployment]


def plain_pod(name: str, image: str, *, labels: dict[str, str] | None = None) -> Json:
    """A pod that does nothing: for what happens when pods are created."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name, **(labels or {})}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "securityContext": _POD_SECURITY,
            "containers": [
                {
                    "name": CONTAINER,
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["sleep", "3600"],
                    "resources": {
                        "requests": {"cpu": "50m", "memory": "32Mi"},
                        "limits": {"cpu": "200m", "memory": "64Mi"},
                    },
                    "securityContext": _CONTAINER_SECURITY,
                }
            ],
        },
    }


def hpa_on_cpu(name: str, target: str) -> Json:
    """Scales the target on CPU utilisation, between one replica and one."""
    utilisation = {"type": "Utilization", "averageUtilization": 80}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
            "minReplicas": 1,
            "maxReplicas": 1,
            "metrics": [
                {"type": "Resource", "resource": {"name": "cpu", "target": utilisation}},
            ],
        },
    }


_POD_SECURITY: Json = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "runAsGroup": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}
_CONTAINER_SECURITY: Json = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def _annotation_files(name: str, files: dict[str, str]) -> Json:
    items = [
        {
            "path": path,
            "fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{key}']"},
        }
        for path, key in files.items()
    ]
    return {"name": name, "downwardAPI": {"items": items}}


def _deployment(
    name: str,
    image: str,
    container: Json,
    *,
    volumes: list[Json],
    annotations: dict[str, str],
    request: str,
    limit: str,
    injected: bool,
) -> Json:
    labels = {"app": name}
    inject = {"slimscale.dev/inject": "true"} if injected else {}
    whole = {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "ports": [{"name": "metrics", "containerPort": METRICS_PORT}],
        "readinessProbe": {
            "httpGet": {"path": "/healthz", "port": METRICS_PORT},
            "periodSeconds": 2,
            "timeoutSeconds": 5,
            "failureThreshold": 5,
        },
        "resources": {
            "requests": {"cpu": request, "memory": "96Mi"},
            "limits": {"cpu": limit, "memory": "512Mi"},
        },
        "securityContext": _CONTAINER_SECURITY,
        **container,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": {**labels, **inject}, "annotations": annotations},
                "spec": {
                    "automountServiceAccountToken": False,
                    "terminationGracePeriodSeconds": 1,
                    "securityContext": _POD_SECURITY,
                    "containers": [whole],
                    "volumes": volumes,
                },
            },
        },
    }
