"""The benchmark's report as Markdown, from the same document that is written as JSON."""

from collections.abc import Iterable, Sequence
from typing import Any

from slimscale.bench.scenarios import SHAPES

__all__ = ["report_markdown", "table"]

Row = Sequence[object]


def table(header: Sequence[str], rows: Iterable[Row]) -> str:
    """A Markdown table; the first column is text, the others are figures."""
    lines = [
        "| " + " | ".join(header) + " |",
        "|" + "|".join("---" if i == 0 else "---:" for i in range(len(header))) + "|",
    ]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def report_markdown(document: dict[str, Any], *, images: Sequence[tuple[str, str]] = ()) -> str:
    """`document` as `report.write` makes it; `images` are (file name, caption)."""
    judged = document["judgement"]
    parts = [
        "# Threads under changing load, simulated",
        _what_ran(document),
        "## Goals",
        _goals(document["goals"]),
        *_images(images),
        "## All policies",
        "Throughput as a share of `best-per-phase`, which knows every phase's best count and"
        " changes to it at once. Everything a policy does to find its count is included."
        " Geometric means over scenarios; regret is 1 less the share.",
        _ranking(judged["ranking"]),
        "## AutoThread against each static count",
        _headline(judged),
        _against(judged["against_statics"]),
        "## AutoThread against tuners and predictors",
        _against(judged["against_tuners"]),
        "## Where the ratio drifts",
        "The setting of the paper: task time over dispatch time wanders. Scenarios named `drift`.",
        _against(judged["drifting"]),
        "## Time for the same work",
        "Share of the time saved until the slower of the two has finished all it ever does in the"
        " scenario; below 0 AutoThread is the slower one. Over all scenarios and seeds.",
        _time_cuts([*judged["against_statics"], *judged["against_tuners"]]),
        "## After a change of load",
        "Changes that had to be followed: the count held before was more than 5 % below the new"
        " phase's best (phases of a minute and more, true curves). Steps and seconds until within"
        " 5 % of the best for the first time, over the changes where that was reached; `kept` is"
        " the share of the rest of the phase within 5 %.",
        _recovery(judged["recovery"]),
        "## What probing costs",
        "Within a phase, throughput that the held count gives, over the highest that any count"
        " held before in that phase gives: lowest moment, and longest time below 90 %.",
        _probing(judged["probing"]),
    ]
    if document.get("steady"):
        parts += [
            "## An hour of steady, noisy load",
            "Changes of the thread count between minute 10 and minute 60, a run.",
            _steady(document["steady"]),
        ]
    if judged["cpu"]:
        parts += [
            "## CPU set aside",
            "Policies that may change the CPU limit, against the limit that the pod came with.",
            _cpu(judged["cpu"]),
        ]
    parts += ["## Every scenario", _scenarios(judged["scenarios"])]
    return "\n\n".join(part for part in parts if part) + "\n"


def _what_ran(document: dict[str, Any]) -> str:
    ran = document["ran"]
    return (
        f"`{ran['command']}` on {ran['machine']}; code {ran['code']}."
        f" {ran['scenarios']} scenarios (suite seed {ran['suite_seed']}) of"
        f" {ran['minutes_each']:g} simulated minutes, {ran['seeds']} seeds each, {ran['runs']} runs."
        " A seed draws the times of the tasks; runs of different policies are paired by scenario"
        " and seed. Intervals are 95 % bootstrap intervals over scenarios and seeds; p values are"
        " of a paired sign-flip test over seeds, corrected by Holm. Policies are asked at their"
        " own pace (the operator every 5 s, every 2 s while it judges a change, and what it wants"
        " holds 1 s later); all may use 1 to 256 threads. All figures are of a simulation."
    )


def _goals(rows: list[dict[str, Any]]) -> str:
    return table(
        ["what", "goal", "measured", "met"],
        (
            [row["what"], row["goal"], row["measured"], "yes" if row["met"] else "**no**"]
            for row in rows
        ),
    )


def _images(images: Sequence[tuple[str, str]]) -> list[str]:
    return [f"![{caption}]({name})\n*{caption}*" for name, caption in images]


def _headline(judged: dict[str, Any]) -> str:
    speed_up = judged["set_speed_up"]
    if speed_up is None:
        return ""
    names = ", ".join(judged["named_statics"])
    return (
        f"Over the set ({names}): **{_factor(speed_up)}**, geometric mean. Wins and losses count"
        " scenarios whose own interval lies above or below 1."
    )


def _factor(interval: dict[str, float]) -> str:
    return f"{interval['value']:.3f} ({interval['low']:.3f} to {interval['high']:.3f})"


def _ranking(rows: list[dict[str, Any]]) -> str:
    shapes = [s for s in SHAPES if any(s in row["by_shape"] for row in rows)]
    return table(
        [
            "policy",
            "share",
            *shapes,
            "regret median",
            "regret 90 %",
            "worst scenario",
            "regret there",
        ],
        (
            [
                _bold(row["policy"]),
                f"{row['share']:.3f}",
                *(f"{row['by_shape'].get(shape, float('nan')):.3f}" for shape in shapes),
                f"{row['regret']['median']:.1%}",
                f"{row['regret']['p90']:.1%}",
                row["worst_scenario"],
                f"{row['regret']['worst']:.1%}",
            ]
            for row in rows
        ),
    )


def _bold(name: str) -> str:
    return f"**{name}**" if name.startswith("autothread") else name


def _against(rows: list[dict[str, Any]]) -> str:
    return table(
        ["against", "speed-up, geometric mean (95 %)", "average of ratios", "ratio of averages",
         "won", "lost", "of", "p (Holm)"],
        (
            [
                row["base"],
                _factor(row["speed_up"]),
                f"{row['average_of_ratios']:.3f}",
                f"{row['ratio_of_averages']:.3f}",
                row["wins"],
                row["losses"],
                row["scenarios"],
                f"{row['p_value_holm']:.3g}",
            ]
            for row in rows
        ),
    )  # fmt: skip


def _time_cuts(rows: list[dict[str, Any]]) -> str:
    return table(
        ["against", "best", "90 %", "median", "10 %", "worst"],
        (
            [
                row["base"],
                *(
                    f"{row['time_cut'][key]:.1%}"
                    for key in ("best", "p90", "median", "p10", "worst")
                ),
            ]
            for row in rows
        ),
    )


def _recovery(rows: dict[str, Any]) -> str:
    return table(
        ["policy", "changes", "reached", "within 5 steps", "steps median", "steps 90 %",
         "seconds median", "seconds 90 %", "kept", "loss of the phase, median"],
        (
            [
                _bold(name),
                row["changes"],
                f"{row['reached']:.1%}",
                f"{row['within_five_steps']:.1%}",
                *(_of(row[what], key) for what in ("steps", "seconds") for key in ("median", "p90")),
                f"{row['kept_after']:.1%}",
                f"{row['phase_loss']['median']:.1%}",
            ]
            for name, row in rows.items()
            if row is not None
        ),
    )  # fmt: skip


def _of(found: dict[str, float] | None, key: str) -> str:
    return f"{found[key]:.0f}" if found else "-"


def _probing(rows: dict[str, Any]) -> str:
    return table(
        ["policy", "runs", "lowest moment", "longest below 90 %, s", "runs below for over 15 s"],
        (
            [
                _bold(name),
                row["runs"],
                f"{row['worst_share']:.2f}",
                f"{row['longest_seconds']:.0f}",
                row["runs_longer_than_a_window"],
            ]
            for name, row in rows.items()
        ),
    )


def _steady(rows: dict[str, Any]) -> str:
    return table(
        ["policy", "runs", "median changes", "most", "runs without any"],
        (
            [_bold(name), row["runs"], f"{row['median']:.0f}", row["worst"], row["without_any"]]
            for name, row in rows.items()
        ),
    )


def _cpu(rows: dict[str, Any]) -> str:
    return table(
        ["policy", "CPU saved, median", "10 %", "90 %", "tasks over unset, geometric mean"],
        (
            [
                _bold(name),
                f"{row['saved']['median']:.1%}",
                f"{row['saved']['p10']:.1%}",
                f"{row['saved']['p90']:.1%}",
                f"{row['tasks_over_unset']:.3f}",
            ]
            for name, row in rows.items()
        ),
    )


def _scenarios(rows: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row["shares"]))
    return table(
        ["scenario", *names, "over floor-of-quota (95 %)"],
        (
            [
                row["scenario"],
                *(f"{row['shares'][n]:.3f}" if n in row["shares"] else "-" for n in names),
                _factor(row["over_floor"]) if row["over_floor"] else "-",
            ]
            for row in rows
        ),
    )
