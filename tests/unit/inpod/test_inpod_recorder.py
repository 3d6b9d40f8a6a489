import itertools
import threading

import pytest

from slimscale.inpod.recorder import BUCKET_BOUNDS_SECONDS, Recorder


def test_buckets_cover_a_microsecond_to_100_seconds_in_even_steps() -> None:
    assert BUCKET_BOUNDS_SECONDS[0] == 1e-6
    assert BUCKET_BOUNDS_SECONDS[-1] == 100.0
    pairs = itertools.pairwise(BUCKET_BOUNDS_SECONDS)
    assert all(1.5 < upper / lower < 1.7 for lower, upper in pairs)


def test_a_bound_belongs_to_its_own_bucket_as_prometheus_counts() -> None:
    recorder = Recorder()
    for seconds in (1e-6, 1.1e-6, 1000.0):
        recorder.task(seconds)
    counts = recorder.figures().task.counts
    assert (counts[0], counts[1], counts[-1]) == (1, 1, 1)


def test_counts_of_threads_that_have_ended_stay() -> None:
    recorder = Recorder()

    def work() -> None:
        for _ in range(100):
            recorder.task(0.001, 0.0005, 0.0001)
            recorder.dispatch(2e-6)

    for _ in range(5):
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        recorder.figures()
    figures = recorder.figures()
    assert figures.task.count == 2000
    assert figures.dispatch.count == 2000
    assert figures.task.sum_seconds == pytest.approx(2.0)
    assert figures.cpu_seconds == pytest.approx(1.0)
    assert figures.runqueue_seconds == pytest.approx(0.2)


def test_what_was_never_recorded_is_absent_and_not_zero() -> None:
    recorder = Recorder()
    recorder.task(0.1)
    figures = recorder.figures()
    assert figures.cpu_seconds is None
    assert figures.runqueue_seconds is None
    assert figures.outstanding is None
    assert figures.threads_applied is None


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_durations_that_cannot_be_are_not_counted(seconds: float) -> None:
    recorder = Recorder()
    recorder.task(seconds, seconds, seconds)
    recorder.task(0.1, seconds, seconds)
    recorder.dispatch(seconds)
    figures = recorder.figures()
    assert figures.task.count == 1
    assert figures.dispatch.count == 0
    assert figures.cpu_seconds is None


def test_a_measured_block_counts_even_when_it_raises() -> None:
    recorder = Recorder()
    with pytest.raises(KeyError), recorder.measure_task():
        raise KeyError
    figures = recorder.figures()
    assert figures.task.count == 1
    assert figures.cpu_seconds is not None


def test_outstanding_may_be_a_number_or_a_function() -> None:
    recorder = Recorder()
    recorder.outstanding = 4
    assert recorder.figures().outstanding == 4
    recorder.outstanding = lambda: 9
    assert recorder.figures().outstanding == 9
