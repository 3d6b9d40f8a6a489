"""`simserver sweep`: steps a second of every phase, thread count and CPU quota, measured here.

The measurements of one quota and phase are interleaved: every repeat visits all thread counts in
a fresh random order, so that a noisy moment hits all of them alike. The external engine runs as a
process of its own outside the quota, as it does in the second container of the example.
"""

import argparse
import json
import logging
import math
import os
import platform
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from .contract import LocalContract
from .figures import Figures
from .phases import Phase
from .quota import QuotaError, cpu_quota
from .server import engine_address
from .settings import Settings
from .workload import Workload

__all__ = ["Measurement", "sweep", "sweep_command", "tables"]

log = logging.getLogger("simserver.sweep")

PHASES = (Phase.LIGHT, Phase.HEAVY, Phase.BLOCKING)
WARM_SLICES = 2


@dataclass(frozen=True, slots=True)
class Measurement:
    phase: str
    quota_cores: float
    threads: int
    repeat: int
    steps_per_second: float
    load_average: float


def sweep_command(settings: Settings, options: argparse.Namespace) -> int:
    quotas = [float(q) for q in options.quotas.split(",")]
    threads = [int(k) for k in options.threads.split(",")]
    try:
        measured = sweep(
            settings, quotas=quotas, threads=threads, repeats=options.repeats,
            seconds=options.seconds,
        )  # fmt: skip
    except QuotaError as error:
        sys.stderr.write(f"simserver sweep: {error}\n")
        return 1
    text = tables(measured, settings=settings, seconds=options.seconds)
    sys.stdout.write(text)
    if options.markdown:
        Path(options.markdown).write_text(text)
    if options.json:
        Path(options.json).write_text(json.dumps([asdict(m) for m in measured], indent=1) + "\n")
    return 0


def sweep(
    settings: Settings,
    *,
    quotas: Sequence[float],
    threads: Sequence[int],
    repeats: int,
    seconds: float,
) -> list[Measurement]:
    """All combinations, `repeats` times. Raises QuotaError where no quota can be set."""
    rng = random.Random(settings.seed)
    measured = []
    with engine_address(settings) as engine:
        for quota in quotas:
            for phase in PHASES:
                with cpu_quota(quota), LocalContract(max(threads)) as contract:
                    figures = Figures()
                    workload = Workload(settings, contract, figures, engine=engine)
                    for repeat in range(repeats):
                        log.info("quota %g, %s, repeat %d of %d", quota, phase, repeat + 1, repeats)
                        for count in rng.sample(list(threads), len(threads)):
                            contract.want(count)
                            rate = _rate(workload, figures, phase, seconds)
                            measured.append(
                                Measurement(phase, quota, count, repeat, rate, os.getloadavg()[0])
                            )
                    workload.close()
    return measured


def _rate(workload: Workload, figures: Figures, phase: Phase, seconds: float) -> float:
    for _ in range(WARM_SLICES):
        workload.slice(phase)
    before, started = figures.steps()[phase], time.monotonic()
    while time.monotonic() - started < seconds:
        workload.slice(phase)
    return (figures.steps()[phase] - before) / (time.monotonic() - started)


def tables(measured: Sequence[Measurement], *, settings: Settings, seconds: float) -> str:
    """Markdown: medians with the smallest and largest in brackets, best in bold."""
    threads = sorted({m.threads for m in measured})
    repeats = max((m.repeat for m in measured), default=-1) + 1
    loads = [m.load_average for m in measured]
    lines = [
        "# Steps a second of the simulation against threads and CPU quota",
        "",
        "Written by `python -m simserver sweep`; do not edit.",
        "",
        f"- {datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} CPUs, {platform.machine()},"
        f" Linux {platform.release()}, Python {platform.python_version()}",
        f"- {repeats} interleaved repeats of {seconds:g} s, thread counts in random order, seed"
        f" {settings.seed}; CFS quota, period 100 ms",
        f"- load average while measuring: {min(loads):.1f} to {max(loads):.1f}"
        " (other work on the machine included)",
        f"- light: pendulums, {settings.light_batch} in lock-step; heavy:"
        f" {settings.heavy_steps} steps of a quadruped; blocking: {settings.blocking_steps} steps"
        f" and an engine that answers after {settings.engine_wait_seconds * 1e3:g} ms",
        "",
        "Median of the repeats, smallest and largest in brackets. *x floor*: the best count against"
        " floor(quota) threads, medians; *x 16*: against 16.",
        "",
    ]
    for phase in (p for p in PHASES if any(m.phase == p for m in measured)):
        head = ["quota", *(str(k) for k in threads), "best", "x floor", "x 16"]
        lines += [f"## {phase}", "", _row(head), _row(["---:"] * len(head))]
        for quota in sorted({m.quota_cores for m in measured}):
            rates = {
                k: [
                    m.steps_per_second
                    for m in measured
                    if (m.phase, m.quota_cores, m.threads) == (phase, quota, k)
                ]
                for k in threads
            }
            lines.append(_row([f"{quota:g}", *_cells(rates, quota)]))
        lines.append("")
    return "\n".join(lines)


def _cells(rates: dict[int, list[float]], quota: float) -> list[str]:
    middle = {k: median(values) for k, values in rates.items() if values}
    best = max(middle, key=lambda k: middle[k])
    floor = max(1, math.floor(quota))

    def against(count: int) -> str:
        return f"{middle[best] / middle[count]:.2f}" if middle.get(count) else "-"

    cells = []
    for count, values in rates.items():
        text = f"{_short(middle[count])} ({_short(min(values))}-{_short(max(values))})"
        cells.append(f"**{text}**" if count == best else text)
    return [*cells, str(best), against(floor), against(16)]


def _short(rate: float) -> str:
    return f"{rate / 1e3:.3g}k" if rate >= 1e4 else f"{rate:.3g}" if rate < 1e3 else f"{rate:.0f}"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
