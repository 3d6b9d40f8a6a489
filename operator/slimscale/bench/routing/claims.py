"""What was asked for, against what was measured."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from slimscale.bench.routing.figures import mean_of
from slimscale.bench.routing.judge import TROUBLE, Cell, difference
from slimscale.bench.routing.suite import UP_TO, Played

__all__ = ["Claim", "claims_of"]

NO_WORSE, GAIN, REGIMES_WON = 0.01, 0.03, 3
LESS_AT_EQUAL_ACCURACY = 0.1
STATIONARY = "base"


@dataclass(frozen=True, slots=True)
class Claim:
    policy: str
    text: str
    measured: str
    reached: bool

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def claims_of(played: Played, learned: Sequence[str]) -> list[Claim]:
    """The issue's list, for each learned policy; claims about regimes that did not run are left out."""
    return [claim for one in learned for claim in _claims(played, one)]


def _gain(played: Played, one: str, cell: Cell, base: str) -> np.ndarray:
    """Trace by trace."""
    return played.of(cell, one).values("value") - played.of(cell, base).values("value")


def _claims(played: Played, one: str) -> Iterator[Claim]:
    still = [cell for cell in played.best if cell[0] == STATIONARY]
    if still:
        means = {cell: float(_gain(played, one, cell, played.best[cell]).mean()) for cell in still}
        worst = min(means, key=means.__getitem__)
        yield Claim(
            one, f"stationary: no worse than {NO_WORSE:g} J than the best rule of the load",
            f"{means[worst]:+.3f} at load {worst[1]:g}", means[worst] >= -NO_WORSE,
        )  # fmt: skip
    yield from _trouble(played, one)
    means = {cell: float(_gain(played, one, cell, played.overall).mean()) for cell in played.best}
    worst = min(means, key=means.__getitem__)
    yield Claim(
        one, f"never worse than {NO_WORSE:g} J than the best single rule ({played.overall})",
        f"{means[worst]:+.3f} at {worst[0]} {worst[1]:g}", means[worst] >= -NO_WORSE,
    )  # fmt: skip
    yield from _equal(played, one)


def _trouble(played: Played, one: str) -> Iterator[Claim]:
    gains = {}
    for regime in TROUBLE:
        cells = [cell for cell in played.best if cell[0] == regime and cell[1] <= UP_TO + 1e-9]
        if cells:
            of_traces = np.mean(
                [_gain(played, one, cell, played.of_regime[regime]) for cell in cells], axis=0
            )
            gains[regime] = difference(of_traces, np.zeros(len(of_traces)))
    if not gains:
        return
    won = [name for name, gap in gains.items() if gap.mean >= GAIN and gap.low > 0.0]
    lost = [name for name, gap in gains.items() if gap.mean < -NO_WORSE]
    told = "; ".join(
        f"{name} {gap.mean:+.3f} ({gap.low:+.3f} to {gap.high:+.3f})" for name, gap in gains.items()
    )
    yield Claim(
        one,
        f"at least {GAIN:g} J above the regime's best rule in {REGIMES_WON} regimes of trouble, no worse"
        f" than {NO_WORSE:g} J in the others (loads up to {UP_TO:g})",
        told,
        len(won) >= REGIMES_WON and not lost,
    )


def _equal(played: Played, one: str) -> Iterator[Claim]:
    reached, looked = [], []
    for (cell, name), rule in played.equal.items():
        if name != one or cell[0] not in TROUBLE or cell[1] > UP_TO + 1e-9:
            continue
        ours, theirs = (mean_of(list(played.of(cell, who).runs)) for who in (one, rule))
        energy = 1.0 - ours.dynamic_joules / theirs.dynamic_joules
        latency = 1.0 - ours.p95_seconds / theirs.p95_seconds
        looked.append(cell)
        if max(energy, latency) >= LESS_AT_EQUAL_ACCURACY:
            reached.append(cell)
    if looked:
        yield Claim(
            one,
            f"at equal accuracy: energy or p95 at least {LESS_AT_EQUAL_ACCURACY:.0%} lower in the regimes"
            " of trouble",
            f"{len(reached)} of {len(looked)} cells with a rule of the same accuracy",
            len(reached) == len(looked),
        )
