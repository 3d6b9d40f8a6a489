"""A pod's queues: one a (width model, shape), earliest deadline first, bounded in rows and bytes.

A batch takes heads of one queue while its rows stay within the smallest cap among them (science
brief 2.4), and is made no larger than its first deadline allows. Small batches waste capacity and
make what follows late in turn; so no two batches in a row are cut short for a deadline: the second
time the head that asks for it is given up instead (early drop).
"""

import heapq
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Generic, NamedTuple, TypeVar

__all__ = ["BatchQueues", "Entry", "Full", "QueueKey", "QueueLimits", "Taken"]

ItemT = TypeVar("ItemT")
BatchSeconds = Callable[[int], float | None]
"""Expected seconds of a batch of so many rows; None: not measured yet, so no deadline is judged."""


class QueueKey(NamedTuple):
    """What may share a batch. `shape`: of one row, with its datatype where models mix them."""

    model: str
    shape: tuple[int, ...] = ()


class Full(StrEnum):
    """Which bound refuses a request."""

    ROWS = "QueueRows"
    BYTES = "QueueBytes"


@dataclass(frozen=True, slots=True)
class QueueLimits:
    max_rows: int
    """Of one batch."""
    queue_rows: int
    queue_bytes: int


@dataclass(slots=True, eq=False)
class Entry(Generic[ItemT]):
    """One queued request. `deadline` and `arrived` are seconds on one clock."""

    item: ItemT
    rows: int
    size_bytes: int
    cap: int
    """Most rows of a batch with this request in it; counts as at least its own rows."""
    deadline: float
    arrived: float
    queued: bool = field(default=False, init=False)

    @property
    def own_cap(self) -> int:
        return max(self.cap, self.rows)


@dataclass(frozen=True, slots=True)
class Taken(Generic[ItemT]):
    """A batch, and the requests that are given up because their answer would come too late."""

    batch: list[Entry[ItemT]]
    late: list[Entry[ItemT]]

    @property
    def rows(self) -> int:
        return sum(entry.rows for entry in self.batch)


class _Queue(Generic[ItemT]):
    """A heap by deadline; what was removed stays in it, unmarked, until it comes to the top."""

    __slots__ = ("heap", "latest", "live", "rows")

    def __init__(self) -> None:
        self.latest = -inf
        """No deadline in it is later."""
        self.heap: list[tuple[float, int, Entry[ItemT]]] = []
        self.rows = 0
        self.live = 0

    def head(self) -> Entry[ItemT] | None:
        heap = self.heap
        while heap and not heap[0][2].queued:
            heapq.heappop(heap)
        return heap[0][2] if heap else None


class BatchQueues(Generic[ItemT]):
    """All queues of a pod. Bounds hold over all of them together."""

    def __init__(self, limits: QueueLimits) -> None:
        self.limits = limits
        """May be replaced at any time; what is queued already stays."""
        self.rows = 0
        self.size_bytes = 0
        self.live = 0
        self._sequence = 0
        self._cut_short = False
        """The last batch was smaller than it could have been, for a deadline."""
        self._queues: dict[QueueKey, _Queue[ItemT]] = {}
        self._rows_of_model: dict[str, int] = {}

    def __len__(self) -> int:
        return self.live

    def rows_of(self, model: str) -> int:
        return self._rows_of_model.get(model, 0)

    def models(self) -> list[str]:
        """Width models with something queued."""
        return [model for model, rows in self._rows_of_model.items() if rows]

    def refusal(self, rows: int, size_bytes: int) -> Full | None:
        """Which bound one more request would pass. An empty queue takes any single request."""
        if not self.live:
            return None
        if self.rows + rows > self.limits.queue_rows:
            return Full.ROWS
        if self.size_bytes + size_bytes > self.limits.queue_bytes:
            return Full.BYTES
        return None

    def add(self, key: QueueKey, entry: Entry[ItemT]) -> None:
        """Queue it, without looking at the bounds: also for what comes back from a lost batch."""
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue()
        entry.queued = True
        self._sequence += 1
        queue.latest = max(queue.latest, entry.deadline)
        heapq.heappush(queue.heap, (entry.deadline, self._sequence, entry))
        self._count(key, queue, entry, 1)

    def remove(self, key: QueueKey, entry: Entry[ItemT]) -> bool:
        """Take one request out, wherever it stands. False: it is not queued (any more)."""
        queue = self._queues.get(key)
        if queue is None or not entry.queued:
            return False
        self._drop(key, queue, entry)
        if len(queue.heap) > 64 and len(queue.heap) > 2 * queue.live:  # else a heap of the dead
            queue.heap = [node for node in queue.heap if node[2].queued]
            heapq.heapify(queue.heap)
        return True

    def expired(self, now: float) -> Iterator[tuple[QueueKey, Entry[ItemT]]]:
        """Takes out and yields what has passed its deadline."""
        for key in tuple(self._queues):
            queue = self._queues[key]
            while (head := queue.head()) is not None and head.deadline <= now:
                self._drop(key, queue, head)
                yield key, head

    def drain_model(self, model: str) -> Iterator[Entry[ItemT]]:
        """Takes out and yields all that is queued for a model."""
        for key in [key for key in self._queues if key.model == model]:
            queue = self._queues[key]
            while (head := queue.head()) is not None:
                self._drop(key, queue, head)
                yield head

    def first_deadline(self) -> float | None:
        heads = [head for queue in self._queues.values() if (head := queue.head()) is not None]
        return min((head.deadline for head in heads), default=None)

    def next_key(self, runnable: Container[str] | None = None) -> QueueKey | None:
        """The queue to serve next: the earliest deadline, and among equals the longest queue.

        `runnable`: models that have an idle instance; None: all.
        """
        best: tuple[float, int] | None = None
        chosen: QueueKey | None = None
        for key, queue in self._queues.items():
            if runnable is not None and key.model not in runnable:
                continue
            head = queue.head()
            if head is None:
                continue
            rank = (head.deadline, -queue.rows)
            if best is None or rank < best:
                best, chosen = rank, key
        return chosen

    def head(self, key: QueueKey) -> Entry[ItemT] | None:
        queue = self._queues.get(key)
        return queue.head() if queue is not None else None

    def rows_in(self, key: QueueKey) -> int:
        queue = self._queues.get(key)
        return queue.rows if queue is not None else 0

    def rows_before(self, model: str, deadline: float) -> int:
        """Rows of a model that would run before a request with this deadline."""
        before = 0
        for key, queue in self._queues.items():
            if key.model != model:
                continue
            if deadline >= queue.latest:  # nearly always: like budgets end in order of arrival
                before += queue.rows
            else:
                before += sum(e.rows for d, _, e in queue.heap if e.queued and d <= deadline)
        return before

    def take(self, key: QueueKey, now: float, batch_seconds: BatchSeconds) -> Taken[ItemT]:
        """The next batch of a queue; both lists are empty where nothing is queued."""
        queue = self._queues.get(key)
        late: list[Entry[ItemT]] = []
        while queue is not None:
            head = queue.head()
            if head is None:
                break
            wanted = self._cap_rows(queue, head)
            fitting = _rows_by(head.deadline - now, head.rows, wanted, batch_seconds)
            cut_short = fitting < wanted / 2
            if fitting < head.rows or (cut_short and self._cut_short):
                self._drop(key, queue, head)
                late.append(head)
                continue
            self._cut_short = cut_short
            return Taken(self._pop(key, queue, fitting), late)
        return Taken([], late)

    # ---- inside

    def _cap_rows(self, queue: _Queue[ItemT], head: Entry[ItemT]) -> int:
        """Rows of the batch that would start with `head`, deadlines apart."""
        return max(head.rows, min(head.own_cap, self.limits.max_rows, queue.rows))

    def _pop(self, key: QueueKey, queue: _Queue[ItemT], fitting: int) -> list[Entry[ItemT]]:
        batch: list[Entry[ItemT]] = []
        rows, cap = 0, self.limits.max_rows
        while (head := queue.head()) is not None:
            narrower = min(cap, head.own_cap)
            if batch and rows + head.rows > min(narrower, fitting):
                break
            self._drop(key, queue, head)
            batch.append(head)
            rows, cap = rows + head.rows, narrower
        return batch

    def _drop(self, key: QueueKey, queue: _Queue[ItemT], entry: Entry[ItemT]) -> None:
        entry.queued = False
        self._count(key, queue, entry, -1)
        if not queue.live:
            del self._queues[key]  # shapes are the clients' choice: none may stay behind
            queue.heap.clear()

    def _count(self, key: QueueKey, queue: _Queue[ItemT], entry: Entry[ItemT], sign: int) -> None:
        rows = sign * entry.rows
        queue.rows += rows
        queue.live += sign
        self.rows += rows
        self.live += sign
        self.size_bytes += sign * entry.size_bytes
        self._rows_of_model[key.model] = self._rows_of_model.get(key.model, 0) + rows


def _rows_by(slack: float, least: int, most: int, batch_seconds: BatchSeconds) -> int:
    """The largest batch of `least` to `most` rows that ends within `slack` seconds; 0: none does."""
    for rows in (most, least):
        seconds = batch_seconds(rows)
        if seconds is None or seconds <= slack:
            if rows == most:
                return most
            break
    else:
        return 0
    low, high = least, most  # low fits, high doesn't
    while high - low > 1:
        middle = (low + high) // 2
        seconds = batch_seconds(middle)
        low, high = (middle, high) if seconds is None or seconds <= slack else (low, middle)
    return low
