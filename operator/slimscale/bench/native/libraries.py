"""Thread counts of numeric libraries, measured under CPU quotas: which count was best, and by how much.

Each library runs in a process of its own inside a control group; counts come in random order, every
repeat in a fresh one. A library that is not installed is left out, and the report says so.
"""

import importlib.util
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from slimscale.bench.native.cgroups import CpuGroup
from slimscale.bench.native.errors import PoolError
from slimscale.bench.native.library_child import LIBRARIES
from slimscale.bench.native.machine import Machine, read_machine, read_on_time
from slimscale.threads.predictor import floor_of_quota

__all__ = ["LibraryCurve", "libraries_markdown", "measure_libraries", "write_libraries"]

THREADS = (1, 2, 3, 4, 6, 8, 16)


@dataclass(frozen=True, slots=True)
class LibraryCurve:
    """Rounds a second: `repeats` has a row for each of `threads`."""

    library: str
    quota_cores: float
    threads: tuple[int, ...]
    repeats: tuple[tuple[float, ...], ...]
    load_average: float

    @property
    def rates(self) -> tuple[float, ...]:
        return tuple(float(np.median(row)) for row in self.repeats)

    @property
    def best_threads(self) -> int:
        return self.threads[int(np.argmax(self.rates))]

    def gain_over(self, threads: int) -> float:
        """The best count's throughput over that of `threads`."""
        return max(self.rates) / self.rates[self.threads.index(threads)]


def measure_libraries(
    *,
    quotas: Sequence[float],
    repeats: int,
    seconds: float,
    seed: int,
    progress: Callable[[str], object] = str,
) -> tuple[list[LibraryCurve], list[str]]:
    """The curves, and the names of the libraries that are not installed. Needs root."""
    read_on_time()
    curves, missing = [], []
    for name, library in LIBRARIES.items():
        if importlib.util.find_spec(library.module) is None:
            missing.append(name)
            continue
        for quota in quotas:
            progress(f"{name}, quota {quota:g}")
            curves.append(_measure(name, quota, repeats=repeats, seconds=seconds, seed=seed))
    return curves, missing


def _measure(
    name: str, quota_cores: float, *, repeats: int, seconds: float, seed: int
) -> LibraryCurve:
    rng = random.Random(seed)  # noqa: S311 - an order of measurements
    rates: dict[int, list[float]] = {count: [] for count in THREADS}
    with CpuGroup(f"slimscale-library-{os.getpid()}") as group:
        group.favour()
        child = subprocess.Popen(  # noqa: S603 - this package's own module
            [sys.executable, "-m", "slimscale.bench.native.library_child", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(max(THREADS))},
        )
        try:
            _answer(child, name)
            group.add(child.pid)
            group.set_quota(quota_cores)  # after it has loaded and compiled
            for _ in range(repeats):
                for count in rng.sample(THREADS, len(THREADS)):
                    assert child.stdin is not None  # noqa: S101 - a pipe
                    child.stdin.write(f"{count} {seconds}\n")
                    child.stdin.flush()
                    answer = _answer(child, name)
                    rates[count].append(answer["rounds"] / answer["seconds"])
        finally:
            child.kill()
            child.communicate()
    return LibraryCurve(
        library=name,
        quota_cores=quota_cores,
        threads=THREADS,
        repeats=tuple(tuple(rates[count]) for count in THREADS),
        load_average=os.getloadavg()[0],
    )


def _answer(child: "subprocess.Popen[str]", name: str) -> dict[str, float]:
    assert child.stdout is not None  # noqa: S101 - a pipe
    line = child.stdout.readline()
    if not line:
        raise PoolError(f"the process that runs {name} has ended")
    found: dict[str, float] = json.loads(line)
    return found


def write_libraries(
    curves: Sequence[LibraryCurve], missing: Sequence[str], folder: Path
) -> tuple[Path, ...]:
    """threads-libraries.json and .md."""
    folder.mkdir(parents=True, exist_ok=True)
    machine = read_machine()
    paths = (folder / "threads-libraries.json", folder / "threads-libraries.md")
    document = {
        "machine": asdict(machine),
        "not_installed": list(missing),
        "curves": [asdict(curve) for curve in curves],
    }
    paths[0].write_text(json.dumps(document, indent=1) + "\n")
    paths[1].write_text(libraries_markdown(curves, missing, machine))
    return paths


def libraries_markdown(
    curves: Sequence[LibraryCurve], missing: Sequence[str], machine: Machine
) -> str:
    lines = [
        "# Thread counts of numeric libraries under CPU quotas",
        "",
        "Written by `python -m slimscale.bench.native libraries`; do not edit.",
        "",
        f"- {machine.cores} CPUs ({machine.cpu_model}), Linux {machine.kernel}; load average"
        f" {min((c.load_average for c in curves), default=0):.1f} to"
        f" {max((c.load_average for c in curves), default=0):.1f}, the measured threads included",
        *(f"- {name}: {LIBRARIES[name].what}" for name in dict.fromkeys(c.library for c in curves)),
        *([f"- not installed here: {', '.join(missing)}"] if missing else []),
        "",
        "Rounds a second, median of the repeats; the best in bold. *x*: the best count's throughput"
        " over that of floor(quota), of one thread a core, and of 16 threads.",
        "",
    ]
    head = ["library", "quota", *(str(k) for k in THREADS), "x floor", "x cores", "x 16"]
    lines += [_row(head), "|---|" + "---:|" * (len(head) - 1)]
    for curve in curves:
        cells = [
            f"**{rate:,.0f}**" if count == curve.best_threads else f"{rate:,.0f}"
            for count, rate in zip(curve.threads, curve.rates, strict=True)
        ]
        gains = [
            curve.gain_over(count)
            for count in (floor_of_quota(curve.quota_cores), machine.cores, 16)
            if count in curve.threads
        ]
        lines.append(
            _row(
                [
                    curve.library,
                    f"{curve.quota_cores:g}",
                    *cells,
                    *(f"{gain:.2f}" for gain in gains),
                ]
            )
        )
    return "\n".join([*lines, ""])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
