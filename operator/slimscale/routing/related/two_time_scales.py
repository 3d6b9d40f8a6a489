"""Two time scales: requests are dispatched one by one, and every frame a slower policy says where.

After KaiS (science brief 3, arXiv 2101.06582; reward as in its public code): dispatch is a masked choice a
request; orchestration changes, once a frame, which services run where, here which widths the frame may
use. The frame's policy is a softmax over masks, learned by the policy gradient from the frame's reward

    exp(-failed / all) + balance * exp(-std of the devices' utilisation)

discounted by .9 over frames. Their graph network embeds the state; ours has one state, the service's load.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from random import Random

from slimscale.routing.expected_delay import Candidate, DelayModel
from slimscale.routing.heuristics import Heuristic, Reason, widest_within_slack
from slimscale.routing.policy import Outcome, RequestView

__all__ = ["FramePolicy", "TwoTimeScales", "kais_reward"]

_DISCOUNT = 0.9


def kais_reward(
    *, failed: int, total: int, utilisations: Sequence[float], balance: float = 1.0
) -> float:
    """Of one frame; a frame without requests counts as one without failures."""
    share = failed / total if total else 0.0
    mean = sum(utilisations) / len(utilisations) if utilisations else 0.0
    spread = math.sqrt(sum((u - mean) ** 2 for u in utilisations) / max(1, len(utilisations)))
    return math.exp(-share) + balance * math.exp(-spread)


class FramePolicy:
    """A softmax over plans that learns from the rewards of the frames after each choice."""

    def __init__(self, plans: int, *, learning_rate: float = 0.3) -> None:
        self.weights = [0.0] * plans
        self.learning_rate = learning_rate
        self.chosen = plans - 1
        self._mean: float | None = None
        self._traces = [0.0] * plans

    def shares(self) -> list[float]:
        highest = max(self.weights)
        parts = [math.exp(weight - highest) for weight in self.weights]
        return [part / sum(parts) for part in parts]

    def next_frame(self, reward: float, draw: float) -> int:
        """The frame is over: learn from its reward and choose for the next one. `draw`: 0 to 1."""
        if self._mean is None:
            self._mean = reward
        advantage = reward - self._mean
        self._mean += 0.1 * (reward - self._mean)
        shares = self.shares()
        for plan, share in enumerate(shares):
            slope = float(plan == self.chosen) - share
            # Credit for rewards of later frames fades with the discount.
            self._traces[plan] = _DISCOUNT * 0.5 * self._traces[plan] + slope
            moved = self.weights[plan] + self.learning_rate * advantage * self._traces[plan]
            self.weights[plan] = max(-5.0, min(5.0, moved))
        passed = list(accumulate(self.shares()))
        self.chosen = min(bisect_right(passed, draw), len(passed) - 1)
        return self.chosen


class TwoTimeScales(Heuristic):
    """Cold-aware SED within the widths of the frame; a frame is a number of answers, not a time."""

    name = "TwoTimeScales"

    def __init__(
        self,
        *,
        max_batch_rows: int,
        delays: DelayModel | None = None,
        frame_answers: int = 200,
        balance: float = 1.0,
        widths: int = 4,
    ) -> None:
        """Plan k of the frame allows the k + 1 slimmest widths."""
        super().__init__(max_batch_rows=max_batch_rows, delays=delays)
        self.frame_answers = frame_answers
        self.balance = balance
        self.frames = FramePolicy(widths)
        self._draw = 0.0
        self._failed = self._total = 0
        self._busy: dict[str, float] = {}

    def _pick(
        self, candidates: Sequence[Candidate], request: RequestView, rng: Random
    ) -> tuple[Candidate, Reason]:
        self._draw = rng.random()  # for the frame that may end with this request
        ratios = sorted({one.width.ratio for one in candidates})
        most = ratios[min(self.frames.chosen, len(ratios) - 1)]
        for one in candidates:  # the devices' utilisation, as their telemetry tells it
            told = one.pod.telemetry.utilisation if one.pod.telemetry is not None else None
            if told is not None and math.isfinite(told):
                self._busy[one.pod.name] = told
        allowed = [one for one in candidates if one.width.ratio <= most]
        return widest_within_slack(allowed, request, self._delay, rng)

    def learn(self, outcome: Outcome) -> None:
        self._total += 1
        late = outcome.latency_seconds > outcome.request.slo_seconds
        self._failed += int(late or not outcome.succeeded)
        if self._total < self.frame_answers:
            return
        reward = kais_reward(
            failed=self._failed,
            total=self._total,
            utilisations=list(self._busy.values()),
            balance=self.balance,
        )
        self.frames.next_frame(reward, self._draw)
        self._failed = self._total = 0
