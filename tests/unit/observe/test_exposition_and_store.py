"""From a page of metrics to samples that may be acted on, or to a reason why not."""

import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slimscale.domain.contract import ContractSample
from slimscale.domain.observation import Freshness
from slimscale.observe.exposition import InvalidSamples, NoContract, read_page
from slimscale.observe.sample_store import MAX_SAMPLES_PER_POD, SampleStore
from slimscale.observe.scrape import SampleOutcome

PAGE = """
# HELP slimscale_task_seconds Wall time of a task.
# TYPE slimscale_task_seconds histogram
slimscale_task_seconds_bucket{le="0.01"} 5
slimscale_task_seconds_bucket{le="0.1"} 9
slimscale_task_seconds_bucket{le="+Inf"} 10
slimscale_task_seconds_sum 0.5
slimscale_task_seconds_count 10
slimscale_tasks_total 10
slimscale_tasks_outstanding 4
slimscale_threads_applied 3
slimscale_cpu_quota_cores 2.5
slimscale_process_start_time_seconds 1700000000
python_gc_objects_collected_total{generation="0"} 12
"""


def _read(text: str) -> ContractSample:
    return read_page(text, prefix="slimscale", pod_uid="u", now_seconds=50.0)


def test_a_page_becomes_a_sample_and_what_it_lacks_stays_unknown() -> None:
    sample = _read(PAGE)
    assert sample.threads_applied == 3
    assert sample.tasks_total == 10
    assert sample.tasks_outstanding == 4
    assert sample.cpu_quota_cores == 2.5
    assert sample.task is not None
    assert list(sample.task.upper_bounds_seconds) == [0.01, 0.1, math.inf]
    assert list(sample.task.cumulative_counts) == [5, 9, 10]
    assert sample.task.sum_seconds == 0.5
    assert sample.dispatch is None
    assert sample.cpu_usage_seconds_total is None, "absent is unknown, never 0"


def test_several_processes_of_a_pod_add_up_but_share_their_cgroup() -> None:
    page = """
slimscale_threads_applied{pid="1"} 3
slimscale_threads_applied{pid="2"} 5
slimscale_tasks_total{pid="1"} 10
slimscale_tasks_total{pid="2"} 20
slimscale_cpu_usage_seconds_total{pid="1"} 7
slimscale_cpu_usage_seconds_total{pid="2"} 7
"""
    sample = _read(page)
    assert (sample.threads_applied, sample.tasks_total, sample.cpu_usage_seconds_total) == (
        8,
        30,
        7,
    )


def test_faults_in_other_series_of_the_page_are_not_ours() -> None:
    assert _read(PAGE + "\nother{broken 12 34 56\n").tasks_total == 10


@pytest.mark.parametrize(
    "line",
    [
        "slimscale_tasks_total NaN",
        "slimscale_tasks_total +Inf",
        "slimscale_tasks_outstanding -1",
        "slimscale_threads_applied 1e9",
        'slimscale_tasks_total{a="b 3',
        "slimscale_tasks_total three",
        'slimscale_dispatch_seconds_bucket{le="0.1"} 3',
        'slimscale_dispatch_seconds_bucket{le="cat"} 3',
        'slimscale_dispatch_seconds_bucket{le="-Inf"} 3\n'
        'slimscale_dispatch_seconds_bucket{le="+Inf"} 3\nslimscale_dispatch_seconds_sum 1',
        "slimscale_tasks_total{" + ",".join(f'a{n}="{n}"' for n in range(900)) + "} 1",
        'slimscale_dispatch_seconds_bucket{le="0.1"} 9\n'
        'slimscale_dispatch_seconds_bucket{le="+Inf"} 3\nslimscale_dispatch_seconds_sum 1',
        'slimscale_dispatch_seconds_bucket{le="+Inf"} 3\nslimscale_dispatch_seconds_sum NaN',
    ],
)
def test_values_that_cannot_be_used_are_refused_without_being_quoted(line: str) -> None:
    with pytest.raises(InvalidSamples) as caught:
        _read(PAGE.replace("slimscale_tasks_total 10", "") + line + "\n")
    assert "cat" not in str(caught.value)
    assert "three" not in str(caught.value)


@pytest.mark.parametrize("page", ["", "<html>hello</html>", "up 1\n", "slimscale_other 1\n"])
def test_a_page_without_the_contract_says_so(page: str) -> None:
    with pytest.raises(NoContract):
        _read(page)


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=200))
def test_no_page_however_broken_raises_anything_else(tail: str) -> None:
    with suppress(InvalidSamples, NoContract):
        _read("slimscale_tasks_total" + tail)


def _sample(at: float, **more: Any) -> SampleOutcome:
    sample = _read(PAGE)
    fields = {name: getattr(sample, name) for name in sample.__dataclass_fields__}
    moving = {"sampled_at_seconds": at, "tasks_total": at}
    return SampleOutcome("u", sample=ContractSample(**{**fields, **moving, **more}))


def _state(store: SampleStore, now: float) -> tuple[int, Freshness]:
    read = store.read("u", now_seconds=now, horizon_seconds=100, max_age_seconds=30)
    return len(read.samples), read.freshness


def test_samples_age_from_fresh_to_stale_to_missing() -> None:
    store = SampleStore()
    assert _state(store, 0) == (0, Freshness.MISSING)
    store.record(_sample(10), horizon_seconds=100)
    store.record(_sample(20), horizon_seconds=100)
    assert _state(store, 25) == (2, Freshness.FRESH)
    assert _state(store, 51) == (2, Freshness.STALE)
    assert _state(store, 115) == (1, Freshness.STALE)
    assert _state(store, 121) == (0, Freshness.MISSING)


def test_an_invalid_answer_marks_the_pod_until_a_good_one_comes() -> None:
    store = SampleStore()
    store.record(_sample(10), horizon_seconds=100)
    store.record(SampleOutcome("u", problem="NaN", invalid=True), horizon_seconds=100)
    assert _state(store, 12)[1] is Freshness.INVALID
    store.record(_sample(15), horizon_seconds=100)
    assert _state(store, 16) == (2, Freshness.FRESH)


def test_one_lost_scrape_leaves_the_last_sample_usable_and_tells_why() -> None:
    store = SampleStore()
    store.record(_sample(10), horizon_seconds=100)
    store.record(SampleOutcome("u", problem="port 9464: no answer in time"), horizon_seconds=100)
    read = store.read("u", now_seconds=20, horizon_seconds=100, max_age_seconds=30)
    assert read.freshness is Freshness.FRESH
    assert read.problem == "port 9464: no answer in time"


def test_the_store_is_bounded_and_still_spans_its_horizon() -> None:
    store = SampleStore()
    for second in range(5000):
        store.record(_sample(float(second)), horizon_seconds=2400)
    read = store.read("u", now_seconds=5000, horizon_seconds=2400, max_age_seconds=30)
    assert len(read.samples) <= MAX_SAMPLES_PER_POD
    assert read.samples[-1].sampled_at_seconds == 4999
    assert read.samples[0].sampled_at_seconds < 5000 - 2200


def test_samples_from_the_future_after_a_step_of_the_clock_are_left_out() -> None:
    store = SampleStore()
    store.record(_sample(4000), horizon_seconds=100)
    assert _state(store, 10) == (0, Freshness.MISSING)


def test_a_page_that_stands_still_while_work_waits_grows_stale() -> None:
    store = SampleStore()
    store.record(_sample(10, tasks_outstanding=8.0), horizon_seconds=100)
    for second in range(15, 51, 5):
        frozen = _sample(second, tasks_outstanding=8.0, tasks_total=10.0)
        store.record(frozen, horizon_seconds=100)
    assert _state(store, 51) == (1, Freshness.STALE)
    store.record(_sample(52, tasks_outstanding=8.0), horizon_seconds=100)
    assert _state(store, 53) == (2, Freshness.FRESH)


def test_an_idle_pods_page_may_stand_still() -> None:
    store = SampleStore()
    for second in (10, 20, 30):
        idle = _sample(second, tasks_outstanding=0.0, tasks_total=10.0)
        store.record(idle, horizon_seconds=100)
    assert _state(store, 45) == (3, Freshness.FRESH)


def test_a_new_thread_count_is_seen_on_a_page_that_else_stands_still() -> None:
    store = SampleStore()
    for second, threads in ((10, 4), (20, 8)):
        sample = _sample(second, tasks_outstanding=9.0, tasks_total=10.0, threads_applied=threads)
        store.record(sample, horizon_seconds=100)
    read = store.read("u", now_seconds=21, horizon_seconds=100, max_age_seconds=30)
    assert read.samples[-1].threads_applied == 8


def test_pods_that_are_gone_are_forgotten() -> None:
    store = SampleStore()
    store.record(_sample(10), horizon_seconds=100)
    store.retain(["other"])
    assert _state(store, 11) == (0, Freshness.MISSING)
