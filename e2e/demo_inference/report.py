"""The tables and the picture that the demo ends with."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from e2e.demo_inference.verdict import Slice, Story

__all__ = ["counts", "draw", "markdown", "record", "timeline_table"]


def timeline_table(story: Story) -> Table:
    """One row a slice."""
    table = Table(
        title=f"What clients saw, by {story.slices[0].end - story.slices[0].start:.0f} seconds",
        title_justify="left", box=SIMPLE_HEAD, padding=(0, 0, 0, 0), caption_justify="left",
    )  # fmt: skip
    for name in _header(story):
        table.add_column(name, justify="right", no_wrap=True)
    for cells in _rows(story):
        table.add_row(*cells)
    table.caption = "Latency in ms, widths in % of the answers, pools in ready pods. Faults: lost, wrong, refused."
    return table


def counts(story: Story) -> str:
    """In one sentence."""
    counted = story.tally
    return (
        f"{counted.planned} requests: {counted.right} right, {counted.lost} lost,"
        f" {counted.doubled} doubled, {counted.wrong} wrong, {counted.refused} refused;"
        f" p50 {counted.p50:.1f} ms, p99 {counted.p99:.0f} ms, longest {counted.longest:.0f} ms,"
        f" {100 * story.attainment:.1f} % within the SLO of {story.slo_milliseconds:g} ms"
    )


def markdown(story: Story, *, where: str, how: str) -> str:
    """The same for docs/, with what ran and where."""
    header = _header(story)
    lines = [f"| {' | '.join(header)} |", "|" + "---|" * len(header)]
    lines += [f"| {' | '.join(cells)} |" for cells in _rows(story)]
    table = "\n".join(lines)
    decisions = "\n".join(f"- {decision}" for decision in story.decisions)
    return f"""# One SlimInference under recorded traffic

Written by `python -m e2e.demo_inference --out docs/results`; {how} {where}

{counts(story)}.

A load generator in a pod of its own sends each request at its time, whatever has come back, and counts
latency from that time. It tries nothing again. Each answer is compared with the ten logits that the width
named on it gives for that input. Lost: no 2xx answer within 15 s. Doubled: a second answer to an id, or an answer nobody
asked for. Wrong: another id or other numbers. Refused: an early 429 or 503.

At {story.killed_at_seconds:.0f} s the pod {story.killed} was deleted with `--grace-period=0 --force`.

{table}

Latencies (p50, p99) in milliseconds; widths in percent of the answers; pools in pods that were ready at the end
of the slice; faults: requests lost, wrong or refused.

The operator's last decisions:

{decisions or "- none"}

![Load, latency, widths and replicas over time](demo-inference.png)
"""


def record(story: Story) -> Any:
    """All of it for JSON, which has no NaN: null where there is no latency."""
    return _without_nan(asdict(story))


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(inner) for inner in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def draw(path: Path, story: Story) -> None:
    """Load, latency, width mix and replicas over time, one above the other."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(4, 1, figsize=(10, 11), sharex=True, layout="constrained")
    cuts = story.slices
    middles = [(cut.start + cut.end) / 2 for cut in cuts]
    _bars(axes[0], cuts)
    for name, color in (("p50", "tab:blue"), ("p99", "tab:red")):
        values = [getattr(cut, name) for cut in cuts]
        axes[1].plot(middles, values, marker="o", ms=3, color=color, label=name)
    axes[1].set_yscale("log")
    axes[1].set_ylabel("latency, ms")
    axes[1].legend(loc="upper right")
    _widths(axes[2], cuts)
    _replicas(axes[3], story)
    for axis in axes:
        axis.axvline(story.killed_at_seconds, color="black", ls=":", lw=1)
        axis.grid(visible=True, alpha=0.3)
    axes[3].set_xlabel("seconds; dotted: a pod is killed")
    figure.suptitle(f"One SlimInference under recorded traffic: {story.tally.lost} requests lost")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _bars(axis: Any, cuts: Sequence[Slice]) -> None:
    axis.bar(
        [cut.start for cut in cuts],
        [cut.per_second for cut in cuts],
        [cut.end - cut.start for cut in cuts],
        align="edge",
        color="tab:gray",
    )
    axis.set_ylabel("requests a second")


def _widths(axis: Any, cuts: Sequence[Slice]) -> None:
    """Stacked shares of the answers in each slice."""
    base = [0.0] * len(cuts)
    for place, model in enumerate(_models(cuts)):
        shares = [cut.share.get(model, 0.0) for cut in cuts]
        axis.bar(
            [cut.start for cut in cuts], shares, [cut.end - cut.start for cut in cuts],
            bottom=base, align="edge", color=f"C{place}", label=model, alpha=0.8,
        )  # fmt: skip
        base = [low + share for low, share in zip(base, shares, strict=True)]
    axis.set_ylabel("share of answers")
    axis.legend(loc="upper right", fontsize=8)


def _replicas(axis: Any, story: Story) -> None:
    times = [look.seconds for look in story.looks]
    for place, pool in enumerate(_pools(story)):
        ready = [look.ready.get(pool, 0) for look in story.looks]
        wanted = [look.wanted.get(pool, 0) for look in story.looks]
        axis.step(times, ready, where="post", color=f"C{place}", label=f"{pool}, ready")
        axis.step(times, wanted, where="post", color=f"C{place}", ls="--", label=f"{pool}, wanted")
    axis.set_ylabel("pods")
    axis.legend(loc="upper right", fontsize=8)


def _header(story: Story) -> list[str]:
    """Short, for a terminal of 80 columns."""
    widths = [model.rsplit("-", 1)[-1] for model in _models(story.slices)]
    return ["s", "req/s", "p50", "p99", *widths, *_pools(story), "faults"]


def _rows(story: Story) -> list[list[str]]:
    return [
        [
            f"{cut.start:.0f}-{cut.end:.0f}",
            f"{cut.per_second:.1f}",
            _number(cut.p50, 1),
            _number(cut.p99, 0),
            *(f"{100 * cut.share.get(model, 0.0):.0f}" for model in _models(story.slices)),
            *(str(cut.ready.get(pool, 0)) for pool in _pools(story)),
            str(cut.not_right),
        ]
        for cut in story.slices
    ]


def _models(cuts: Sequence[Slice]) -> list[str]:
    return sorted({model for cut in cuts for model in cut.share})


def _pools(story: Story) -> list[str]:
    return sorted({pool for look in story.looks for pool in look.wanted})


def _number(value: float, digits: int) -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}f}"
