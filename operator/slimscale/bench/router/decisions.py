"""Time of one decision in one process: heuristics, the network alone, the router's PPO behind its shield."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from random import Random
from statistics import median
from typing import Any

import numpy as np

from slimscale.bench.router.measure import policy_weights
from slimscale.bench.router.pods import WIDTHS
from slimscale.domain.serving import PodTelemetry, WidthTelemetry
from slimscale.routing.amortised import AmortisedRouter
from slimscale.routing.heuristics import ColdAwareSED, ShortestExpectedDelay
from slimscale.routing.learned.router import LearnedRouter
from slimscale.routing.policy import PodView, RequestView, Route, Width
from slimscale.routing.registry import shielded

__all__ = ["DecisionTime", "time_decisions"]

_WIDTHS = tuple(Width(ratio, f"w{ratio:g}", accuracy, flops) for ratio, accuracy, flops in WIDTHS)
_GAP_SECONDS = 0.0003
"""Between two arrivals, on the policies' own clock."""
_LOOKS = 12
"""Views of the pods that come in turn, each for 16 requests: telemetry is read every few milliseconds."""
_WARM = 200

Choose = Callable[[RequestView, Sequence[PodView], float], Route | None]


@dataclass(frozen=True, slots=True)
class DecisionTime:
    policy: str
    pods: int
    median_microseconds: float
    mean_microseconds: float
    p99_microseconds: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def time_decisions(pods: int, *, decisions: int) -> list[DecisionTime]:
    """Of each policy; the first 200 are not counted."""
    views = [_views(pods, look) for look in range(_LOOKS)]
    asked = RequestView(1, 30.0, 0.1)
    found = []
    for name, choose in _policies():
        taken = []
        for number in range(decisions + _WARM):
            seen = views[number // 16 % _LOOKS]
            began = time.perf_counter()
            choose(asked, seen, number * _GAP_SECONDS)
            taken.append(1e6 * (time.perf_counter() - began))
        counted = taken[_WARM:]
        p99 = float(np.percentile(counted, 99))
        found.append(DecisionTime(name, pods, median(counted), float(np.mean(counted)), p99))
    return found


def _policies() -> list[tuple[str, Choose]]:
    rng = Random(1)  # noqa: S311 - ties alone
    sed, cold = ShortestExpectedDelay(max_batch_rows=32), ColdAwareSED(max_batch_rows=32)
    weights = policy_weights()
    network = LearnedRouter(weights, widths=_WIDTHS, max_batch_rows=32)
    amortised = AmortisedRouter(weights, widths=_WIDTHS, max_batch_rows=32)
    behind = shielded(amortised, max_batch_rows=32)

    def by_network(request: RequestView, pods: Sequence[PodView], now: float) -> Route | None:
        network.arrived(request.rows, now=now)
        return network.choose(request, pods, _WIDTHS, rng)

    def by_ppo(request: RequestView, pods: Sequence[PodView], now: float) -> Route | None:
        amortised.arrived(request.rows, now=now)
        return behind.choose(request, pods, _WIDTHS, rng)

    return [
        ("SED", lambda request, pods, _: sed.choose(request, pods, _WIDTHS, rng)),
        ("ColdAwareSED", lambda request, pods, _: cold.choose(request, pods, _WIDTHS, rng)),
        ("network at each request", by_network),
        ("PPO", by_ppo),
    ]


def _views(pods: int, look: int) -> list[PodView]:
    return [
        PodView(
            f"pod-{index}",
            "fast" if index % 2 else "slow",
            PodTelemetry(
                tuple(
                    WidthTelemetry(
                        width.model, 1, False, (index + look) % 3, 0, base_seconds=0.002,
                        row_seconds=0.0005 * (1 + index % 4) * width.flops_ratio, load_seconds=1.0,
                    )
                    for width in _WIDTHS
                ),
                backlog_seconds=0.001 * ((index + look) % 5),
                power_watts=40.0 + index,
            ),
            0.002,
            {"w1": 2} if (index + look) % 2 else {},
        )
        for index in range(pods)
    ]  # fmt: skip
