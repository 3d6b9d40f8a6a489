"""A pool of threads that can be resized while it works and that measures its own tasks.

It takes the place of `concurrent.futures.ThreadPoolExecutor`: same methods, same exceptions. What
it adds is `resize` and the figures in `recorder`.
"""

import itertools
import logging
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future, InvalidStateError
from concurrent.futures.thread import BrokenThreadPool
from typing import Any, Final, ParamSpec, TypeVar

from slimscale.inpod.cgroup import cpu_count_available
from slimscale.inpod.recorder import Recorder
from slimscale.inpod.schedstat import RunQueueClock
from slimscale.inpod.threads_file import MAX_THREADS, starting_threads

__all__ = ["BrokenThreadPool", "ThreadPool"]

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger(__name__)
_number = itertools.count()
_LIGHT_TASK_SECONDS: Final = 500e-6
"""Below this mean the dear clocks (thread time, schedstat) are read for some tasks only."""
_SAMPLE_STRIDES: Final = (5, 11, 8, 3, 13)
"""Tasks from one sample to the next; uneven, so that a workload of period 8 is sampled evenly."""


class _Item:
    __slots__ = ("args", "dispatch_seconds", "fn", "future", "kwargs", "weight")

    def __init__(
        self,
        future: "Future[Any]",
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        weight: int,
    ) -> None:
        self.future = future
        self.fn = fn
        self.args = args
        self.kwargs = kwargs
        self.weight = weight
        """How many tasks its sample stands for; 0: it is not sampled."""
        self.dispatch_seconds = 0.0


class _Worker:
    """What the pool knows of one thread."""

    __slots__ = ("ended", "thread")

    def __init__(self, thread: threading.Thread) -> None:
        self.thread = thread
        self.ended = 0  # tasks; written by the thread alone


class _Stop:
    """The last entry of a queue: each worker that meets it passes it on and ends."""


class _Wake:
    """Makes an idle worker look at the pool's size; harmless when it is stale."""


_STOP: Final = _Stop()
_WAKE: Final = _Wake()


class _Core:
    """The pool without its handle, so that workers do not keep an abandoned pool alive."""

    def __init__(
        self,
        limit: int,
        *,
        name: str,
        initializer: Callable[..., object] | None,
        initargs: tuple[Any, ...],
        recorder: Recorder,
    ) -> None:
        self.limit = limit
        self.recorder = recorder
        self.lock = threading.Lock()
        self.queue: queue.SimpleQueue[_Item | _Stop | _Wake] = queue.SimpleQueue()
        self.workers: dict[int, _Worker] = {}
        self.closing = False
        self.broken = ""
        self._name = name
        self._initializer = initializer
        self._initargs = initargs
        self._started = itertools.count()
        self._submitted = 0
        self._ended_before = 0  # by workers that are gone
        self._until_sample = 1
        self._strides = itertools.cycle(_SAMPLE_STRIDES)
        self._weight = 1
        self._mean_seconds = _LIGHT_TASK_SECONDS  # racy on purpose: a hint for sampling

    def outstanding(self) -> int:
        """Tasks submitted and not ended, those that run included."""
        ended = self._ended_before + sum(worker.ended for worker in tuple(self.workers.values()))
        return max(0, self._submitted - ended)

    def threads_in_use(self) -> int:
        """The limit, or more while surplus workers still run their last task."""
        return max(self.limit, len(self.workers))

    def submit(
        self, fn: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> "Future[T]":
        future: Future[T] = Future()
        with self.lock:
            if self.broken:
                raise BrokenThreadPool(self.broken)
            if self.closing:
                raise RuntimeError("cannot schedule new futures after shutdown")
            if _exiting:
                raise RuntimeError("cannot schedule new futures after interpreter shutdown")
            weight = self._next_weight()
            # CPU time, not wall time: waiting for the interpreter or a core is not dispatch.
            start = time.thread_time() if weight else 0.0
            item = _Item(future, fn, args, kwargs, weight)
            self._submitted += 1
            if weight:
                item.dispatch_seconds = time.thread_time() - start
            self.queue.put(item)
            if len(self.workers) < self.limit and self.outstanding() > len(self.workers):
                self._start_worker()
        return future

    def _next_weight(self) -> int:
        if self._mean_seconds >= _LIGHT_TASK_SECONDS:
            self._weight = self._until_sample = 1
            return 1
        self._until_sample -= 1
        if self._until_sample > 0:
            return 0
        weight = self._weight
        self._weight = self._until_sample = next(self._strides)
        return weight

    def _start_worker(self) -> None:
        number = next(self._started)
        thread = threading.Thread(
            target=self._work, args=(number,), name=f"{self._name}_{number}", daemon=False
        )
        # Registered first: a worker that ends at once must find itself.
        self.workers[number] = _Worker(thread)
        try:
            thread.start()
        except RuntimeError:
            del self.workers[number]
            if not self.workers:
                raise
            _log.warning("no further thread can be started; %d work", len(self.workers))

    def resize(self, limit: int) -> None:
        with self.lock:
            self.limit = limit
            surplus = len(self.workers) - limit
            for _ in range(surplus):
                self.queue.put(_WAKE)
            if self.closing or self.broken:
                return
            wanted = min(limit, self.outstanding())
            for _ in range(wanted - len(self.workers)):
                self._start_worker()

    def _work(self, number: int) -> None:
        if not self._initialise(number):
            return
        me = self.workers[number]
        clock = RunQueueClock()
        accumulator = self.recorder.accumulator()
        self.recorder.costs_are_recorded(cpu=True, runqueue=clock.available)
        perf_counter = time.perf_counter
        get = self.queue.get
        try:
            while True:
                item = get()
                if isinstance(item, _Item):
                    if item.weight:
                        seconds = self._run_sampled(item, clock)
                    elif item.future.set_running_or_notify_cancel():
                        start = perf_counter()
                        outcome, error = _call(item.fn, item.args, item.kwargs)
                        seconds = perf_counter() - start
                        # Counted before the result is seen: who waits for it finds it counted.
                        accumulator.task(seconds)
                        _publish(item, outcome, error)
                        del outcome, error
                    else:
                        seconds = self._mean_seconds
                    self._mean_seconds += (seconds - self._mean_seconds) * 0.05
                    me.ended += 1
                    del item
                elif item is _STOP:
                    self.queue.put(_STOP)
                    self._leave(number)
                    return
                if len(self.workers) > self.limit and self._leave_if_surplus(number):
                    return
        finally:
            clock.close()

    def _run_sampled(self, item: _Item, clock: RunQueueClock) -> float:
        accumulator = self.recorder.accumulator()
        begin = time.thread_time()
        if not item.future.set_running_or_notify_cancel():
            return self._mean_seconds
        accumulator.dispatch(item.dispatch_seconds + time.thread_time() - begin, item.weight)
        waited = clock.seconds()
        cpu_start = time.thread_time()
        start = time.perf_counter()
        outcome, error = _call(item.fn, item.args, item.kwargs)
        seconds = time.perf_counter() - start
        cpu_seconds = time.thread_time() - cpu_start
        accumulator.task(seconds)
        accumulator.cpu_seconds += cpu_seconds * item.weight
        accumulator.runqueue_seconds += max(0.0, clock.seconds() - waited) * item.weight
        _publish(item, outcome, error)
        # The error's traceback leads to this frame: it must not lead on to the future.
        del item, outcome, error
        return seconds

    def _initialise(self, number: int) -> bool:
        if self._initializer is None:
            return True
        try:
            self._initializer(*self._initargs)
        except BaseException:
            _log.critical("Exception in initializer:", exc_info=True)
            with self.lock:
                self.broken = "A thread initializer failed, the thread pool is not usable anymore"
                self._leave_locked(number)
                dropped = self._drain()
                self.queue.put(_STOP)
            for future in dropped:
                if future.set_running_or_notify_cancel():  # not if its caller gave it up
                    future.set_exception(BrokenThreadPool(self.broken))
            return False
        return True

    def _leave_if_surplus(self, number: int) -> bool:
        with self.lock:
            if len(self.workers) <= self.limit:
                return False
            self._leave_locked(number)
            return True

    def _leave(self, number: int) -> None:
        with self.lock:
            self._leave_locked(number)

    def _leave_locked(self, number: int) -> None:
        worker = self.workers.pop(number, None)
        if worker is not None:
            self._ended_before += worker.ended

    def close(self, *, wait: bool, cancel_futures: bool) -> None:
        with self.lock:
            self.closing = True
            dropped = self._drain() if cancel_futures else []
            threads = [worker.thread for worker in self.workers.values()]
            self.queue.put(_STOP)
        # Without the lock: a future's callbacks run here, and may use the pool.
        for future in dropped:
            future.cancel()
            future.set_running_or_notify_cancel()  # else `wait` on it would wait for ever
        if wait:
            for thread in threads:
                thread.join()

    def _drain(self) -> "list[Future[Any]]":
        """Take out what waits; the futures are for the caller to end."""
        futures: list[Future[Any]] = []
        while True:
            try:
                item = self.queue.get_nowait()
            except queue.Empty:
                return futures
            if isinstance(item, _Item):
                self._ended_before += 1
                futures.append(item.future)


def _call(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, BaseException | None]:
    # Without the item: an error's traceback would else lead back to the future that holds it.
    try:
        return fn(*args, **kwargs), None
    except BaseException as error:
        return None, error


def _publish(item: _Item, outcome: object, error: BaseException | None) -> None:
    try:
        if error is None:
            item.future.set_result(outcome)
        else:
            item.future.set_exception(error)
    except InvalidStateError:
        _log.critical("a future of the pool was ended by somebody else")
    except BaseException as failure:  # a callback's SystemExit must not cost the pool a thread
        _log.critical("a future's callback raised %s", type(failure).__name__)


class ThreadPool(Executor):
    """A resizable `ThreadPoolExecutor`.

    `max_workers`: at least 1. None: the operator's count for this pod where there is one (file,
    then SLIMSCALE_THREADS), else the CPUs that quota and affinity leave, rounded down.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        thread_name_prefix: str = "",
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        *,
        recorder: Recorder | None = None,
    ) -> None:
        if max_workers is None:
            max_workers = starting_threads() or max(1, int(cpu_count_available()))
        if max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        self.recorder = recorder if recorder is not None else Recorder()
        self._core = _Core(
            max_workers,
            name=thread_name_prefix or f"ThreadPool-{next(_number)}",
            initializer=initializer,
            initargs=initargs,
            recorder=self.recorder,
        )
        self.recorder.outstanding = self._core.outstanding
        self.recorder.threads_applied = self._core.threads_in_use
        with _cores_lock:
            _cores.add(self._core)
        weakref.finalize(self, _abandon, self._core).atexit = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        return self._core.submit(fn, args, kwargs)

    def resize(self, max_workers: int) -> None:
        """Change the number of threads now; from any thread; drops no task.

        New threads start when there are tasks for them. Surplus threads end after their task.

        Raises:
            ValueError: not between 1 and `MAX_THREADS`.
        """
        if isinstance(max_workers, bool) or not 1 <= max_workers <= MAX_THREADS:
            raise ValueError(f"max_workers must be between 1 and {MAX_THREADS}")
        self._core.resize(int(max_workers))

    @property
    def max_workers(self) -> int:
        return self._core.limit

    @property
    def threads_in_use(self) -> int:
        """`max_workers`, or more while threads that a smaller size retires still run a task."""
        return self._core.threads_in_use()

    @property
    def outstanding(self) -> int:
        """Tasks submitted and not ended."""
        return self._core.outstanding()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._core.close(wait=wait, cancel_futures=cancel_futures)


def _abandon(core: _Core) -> None:
    # Runs inside garbage collection, maybe under the core's lock: SimpleQueue.put takes none.
    core.closing = True
    core.queue.put(_STOP)


# At exit Python joins all threads: those that wait for tasks must be told to end, as
# concurrent.futures does, and through the same hook, since `atexit` runs after the joining.
_cores: "weakref.WeakSet[_Core]" = weakref.WeakSet()
_cores_lock = threading.Lock()
_exiting = False


def _end_all() -> None:
    global _exiting  # noqa: PLW0603
    with _cores_lock:
        _exiting = True
        cores = list(_cores)
    threads: list[threading.Thread] = []
    for core in cores:
        with core.lock:  # no submit can be half done
            threads += [worker.thread for worker in core.workers.values()]
            core.queue.put(_STOP)
    for thread in threads:
        thread.join()


def _start_again_in_child() -> None:
    """None of the parent's workers exists in a forked child, and nobody there holds the lock."""
    global _cores, _cores_lock  # noqa: PLW0603
    _cores = weakref.WeakSet()
    _cores_lock = threading.Lock()


threading._register_atexit(_end_all)  # type: ignore[attr-defined]
os.register_at_fork(after_in_child=_start_again_in_child)
