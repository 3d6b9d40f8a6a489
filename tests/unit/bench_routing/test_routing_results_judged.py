"""Who is best, by how much, what lies on the front: on figures made up for the purpose."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slimscale.bench.routing.claims import claims_of
from slimscale.bench.routing.figures import Figures
from slimscale.bench.routing.judge import (
    best_of,
    best_of_regime,
    best_overall,
    difference,
    hypervolume,
    pareto,
)
from slimscale.bench.routing.rules import LEARNED, rules
from slimscale.bench.routing.runner import Results
from slimscale.bench.routing.stage import Stage
from slimscale.bench.routing.suite import Played
from slimscale.simulate.routing.scene import REGIMES, Scene, six

FIGURES = Figures(
    value=0.0, mean_seconds=0.05, p50_seconds=0.04, p95_seconds=0.1, p99_seconds=0.2, missed=0.0,
    dropped=0.0, accuracy=0.74, dynamic_joules=1.0, total_joules=2.0, in_system=3.0, batch_rows=4.0,
)  # fmt: skip
TROUBLE = ("fault", "burst", "cold", "stale", "real")


def results(
    regime: str, load: float, player: str, values: list[float], family: str = "rule", **more: float
) -> Results:
    stage = Stage(Scene(six(), regime=REGIMES[regime]), load, 2000.0 * load)
    runs = tuple(replace(FIGURES, value=value, **more) for value in values)
    return Results(stage, player, family, runs)


def played(gains: dict[str, float], *, energy: float = 1.0) -> Played:
    """Every regime at load .5: the rule has J near 0, the learned policy that much more."""
    test = []
    for regime, gain in gains.items():
        base = [0.00, 0.10, 0.05]
        test.append(results(regime, 0.5, "rule", base))
        test.append(
            results(
                regime, 0.5, "ppo", [value + gain for value in base], LEARNED,
                dynamic_joules=energy,
            )
        )  # fmt: skip
    cells = [(regime, 0.5) for regime in gains]
    return Played(
        validation=tuple(test),
        test=tuple(test),
        best=dict.fromkeys(cells, "rule"),
        of_regime=dict.fromkeys(gains, "rule"),
        overall="rule",
        of_family={cell: {"rule": "rule"} for cell in cells},
        equal={(cell, "ppo"): "rule" for cell in cells},
        bound=dict.fromkeys(cells, 1.0),
    )


def reached(found: Played) -> dict[str, bool]:
    return {claim.text.split(":")[0][:24]: claim.reached for claim in claims_of(found, ["ppo"])}


def test_a_gain_in_three_regimes_of_trouble_and_no_loss_in_the_others_is_what_is_asked_for() -> (
    None
):
    gains = {"base": 0.0, "fault": 0.04, "burst": 0.04, "cold": 0.04, "stale": -0.005, "real": 0.0}
    assert all(list(reached(played(gains, energy=0.8)).values()))


@pytest.mark.parametrize(
    "changed",
    [{"cold": 0.029}, {"stale": -0.011}],
    ids=["two gains only", "a loss"],
)
def test_less_than_that_is_said_to_be_missed(changed: dict[str, float]) -> None:
    gains = {"base": 0.0, "fault": 0.04, "burst": 0.04, "cold": 0.04, "stale": 0.0, "real": 0.0}
    found = reached(played(gains | changed))
    assert not next(ok for text, ok in found.items() if text.startswith("at least"))


def test_a_loss_on_stationary_load_is_said_to_be_missed() -> None:
    found = reached(played({"base": -0.02}))
    assert not found["stationary"]


def test_equal_accuracy_asks_for_a_tenth_less_energy_or_latency() -> None:
    gains = dict.fromkeys(TROUBLE, 0.1)
    assert reached(played(gains, energy=0.85))["at equal accuracy"]
    assert not reached(played(gains, energy=0.95))["at equal accuracy"]


def test_the_best_rule_is_found_by_cell_by_regime_and_over_all() -> None:
    found = [
        results("base", 0.3, "a", [1.0]), results("base", 0.3, "b", [0.0]),
        results("base", 0.95, "a", [-9.0]), results("base", 0.95, "b", [0.0]),
    ]  # fmt: skip
    assert best_of(found) == {("base", 0.3): "a", ("base", 0.95): "b"}
    assert best_of_regime(found, up_to=0.85) == {"base": "a"}
    assert best_overall(found) == "b"


def test_differences_are_paired_by_trace() -> None:
    theirs = np.array([0.0, 10.0, 20.0])
    gap = difference(theirs + 0.5, theirs)
    assert gap.mean == pytest.approx(0.5)
    assert (gap.low, gap.high) == pytest.approx((0.5, 0.5))


def test_the_front_has_who_is_beaten_by_nobody_in_everything() -> None:
    points = {"a": (1.0, 3.0), "b": (3.0, 1.0), "c": (3.0, 3.0), "d": (1.0, 3.0)}
    assert pareto(points) == {"a", "b", "d"}


@given(st.lists(st.tuples(*[st.integers(0, 9)] * 3), min_size=1, max_size=8))
def test_the_hypervolume_is_that_of_the_unit_cubes_that_are_dominated(
    points: list[tuple[int, int, int]],
) -> None:
    cubes = {
        (x, y, z)
        for a, b, c in points
        for x in range(a, 10)
        for y in range(b, 10)
        for z in range(c, 10)
    }
    found = hypervolume([tuple(map(float, p)) for p in points], (10.0, 10.0, 10.0))  # type: ignore[misc]
    assert found == pytest.approx(len(cubes))


def test_rules_have_names_of_their_own_and_cover_the_list_of_the_issue() -> None:
    every = list(rules())
    assert len({rule.name for rule in every}) == len(every)
    families = {rule.family for rule in every}
    for label in ("SED", "cold-aware SED", "JSQ", "P2C", "round robin"):
        for width in ("slimmest", "widest", "widest within slack"):
            assert f"{label}, {width}" in families
    assert {"random", "priced greedy", "LPsupport-SED", "LPsupport-SED, hold"} <= families
