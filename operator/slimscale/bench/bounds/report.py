"""The page, the plot and the JSON of the bounds, from one document."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slimscale.bench.bounds.figures import ACCURACY, EDGE_MACS, LINK_SECONDS, SERVER_MACS
from slimscale.bench.bounds.plane import PLAN_INFLATION
from slimscale.bench.bounds.plots import draw
from slimscale.bench.markdown import table

__all__ = ["NAME", "write_report"]

NAME = "routing-bounds"
Rows = Sequence[dict[str, Any]]


def write_report(document: dict[str, Any], folder: Path) -> list[Path]:
    """JSON, Markdown and PNG in `folder`; the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{NAME}{ending}" for ending in (".json", ".md", ".png")]
    text = json.dumps(document, indent=1, sort_keys=True, allow_nan=False)
    paths[0].write_text(text + "\n", encoding="utf-8")
    draw(document, paths[2])
    paths[1].write_text(_markdown(document, paths[2].name), encoding="utf-8")
    return paths


def _markdown(document: dict[str, Any], image: str) -> str:
    ran = document["ran"]
    parts = [
        "# Bounds on routing, and what the ideas of related systems come to",
        f"`{ran['command']}` on {ran['machine']}; code {ran['code']}; {ran['minutes']:.1f} minutes."
        " Everything is computed or simulated: energy is a model (watts times busy time), and nothing"
        " here was measured on hardware.",
        f"![Bounds and gaps]({image})",
        "## The planning bound",
        f"Six devices, four widths; loads are shares of what they can serve at a mean accuracy of {ACCURACY:.1%}."
        " No stationary policy does better; none reaches it, since the bound knows no queue and no peak."
        " J a request = 12 (accuracy - .703) - min(latency/SLO, 2) - .3 joules - late.",
        _planning(document["planning"]),
        "## Batching on one device: the exact optimum",
        "SMDP of science brief 3: batches of b up to 8 take 1 + .2 b ms and 30 + 2 b mJ; cost = mean response"
        " in ms + weight times mean watts. Greedy serves what there is; the best control limit waits for"
        " so many.",
        _batching(document["batching"]),
        "## Routing between two devices: the exact optimum",
        "No batching; queues of at most"
        f" {ran['queue_cap']} wide requests; every value is exact (no simulation). Mean J a request. Where a rule is unstable its"
        " value is that of queues that stay full.",
        _routing(document["routing"]),
        _gap(document["routing"]),
        "## Holding for batches",
        "The slimmest width by SED, on the six simulated devices: energy of work-conserving batches, of batches"
        " that wait as the batching table says, and of the bound (full batches on the thriftiest devices). The busy"
        " cost follows from the energy weight. `way`: from work-conserving to the bound. `planned`: held too, and"
        f" only on the devices of the plan of least energy for {PLAN_INFLATION:g} times the load.",
        _holding(document["holding"]),
        "## Ideas of related systems on the simulated data plane",
        f"{ran['seconds']:g} simulated seconds, seeds {', '.join(map(str, ran['seeds']))}, the same traces for all;"
        " `±` is the standard deviation of J over the seeds. Gains and losses are against the better of the two"
        " SED rules in the same regime and load.",
        *(_plane(document["plane"], regime) for regime in ran["regimes"]),
        "## Cold starts: placement of three segments",
        "Seconds until the first answer when everything is cold, drawn devices: planned with max(load,"
        " drain) against planned with their sum (both then really overlap), and the best single device.",
        _numbers(document["placement"], "devices"),
        "## Delay timers",
        "Mean cost in seconds of a wait for a warm slot, where going cold costs Δ = 1 s; tuned on one half of the"
        " waits, judged on the other. `hindsight` knows each wait.",
        _numbers(document["timers"], "waits"),
        "## Where to cut the network",
        f"Edge {EDGE_MACS:.0e} and server {SERVER_MACS:.0e} multiply-accumulates a second (modelled), link"
        f" {1000 * LINK_SECONDS:g} ms. Cut c: the first c of three segments on the edge.",
        _cuts(document["cuts"]),
    ]
    if document.get("shop"):
        parts += [
            "## Dispatching with random shutdowns",
            "Jobs of one to three segments on six machines that fail while they work with probability p an"
            " operation: mean flow time in seconds, over the seeds. The graph encoder was trained at p = .05 on"
            " other seeds.",
            _numbers(document["shop"], "rule"),
        ]
    return "\n\n".join(parts) + "\n"


def _planning(rows: Rows) -> str:
    header = ["load", "requests/s", "J", "J, energy x5", "mJ, any accuracy", f"mJ at {ACCURACY:.1%}",
              "W with idle, any accuracy", "most accuracy", f"own batch at {ACCURACY:.1%}, ms"]  # fmt: skip
    return table(
        header,
        (
            (
                f"{row['load']:g}", f"{row['requests_per_second']:.0f}", f"{row['objective']:.3f}",
                f"{row['objective_energy_times_five']:.3f}",
                f"{1000 * row['joules_any_accuracy']:.1f}",
                f"{1000 * row['joules_at_accuracy']:.1f}",
                f"{row['watts_any_accuracy_with_idle']:.0f}", f"{row['most_accuracy']:.3f}",
                f"{1000 * row['service_seconds_at_accuracy']:.1f}",
            )
            for row in rows
        ),
    )  # fmt: skip


def _batching(rows: Rows) -> str:
    return table(
        ["load", "energy weight", "optimum", "limit", "greedy", "static 8", "best limit", "greedy loses"],
        (
            (
                f"{row['load']:g}", f"{row['energy_weight']:g}", f"{row['optimum']:.4f}",
                row["control_limit"] if row["control_limit"] is not None else "none",
                f"{row['greedy']:.4f}", f"{row['static']:.4f}", f"{row['best_limit']:.4f}",
                f"{max(0.0, row['greedy'] / row['optimum'] - 1):.1%}",
            )
            for row in rows
        ),
    )  # fmt: skip


def _routing(rows: Rows) -> str:
    names = [name for name in rows[0] if name != "load"]
    return table(
        ["load", *names],
        ((f"{row['load']:g}", *(f"{row[name]:.3f}" for name in names)) for row in rows),
    )


def _gap(rows: Rows) -> str:
    """Which rule comes nearest, load by load, and by how much it misses: the losses, in words."""
    lines = []
    for row in rows:
        rules = {k: v for k, v in row.items() if k not in {"load", "optimum", "planning bound"}}
        best = max(rules, key=lambda name: rules[name])
        lines.append(
            f"- load {row['load']:g}: nearest is {best}, {row['optimum'] - rules[best]:.3f} below the"
            f" optimum, which itself is {row['planning bound'] - row['optimum']:.3f} below the bound"
        )
    return "\n".join(lines)


def _holding(rows: Rows) -> str:
    return table(
        ["load", "energy weight x", "bound, mJ", "work-conserving, mJ", "ms", "held, mJ", "ms", "late",
         "way", "planned, mJ", "ms", "late", "way"],
        (
            (
                f"{row['load']:g}", f"{row['energy_weight_times']:g}",
                f"{1000 * row['bound_joules']:.0f}", f"{1000 * row['greedy_joules']:.0f}",
                f"{1000 * row['greedy_latency_seconds']:.1f}",
                *(
                    text
                    for kind in ("held", "planned")
                    for text in (
                        f"{1000 * row[f'{kind}_joules']:.0f}",
                        f"{1000 * row[f'{kind}_latency_seconds']:.1f}",
                        f"{row[f'{kind}_late_share']:.1%}", f"{row[f'{kind}_way']:.0%}",
                    )
                ),
            )
            for row in rows
        ),
    )  # fmt: skip


def _plane(rows: Rows, regime: str) -> str:
    own = [row for row in rows if row["regime"] == regime]
    lines = []
    for row in own:
        reference = max(
            one["objective"]
            for one in own
            if one["load"] == row["load"]
            and one["policy"] in {"SED, widest within slack", "SED, slimmest"}
        )
        lines.append(
            (
                row["policy"], f"{row['load']:g}",
                f"{row['objective']:.3f} ±{row['objective_deviation']:.3f}",
                f"{row['objective'] - reference:+.3f}", f"{row['bound']:.3f}",
                f"{1000 * row['latency_seconds']:.1f}", f"{1000 * row['joules']:.0f}",
                f"{row['accuracy']:.3f}", f"{row['late_share']:.1%}",
            )
        )  # fmt: skip
    header = [
        "policy",
        "load",
        "J",
        "against SED",
        "bound",
        "latency, ms",
        "mJ",
        "accuracy",
        "late",
    ]
    return f"### {regime}\n\n" + table(header, lines)


def _numbers(rows: Rows, first: str) -> str:
    names = [name for name in rows[0] if name != first]
    return table(
        [first, *(name.replace("_", " ") for name in names)],
        ((row[first], *(_number(row[name]) for name in names)) for row in rows),
    )


def _number(value: object) -> str:
    return (
        f"{value:.3f}" if isinstance(value, float) else "for ever" if value is None else str(value)
    )


def _cuts(rows: Rows) -> str:
    return table(
        ["network", "bandwidth, MB/s", "cut", "ms", "all on the server", "all on the edge"],
        (
            (
                row["network"], f"{row['bytes_per_second'] / 1e6:g}", row["cut"],
                f"{1000 * row['seconds']:.2f}", f"{1000 * row['all_on_server_seconds']:.2f}",
                f"{1000 * row['all_on_edge_seconds']:.2f}",
            )
            for row in rows
        ),
    )  # fmt: skip
