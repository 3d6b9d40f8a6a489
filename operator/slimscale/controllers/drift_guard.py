"""Somebody else who keeps changing a child of ours back is noticed, and not fought for ever."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from slimscale.domain.clock import Clock
from slimscale.domain.inference import ApplyChild, ChildResult, InferencePlan

__all__ = ["DriftGuard"]

ROUNDS = 5
WINDOW_SECONDS = 300.0
REST_SECONDS = 900.0
_REMEMBERED = 4096


@dataclass(slots=True)
class _Seen:
    times: list[float]
    rests_until: float = 0.0


class DriftGuard:
    """Five mends of one object within five minutes: it rests for a quarter of an hour, and the
    condition says so. A change of what is asked for is no drift and always goes through."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: OrderedDict[str, _Seen] = OrderedDict()

    def check(self, plan: InferencePlan) -> tuple[InferencePlan, Sequence[ChildResult]]:
        """The plan without what rests, and what to say about that."""
        now = self._clock.monotonic_seconds()
        kept, resting = [], []
        for operation in plan.operations:
            if isinstance(operation, ApplyChild) and operation.reason == "Drift":
                if self._rests(operation.uid, now):
                    words = f"somebody keeps changing it back; left alone for {REST_SECONDS:.0f} s"
                    resting.append(
                        ChildResult(operation.plural, operation.name, "OtherManagerReverts", words)
                    )
                    continue
            elif isinstance(operation, ApplyChild):
                self._seen.pop(operation.uid, None)
            kept.append(operation)
        return replace(plan, operations=tuple(kept)), resting

    def _rests(self, uid: str, now: float) -> bool:
        seen = self._seen.pop(uid, None) or _Seen([])
        self._seen[uid] = seen
        while len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        if now < seen.rests_until:
            return True
        seen.times = [at for at in seen.times if now - at < WINDOW_SECONDS]
        if len(seen.times) >= ROUNDS:
            seen.times.clear()
            seen.rests_until = now + REST_SECONDS
            return True
        seen.times.append(now)
        return False
