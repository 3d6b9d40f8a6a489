"""Raw Kubernetes objects as the API server gives them, small and typical."""

import copy
from typing import Any

from slimscale.kubeapi.ports import Json

__all__ = ["deployment", "pod", "simworkload"]


def deployment(name: str = "ants", **spec: Any) -> Json:
    """A settled Deployment of two pods with one container `sim` of 2 CPUs."""
    body: Json = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "generation": 3, "uid": f"{name}-uid"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "containers": [
                        {
                            "name": "sim",
                            "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
                        }
                    ]
                },
            },
        },
        "status": {
            "observedGeneration": 3,
            "replicas": 2,
            "updatedReplicas": 2,
            "availableReplicas": 2,
        },
    }
    body["spec"].update(copy.deepcopy(spec))
    return body


def pod(
    name: str = "ants-7f-a",
    *,
    owner: str = "ants",
    ip: str = "10.0.0.1",
    annotations: dict[str, str] | None = None,
) -> Json:
    """A running, ready, burstable pod of that Deployment."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "uid": f"{name}-uid",
            "labels": {"app": owner, "pod-template-hash": "7f"},
            "annotations": dict(annotations or {}),
            "creationTimestamp": "2026-11-30T00:00:00Z",
            "ownerReferences": [
                {"kind": "ReplicaSet", "name": f"{owner}-7f", "uid": "rs", "controller": True}
            ],
        },
        "spec": {
            "nodeName": "node-1",
            "containers": [
                {
                    "name": "sim",
                    "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
                    "volumeMounts": [{"name": "slimscale-podinfo", "mountPath": "/etc/slimscale"}],
                }
            ],
            "volumes": [{"name": "slimscale-podinfo", "downwardAPI": {"items": []}}],
        },
        "status": {
            "phase": "Running",
            "podIP": ip,
            "qosClass": "Burstable",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [
                {
                    "name": "sim",
                    "restartCount": 0,
                    "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1500m"}},
                    "state": {"running": {"startedAt": "2026-11-30T00:00:05Z"}},
                }
            ],
        },
    }


def simworkload(name: str = "ants", **spec: Any) -> Json:
    """A SimWorkload in mode InPlace on the Deployment of the same name."""
    return {
        "apiVersion": "slimscale.dev/v1alpha1",
        "kind": "SimWorkload",
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {
            "targetRef": {"kind": "Deployment", "name": "ants"},
            "updatePolicy": {"mode": "InPlace"},
            **copy.deepcopy(spec),
        },
    }
