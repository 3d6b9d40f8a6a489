"""The page of the bounds: what is computed, that losses stand in it, and what the command refuses."""

import json
from pathlib import Path
from typing import Any

import pytest

from slimscale.bench.bounds import figures
from slimscale.bench.bounds.command import BoundsRequest, bench_bounds
from slimscale.bench.bounds.report import write_report
from slimscale.exceptions import SlimError


def _nothing() -> None:
    """No progress to show."""


def _plane_row(policy: str, objective: float) -> dict[str, Any]:
    return {
        "regime": "base", "load": 0.3, "policy": policy, "objective": objective,
        "objective_deviation": 0.01, "bound": 0.4, "latency_seconds": 0.02, "joules": 0.5,
        "accuracy": 0.75, "late_share": 0.01,
    }  # fmt: skip


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return {
        "planning": figures.planning_rows((0.3, 0.95), _nothing),
        "batching": figures.batching_rows((0.3,), (0.0, 0.2), _nothing),
        "routing": figures.routing_rows((0.3,), 4, _nothing),
        "placement": figures.placement_rows(1, 20),
        "timers": figures.timer_rows(1, 200),
        "cuts": figures.cut_rows((1e4, 1e6, 1e9)),
        "holding": [
            {
                "load": 0.3, "energy_weight_times": 5.0, "greedy_joules": 0.7, "held_joules": 0.3,
                "bound_joules": 0.05, "held_way": 0.615, "greedy_latency_seconds": 0.01,
                "held_latency_seconds": 0.02, "held_late_share": 0.0, "planned_joules": 0.2,
                "planned_way": 0.77, "planned_latency_seconds": 0.03, "planned_late_share": 0.0,
            }
        ],
        "plane": [_plane_row("SED, slimmest", 0.1), _plane_row("delay timers", 0.04)],
        "shop": [{"rule": "SPT", "p = 0": 1.0}],
        "ran": {
            "command": "slimscale bench bounds", "machine": "here", "code": "abc", "seeds": [1],
            "minutes": 1.0, "seconds": 1.0, "queue_cap": 4, "regimes": ["base"],
        },
    }  # fmt: skip


def test_a_loss_stands_in_the_table_with_its_sign(document: dict[str, Any], tmp_path: Path) -> None:
    data, page, image = write_report(document, tmp_path)
    text = page.read_text(encoding="utf-8")
    assert "| delay timers | 0.3 | 0.040 ±0.010 | -0.060 |" in text
    assert f"]({image.name})" in text
    assert image.stat().st_size > 10_000
    assert json.loads(data.read_text(encoding="utf-8"))["ran"]["seeds"] == [1]


def test_bounds_fall_with_the_load_and_no_rule_passes_the_optimum(document: dict[str, Any]) -> None:
    low, high = document["planning"]
    assert low["objective"] > high["objective"]
    assert low["joules_any_accuracy"] < low["joules_at_accuracy"]
    (row,) = document["routing"]
    rules = {name: value for name, value in row.items() if name.startswith(("SED", "LP"))}
    assert max(rules.values()) <= row["optimum"] + 1e-4 < row["planning bound"]


def test_cold_aware_plans_and_tuned_timers_are_not_worse(document: dict[str, Any]) -> None:
    for row in document["placement"]:
        assert row["cold_aware_seconds"] <= row["planned_with_sums_seconds"] + 1e-12
    for row in document["timers"]:
        assert row["hindsight"] <= row["tuned"] <= row["untuned (Δ)"] * 1.02
        assert row["untuned (Δ)"] <= 2.0 * row["hindsight"]


def test_an_unknown_regime_is_refused_by_name() -> None:
    with pytest.raises(SlimError, match="--regimes weather: give some of base"):
        bench_bounds(BoundsRequest(True, None, 1, 1.0, ("weather",)))
