"""The detector, the verification of a change and the brakes, each on its own."""

from dataclasses import replace

import pytest

from slimscale.domain.decision import Confidence, PodTarget
from slimscale.threads.change import watch_load
from slimscale.threads.closed_network import NetworkParameters
from slimscale.threads.guards import Proposal, weigh
from slimscale.threads.memo import Memo, Pending, Regime
from slimscale.threads.sampling import consecutive_pairs
from slimscale.threads.verify import verify_change
from slimscale.threads.window import WorkloadWindow, aggregate
from tests.support.observations import SyntheticWorkload, make_pod, make_sample, make_spec

SPEC = make_spec()
NOW = 2000.0


def window_after(threads: int, rate: float, *, seconds: float = 15.0) -> WorkloadWindow:
    start = make_sample(1900.0, tasks=0.0, threads=threads)
    end = make_sample(1900.0 + seconds, tasks=rate * seconds, threads=threads)
    (pair,) = consecutive_pairs((start, end))
    return aggregate([pair])


def changed(before: PodTarget, after: PodTarget, predicted: float) -> Memo:
    return Memo(
        target=after,
        previous=before,
        changed_at_seconds=1890.0,
        rate_variance=0.02**2,
        pending=Pending(before, after, 1890.0, 100.0, predicted, 3.0),
    )


@pytest.mark.parametrize(
    ("before", "after", "floor"),
    [
        (PodTarget(5, 500, 2000), PodTarget(4, 500, 2000), (5, None)),
        (PodTarget(4, 500, 2000), PodTarget(4, 250, 1000), (None, 2000)),
    ],
)
def test_a_saving_that_costs_throughput_returns_and_is_not_repeated(
    before: PodTarget, after: PodTarget, floor: tuple[int | None, int | None]
) -> None:
    window = replace(window_after(4, 80.0), cpu_quota_cores=None)
    outcome = verify_change(changed(before, after, 100.0), window, spec=SPEC, now_seconds=NOW)
    assert outcome.reverted
    assert outcome.memo.target == before
    regime = outcome.memo.regime
    assert (regime.floor_threads, regime.floor_cpu_millicores) == floor


def test_after_a_large_cut_that_failed_half_of_it_may_still_be_tried_and_then_no_more() -> None:
    window = replace(window_after(4, 80.0), cpu_quota_cores=None)
    memo = changed(PodTarget(16), PodTarget(4), 100.0)
    once = verify_change(memo, window, spec=SPEC, now_seconds=NOW).memo
    assert once.regime.floor_threads == 8
    again = replace(changed(PodTarget(16), PodTarget(4), 100.0), regime=once.regime)
    twice = verify_change(again, window, spec=SPEC, now_seconds=NOW).memo
    assert twice.regime.floor_threads == 16


def test_a_loss_within_the_allowed_or_within_noise_is_kept() -> None:
    memo = changed(PodTarget(8), PodTarget(4), 100.0)
    small = verify_change(memo, window_after(4, 95.0), spec=SPEC, now_seconds=NOW)
    noisy = verify_change(
        replace(memo, rate_variance=0.3**2), window_after(4, 80.0), spec=SPEC, now_seconds=NOW
    )
    assert not small.reverted
    assert small.memo.pending is None
    assert not noisy.reverted


def test_unsaturated_demand_proves_nothing() -> None:
    window = replace(window_after(4, 20.0), saturated=False)
    outcome = verify_change(
        changed(PodTarget(8), PodTarget(4), 100.0), window, spec=SPEC, now_seconds=NOW
    )
    assert not outcome.reverted


def test_a_raise_that_brings_little_is_taken_for_a_hidden_bottleneck() -> None:
    memo = changed(PodTarget(8), PodTarget(10), 130.0)
    locked = replace(window_after(10, 105.0), task_seconds=10 / 105.0)  # they wait inside tasks
    outcome = verify_change(memo, locked, spec=SPEC, now_seconds=NOW)
    assert outcome.memo.regime.serial_seconds == pytest.approx(1 / 105.0)
    assert outcome.memo.regime.serial_threads == 8


def test_threads_that_crowd_at_the_dispatcher_are_no_hidden_bottleneck() -> None:
    memo = changed(PodTarget(8), PodTarget(10), 130.0)
    crowded = replace(window_after(10, 105.0), task_seconds=0.01)
    outcome = verify_change(memo, crowded, spec=SPEC, now_seconds=NOW)
    assert outcome.memo.regime.serial_seconds is None
    assert outcome.memo.pending is None


def proposal(target: PodTarget, rate: float, *, current: PodTarget, held: float) -> Proposal:
    return Proposal(
        target=target,
        tasks_per_second=rate,
        current=current,
        current_tasks_per_second=held,
        confidence=Confidence.HIGH,
        throttled_ratio=0.0,
        least_threads=1,
        most_threads=64,
    )


def test_a_gain_waits_for_the_dwell_time_unless_the_load_changed() -> None:
    memo = Memo(target=PodTarget(4), changed_at_seconds=NOW - 5)
    wanted = proposal(PodTarget(16), 200.0, current=PodTarget(4), held=100.0)
    assert not weigh(wanted, spec=SPEC, memo=memo, now_seconds=NOW).changed
    assert weigh(wanted, spec=SPEC, memo=memo, now_seconds=NOW + 20).changed
    new_load = replace(memo, repredict=True)
    assert weigh(wanted, spec=SPEC, memo=new_load, now_seconds=NOW).changed


@pytest.mark.parametrize(
    ("wanted", "taken"),
    [(PodTarget(2, 150, 1500), False), (PodTarget(2, 150, 750), True)],
    ids=["threads alone", "CPU as well"],
)
def test_no_pod_is_restarted_to_save_threads_alone(wanted: PodTarget, taken: bool) -> None:
    offered = proposal(wanted, 100.0, current=PodTarget(8, 150, 1500), held=100.0)
    first = Memo()
    live = weigh(offered, spec=make_spec(), memo=first, now_seconds=10.0)
    rolled = weigh(replace(offered, restarts=True), spec=make_spec(), memo=first, now_seconds=10.0)
    assert live.changed
    assert rolled.changed is taken


def test_a_gain_below_the_hysteresis_changes_nothing() -> None:
    memo = Memo(target=PodTarget(10), changed_at_seconds=0.0)
    wanted = proposal(PodTarget(12), 104.0, current=PodTarget(10), held=100.0)
    assert not weigh(wanted, spec=SPEC, memo=memo, now_seconds=NOW).changed


def test_a_saving_needs_three_windows_that_agree_and_takes_the_most_modest() -> None:
    current = PodTarget(8, 1000, 4000)
    memo = Memo(target=current, changed_at_seconds=0.0)
    results = []
    for limit in (1000, 2500, 1500):
        wanted = proposal(PodTarget(6, 250, limit), 100.0, current=current, held=100.0)
        verdict = weigh(wanted, spec=SPEC, memo=memo, now_seconds=NOW)
        memo = replace(memo, proposals=verdict.proposals)
        results.append(verdict)
    assert [r.changed for r in results] == [False, False, True]
    assert results[-1].target.cpu_limit_millicores == 2500


@pytest.mark.parametrize(("wanted", "allowed"), [(64, 8), (1, 2)])
def test_with_low_confidence_a_step_at_most_doubles_or_halves(wanted: int, allowed: int) -> None:
    memo = Memo(target=PodTarget(4), changed_at_seconds=0.0, repredict=True)
    unsure = replace(
        proposal(PodTarget(wanted), 200.0, current=PodTarget(4), held=100.0),
        confidence=Confidence.LOW,
    )
    verdict = weigh(unsure, spec=SPEC, memo=memo, now_seconds=NOW)
    assert verdict.target.threads == allowed


def test_a_change_of_load_is_seen_in_two_intervals_and_clears_what_was_learned() -> None:
    plant = SyntheticWorkload(NetworkParameters(0.0, 5e-3, 60e-6, 2.0), threads=2, noise=0.05)
    memo = Memo(regime=Regime(floor_threads=7))
    for _ in range(12):
        plant.tick()
        seen = watch_load([plant.pod()], memo, interval_seconds=5.0)
        assert not seen.changed
        memo = seen.memo
    plant.truth = NetworkParameters(15e-3, 5e-3, 60e-6, 2.0)
    alarms = []
    for _ in range(2):
        plant.tick()
        seen = watch_load([plant.pod()], memo, interval_seconds=5.0)
        memo = seen.memo
        alarms.append(seen.changed)
    assert alarms == [False, True]
    assert memo.regime.floor_threads is None
    assert memo.repredict
    assert memo.regime.started_at_seconds == plant.now_seconds - 5


def test_one_pause_is_no_change_of_load() -> None:
    plant = SyntheticWorkload(NetworkParameters(0.0, 5e-3, 60e-6, 2.0), threads=2, noise=0.05)
    calm = plant.truth
    memo = Memo()
    for tick in range(40):
        plant.truth = NetworkParameters(20e-3, 5e-3, 60e-6, 2.0) if tick == 20 else calm
        plant.tick()
        seen = watch_load([plant.pod()], memo, interval_seconds=5.0)
        assert not seen.changed, tick
        memo = seen.memo


def test_pods_without_samples_are_no_change() -> None:
    memo = Memo()
    assert watch_load([make_pod()], memo, interval_seconds=5.0).memo == memo


AGREED = Memo(target=PodTarget(16), proposals=(PodTarget(4), PodTarget(4)))


def test_threads_alone_are_saved_only_where_they_are_seen_to_be_too_many() -> None:
    fewer = proposal(PodTarget(4), 100.0, current=PodTarget(16), held=100.0)
    assert not weigh(fewer, spec=SPEC, memo=AGREED, now_seconds=NOW).changed
    seen = replace(fewer, safe=True)
    assert weigh(seen, spec=SPEC, memo=AGREED, now_seconds=NOW).target == PodTarget(4)
    efficient = make_spec(objective={"type": "Efficiency"})
    assert weigh(fewer, spec=efficient, memo=AGREED, now_seconds=NOW).changed


def test_a_saving_that_only_the_model_says_is_free_is_a_step_of_a_third_at_most() -> None:
    doubted = replace(
        proposal(PodTarget(2), 100.0, current=PodTarget(16), held=100.0), in_the_way=True
    )
    assert weigh(doubted, spec=SPEC, memo=AGREED, now_seconds=NOW).target == PodTarget(11)
    gain = replace(doubted, tasks_per_second=120.0)
    assert weigh(gain, spec=SPEC, memo=AGREED, now_seconds=NOW).target == PodTarget(2)


def _probed(rate: float, *, seconds: float) -> bool:
    memo = changed(PodTarget(8), PodTarget(12), 120.0)
    assert memo.pending is not None
    memo = replace(memo, pending=replace(memo.pending, probe="Search"))
    window = replace(window_after(12, rate, seconds=seconds), cpu_quota_cores=None)
    return verify_change(memo, window, spec=SPEC, now_seconds=NOW).memo.pending is None


def test_a_probe_whose_result_is_clear_is_judged_before_its_window_is_full() -> None:
    assert _probed(120.0, seconds=4.0)
    assert _probed(85.0, seconds=4.0)
    assert not _probed(102.0, seconds=4.0)
    assert _probed(102.0, seconds=15.0)
