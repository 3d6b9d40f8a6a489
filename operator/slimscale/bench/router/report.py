"""What a policy costs the router, as JSON and as a page."""

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from slimscale.bench.markdown import table
from slimscale.bench.router.decisions import DecisionTime
from slimscale.bench.router.measure import Cost
from slimscale.bench.statistics import ratio_interval

__all__ = ["document_of", "page_of", "write_report"]

STEM = "router-cost"
BASE = "SED"
GOAL_SHARE = 0.9
GOAL_MICROSECONDS = {8: 200.0, 32: 1000.0}


def document_of(
    costs: Sequence[Cost], decisions: Sequence[DecisionTime], ran: dict[str, Any], *, seed: int
) -> dict[str, Any]:
    """Every run, and the ratios to SED's run of the same repetition."""
    rows = []
    for policy in dict.fromkeys(cost.policy for cost in costs):
        own = [cost for cost in costs if cost.policy == policy]
        base = [cost for cost in costs if cost.policy == BASE]
        pairs = list(zip(own, base, strict=True))
        cpu = {"all": [b.cpu_microseconds / o.cpu_microseconds for o, b in pairs]}
        rate = {"all": [o.requests_per_second / b.requests_per_second for o, b in pairs]}
        rows.append(
            {
                "policy": policy,
                "cpu_microseconds": median(cost.cpu_microseconds for cost in own),
                "requests_per_second": median(cost.requests_per_second for cost in own),
                "capacity_share": ratio_interval(cpu, seed=seed).to_json(),
                "rate_share": ratio_interval(rate, seed=seed).to_json(),
            }
        )
    return {
        "ran": ran,
        "policies": rows,
        "decisions": [one.as_json() for one in decisions],
        "runs": [cost.as_json() for cost in costs],
    }


def page_of(document: dict[str, Any]) -> str:
    ran = document["ran"]
    parts = [
        "# What a policy costs the router",
        f"`{ran['command']}` on {ran['machine']}; code {ran['code']}; policy {ran['policy']}."
        f" One router process, {ran['pods']} instant pods and {ran['clients']} closed loops on"
        f" loopback, {ran['seconds']:g} s a run, {ran['repetitions']} repetitions; the order of the"
        " policies is drawn anew for each. Load average of the machine while it ran:"
        f" {ran['load_average']}.",
        "Capacity is what one core of the router could do: the inverse of its CPU time a request,"
        " as a share of SED's of the same repetition (95 % bootstrap interval). The rate is what"
        " the closed loops reached beside everything else on the machine.",
        table(
            ["policy", "CPU a request, µs", "capacity of SED's", "requests/s", "rate of SED's"],
            [
                [
                    row["policy"],
                    f"{row['cpu_microseconds']:.0f}",
                    _share(row["capacity_share"]),
                    f"{row['requests_per_second']:.0f}",
                    _share(row["rate_share"]),
                ]
                for row in document["policies"]
            ],
        ),
        _goal(document),
        "## One decision",
        "In one process, four widths; PPO and its network look anew every 40 ms of arrivals 0.3 ms"
        " apart, which is in the mean and in the 99th percentile.",
        table(
            ["policy", "pods", "median, µs", "mean, µs", "99 %, µs"],
            [
                [
                    one["policy"],
                    one["pods"],
                    *(f"{one[f'{key}_microseconds']:.0f}" for key in ("median", "mean", "p99")),
                ]
                for one in document["decisions"]
            ],
        ),
    ]
    return "\n\n".join(parts) + "\n"


def write_report(document: dict[str, Any], folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    page, data = folder / f"{STEM}.md", folder / f"{STEM}.json"
    page.write_text(page_of(document), encoding="utf-8")
    data.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return [page, data]


def _share(interval: dict[str, float]) -> str:
    return f"{interval['value']:.3f} ({interval['low']:.3f} to {interval['high']:.3f})"


def _goal(document: dict[str, Any]) -> str:
    rows = []
    for row in document["policies"]:
        if row["policy"] == "PPO":
            share = row["capacity_share"]["value"]
            rows.append(
                [
                    "PPO: capacity of SED's",
                    f"at least {GOAL_SHARE}",
                    f"{share:.3f}",
                    "yes" if share >= GOAL_SHARE else "**no**",
                ]
            )
    for one in document["decisions"]:
        goal = GOAL_MICROSECONDS.get(one["pods"])
        if one["policy"] == "PPO" and goal is not None:
            took = one["median_microseconds"]
            rows.append(
                [
                    f"PPO: median decision at {one['pods']} pods",
                    f"under {goal:.0f} µs",
                    f"{took:.0f} µs",
                    "yes" if took < goal else "**no**",
                ]
            )
    return table(["what", "goal", "measured", "met"], rows)
