"""Is the process alive? Not only does it answer: its watches hear, its reconciles end.

An answer over HTTP already shows that the event loop turns. What it does not show is a watch that
has gone silent without an end, or work that hangs; those are counted here.
"""

from dataclasses import dataclass

from slimscale.domain.clock import Clock

__all__ = ["Health", "HealthLimits", "Heartbeat"]


@dataclass(frozen=True, slots=True)
class HealthLimits:
    """Long enough for an outage of the API server's: a restart would not help there."""

    watch_silence_seconds: float = 300.0
    loop_stall_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Health:
    alive: bool
    ready: bool
    problems: tuple[str, ...] = ()


class Heartbeat:
    """Watches and loops say `beat`; `health` is what the probes report."""

    def __init__(self, clock: Clock, limits: HealthLimits = HealthLimits()) -> None:
        self._clock = clock
        self._limits = limits
        self._beats: dict[str, float] = {}
        self._loop_seconds = clock.monotonic_seconds()
        self._ready = False

    def beat(self, watch: str) -> None:
        """The watch heard something: an event, a bookmark, an end, or a fresh list."""
        self._beats[watch] = self._clock.monotonic_seconds()

    def outage(self, watch: str) -> None:
        """The API server refused or was not reached: known and retried, so no silent death."""
        self.beat(watch)

    def drop(self, watch: str) -> None:
        self._beats.pop(watch, None)

    def loop_turned(self) -> None:
        self._loop_seconds = self._clock.monotonic_seconds()

    def started(self) -> None:
        """First list done: ready to serve."""
        self._ready = True

    def ages_seconds(self) -> dict[str, float]:
        now = self._clock.monotonic_seconds()
        return {watch: now - at for watch, at in self._beats.items()}

    def health(self) -> Health:
        problems = [
            f"watch {watch}: silent for {age:.0f} s"
            for watch, age in sorted(self.ages_seconds().items())
            if age > self._limits.watch_silence_seconds
        ]
        stall = self._clock.monotonic_seconds() - self._loop_seconds
        if stall > self._limits.loop_stall_seconds:
            problems.append(f"event loop: stalled for {stall:.0f} s")
        alive = not problems
        return Health(
            alive=alive,
            ready=alive and self._ready,
            problems=tuple(problems),
        )
