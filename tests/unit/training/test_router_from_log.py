"""Fine-tuning from a log: what it learns, what it leaves out, and what may be published."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from slimscale.routing.decision_records import DecisionRecord
from slimscale.routing.learned import layout
from slimscale.routing.learned.features import CELL_FEATURES
from slimscale.routing.learned.observation import Observation
from slimscale.routing.learned.weights import PolicyWeights
from slimscale.simulate.routing.scene import REGIMES, Scene, six
from slimscale.training.router.from_log import NotEnough, fine_tune, may_publish, reward_of
from slimscale.training.router.gate import first_gate
from slimscale.training.router.scenes import case_of

pytestmark = pytest.mark.slow  # the first run compiles for some ten seconds


def policy(sharpness: float = 2.0) -> PolicyWeights:
    gate = first_gate()
    return PolicyWeights("v1", gate.start, gate.slopes, None, sharpness)


def seen(rng: np.random.Generator) -> Observation:
    cells = np.zeros((2, 2, layout.CELLS))
    cells[:, :, layout.CELL_ROW_SECONDS] = [[0.001, 0.01], [0.001, 0.01]]
    cells[:, :, layout.CELL_SERVICE_SECONDS] = cells[:, :, layout.CELL_ROW_SECONDS] + 0.004
    cells[:, :, layout.CELL_WARM] = 1.0
    pods = np.zeros((2, layout.PODS))
    pods[:, layout.POD_DRAIN_SECONDS] = rng.uniform(0.0, 0.1, 2)
    pods[:, layout.POD_DYNAMIC_WATTS] = 50.0
    pods[:, layout.POD_SLOWDOWN] = 1.0
    service = np.array([50.0, 50.0, 1.0, 50.0, 12.0, 1.0, 0.3, 1.0, 32.0])
    return Observation(
        cells,
        pods,
        np.array([[0.70, 0.07], [0.76, 1.0]]),
        np.array([0.6, 0.3, 1.0, 0.0]),
        service,
        np.ones((2, 2), dtype=np.bool_),
    )


def log(
    count: int, latency: Callable[[int, int], float], *, acted: bool = True
) -> list[DecisionRecord]:
    """Decisions that try every cell in turn, so that there is something to compare."""
    rng = np.random.default_rng(1)
    records = []
    for number in range(count):
        pod, width = int(rng.integers(2)), int(rng.integers(2))
        took = latency(pod, width)
        action = (pod, width, 5, 0)
        records.append(
            DecisionRecord(
                seen(rng), action, action, acted, -1.4, number * 0.5, took, True, took <= 0.3,
                compute_seconds=0.01, batch_rows=1,
            )
        )  # fmt: skip
    return records


def chance_of(weights: PolicyWeights, width: int) -> float:
    """How much a policy favours a width, over some observations: its share of the softmax."""
    from slimscale.routing.learned.network import scores
    from slimscale.training.router.from_log import _table

    rng = np.random.default_rng(2)
    views = [seen(rng) for _ in range(20)]
    table = _table(views)
    shares = []
    for view in views:
        greedy, _, _ = scores(view, table, weights)
        odds = np.exp((greedy - greedy.max()) * weights.sharpness)
        shares.append(odds[:, width].sum() / odds.sum())
    return float(np.mean(shares))


def test_what_went_badly_becomes_less_likely_on_a_leash() -> None:
    records = log(1200, lambda _pod, width: 0.25 if width == 1 else 0.02)
    before = policy()
    loose = fine_tune(records, before, kl_leash=0.0, rng=np.random.default_rng(1))
    tight = fine_tune(records, before, kl_leash=50.0, rng=np.random.default_rng(1))
    # Width 1 gains .72 of accuracy and loses .83 of latency more than width 0.
    assert chance_of(loose.weights, 1) < chance_of(before, 1) - 1e-4
    assert tight.kl < 0.5 * loose.kl
    assert loose.decisions == 1200
    assert loose.weights.version == "v1+log"


def test_decisions_that_others_made_do_not_count() -> None:
    mine = log(300, lambda _pod, _width: 0.1)
    others = log(5000, lambda _pod, _width: 0.1, acted=False)
    with pytest.raises(NotEnough, match="300 decisions that the policy itself made, of 5300"):
        fine_tune([*mine, *others], policy(), rng=np.random.default_rng(1))


def test_the_reward_is_the_objective_of_what_happened() -> None:
    one = log(1, lambda _pod, _width: 0.15)[0]
    one = replace(one, done=(0, 1, 5, 0), latency_seconds=0.15, met=True)
    # 12 (.76 - .70) - .15/.3 - .3 * 50 W * 10 ms
    assert reward_of(one) == pytest.approx(0.72 - 0.5 - 0.15)
    assert reward_of(replace(one, batch_rows=0)) == pytest.approx(0.72 - 0.5)
    assert reward_of(replace(one, answered=False)) == -3.0
    late = replace(one, latency_seconds=9.0, met=False)
    assert reward_of(late) == pytest.approx(0.72 - 2.0 - 0.15 - 1.0)


def test_a_policy_that_is_worse_somewhere_is_not_published() -> None:
    good = policy()
    start = np.zeros(len(CELL_FEATURES))
    start[CELL_FEATURES.index("accuracy")] = 1.0  # always the widest: it cannot keep up
    bad = PolicyWeights("bad", start, good.slopes)
    cases = [
        case_of(Scene(six(), regime=REGIMES["base"]), load=load, seconds=2.0, seed=1)
        for load in (0.5, 0.8)
    ]
    refused = may_publish(good, bad, cases)
    assert not refused.publish
    assert "worse by" in refused.reason
    assert may_publish(bad, good, cases).publish
    assert may_publish(good, good, cases).publish
    assert not may_publish(good, good, []).publish
