"""From the custom resource to what scaling is asked for: percents to shares, names to values."""

from slimscale.api.sliminference import SlimInferenceSpec
from slimscale.domain.scaling import PoolSpec, ScalingOwner, ScalingSpec

__all__ = ["scaling_spec"]


def scaling_spec(spec: SlimInferenceSpec) -> ScalingSpec:
    """Pools come in the order in which they are filled. Sized for the most accurate width."""
    scaling = spec.scaling
    target = max(spec.model.widths, key=lambda width: (width.accuracy, width.ratio))
    idle = scaling.scale_to_zero_after_seconds
    return ScalingSpec(
        pools=tuple(
            PoolSpec(
                name=pool.name,
                min_replicas=pool.min_replicas,
                max_replicas=pool.max_replicas,
                cost_per_hour=pool.cost_per_hour,
                max_batch_rows=spec.batching.max_rows,
            )
            for pool in sorted(spec.pools, key=lambda pool: -pool.priority)
        ),
        target_model=target.model,
        slo_seconds=spec.slo.latency_milliseconds / 1000,
        percentile=spec.slo.percentile / 100,
        owner=ScalingOwner(scaling.owner.value),
        headroom=scaling.headroom_percent / 100,
        tolerance=scaling.tolerance_percent / 100,
        stable_window_seconds=float(scaling.stable_window_seconds),
        panic_window_seconds=float(scaling.panic_window_seconds),
        panic_threshold=scaling.panic_threshold_percent / 100,
        up_cooldown_seconds=float(scaling.up_cooldown_seconds),
        down_cooldown_seconds=float(scaling.down_cooldown_seconds),
        down_stabilisation_seconds=float(scaling.down_stabilisation_seconds),
        burst_memory_seconds=float(scaling.burst_memory_seconds),
        up_pods=scaling.up_pods,
        up_factor=1 + scaling.up_percent / 100,
        down_pods=scaling.down_pods,
        down_factor=scaling.down_percent / 100,
        pending_timeout_seconds=float(scaling.pending_timeout_seconds),
        telemetry_stale_seconds=float(scaling.max_age_seconds),
        idle_to_zero_seconds=None if idle is None else float(idle),
    )
