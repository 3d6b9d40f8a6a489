"""Queues of a pod: order, caps, bounds, and what is given up when deadlines press."""

from collections.abc import Callable
from math import inf

import pytest

from slimscale.routing.queues import BatchQueues, Entry, Full, QueueKey, QueueLimits

KEY = QueueKey("w100", (2,))
LIMITS = QueueLimits(max_rows=8, queue_rows=100, queue_bytes=1000)


def entry(name: str, rows: int = 1, *, cap: int = 99, deadline: float = inf) -> Entry[str]:
    return Entry(name, rows, 10 * rows, cap, deadline, 0.0)


def queues(*entries: Entry[str], limits: QueueLimits = LIMITS) -> BatchQueues[str]:
    made: BatchQueues[str] = BatchQueues(limits)
    for one in entries:
        made.add(KEY, one)
    return made


def unmeasured(_rows: int) -> None:
    return None


def linear(base: float, row: float) -> Callable[[int], float]:
    return lambda rows: base + row * rows


def names(entries: list[Entry[str]]) -> list[str]:
    return [one.item for one in entries]


def test_the_earliest_deadline_goes_first_and_equals_in_order_of_arrival() -> None:
    made = queues(
        entry("late", deadline=9), entry("a", deadline=5), entry("b", deadline=5),
        entry("first", deadline=1),
    )  # fmt: skip
    assert names(made.take(KEY, 0.0, unmeasured).batch) == ["first", "a", "b", "late"]


@pytest.mark.parametrize(
    ("entries", "taken"),
    [
        ([entry("a", 4), entry("b", 4), entry("c", 1)], ["a", "b"]),
        ([entry("a", 4), entry("b", 5)], ["a"]),
        ([entry("a", 1), entry("b", 1, cap=2), entry("c", 1)], ["a", "b"]),
        ([entry("a", 1), entry("b", 1), entry("c", 1, cap=2)], ["a", "b"]),
        ([entry("a", 3, cap=1), entry("b", 1)], ["a"]),
        ([entry("a", 20), entry("b", 1)], ["a"]),
        ([entry("a", 1, cap=1), entry("b", 1)], ["a"]),
    ],
)
def test_a_batch_stays_within_the_smallest_cap_in_it(
    entries: list[Entry[str]], taken: list[str]
) -> None:
    assert names(queues(*entries).take(KEY, 0.0, unmeasured).batch) == taken


def test_a_batch_is_no_larger_than_its_first_deadline_allows() -> None:
    made = queues(*(entry(str(n), deadline=1.0) for n in range(8)))
    taken = made.take(KEY, 0.0, linear(0.5, 0.1))
    assert (taken.rows, taken.late) == (5, [])


def test_what_would_be_late_even_alone_is_given_up() -> None:
    made = queues(entry("gone", deadline=0.5), entry("fine", deadline=5.0))
    taken = made.take(KEY, 0.0, linear(0.5, 0.1))
    assert (names(taken.batch), names(taken.late)) == (["fine"], ["gone"])
    assert len(made) == 0


def test_small_batches_for_late_heads_do_not_follow_each_other() -> None:
    """Else every later request would be late in turn, and the pod would end with batches of one."""
    heads = [entry(f"head{n}", deadline=0.7) for n in range(4)]
    made = queues(*heads, *(entry(str(n), deadline=9.0) for n in range(16)))
    seconds = linear(0.5, 0.1)
    first = made.take(KEY, 0.0, seconds)
    assert (first.rows, first.late) == (2, [])
    second = made.take(KEY, 0.0, seconds)
    assert (second.rows, names(second.late)) == (8, ["head2", "head3"])


def test_the_next_queue_is_that_of_the_earliest_deadline_then_the_longest() -> None:
    made: BatchQueues[str] = BatchQueues(LIMITS)
    other, third = QueueKey("w050", (2,)), QueueKey("w100", (3,))
    made.add(KEY, entry("a", deadline=2.0))
    made.add(other, entry("b", 3, deadline=2.0))
    made.add(third, entry("c", deadline=5.0))
    assert made.next_key() == other
    assert made.next_key({"w100"}) == KEY
    assert made.next_key(set()) is None


def test_bounds_hold_over_all_queues_and_an_empty_one_takes_any_single_request() -> None:
    made: BatchQueues[str] = BatchQueues(QueueLimits(max_rows=8, queue_rows=10, queue_bytes=95))
    assert made.refusal(50, 10_000) is None
    made.add(KEY, entry("a", 4))
    made.add(QueueKey("other"), entry("b", 4))
    assert made.refusal(2, 10) is None
    assert made.refusal(3, 10) is Full.ROWS
    assert made.refusal(1, 16) is Full.BYTES


def test_removed_and_expired_requests_leave_nothing_behind() -> None:
    made: BatchQueues[str] = BatchQueues(LIMITS)
    for number in range(500):
        key = QueueKey("w100", (number % 7,))
        one = entry(str(number), deadline=float(number))
        made.add(key, one)
        if number % 2:
            assert made.remove(key, one)
            assert not made.remove(key, one)
    assert made.rows_of("w100") == 250
    expired = [one.item for _, one in made.expired(100.0)]
    assert sorted(map(int, expired)) == list(range(0, 101, 2))
    rest = [one.item for one in made.drain_model("w100")]
    assert len(rest) == 250 - 51
    assert (made.rows, made.size_bytes, len(made), made.first_deadline()) == (0, 0, 0, None)
    assert made.next_key() is None


def test_rows_that_go_before_a_deadline_are_counted_by_deadline() -> None:
    made = queues(*(entry(str(n), 2, deadline=float(n)) for n in range(5)))
    assert made.rows_before("w100", 10.0) == 10
    assert made.rows_before("w100", 2.0) == 6
    assert made.rows_before("other", 10.0) == 0
