"""One policy on one scenario: what is recorded, and that nothing is for free."""

import math
from dataclasses import dataclass, field

import pytest

from slimscale.bench.autothread import AutoThread, benchmark_spec
from slimscale.bench.baselines.static import Fixed
from slimscale.bench.policy import Choice, PolicyView
from slimscale.bench.runner import RunRecord, run_policy
from slimscale.simulate.load import LoadScenario
from slimscale.simulate.measure import measure_curve
from slimscale.simulate.workload import Host, Workload
from tests.support.bench_cases import make_workload

HOST = Host(4)


@dataclass(slots=True)
class Scripted:
    """Answers what it was told to, and remembers what it was asked."""

    answers: list[Choice]
    step_seconds: float = 10.0
    apply_delay_seconds: float = 0.0
    name: str = "scripted"
    seen: list[PolicyView] = field(default_factory=list)

    def start(self, host: Host) -> int:
        del host
        return 2

    def choose(self, view: PolicyView) -> Choice:
        self.seen.append(view)
        return self.answers.pop(0) if self.answers else Choice(None)


def scenario(*phases: tuple[float, Workload], seconds: float = 60.0) -> LoadScenario:
    return LoadScenario("steps-c4-whole-exponential", HOST, phases, seconds)


STEADY = scenario((0.0, make_workload()))


def test_a_static_count_does_what_its_curve_says() -> None:
    run = run_policy(STEADY, Fixed("fixed-8", threads=8), seed=1)
    expected = measure_curve(make_workload(), HOST, (8,), seed=2, tasks=20_000)[0]
    assert run.tasks_per_second == pytest.approx(expected, rel=0.05)
    assert run.threads == (8,) * 12
    assert run.changes == ((0.0, 8),)


def test_time_spent_on_a_bad_candidate_is_in_the_throughput() -> None:
    steady = run_policy(STEADY, Fixed("fixed-16", threads=16), seed=1)
    probing = run_policy(STEADY, Scripted([Choice(1), Choice(16)]), seed=1)
    assert probing.changes == ((0.0, 2), (10.0, 1), (20.0, 16))
    assert probing.total_tasks < 0.85 * steady.total_tasks


def test_what_is_wanted_holds_after_the_delay_and_not_before() -> None:
    run = run_policy(STEADY, Scripted([Choice(9)], apply_delay_seconds=1.0), seed=1)
    assert run.changes == ((0.0, 2), (11.0, 9))


def test_a_view_never_mixes_two_thread_counts() -> None:
    policy = Scripted([Choice(9), Choice(3)], apply_delay_seconds=1.0)
    run_policy(STEADY, policy, seed=1)
    assert [view.span_seconds for view in policy.seen[:3]] == pytest.approx([10.0, 9.0, 9.0])
    assert [view.threads for view in policy.seen[:3]] == [2, 9, 3]


def test_what_was_decided_holds_even_when_the_next_question_comes_at_that_moment() -> None:
    policy = Scripted([Choice(9), Choice(3)], apply_delay_seconds=10.0)
    run = run_policy(STEADY, policy, seed=1)
    assert run.changes == ((0.0, 2), (20.0, 9), (30.0, 3))
    assert [view.threads for view in policy.seen[:4]] == [2, 2, 9, 3]


def test_the_load_changes_under_a_policy_that_does_nothing() -> None:
    slow = make_workload(cpu_seconds=0.1)
    run = run_policy(
        scenario((0.0, make_workload()), (30.0, slow)), Fixed("fixed-8", threads=8), seed=1
    )
    first, second = sum(run.tasks[:6]), sum(run.tasks[6:])
    assert second < 0.3 * first


def test_equal_seeds_give_equal_runs_and_others_do_not() -> None:
    def run(seed: int) -> RunRecord:
        return run_policy(STEADY, Fixed("fixed-8", threads=8), seed=seed)

    assert run(1) == run(1)
    assert run(1).tasks != run(2).tasks


def test_a_quota_that_a_policy_sets_is_counted_and_felt() -> None:
    free = run_policy(STEADY, Fixed("fixed-8", threads=8), seed=1)
    tight = run_policy(STEADY, Scripted([Choice(8, quota_cores=1.0)]), seed=1)
    assert free.cpu_core_seconds == pytest.approx(4 * 60.0)
    assert tight.cpu_core_seconds == pytest.approx(4 * 10.0 + 1 * 50.0)
    assert tight.cpu_used_seconds < 0.6 * free.cpu_used_seconds


def test_a_record_survives_json() -> None:
    run = run_policy(STEADY, Scripted([Choice(9)]), seed=1)
    again = RunRecord.from_json(run.to_json())
    assert (again.tasks, again.threads, again.changes) == (run.tasks, run.threads, run.changes)
    assert again.threads_at(9.99) == 2
    assert again.threads_at(10.0) == 9


def test_the_operators_decide_finds_many_threads_for_waiting_work() -> None:
    waiting = scenario((0.0, make_workload(cpu_seconds=0.005, blocking_seconds=0.1)), seconds=120.0)
    run = run_policy(waiting, AutoThread(), seed=1)
    still = run_policy(waiting, Fixed("floor-of-quota", threads=4), seed=1)
    assert run.changes[0] == (0.0, 4)
    assert run.threads[-1] >= 40
    assert run.total_tasks > 5 * still.total_tasks


def test_the_operators_memory_is_carried_from_question_to_question() -> None:
    policy = AutoThread()
    run_policy(STEADY, policy, seed=1)
    assert policy.last is not None
    regime = policy.last.memo["regime"]
    assert isinstance(regime, dict)
    # What was measured under the first count is still known under the last one.
    assert len({point["threads"] for point in regime["points"]}) >= 2


def test_a_spec_that_keeps_the_cpu_never_sets_a_quota() -> None:
    limited = LoadScenario("x", Host(4, 2.0), ((0.0, make_workload()),), 60.0)
    run = run_policy(limited, AutoThread(), seed=1)
    assert run.cpu_core_seconds == pytest.approx(2.0 * 60.0)


def test_efficiency_saves_cpu_within_what_the_pod_came_with() -> None:
    little = make_workload(cpu_seconds=0.001, blocking_seconds=0.05, dispatch_seconds=0.004)
    host = Host(8, 4.0)
    limited = LoadScenario("x", host, ((0.0, little),), 240.0)
    spec = benchmark_spec(objective="Efficiency", limit_policy="Headroom", most_cores=4.0)
    run = run_policy(limited, AutoThread(spec=spec), seed=1)
    kept = run_policy(limited, AutoThread(), seed=1)
    assert run.cpu_core_seconds < 0.8 * kept.cpu_core_seconds
    assert run.total_tasks > 0.8 * kept.total_tasks
    assert not math.isinf(run.cpu_core_seconds)
