"""How a policy moves: back to the best after a change, by how much its own probing costs, how often.

All is judged by the true curve of the phase at the thread count that held, not by the noisy
throughput of a few seconds: what is counted here is the policy's doing and nobody else's.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from slimscale.bench.curves import PhaseCurves
from slimscale.bench.runner import RunRecord

__all__ = ["Probing", "Recovery", "changes_between", "probing", "recoveries", "regret"]

NEAR_BEST = 0.95
GOOD_SHARE = 0.90
LEAST_PHASE_SECONDS = 60.0
"""Shorter phases are part of a ramp or a burst: there is no "after the change" to speak of."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """After one change of load."""

    scenario: str
    policy: str
    seed: int
    phase: int
    at_seconds: float
    was_near: bool
    """The old thread count was within 5 % of the new best: nothing had to be done."""
    seconds: float | None
    """Until within 5 % of the best for the first time; None: not in this phase."""
    steps: int
    """Changes of the thread count until then; all of the phase's where it was not reached."""
    kept: float
    """Share of the time from then on within 5 % of the best; 0 where it was not reached."""
    loss: float
    """1 - what the held counts give over what the best gives, over the phase."""


@dataclass(frozen=True, slots=True)
class Probing:
    """What a policy's own changes cost while the load stood still."""

    worst_share: float
    """Lowest throughput of a moment over the last good one of the same phase."""
    longest_seconds: float
    """Longest time without a break below 90 % of the last good throughput."""


def recoveries(run: RunRecord, curves: PhaseCurves) -> list[Recovery]:
    """One for each phase of at least a minute, the first one too: every run starts from a guess."""
    found = []
    for phase, (start, length) in enumerate(zip(curves.starts, curves.seconds, strict=True)):
        if length < LEAST_PHASE_SECONDS:
            continue
        end = start + length
        held = _held(run, start, end)
        best = curves.best_rate(phase)
        near = [curves.rate(phase, threads) >= NEAR_BEST * best for _, _, threads in held]
        first = near.index(True) if any(near) else None
        done = sum((b - a) * curves.rate(phase, threads) for a, b, threads in held)
        found.append(
            Recovery(
                scenario=run.scenario,
                policy=run.policy,
                seed=run.seed,
                phase=phase,
                at_seconds=start,
                was_near=near[0],
                seconds=held[first][0] - start if first is not None else None,
                steps=first if first is not None else len(held) - 1,
                kept=_share_near(held, near, first) if first is not None else 0.0,
                loss=max(0.0, 1.0 - done / (best * length)),
            )
        )
    return found


def _share_near(held: list[tuple[float, float, int]], near: list[bool], first: int) -> float:
    lengths = [until - since for since, until, _ in held[first:]]
    good = [length for length, is_near in zip(lengths, near[first:], strict=True) if is_near]
    return sum(good) / sum(lengths)


def _held(run: RunRecord, start: float, end: float) -> list[tuple[float, float, int]]:
    """(from, to, threads) pieces of that stretch of time, without gaps."""
    pieces: list[tuple[float, float, int]] = []
    since, threads = start, run.threads_at(start)
    for at, changed in run.changes:
        if start < at < end and changed != threads:
            pieces.append((since, at, threads))
            since, threads = at, changed
    pieces.append((since, end, threads))
    return pieces


def probing(run: RunRecord, curves: PhaseCurves) -> Probing:
    """Within each phase: a fall counts only after a change of the policy's own in that phase.

    The last good throughput is the highest that any count held in the phase so far gives.
    """
    worst, longest = 1.0, 0.0
    for phase, (start, length) in enumerate(zip(curves.starts, curves.seconds, strict=True)):
        good, below = 0.0, 0.0
        for since, until, threads in _held(run, start, start + length):
            rate = curves.rate(phase, threads)
            if good > 0:
                worst = min(worst, rate / good)
            below = below + (until - since) if rate < GOOD_SHARE * good else 0.0
            longest = max(longest, below)
            good = max(good, rate)
    return Probing(worst, longest)


def changes_between(run: RunRecord, start: float, end: float) -> int:
    """How often the thread count changed in that stretch."""
    return sum(start < at <= end for at, _ in run.changes[1:])


def regret(runs: Iterable[tuple[RunRecord, RunRecord]]) -> list[float]:
    """1 - tasks/best policy's tasks, for each (run, best run) pair of one seed."""
    return [1.0 - ours.total_tasks / max(best.total_tasks, 1) for ours, best in runs]
