"""Throughput curves as text for terminals and as PNG for people who share them."""

from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

__all__ = ["curve_png", "curve_text"]

_BLOCKS = " ▏▎▍▌▋▊▉█"


def curve_text(
    points: Sequence[tuple[int, float]],
    *,
    chosen: int | None,
    measured: Sequence[tuple[int, float]] = (),
    width: int = 40,
) -> Text:
    """Horizontal bars of tasks a second over threads; the chosen count is marked.

    Args:
        points: (threads, tasks a second) of the model, in any order.
        measured: the same, as measured; shown beside the bar of its count.
    """
    text = Text()
    top = max((rate for _, rate in [*points, *measured]), default=0.0)
    seen = dict(measured)
    for threads, rate in sorted(points):
        eighths = round(rate / top * width * 8) if top > 0 else 0
        bar = "█" * (eighths // 8) + _BLOCKS[eighths % 8].strip()
        style = "bold green" if threads == chosen else ""
        text.append(f"{threads:>5} ", style=style)
        text.append(f"{bar:<{width}} ", style=style or "cyan")
        text.append(f"{rate:,.3g}/s", style=style)
        if threads in seen:
            text.append(f"  measured {seen[threads]:,.3g}/s", style="yellow")
        text.append("  <- chosen\n" if threads == chosen else "\n", style=style)
    return text


def curve_png(
    path: str,
    points: Sequence[tuple[int, float]],
    *,
    chosen: int | None,
    title: str,
    measured: Sequence[tuple[int, float]] = (),
) -> None:
    """Draw the same curve with matplotlib into a file."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    ordered = sorted(points)
    axes.plot([k for k, _ in ordered], [rate for _, rate in ordered], "o-", ms=3, label="model")
    if measured:
        axes.plot([k for k, _ in measured], [r for _, r in measured], "s", label="measured")
    if chosen is not None:
        axes.axvline(chosen, color="tab:green", ls="--", label=f"chosen: {chosen}")
    axes.set(xlabel="threads", ylabel="tasks a second", title=title, xscale="log")
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    figure.savefig(Path(path), dpi=120)
    pyplot.close(figure)
