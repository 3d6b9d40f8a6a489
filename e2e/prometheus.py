"""A real Prometheus in a test's namespace that scrapes a simulation there."""

from typing import Any

import yaml

from e2e.kubectl import Kubectl
from e2e.simworkloads import PodView
from e2e.workloads import METRICS_PORT

Json = dict[str, Any]
NAME = "prometheus"


def address(namespace: str) -> str:
    """As the operator's pod reaches it."""
    return f"http://{NAME}.{namespace}.svc:9090"


def deploy(kubectl: Kubectl, image: str, pod: PodView) -> None:
    """Apply one that scrapes this pod, and wait until it is ready."""
    kubectl.apply(*manifests(kubectl.namespace, image, pod))
    kubectl.rollout(f"deployment/{NAME}", timeout_seconds=180)


def manifests(namespace: str, image: str, pod: PodView) -> list[Json]:
    """The pod is a static target: Debian's build has no discovery through the API server."""
    meta = {"name": NAME}
    target = {
        "targets": [f"{pod.address}:{METRICS_PORT}"],
        "labels": {"namespace": namespace, "pod": pod.name},
    }
    config = {
        "global": {"scrape_interval": "2s", "scrape_timeout": "2s"},
        "scrape_configs": [{"job_name": "simulations", "static_configs": [target]}],
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": meta,
            "data": {"prometheus.yml": yaml.safe_dump(config)},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": meta,
            "spec": {"selector": {"app": NAME}, "ports": [{"port": 9090}]},
        },
        _deployment(meta, image),
    ]


def _deployment(meta: Json, image: str) -> Json:
    ready = {"httpGet": {"path": "/-/ready", "port": 9090}, "periodSeconds": 1}
    container = {
        "name": NAME,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": [
            "--config.file=/etc/slim/prometheus.yml",
            "--storage.tsdb.path=/prometheus",
            "--web.listen-address=:9090",
        ],
        "readinessProbe": ready,
        "resources": {
            "requests": {"cpu": "50m", "memory": "64Mi"},
            "limits": {"memory": "512Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/slim", "readOnly": True},
            {"name": "data", "mountPath": "/prometheus"},
        ],
    }
    labels = {"app": NAME}
    pod = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65534,
            "fsGroup": 65534,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {"name": "config", "configMap": {"name": NAME}},
            {"name": "data", "emptyDir": {}},
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": meta,
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
