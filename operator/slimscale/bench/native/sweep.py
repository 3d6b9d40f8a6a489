"""Measure curves: every repeat visits all thread counts of a curve in a fresh random order.

A noisy moment so hits all counts alike. One curve is one run of the program; its line is written
when it is whole, so a sweep that was stopped goes on where it was.
"""

import json
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from slimscale.bench.native.cgroups import CpuGroup
from slimscale.bench.native.machine import read_machine, read_on_time, steal_seconds
from slimscale.bench.native.plan import Curve
from slimscale.bench.native.program import NativePool
from slimscale.inpod.cgroup import CgroupCpu

__all__ = ["Point", "curve_line", "known_curves", "measure_curve", "point_between", "sweep"]

Number = TypeVar("Number", int, float)

_SHORTEST_SETTLING_SECONDS, _LONGEST_SETTLING_SECONDS = 0.03, 0.12
_CYCLES_TO_SETTLE = 3.0
_TRIES, _LATEST_SECONDS = 3, 0.11


@dataclass(frozen=True, slots=True)
class Point:
    """What one repeat at one thread count saw. Sums over its tasks; seconds."""

    repeat: int
    threads: int
    seconds: float
    tasks: int
    task_seconds: float
    task_cpu_seconds: float
    task_runqueue_seconds: float | None
    blocked_seconds: float
    dispatch_seconds: float
    cpu_usage_seconds: float | None
    periods: int | None
    throttled_periods: int | None
    throttled_seconds: float | None
    steal_seconds: float
    load_average: float
    drawn_cpu_seconds: float
    """What the tasks were told to take; how far its mean is from the load's is chance."""
    drawn_blocking_seconds: float
    drawn_dispatch_seconds: float
    task_counts: tuple[int, ...]
    """By bucket, not cumulative."""
    dispatch_counts: tuple[int, ...]


def sweep(
    curves: Sequence[Curve],
    *,
    program: Path,
    output: Path,
    repeats: int,
    most_seconds: float = float("inf"),
    progress: Callable[[Curve], object] = str,
) -> int:
    """Measure those that `output` does not have yet; returns how many were measured.

    Stops after `most_seconds`, between two curves. Raises QuotaError without root, PoolError.
    """
    read_on_time()
    known = known_curves(output)
    end, done = time.monotonic() + most_seconds, 0
    output.parent.mkdir(parents=True, exist_ok=True)
    for curve in curves:
        if curve.name not in known:
            if time.monotonic() >= end:
                break
            line = curve_line(curve, measure_curve(curve, program=program, repeats=repeats))
            with output.open("a") as file:
                file.write(json.dumps(line) + "\n")
            done += 1
        progress(curve)
    return done


def known_curves(output: Path) -> set[str]:
    """Names of the curves in a file of `sweep`; a last line cut off by a crash does not count."""
    if not output.exists():
        return set()
    names = set()
    for line in output.read_text().splitlines():
        try:
            names.add(json.loads(line)["curve"]["name"])
        except (ValueError, KeyError):
            continue
    return names


def measure_curve(curve: Curve, *, program: Path, repeats: int) -> list[Point]:
    rng = random.Random(curve.seed)  # noqa: S311 - an order of measurements
    workload, points = curve.workload, []
    cycle = (
        workload.cpu.mean_seconds + workload.blocking.mean_seconds + workload.dispatch.mean_seconds
    )
    settling = min(
        max(_CYCLES_TO_SETTLE * cycle, _SHORTEST_SETTLING_SECONDS), _LONGEST_SETTLING_SECONDS
    )
    seconds = dict(zip(curve.threads, curve.seconds, strict=True))
    rooted = os.geteuid() == 0
    with (
        CpuGroup(f"nativepool-{os.getpid()}") if rooted or curve.quota_cores else nullcontext() as (
            group
        )
    ):
        if group is not None:
            group.set_quota(curve.quota_cores)
            group.favour()
        with NativePool(program, workload, threads=1, seed=curve.seed, group=group) as pool:
            for repeat in range(repeats):
                for count in rng.sample(curve.threads, len(curve.threads)):
                    pool.want(count)
                    pool.raw()  # returns when the count is in effect
                    time.sleep(settling)
                    if group is not None and curve.quota_cores is not None:
                        _await_period(group)
                    points.append(_on_time(pool, seconds[count], repeat=repeat))
    return points


def _await_period(group: CpuGroup) -> None:
    """Return at the start of a quota period: one in which all was spent early ends in a standstill.

    The kernel's timer rests while nobody runs; then there is nothing to wait for.
    """
    before, end = group.figures().periods, time.monotonic() + _LATEST_SECONDS
    while group.figures().periods == before and time.monotonic() < end:
        time.sleep(0.002)


def _on_time(pool: NativePool, seconds: float, *, repeat: int) -> Point:
    """A window that came out much longer saw a moment in which nobody here got a CPU: once more."""
    for attempt in range(_TRIES):
        before, stolen = _look(pool), steal_seconds()
        time.sleep(seconds)
        after = _look(pool)
        point = point_between(
            before,
            after,
            repeat=repeat,
            steal_seconds=steal_seconds() - stolen,
            load_average=os.getloadavg()[0],
        )
        if point.seconds <= seconds + _LATEST_SECONDS or attempt == _TRIES - 1:
            return point
    raise AssertionError("the last try returns")


_Look = tuple[Mapping[str, Any], CgroupCpu]


def _look(pool: NativePool) -> _Look:
    return pool.raw(), pool.figures()


def point_between(
    before: _Look, after: _Look, *, repeat: int, steal_seconds: float, load_average: float
) -> Point:
    """The work between two looks at one program."""
    (raw, group), (later, group_later) = before, after

    def grown(name: str) -> float:
        return float(later[name] - raw[name])

    def counts(name: str) -> tuple[int, ...]:
        pairs = zip(raw[name]["counts"], later[name]["counts"], strict=True)
        return tuple(int(b - a) for a, b in pairs)

    return Point(
        repeat=repeat,
        threads=int(later["threads_applied"]),
        seconds=grown("monotonic_seconds"),
        tasks=int(later["tasks_total"] - raw["tasks_total"]),
        task_seconds=float(later["task"]["sum_seconds"] - raw["task"]["sum_seconds"]),
        task_cpu_seconds=grown("task_cpu_seconds"),
        task_runqueue_seconds=grown("task_runqueue_seconds")
        if "task_runqueue_seconds" in raw
        else None,
        blocked_seconds=grown("blocked_seconds"),
        dispatch_seconds=float(later["dispatch"]["sum_seconds"] - raw["dispatch"]["sum_seconds"]),
        cpu_usage_seconds=_less(group_later.usage_seconds, group.usage_seconds),
        periods=_less(group_later.periods, group.periods),
        throttled_periods=_less(group_later.throttled_periods, group.throttled_periods),
        throttled_seconds=_less(group_later.throttled_seconds, group.throttled_seconds),
        steal_seconds=steal_seconds,
        load_average=load_average,
        drawn_cpu_seconds=grown("drawn_cpu_seconds"),
        drawn_blocking_seconds=grown("drawn_blocking_seconds"),
        drawn_dispatch_seconds=grown("drawn_dispatch_seconds"),
        task_counts=counts("task"),
        dispatch_counts=counts("dispatch"),
    )


def _less(later: Number | None, earlier: Number | None) -> Number | None:
    return None if later is None or earlier is None else later - earlier


def curve_line(curve: Curve, points: Sequence[Point]) -> dict[str, object]:
    """One line of the output: the curve, the machine, all points."""
    return {
        "curve": {**asdict(curve), "family": curve.family, "split": curve.split},
        "machine": asdict(read_machine()),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "points": [asdict(point) for point in points],
    }
