"""What a pod's tasks cost, counted by the threads that run them and added up when someone asks.

Each thread writes only to its own accumulator, without a lock; a scrape reads them all. A figure
can therefore be some tasks behind, and never goes back.
"""

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

__all__ = [
    "BUCKET_BOUNDS_SECONDS",
    "Accumulator",
    "HistogramFigures",
    "Recorder",
    "RecorderFigures",
]

BUCKET_BOUNDS_SECONDS: Final = (
    *(
        float(f"{mantissa}e{exponent}")
        for exponent in range(-6, 2)
        for mantissa in ("1", "1.6", "2.5", "4", "6.3")
    ),
    100.0,
)
"""1 us to 100 s in steps of about 1.6 (five a decade); one more bucket holds what is longer."""


class Accumulator:
    """The counts of one thread. Written by that thread alone."""

    __slots__ = (
        "cpu_seconds",
        "dispatch_counts",
        "dispatch_seconds",
        "runqueue_seconds",
        "task_counts",
        "task_seconds",
    )

    def __init__(self) -> None:
        buckets = len(BUCKET_BOUNDS_SECONDS) + 1
        self.task_counts = [0] * buckets
        self.task_seconds = 0.0
        self.dispatch_counts = [0] * buckets
        self.dispatch_seconds = 0.0
        self.cpu_seconds = 0.0
        self.runqueue_seconds = 0.0

    def task(self, seconds: float, weight: int = 1) -> None:
        """One task of this wall time that stands for `weight` of them."""
        self.task_counts[bisect_left(BUCKET_BOUNDS_SECONDS, seconds)] += weight
        self.task_seconds += seconds * weight

    def dispatch(self, seconds: float, weight: int = 1) -> None:
        """One hand-over that stands for `weight` of them."""
        self.dispatch_counts[bisect_left(BUCKET_BOUNDS_SECONDS, seconds)] += weight
        self.dispatch_seconds += seconds * weight

    def add(self, other: "Accumulator") -> None:
        for counts, more in (
            (self.task_counts, other.task_counts),
            (self.dispatch_counts, other.dispatch_counts),
        ):
            for index, count in enumerate(more):
                counts[index] += count
        self.task_seconds += other.task_seconds
        self.dispatch_seconds += other.dispatch_seconds
        self.cpu_seconds += other.cpu_seconds
        self.runqueue_seconds += other.runqueue_seconds


@dataclass(frozen=True, slots=True)
class HistogramFigures:
    """Counts per bucket (not cumulative); the last bucket has no upper bound."""

    counts: tuple[int, ...]
    sum_seconds: float

    @property
    def count(self) -> int:
        return sum(self.counts)


@dataclass(frozen=True, slots=True)
class RecorderFigures:
    """What has been recorded since the recorder was made. None: nothing knows."""

    task: HistogramFigures
    dispatch: HistogramFigures
    cpu_seconds: float | None
    runqueue_seconds: float | None
    outstanding: int | None
    threads_applied: int | None


class Recorder:
    """Where a pool of any kind reports its tasks. All methods are safe from any thread.

    `outstanding` and `threads_applied` are a number, or a function that gives one when asked.
    """

    def __init__(self) -> None:
        self.outstanding: int | Callable[[], int] | None = None
        self.threads_applied: int | Callable[[], int] | None = None
        self.ignored_thread_values: dict[str, int] = {}
        self._lock = threading.Lock()
        self._local = threading.local()
        self._finished = Accumulator()
        self._live: list[tuple[threading.Thread, Accumulator]] = []
        self._has_cpu = False
        self._has_runqueue = False

    def accumulator(self) -> Accumulator:
        """The calling thread's own accumulator, made at its first call."""
        try:
            mine: Accumulator = self._local.accumulator
        except AttributeError:
            mine = self._local.accumulator = Accumulator()
            with self._lock:
                self._fold_ended()
                self._live.append((threading.current_thread(), mine))
        return mine

    def task(
        self,
        seconds: float,
        cpu_seconds: float | None = None,
        runqueue_seconds: float | None = None,
    ) -> None:
        """A task has ended. Negative or non-finite durations are not counted."""
        if not 0.0 <= seconds < float("inf"):
            return
        mine = self.accumulator()
        mine.task(seconds)
        if cpu_seconds is not None and 0.0 <= cpu_seconds < float("inf"):
            mine.cpu_seconds += cpu_seconds
            self._has_cpu = True
        if runqueue_seconds is not None and 0.0 <= runqueue_seconds < float("inf"):
            mine.runqueue_seconds += runqueue_seconds
            self._has_runqueue = True

    def dispatch(self, seconds: float) -> None:
        """One task was handed over; the time the dispatcher was busy with it, without waiting."""
        if 0.0 <= seconds < float("inf"):
            self.accumulator().dispatch(seconds)

    @contextmanager
    def measure_task(self) -> Iterator[None]:
        """Count the block as one task, also when it raises."""
        cpu_start = time.thread_time()
        start = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - start
            self.task(seconds, time.thread_time() - cpu_start)

    def costs_are_recorded(self, *, cpu: bool, runqueue: bool) -> None:
        """Say which costs are written into accumulators directly, so that they are served."""
        self._has_cpu = self._has_cpu or cpu
        self._has_runqueue = self._has_runqueue or runqueue

    def value_ignored(self, reason: str) -> None:
        """A thread count was not used as it stood. Reasons are a small fixed set."""
        with self._lock:
            self.ignored_thread_values[reason] = self.ignored_thread_values.get(reason, 0) + 1

    def figures(self) -> RecorderFigures:
        total = Accumulator()
        with self._lock:
            self._fold_ended()
            total.add(self._finished)
            for _, accumulator in self._live:
                total.add(accumulator)
        return RecorderFigures(
            task=HistogramFigures(tuple(total.task_counts), total.task_seconds),
            dispatch=HistogramFigures(tuple(total.dispatch_counts), total.dispatch_seconds),
            cpu_seconds=total.cpu_seconds if self._has_cpu else None,
            runqueue_seconds=total.runqueue_seconds if self._has_runqueue else None,
            outstanding=_value(self.outstanding),
            threads_applied=_value(self.threads_applied),
        )

    def _fold_ended(self) -> None:
        """Keep the counts of threads that are gone, not their accumulators."""
        still_live = []
        for thread, accumulator in self._live:
            if thread.is_alive():
                still_live.append((thread, accumulator))
            else:
                self._finished.add(accumulator)
        self._live = still_live


def _value(source: int | Callable[[], int] | None) -> int | None:
    return source() if callable(source) else source
