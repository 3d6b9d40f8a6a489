"""A real Prometheus in a test's namespace that scrapes the simulations there."""

from typing import Any

import yaml

from e2e.kubectl import Kubectl

Json = dict[str, Any]
NAME = "prometheus"


def address(namespace: str) -> str:
    """As the operator's pod reaches it."""
    return f"http://{NAME}.{namespace}.svc:9090"


def deploy(kubectl: Kubectl, image: str) -> None:
    """Apply it and wait until it is ready."""
    kubectl.apply(*manifests(kubectl.namespace, image))
    kubectl.rollout(f"deployment/{NAME}", timeout_seconds=180)


def manifests(namespace: str, image: str) -> list[Json]:
    """It finds pods through the API server, so its account may read them and nothing else."""
    meta = {"name": NAME}
    relabel = [
        {
            "source_labels": ["__meta_kubernetes_pod_container_port_name"],
            "regex": "metrics",
            "action": "keep",
        },
        {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
        {"source_labels": ["__meta_kubernetes_pod_name"], "target_label": "pod"},
    ]
    config = {
        "global": {"scrape_interval": "2s", "scrape_timeout": "2s"},
        "scrape_configs": [
            {
                "job_name": "simulations",
                "kubernetes_sd_configs": [{"role": "pod", "namespaces": {"names": [namespace]}}],
                "relabel_configs": relabel,
            }
        ],
    }
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    account = {"kind": "ServiceAccount", "name": NAME, "namespace": namespace}
    rbac = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": meta, "rules": [rule]},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": NAME},
            "subjects": [account],
        },
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
        "serviceAccountName": NAME,
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
