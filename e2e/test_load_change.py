"""The load changes and the operator follows: the project's own simulation, live, within a minute."""

import time
from collections.abc import Callable

from e2e.conftest import Cluster
from e2e.eventually import eventually
from e2e.kubectl import Kubectl
from e2e.simworkloads import WorkloadView, settled, start, steer, wait_settled
from e2e.workloads import QUICK_TUNING, simulation, simworkload

FOLLOWED_SECONDS = 60.0


def test_each_change_of_phase_is_followed_within_a_minute_without_a_restart(
    cluster: Cluster, kubectl: Kubectl
) -> None:
    pod = start(kubectl, "sim", simulation("sim", cluster.images["simserver"], phase="light"))
    probing = {**QUICK_TUNING, "cpuAware": True, "search": True}
    kubectl.apply(simworkload("sim", "sim", tuning=probing))
    seen, _ = wait_settled(kubectl, "sim", "sim", unlike=16)
    light = seen.target_threads or 0

    def follow(phase: str, fits: Callable[[int], bool]) -> int:
        started = time.monotonic()
        steer(kubectl, pod, phase=phase)

        def there() -> WorkloadView:
            now, [running] = settled(kubectl, "sim", "sim")
            assert (running.uid, running.restarts) == (pod.uid, 0)
            assert fits(now.target_threads or 0), f"{now.target_threads} threads: {now.changes}"
            return now

        threads = eventually(there, FOLLOWED_SECONDS, what=f"{phase} is followed").target_threads
        print(f"{phase}: {threads} threads after {time.monotonic() - started:.0f} s")
        return threads or 0

    # Tasks that wait leave the CPU to others: many threads. Those that compute: about as many as CPUs.
    blocking = follow("blocking", lambda threads: threads > max(light, 4))
    follow("heavy", lambda threads: 2 * threads <= blocking)
