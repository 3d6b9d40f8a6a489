"""OMP_DYNAMIC of libgomp: processors less the load average of the last 15 minutes.

    threads = max(1, min(processors, wanted) - floor(load15 + 0.1))        (science.md 1.8)

The load average counts the program's own runnable threads, so on a machine of its own the rule
takes the threads' own work for somebody else's. It knows affinity but no CPU quota.
"""

import math
from dataclasses import dataclass, field

from slimscale.bench.policy import Choice, PolicyView, within
from slimscale.simulate.workload import Host

__all__ = ["OpenMPDynamic"]

LOAD_SECONDS = 900.0
KERNEL_STEP_SECONDS = 5.0
"""The kernel updates its load averages this often."""


@dataclass(slots=True)
class OpenMPDynamic:
    name: str = "openmp-dynamic"
    step_seconds: float = KERNEL_STEP_SECONDS
    apply_delay_seconds: float = 0.0
    load_average: float = field(default=0.0)
    """Of an otherwise idle host when the program starts."""

    def start(self, host: Host) -> int:
        return self._threads(host.cores)

    def choose(self, view: PolicyView) -> Choice:
        runnable = view.cpu_used_cores + view.tasks_per_second * (view.task_runqueue_seconds or 0.0)
        keep = math.exp(-view.span_seconds / LOAD_SECONDS)
        self.load_average = keep * self.load_average + (1.0 - keep) * runnable
        return Choice(self._threads(view.cores))

    def _threads(self, processors: int) -> int:
        return within(max(1, processors - math.floor(self.load_average + 0.1)))
