"""Carries out a plan: one system at a time, the others paused, everything written down as it comes."""

import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from slimscale.bench.serving.gate import Gate
from slimscale.bench.serving.generator import Generator
from slimscale.bench.serving.loadgen.job import Job
from slimscale.bench.serving.neutral import Verdict
from slimscale.bench.serving.plan import CLOSED, MLPERF, Load, Plan, Turn
from slimscale.bench.serving.processes import ServerFailed
from slimscale.bench.serving.readings import Reading, cell_of
from slimscale.bench.serving.records import Cell, Journal
from slimscale.bench.serving.systems import Missing, System
from slimscale.exceptions import SlimError

__all__ = ["Progress", "Runner", "run_plan"]

CAPACITY_CLIENTS = 8
CAPACITY_SECONDS = 2.0
READY_SECONDS = 60.0


class Progress(Protocol):
    def begin(self, what: str, count: int) -> None: ...
    def step(self) -> None: ...


class Runner:
    """Keeps started systems between turns: paused where they allow it, stopped where not."""

    def __init__(
        self,
        plan: Plan,
        journal: Journal,
        *,
        build: Callable[[str], System],
        payloads: Mapping[str, Path],
        generator: Generator,
        verdict: Callable[..., Verdict],
        gate: Gate,
    ) -> None:
        self._plan = plan
        self._journal = journal
        self._build = build
        self._payloads = payloads
        self._generator = generator
        self._verdict = verdict
        self._gate = gate
        self._started: dict[str, System] = {}
        self._given_up: set[str] = set()
        """In this call: the next one tries them again."""

    def prepare(self, progress: Progress) -> None:
        """Install what is missing, before anything is measured and before the machine is claimed."""
        progress.begin("installing", len(self._plan.systems))
        for name in self._plan.systems:
            try:
                self._build(name).prepare()
            except Missing as missing:
                self._give_up(name, missing)
            progress.step()

    def _give_up(self, name: str, why: Exception) -> None:
        if name == "direct":
            raise SlimError(f"the unbatched server fails: {why}") from why
        self._given_up.add(name)
        self._journal.keep_missing(name, str(why))

    def run(self, progress: Progress, *, until: float) -> bool:
        """True when the plan is done; False when `until` (time.monotonic) came first."""
        for block in self._plan.blocks():
            left = [turn for turn in block if _key(turn) not in self._journal.done]
            for turn in left:
                if time.monotonic() >= until:
                    return False
                if turn.system not in self._given_up:
                    self._gate.enter()
                    self._try(turn)
                    self._gate.leave()
                progress.step()
        return True

    def _try(self, turn: Turn) -> None:
        """A system that cannot be had or fails stands in the table as such; the others go on."""
        try:
            self._take(turn)
        except (Missing, ServerFailed) as error:
            self._give_up(turn.system, error)

    def close(self) -> None:
        self._gate.close()
        for system in self._started.values():
            system.stop()
        self._started.clear()

    def _take(self, turn: Turn) -> None:
        capacity = self._capacity(turn) if turn.group.is_open else 0.0
        try:
            system = self._running(turn.system)
            if turn.group.name == MLPERF:
                verdicts = [self._judge(system, load, turn, capacity) for load in turn.group.loads]
                self._journal.keep_verdicts(_key(turn), verdicts)
            else:
                cells = [self._measure(system, load, turn, capacity) for load in turn.group.loads]
                self._journal.keep_turn(_key(turn), cells)
        finally:
            self._rest(turn.system)

    def _judge(self, system: System, load: Load, turn: Turn, capacity: float) -> Verdict:
        return self._verdict(
            system, payload=self._payloads[system.dialect], capacity=capacity, share=load.share,
            repetition=turn.repetition,
        )  # fmt: skip

    def _capacity(self, turn: Turn) -> float:
        """Unbatched capacity of this block, measured once and remembered."""
        block = f"{turn.repetition} {turn.group.name}"
        if block not in self._journal.capacities:
            try:
                system = self._running("direct")
                job = self._job(system, clients=CAPACITY_CLIENTS, seconds=CAPACITY_SECONDS)
                answered = self._generator.do(job)
            except ServerFailed as error:
                raise SlimError(f"the unbatched server fails: {error}") from error
            finally:
                self._rest("direct")
            self._journal.keep_capacity(block, answered.in_window / CAPACITY_SECONDS)
        return self._journal.capacities[block]

    # ---- systems

    def _running(self, name: str) -> System:
        """Started or resumed, and answering rightly. Raises ServerFailed."""
        system = self._started.get(name)
        if system is None:
            system = self._build(name)
            system.start()
            self._started[name] = system
        else:
            for process in system.processes():
                process.resume()
        self._wait_ready(system)
        return system

    def _wait_ready(self, system: System) -> None:
        end = time.monotonic() + READY_SECONDS
        while True:
            why = "no answer"
            with suppress(ServerFailed):
                answered = self._generator.do(self._job(system, clients=1, seconds=0.2))
                if answered.right and not answered.wrong + answered.failed + answered.lost:
                    for process in system.processes():
                        process.put_first()
                    return
                why = answered.first_wrong or why
            for process in system.processes():
                process.check()
            if time.monotonic() > end:
                raise ServerFailed(f"{system.name} gives no right answer: {why}")
            time.sleep(0.5)

    def _rest(self, name: str) -> None:
        system = self._started.get(name)
        if system is None:
            return
        if not system.pausable:
            system.stop()
            del self._started[name]
            return
        for process in system.processes():
            process.pause()

    # ---- one cell

    def _job(
        self, system: System, *, clients: int, seconds: float, warm_seconds: float = 0.2,
        arrivals: list[float] | None = None, seed: int = 0,
    ) -> Job:  # fmt: skip
        return Job(
            host="127.0.0.1",
            port=system.port,
            path=system.path,
            payload=str(self._payloads[system.dialect]),
            seconds=seconds,
            warm_seconds=warm_seconds,
            clients=clients,
            arrivals_seconds=arrivals or [],
            headers=list(system.headers.items()),
            seed=seed,
        )

    def _measure(self, system: System, load: Load, turn: Turn, capacity: float) -> Cell:
        plan = self._plan
        seed = _seed(plan.seed, turn, load)
        arrivals = load.arrivals(
            capacity, plan.warm_seconds + plan.seconds, seed=seed, trace=plan.trace
        )
        job = self._job(
            system, clients=load.clients, seconds=plan.seconds, warm_seconds=plan.warm_seconds,
            arrivals=arrivals, seed=seed,
        )  # fmt: skip
        pids = {process.role: process.pids() for process in system.processes()}
        before = Reading.take(pids, self._generator)
        answered = self._generator.do(job)
        after = Reading.take(pids, self._generator)
        offered = 0.0 if load.kind == CLOSED else capacity * load.share
        return cell_of(
            system.name, load, turn, offered=offered, answered=answered, before=before, after=after
        )


def _key(turn: Turn) -> str:
    return f"{turn.repetition} {turn.group.name} {turn.system}"


def _seed(seed: int, turn: Turn, load: Load) -> int:
    """The same for all systems of a block: they get the very same arrivals."""
    return sum(map(ord, f"{seed}{turn.repetition}{load.label}")) + 1000 * turn.repetition


def run_plan(
    plan: Plan,
    journal: Journal,
    progress: Progress,
    *,
    build: Callable[[str], System],
    payloads: Mapping[str, Path],
    verdict: Callable[..., Verdict],
    gate: Gate,
    seconds: float | None = None,
) -> bool:
    """Run what the journal does not have yet; True when all is done. Raises SlimError.

    `verdict` asks MLPerf's judge (neutral.verdict_of with all but the run's own facts given).
    `seconds`: begin no turn after this time, so that a shared machine is left to others between calls.
    """
    until = time.monotonic() + seconds if seconds is not None else float("inf")
    if "direct" not in plan.systems and any(group.is_open for group in plan.groups):
        raise SlimError("open loops are set from the unbatched capacity: add the system 'direct'")
    # A termination unwinds as an exception does: no server may stay behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with Generator() as generator:
        runner = Runner(
            plan, journal, build=build, payloads=payloads, generator=generator, verdict=verdict,
            gate=gate,
        )  # fmt: skip
        try:
            runner.prepare(progress)
            progress.begin("turns", plan.turns - len(journal.done))
            return runner.run(progress, until=until)
        finally:
            runner.close()
