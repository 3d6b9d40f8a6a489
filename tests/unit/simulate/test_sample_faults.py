"""Metrics can go wrong in the ways that the tuner must survive."""

import math
from itertools import pairwise

import pytest

from slimscale.domain.contract import ContractSample
from slimscale.simulate.faults import late, missing, noisy, not_a_number, restarted, stuck
from slimscale.simulate.plant import Plant
from slimscale.simulate.workload import Host
from slimscale.threads.sampling import consecutive_pairs, difference
from tests.support.simulated import work

Samples = tuple[ContractSample, ...]


@pytest.fixture(scope="module")
def samples() -> Samples:
    plant = Plant(work(5e-3, 20e-3, 1e-4), Host(2, 1.5), threads=8, seed=1)
    kept = []
    for _ in range(200):
        plant.advance(5.0)
        kept.append(plant.sample())
    return tuple(kept)


def test_late_samples_are_those_that_have_arrived(samples: Samples) -> None:
    held = late(samples, now_seconds=100.0, delay_seconds=12.0)
    assert [s.sampled_at_seconds for s in held] == pytest.approx([5.0 * i for i in range(1, 18)])


def test_a_share_is_missing_and_a_longer_run_lacks_the_same_ones(samples: Samples) -> None:
    kept = missing(samples, share=0.3, seed=2)
    assert len(kept) == pytest.approx(140, abs=25)
    assert missing(samples[:50], share=0.3, seed=2) == tuple(s for s in kept if s in samples[:50])
    assert missing(samples, share=0.3, seed=3) != kept


def test_a_restart_is_seen_as_one_and_nothing_is_subtracted_across_it(samples: Samples) -> None:
    changed = restarted(samples, at_seconds=502.0)
    assert changed[:100] == samples[:100]
    assert difference(changed[100], changed[99]) is None
    assert not changed[100].same_process_as(changed[99])
    assert changed[100].process_start_seconds == 502.0
    after = difference(changed[120], changed[110])
    true = difference(samples[120], samples[110])
    assert after is not None
    assert true is not None
    assert after.tasks == true.tasks
    assert after.task_cpu_seconds == pytest.approx(true.task_cpu_seconds)
    assert after.throttled_ratio == pytest.approx(true.throttled_ratio)


def test_counters_begin_at_zero_after_a_restart(samples: Samples) -> None:
    first = restarted(samples, at_seconds=502.0)[100]
    assert first.tasks_total is not None
    assert 0 < first.tasks_total < 5 * 400
    assert first.task is not None
    assert first.task.count == first.tasks_total


def test_some_samples_hold_a_nan_and_are_skipped(samples: Samples) -> None:
    spoiled = not_a_number(samples, share=0.2, seed=1)
    assert sum(a != b for a, b in zip(spoiled, samples, strict=True)) == pytest.approx(40, abs=20)
    rates = [p.tasks / p.span_seconds for p in consecutive_pairs(spoiled)]
    assert 60 < len(rates) < 199
    assert all(math.isfinite(rate) for rate in rates)


def test_a_stuck_page_repeats_its_figures_with_new_times(samples: Samples) -> None:
    changed = stuck(samples, from_seconds=500.0)
    assert changed[99] == samples[99]
    assert {s.tasks_total for s in changed[99:]} == {samples[99].tasks_total}
    assert changed[-1].sampled_at_seconds == samples[-1].sampled_at_seconds


def test_noise_on_the_times_makes_rates_noisy_and_keeps_the_order(samples: Samples) -> None:
    def spread(series: Samples) -> float:
        rates = [p.tasks / p.span_seconds for p in consecutive_pairs(series)]
        mean = sum(rates) / len(rates)
        return math.sqrt(sum((r - mean) ** 2 for r in rates) / len(rates)) / mean

    changed = noisy(samples, deviation_seconds=0.5, seed=1)
    assert all(a.sampled_at_seconds < b.sampled_at_seconds for a, b in pairwise(changed))
    assert spread(changed) > spread(samples) + 0.05


def test_without_a_sample_before_the_fault_nothing_changes(samples: Samples) -> None:
    assert restarted(samples, at_seconds=1.0) == samples
    assert stuck(samples, from_seconds=1.0) == samples
