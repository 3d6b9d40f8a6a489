"""ThreadPool keeps the promises of ThreadPoolExecutor; most tests run against both."""

import gc
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed, wait
from concurrent.futures.thread import BrokenThreadPool

import pytest

from slimscale.inpod.executor import ThreadPool

MakePool = Callable[..., Executor]
WAIT_SECONDS = 20.0


@pytest.fixture(params=[ThreadPool, ThreadPoolExecutor])
def make_pool(request: pytest.FixtureRequest) -> MakePool:
    kind: MakePool = request.param
    return kind


def test_results_and_exceptions_reach_the_caller(make_pool: MakePool) -> None:
    with make_pool(2) as pool:
        assert pool.submit(pow, 3, exp=2).result(WAIT_SECONDS) == 9
        failed = pool.submit(lambda: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            failed.result(WAIT_SECONDS)
        assert pool.submit(pow, 2, 2).result(WAIT_SECONDS) == 4


def test_system_exit_in_a_task_goes_to_its_future_and_the_worker_lives(make_pool: MakePool) -> None:
    with make_pool(1) as pool:
        with pytest.raises(SystemExit):
            pool.submit(sys.exit).result(WAIT_SECONDS)
        assert pool.submit(int).result(WAIT_SECONDS) == 0


def test_submit_after_shutdown_is_refused(make_pool: MakePool) -> None:
    pool = make_pool(1)
    pool.shutdown()
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        pool.submit(int)


def test_shutdown_runs_all_that_was_submitted(make_pool: MakePool) -> None:
    done: list[int] = []
    pool = make_pool(2)
    for number in range(200):
        pool.submit(done.append, number)
    pool.shutdown()
    assert sorted(done) == list(range(200))


def test_shutdown_can_cancel_what_waits(make_pool: MakePool) -> None:
    pool = make_pool(1)
    begun, go = threading.Event(), threading.Event()

    def block() -> bool:
        begun.set()
        return go.wait(WAIT_SECONDS)

    running = pool.submit(block)
    waiting = [pool.submit(int) for _ in range(20)]
    assert begun.wait(WAIT_SECONDS)
    pool.shutdown(wait=False, cancel_futures=True)
    assert all(future.cancelled() for future in waiting)
    go.set()
    assert running.result(WAIT_SECONDS) is True


def test_a_waiting_task_can_be_cancelled_and_a_running_one_cannot(make_pool: MakePool) -> None:
    begun, go = threading.Event(), threading.Event()

    def block() -> None:
        begun.set()
        go.wait(WAIT_SECONDS)

    ran: list[int] = []
    with make_pool(1) as pool:
        running = pool.submit(block)
        waiting = pool.submit(ran.append, 1)
        assert begun.wait(WAIT_SECONDS)
        assert waiting.cancel()
        assert not running.cancel()
        go.set()
        assert pool.submit(int).result(WAIT_SECONDS) == 0
    assert ran == []


def test_map_keeps_the_order_and_raises_where_its_call_failed(make_pool: MakePool) -> None:
    with make_pool(3) as pool:
        assert list(pool.map(pow, range(10), range(10))) == [n**n for n in range(10)]
        results = pool.map(divmod, [1, 1, 1], [1, 0, 1])
        assert next(results) == (1, 0)
        with pytest.raises(ZeroDivisionError):
            next(results)


def test_map_gives_up_after_its_timeout(make_pool: MakePool) -> None:
    go = threading.Event()
    with make_pool(1) as pool:
        results = pool.map(lambda _: go.wait(WAIT_SECONDS), [1], timeout=0.01)
        with pytest.raises(TimeoutError):
            next(results)
        go.set()


def test_wait_and_as_completed_work(make_pool: MakePool) -> None:
    with make_pool(2) as pool:
        futures = {pool.submit(pow, n, 2) for n in range(8)}
        assert {future.result() for future in as_completed(futures)} == {n**2 for n in range(8)}
        assert wait(futures).not_done == set()


def test_the_initializer_runs_in_each_thread_before_its_tasks(make_pool: MakePool) -> None:
    local = threading.local()

    def prepare(value: int) -> None:
        local.value = value

    with make_pool(2, initializer=prepare, initargs=(7,)) as pool:
        values = [pool.submit(lambda: local.value) for _ in range(10)]
        assert {future.result(WAIT_SECONDS) for future in values} == {7}


def test_a_failing_initializer_breaks_the_pool(make_pool: MakePool) -> None:
    pool = make_pool(1, initializer=lambda: 1 // 0)
    first = pool.submit(int)
    with pytest.raises(BrokenThreadPool):
        first.result(WAIT_SECONDS)
    with pytest.raises(BrokenThreadPool):
        pool.submit(int)
    pool.shutdown()


@pytest.mark.parametrize("count", [0, -1])
def test_a_pool_needs_a_worker(make_pool: MakePool, count: int) -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        make_pool(count)


def test_an_initializer_must_be_callable(make_pool: MakePool) -> None:
    with pytest.raises(TypeError):
        make_pool(1, initializer=3)


def test_threads_carry_the_prefix(make_pool: MakePool) -> None:
    with make_pool(1, thread_name_prefix="sim") as pool:
        assert pool.submit(lambda: threading.current_thread().name).result() == "sim_0"


def test_an_idle_thread_is_used_again(make_pool: MakePool) -> None:
    go = threading.Barrier(2)
    with make_pool(8) as pool:
        futures = [pool.submit(go.wait, WAIT_SECONDS) for _ in range(2)]
        wait(futures)
        names = {pool.submit(lambda: threading.current_thread().name).result() for _ in range(40)}
    # The thread's end of a task comes just after its result, so some few more may start.
    assert len(names) < 8


def test_a_task_may_wait_for_another_from_a_done_callback(make_pool: MakePool) -> None:
    inner: Future[int] = Future()
    with make_pool(2) as pool:
        go = threading.Event()
        first = pool.submit(go.wait, WAIT_SECONDS)
        first.add_done_callback(
            lambda _: inner.set_result(pool.submit(pow, 2, 3).result(WAIT_SECONDS))
        )
        go.set()
        assert inner.result(WAIT_SECONDS) == 8


def test_an_abandoned_pool_ends_its_threads(make_pool: MakePool) -> None:
    pool = make_pool(2)
    thread = pool.submit(threading.current_thread).result(WAIT_SECONDS)
    gone = weakref.ref(pool)
    del pool
    gc.collect()
    assert gone() is None
    thread.join(WAIT_SECONDS)
    assert not thread.is_alive()


def test_a_result_is_not_kept_alive_by_the_worker(make_pool: MakePool) -> None:
    class Big:
        pass

    with make_pool(1) as pool:
        future: Future[Big] = pool.submit(Big)
        held = weakref.ref(future.result(WAIT_SECONDS))
        del future
        pool.submit(int).result(WAIT_SECONDS)
        pool.submit(int).result(WAIT_SECONDS)
        assert held() is None


def test_an_exception_makes_no_reference_cycle(make_pool: MakePool) -> None:
    with make_pool(1) as pool:
        gc.collect()
        gc.disable()
        try:
            future = pool.submit(lambda: 1 // 0)
            wait([future])
            held = weakref.ref(future)
            del future
            pool.submit(int).result(WAIT_SECONDS)
            pool.submit(int).result(WAIT_SECONDS)
            assert held() is None
        finally:
            gc.enable()


@pytest.mark.parametrize(
    "name",
    ["slimscale.inpod.executor.ThreadPool", "concurrent.futures.ThreadPoolExecutor"],
)
def test_the_interpreter_finishes_all_tasks_before_it_exits(name: str) -> None:
    module, _, kind = name.rpartition(".")
    program = f"""
        import time
        from {module} import {kind} as Pool
        pool = Pool(2)
        def task(n):
            time.sleep(0.005)
            print(f"{{n}}\\n", end="", flush=True)  # one write: lines do not mix
            if n == 0:
                time.sleep(0.05)
                try:
                    pool.submit(int)
                except RuntimeError as error:
                    print(f"{{error}}\\n", end="", flush=True)
        for n in range(20):
            pool.submit(task, n)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    lines = done.stdout.split("\n")
    assert {str(n) for n in range(20)} <= set(lines)
    assert "cannot schedule new futures after interpreter shutdown" in lines


class Gate:
    """Tasks that say that they run and end one by one when told."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.go = threading.Semaphore(0)

    def task(self) -> str:
        self.begun.release()
        assert self.go.acquire(timeout=WAIT_SECONDS)
        return threading.current_thread().name

    def wait_for(self, tasks: int) -> None:
        for _ in range(tasks):
            assert self.begun.acquire(timeout=WAIT_SECONDS)

    def end(self, tasks: int) -> None:
        self.go.release(tasks)


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < end
        threading.Event().wait(0.001)


def test_growing_starts_threads_for_tasks_that_wait_already() -> None:
    gate = Gate()
    with ThreadPool(1) as pool:
        futures = [pool.submit(gate.task) for _ in range(4)]
        gate.wait_for(1)
        assert not gate.begun.acquire(timeout=0.02)
        pool.resize(4)
        gate.wait_for(3)
        assert pool.outstanding == 4
        gate.end(4)
        assert len({future.result(WAIT_SECONDS) for future in futures}) == 4


def test_growing_without_work_starts_no_thread() -> None:
    before = threading.active_count()
    with ThreadPool(1) as pool:
        pool.resize(100)
        assert threading.active_count() == before
        assert pool.max_workers == 100


def test_shrinking_counts_as_applied_only_when_the_surplus_has_finished() -> None:
    gate = Gate()
    with ThreadPool(4) as pool:
        futures = [pool.submit(gate.task) for _ in range(12)]
        gate.wait_for(4)
        pool.resize(1)
        assert pool.recorder.figures().threads_applied == 4
        gate.end(4)
        until(lambda: pool.threads_in_use == 1)
        gate.wait_for(1)
        assert not gate.begun.acquire(timeout=0.02)
        gate.end(8)
        for future in futures:
            future.result(WAIT_SECONDS)


def test_shrinking_ends_idle_threads_at_once() -> None:
    gate = Gate()
    with ThreadPool(6) as pool:
        futures = [pool.submit(gate.task) for _ in range(6)]
        gate.wait_for(6)
        gate.end(6)
        wait(futures)
        pool.resize(2)
        until(lambda: pool.threads_in_use == 2)


def test_no_task_is_lost_while_the_size_changes() -> None:
    done: list[int] = []
    pool = ThreadPool(3)
    futures = []
    for number in range(2000):
        if number % 7 == 0:
            pool.resize(1 + number % 9)
        futures.append(pool.submit(done.append, number))
    pool.resize(1)
    pool.shutdown()
    assert sorted(done) == list(range(2000))
    assert all(future.done() for future in futures)
    assert pool.outstanding == 0
    assert pool.recorder.figures().task.count == 2000


def test_shutdown_after_shrinking_still_runs_what_waits() -> None:
    # The wake-ups of a shrink lie in the queue before the tasks: they must not end the last worker.
    gate = Gate()
    done: list[int] = []
    pool = ThreadPool(3)
    for _ in range(3):
        pool.submit(gate.task)
    gate.wait_for(3)
    pool.resize(1)
    for number in range(20):
        pool.submit(done.append, number)
    gate.end(3)
    pool.shutdown()
    assert done == list(range(20))


@pytest.mark.parametrize("count", [0, -3, 10**6, True])
def test_a_size_out_of_range_is_refused_and_changes_nothing(count: int) -> None:
    with ThreadPool(2) as pool:
        with pytest.raises(ValueError, match="between 1 and"):
            pool.resize(count)
        assert pool.max_workers == 2


def test_a_resize_after_shutdown_starts_nothing() -> None:
    pool = ThreadPool(1)
    pool.submit(int).result(WAIT_SECONDS)
    pool.shutdown()
    pool.resize(5)
    assert pool.threads_in_use == 5
    until(lambda: not any(t.name.startswith("ThreadPool-") for t in threading.enumerate()))


def test_cancelled_tasks_are_neither_outstanding_nor_counted_as_tasks() -> None:
    gate = Gate()
    with ThreadPool(1) as pool:
        pool.submit(gate.task)
        gate.wait_for(1)
        for _ in range(5):
            assert pool.submit(int).cancel()
        gate.end(1)
        pool.submit(int).result(WAIT_SECONDS)
    assert pool.outstanding == 0
    assert pool.recorder.figures().task.count == 2


def test_the_default_size_is_the_operators(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("podinfo") / "threads"
    monkeypatch.setenv("SLIMSCALE_THREADS_FILE", str(file))
    monkeypatch.setenv("SLIMSCALE_THREADS", "3")
    assert ThreadPool().max_workers == 3
    file.write_text("5")
    assert ThreadPool().max_workers == 5


def test_light_tasks_are_sampled_and_their_costs_scaled() -> None:
    def spin() -> None:
        end = time.thread_time() + 20e-6
        while time.thread_time() < end:
            pass

    with ThreadPool(1) as pool:
        wait([pool.submit(spin) for _ in range(3000)])
    figures = pool.recorder.figures()
    assert figures.task.count == 3000
    # Each sample stands for the tasks up to it: all but the last few are represented.
    assert 2900 <= figures.dispatch.count <= 3000
    assert figures.cpu_seconds is not None
    # At least 20 us each; the factor leaves room for the last stretch that has no sample.
    assert figures.cpu_seconds >= 0.9 * 3000 * 20e-6


def test_waiting_in_a_task_is_wall_time_and_not_cpu_time() -> None:
    gate = Gate()
    with ThreadPool(1) as pool:
        future = pool.submit(gate.task)
        gate.wait_for(1)
        threading.Event().wait(0.05)
        gate.end(1)
        future.result(WAIT_SECONDS)
    figures = pool.recorder.figures()
    assert figures.task.sum_seconds >= 0.05
    assert figures.cpu_seconds is not None
    assert figures.cpu_seconds < 0.05
    assert figures.dispatch.sum_seconds < 0.05
