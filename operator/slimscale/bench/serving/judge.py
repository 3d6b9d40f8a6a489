"""Whether what was promised is reached, as the figures say. Pure; nothing here can be set to "yes"."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from slimscale.bench.serving.overload import Overload
from slimscale.bench.serving.summary import Summary

__all__ = ["OURS", "PEERS", "Claim", "judge", "judge_overload"]

DIRECT = "direct"
OURS, HOLDING, ROUTED = "slimscale", "slimscale-hold", "slimscale-routed"
OWN = (DIRECT, OURS, HOLDING, ROUTED)
PEERS = (
    "window-50ms",
    "window-500ms",
    "litserve-0ms",
    "litserve-0ms-fast",
    "litserve-10ms",
    "bentoml",
    "ray",
)
SAME_RATE = 0.999
"""In an open loop below capacity all systems give exactly what is offered: that counts as level."""
MOST_P50_RATIO = 1.15
LEAST_GAIN, GAIN_CLIENTS = 6.0, 64
MOST_ADDED_MILLISECONDS, MOST_ADDED_MICROS = 1.5, 300.0
MOST_CPU_RATIO = 1.2
LEAST_KEPT, MOST_REFUSAL_MILLISECONDS = 0.99, 10.0
MOST_GROWTH_BYTES = 16 * 2**20
FRONT_ROLES = ("router", "sidecar")


@dataclass(frozen=True, slots=True)
class Claim:
    """`reached` None: not measured in this run."""

    text: str
    measured: str
    reached: bool | None

    def to_json(self) -> dict[str, Any]:
        return {"claim": self.text, "measured": self.measured, "reached": self.reached}


def judge(summary: Summary, *, target_milliseconds: float) -> list[Claim]:
    """`target_milliseconds`: the p99 that both the holding sidecar and the window batcher must keep."""
    closed = [load for load in summary.loads if load.startswith("closed")]
    opened = [load for load in summary.loads if not load.startswith("closed")]
    claims = [
        _ahead(summary, closed, "Closed loops: throughput ahead of every peer", "per_second"),
        _ahead(summary, closed, "Closed loops: p99 ahead of every peer", "p99"),
        _ahead(
            summary,
            opened,
            "Open loops: throughput ahead of every peer, or all that is offered",
            "per_second",
        ),
        _ahead(summary, opened, "Open loops: p99 ahead of every peer", "p99"),
        _p50_at_one(summary),
        _gain(summary),
        _added_time(summary),
        _added_cpu(summary, closed),
        *(_efficiency(summary, load, target_milliseconds) for load in opened[:2]),
        _right(summary),
    ]
    return claims


def _ahead(summary: Summary, loads: Sequence[str], text: str, measure: str) -> Claim:
    """At each load against the best peer there."""
    behind, compared = [], 0
    for load in loads:
        ours = summary.value(OURS, load, measure)
        theirs = {
            peer: value
            for peer in PEERS
            if (value := summary.value(peer, load, measure)) is not None
        }
        if ours is None or not theirs:
            continue
        compared += 1
        if measure == "per_second":
            best = max(theirs, key=lambda peer: theirs[peer])
            lost = ours < theirs[best] * (SAME_RATE if not load.startswith("closed") else 1.0)
        else:
            best = min(theirs, key=lambda peer: theirs[peer])
            lost = ours > theirs[best]
        if lost:
            behind.append(f"{load}: {ours:.4g} to {theirs[best]:.4g} of {best}")
    if not compared:
        return Claim(text, "not measured", None)
    said = "; ".join(behind) if behind else f"at all {compared} loads"
    return Claim(text, said if not behind else f"behind at {said}", not behind)


def _p50_at_one(summary: Summary) -> Claim:
    text = f"p50 at one client within {MOST_P50_RATIO}x of direct"
    ratio = summary.ratio(OURS, DIRECT, "closed 1", "p50")
    if ratio is None:
        return Claim(text, "not measured", None)
    return Claim(
        text,
        f"{ratio.value:.2f}x ({ratio.least:.2f} to {ratio.most:.2f})",
        ratio.value <= MOST_P50_RATIO,
    )


def _gain(summary: Summary) -> Claim:
    text = f"At least {LEAST_GAIN:g}x the direct throughput at {GAIN_CLIENTS} clients"
    ratio = summary.ratio(OURS, DIRECT, f"closed {GAIN_CLIENTS}", "per_second")
    if ratio is None:
        return Claim(text, "not measured", None)
    return Claim(
        text,
        f"{ratio.value:.1f}x ({ratio.least:.1f} to {ratio.most:.1f})",
        ratio.value >= LEAST_GAIN,
    )


def _added_time(summary: Summary) -> Claim:
    text = f"Router and sidecar add under {MOST_ADDED_MILLISECONDS} ms at the median, one client"
    added = summary.difference(ROUTED, DIRECT, "closed 1", "p50")
    if added is None:
        return Claim(text, "not measured", None)
    return Claim(
        text,
        f"{added.value:.2f} ms ({added.least:.2f} to {added.most:.2f})",
        added.value < MOST_ADDED_MILLISECONDS,
    )


def _added_cpu(summary: Summary, loads: Sequence[str]) -> Claim:
    text = f"Router and sidecar take under {MOST_ADDED_MICROS:g} us of CPU a request"
    found = {
        load: figure.value
        for load in loads
        if (figure := summary.cpu_of(ROUTED, load, FRONT_ROLES)) is not None
    }
    if not found:
        return Claim(text, "not measured", None)
    said = ", ".join(
        f"{load.removeprefix('closed ')}: {value:.0f}" for load, value in found.items()
    )
    return Claim(text, f"us at clients {said}", max(found.values()) < MOST_ADDED_MICROS)


def _efficiency(summary: Summary, load: str, target: float) -> Claim:
    text = (
        f"The holding setting's CPU a request at most {MOST_CPU_RATIO}x the window batcher's"
        f" at {load}, both with a p99 under {target:g} ms"
    )
    ratio = summary.ratio(HOLDING, "window-50ms", load, "total_cpu_micros")
    ours = summary.value(HOLDING, load, "p99")
    theirs = summary.value("window-50ms", load, "p99")
    if ratio is None or ours is None or theirs is None:
        return Claim(text, "not measured", None)
    return Claim(
        text,
        f"{ratio.value:.2f}x ({ratio.least:.2f} to {ratio.most:.2f}); p99 {ours:.0f} and {theirs:.0f} ms",
        ratio.value <= MOST_CPU_RATIO and ours <= target,
    )


def _right(summary: Summary) -> Claim:
    text = "Every answer belongs to its request; none lost"
    names = [name for name in (OURS, HOLDING, ROUTED) if name in summary.systems]
    if not names:
        return Claim(text, "not measured", None)
    right = sum(summary.total(name, "right") for name in names)
    bad = {
        measure: sum(summary.total(name, measure) for name in names)
        for measure in ("wrong", "lost", "failed", "unanswered", "refused")
    }
    said = ", ".join(f"{count} {measure}" for measure, count in bad.items())
    return Claim(text, f"{right} right, {said}", not bad["wrong"] + bad["lost"] + bad["failed"])


def judge_overload(found: Overload) -> list[Claim]:
    """What was promised of a system at twice its capacity."""
    name = f"{found.system} at twice its capacity"
    grown = {
        role: found.last_bytes[role] - before
        for role, before in found.settled_bytes.items()
        if role in found.last_bytes
    }
    said = ", ".join(f"{role} {growth / 2**20:+.1f} MiB" for role, growth in grown.items())
    return [
        Claim(
            f"{name}: {LEAST_KEPT:.0%} of what is accepted keeps its deadline; nothing else breaks",
            f"{found.kept_share:.2%} of {found.kept + found.late}, {found.broken} broken",
            found.kept_share >= LEAST_KEPT and not found.broken,
        ),
        Claim(
            f"{name}: the rest refused within {MOST_REFUSAL_MILLISECONDS:g} ms (p99)",
            f"{found.refused} refused, p50 {found.refused_p50:.1f}, p99 {found.refused_p99:.1f} ms",
            found.refused_p99 < MOST_REFUSAL_MILLISECONDS if found.refused else None,
        ),
        Claim(
            f"{name}: memory grows by at most {MOST_GROWTH_BYTES / 2**20:g} MiB once it has settled",
            said or "not measured",
            max(grown.values()) <= MOST_GROWTH_BYTES if grown else None,
        ),
        Claim(
            f"{name}: as before as soon as the load has gone",
            f"{found.calm_right} right, {found.calm_not_right} not, p99 {found.calm_p99:.0f} ms",
            found.calm_right > 0 and not found.calm_not_right and found.calm_p99 <= found.deadline,
        ),
    ]
