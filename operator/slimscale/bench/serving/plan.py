"""Which loads are offered to which systems, how often, in which order. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from slimscale.bench.serving.arrivals import mmpp, poisson, read_trace, squeezed
from slimscale.bench.serving.neutral import MLPERF_SYSTEMS

__all__ = ["CLOSED", "MLPERF", "Group", "Load", "Plan", "Turn", "groups_of"]

CLOSED, POISSON, MMPP, TRACE, MLPERF = "closed", "poisson", "mmpp", "trace", "mlperf"
_BURST_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Load:
    """Closed loop with `clients`, or an open loop at `share` of the unbatched capacity."""

    kind: str
    clients: int = 0
    share: float = 0.0

    @property
    def label(self) -> str:
        if self.kind == CLOSED:
            return f"closed {self.clients}"
        return f"{self.kind} {self.share:.0%}"

    def arrivals(
        self, capacity: float, seconds: float, *, seed: int, trace: Path | None
    ) -> list[float]:
        """Times in seconds; empty for a closed loop. `capacity` in requests a second."""
        rate = capacity * self.share
        times: Sequence[float] = ()
        if self.kind == POISSON:
            times = poisson(rate, seconds, seed=seed).tolist()
        elif self.kind == MMPP:
            times = mmpp(rate, seconds, stay_seconds=_BURST_SECONDS, seed=seed).tolist()
        elif self.kind == TRACE and trace is not None:
            times = squeezed(read_trace(trace), rate, seconds, seed=seed).tolist()
        return list(times)


@dataclass(frozen=True, slots=True)
class Group:
    """Loads that a system gets in one turn, shortly after each other."""

    name: str
    loads: tuple[Load, ...]

    def wants(self, system: str) -> bool:
        """The judge is slow and speaks v2 alone: it gets a few systems."""
        return self.name != MLPERF or system in MLPERF_SYSTEMS

    @property
    def is_open(self) -> bool:
        return any(load.kind != CLOSED for load in self.loads)


@dataclass(frozen=True, slots=True)
class Turn:
    """One system's loads of one group in one repetition."""

    repetition: int
    group: Group
    system: str


@dataclass(frozen=True, slots=True)
class Plan:
    systems: tuple[str, ...]
    groups: tuple[Group, ...]
    repetitions: int
    seconds: float
    warm_seconds: float
    seed: int
    trace: Path | None = None

    def blocks(self) -> Iterator[list[Turn]]:
        """A block is one group of one repetition: every system in random order, close in time.

        The judge, which is slow, comes when all else is done.
        """
        for judged in (False, True):
            yield from self._blocks([g for g in self.groups if (g.name == MLPERF) == judged])

    def _blocks(self, groups: Sequence[Group]) -> Iterator[list[Turn]]:
        for repetition in range(self.repetitions):
            for group in groups:
                order = [name for name in self.systems if group.wants(name)]
                Random(f"{self.seed} {repetition} {group.name}").shuffle(order)  # noqa: S311
                yield [Turn(repetition, group, system) for system in order]

    @property
    def turns(self) -> int:
        return sum(len(block) for block in self.blocks())


def groups_of(
    clients: Sequence[int],
    shares: Sequence[float],
    *,
    bursts: Sequence[float],
    trace: bool,
    mlperf: Sequence[float] = (),
) -> tuple[Group, ...]:
    """Closed loops, Poisson, bursts (MMPP and, if asked for, the trace), MLPerf's judge."""
    closed = tuple(Load(CLOSED, clients=n) for n in clients)
    steady = tuple(Load(POISSON, share=share) for share in shares)
    bursty = tuple(Load(MMPP, share=share) for share in bursts)
    if trace:
        bursty += tuple(Load(TRACE, share=share) for share in bursts)
    judged = tuple(Load(MLPERF, share=share) for share in mlperf)
    named = (
        (CLOSED, closed),
        ("poisson", steady),
        ("bursts", bursty),
        (MLPERF, judged),
    )
    return tuple(Group(name, loads) for name, loads in named if loads)
