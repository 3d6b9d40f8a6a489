"""From a scene and a trace to a plane at time 0."""

from math import inf

import numpy as np
from numpy.typing import NDArray

from slimscale.routing.learned import layout
from slimscale.simulate.distributions import seed_state
from slimscale.simulate.routing.scene import Scene
from slimscale.simulate.routing.state import (
    CLASSES,
    DEVICES,
    STATE,
    WIDTHS,
    Plane,
    new_look,
    new_requests,
)
from slimscale.simulate.routing.telling import tell

__all__ = ["new_plane", "service_seconds", "set_objective"]


def service_seconds(scene: Scene) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(base, row) seconds by device and width; a batch of b rows takes base + b * row."""
    flops = np.array([width.flops_ratio for width in scene.widths])
    base = np.array([[device.base_seconds] * len(flops) for device in scene.devices])
    row = np.array([device.row_seconds * flops for device in scene.devices])
    return base, row


def new_plane(
    scene: Scene,
    arrival: NDArray[np.float64],
    klass: NDArray[np.int64],
    *,
    seed: int,
    planned_load: float = 0.0,
) -> Plane:
    """A plane before the first of `arrival` (ascending seconds); `klass`: an index of scene.classes.

    `planned_load`: rows a second that the router is told to expect; 0: nobody tells.
    Raises ValueError for a scene with more devices, widths or classes than the record holds.
    """
    for what, count, most in (
        ("devices", len(scene.devices), DEVICES),
        ("widths", len(scene.widths), WIDTHS),
        ("classes", len(scene.classes), CLASSES),
    ):
        if not 1 <= count <= most:
            raise ValueError(f"the scene has {count} {what}; give 1 to {most}")
    state = np.zeros(1, dtype=STATE)
    s = state[0]
    regime = scene.regime
    s["rng"] = seed_state(seed)
    s["devices"], s["widths"], s["classes"] = (
        len(scene.devices), len(scene.widths), len(scene.classes)
    )  # fmt: skip
    s["max_rows"], s["total"], s["retry_head"] = scene.max_batch_rows, len(arrival), -1
    s["parked_head"] = -1
    s["noise"], s["delay"] = scene.noise, regime.telemetry_seconds
    s["drop_ratio"], s["evict_after"] = scene.drop_ratio, scene.evict_after_seconds
    s["slow_factor"], s["slow_seconds"] = regime.slow_factor, regime.slow_seconds
    s["slow_gap"] = regime.slow_gap_seconds
    s["down_seconds"], s["down_gap"] = regime.down_seconds, regime.down_gap_seconds
    s["rate_began"], s["planned_load"] = -1.0, planned_load
    s["accuracy"][: len(scene.widths)] = [width.accuracy for width in scene.widths]
    s["flops"][: len(scene.widths)] = [width.flops_ratio for width in scene.widths]
    s["slo"][: len(scene.classes)] = [one.slo_seconds for one in scene.classes]
    s["min_accuracy"][: len(scene.classes)] = [one.min_accuracy for one in scene.classes]
    for name in ("busy_until", "load_until", "hold_until", "check_at", "down_from", "down_until"):
        s[name][:] = inf
    for name in ("head", "tail", "open_head", "run_head", "load_width"):
        s[name][...] = -1
    s["scale"][...] = 1.0
    s["slowdown"][:] = 1.0
    _set_devices(state, scene, seed)
    plane = Plane(
        state, new_requests(arrival, klass), new_look(len(scene.devices), len(scene.widths))
    )
    set_objective(plane, scene)
    for device in range(len(scene.devices)):
        tell(s, device)
        s["known"][device] = 1
    s["changed"][:] = 1
    s["mask_changed"] = 1
    return plane


def _set_devices(state: NDArray[np.void], scene: Scene, seed: int) -> None:
    s, regime = state[0], scene.regime
    devices, widths = len(scene.devices), len(scene.widths)
    base, row = service_seconds(scene)
    s["base"][:devices, :widths], s["row"][:devices, :widths] = base, row
    rng = np.random.default_rng((seed, 1))
    for index, device in enumerate(scene.devices):
        s["dynamic_watts"][index] = device.dynamic_watts
        s["idle_watts"][index] = device.idle_watts
        memory = min(device.memory, regime.memory)
        room = memory
        for width, kind in enumerate(scene.widths):
            s["memory"][index, width] = kind.ratio
            s["load"][index, width] = device.load_seconds * (0.5 + 0.5 * kind.ratio)
            if kind.ratio <= room + 1e-9:  # the slimmest first, while there is room
                s["warm"][index, width] = 1
                room -= kind.ratio
        if not s["warm"][index].any():
            raise ValueError(
                f"device {device.name} has memory {memory:g} of the widest width, not enough for"
                " any; give more"
            )
        s["memory_free"][index] = room
        # Slow-downs are a renewal process that has gone on for long: some devices begin in one.
        if regime.slow_gap_seconds < inf:
            if rng.random() < regime.slow_seconds / (regime.slow_seconds + regime.slow_gap_seconds):
                s["slow_from"][index] = 0.0
                s["slow_until"][index] = rng.uniform(0.0, regime.slow_seconds)
            else:
                s["slow_from"][index] = rng.exponential(regime.slow_gap_seconds)
                s["slow_until"][index] = s["slow_from"][index] + regime.slow_seconds
        if regime.down_gap_seconds < inf:
            s["down_from"][index] = rng.exponential(regime.down_gap_seconds)
        s["event_at"][index] = s["down_from"][index]


def set_objective(plane: Plane, scene: Scene) -> None:
    """Weights of the objective: what the requests' J counts, and what a policy is told to want."""
    s, service = plane.state[0], plane.look.service
    objective = scene.objective
    energy = objective.energy * scene.regime.energy_times
    s["weight_accuracy"], s["weight_latency"] = objective.accuracy, objective.latency
    s["weight_energy"], s["weight_miss"] = energy, objective.miss
    s["reference"] = objective.reference
    service[layout.SERVICE_ACCURACY_WEIGHT] = objective.accuracy
    service[layout.SERVICE_LATENCY_WEIGHT] = objective.latency
    service[layout.SERVICE_ENERGY_WEIGHT] = energy
    service[layout.SERVICE_MISS_WEIGHT] = objective.miss
    service[layout.SERVICE_MAX_BATCH_ROWS] = scene.max_batch_rows
    plane.look.widths[:, layout.WIDTH_ACCURACY] = [width.accuracy for width in scene.widths]
    plane.look.widths[:, layout.WIDTH_FLOPS_RATIO] = [w.flops_ratio for w in scene.widths]
