"""A pod whose throughput rises in proportion up to some thread count: for searches that climb."""

import math

from slimscale.bench.policy import PolicyView, view_between
from slimscale.domain.contract import ContractSample, HistogramSnapshot
from slimscale.simulate.workload import Host
from tests.support.bench_cases import make_sample

__all__ = ["pod_view"]

RATE_A_THREAD = 50.0


def pod_view(
    threads: int, *, useful: int, at_seconds: float, cores: int = 12, falling: float = 0.0
) -> PolicyView:
    """One second of it. `falling`: share of the throughput lost for each thread beyond `useful`."""
    busy = float(min(threads, useful))
    rate = RATE_A_THREAD * busy * (1.0 - falling) ** max(0, threads - useful)

    def sample(at: float) -> ContractSample:
        tasks = rate * at
        times = HistogramSnapshot((1.0, math.inf), (tasks, tasks), busy * at)
        held = HistogramSnapshot((1.0, math.inf), (tasks, tasks), 0.0001 * tasks)
        return make_sample(
            at,
            threads_applied=threads,
            tasks_total=tasks,
            task=times,
            dispatch=held,
            task_cpu_seconds_total=0.5 * busy * at,
            cpu_usage_seconds_total=0.5 * busy * at,
        )

    return view_between(sample(at_seconds - 1.0), sample(at_seconds), Host(cores))
