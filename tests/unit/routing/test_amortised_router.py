"""One look of the network serves many requests, and they get what it would have said itself."""

from collections import Counter
from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slimscale.routing.amortised import LOOK_SECONDS, AmortisedRouter
from slimscale.routing.expected_delay import DelayModel
from slimscale.routing.learned import layout
from slimscale.routing.learned.features import CELL_FEATURES, REGIME_FEATURES
from slimscale.routing.learned.network import scores
from slimscale.routing.learned.router import LearnedRouter
from slimscale.routing.learned.weights import PolicyWeights
from slimscale.routing.looks import NEAR, kind_of, two_digits
from slimscale.routing.policy import PodView, RequestView
from slimscale.routing.shielded import Pick
from tests.support.routing_cases import WIDTHS, pod, request, telemetry

CELLS, REGIMES = len(CELL_FEATURES), len(REGIME_FEATURES)


def weights(seed: int = 0) -> PolicyWeights:
    draw = np.random.default_rng(seed)
    return PolicyWeights("t", np.ones(CELLS), 0.1 * draw.normal(size=(CELLS, REGIMES)))


class Counted(AmortisedRouter):
    looks = 0

    def _look(self, *args: object) -> object:  # type: ignore[override]
        self.looks += 1
        return super()._look(*args)  # type: ignore[arg-type]


def make(kind: type[LearnedRouter] = Counted, seed: int = 0) -> LearnedRouter:
    return kind(weights(seed), widths=WIDTHS, max_batch_rows=32)


def fleet(backlogs: Sequence[float], rows: Sequence[int] = ()) -> list[PodView]:
    sent = [*rows, *([0] * len(backlogs))]
    return [
        pod(
            f"p{index}",
            telemetry(backlog=backlog, row=0.002 * (1 + index)),
            in_flight={"m-w100": sent[index]} if sent[index] else {},
        )
        for index, backlog in enumerate(backlogs)
    ]


def picked(
    router: AmortisedRouter, views: list[PodView], asked: RequestView, *, now: float
) -> Pick:
    router.arrived(asked.rows, now=now)
    candidates = DelayModel(max_batch_rows=32).candidates(asked, views, WIDTHS)
    delays = [one.expected_seconds for one in candidates]
    pick = router.pick(candidates, delays, asked, views, Random(1))
    assert pick is not None
    return pick


def regret(pick: Pick, views: list[PodView], asked: RequestView, *, now: float, seed: int) -> float:
    """J that the network itself finds lost by the pick, asked afresh."""
    router = make(LearnedRouter, seed)
    router.arrived(asked.rows, now=now)
    observation = router._builder.build(asked, views, arrivals=router._rates.per_second(now=now))
    names = tuple(one.name for one in views)
    table = router._plan(observation, names, asked.slo_seconds)
    greedy, gain, caps = scores(observation, table, router.weights)
    best = np.where((caps > 0) & (gain > 0), greedy + gain, greedy)
    mine = best[names.index(pick.candidate.pod.name), WIDTHS.index(pick.candidate.width)]
    return float(best.max() - mine)


@given(backlogs=st.lists(st.floats(0, 0.05), min_size=1, max_size=5), seed=st.integers(0, 3))
@settings(max_examples=6, deadline=None)
def test_a_first_request_gets_what_the_network_says(backlogs: list[float], seed: int) -> None:
    router, asked, views = make(Counted, seed), request(), fleet(backlogs)
    assert isinstance(router, AmortisedRouter)
    pick = picked(router, views, asked, now=1.0)
    assert regret(pick, views, asked, now=1.0, seed=seed) <= NEAR + 1e-9


def test_what_was_sent_since_the_look_moves_the_scores_along() -> None:
    """Of two pods alike the next request goes to the one that got nothing, by the same look."""
    router, asked = make(), request()
    assert isinstance(router, Counted)

    def alike(*rows: int) -> list[PodView]:
        return [
            pod(f"p{index}", telemetry(), in_flight={"m-w025": sent} if sent else {})
            for index, sent in enumerate(rows)
        ]

    picked(router, alike(0, 0), asked, now=1.0)
    for busy, rows in ((0, (8, 0)), (1, (0, 8)), (0, (20, 4))):
        pick = picked(router, alike(*rows), asked, now=1.001)
        assert pick.candidate.pod.name == f"p{1 - busy}"
        assert regret(pick, alike(*rows), asked, now=1.0, seed=0) <= NEAR + 1e-9
    assert router.looks == 1


def test_a_run_of_requests_fills_batches_as_the_network_would() -> None:
    """What is queued already makes room for the next one: the score of that cell jumps."""
    router, asked = make(), request(slo=0.3)
    assert isinstance(router, Counted)
    sent: list[Counter[str]] = [Counter(), Counter()]
    for _ in range(4):
        views = [
            pod(
                f"p{index}", telemetry(base=0.02, row=0.001), in_flight=dict(sent[index]),
                power_watts=200.0,
            )
            for index in range(2)
        ]  # fmt: skip
        pick = picked(router, views, asked, now=1.0)
        assert regret(pick, views, asked, now=1.0, seed=0) <= 0.05
        sent[int(pick.candidate.pod.name[1:])][pick.candidate.width.model] += 1
    assert router.looks == 1
    assert sorted(row.total() for row in sent) == [0, 4]  # one batch, not two


def test_looks_are_few_whatever_the_rate_and_however_the_slo_ebbs() -> None:
    router = make()
    assert isinstance(router, Counted)
    views = fleet([0.0, 0.01, 0.02])
    for number in range(400):
        ebbing = 0.25 - 1e-5 * (number % 7)  # what has passed since the request came
        picked(router, views, request(slo=ebbing), now=1.0 + number * 0.0005)
    assert router.looks <= 0.2 / LOOK_SECONDS + 1
    assert len(router._shares) == 1
    router._count_arrivals()
    fast, _ = router._rates.per_second(now=1.2)  # all are counted, if in bunches
    assert fast == pytest.approx(2000, rel=0.1)


def test_a_delay_that_jumps_is_looked_at_again() -> None:
    router, asked = make(), request()
    assert isinstance(router, Counted)
    picked(router, fleet([0.0, 0.004]), asked, now=1.0)
    jumped = fleet([0.0, 0.004], rows=[100, 60])
    pick = picked(router, jumped, asked, now=1.006)
    assert router.looks == 2
    assert regret(pick, jumped, asked, now=1.0, seed=0) <= 0.05
    picked(router, fleet([3.0, 3.1]), asked, now=1.007)
    assert router.looks == 2  # not again within a few milliseconds


@pytest.mark.parametrize("gone", ["p0", "p1"])
def test_candidates_that_are_missing_are_passed_over(gone: str) -> None:
    router, asked, views = make(), request(), fleet([0.0, 0.0, 0.001])
    assert isinstance(router, Counted)
    picked(router, views, asked, now=1.0)
    left = [one for one in views if one.name != gone]
    assert picked(router, left, asked, now=1.001).candidate.pod.name != gone
    assert router.looks == 1
    new = [pod("q", telemetry())]
    assert picked(router, new, asked, now=1.002).candidate.pod.name == "q"
    retried = request(tried=frozenset({"p0"}))
    assert picked(router, views, retried, now=1.003).candidate.pod.name != "p0"


def test_a_pod_that_answers_late_of_late_is_seen_as_such() -> None:
    router, asked, views = make(), request(), fleet([0.0, 0.0])
    assert isinstance(router, Counted)
    router.follow(lambda: {"p0": 3.0})
    picked(router, views, asked, now=1.0)
    trace = router.trace()
    assert trace is not None
    assert trace.observation.pods[:, layout.POD_SLOWDOWN].tolist() == [3.0, 1.0]


def test_the_trace_has_the_networks_own_probability() -> None:
    router, asked, views = make(), request(), fleet([0.0, 0.01])
    assert isinstance(router, Counted)
    assert router.trace() is None
    pick = picked(router, views, asked, now=1.0)
    trace = router.trace()
    alone = make(LearnedRouter)
    alone.arrived(1, now=1.0)
    alone.choose(asked, views, WIDTHS, Random(1))
    other = alone.trace()
    assert trace is not None
    assert other is not None
    assert trace.action == other.action
    assert trace.log_probability == pytest.approx(other.log_probability)
    assert trace.pods[trace.action[0]] == pick.candidate.pod.name
    kept = trace.observation.pods.copy()
    picked(router, fleet([0.5, 0.6]), asked, now=2.0)
    assert np.array_equal(kept, trace.observation.pods)


@given(seconds=st.floats(1e-6, 1e5))
@settings(deadline=None)
def test_two_digits_are_within_five_per_cent(seconds: float) -> None:
    assert two_digits(seconds) == pytest.approx(seconds, rel=0.05)


def test_requests_with_unlike_wishes_have_looks_of_their_own() -> None:
    kinds = {
        kind_of(request()), kind_of(request(rows=2)), kind_of(request(slo=0.1)),
        kind_of(request(min_accuracy=0.7)), kind_of(request(deadline=0.05)),
    }  # fmt: skip
    assert len(kinds) == 5
    assert kind_of(request(deadline=3.0)) == kind_of(request(deadline=9.0))
