"""docs/results/native-validation.*: tables and pictures of `validate`."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from slimscale.bench.native.validate import (
    NETWORK,
    NETWORK_HERE,
    SIMULATOR_HERE,
    CurveResult,
    Validation,
    groups,
    quantiles,
)

__all__ = ["validation_markdown", "write_validation"]

_EXAMPLES = 6


def write_validation(
    validation: Validation, machine: Mapping[str, Any], folder: Path
) -> tuple[Path, ...]:
    """Writes native-validation.json, .md and .png into `folder`; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = tuple(folder / f"native-validation.{ending}" for ending in ("json", "md", "png"))
    document = {"measured": dict(machine), **validation.to_json()}
    paths[0].write_text(json.dumps(document) + "\n")
    paths[1].write_text(validation_markdown(validation, machine))
    _draw(validation, paths[2])
    return paths


def validation_markdown(validation: Validation, machine: Mapping[str, Any]) -> str:
    split = groups(validation.curves)
    facts, costs = machine["machine"], validation.costs
    load = machine["load_average"]
    spreads = [c.spread for c in validation.curves]
    lines = [
        "# Models against throughput measured on a machine",
        "",
        "Written by `python -m slimscale.bench.native validate`; do not edit.",
        "",
        f"- {len(validation.curves)} curves of `data/native-curves`, measured"
        f" {machine['first_measured_at']} to {machine['last_measured_at']}: {facts['cores']} CPUs"
        f" ({facts['cpu_model']}), Linux {facts['kernel']},"
        f" {'a virtual machine' if facts['hypervisor'] else 'no virtual machine'}; load average"
        f" {load['least']:.1f} to {load['most']:.1f} (median {load['median']:.1f}), the measured"
        " threads included",
        f"- spread of a point's repeats, (largest - smallest)/median: {_percent(np.median(spreads))}"
        " (median over curves)",
        f"- costs of the machine, from the families in `train`: a wake-up"
        f" {_micro(costs.wake_cpu_seconds)} of CPU and {_micro(costs.wake_delay_seconds)} late, a"
        f" task {_micro(costs.task_seconds)}, a contended hand-over"
        f" {_micro(costs.handover_seconds)}",
        "- *held-out*: one shape of times of each kind of load; nothing was fitted or tuned on it",
        "",
        "## Relative error of the throughput",
        "",
        "|T(model)/T(measured) - 1| over all points: median, 90th percentile. The models know the"
        " means that the program was told; *+ machine* adds the four costs above.".replace(
            "|", "\\|"
        ),
        "",
        *_error_table(validation, split),
        "",
        "## Throughput lost by what each way chooses",
        "",
        "1 - T(chosen)/max T: median, 95th percentile. *operator*: its own stages (window, estimate,"
        " prediction, choice with the tolerance of 3 %), started from each measured thread count in"
        " turn, one window each, no tuning afterwards. *noise alone*: the count that was best on two"
        " repeats, judged on the third. Models choose the fewest threads within 3 % of their best.",
        "",
        *_loss_table(validation, split),
        "",
        *_fallbacks(validation),
        "![Measured against model, losses, and six of the curves](native-validation.png)",
        "",
    ]
    return "\n".join(lines)


def _error_table(validation: Validation, split: Mapping[str, Sequence[CurveResult]]) -> list[str]:
    lines = [_row(["loads", "curves", *validation.models]), _rule(2 + len(validation.models))]
    for name, members in split.items():
        cells = []
        for model in validation.models:
            figures = quantiles(np.concatenate([c.errors(model) for c in members]))
            cells.append(f"{_percent(figures['median'])}, {_percent(figures['p90'])}")
        lines.append(_row([name, str(len(members)), *cells]))
    return lines


def _loss_table(validation: Validation, split: Mapping[str, Sequence[CurveResult]]) -> list[str]:
    lines = [_row(["way", *split]), _rule(1 + len(split))]
    for way in validation.ways:
        cells = []
        for members in split.values():
            figures = quantiles([v for c in members for v in c.losses[way]])
            cells.append(
                f"{_percent(figures['median'])}, {_percent(figures['p95'])}" if figures else "-"
            )
        lines.append(_row([way, *cells]))
    return lines


def _fallbacks(validation: Validation) -> list[str]:
    left = sum(c.fallbacks for c in validation.curves)
    if not left:
        return []
    cases = sum(
        len(v) for c in validation.curves for w, v in c.losses.items() if w == "operator, network"
    )
    return [f"The learned predictor left {left} of {cases} cases to the analytic model.", ""]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _rule(columns: int) -> str:
    return "|---|" + "---:|" * (columns - 1)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _micro(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} µs"


def _draw(validation: Validation, path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(3, 3, figsize=(13, 11), layout="constrained")
    _scatter(validation, axes[0, 0], NETWORK_HERE)
    _scatter(validation, axes[0, 1], SIMULATOR_HERE)
    _losses(validation, axes[0, 2])
    for axis, curve in zip(axes[1:].flat, _examples(validation.curves), strict=False):
        axis.plot(curve.threads, curve.measured, "ko-", label="measured")
        axis.plot(curve.threads, curve.models[NETWORK], "C0:", label="closed network")
        axis.plot(curve.threads, curve.models[NETWORK_HERE], "C0-", label="... + machine")
        axis.plot(curve.threads, curve.models[SIMULATOR_HERE], "C1-", label="simulator + machine")
        quota = "no quota" if curve.quota_cores is None else f"quota {curve.quota_cores:g}"
        axis.set(title=f"{curve.name}, {quota}", xscale="log", xlabel="threads", ylabel="tasks/s")
        axis.set_ylim(bottom=0)
        axis.legend(fontsize=7)
    figure.savefig(path, dpi=80)
    pyplot.close(figure)


def _examples(curves: Sequence[CurveResult]) -> list[CurveResult]:
    """One a kind, each with the median error of its kind: neither the best nor the worst."""
    found = []
    for kind in dict.fromkeys(c.kind for c in sorted(curves, key=lambda c: c.kind)):
        members = sorted(
            (c for c in curves if c.kind == kind),
            key=lambda c: float(np.median(c.errors(SIMULATOR_HERE))),
        )
        found.append(members[len(members) // 2])
    return found[:_EXAMPLES]


def _scatter(validation: Validation, axis: Any, model: str) -> None:
    kinds = {c.kind for c in validation.curves}
    members_of = groups(validation.curves)
    for index, name in enumerate(sorted(kinds)):
        members = members_of[name]
        measured = np.concatenate([c.measured for c in members])
        predicted = np.concatenate([c.models[model] for c in members])
        axis.loglog(measured, predicted, ".", color=f"C{index}", markersize=3, label=name)
    ends = axis.get_xlim()
    axis.plot(ends, ends, "k-", linewidth=0.8)
    axis.set(title=model, xlabel="measured tasks/s", ylabel="predicted tasks/s")
    axis.legend(fontsize=7)


def _losses(validation: Validation, axis: Any) -> None:
    for way in validation.ways:
        values = np.sort([v for c in validation.curves for v in c.losses[way]])
        if len(values):
            axis.plot(100 * values, np.linspace(0, 1, len(values)), label=way)
    axis.set(title="loss of the choice", xlabel="% of the best throughput", ylabel="share of cases")
    axis.set_xlim(-1, 60)
    axis.legend(fontsize=6)
