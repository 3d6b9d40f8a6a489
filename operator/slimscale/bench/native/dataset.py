"""Measured curves as small files that are committed, and back.

`curves.csv.gz` has a row a curve, `points.csv.gz` a row a repeat at one thread count, and
`histograms.csv.gz` the task and dispatch times of all repeats at one thread count together.
"""

import csv
import gzip
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slimscale.bench.native.plan import Curve, bounded_curve
from slimscale.bench.native.sweep import Point
from slimscale.domain.contract import ContractSample, HistogramSnapshot
from slimscale.inpod.recorder import BUCKET_BOUNDS_SECONDS
from slimscale.simulate.workload import Family, Host, TimeDistribution, Waiting, Workload
from slimscale.threads.sampling import difference
from slimscale.threads.window import WorkloadWindow, aggregate

__all__ = ["DEFAULT_FOLDER", "MeasuredCurve", "load_curves", "load_machine", "write_dataset"]

FloatArray = NDArray[np.float64]

DEFAULT_FOLDER = Path(__file__).resolve().parents[4] / "data" / "native-curves"
"""In a checkout; an installed package has no measured data."""

_BOUNDS_SECONDS = (*BUCKET_BOUNDS_SECONDS, math.inf)
_PARTS = ("cpu", "blocking", "dispatch")
_POINT_COLUMNS = (
    "repeat", "threads", "seconds", "tasks", "task_seconds", "task_cpu_seconds",
    "task_runqueue_seconds", "blocked_seconds", "dispatch_seconds", "cpu_usage_seconds", "periods",
    "throttled_periods", "throttled_seconds", "steal_seconds", "load_average",
    "drawn_cpu_seconds", "drawn_blocking_seconds", "drawn_dispatch_seconds",
)  # fmt: skip
_LEAST_CUT = 0.8
_MOST_TAKEN = 0.6
"""Of the CPU, by others."""
_ALWAYS_READY, _ENOUGH_READY = 0.9, 2.5
"""Share of the threads that are ready on average, and ready threads a CPU, from which no CPU is
ever without one."""
_READY = 512.0
"""Outstanding beside the threads where the load has no bound (images/nativepool/pool.c)."""


@dataclass(frozen=True)
class MeasuredCurve:
    """One curve with its repeats. Throughputs in tasks a second."""

    curve: Curve
    cores: int
    points: tuple[Point, ...]
    """Without their histograms, which are kept for all repeats together."""
    histograms: Mapping[int, tuple[tuple[int, ...], tuple[int, ...]]]
    """By thread count: task and dispatch times, counts by bucket."""

    @property
    def host(self) -> Host:
        return Host(self.cores, self.curve.quota_cores)

    @property
    def cores_in_reach(self) -> float:
        quota = self.curve.quota_cores
        return min(float(self.cores), quota) if quota is not None else float(self.cores)

    @cached_property
    def threads(self) -> tuple[int, ...]:
        return tuple(sorted({p.threads for p in self.points}))

    @cached_property
    def raw_repeats(self) -> FloatArray:
        """Tasks over seconds as they were, shape (len(threads), repeats)."""
        rows = [
            [p.tasks / p.seconds for p in self.points if p.threads == count]
            for count in self.threads
        ]
        return np.array(rows, dtype=np.float64)

    @cached_property
    def repeats(self) -> FloatArray:
        """What the repeats would have done by themselves: without chance, alone on the machine.

        - A window of 0.2 s draws a few hundred tasks, whose mean differs from the load's. The
          closed network says what so much longer or shorter tasks do to the throughput (a control
          variate: the model only weighs a difference that is known exactly).
        - Where every period was throttled the CPU used is the quota in the long run, whatever part
          of a period the window cut off.
        - Others ran on the machine too. Where no thread could wait for one of its own, waiting for
          a CPU was their doing; where all threads were ready all the time, all CPUs would have been
          used.

        Shape as raw.
        """
        rows = [
            [
                p.tasks / p.seconds * self._luck(p) * self._standstill(p) * self._company(p)
                for p in self.points
                if p.threads == count
            ]
            for count in self.threads
        ]
        return np.array(rows, dtype=np.float64)

    def _standstill(self, point: Point) -> float:
        quota, used = self.curve.quota_cores, point.cpu_usage_seconds
        throttled, periods = point.throttled_periods, point.periods
        if quota is None or not used or not periods or throttled is None:
            return 1.0
        if quota > self.cores or throttled < periods:
            return 1.0
        found = quota * point.seconds / used
        # Further off, the two readings of task counter and group were themselves apart.
        return found if _LEAST_CUT <= found <= 1.0 / _LEAST_CUT else 1.0

    def _company(self, point: Point) -> float:
        """What others on the machine took of the throughput, as a factor."""
        queued, used = point.task_runqueue_seconds, point.cpu_usage_seconds
        if queued is None or not used or self.curve.workload.waiting is Waiting.SPIN:
            return 1.0
        life = point.threads * point.seconds
        reach = self.cores_in_reach
        if point.threads <= min(reach, self.cores):
            return 1.0 / (1.0 - min(queued / life, _MOST_TAKEN))
        ready = (point.task_cpu_seconds + queued + point.dispatch_seconds) / life
        crowded = ready > _ALWAYS_READY or ready * point.threads > _ENOUGH_READY * self.cores
        stopped = bool(point.throttled_periods) and reach < self.cores
        if not crowded or stopped:
            return 1.0
        return min(max(reach * point.seconds / used, 1.0), 1.0 / (1.0 - _MOST_TAKEN))

    def _luck(self, point: Point) -> float:
        """Throughput with the load's means over throughput with those drawn, by the model."""
        if not point.tasks:
            return 1.0
        load = self.curve.workload
        drawn = replace(
            load,
            cpu=_of_mean(load.cpu, point.drawn_cpu_seconds / point.tasks),
            blocking=_of_mean(load.blocking, point.drawn_blocking_seconds / point.tasks),
            dispatch=_of_mean(load.dispatch, point.drawn_dispatch_seconds / point.tasks),
        )
        found = self._model(drawn, point.threads)[-1]
        return float(self._asked[point.threads - 1] / found)

    def _model(self, load: Workload, most: int) -> FloatArray:
        return bounded_curve(load, most, cores=self.cores, quota_cores=self.curve.quota_cores)

    @cached_property
    def _asked(self) -> FloatArray:
        return self._model(self.curve.workload, max(self.threads))

    @cached_property
    def rates(self) -> FloatArray:
        """Median of the repeats at each of `threads`."""
        return np.asarray(np.median(self.repeats, axis=1), dtype=np.float64)

    def rate_at(self, threads: int) -> float:
        """Between the counts that were measured, measured over modelled is even in log k.

        The closed network gives the bend between two counts, the measurement the height. Beyond
        the largest count its own rate is taken.
        """
        count = min(max(threads, 1), max(self.threads))
        shares = self.rates / self._asked[np.array(self.threads) - 1]
        share = np.interp(math.log(count), np.log(self.threads), np.log(np.maximum(shares, 1e-9)))
        return float(np.exp(share) * self._asked[count - 1])

    def samples_at(self, threads: int) -> tuple[ContractSample, ContractSample]:
        """What two looks at a pod with that count would have shown: all repeats in a row."""
        there = [p for p in self.points if p.threads == threads]
        task, dispatch = self.histograms[threads]
        outstanding = float(self.curve.workload.outstanding or threads + _READY)
        nothing = ContractSample(
            pod_uid=self.curve.name,
            sampled_at_seconds=1.0,
            process_start_seconds=0.0,
            threads_applied=threads,
            tasks_total=0.0,
            tasks_outstanding=outstanding,
            task=_snapshot((0,) * len(task), 0.0),
            dispatch=_snapshot((0,) * len(dispatch), 0.0),
            task_cpu_seconds_total=0.0,
            task_runqueue_seconds_total=_zero(_sum(there, "task_runqueue_seconds")),
            cpu_quota_cores=self.curve.quota_cores,
            cpu_usage_seconds_total=_zero(_sum(there, "cpu_usage_seconds")),
            cpu_periods_total=_zero(_sum(there, "periods")),
            cpu_throttled_periods_total=_zero(_sum(there, "throttled_periods")),
            cpu_throttled_seconds_total=_zero(_sum(there, "throttled_seconds")),
        )
        after = ContractSample(
            pod_uid=self.curve.name,
            sampled_at_seconds=1.0 + sum(p.seconds for p in there),
            process_start_seconds=0.0,
            threads_applied=threads,
            tasks_total=float(sum(p.tasks for p in there)),
            tasks_outstanding=outstanding,
            task=_snapshot(task, sum(p.task_seconds for p in there)),
            dispatch=_snapshot(dispatch, sum(p.dispatch_seconds for p in there)),
            task_cpu_seconds_total=sum(p.task_cpu_seconds for p in there),
            task_runqueue_seconds_total=_sum(there, "task_runqueue_seconds"),
            cpu_quota_cores=self.curve.quota_cores,
            cpu_usage_seconds_total=_sum(there, "cpu_usage_seconds"),
            cpu_periods_total=_sum(there, "periods"),
            cpu_throttled_periods_total=_sum(there, "throttled_periods"),
            cpu_throttled_seconds_total=_sum(there, "throttled_seconds"),
        )
        return nothing, after

    def window_at(self, threads: int) -> WorkloadWindow | None:
        """The operator's view of these repeats; None where no task ended."""
        before, after = self.samples_at(threads)
        pair = difference(after, before)
        return aggregate([pair], with_shape=True) if pair is not None and pair.tasks > 0 else None


def _of_mean(time: TimeDistribution, mean_seconds: float) -> TimeDistribution:
    return replace(time, mean_seconds=mean_seconds)


def _snapshot(counts: Sequence[int], sum_seconds: float) -> HistogramSnapshot:
    cumulative = tuple(float(c) for c in accumulate(counts))
    return HistogramSnapshot(_BOUNDS_SECONDS, cumulative, sum_seconds)


def _sum(points: Iterable[Point], name: str) -> float | None:
    values = [getattr(p, name) for p in points]
    return None if None in values else float(sum(values))


def _zero(value: float | None) -> float | None:
    return None if value is None else 0.0


def write_dataset(raw: Path, folder: Path) -> int:
    """From the lines of `sweep` to the committed form; returns the number of curves."""
    lines = [json.loads(line) for line in raw.read_text().splitlines() if line.endswith("}")]
    lines.sort(key=lambda line: line["curve"]["name"])
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "curves.csv.gz", [_curve_row(line) for line in lines])
    points, histograms = [], []
    for line in lines:
        name = line["curve"]["name"]
        points += [
            {"curve": name} | {c: _short(point[c]) for c in _POINT_COLUMNS}
            for point in line["points"]
        ]
        for count in sorted({p["threads"] for p in line["points"]}):
            there = [p for p in line["points"] if p["threads"] == count]
            histograms.append(
                {
                    "curve": name,
                    "threads": count,
                    "task": _sparse([p["task_counts"] for p in there]),
                    "dispatch": _sparse([p["dispatch_counts"] for p in there]),
                }
            )
    _write(folder / "points.csv.gz", points)
    _write(folder / "histograms.csv.gz", histograms)
    loads = [p["load_average"] for line in lines for p in line["points"]]
    stolen = sum(p["steal_seconds"] for line in lines for p in line["points"])
    facts = {
        "machine": lines[0]["machine"],
        "curves": len(lines),
        "first_measured_at": min(line["measured_at"] for line in lines),
        "last_measured_at": max(line["measured_at"] for line in lines),
        "load_average": {
            "least": min(loads),
            "median": float(np.median(loads)),
            "most": max(loads),
        },
        "steal_seconds": round(stolen, 2),
        "measured_seconds": round(sum(p["seconds"] for ln in lines for p in ln["points"]), 1),
    }
    (folder / "machine.json").write_text(json.dumps(facts, indent=1) + "\n")
    return len(lines)


def _curve_row(line: Mapping[str, Any]) -> dict[str, object]:
    curve, workload = line["curve"], line["curve"]["workload"]
    row: dict[str, object] = {
        "curve": curve["name"],
        "kind": curve["kind"],
        "shape": curve["shape"],
        "family": curve["family"],
        "split": curve["split"],
        "quota_cores": _blank(curve["quota_cores"]),
        "cores": line["machine"]["cores"],
        "waiting": workload["waiting"],
        "outstanding": _blank(workload["outstanding"]),
        "contention_linear": _short(workload["contention_linear"]),
        "contention_quadratic": _short(workload["contention_quadratic"]),
    }
    for part in _PARTS:
        row[f"{part}_family"] = workload[part]["family"]
        row[f"{part}_seconds"] = _short(workload[part]["mean_seconds"])
        row[f"{part}_squared_variation"] = _short(workload[part]["squared_variation"])
    row["seed"] = curve["seed"]
    row["measured_at"] = line["measured_at"]
    return row


def _short(value: float | None) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.7g}"


def _blank(value: object) -> str:
    return "" if value is None else str(value)


def _sparse(rows: Sequence[Sequence[int]]) -> str:
    """ "bucket:count" of the buckets that are not empty."""
    total = np.sum(np.asarray(rows), axis=0)
    return " ".join(f"{i}:{int(n)}" for i, n in enumerate(total) if n)


def _dense(text: str) -> tuple[int, ...]:
    counts = [0] * len(_BOUNDS_SECONDS)
    for item in text.split():
        bucket, _, count = item.partition(":")
        counts[int(bucket)] = int(count)
    return tuple(counts)


def _write(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    # Without a time stamp: the same measurements are the same bytes.
    path.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))


def _read(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", newline="") as file:
        return list(csv.DictReader(file))


def load_machine(folder: Path = DEFAULT_FOLDER) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((folder / "machine.json").read_text())
    return facts


def load_curves(folder: Path = DEFAULT_FOLDER) -> list[MeasuredCurve]:
    """All curves, by name. Raises FileNotFoundError where there are none."""
    points: dict[str, list[Point]] = {}
    for row in _read(folder / "points.csv.gz"):
        points.setdefault(row["curve"], []).append(_point(row))
    histograms: dict[str, dict[int, tuple[tuple[int, ...], tuple[int, ...]]]] = {}
    for row in _read(folder / "histograms.csv.gz"):
        there = histograms.setdefault(row["curve"], {})
        there[int(row["threads"])] = (_dense(row["task"]), _dense(row["dispatch"]))
    return [
        MeasuredCurve(
            curve=_curve(row, points[row["curve"]]),
            cores=int(row["cores"]),
            points=tuple(points[row["curve"]]),
            histograms=histograms[row["curve"]],
        )
        for row in _read(folder / "curves.csv.gz")
    ]


_WHOLE = frozenset({"repeat", "threads", "tasks", "periods", "throttled_periods"})


def _point(row: Mapping[str, str]) -> Point:
    fields: dict[str, Any] = {
        name: None if row[name] == "" else int(row[name]) if name in _WHOLE else float(row[name])
        for name in _POINT_COLUMNS
    }
    return Point(**fields, task_counts=(), dispatch_counts=())


def _curve(row: Mapping[str, str], points: Sequence[Point]) -> Curve:
    parts = {
        part: TimeDistribution(
            Family(row[f"{part}_family"]),
            float(row[f"{part}_seconds"]),
            float(row[f"{part}_squared_variation"]),
        )
        for part in _PARTS
    }
    seconds: dict[int, float] = {}
    for point in points:
        seconds.setdefault(point.threads, round(point.seconds, 1))
    return Curve(
        name=row["curve"],
        kind=row["kind"],
        shape=Family(row["shape"]),
        workload=Workload(
            cpu=parts["cpu"],
            blocking=parts["blocking"],
            dispatch=parts["dispatch"],
            contention_linear=float(row["contention_linear"]),
            contention_quadratic=float(row["contention_quadratic"]),
            waiting=Waiting(row["waiting"]),
            outstanding=int(row["outstanding"]) if row["outstanding"] else None,
        ),
        quota_cores=float(row["quota_cores"]) if row["quota_cores"] else None,
        threads=tuple(sorted(seconds)),
        seconds=tuple(seconds[count] for count in sorted(seconds)),
        seed=int(row["seed"]),
    )
