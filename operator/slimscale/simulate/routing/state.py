"""All that a simulated data plane is: one record, and one array a request, both plain numbers.

A record with fixed bounds (32 devices, 4 widths, 4 classes) is one pointer to compiled code, whatever
the scene, so that nothing is compiled anew for another pool.
"""

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from slimscale.routing.learned import layout

__all__ = [
    "CLASSES",
    "DECISION",
    "DEVICES",
    "REQUEST",
    "SNAPSHOTS",
    "WIDTHS",
    "Look",
    "Plane",
    "Requests",
    "State",
]
__all__ += ["STATE", "new_look", "new_requests"]

DEVICES, WIDTHS, CLASSES = 32, 4, 4
"""The most of each."""
SNAPSHOTS = 64
"""Telemetry of a device that is on its way to the router."""

State: TypeAlias = NDArray[Any]
FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]

_SCALARS_INT = (
    # The scene's sizes.
    "devices", "widths", "classes", "max_rows",
    # The trace: requests in all, the next to arrive, those to be routed again (a list), those for
    # which no device is there (another).
    "total", "next_request", "retry_head", "retry_tail", "parked_head",
    # Counters: in the system, routed, ended by their kind.
    "inside", "decisions", "answered", "dropped", "batches",
    # Of the mask in `Look`: 1 where some device came or went, and the class it is of.
    "mask_changed", "mask_class",
)  # fmt: skip
_SCALARS = (
    "now", "noise", "delay", "drop_ratio", "evict_after",
    # Slow-downs and shutdowns.
    "slow_factor", "slow_seconds", "slow_gap", "down_seconds", "down_gap",
    # The objective.
    "weight_accuracy", "weight_latency", "weight_energy", "weight_miss", "reference",
    # Number in system: its integral over time, and up to where the decisions have counted it.
    "area", "area_counted",
    # Arrivals as the router counts them.
    "rate_fast", "rate_slow", "rate_began", "rate_at", "planned_load",
)  # fmt: skip
_BY_DEVICE_INT = (
    "run_width", "run_rows", "run_head", "load_width", "down", "cut_short",
    # Requests sent and not ended, oldest first; telemetry in the ring, and the newest that is known.
    "open_head", "open_tail", "told", "known",
    # 1: the figures in `Look` are of before.
    "changed",
)  # fmt: skip
_BY_DEVICE = (
    "event_at", "busy_until", "run_began", "load_until", "hold_until", "check_at",
    "slow_from", "slow_until", "down_from", "down_until", "down_since",
    "dynamic_watts", "idle_watts", "memory_free",
    "busy_seconds", "energy_joules", "slowdown",
    # As the router has it: when its telemetry was made, the backlog in it, work sent since.
    "known_at", "known_backlog", "flight_seconds",
)  # fmt: skip
_BY_CELL_INT = ("warm", "queued", "eager", "sent", "received", "clipped")
_BY_CELL = ("base", "row", "load", "memory", "scale", "used_at")

STATE = np.dtype(
    [
        ("rng", np.uint64),
        *((name, np.int64) for name in _SCALARS_INT),
        *((name, np.float64) for name in _SCALARS),
        *((name, np.int64, (DEVICES,)) for name in _BY_DEVICE_INT),
        *((name, np.float64, (DEVICES,)) for name in _BY_DEVICE),
        *((name, np.int64, (DEVICES, WIDTHS)) for name in _BY_CELL_INT),
        *((name, np.float64, (DEVICES, WIDTHS)) for name in _BY_CELL),
        # Queues: a list a device, width and class; a class's deadlines come in order.
        ("head", np.int64, (DEVICES, WIDTHS, CLASSES)),
        ("tail", np.int64, (DEVICES, WIDTHS, CLASSES)),
        ("accuracy", np.float64, (WIDTHS,)),
        ("flops", np.float64, (WIDTHS,)),
        ("slo", np.float64, (CLASSES,)),
        ("min_accuracy", np.float64, (CLASSES,)),
        # Telemetry: when it was made, and what it says.
        ("told_at", np.float64, (DEVICES, SNAPSHOTS)),
        ("told_backlog", np.float64, (DEVICES, SNAPSHOTS)),
        ("told_queued", np.float64, (DEVICES, SNAPSHOTS * WIDTHS)),
        ("told_received", np.float64, (DEVICES, SNAPSHOTS * WIDTHS)),
        ("told_scale", np.float64, (DEVICES, SNAPSHOTS * WIDTHS)),
        ("told_load", np.float64, (DEVICES, SNAPSHOTS * WIDTHS)),
    ],
    align=True,
)


REQUEST = np.dtype(
    [
        ("arrival", np.float64),  # seconds
        ("sent_at", np.float64),
        ("expected_at", np.float64),  # when the router expects the answer
        ("latency", np.float64),  # inf until answered, and for what was dropped
        ("energy", np.float64),  # joules, dynamic
        ("value", np.float64),  # J
        ("following", np.int64),  # the next in the same queue, batch or retry list; -1: the last
        ("open_following", np.int64),  # the next that was sent to the same device
        ("decision", np.int64),  # its last one; -1 before
        ("klass", np.int64),
        ("device", np.int64),
        ("width", np.int64),
        ("cap", np.int64),
        ("hold", np.int64),
        ("done", np.int64),  # 1: answered or dropped
    ],
    align=True,
)
DECISION = np.dtype(
    [
        ("request", np.int64),
        # Seconds in the system of all requests together, from the decision before to this one.
        ("area", np.float64),
    ],
    align=True,
)


class Requests(NamedTuple):
    """A trace on its way: records, since compiled code passes each array of a tuple by value."""

    each: NDArray[Any]
    """(requests,) of REQUEST, in the order of arrival."""
    decisions: NDArray[Any]
    """(decisions,) of DECISION; more than requests, since a device that fails costs new ones."""

    def of(self, name: str) -> NDArray[Any]:
        """One figure of all requests."""
        return np.asarray(self.each[name])


class Look(NamedTuple):
    """What a policy sees, as `slimscale.routing.learned.layout` says.

    Belongs to one plane: what has not changed since the last decision is not written again.
    """

    cells: FloatArray
    pods: FloatArray
    widths: FloatArray
    request: FloatArray
    service: FloatArray
    mask: NDArray[np.bool_]


class Plane(NamedTuple):
    """A simulated data plane at one instant; `state` has shape (1,)."""

    state: State
    requests: Requests
    look: Look


def new_requests(arrival: FloatArray, klass: IntArray, *, retries: int = 4096) -> Requests:
    """Room for a trace, and for so many decisions more as devices may lose requests."""
    each = np.zeros(len(arrival), dtype=REQUEST)
    each["arrival"], each["klass"], each["latency"] = arrival, klass, np.inf
    for name in ("following", "open_following", "decision", "device", "width"):
        each[name] = -1
    return Requests(each, np.zeros(len(arrival) + retries, dtype=DECISION))


def new_look(devices: int, widths: int) -> Look:
    return Look(
        cells=np.zeros((devices, widths, layout.CELLS)),
        pods=np.zeros((devices, layout.PODS)),
        widths=np.zeros((widths, layout.WIDTHS)),
        request=np.zeros(layout.REQUEST),
        service=np.zeros(layout.SERVICE),
        mask=np.ones((devices, widths), dtype=np.bool_),
    )
