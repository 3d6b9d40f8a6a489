"""All that a simulated data plane is: one record, and one array a request, both plain numbers.

A record with fixed bounds (32 devices, 4 widths, 4 classes) is one pointer to compiled code, whatever
the scene, so that nothing is compiled anew for another pool.
"""

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from slimscale.routing.learned import layout

__all__ = ["CLASSES", "DEVICES", "SNAPSHOTS", "WIDTHS", "Look", "Plane", "Requests", "State"]
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
    # The trace: requests in all, the next to arrive, those to be routed again (a list).
    "total", "next_request", "retry_head", "retry_tail",
    # Counters: in the system, routed, ended by their kind.
    "inside", "decisions", "answered", "dropped", "batches",
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
)  # fmt: skip
_BY_DEVICE = (
    "event_at", "busy_until", "run_began", "load_until", "hold_until", "check_at",
    "slow_from", "slow_until", "down_from", "down_until", "down_since",
    "dynamic_watts", "idle_watts", "memory_free",
    "busy_seconds", "energy_joules", "slowdown",
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


class Requests(NamedTuple):
    """One entry a request in the order of arrival, then one a decision (a lost device costs another)."""

    arrival: FloatArray
    """Seconds."""
    klass: IntArray
    following: IntArray
    """The next in the same queue, batch or retry list; -1: the last."""
    open_following: IntArray
    """The next that was sent to the same device."""
    device: IntArray
    width: IntArray
    cap: IntArray
    hold: IntArray
    sent_at: FloatArray
    expected_at: FloatArray
    """When the router expects the answer."""
    latency: FloatArray
    """inf until answered, and for what was dropped."""
    energy: FloatArray
    """Joules, dynamic."""
    value: FloatArray
    """J."""
    done: IntArray
    """1: answered or dropped."""
    decision_of: IntArray
    """Of a request: its last decision; -1 before."""
    request_of: IntArray
    """Of a decision."""
    area: FloatArray
    """Of a decision: seconds in the system of all requests, from the decision before to this one."""


class Look(NamedTuple):
    """What a policy sees, as `slimscale.routing.learned.layout` says."""

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
    """Room for a trace, and for as many decisions again as devices may lose."""
    count = len(arrival)
    decisions = count + retries

    def numbers(size: int) -> IntArray:
        return np.full(size, -1, dtype=np.int64)

    def figures(size: int) -> FloatArray:
        return np.zeros(size)

    return Requests(
        arrival=np.ascontiguousarray(arrival, dtype=np.float64),
        klass=np.ascontiguousarray(klass, dtype=np.int64),
        following=numbers(count),
        open_following=numbers(count),
        device=numbers(count),
        width=numbers(count),
        cap=numbers(count),
        hold=numbers(count),
        sent_at=figures(count),
        expected_at=figures(count),
        latency=np.full(count, np.inf),
        energy=figures(count),
        value=figures(count),
        done=np.zeros(count, dtype=np.int64),
        decision_of=numbers(count),
        request_of=numbers(decisions),
        area=figures(decisions),
    )


def new_look(devices: int, widths: int) -> Look:
    return Look(
        cells=np.zeros((devices, widths, layout.CELLS)),
        pods=np.zeros((devices, layout.PODS)),
        widths=np.zeros((widths, layout.WIDTHS)),
        request=np.zeros(layout.REQUEST),
        service=np.zeros(layout.SERVICE),
        mask=np.ones((devices, widths), dtype=np.bool_),
    )
