"""One reconcile of a key at a time, no wake lost, failures paced. In virtual time."""

import asyncio
from collections import defaultdict
from contextlib import suppress
from itertools import pairwise
from random import Random

import pytest

from slimscale.controllers.queue import Backoff, Key, WorkQueue
from slimscale.exceptions import Unavailable
from tests.support.virtual_time import run_virtual

A: Key = ("ns", "a")
B: Key = ("ns", "b")


class Recorder:
    """A reconcile that takes a second, notes when it ran, and fails as told."""

    def __init__(self) -> None:
        self.runs: dict[Key, list[float]] = defaultdict(list)
        self.overlap = False
        self.failures_left = 0
        self.error: Exception = Unavailable("no answer")
        self.again_after_seconds: float | None = None
        self._running: set[Key] = set()

    async def reconcile(self, key: Key) -> float | None:
        self.overlap = self.overlap or key in self._running
        self._running.add(key)
        self.runs[key].append(asyncio.get_running_loop().time())
        try:
            await asyncio.sleep(1)
        finally:
            self._running.discard(key)
        if self.failures_left > 0:
            self.failures_left -= 1
            raise self.error
        return self.again_after_seconds

    def gaps(self, key: Key) -> list[float]:
        runs = self.runs[key]
        return [later - earlier for earlier, later in pairwise(runs)]


async def _for(seconds: float, queue: WorkQueue, *steps: tuple[float, Key]) -> None:
    """Run the queue; wake keys at the given seconds."""
    loop = asyncio.get_running_loop()
    for at, key in steps:
        loop.call_later(at, queue.wake, key)
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await queue.run()


def test_a_key_is_never_reconciled_twice_at_once_and_a_wake_meanwhile_runs_it_once_more() -> None:
    async def main() -> Recorder:
        recorder = Recorder()
        queue = WorkQueue(recorder.reconcile, rng=Random(1))
        await _for(10, queue, (0, A), (0.2, A), (0.4, A), (0.6, A))
        return recorder

    recorder = run_virtual(main())
    assert not recorder.overlap
    assert len(recorder.runs[A]) == 2


def test_a_slow_key_does_not_hold_up_another() -> None:
    async def main() -> Recorder:
        recorder = Recorder()
        queue = WorkQueue(recorder.reconcile, rng=Random(1), workers=2)
        await _for(0.5, queue, (0, A), (0.1, B))
        return recorder

    recorder = run_virtual(main())
    assert recorder.runs[B]


def test_failures_are_retried_with_growing_pauses_up_to_the_cap() -> None:
    async def main() -> Recorder:
        recorder = Recorder()
        recorder.failures_left = 8
        queue = WorkQueue(
            recorder.reconcile,
            rng=Random(1),
            backoff=Backoff(first_seconds=1, cap_seconds=20, jitter_ratio=0.2),
        )
        await _for(600, queue, (0, A))
        return recorder

    gaps = run_virtual(main()).gaps(A)
    assert len(gaps) == 8
    assert gaps[0] < gaps[1] < gaps[2] < gaps[3]
    assert all(gap <= 20 * 1.2 + 1.01 for gap in gaps)
    assert len({round(gap, 3) for gap in gaps[-3:]}) == 3, "without jitter all would come at once"


def test_a_user_s_change_is_looked_at_during_a_pause_but_a_pod_s_noise_is_not() -> None:
    async def main() -> Recorder:
        recorder = Recorder()
        recorder.failures_left = 1
        queue = WorkQueue(
            recorder.reconcile, rng=Random(1), backoff=Backoff(first_seconds=100, jitter_ratio=0)
        )
        loop = asyncio.get_running_loop()
        loop.call_later(10, lambda: queue.wake(A, urgent=False))
        await _for(90, queue, (0, A), (50, A))
        return recorder

    assert run_virtual(main()).gaps(A) == [pytest.approx(50)]


def test_the_server_s_own_pause_is_kept() -> None:
    async def main() -> Recorder:
        recorder = Recorder()
        recorder.failures_left, recorder.error = 1, Unavailable("busy", retry_after_seconds=42)
        queue = WorkQueue(recorder.reconcile, rng=Random(1))
        await _for(100, queue, (0, A))
        return recorder

    assert run_virtual(main()).gaps(A)[0] >= 43


def test_a_reconcile_that_asks_for_another_look_gets_it_and_the_earliest_wish_wins() -> None:
    async def main() -> Recorder:
        recorder = Recorder()
        recorder.again_after_seconds = 30
        queue = WorkQueue(recorder.reconcile, rng=Random(1))
        asyncio.get_running_loop().call_later(5, lambda: queue.wake(A, after_seconds=7))
        await _for(20, queue, (0, A))
        return recorder

    assert run_virtual(main()).gaps(A) == [pytest.approx(12)]


def test_a_forgotten_key_is_not_looked_at_again_until_it_is_woken() -> None:
    async def main() -> Recorder:
        recorder = Recorder()
        recorder.again_after_seconds = 5
        queue = WorkQueue(recorder.reconcile, rng=Random(1))
        loop = asyncio.get_running_loop()
        loop.call_later(3, lambda: queue.forget(A))
        await _for(100, queue, (0, A), (60, A))
        return recorder

    runs = run_virtual(main()).runs[A]
    assert runs[1] - runs[0] == pytest.approx(60)


def test_a_reconcile_that_hangs_is_ended_and_tried_again() -> None:
    async def main() -> list[float]:
        started: list[float] = []

        async def hang(_key: Key) -> None:
            started.append(asyncio.get_running_loop().time())
            await asyncio.Event().wait()

        queue = WorkQueue(hang, rng=Random(1), run_limit_seconds=30)
        await _for(120, queue, (0, A))
        return started

    assert len(run_virtual(main())) >= 3


def test_a_reconcile_in_which_something_is_cancelled_costs_no_worker() -> None:
    async def main() -> list[Key]:
        seen: list[Key] = []

        async def reconcile(key: Key) -> None:
            seen.append(key)
            if key == A:
                raise asyncio.CancelledError

        queue = WorkQueue(reconcile, rng=Random(1), workers=1)
        await _for(10, queue, (0, A), (1, B))
        return seen

    seen = run_virtual(main())
    assert B in seen
    assert seen.count(A) > 1, "it is tried again"


def test_two_hundred_changes_right_after_creation_end_with_the_last_one() -> None:
    """A8: whatever the order of events, the last state of the spec is what gets reconciled."""

    async def main() -> tuple[int, int]:
        spec = {"value": 0}
        applied = 0

        async def reconcile(_key: Key) -> None:
            nonlocal applied
            read = spec["value"]
            await asyncio.sleep(0.05)
            applied = read

        queue = WorkQueue(reconcile, rng=Random(1))
        loop = asyncio.get_running_loop()

        def change() -> None:
            spec["value"] += 1
            queue.wake(A)

        for index in range(200):
            loop.call_later(index * 0.007, change)
        await _for(10, queue)
        return spec["value"], applied

    wanted, applied = run_virtual(main())
    assert applied == wanted == 200


def test_a_run_knows_whether_something_happened_or_its_time_has_come() -> None:
    async def main() -> list[bool]:
        woken: list[bool] = []

        async def reconcile(key: Key) -> float | None:
            woken.append(queue.was_woken(key))
            return 10.0

        queue = WorkQueue(reconcile, rng=Random(1))
        await _for(36, queue, (0, A), (25, A))
        return woken

    # At 0 woken, at 10 and 20 due, at 25 woken, at 35 due again.
    assert run_virtual(main()) == [True, False, False, True, False]


def test_a_run_after_a_failure_is_no_mere_look() -> None:
    async def main() -> list[bool]:
        woken: list[bool] = []

        async def reconcile(key: Key) -> float | None:
            woken.append(queue.was_woken(key))
            if len(woken) == 2:
                raise Unavailable("no answer")
            return 10.0

        queue = WorkQueue(reconcile, rng=Random(1))
        await _for(15, queue, (0, A))
        return woken

    assert run_virtual(main())[:3] == [True, False, True]
