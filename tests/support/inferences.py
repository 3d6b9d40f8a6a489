"""SlimInferences as the API server holds them, small and typical."""

import copy
from typing import Any

from slimscale.kubeapi.ports import Json

__all__ = ["inference_spec", "sliminference"]

_SPEC: Json = {
    "model": {
        "name": "fashion",
        "inputShape": [1, 28, 28],
        "widths": [
            {"ratio": 0.25, "model": "fashion-w025", "accuracy": 0.86, "flopsRatio": 0.08},
            {"ratio": 1.0, "model": "fashion-w100", "accuracy": 0.91},
        ],
    },
    "pools": [{"name": "cpu", "minReplicas": 1, "maxReplicas": 4}],
}


def inference_spec(**fields: Any) -> Json:
    """One pool of CPUs and two widths; fields replace whole sections."""
    return copy.deepcopy(_SPEC) | copy.deepcopy(fields)


def sliminference(name: str = "fashion", namespace: str = "ns", **fields: Any) -> Json:
    return {
        "apiVersion": "slimscale.dev/v1alpha1",
        "kind": "SlimInference",
        "metadata": {"name": name, "namespace": namespace, "generation": 1, "uid": f"{name}-uid"},
        "spec": inference_spec(**fields),
    }
