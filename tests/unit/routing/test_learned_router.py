"""The learned router behind the routing protocol: it routes by what it sees, and its file is checked."""

import json
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from slimscale.domain.serving import PodTelemetry, WidthTelemetry
from slimscale.routing.learned.features import CELL_FEATURES, REGIME_FEATURES
from slimscale.routing.learned.router import LearnedRouter
from slimscale.routing.learned.weights import PolicyWeights, Residual
from slimscale.routing.policy import PodView, RequestView, Width

WIDTHS = (Width(0.25, "m-025", 0.70, 0.07), Width(1.0, "m-100", 0.77, 1.0))
REQUEST = RequestView(rows=1, deadline_seconds=0.6, slo_seconds=0.3)
K, G = len(CELL_FEATURES), len(REGIME_FEATURES)


def pod(name: str, *, backlog: float = 0.0, row: float = 0.01) -> PodView:
    told = PodTelemetry(
        (
            WidthTelemetry("m-025", 1, False, 0, 0, 0.003, row * 0.07, 0.0),
            WidthTelemetry("m-100", 1, False, 0, 0, 0.003, row, 0.0),
        ),
        backlog,
        power_watts=50.0,
    )
    return PodView(name, "pool", told, 0.0, {})


def policy(**start: float) -> PolicyWeights:
    values = np.zeros(K)
    for name, value in start.items():
        values[CELL_FEATURES.index(name)] = value
    return PolicyWeights("test-1", values, np.zeros((K, G)))


def router(weights: PolicyWeights) -> LearnedRouter:
    made = LearnedRouter(weights, widths=WIDTHS, max_batch_rows=32)
    for number in range(50):
        made.arrived(1, now=number * 0.02)
    return made


def test_the_sooner_pod_is_taken_where_latency_counts_and_the_wider_width_where_accuracy_does() -> (
    None
):
    pods = [pod("busy", backlog=0.2), pod("idle")]
    fast = router(policy(latency=1.0)).choose(REQUEST, pods, WIDTHS, Random(1))
    accurate = router(policy(latency=1.0, accuracy=1.0)).choose(REQUEST, pods, WIDTHS, Random(1))
    assert fast is not None
    assert accurate is not None
    assert (fast.pod, fast.width.model) == ("idle", "m-025")
    assert (accurate.pod, accurate.width.model) == ("idle", "m-100")
    assert accurate.expected_seconds == pytest.approx(0.013)
    assert accurate.batch_cap == 32


def test_ejected_pods_and_narrow_widths_are_never_chosen() -> None:
    pods = [replace(pod("a"), ejected=True), pod("b", backlog=0.2)]
    demanding = replace(REQUEST, min_accuracy=0.75)
    route = router(policy(latency=1.0)).choose(demanding, pods, WIDTHS, Random(1))
    assert route is not None
    assert (route.pod, route.width.model) == ("b", "m-100")
    none = replace(REQUEST, min_accuracy=0.9)
    made = router(policy(latency=1.0))
    assert made.choose(none, pods, WIDTHS, Random(1)) is None
    assert made.trace() is None


def test_a_pod_that_comes_or_goes_needs_no_restart() -> None:
    made = router(policy(latency=1.0))
    first = made.choose(REQUEST, [pod("a", backlog=0.1), pod("b")], WIDTHS, Random(1))
    second = made.choose(REQUEST, [pod("c"), pod("a", backlog=0.1)], WIDTHS, Random(1))
    assert first is not None
    assert second is not None
    assert (first.pod, second.pod) == ("b", "c")
    assert made.choose(REQUEST, [], WIDTHS, Random(1)) is None


def test_it_holds_for_a_fuller_batch_only_where_that_pays() -> None:
    eager = router(policy(latency=1.0)).choose(REQUEST, [pod("a")], WIDTHS, Random(1))
    costly = policy(latency=1.0, hold=1.0)
    made = LearnedRouter(costly, widths=WIDTHS, max_batch_rows=32)
    for number in range(4000):  # a thousand a second: company comes soon
        made.arrived(1, now=number * 0.001)
    held = made.choose(REQUEST, [pod("a")], WIDTHS, Random(1))
    assert eager is not None
    assert held is not None
    assert eager.hold_seconds == 0.0
    assert 0.0 < held.hold_seconds < REQUEST.slo_seconds
    assert 1 < held.batch_cap <= 32


def test_the_trace_of_a_decision_is_a_copy() -> None:
    made = router(policy(latency=1.0))
    made.choose(REQUEST, [pod("a"), pod("b", backlog=0.1)], WIDTHS, Random(1))
    trace = made.trace()
    assert trace is not None
    before = trace.observation.pods.copy()
    made.choose(REQUEST, [pod("a", backlog=0.4), pod("b")], WIDTHS, Random(1))
    assert np.array_equal(trace.observation.pods, before)
    assert trace.pods == ("a", "b")
    assert trace.action == (0, 0, 5, 0)
    assert trace.log_probability <= 0.0


def test_weights_come_back_as_they_were_written() -> None:
    rng = np.random.default_rng(1)
    residual = Residual(rng.normal(size=(3, K + G)), rng.normal(size=3), rng.normal(size=3))
    weights = PolicyWeights("v7", rng.normal(size=K), rng.normal(size=(K, G)), residual, 77.0)
    data, card = weights.write({"note": "x"})
    again = PolicyWeights.read(data, json.loads(json.dumps(card)))
    for name, tensor in weights.tensors().items():
        assert np.array_equal(again.tensors()[name], tensor)
    assert (again.version, again.sharpness) == ("v7", 77.0)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"format": "other"}, "format"),
        ({"cell_features": ["a"]}, "cell_features"),
        ({"sharpness": -1}, "sharpness"),
        ({"sharpness": "hot"}, "sharpness"),
    ],
)
def test_a_card_that_does_not_fit_is_refused_with_its_remedy(
    change: dict[str, object], says: str
) -> None:
    data, card = policy(latency=1.0).write({})
    with pytest.raises(ValueError, match=says) as caught:
        PolicyWeights.read(data, {**card, **change})
    assert "train it again" in str(caught.value)


def test_damaged_weights_are_refused() -> None:
    data, card = policy(latency=1.0).write({})
    with pytest.raises(ValueError, match="no safetensors"):
        PolicyWeights.read(data[:40], card)
    odd = replace(policy(), start=np.full(K, np.nan)).write({})
    with pytest.raises(ValueError, match="not finite"):
        PolicyWeights.read(odd[0], odd[1])
    short = replace(policy(), start=np.zeros(3)).write({})
    with pytest.raises(ValueError, match=r"gate\.start has shape"):
        PolicyWeights.read(short[0], short[1])
