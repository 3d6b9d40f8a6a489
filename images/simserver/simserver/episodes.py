"""The heavy and the blocking phase: one task is one environment step, run by a pool of threads.

The caller is the actor loop of reinforcement-learning inference: it takes the environments that
have finished a step, lets the policy choose their actions as one batch, and hands each step to the
pool. There are always more environments than threads (closed loop), so the pool is never short of
work and its throughput is what the threads and the CPU allow.
"""

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from .engine import EngineClient, EngineError
from .scenes import Environment, Policy, quadruped

__all__ = ["BlockingStep", "EnvironmentLoop", "HeavyStep", "LoopCount", "Pool", "StepTask"]

LEAST_OUTSTANDING = 128
TASKS_A_THREAD = 4
RESET_AFTER_STEPS = 50
LARGEST_BATCH = 32
ENGINE_RETRY_SECONDS = 0.2
LOOK_SECONDS = 0.05

StepTask = Callable[[Environment], bool]
"""Advance one environment; False: the engine failed it. Called on a thread of the pool."""


class Pool(Protocol):
    """What is used of `slimscale.inpod.ThreadPool`."""

    def submit(self, fn: StepTask, environment: Environment, /) -> Future[bool]: ...


class HeavyStep:
    """Physics alone: the control period in small steps, one call that holds no lock."""

    def __init__(self, steps: int) -> None:
        self._steps = steps

    def __call__(self, environment: Environment) -> bool:
        environment.advance(self._steps)
        return True


class BlockingStep:
    """Half of the physics, the engine's force for the torso, the other half."""

    def __init__(self, steps: int, *, address: tuple[str, int], wait_seconds: float) -> None:
        self._half = max(1, steps // 2)
        self._address = address
        self._wait_seconds = wait_seconds
        self._local = threading.local()  # a connection a thread

    def __call__(self, environment: Environment) -> bool:
        client = getattr(self._local, "client", None)
        if client is None:
            client = self._local.client = EngineClient(*self._address)
        environment.advance(self._half)
        velocity = [float(v) for v in environment.data.qvel[:3]]
        try:
            force = client.force(velocity, wait_seconds=self._wait_seconds)
        except EngineError:
            # Fast failures in a closed loop would only burn CPU.
            time.sleep(ENGINE_RETRY_SECONDS)
            return False
        environment.data.qfrc_applied[:3] = force[:3]
        environment.advance(self._half)
        return True


@dataclass(frozen=True, slots=True)
class LoopCount:
    done: int
    failed: int


class EnvironmentLoop:
    """Keeps `outstanding(threads)` steps with the pool. Used by one thread."""

    def __init__(self, pool: Pool, *, seed: int) -> None:
        self._pool = pool
        self._rng = np.random.default_rng(seed)
        self._model = quadruped()
        self._size = Environment.observation_size(self._model)
        self._policy = Policy(self._size, self._model.nu, self._rng)
        self._idle: list[Environment] = []
        self._running: dict[Environment, Future[bool]] = {}
        self._finished: queue.SimpleQueue[Environment] = queue.SimpleQueue()

    def run(self, task: StepTask, seconds: float, *, threads: int) -> LoopCount:
        """Go round for `seconds`; what is still running then goes on behind the caller's back."""
        end = time.monotonic() + seconds
        done = failed = 0
        self._submit(task, self._take_idle(threads))
        while (left := end - time.monotonic()) > 0:
            batch = self._wait(min(left, LOOK_SECONDS))
            for environment in batch:
                succeeded = self._result(environment)
                done += succeeded
                failed += not succeeded
            self._idle.extend(batch)
            self._submit(task, self._take_idle(threads))
        return LoopCount(done, failed)

    def drain(self, timeout_seconds: float) -> LoopCount:
        """Cancel what no thread has begun, wait for the rest: before the phase changes."""
        for future in list(self._running.values()):
            future.cancel()
        end = time.monotonic() + timeout_seconds
        done = failed = 0
        while self._running and (left := end - time.monotonic()) > 0:
            for environment in self._wait(left):
                cancelled = self._running[environment].cancelled()
                succeeded = self._result(environment)
                done += succeeded
                failed += not succeeded and not cancelled
                self._idle.append(environment)
        return LoopCount(done, failed)

    def _take_idle(self, threads: int) -> list[Environment]:
        wanted = max(LEAST_OUTSTANDING, TASKS_A_THREAD * threads) - len(self._running)
        while len(self._idle) < wanted:
            self._idle.append(Environment(self._model, self._rng))
        taken = self._idle[: max(0, wanted)]
        self._idle = self._idle[len(taken) :]
        return taken

    def _wait(self, seconds: float) -> list[Environment]:
        batch: list[Environment] = []
        try:
            batch.append(self._finished.get(timeout=seconds))
            while len(batch) < LARGEST_BATCH:
                batch.append(self._finished.get_nowait())
        except queue.Empty:
            pass
        return batch

    def _result(self, environment: Environment) -> bool:
        future = self._running.pop(environment)
        return not future.cancelled() and future.result()

    def _submit(self, task: StepTask, environments: list[Environment]) -> None:
        if not environments:
            return
        observations = np.zeros((len(environments), self._size))
        for row, environment in zip(observations, environments, strict=True):
            environment.age += 1
            if environment.age > RESET_AFTER_STEPS:
                environment.reset()
            environment.observe(row)
        actions = self._policy.act(observations)
        for environment, action in zip(environments, actions, strict=True):
            environment.data.ctrl[:] = action
            future = self._pool.submit(task, environment)
            self._running[environment] = future
            future.add_done_callback(partial(self._hand_back, environment))

    def _hand_back(self, environment: Environment, _: Future[bool]) -> None:
        self._finished.put(environment)
