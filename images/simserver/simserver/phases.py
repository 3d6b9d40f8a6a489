"""Which phase the simulation is in: a looping schedule, and a file that overrides it.

The file is an annotation that a downward API volume mirrors, so that a driver can switch a running
pod: `kubectl annotate pod NAME simserver.slimscale.dev/phase=heavy`. Pure but for reading the file.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

__all__ = ["Phase", "PhaseFile", "PhaseSelector", "Schedule", "ScheduleError", "parse_schedule"]

MOST_ENTRIES = 64
LONGEST_SECONDS = 7 * 24 * 3600.0
MOST_FILE_BYTES = 256


class Phase(StrEnum):
    LIGHT = "light"
    """Lock-step environments of about a microsecond each: handing over costs more than the work."""
    HEAVY = "heavy"
    """Rollouts of some milliseconds that compute all the time."""
    BLOCKING = "blocking"
    """A little computing round a wait for the external engine."""
    PAUSED = "paused"
    """No work at all."""


_NAMES = ", ".join(Phase)


class ScheduleError(ValueError):
    """The message names the entry, what is wrong with it and what to write."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Phases and how long each lasts, for ever from the start again."""

    entries: tuple[tuple[Phase, float], ...]

    @property
    def period_seconds(self) -> float:
        return sum(seconds for _, seconds in self.entries)

    @property
    def text(self) -> str:
        return ",".join(f"{phase}:{seconds:g}" for phase, seconds in self.entries)

    def phase_at(self, elapsed_seconds: float) -> Phase:
        """The phase `elapsed_seconds` after the start; before it the first one."""
        left = max(0.0, elapsed_seconds) % self.period_seconds
        for phase, seconds in self.entries:
            if left < seconds:
                return phase
            left -= seconds
        return self.entries[-1][0]  # rounding at the very end of a period


def parse_phase(text: str) -> Phase:
    try:
        return Phase(text.strip().lower())
    except ValueError:
        shown = text.strip()[:40]
        raise ScheduleError(f"phase {shown!r} is unknown; write one of {_NAMES}") from None


def parse_schedule(text: str) -> Schedule:
    """`light:60,heavy:60,blocking:60` -> Schedule. Seconds are positive and may be fractions.

    Raises ScheduleError.
    """
    parts = [part for part in (p.strip() for p in text.split(",")) if part]
    if not parts:
        raise ScheduleError("the schedule is empty; write for example light:60,heavy:60")
    if len(parts) > MOST_ENTRIES:
        raise ScheduleError(f"{len(parts)} entries; write at most {MOST_ENTRIES}")
    entries = []
    for part in parts:
        name, colon, seconds_text = part.partition(":")
        phase = parse_phase(name)
        try:
            seconds = float(seconds_text)
        except ValueError:
            seconds = math.nan
        if not colon or not math.isfinite(seconds) or not 0 < seconds <= LONGEST_SECONDS:
            raise ScheduleError(
                f"entry {part[:60]!r} has no duration; write {phase}:SECONDS with seconds above 0"
                " and up to a week"
            )
        entries.append((phase, seconds))
    return Schedule(tuple(entries))


class PhaseFile:
    """The annotation's value. A missing or empty file means: follow the schedule.

    A value that is no phase changes nothing and is counted; the last good one stays.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._seen: str | None = None
        self._phase: Phase | None = None
        self.rejected = 0
        self.problem = ""

    def read(self) -> Phase | None:
        text = self._text()
        if text == self._seen:
            return self._phase
        self._seen = text
        if not text:
            self._phase, self.problem = None, ""
            return None
        try:
            self._phase, self.problem = parse_phase(text), ""
        except ScheduleError as error:
            self.rejected += 1
            self.problem = str(error)
        return self._phase

    def _text(self) -> str:
        if self._path is None:
            return ""
        try:
            with self._path.open("rb") as stream:
                raw = stream.read(MOST_FILE_BYTES)
        except OSError:  # not mounted yet, or the volume is being swapped: look again next time
            return ""
        return raw.decode("utf-8", "replace").strip().strip('"')


class PhaseSelector:
    """The file's phase where it names one, else the schedule's. The schedule's clock never stops."""

    def __init__(self, schedule: Schedule, override: PhaseFile, *, started_seconds: float) -> None:
        self._schedule = schedule
        self._override = override
        self._started_seconds = started_seconds

    @property
    def rejected(self) -> int:
        return self._override.rejected

    @property
    def problem(self) -> str:
        return self._override.problem

    def current(self, now_seconds: float) -> Phase:
        chosen = self._override.read()
        if chosen is not None:
            return chosen
        return self._schedule.phase_at(now_seconds - self._started_seconds)
