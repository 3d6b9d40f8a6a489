"""What is simulated: unlike devices, widths, classes of requests, a regime of trouble, an objective."""

from dataclasses import dataclass, replace
from math import inf

from slimscale.routing.policy import Width

__all__ = ["REGIMES", "WIDTHS", "Device", "Objective", "Regime", "RequestClass", "Scene", "six"]

WIDTHS = (
    Width(0.25, "w25", 0.703, 0.07),
    Width(0.50, "w50", 0.735, 0.27),
    Width(0.75, "w75", 0.755, 0.56),
    Width(1.00, "w100", 0.765, 1.0),
)
"""Accuracy and FLOPs as in the first experiment: the slimmest is the paper's 70.3 %."""


@dataclass(frozen=True, slots=True)
class Device:
    """A batch of b rows takes base + b * row * flops(width) seconds. Memory in units of the widest width."""

    name: str
    base_seconds: float
    row_seconds: float
    dynamic_watts: float
    idle_watts: float
    load_seconds: float = 0.3
    """Of the widest width; half of it does not depend on the width."""
    memory: float = inf


@dataclass(frozen=True, slots=True)
class RequestClass:
    slo_seconds: float
    share: float
    min_accuracy: float = 0.0


@dataclass(frozen=True, slots=True)
class Objective:
    """J = accuracy (a - reference) - latency min(l / SLO, 2) - energy E - miss [l > SLO]; E in joules.

    `energy` is what the experiment's .3 is, times five in its regime "energy".
    """

    accuracy: float = 12.0
    latency: float = 1.0
    energy: float = 0.3
    miss: float = 1.0
    reference: float = 0.703


@dataclass(frozen=True, slots=True)
class Regime:
    """Trouble on top of a steady Poisson load."""

    name: str
    burst: bool = False
    """2.33 times the mean load for 1 s, .43 times for 2.33 s, in the mean."""
    trace: bool = False
    """Gaps of a recorded trace instead of exponential ones."""
    telemetry_seconds: float = 0.0
    """How late the router learns what a device told."""
    memory: float = inf
    """Of every device, in units of the widest width."""
    slow_factor: float = 1.0
    slow_seconds: float = 1.5
    slow_gap_seconds: float = inf
    """Mean time from the end of one slow-down of a device to the next."""
    down_seconds: float = 2.0
    down_gap_seconds: float = inf
    """Mean time from a device's return to its next random shutdown."""
    energy_times: float = 1.0


_FAULT = Regime("fault", slow_factor=5.0, slow_seconds=1.5, slow_gap_seconds=6.5)
REGIMES = {
    regime.name: regime
    for regime in (
        Regime("base"),
        Regime("burst", burst=True),
        Regime("stale", telemetry_seconds=0.2),
        Regime("cold", memory=1.3),
        _FAULT,
        Regime("energy", energy_times=5.0),
        replace(_FAULT, name="real", burst=True, telemetry_seconds=0.2, memory=1.3),
        Regime("trace", trace=True),
        Regime("shutdown", down_gap_seconds=18.0),
    )
}
"""The experiment's seven, and two of ours: recorded arrivals and random shutdowns (ISBJSSP's axis)."""


@dataclass(frozen=True, slots=True)
class Scene:
    devices: tuple[Device, ...]
    widths: tuple[Width, ...] = WIDTHS
    classes: tuple[RequestClass, ...] = (RequestClass(0.1, 0.3), RequestClass(0.3, 0.7))
    objective: Objective = Objective()
    regime: Regime = REGIMES["base"]
    noise: float = 0.15
    """Standard deviation of the logarithm of a batch's time."""
    max_batch_rows: int = 32
    drop_ratio: float = 2.0
    """A request is dropped at so many times its SLO: more latency costs no more."""
    evict_after_seconds: float = 0.2
    """An instance that has been idle for less keeps its memory."""

    def under(self, regime: Regime) -> "Scene":
        return replace(self, regime=regime)


def six() -> tuple[Device, ...]:
    """The experiment's devices: one fast, three GPUs of two kinds, a CPU, an edge box."""
    return (
        Device("fast", 0.006, 0.002, 200.0, 50.0),
        Device("gpu-a", 0.008, 0.005, 120.0, 30.0),
        Device("gpu-b", 0.008, 0.005, 120.0, 30.0),
        Device("small", 0.012, 0.012, 45.0, 10.0),
        Device("cpu", 0.003, 0.045, 65.0, 20.0, load_seconds=0.2),
        Device("edge", 0.015, 0.024, 12.0, 3.0, load_seconds=0.6),
    )
