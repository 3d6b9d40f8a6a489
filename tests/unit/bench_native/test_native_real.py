"""The benchmark on real threads: its scenarios, what it counts, and how it compares."""

import json
from pathlib import Path

import numpy as np
import pytest

from slimscale.bench.curves import PhaseCurves
from slimscale.bench.native.real import (
    BEST_PER_PHASE,
    PHASES,
    autothread_spec,
    real_scenario,
    static_counts,
    stretched,
)
from slimscale.bench.native.real_report import real_markdown, scored_scenarios
from slimscale.bench.runner import RunRecord

MACHINE = {"cores": 2, "cpu_model": "test", "kernel": "6"}


def record(policy: str, tasks: tuple[int, ...], threads: int = 4) -> RunRecord:
    return RunRecord(
        scenario="real-quota-1",
        policy=policy,
        seed=1,
        tick_seconds=5.0,
        tasks=tasks,
        threads=(threads,) * len(tasks),
        changes=((0.0, threads),),
        cpu_core_seconds=5.0 * len(tasks),
        cpu_used_seconds=1.0,
    )


def curves() -> PhaseCurves:
    rates = tuple(np.array([1.0, 2.0, 3.0]) * (i + 1) for i in range(4))
    return PhaseCurves((1, 8, 16), (0.0, 5.0, 10.0, 15.0), (5.0,) * 4, rates)


def raw_lines(path: Path, *runs: RunRecord) -> Path:
    shared = {"scenario": "real-quota-1", "seed": 1, "machine": MACHINE, "load_average": 1.0}
    lines = [{**shared, "curves": curves().to_json()}]
    lines += [{**shared, "run": run.to_json()} for run in runs]
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    return path


def test_phases_are_whole_ticks_or_refused() -> None:
    scenario = real_scenario(1.0, cores=2, phase_seconds=20.0)
    assert [start for start, _ in scenario.phases] == [0, 20, 40, 60]
    with pytest.raises(ValueError, match="multiple of 5"):
        real_scenario(1.0, cores=2, phase_seconds=7.0)


def test_a_tick_that_stands_for_a_phase_counts_that_often() -> None:
    long = stretched(record("static-4", (10, 20, 30, 40)), ticks=4)
    assert long.total_tasks == 400
    assert long.duration_seconds == 80
    assert long.tasks_per_second == record("static-4", (10, 20, 30, 40)).tasks_per_second


def test_static_rules_use_the_first_load_and_the_hosts_cores_or_quota() -> None:
    scenario = real_scenario(1.0, cores=2, phase_seconds=5.0)
    counts = static_counts(scenario, curves())
    assert counts["unset"] == 2
    assert counts["floor-of-quota"] == 1
    assert counts["r"] == 2  # 20 us of task, 10 us of dispatch
    assert counts["1+r"] == 3
    assert counts["best-static-hindsight"] == 16


def test_each_phase_counts_alike_whatever_its_tasks_are_worth(tmp_path: Path) -> None:
    raw = raw_lines(
        tmp_path / "real.jsonl",
        record(BEST_PER_PHASE, (100_000, 100, 100, 100)),
        record("autothread-analytic", (100_000, 50, 100, 100)),
        record("static-2", (50_000, 100, 100, 100)),
    )
    (scored,) = scored_scenarios(raw)
    assert scored.regret("autothread-analytic") == pytest.approx(0.125)
    assert scored.regret("unset") == pytest.approx(0.125)
    assert scored.speed_up("autothread-analytic", "unset") == pytest.approx(1.0)
    assert scored.phase_rates["unset"][0] == 10_000
    text = real_markdown([scored], MACHINE)
    assert "| unset |" in text
    assert "static-2" not in text


def test_a_last_tick_that_is_missing_moves_no_phase(tmp_path: Path) -> None:
    raw = raw_lines(
        tmp_path / "real.jsonl",
        record(BEST_PER_PHASE, (10, 20, 30, 40)),
        record("autothread-analytic", (10, 20, 30, 40)),
    )
    text = raw.read_text().replace("[5.0, 5.0, 5.0, 5.0]", "[10.0, 10.0, 10.0, 10.0]")
    text = text.replace("[0.0, 5.0, 10.0, 15.0]", "[0.0, 10.0, 20.0, 30.0]")
    text = text.replace("[10, 20, 30, 40]", "[10, 10, 20, 20, 30, 30, 40]")
    raw.write_text(text)
    (scored,) = scored_scenarios(raw)
    assert scored.phase_rates["autothread-analytic"] == (2.0, 4.0, 6.0, 8.0)


def test_a_scenario_without_its_reference_is_not_compared(tmp_path: Path) -> None:
    raw = raw_lines(tmp_path / "real.jsonl", record("autothread-analytic", (1, 1, 1, 1)))
    assert scored_scenarios(raw) == []


def test_the_operator_runs_with_a_spec_that_a_user_could_write() -> None:
    spec = autothread_spec()
    assert spec.tuning.window_seconds >= spec.metrics.interval_seconds
    assert set(PHASES) == {"light", "blocking", "heavy", "mixed"}
