"""From a spec to the files that router, sidecar and model server read. Pure."""

import hashlib

from slimscale.act.inference_names import InferenceNames
from slimscale.api.serving_config import (
    ModelServerConfig,
    PoolTraits,
    RouterConfig,
    SidecarConfig,
)
from slimscale.api.sliminference import SlimInferenceSpec

__all__ = ["DRAIN_SECONDS", "config_digest", "config_files"]

DRAIN_SECONDS = 30
"""How long a sidecar may take to finish what it has; the pod's grace period is longer."""


def config_files(spec: SlimInferenceSpec, names: InferenceNames, namespace: str) -> dict[str, str]:
    """File name to content: the data of the ConfigMap."""
    widths = list(spec.model.widths)
    router = RouterConfig(
        service=spec.model.name,
        widths=widths,
        max_body_bytes=spec.routing.max_body_bytes,
        namespace=namespace,
        endpoints_service=names.endpoints,
        pools=[
            PoolTraits(
                name=pool.name, cost_per_hour=pool.cost_per_hour, power_watts=pool.power_watts
            )
            for pool in spec.pools
        ],
        policy=spec.routing.policy,
        mode=spec.routing.mode,
        policy_from_config_map=spec.routing.learned.policy_config_map is not None,
        canary_percent=spec.routing.learned.canary_percent,
        objective=spec.routing.learned.objective,
        decision_log=spec.routing.decision_log,
        slo_milliseconds=spec.slo.latency_milliseconds,
        slo_percentile=spec.slo.percentile,
        slo_classes=dict(spec.slo.classes),
        timeout_milliseconds=spec.routing.timeout_milliseconds,
        min_accuracy=spec.slo.min_accuracy,
        max_batch_rows=spec.batching.max_rows,
        buffer_requests=spec.routing.buffer_requests,
        buffer_bytes=spec.routing.buffer_bytes,
    )
    sidecar = SidecarConfig(
        service=spec.model.name,
        widths=widths,
        max_body_bytes=spec.routing.max_body_bytes,
        batching=spec.batching,
        timeout_milliseconds=spec.routing.timeout_milliseconds,
        drain_seconds=DRAIN_SECONDS,
    )
    modelserver = ModelServerConfig(
        service=spec.model.name,
        widths=widths,
        max_body_bytes=spec.routing.max_body_bytes,
        preload=list(spec.model.preload) or [_most_accurate(spec)],
        warm_rows=_warm_rows(spec.batching.max_rows),
    )
    return {
        "router.json": _text(router),
        "sidecar.json": _text(sidecar),
        "modelserver.json": _text(modelserver),
    }


def config_digest(files: dict[str, str], policy: str = "") -> str:
    """Sixteen hexadecimal digits that change with any of the files, and with the policy's digest."""
    digest = hashlib.sha256(policy.encode())
    for name in sorted(files):
        digest.update(f"{name}\0{files[name]}\0".encode())
    return digest.hexdigest()[:16]


def _most_accurate(spec: SlimInferenceSpec) -> str:
    return max(spec.model.widths, key=lambda width: (width.accuracy, width.ratio)).model


def _warm_rows(max_rows: int) -> list[int]:
    """Powers of two below the largest batch, and that one."""
    rows = [1 << power for power in range(10) if 1 << power < max_rows]
    return [*rows, max_rows]


def _text(config: RouterConfig | SidecarConfig | ModelServerConfig) -> str:
    return config.model_dump_json(by_alias=True, indent=1) + "\n"
