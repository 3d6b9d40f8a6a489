"""Training the router from end to end in small: it writes a policy that routers read, and searches uphill."""

import json
from pathlib import Path

import numpy as np
import pytest

from slimscale.routing.learned.weights import PolicyWeights
from slimscale.training.router.__main__ import POLICY_NAME, main
from slimscale.training.router.climb import ClimbSettings, climb
from slimscale.training.router.compare import interval
from slimscale.training.router.evolution import EvolutionSettings, evolve
from slimscale.training.router.scenes import case_of, draw_case
from slimscale.training.router.train import SeedResult, median_result


def test_the_search_goes_uphill_on_what_all_cases_share() -> None:
    target = np.array([1.0, -2.0, 0.5])
    rng = np.random.default_rng(1)

    def value(parameters: np.ndarray, case: float) -> float:
        return -float(((parameters - target) ** 2).sum()) + 5.0 * case

    settings = EvolutionSettings(steps=150, pairs=6, cases=3, spread=0.2, rate=0.1)
    found = evolve(
        np.zeros(3),
        lambda _step: rng.normal(size=3).tolist(),
        value,
        settings=settings,
        rng=np.random.default_rng(2),
    )
    np.testing.assert_allclose(found, target, atol=0.3)


def test_a_climb_never_goes_down_and_moves_only_what_it_may() -> None:
    target = np.array([1.0, -2.0, 0.5, 9.0])
    best: list[float] = []
    found = climb(
        np.zeros(4),
        lambda tried: [-float(((one - target) ** 2).sum()) for one in tried],
        moved=[0, 1, 2],
        settings=ClimbSettings(steps=200),
        rng=np.random.default_rng(1),
        step_done=lambda _step, _parameters, value: best.append(value),
    )
    np.testing.assert_allclose(found[:3], target[:3], atol=0.1)
    assert found[3] == 0.0
    assert best == sorted(best)


def test_parameters_with_no_scale_stay_where_they_are() -> None:
    found = evolve(
        np.zeros(2),
        lambda _step: [0],
        lambda parameters, _case: float(parameters.sum()),
        settings=EvolutionSettings(steps=10, pairs=2, cases=1),
        rng=np.random.default_rng(1),
        scale=np.array([1.0, 0.0]),
    )
    assert found[0] > 0.1
    assert found[1] == 0.0


def test_the_seed_in_the_middle_ships_not_the_best() -> None:
    policy = PolicyWeights("x", np.zeros(1), np.zeros((1, 1)))
    results = [
        SeedResult(seed, policy, searched, 0.0, "search", 1, 1.0)
        for seed, searched in ((1, 0.1), (2, 0.5), (3, 0.3), (4, 0.2), (5, 0.4))
    ]
    assert median_result(results).seed == 3


def test_an_interval_holds_the_mean_and_narrows_with_traces() -> None:
    few = interval(np.array([0.1, 0.2, 0.3]))
    many = interval(np.tile([0.1, 0.2, 0.3], 10))
    assert few[0] == pytest.approx(0.2)
    assert few[1] < many[1] < 0.2 < many[2] < few[2]


@pytest.mark.slow
def test_a_case_is_the_same_each_time_and_cases_differ_by_seed() -> None:
    first, second = (draw_case(np.random.default_rng(seed), seconds=1.0) for seed in (1, 2))
    again = draw_case(np.random.default_rng(1), seconds=1.0)
    assert np.array_equal(first.trace.arrival, again.trace.arrival)
    assert not np.array_equal(first.trace.arrival, second.trace.arrival)
    assert 0.25 <= first.load <= 0.97
    assert case_of(first.scene, load=0.5, seconds=1.0, seed=3).trace.rate > 0.0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_quick_training_run_writes_a_policy_that_can_be_read_and_compared(tmp_path: Path) -> None:
    assert main(["train", "--quick", "--out", str(tmp_path)]) == 0
    card = json.loads((tmp_path / f"{POLICY_NAME}.json").read_text(encoding="utf-8"))
    data = (tmp_path / f"{POLICY_NAME}.safetensors").read_bytes()
    policy = PolicyWeights.read(data, card)
    assert policy.version == "router-seed-1"
    assert card["seeds"][0]["decisions"] > 1000
    assert main([
        "evaluate", "--quick", "--weights", str(tmp_path), "--out", str(tmp_path), "--processes", "1",
    ]) == 0  # fmt: skip
    found = json.loads((tmp_path / f"{POLICY_NAME}-comparison.json").read_text(encoding="utf-8"))
    assert set(found["regimes"]) == {"base", "fault"}
    assert main(["evaluate", "--weights", str(tmp_path / "none")]) == 1
