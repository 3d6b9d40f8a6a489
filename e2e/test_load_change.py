"""The load changes and the operator follows: the project's own simulation, live, within a minute."""

import time

from e2e.conftest import Cluster
from e2e.kubectl import Kubectl
from e2e.simworkloads import start, steer, wait_settled
from e2e.workloads import simulation, simworkload

FOLLOWED_SECONDS = 60.0


def test_each_change_of_phase_is_followed_within_a_minute_without_a_restart(
    cluster: Cluster, kubectl: Kubectl
) -> None:
    pod = start(kubectl, "sim", simulation("sim", cluster.images["simserver"], phase="light"))
    kubectl.apply(simworkload("sim", "sim"))
    seen, _ = wait_settled(kubectl, "sim", "sim", unlike=16)
    threads = {"light": seen.target_threads or 0}
    last = threads["light"]
    for phase in ("blocking", "heavy"):
        started = time.monotonic()
        steer(kubectl, pod, phase=phase)
        seen, [running] = wait_settled(kubectl, "sim", "sim", FOLLOWED_SECONDS, unlike=last)
        print(
            f"{phase}: {last} -> {seen.target_threads} threads in {time.monotonic() - started:.0f} s"
        )
        threads[phase] = last = seen.target_threads or 0
        assert running.uid == pod.uid
        assert running.restarts == 0
    assert threads["blocking"] > 2 * threads["heavy"], "blocked threads leave the CPU to others"
    assert threads["light"] < threads["blocking"]
