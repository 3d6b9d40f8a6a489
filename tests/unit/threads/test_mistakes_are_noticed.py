"""What chance, a mixed window or another load made the tuner believe, and how it finds out."""

import math
from dataclasses import replace

import pytest

from slimscale.domain.decision import Confidence, PodTarget
from slimscale.threads.change import is_another_load, watch_load
from slimscale.threads.closed_network import MAX_THREADS
from slimscale.threads.estimate import crowd_at_dispatcher, estimate_parameters
from slimscale.threads.guards import Proposal, weigh
from slimscale.threads.memo import (
    LoadPoint,
    Memo,
    Pending,
    Refusal,
    Regime,
    Trend,
    load_memo,
)
from slimscale.threads.probe import next_probe
from slimscale.threads.recall import before_cliff, remember_load
from slimscale.threads.sampling import consecutive_pairs
from slimscale.threads.verify import verify_change
from slimscale.threads.window import WorkloadWindow, aggregate, observe_window
from tests.support.observations import make_observation, make_pod, make_sample, make_spec

SPEC = make_spec()
NOW = 2000.0


def window_of(
    threads: int, rate: float, *, seconds: float = 15.0, task_seconds: float = 0.01
) -> WorkloadWindow:
    start = make_sample(1900.0, tasks=0.0, threads=threads)
    end = make_sample(
        1900.0 + seconds, tasks=rate * seconds, threads=threads, task_seconds=task_seconds
    )
    return aggregate(list(consecutive_pairs((start, end))))


def changed(before: int, after: int, *, predicted: float, probe: str = "") -> Memo:
    """From 100 tasks/s, seen over three quiet intervals."""
    pending = Pending(
        PodTarget(before), PodTarget(after), 1890.0, 100.0, predicted, 3.0, probe=probe
    )
    return Memo(
        target=PodTarget(after),
        previous=PodTarget(before),
        changed_at_seconds=1890.0,
        rate_variance=0.02**2,
        pending=pending,
    )


def verified(memo: Memo, window: WorkloadWindow) -> Memo:
    return verify_change(memo, window, spec=SPEC, now_seconds=NOW).memo


@pytest.mark.parametrize(
    ("rate", "refuted"), [(52.0, True), (80.0, False)], ids=["in proportion", "a little"]
)
def test_fewer_threads_that_do_less_in_proportion_refute_a_bottleneck(
    rate: float, refuted: bool
) -> None:
    believed = Regime(serial_seconds=0.01, serial_threads=23, ceiling_threads=23)
    memo = verified(replace(changed(23, 12, predicted=100.0), regime=believed), window_of(12, rate))
    assert memo.target == PodTarget(23)
    assert (memo.regime.serial_seconds is None) is refuted
    assert (memo.regime.ceiling_threads is None) is refuted


def test_a_refuted_bottleneck_is_not_concluded_again_in_that_load() -> None:
    raised = changed(10, 14, predicted=140.0)
    flat = window_of(14, 101.0, task_seconds=0.13)
    believed = verified(raised, flat)
    doubting = verified(replace(raised, regime=Regime(serial_refuted=True)), flat)
    assert believed.regime.serial_seconds is not None
    assert doubting.regime.serial_seconds is None
    worse = verified(
        replace(raised, regime=Regime(serial_refuted=True)), window_of(14, 80.0, task_seconds=0.13)
    )
    assert worse.target == PodTarget(10)
    assert worse.regime.serial_seconds is None


@pytest.mark.parametrize(
    ("rate", "judged"), [(170.0, True), (120.0, False)], ids=["clearly", "less than half"]
)
def test_a_raise_that_clearly_paid_is_confirmed_after_one_interval(
    rate: float, judged: bool
) -> None:
    memo = verified(changed(4, 8, predicted=180.0), window_of(8, rate, seconds=5.0))
    assert (memo.pending is None) is judged


def test_a_probe_that_more_likely_pays_than_not_is_kept() -> None:
    memo = replace(changed(8, 12, predicted=100.0, probe="Search"), rate_variance=0.08**2)
    assert verified(memo, window_of(12, 105.0)).target == PodTarget(12)
    assert verified(memo, window_of(12, 101.0)).target == PodTarget(8)


def test_after_a_raise_past_a_cliff_the_next_load_is_raised_in_two_steps() -> None:
    memo = verified(changed(40, 100, predicted=200.0), window_of(100, 20.0))
    assert memo.refusal == Refusal(40, 100)
    assert load_memo(memo.to_json())[0].refusal == memo.refusal
    next_load = replace(memo, regime=Regime())
    assert before_cliff(next_load, 20) == 63
    stood = replace(memo, regime=Regime(points=(LoadPoint(63, 2.0, 150.0),)))
    assert before_cliff(stood, 40) == MAX_THREADS


def test_a_cliff_among_a_few_threads_binds_no_other_load() -> None:
    light = Memo(refusal=Refusal(2, 6))
    assert before_cliff(light, 1) == MAX_THREADS


@pytest.mark.parametrize(("rate", "other"), [(50.0, True), (92.0, False)])
def test_a_count_that_no_longer_does_what_it_did_belongs_to_another_load(
    rate: float, other: bool
) -> None:
    returned = replace(
        changed(4, 8, predicted=100.0),
        pending=None,
        regime=Regime(points=(LoadPoint(4, 2.0, 100.0),), floor_threads=3),
    )
    memo, words = is_another_load(returned, window_of(4, rate, seconds=5.0), interval_seconds=5.0)
    assert bool(words) is other
    assert (memo.regime.floor_threads is None) is other


@pytest.mark.parametrize(
    ("cpu_seconds", "tasks", "seen"),
    [(0.16, 100.0, True), (0.02, 100.0, False), (0.16, 5.0, False)],
    ids=["twenty times", "2.5 times", "twenty times in few tasks"],
)
def test_cpu_of_a_task_that_jumps_with_the_threads_is_seen_at_once_unless_chance_may_explain_it(
    cpu_seconds: float, tasks: float, seen: bool
) -> None:
    memo = Memo(carried_cpu_log=math.log(0.008))
    samples = (
        make_sample(100.0, tasks=0.0),
        make_sample(105.0, tasks=tasks, cpu_seconds=cpu_seconds, task_seconds=2 * cpu_seconds),
    )
    change = watch_load([make_pod(samples=samples)], memo, interval_seconds=5.0)
    assert change.changed is seen


@pytest.mark.parametrize(("since", "seen"), [(105.0, True), (None, False)])
def test_a_second_interval_far_off_needs_no_third(since: float | None, seen: bool) -> None:
    memo = Memo(
        trends={"wall": Trend(count=20, mean=math.log(0.01), variance=0.01, rise=1.8)},
        trend_threads=4,
        trend_cores=2.0,
        trend_seen_until_seconds=105.0,
        deviating_since_seconds=since,
    )
    samples = (make_sample(105.0, tasks=0.0), make_sample(110.0, tasks=500.0, task_seconds=0.02))
    change = watch_load([make_pod(samples=samples)], memo, interval_seconds=5.0)
    assert change.changed is seen


def test_what_tasks_in_progress_have_done_is_not_taken_for_a_crowd() -> None:
    """200 threads just begun with tasks of 0.8 s: in 15 s the finished ones fill 156 of them."""
    assert (
        crowd_at_dispatcher(replace(window_of(200, 195.0, task_seconds=0.8), saturated=True))
        is None
    )
    short = replace(window_of(200, 19_500.0, task_seconds=0.008), saturated=True)
    assert crowd_at_dispatcher(short) == pytest.approx(44.0, abs=1.0)


def test_in_a_lull_threads_are_kept_for_the_work_that_follows() -> None:
    fewer = Proposal(
        target=PodTarget(8),
        tasks_per_second=100.0,
        current=PodTarget(64),
        current_tasks_per_second=100.0,
        confidence=Confidence.HIGH,
        throttled_ratio=0.0,
        least_threads=1,
        most_threads=64,
        work_waits=False,
    )
    assert not weigh(fewer, spec=SPEC, memo=Memo(), now_seconds=NOW).changed
    cheaper = replace(fewer, target=PodTarget(8, 250, 1000), current=PodTarget(64, 500, 2000))
    assert weigh(cheaper, spec=SPEC, memo=Memo(), now_seconds=NOW).changed


@pytest.mark.parametrize("settled", [True, False])
def test_only_a_count_that_the_model_was_content_with_is_remembered(settled: bool) -> None:
    point = LoadPoint(13, 2.0, 40.0, cpu_seconds=0.02, windows=5)
    memo = Memo(target=PodTarget(13), regime=Regime(points=(point,), settled=settled))
    assert len(remember_load(memo).loads) == settled


@pytest.mark.parametrize("first_look", [True, False])
def test_twelve_tasks_are_enough_for_the_first_look_at_a_new_load(first_look: bool) -> None:
    samples = (make_sample(NOW - 6.0, tasks=0.0), make_sample(NOW - 1.0, tasks=12.0))
    result = observe_window(
        make_observation((make_pod(samples=samples),), NOW),
        tuning=SPEC.tuning,
        metrics=SPEC.metrics,
        now_seconds=NOW,
        not_before_seconds=0.0,
        first_look=first_look,
    )
    assert (result.window is not None) is first_look


def test_one_thread_more_of_many_is_no_step_worth_trying() -> None:
    window = replace(window_of(54, 50.0, task_seconds=1.0), saturated=True)
    regime = Regime()
    estimate = estimate_parameters(window, cores=2.0, node_cores=4.0, regime=regime, min_tasks=30)
    assert estimate is not None

    def probe(most: int) -> int | None:
        found = next_probe(
            window, estimate, regime, predicted=lambda _: 50.0, least=1, most=most, search=False
        )
        return found.threads if found else None

    assert probe(55) is None
    assert (probe(120) or 0) > 60
