"""One task for each SimWorkload that looks at its pods each interval and fills the sample store."""

import asyncio
import logging
import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from slimscale.exceptions import SlimError
from slimscale.observe.sample_store import SampleStore
from slimscale.observe.scrape import SampleOutcome, ScrapeTarget

__all__ = ["SampleSource", "Sampler", "SamplingPlan"]

_log = logging.getLogger(__name__)


class SampleSource(Protocol):
    async def fetch(self, targets: Iterable[ScrapeTarget]) -> Sequence[SampleOutcome]:
        """Raises a SlimError when the source as a whole gives no answer."""
        ...


@dataclass(frozen=True, slots=True)
class SamplingPlan:
    """What to look at; replaced whenever the pods are observed anew."""

    source: SampleSource
    targets: tuple[ScrapeTarget, ...]
    interval_seconds: float
    horizon_seconds: float


class Sampler:
    def __init__(self) -> None:
        self.store = SampleStore()
        self.problem = ""
        """Why the source as a whole failed last time."""
        self._plan: SamplingPlan | None = None
        self._task: asyncio.Task[None] | None = None
        self._first_round = asyncio.Event()
        self._new_pods = asyncio.Event()
        self._round = asyncio.Lock()
        self._began_seconds = -math.inf
        """Of the newest round, in the event loop's time."""

    def follow(self, plan: SamplingPlan) -> None:
        """Start, or go on with a new plan from the next round."""
        known = {target.pod_uid for target in self._plan.targets} if self._plan else set()
        if any(target.pod_uid not in known for target in plan.targets):
            self._new_pods.set()
        self._plan = plan
        self.store.retain(target.pod_uid for target in plan.targets)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="sampler")

    async def first_round(self) -> None:
        """Wait until there was one look at the pods, so that the first observation has samples."""
        await self._first_round.wait()

    async def look_now(self, *, at_least_seconds: float) -> None:
        """A round at once, unless one began less than `at_least_seconds` ago.

        The rounds by themselves go on an interval after it: looking more often samples as often as
        it looks and not in addition.
        """
        await self._look(at_least_seconds=at_least_seconds)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        while True:
            self._new_pods.clear()
            await self._look()
            while (left := self._left_seconds()) > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(0.05, left)):
                        await self._new_pods.wait()
                        break  # at once: they have no sample yet

    def _left_seconds(self) -> float:
        """Until the next round by itself is due."""
        interval = self._plan.interval_seconds if self._plan is not None else 1.0
        return interval - (asyncio.get_running_loop().time() - self._began_seconds)

    async def _look(self, *, at_least_seconds: float = 0.0) -> None:
        async with self._round:
            now = asyncio.get_running_loop().time()
            if now - self._began_seconds < at_least_seconds:
                return
            self._began_seconds = now
            try:
                await self.sample_once()
            except Exception:  # one bad round must not end the sampling
                _log.exception("a round of sampling failed")
            finally:
                self._first_round.set()

    async def sample_once(self) -> None:
        plan = self._plan
        if plan is None or not plan.targets:
            return
        try:
            outcomes = await plan.source.fetch(plan.targets)
        except SlimError as error:
            self.problem = str(error)
            return
        self.problem = ""
        current = self._plan
        alive = {target.pod_uid for target in (current or plan).targets}
        for outcome in outcomes:
            if outcome.pod_uid in alive:
                self.store.record(outcome, horizon_seconds=plan.horizon_seconds)
