"""What scaling remembers between decisions, as the small JSON that outlives the operator.

Damaged or unknown content is dropped, never repaired by guessing: scaling then begins as after a
first start, which never shrinks anything before it has seen a whole stabilisation window.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

__all__ = ["MEMO_VERSION", "ScalingMemo", "load_memo"]

MEMO_VERSION = 1
MOST_NEEDS = 64
MOST_POOLS = 32
MOST_SLICES = 400


@dataclass(frozen=True, slots=True)
class ScalingMemo:
    """Times are seconds on the clock that `now` comes from."""

    needs: tuple[tuple[float, float], ...] = ()
    """(start of a slice of time, highest need in it in rows a second), oldest first."""
    covered_since_seconds: float | None = None
    """Since then there were figures without a gap longer than the stable window."""
    complete_at_seconds: float | None = None
    """The last sample that was whole."""
    panic_at_seconds: float | None = None
    """The last time that the panic window called for more; None: no panic."""
    panic_need: float = 0.0
    up_at_seconds: float | None = None
    down_at_seconds: float | None = None
    replaced_at_seconds: float | None = None
    blocked_until: Mapping[str, float] = field(default_factory=dict)
    """Pools whose pods did not start in time, until when others go first."""
    history: tuple[float, ...] = ()
    """Highest sudden need of each slice, rows a second, oldest first."""
    history_slice: int = 0
    """Number of the last slice: its start by the length of a slice."""
    floor: float = 0.0
    """What recurring bursts keep, as of the last slice."""
    start_seconds: float | None = None
    """From a pod's creation to its first Ready, of the last ones seen."""
    service_times: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Last measured (base, row) seconds of the target width by pool: for the start from zero."""
    lowest_rates: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    """By pool (start of an epoch, least rows a second of a pod in it, the same of the one before).

    An epoch lasts for the stabilisation window: both together cover it always.
    """

    def to_json(self) -> dict[str, object]:
        content: dict[str, object] = {name: getattr(self, name) for name in _NAMES}
        return content | {
            "version": MEMO_VERSION,
            "needs": [list(pair) for pair in self.needs],
            "history": list(self.history),
            "blocked_until": dict(self.blocked_until),
            "service_times": {name: list(both) for name, both in self.service_times.items()},
            "lowest_rates": {name: list(found) for name, found in self.lowest_rates.items()},
        }


_NAMES = tuple(field.name for field in fields(ScalingMemo))


def load_memo(content: Mapping[str, object] | None) -> tuple[ScalingMemo, str]:
    """(memo, why it begins afresh; empty when it does not)."""
    if not content:
        return ScalingMemo(), "nothing is remembered yet"
    if content.get("version") != MEMO_VERSION:
        return ScalingMemo(), f"memory of version {content.get('version')!r} is not understood"
    try:
        return _parsed(content), ""
    except (KeyError, TypeError, ValueError) as error:
        return ScalingMemo(), f"damaged memory was dropped ({type(error).__name__})"


def _parsed(content: Mapping[str, object]) -> ScalingMemo:
    needs = content["needs"]
    blocked, times = content["blocked_until"], content["service_times"]
    rates = content.get("lowest_rates", {})
    if not isinstance(needs, list) or len(needs) > MOST_NEEDS:
        raise ValueError("needs")
    history = content["history"]
    if not isinstance(history, list) or len(history) > MOST_SLICES:
        raise ValueError("history")
    if not (isinstance(blocked, dict) and isinstance(times, dict) and isinstance(rates, dict)):
        raise TypeError("mappings")
    if max(len(blocked), len(times), len(rates)) > MOST_POOLS:
        raise ValueError("pools")
    return ScalingMemo(
        needs=tuple((_number(at), _number(need)) for at, need in needs),
        covered_since_seconds=_maybe(content["covered_since_seconds"]),
        complete_at_seconds=_maybe(content["complete_at_seconds"]),
        panic_at_seconds=_maybe(content["panic_at_seconds"]),
        panic_need=_number(content["panic_need"]),
        up_at_seconds=_maybe(content["up_at_seconds"]),
        down_at_seconds=_maybe(content["down_at_seconds"]),
        replaced_at_seconds=_maybe(content["replaced_at_seconds"]),
        history=tuple(_number(need) for need in history),
        history_slice=int(_number(content["history_slice"])),
        floor=_number(content["floor"]),
        start_seconds=_maybe(content["start_seconds"]),
        blocked_until={str(name): _number(until) for name, until in blocked.items()},
        service_times={
            str(name): (_number(base), _number(row)) for name, (base, row) in times.items()
        },
        lowest_rates={
            str(name): (_number(since), _number(now), _number(before))
            for name, (since, now, before) in rates.items()
        },
    )


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError("not a number")
    return float(value)


def _maybe(value: object) -> float | None:
    return None if value is None else _number(value)
