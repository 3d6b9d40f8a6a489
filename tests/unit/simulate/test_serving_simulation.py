"""The simulated data plane: nothing is lost, times agree with the model, pods take time to come."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from slimscale.routing.heuristics import ColdAwareSED
from slimscale.routing.policy import Width
from slimscale.scaling.sizing import BatchServer, latency
from slimscale.simulate.serving.arrivals import Arrivals, bursts, denser, poisson
from slimscale.simulate.serving.cluster import SimCluster
from slimscale.simulate.serving.plane import Outcome, PlaneView, ServingRun, simulate_serving
from slimscale.simulate.serving.service import SimPool, SimService

WIDE = Width(1.0, "m-w100", 0.9, 1.0)
NARROW = Width(0.25, "m-w025", 0.8, 0.1)
POOL = SimPool("cpu", 0.02, 0.05, start_seconds=10.0)
SERVICE = SimService((POOL,), (WIDE,), slo_seconds=0.5, deadline_seconds=60.0, noise=0.0)


@dataclass(slots=True)
class Script:
    """Replicas by the second; the last one at or before now holds."""

    steps: Mapping[float, int]
    period_seconds: float = 1.0
    seen: list[PlaneView] = field(default_factory=list)

    def scale(self, view: PlaneView) -> tuple[Mapping[str, int], Mapping[str, int]]:
        self.seen.append(view)
        due = [count for at, count in sorted(self.steps.items()) if at <= view.now]
        return ({"cpu": due[-1]} if due else {}), {}


def run(
    arrivals: Arrivals,
    script: Script,
    *,
    service: SimService = SERVICE,
    start: int = 1,
    seed: int = 1,
) -> ServingRun:
    policy = ColdAwareSED(max_batch_rows=service.max_batch_rows)
    return simulate_serving(service, arrivals, policy, script, start={"cpu": start}, seed=seed)


def test_one_pod_takes_as_long_as_the_batch_model_says() -> None:
    arrivals = poisson("p", rows_per_second=8.0, duration_seconds=1500.0, rng=Random(3))
    found = run(arrivals, Script({}), service=replace(SERVICE, slo_seconds=50.0))
    mean = sum(found.latencies) / len(found.latencies)
    expected = latency(BatchServer(0.02, 0.05, 32), 8.0, 0.5).mean_seconds
    assert mean == pytest.approx(expected, rel=0.05)


def test_every_request_is_answered_while_pods_come_and_go() -> None:
    arrivals = poisson("p", rows_per_second=25.0, duration_seconds=120.0, rng=Random(1))
    script = Script({10: 6, 40: 2, 60: 8, 70: 1, 80: 5})
    found = run(arrivals, script, start=3)
    assert set(found.outcomes) == {Outcome.ANSWERED}
    assert all(math.isfinite(seconds) for seconds in found.latencies)


def test_the_same_seed_gives_the_same_run_and_another_one_another() -> None:
    arrivals = poisson("p", rows_per_second=20.0, duration_seconds=60.0, rng=Random(1))
    noisy = replace(SERVICE, noise=0.2)
    first, again = (run(arrivals, Script({5: 4}), service=noisy, seed=7) for _ in range(2))
    assert first == again
    assert run(arrivals, Script({5: 4}), service=noisy, seed=8) != first


def test_a_pod_serves_only_after_it_has_started() -> None:
    arrivals = poisson("p", rows_per_second=5.0, duration_seconds=60.0, rng=Random(1))
    found = run(arrivals, Script({20: 3}))
    ready = {int(at): count for at, _, count in found.timeline}
    assert ready[25] == 1
    assert ready[40] == 3


def test_missing_nodes_make_pods_wait_unschedulable() -> None:
    crowded = replace(POOL, pods_per_node=2, first_nodes=1, node_seconds=30.0)
    service = replace(SERVICE, pools=(crowded,))
    cluster = SimCluster(service, {"cpu": 2}, Random(1))
    (third,) = cluster.scale("cpu", 3, 100.0)
    assert third.placed_at == 130.0
    assert third.observed(110.0, None).unschedulable
    assert not third.observed(131.0, None).unschedulable


def test_requests_at_zero_wait_for_the_first_pod() -> None:
    arrivals = Arrivals("one", (5.0, 5.1, 60.0), (1, 1, 1))
    found = run(arrivals, Script({0: 0, 6: 1}), start=0)
    assert found.outcomes == [Outcome.ANSWERED] * 3
    assert found.latencies[0] > POOL.start_seconds / 2


def test_a_deadline_that_passes_is_a_miss() -> None:
    arrivals = Arrivals("late", (1.0, 80.0), (1, 1))
    short = replace(SERVICE, deadline_seconds=2.0)
    found = run(arrivals, Script({0: 0, 50: 1}), start=0, service=short)
    assert found.outcomes[0] == Outcome.LATE
    assert found.latencies[0] == math.inf
    assert found.attainment(0.5) == 0.5


def test_narrower_widths_bridge_a_burst_at_lower_accuracy() -> None:
    arrivals = bursts(
        "b", low=2.0, high=60.0, low_seconds=20.0, high_seconds=10.0, duration_seconds=200.0,
        rng=Random(4),
    )  # fmt: skip
    wide = run(arrivals, Script({}), start=2)
    both = run(arrivals, Script({}), start=2, service=replace(SERVICE, widths=(NARROW, WIDE)))
    assert both.attainment(0.5) > wide.attainment(0.5)
    answered = [accuracy for accuracy in both.accuracies if accuracy]
    assert NARROW.accuracy < sum(answered) / len(answered) < WIDE.accuracy


def test_scale_in_takes_starting_pods_first_and_pays_until_the_drain_ends() -> None:
    cluster = SimCluster(SERVICE, {"cpu": 2}, Random(1))
    cluster.scale("cpu", 4, 10.0)
    cluster.scale("cpu", 2, 15.0)
    assert all(pod.ready for pod in cluster.pods)
    assert cluster.pod_seconds("cpu", 100.0) == pytest.approx(2 * 100.0 + 2 * 5.0)


def test_the_scaler_sees_the_arrivals_of_both_windows() -> None:
    arrivals = Arrivals("steps", tuple(i / 10 for i in range(1, 900)), (1,) * 899)
    script = Script({}, period_seconds=5.0)
    run(arrivals, script, start=3)
    demand = next(v.observation.demand for v in script.seen if v.now == 80.0)
    assert demand is not None
    assert demand.stable_rows_per_second == pytest.approx(10.0, rel=0.05)
    assert demand.panic_rows_per_second == pytest.approx(10.0, rel=0.2)


def test_denser_traces_keep_their_bursts() -> None:
    made = denser("d", [1.0, 100.0], copies=3, jitter_seconds=2.0, rng=Random(1))
    assert len(made.seconds) == 6
    assert list(made.seconds) == sorted(made.seconds)
    assert all(1.0 <= at <= 3.0 for at in made.seconds[:3])
