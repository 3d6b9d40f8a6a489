"""A simulated scene as the bounds see it: the same devices, classes and objective."""

from slimscale.simulate.bounds.fleet import Fleet, RequestClass
from slimscale.simulate.bounds.planning import ObjectiveWeights
from slimscale.simulate.routing.scene import Scene

__all__ = ["classes_of", "fleet_of", "weights_of"]


def fleet_of(scene: Scene, *, noise: bool = True) -> Fleet:
    """Without faults, cold starts and limits of memory: no regime's trouble makes a fleet better."""
    return Fleet(
        base_seconds=tuple(device.base_seconds for device in scene.devices),
        row_seconds=tuple(device.row_seconds for device in scene.devices),
        dynamic_watts=tuple(device.dynamic_watts for device in scene.devices),
        idle_watts=tuple(device.idle_watts for device in scene.devices),
        accuracy=tuple(width.accuracy for width in scene.widths),
        flops_ratio=tuple(width.flops_ratio for width in scene.widths),
        max_batch_rows=scene.max_batch_rows,
        noise=scene.noise if noise else 0.0,
    )


def classes_of(scene: Scene) -> tuple[RequestClass, ...]:
    return tuple(
        RequestClass(one.slo_seconds, one.share, one.min_accuracy) for one in scene.classes
    )


def weights_of(scene: Scene) -> ObjectiveWeights:
    """The regime's multiple of the energy weight included."""
    objective = scene.objective
    return ObjectiveWeights(
        accuracy=objective.accuracy,
        reference_accuracy=objective.reference,
        latency=objective.latency,
        per_joule=objective.energy * scene.regime.energy_times,
        miss=objective.miss,
    )
