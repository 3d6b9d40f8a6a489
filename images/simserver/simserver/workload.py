"""The loop that owns the threads: look at phase and thread count, work a little, look again.

The pool and the team are made, resized and closed by this one thread. A new thread count counts
as applied from the moment at which work runs with it.
"""

import time
from collections.abc import Callable
from typing import Protocol

import numpy as np

from .episodes import BlockingStep, EnvironmentLoop, HeavyStep, LoopCount, Pool, StepTask
from .figures import Figures
from .phases import Phase
from .settings import Settings
from .team import Block, LockstepTeam

__all__ = ["Contract", "Workload"]

SLICE_SECONDS = 0.2
"""How long a phase runs between two looks: a change is seen about this late."""
BLOCK_SECONDS = 0.02
DRAIN_SECONDS = 10.0
PAUSE_SECONDS = 0.1


class Contract(Protocol):
    """What the workload needs of `slimscale.inpod`; `contract.py` has the real one."""

    @property
    def pool(self) -> Pool: ...

    @property
    def cores(self) -> float:
        """CPU that this process may use: the quota, or the machine's cores."""
        ...

    def wanted_threads(self) -> int: ...

    def apply(self, threads: int) -> None:
        """Resize the pool and acknowledge."""
        ...

    def record(self, block: Block) -> None:
        """Lock-step tasks, which no pool has counted."""
        ...

    def outstanding(self, tasks: int) -> None:
        """Lock-step tasks that wait or run now."""
        ...


class Workload:
    """Runs phases until told to stop. All of it in the thread that calls `slice`."""

    def __init__(
        self,
        settings: Settings,
        contract: Contract,
        figures: Figures,
        *,
        engine: tuple[str, int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._contract = contract
        self._figures = figures
        self._clock = clock
        self._threads = contract.wanted_threads()
        self._loop = EnvironmentLoop(contract.pool, seed=settings.seed)
        self._team = LockstepTeam(
            environments=settings.light_environments,
            batch=settings.light_batch,
            threads=1,
            rng=np.random.default_rng(settings.seed),
        )
        self._tasks: dict[Phase, StepTask] = {
            Phase.HEAVY: HeavyStep(settings.heavy_steps),
            Phase.BLOCKING: BlockingStep(
                settings.blocking_steps,
                address=engine,
                wait_seconds=settings.engine_wait_seconds,
            ),
        }
        self._phase = Phase.PAUSED

    @property
    def threads(self) -> int:
        return self._threads

    def slice(self, phase: Phase, *, rejected_phases: int = 0) -> None:
        """A short stretch of `phase`, with the thread count that is wanted now."""
        if phase is not self._phase:
            self._leave(self._phase)
            self._phase = phase
        self._follow(phase)
        self._contract.outstanding(self._team.environments if phase is Phase.LIGHT else 0)
        self._figures.now(phase=phase, threads=self._threads, rejected_phases=rejected_phases)
        started = self._clock()
        if phase is Phase.PAUSED:
            time.sleep(PAUSE_SECONDS)
            count = LoopCount(0, 0)
        elif phase is Phase.LIGHT:
            count = LoopCount(self._lockstep(started + SLICE_SECONDS), 0)
        else:
            count = self._loop.run(self._tasks[phase], SLICE_SECONDS, threads=self._threads)
        self._count(phase, count, self._clock() - started)

    def close(self) -> None:
        """Let running tasks end; queued ones are dropped."""
        self._leave(self._phase)
        self._phase = Phase.PAUSED
        self._team.close()

    def _follow(self, phase: Phase) -> None:
        wanted = self._contract.wanted_threads()
        # The team's threads are only kept while they are of use.
        self._team.resize(wanted if phase is Phase.LIGHT else 1)
        self._contract.apply(wanted)
        self._threads = wanted

    def _lockstep(self, end_seconds: float) -> int:
        done = 0
        while self._clock() < end_seconds:
            block = self._team.run(BLOCK_SECONDS, cores=self._contract.cores)
            self._contract.record(block)
            done += block.tasks
        return done

    def _leave(self, phase: Phase) -> None:
        if phase in self._tasks:
            started = self._clock()
            count = self._loop.drain(DRAIN_SECONDS)
            self._count(phase, count, self._clock() - started)

    def _count(self, phase: Phase, count: LoopCount, seconds: float) -> None:
        self._figures.add(phase, steps=count.done, seconds=seconds, engine_errors=count.failed)
