"""The operator's own decision runs on a simulated pod and finds what the simulator holds best."""

import pytest

from slimscale.domain.contract import ContractSample
from slimscale.domain.observation import Freshness
from slimscale.simulate.measure import measure_curve
from slimscale.simulate.observe import observation_of
from slimscale.simulate.plant import Plant
from slimscale.simulate.workload import Host, Workload
from slimscale.threads.decide import decide
from tests.support.observations import make_spec
from tests.support.simulated import work

SPEC = make_spec(cpu={"limitPolicy": "Keep"})


def settled_threads(load: Workload, host: Host, *, start: int, intervals: int = 24) -> int:
    plant = Plant(load, host, threads=start, seed=4)
    samples: list[ContractSample] = [plant.sample()]
    memo: dict[str, object] = {}
    for _ in range(intervals):
        plant.advance(5.0)
        samples.append(plant.sample())
        decision = decide(
            observation=observation_of(plant, samples[-30:], now_seconds=plant.now_seconds),
            spec=SPEC,
            memo=memo,
            now_seconds=plant.now_seconds,
        )
        memo = decision.memo
        if decision.may_write and decision.target is not None:
            plant.set_threads(decision.target.threads)
    return plant.threads


@pytest.mark.parametrize(
    ("load", "host", "start"),
    [
        (work(5e-3, 30e-3, 1e-4), Host(4), 4),
        (work(10e-3, 10e-3, 1e-4), Host(8, 2.0), 2),
        (work(20e-3, 0.0, 1e-4), Host(4), 32),
    ],
    ids=["blocking", "under a quota", "far too many threads"],
)
def test_decide_comes_near_the_best_of_a_simulated_pod(
    load: Workload, host: Host, start: int
) -> None:
    chosen = settled_threads(load, host, start=start)
    counts = (1, 2, 4, 8, 16, 32, 64, 128, chosen)
    curve = measure_curve(load, host, counts, seed=1, tasks=20_000)
    assert curve[-1] > 0.92 * curve.max()


def test_the_observation_tells_threads_limit_and_node() -> None:
    plant = Plant(work(1e-3), Host(8, 1.5), threads=3, seed=1, pod_uid="p", start_seconds=50.0)
    plant.advance(5.0)
    observation = observation_of(plant, [plant.sample()], now_seconds=plant.now_seconds)
    (pod,) = observation.running_pods
    assert (pod.uid, pod.created_at_seconds) == ("p", 50.0)
    assert pod.acknowledged_threads == 3
    assert pod.spec_resources.cpu_limit_millicores == 1500
    assert observation.nodes[pod.node].allocatable_millicores == 8000
    assert pod.freshness is Freshness.FRESH


def test_without_a_quota_the_pod_has_no_limit() -> None:
    plant = Plant(work(1e-3), Host(8), threads=3, seed=1)
    (pod,) = observation_of(plant, [plant.sample()], now_seconds=0.0).pods
    assert pod.spec_resources.cpu_limit_millicores is None


def test_no_sample_and_an_old_sample_are_told_apart() -> None:
    plant = Plant(work(1e-3), Host(8), threads=3, seed=1)
    (empty,) = observation_of(plant, [], now_seconds=0.0).pods
    (old,) = observation_of(plant, [plant.sample()], now_seconds=60.0, max_age_seconds=30.0).pods
    assert (empty.freshness, old.freshness) == (Freshness.MISSING, Freshness.STALE)
