"""The one-way search on OS counters."""

from slimscale.bench.baselines.thread_reinforcer import (
    DRIFT_STEPS,
    Levels,
    Restart,
    ThreadReinforcer,
    counters_of,
)
from slimscale.bench.policy import PolicyView
from slimscale.simulate.workload import Host
from tests.support.bench_cases import make_sample, make_view
from tests.support.bench_pods import pod_view

HOST = Host(12)


def search(policy: ThreadReinforcer, best: int) -> list[int]:
    """Candidates until the search ends, on a pod whose throughput and CPU stop rising at `best`."""
    threads = policy.start(HOST)
    tried = [threads]
    for step in range(100):
        chosen = policy.choose(pod_view(threads, useful=best, at_seconds=float(step + 1))).threads
        if chosen is None:
            break
        threads = chosen
        tried.append(threads)
    return tried


def test_the_search_climbs_in_thirds_of_the_cores_and_ends_where_cpu_stops_rising() -> None:
    tried = search(ThreadReinforcer(restart=Restart.NEVER), best=12)
    assert tried == [4, 8, 12, 16, 12]


def test_once_found_the_count_never_moves_again() -> None:
    policy = ThreadReinforcer(restart=Restart.NEVER)
    search(policy, best=12)
    other_load = [pod_view(12, useful=3, at_seconds=100.0 + s) for s in range(40)]
    assert {policy.choose(view).threads for view in other_load} == {None}


def test_after_a_drift_that_lasts_the_search_begins_again_from_few_threads() -> None:
    policy = ThreadReinforcer()
    search(policy, best=12)
    for s in range(5):
        assert policy.choose(pod_view(12, useful=12, at_seconds=100.0 + s)).threads is None
    drifted = [
        policy.choose(pod_view(12, useful=6, at_seconds=105.0 + s)).threads
        for s in range(DRIFT_STEPS)  # 300 tasks a second: each second is judged
    ]
    assert drifted == [None] * (DRIFT_STEPS - 1) + [4]


def test_one_odd_second_starts_no_search() -> None:
    policy = ThreadReinforcer()
    search(policy, best=12)
    for s in range(30):
        useful = 6 if s % 10 == 5 else 12
        assert policy.choose(pod_view(12, useful=useful, at_seconds=100.0 + s)).threads is None


def test_the_stronger_reading_keeps_the_candidate_with_the_most_throughput() -> None:
    levels = Levels(low_gain=-1.0)  # never satisfied: it climbs on to the top
    tried = search(
        ThreadReinforcer(restart=Restart.NEVER, best_of_tried=True, levels=levels), best=16
    )
    assert max(tried) == 256
    assert tried[-1] == 16


def test_a_candidate_with_few_tasks_runs_on_before_it_is_judged() -> None:
    policy = ThreadReinforcer()
    policy.start(HOST)
    first = make_sample(0.0, threads_applied=4)
    second = make_sample(1.0, threads_applied=4, tasks_total=3.0)
    view = make_view(earlier=first, later=second, now_seconds=1.0, tasks=3.0)
    assert policy.choose(view).threads is None


def test_counters_tell_the_lock_from_the_cpu_queue() -> None:
    # 4 threads, 100 tasks/s: 2 of them in tasks, 1 of these for a CPU; so 2 wait at the dispatcher
    view: PolicyView = make_view(
        task_seconds=0.020, task_cpu_seconds=0.005, task_runqueue_seconds=0.010
    )
    counters = counters_of(view)
    assert counters.lock == 0.5
    assert counters.migrations == 0.25
    assert abs(counters.waits - (0.5 + 0.125)) < 1e-9
    assert counters.cpu == 0.125
