"""A small benchmark from the command to the page, and what it refuses."""

import json
from pathlib import Path

import numpy as np
import pytest

from slimscale.bench.routing.command import RoutingRequest, bench_routing
from slimscale.bench.routing.figures import figures_of
from slimscale.bench.routing.rules import learned_players
from slimscale.bench.routing.runner import recorded_gaps
from slimscale.bench.routing.stage import stage_of
from slimscale.bench.routing.suite import _slimmest_stage, _stable_below
from slimscale.exceptions import SlimError
from slimscale.routing.learned.features import CELL_FEATURES, REGIME_FEATURES
from slimscale.routing.learned.weights import PolicyWeights
from slimscale.simulate.routing.heuristics import Kind, WidthRule
from tests.support.routed import route, setting

pytestmark = pytest.mark.timeout(300)  # the first one waits for the compiler


def request(folder: Path, **more: object) -> RoutingRequest:
    options = {
        "quick": True, "out": folder / "out", "work": folder / "work", "traces": folder, **more,
    }  # fmt: skip
    return RoutingRequest(**options)  # type: ignore[arg-type]


def policy_file(folder: Path) -> Path:
    """A greedy score without learning, as a policy's file."""
    start = np.zeros(len(CELL_FEATURES))
    for name in ("accuracy", "latency", "late", "energy"):
        start[CELL_FEATURES.index(name)] = 1.0
    slopes = np.zeros((len(CELL_FEATURES), len(REGIME_FEATURES)))
    data, card = PolicyWeights("greedy", start, slopes).write({})
    file = folder / "greedy.safetensors"
    file.write_bytes(data)
    file.with_suffix(".json").write_text(json.dumps(card))
    return file


def test_a_learned_policy_is_read_and_plays(tmp_path: Path) -> None:
    (learned,) = learned_players([policy_file(tmp_path)])
    stage = stage_of("base", 0.2)
    plane = stage.plane(2.0, 7)
    learned.play(plane, stage)
    # At a low load plain greed is good, and far above what chance gives.
    assert learned.name == "greedy"
    assert figures_of(plane, stage).value > 0.2


@pytest.mark.slow
def test_a_quick_benchmark_writes_its_page_and_goes_on_where_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"seconds": 1.5, "test_traces": 2, "policies": (policy_file(tmp_path),)}
    bench_routing(request(tmp_path, **options))
    page = (tmp_path / "out" / "routing.md").read_text()
    assert "LPsupport-SED" in page
    assert "greedy less it" in page
    document = json.loads((tmp_path / "out" / "routing.json").read_text())
    assert {tuple(one["cell"]) for one in document["best"]} == {
        ("base", 0.3), ("base", 0.7), ("fault", 0.3), ("fault", 0.7),
    }  # fmt: skip
    done = (tmp_path / "work" / "routing.jsonl").read_text()
    bench_routing(request(tmp_path, **options))
    assert (tmp_path / "work" / "routing.jsonl").read_text() == done


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"regimes": ("calm",)}, "no regime 'calm'"),
        ({"regimes": ("trace",)}, "no trace"),
        ({"policies": (Path("no.safetensors"),)}, "no policy no.safetensors"),
    ],
)
def test_what_is_not_there_is_refused_by_name(
    tmp_path: Path, options: dict[str, object], said: str
) -> None:
    with pytest.raises(SlimError, match=said):
        bench_routing(request(tmp_path, **options))


def test_random_placement_is_stable_below_and_unstable_above_the_load_that_is_told() -> None:
    limit = _stable_below(stage_of("base", 1.0))
    assert limit == pytest.approx(0.126, abs=0.003)
    dropped = {}
    for share in (0.8, 1.5):
        stage = stage_of("base", limit * share)
        plane = route(
            stage.scene, rate=stage.rate, seconds=30.0, kind=Kind.RANDOM, row=setting(WidthRule.ANY)
        )
        on_cpu = plane.requests.of("latency")[plane.requests.of("device") == 4]
        dropped[share] = float((on_cpu == float("inf")).mean())
    assert dropped[0.8] < 0.02
    assert dropped[1.5] > 0.2  # of what comes, at least 1 - 1/1.5 cannot be served in the long run
    assert _stable_below(_slimmest_stage(1.0)) > 5 * limit


def test_recorded_gaps_spread_ties_of_the_clock(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("t_ms,x\n0,1\n10,1\n10,1\n")
    assert recorded_gaps(tmp_path / "t.csv").tolist() == [0.01, 0.0005]
