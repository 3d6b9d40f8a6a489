"""Short names for what tests of the simulator build again and again."""

from slimscale.simulate.measure import measure_curve
from slimscale.simulate.workload import Family, Host, TimeDistribution, Workload

__all__ = ["compile_simulator", "exponential", "time_of", "work"]


def time_of(mean_seconds: float, family: Family, variation: float = 1.0) -> TimeDistribution:
    return TimeDistribution(family, mean_seconds, variation)


def exponential(mean_seconds: float) -> TimeDistribution:
    return TimeDistribution(Family.EXPONENTIAL, mean_seconds)


def work(
    cpu: float = 0.0, blocking: float = 0.0, dispatch: float = 0.0, **more: object
) -> Workload:
    """Exponential parts of these means in seconds."""
    return Workload(
        exponential(cpu),
        exponential(blocking),
        exponential(dispatch),
        **more,  # type: ignore[arg-type]
    )


def compile_simulator() -> None:
    """Once a session, so that no test pays for it (seconds after a change, else nothing)."""
    measure_curve(work(1e-3), Host(1), (1,), seed=0, tasks=1)
