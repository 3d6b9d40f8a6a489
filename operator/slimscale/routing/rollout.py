"""How large a share of the requests a candidate policy gets: shadow, canary, active, and back.

    asked Active:  Active --SLO burns--> Shadow --cooled down--> Canary --proven--> Active
                                            ^-----worse than the rest-----'
    a new file:    Shadow --a while without a fault--> Canary --proven--> Active

In Active nobody else acts that the candidate could be compared with, so a burning SLO is reason enough:
the incumbent (a heuristic, or the policy before this one) takes over. Back it comes as a canary only,
where both see the same load: misses of both alike are not its fault, and a candidate that misses
clearly more goes back. Each fall doubles the time until the next try.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from zlib import crc32

from slimscale.routing.burn import (
    BURN_RULES,
    BurnRule,
    Ended,
    EndedWindows,
    burn_rate,
    burning,
)

__all__ = ["Arm", "Rollout", "RolloutRules", "Stage", "StageReason", "falls_in_canary"]

_BUCKETS = 10_000


class Stage(StrEnum):
    SHADOW = "Shadow"
    """It only says what it would do."""
    CANARY = "Canary"
    """It gets a small share."""
    ACTIVE = "Active"


class StageReason(StrEnum):
    AS_ASKED = "AsAsked"
    NEW_POLICY = "NewPolicy"
    SLO_BURN = "SloBurn"
    WORSE = "WorseThanIncumbent"
    COOLED_DOWN = "CooledDown"
    NO_FAULT = "NoFaultInShadow"
    PROVEN = "Proven"


@dataclass(frozen=True, slots=True)
class RolloutRules:
    allowed: float = 0.05
    """Share of misses that the SLO allows: 1 - percentile."""
    canary_share: float = 0.05
    burn_rules: Sequence[BurnRule] = BURN_RULES
    shadow_seconds: float = 30.0
    """A new policy only says what it would do for at least this long, and so many decisions:"""
    shadow_requests: int = 100
    cooldown_seconds: float = 60.0
    """After the first fall; doubled with each up to the longest."""
    longest_cooldown_seconds: float = 3600.0
    probation_seconds: float = 120.0
    """As a canary, before it gets everything; and so many of its requests ended:"""
    probation_requests: int = 100
    forgive_seconds: float = 3600.0
    """Active for so long without a fall: the next one counts as the first."""


@dataclass(slots=True, eq=False)
class Arm:
    """Running totals of one policy's requests; counted on the way of each."""

    ended: int = 0
    missed: int = 0
    told: Ended = field(default_factory=Ended)
    windows: EndedWindows = field(default_factory=EndedWindows)

    def end(self, *, met: bool) -> None:
        self.ended += 1
        self.missed += not met

    def tick(self, now: float) -> None:
        total = Ended(self.ended, self.missed)
        step = Ended(total.ended - self.told.ended, total.missed - self.told.missed)
        self.windows.add(step, now=now)
        self.told = total


def falls_in_canary(request_id: bytes, share: float) -> bool:
    """The same id always falls on the same side; about `share` of all ids."""
    return crc32(request_id) % _BUCKETS < share * _BUCKETS


class Rollout:
    """The stage of one candidate on one router. `now`: seconds of one monotonic clock."""

    def __init__(
        self, asked: Stage, rules: RolloutRules, *, now: float, new_policy: bool = False
    ) -> None:
        """new_policy: it replaces one that acts, and has to earn that first."""
        self.asked = asked
        self.rules = rules
        self.candidate = Arm(windows=EndedWindows(since=now))
        self.incumbent = Arm(windows=EndedWindows(since=now))
        self.shadowed = 0
        """Decisions that it was asked about without acting on them."""
        self.falls = 0
        self.since = now
        trial = new_policy and asked is not Stage.SHADOW
        self.stage = Stage.SHADOW if trial else asked
        self.reason = StageReason.NEW_POLICY if trial else StageReason.AS_ASKED
        self.words = "a new policy file; it says what it would do" if trial else ""

    def acts_on(self, request_id: bytes) -> bool:
        """Whether this request is the candidate's."""
        if self.stage is _ACTIVE:
            return True
        return self.stage is _CANARY and falls_in_canary(request_id, self.rules.canary_share)

    def tick(self, now: float) -> bool:
        """Once a second or so. True: the stage has changed; `reason` and `words` say why."""
        self.candidate.tick(now)
        self.incumbent.tick(now)
        before = self.stage
        if self.asked is not Stage.SHADOW:
            self._step(now)
        return self.stage is not before

    @property
    def fallen(self) -> bool:
        """It has less than what was asked for, and that is its own fault or looks like it."""
        return self.falls > 0 and self.stage is not self.asked

    def cooldown_seconds(self) -> float:
        doubled = self.rules.cooldown_seconds * 2.0 ** max(0, self.falls - 1)
        return min(doubled, self.rules.longest_cooldown_seconds)

    # ---- one step

    def _step(self, now: float) -> None:
        age = now - self.since
        if self.stage is _SHADOW:
            self._leave_shadow(age, now)
        elif self.stage is _CANARY:
            worse = self._worse(now)
            if worse:
                self._fall(StageReason.WORSE, worse, now)
            elif self.asked is _ACTIVE and self._proven(age, now):
                words = "as a canary it missed its SLO no more often than the rest"
                self._go(_ACTIVE, StageReason.PROVEN, words, now)
        else:
            burnt = self._burnt(now)
            if burnt:
                self._fall(StageReason.SLO_BURN, burnt, now)
            elif age >= self.rules.forgive_seconds:
                self.falls = 0

    def _leave_shadow(self, age: float, now: float) -> None:
        rules = self.rules
        if self.falls:
            if age >= self.cooldown_seconds():
                words = f"a second try after {age:.0f} s, with {rules.canary_share:.0%} of requests"
                self._go(_CANARY, StageReason.COOLED_DOWN, words, now)
        elif age >= rules.shadow_seconds and self.shadowed >= rules.shadow_requests:
            words = f"{self.shadowed} decisions in shadow without a fault"
            self._go(_CANARY, StageReason.NO_FAULT, words, now)

    def _burnt(self, now: float) -> str:
        """Which alarm is on, in words; empty: none."""
        for rule in self.rules.burn_rules:
            if burning(self.candidate.windows, rule, allowed=self.rules.allowed, now=now):
                long = self.candidate.windows.total(rule.long_seconds, now=now)
                rate = burn_rate(long, allowed=self.rules.allowed)
                return (
                    f"{long.share:.0%} of {long.ended} requests missed their SLO in"
                    f" {rule.long_seconds} s, {rate:.1f} times what it allows"
                )
        return ""

    def _worse(self, now: float) -> str:
        """How much more often the candidate misses than the incumbent, in words; empty: it doesn't."""
        mine, others = self._compared(now)
        if mine.ended < self.rules.probation_requests // 2 or not others.ended:
            return ""
        if mine.share <= others.share + self._margin(mine, others):
            return ""
        return (
            f"as a canary {mine.share:.0%} of its {mine.ended} requests missed their SLO,"
            f" {others.share:.0%} of the other {others.ended}"
        )

    def _proven(self, age: float, now: float) -> bool:
        """Long enough, often enough; that it is no worse has been looked at before."""
        mine, _ = self._compared(now)
        rules = self.rules
        return age >= rules.probation_seconds and mine.ended >= rules.probation_requests

    def _compared(self, now: float) -> tuple[Ended, Ended]:
        """Both policies' requests since the candidate is a canary, of the last ten minutes."""
        seconds = min(now - self.since, 600.0)
        return (
            self.candidate.windows.total(seconds, now=now),
            self.incumbent.windows.total(seconds, now=now),
        )

    def _margin(self, mine: Ended, others: Ended) -> float:
        """Half of what the SLO allows, or three standard errors of the difference of the shares."""
        both = (mine + others).share
        spread = both * (1.0 - both) * (1.0 / mine.ended + 1.0 / others.ended)
        return max(self.rules.allowed / 2.0, 3.0 * math.sqrt(spread))

    def _fall(self, reason: StageReason, words: str, now: float) -> None:
        self.falls += 1
        self._go(_SHADOW, reason, words, now)

    def _go(self, stage: Stage, reason: StageReason, words: str, now: float) -> None:
        self.stage, self.reason, self.words, self.since = stage, reason, words, now
        # what was before is no reason for what comes next
        self.candidate.windows.clear(now=now)
        self.incumbent.windows.clear(now=now)
        self.shadowed = 0


_SHADOW, _CANARY, _ACTIVE = Stage
