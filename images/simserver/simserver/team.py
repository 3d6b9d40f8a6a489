"""The light phase: environments in lock-step, stepped by a fork-join team of threads.

All environments always want their next step. In each round the policy acts on one batch of them at
once, then the team steps these, one chunk (one step of one environment) at a time, and the caller
waits for the last (mujoco.rollout). A team of one is the caller itself, as in OpenMP: nothing is
handed over.

What the contract's two figures are here, both seconds a chunk:

task      a step as the caller runs it alone: the median over rounds, so that a moment without a
          CPU does not count. It never waits for anything, so it is its own CPU time.
dispatch  how long the caller is held for a chunk besides the chunks' own work: choosing its
          action, waking the team, and waiting for it to join. In a round of N chunks by k threads
          on C cores: policy/N + max(0, round/N - task/min(k, C)), medians again. A team of one
          hands nothing over, so one round in each block goes to a team of two instead: what more
          threads would cost is known before they are tried.
"""

import time
from dataclasses import dataclass
from statistics import median

import mujoco
import numpy as np
from mujoco.rollout import Rollout

from .scenes import FloatArray, Policy, pendulum

__all__ = ["Block", "LockstepTeam"]

PROBE_ROUNDS = 5
RESET_AFTER_ROUNDS = 20_000


@dataclass(frozen=True, slots=True)
class Block:
    """Some rounds with one team. Seconds a chunk."""

    rounds: int
    tasks: int
    task_seconds: float
    dispatch_seconds: float


class _Team:
    """mujoco's own thread pool with the data that each of its threads needs."""

    def __init__(self, model: mujoco.MjModel, threads: int) -> None:
        # nthread=0 runs on the calling thread and starts none.
        self._rollout = Rollout(nthread=0 if threads == 1 else threads)
        self._data = [mujoco.MjData(model) for _ in range(threads)]

    def step(
        self,
        models: list[mujoco.MjModel],
        state: FloatArray,
        control: FloatArray,
        after: FloatArray,
        sensors: FloatArray,
    ) -> None:
        self._rollout.rollout(
            models, self._data, state, control, skip_checks=True, nstep=1, state=after,
            sensordata=sensors, chunk_size=1,
        )  # fmt: skip

    def close(self) -> None:
        self._rollout.close()


class LockstepTeam:
    """Not thread-safe: rounds, resize and close come from one thread."""

    def __init__(
        self, *, environments: int, batch: int, threads: int, rng: np.random.Generator
    ) -> None:
        self._model = pendulum()
        self._models = [self._model] * batch
        self._rng = rng
        self._policy = Policy(3, 1, rng)
        full = mujoco.mjtState.mjSTATE_FULLPHYSICS.value
        width = mujoco.mj_stateSize(self._model, full)
        self._batches = [np.zeros((batch, width)) for _ in range(max(1, environments // batch))]
        self._state = self._batches[0]
        self._after = np.zeros((batch, 1, width))
        self._control = np.zeros((batch, 1, 1))
        self._sensors = np.zeros((batch, 1, 0))
        self._observations = np.zeros((batch, 3))
        self._caller = _Team(self._model, 1)
        self._team = self._caller
        self._probe: _Team | None = None
        self._threads = 1
        self._round = 0
        self.resize(threads)

    @property
    def environments(self) -> int:
        """All of them have a step to do at any time: this is the work that is outstanding."""
        return len(self._batches) * len(self._models)

    def resize(self, threads: int) -> None:
        """The next block runs with this many threads; the old team's threads end."""
        if threads == self._threads:
            return
        self._stop_teams()
        self._threads = threads
        if threads > 1:
            self._team = _Team(self._model, threads)

    def run(self, seconds: float, *, cores: float) -> Block:
        """Rounds until `seconds` are over, at least one."""
        policy_seconds, round_seconds = [], []
        clock = time.perf_counter
        team, end = self._team, clock() + seconds
        while True:
            start = clock()
            self._act()
            acted = clock()
            self._step(team)
            done = clock()
            policy_seconds.append(acted - start)
            round_seconds.append(done - acted)
            if done >= end:
                break
        size = len(self._models)
        if self._threads == 1:
            task = median(round_seconds) / size
            held = self._held(self._probe_round(), threads=2, cores=cores, task=task)
        else:
            task = self._task_alone()
            held = self._held(median(round_seconds), threads=self._threads, cores=cores, task=task)
        return Block(
            rounds=len(round_seconds),
            tasks=len(round_seconds) * size,
            task_seconds=task,
            dispatch_seconds=median(policy_seconds) / size + held,
        )

    def close(self) -> None:
        self._stop_teams()
        self._caller.close()

    def _stop_teams(self) -> None:
        if self._team is not self._caller:
            self._team.close()
        if self._probe is not None:
            self._probe.close()
        self._team, self._probe = self._caller, None

    def _act(self) -> None:
        self._state = self._batches[self._round % len(self._batches)]
        if self._round % RESET_AFTER_ROUNDS < len(self._batches):
            self._state[:] = self._rng.normal(0.0, 1.0, size=self._state.shape)
        self._round += 1
        angle, velocity = self._state[:, 1], self._state[:, 2]
        np.cos(angle, out=self._observations[:, 0])
        np.sin(angle, out=self._observations[:, 1])
        self._observations[:, 2] = velocity
        self._control[:, 0] = self._policy.act(self._observations)

    def _step(self, team: _Team) -> None:
        team.step(self._models, self._state, self._control, self._after, self._sensors)
        self._state[:] = self._after[:, 0]

    def _held(self, round_seconds: float, *, threads: int, cores: float, task: float) -> float:
        at_once = max(1.0, min(float(threads), cores))
        return max(0.0, round_seconds / len(self._models) - task / at_once)

    def _task_alone(self) -> float:
        """The same step on the caller, first round thrown away: its caches are cold."""
        taken = []
        for _ in range(PROBE_ROUNDS):
            start = time.perf_counter()
            self._step(self._caller)
            taken.append(time.perf_counter() - start)
        return median(taken[1:]) / len(self._models)

    def _probe_round(self) -> float:
        if self._probe is None:
            self._probe = _Team(self._model, 2)
        taken = []
        for _ in range(PROBE_ROUNDS):
            start = time.perf_counter()
            self._step(self._probe)
            taken.append(time.perf_counter() - start)
        return median(taken[1:])
