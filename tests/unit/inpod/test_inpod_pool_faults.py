"""What a program may do to the pool from its futures: give them up, submit or fail in callbacks."""

import threading
from concurrent.futures import Future, wait
from concurrent.futures.thread import BrokenThreadPool

import pytest

from slimscale.inpod.executor import ThreadPool

WAIT_SECONDS = 3.0


def _blocked(pool: ThreadPool) -> threading.Event:
    """Keep the pool's only thread busy until the event is set."""
    begun, go = threading.Event(), threading.Event()

    def block() -> None:
        begun.set()
        go.wait(WAIT_SECONDS)

    pool.submit(block)
    assert begun.wait(WAIT_SECONDS)
    return go


def test_a_failing_initializer_ends_every_future_although_one_was_given_up() -> None:
    go = threading.Event()

    def initializer() -> None:
        go.wait(WAIT_SECONDS)
        raise ValueError

    pool = ThreadPool(1, initializer=initializer)
    futures = [pool.submit(int) for _ in range(3)]
    assert futures[1].cancel()
    go.set()
    for future in (futures[0], futures[2]):
        with pytest.raises(BrokenThreadPool):
            future.result(WAIT_SECONDS)
    pool.shutdown()


def test_a_callback_of_a_cancelled_future_may_use_the_pool() -> None:
    pool = ThreadPool(1)
    go = _blocked(pool)
    waiting: Future[int] = pool.submit(int)
    refused: list[str] = []

    def again(_: Future[int]) -> None:
        try:
            pool.submit(int)
        except RuntimeError as error:
            refused.append(str(error))

    waiting.add_done_callback(again)
    closer = threading.Thread(
        target=pool.shutdown, kwargs={"wait": False, "cancel_futures": True}, daemon=True
    )
    closer.start()
    closer.join(WAIT_SECONDS)
    go.set()
    assert not closer.is_alive(), "shutdown waits for a lock that it holds itself"
    assert refused


def test_who_waits_for_a_future_that_shutdown_cancels_is_told() -> None:
    pool = ThreadPool(1)
    go = _blocked(pool)
    waiting = pool.submit(int)
    pool.shutdown(wait=False, cancel_futures=True)
    assert wait([waiting], timeout=WAIT_SECONDS).done == {waiting}
    go.set()


def test_a_callback_that_raises_system_exit_costs_the_pool_no_thread() -> None:
    pool = ThreadPool(1)
    go = _blocked(pool)

    def leave(_: Future[int]) -> None:
        raise SystemExit

    pool.submit(int).add_done_callback(leave)
    go.set()
    assert pool.submit(lambda: 7).result(WAIT_SECONDS) == 7
    pool.shutdown()
