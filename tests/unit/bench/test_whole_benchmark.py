"""The benchmark as one: it resumes, it notices changed code, it writes what it found."""

import contextlib
import json
import os
import select
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from slimscale.bench import suite as suite_module
from slimscale.bench.report import Ran, write_report
from slimscale.bench.results import Results
from slimscale.bench.suite import Plan, run_plan
from slimscale.simulate.load import LoadScenario
from slimscale.simulate.workload import Host
from tests.support.bench_cases import make_workload

POLICIES = ("autothread", "floor-of-quota", "thread-reinforcer", "best-per-phase")


class Counting:
    """Remembers what had to be done."""

    def __init__(self) -> None:
        self.begun: dict[str, int] = {}
        self.steps = 0

    def begin(self, what: str, count: int) -> None:
        self.begun[what.split(":", maxsplit=1)[0]] = count

    def step(self) -> None:
        self.steps += 1


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    waiting = make_workload(cpu_seconds=0.02, blocking_seconds=0.06, dispatch_seconds=0.001)
    computing = make_workload(cpu_seconds=0.04, blocking_seconds=0.0, dispatch_seconds=0.001)
    return Plan(
        scenarios=(
            LoadScenario(
                "steps-c2-whole-exponential", Host(2), ((0.0, waiting), (60.0, computing)), 120.0
            ),
        ),
        policies=POLICIES,
        seeds=(1, 2),
        suite_seed=1,
        folder=tmp_path / "work",
        processes=1,
        training_loads=2,
    )


def test_what_is_done_is_not_done_again(plan: Plan) -> None:
    first, second = Counting(), Counting()
    ran = run_plan(plan, first)
    again = run_plan(plan, second)
    assert first.steps == 1 + 2  # the curves of a scenario, then a run of all policies a seed
    assert second.steps == 0
    assert again.runs(ran.scenarios[0], "autothread") == ran.runs(ran.scenarios[0], "autothread")


def test_an_interrupted_benchmark_goes_on_where_it_stopped(plan: Plan) -> None:
    whole = run_plan(plan, Counting())
    runs = plan.folder / "runs.jsonl"
    lines = runs.read_text(encoding="utf-8").splitlines()
    runs.write_text("\n".join(lines[:3]) + "\n" + lines[3][:40], encoding="utf-8")
    rest = Counting()
    again = run_plan(plan, rest)
    assert rest.begun["runs"] == 2
    for policy in POLICIES:
        assert again.runs(whole.scenarios[0], policy) == whole.runs(whole.scenarios[0], policy)


def test_a_further_seed_or_policy_runs_only_what_is_new(plan: Plan) -> None:
    run_plan(plan, Counting())
    more = Counting()
    results = run_plan(replace(plan, seeds=(1, 2, 3)), more)
    assert more.begun["runs"] == 1
    assert results.seeds == (1, 2, 3)


def test_a_policy_with_few_seeds_runs_on_the_first_ones_only(plan: Plan) -> None:
    results = run_plan(replace(plan, most_seeds={"autothread": 1}), Counting())
    name = results.scenarios[0]
    assert set(results.runs(name, "autothread")) == {1}
    assert set(results.runs(name, "floor-of-quota")) == {1, 2}


def test_changed_code_makes_its_own_results_old_and_no_others(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_plan(plan, Counting())
    genuine = suite_module._code

    def changed(sources: tuple[str, ...]) -> str:
        return genuine(sources) + ("edited" if "threads" in sources else "")

    monkeypatch.setattr(suite_module, "_code", changed)
    stored = (plan.folder / "runs.jsonl").read_text(encoding="utf-8").count("\n")
    run_plan(plan, Counting())
    added = (plan.folder / "runs.jsonl").read_text(encoding="utf-8").count("\n") - stored
    assert added == 2  # autothread, a seed each


def test_no_policy_is_ahead_of_the_best_per_phase_by_more_than_noise(plan: Plan) -> None:
    results = run_plan(plan, Counting())
    name = results.scenarios[0]
    for seed, best in results.runs(name, "best-per-phase").items():
        for policy in POLICIES:
            assert results.runs(name, policy)[seed].total_tasks <= 1.05 * best.total_tasks


def test_the_report_shows_every_policy_the_figures_and_how_they_came_about(
    plan: Plan, tmp_path: Path
) -> None:
    results = run_plan(plan, Counting())
    ran = Ran("slimscale bench threads --seeds 2", "c0de", 1, 1, 2.0)
    written = write_report(results, steady=results, ran=ran, folder=tmp_path / "out")
    page = written[0].read_text(encoding="utf-8")
    for policy in POLICIES:
        assert f"| {policy} |" in page or f"**{policy}**" in page
    assert "slimscale bench threads --seeds 2" in page
    assert "2 seeds each" in page
    assert "steps-c2-whole-exponential" in page
    for line in page.splitlines():
        if line.startswith("!["):
            assert (tmp_path / "out" / line.split("(")[-1].rstrip(")")).stat().st_size > 1000
    document = json.loads(written[1].read_text(encoding="utf-8"))
    totals = {(policy, seed): tasks for _, policy, seed, tasks, _ in document["totals"]}
    run = results.runs(results.scenarios[0], "autothread")[1]
    assert totals["autothread", 1] == run.total_tasks
    assert "NaN" not in written[1].read_text(encoding="utf-8")


@pytest.mark.slow
def test_two_processes_find_what_one_finds(plan: Plan, tmp_path: Path) -> None:
    alone = run_plan(plan, Counting())
    shared = run_plan(replace(plan, processes=2, folder=tmp_path / "other"), Counting())
    name = alone.scenarios[0]
    assert _tasks(alone, name) == _tasks(shared, name)


def _tasks(results: Results, name: str) -> dict[tuple[str, int], int]:
    return {
        (policy, seed): run.total_tasks
        for policy in POLICIES
        for seed, run in results.runs(name, policy).items()
    }


@pytest.mark.slow
def test_a_benchmark_that_is_ended_leaves_no_worker_behind(tmp_path: Path) -> None:
    command = "from slimscale.cli.main import run; run()"
    process = subprocess.Popen(
        [sys.executable, "-c", command, "bench", "threads", "--work", str(tmp_path)],
        stdout=subprocess.DEVNULL,
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    workers: list[str] = []
    for _ in range(400):
        workers = children.read_text(encoding="ascii").split()
        if len(workers) >= 3:  # two workers and a tracker
            break
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.1)
    ends = [os.pidfd_open(int(pid)) for pid in workers]
    process.terminate()
    process.wait(timeout=20.0)
    assert ends
    for end in ends:
        ended, _, _ = select.select([end], [], [], 20.0)
        os.close(end)
        assert ended, "a worker outlives the benchmark"
