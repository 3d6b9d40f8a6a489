"""The policies of the benchmark on the native pool: real threads, real quota, real time.

Each scenario is four loads one after the other under one quota. First the true curve of every load
is measured, then all policies run in a random order, one after the other. A count that never
changes does the same in every second of a phase: such policies get one tick a phase, which counts
for the whole phase.
"""

import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from slimscale.api.simworkload import SimWorkloadSpec
from slimscale.bench.autothread import AutoThread
from slimscale.bench.baselines.oracle import BestPerPhase, Given, best_static
from slimscale.bench.curves import PhaseCurves, curve_grid
from slimscale.bench.native.choices import rule_threads
from slimscale.bench.native.machine import read_machine, read_on_time
from slimscale.bench.native.plant import NativePlant
from slimscale.bench.policy import ThreadPolicy, within
from slimscale.bench.registry import STATICS, TUNERS, Setting
from slimscale.bench.runner import TICK_SECONDS, RunRecord, run_policy
from slimscale.simulate.load import LoadScenario
from slimscale.simulate.workload import Family, Host, TimeDistribution, Workload
from slimscale.threads.predictor import ThreadPredictor

__all__ = [
    "BEST_PER_PHASE",
    "PHASES",
    "TUNED",
    "autothread_spec",
    "measure_phases",
    "read_lines",
    "real_scenario",
    "run_scenario",
    "static_counts",
    "stretched",
]

_MICRO, _MILLI = 1e-6, 1e-3
_MOST_THREADS = 96
_CHANNEL_SECONDS = 0.7
"""The middle of the 0.2 to 1.2 s that an annotation takes into a pod; the pool's file adds 0.2."""
_VISITS, _VISIT_SECONDS, _SETTLING_SECONDS = 2, 0.3, 0.05
BEST_PER_PHASE = "best-per-phase"
TUNED = ("thread-reinforcer", "dotnet-hill-climbing", "sliding-window-ucb", "openmp-dynamic")
"""Of the registry's policies those that change the count as they go."""


def _exponential(seconds: float) -> TimeDistribution:
    return TimeDistribution(Family.EXPONENTIAL, seconds)


def _lognormal(seconds: float) -> TimeDistribution:
    return TimeDistribution(Family.LOGNORMAL, seconds, 1.0)


PHASES: dict[str, Workload] = {
    "light": Workload(
        cpu=_exponential(20 * _MICRO),
        blocking=_exponential(0.0),
        dispatch=TimeDistribution(Family.DETERMINISTIC, 10 * _MICRO),
    ),
    "blocking": Workload(
        cpu=_exponential(50 * _MICRO),
        blocking=_lognormal(5 * _MILLI),
        dispatch=TimeDistribution(Family.DETERMINISTIC, 20 * _MICRO),
    ),
    "heavy": Workload(
        cpu=_lognormal(2 * _MILLI),
        blocking=_exponential(0.0),
        dispatch=TimeDistribution(Family.DETERMINISTIC, 10 * _MICRO),
    ),
    "mixed": Workload(
        cpu=_exponential(300 * _MICRO),
        blocking=_exponential(2 * _MILLI),
        dispatch=_exponential(50 * _MICRO),
        contention_linear=0.05,
    ),
}
"""In this order; neighbours want unlike thread counts."""


def real_scenario(
    quota_cores: float | None, *, cores: int, phase_seconds: float, name: str = "real"
) -> LoadScenario:
    """Raises ValueError where a phase is not whole ticks."""
    if phase_seconds <= 0 or phase_seconds % TICK_SECONDS:
        raise ValueError(f"phase_seconds is {phase_seconds}; give a multiple of {TICK_SECONDS:g}")
    quota = "none" if quota_cores is None else f"{quota_cores:g}"
    return LoadScenario(
        name=f"{name}-quota-{quota}",
        host=Host(cores, quota_cores),
        phases=tuple((i * phase_seconds, load) for i, load in enumerate(PHASES.values())),
        duration_seconds=len(PHASES) * phase_seconds,
    )


def autothread_spec() -> SimWorkloadSpec:
    """The operator's defaults in a fifth of the time: phases here are seconds, not minutes."""
    return SimWorkloadSpec.model_validate(
        {
            "targetRef": {"name": "native"},
            "updatePolicy": {"mode": "InPlace"},
            "threads": {"max": _MOST_THREADS},
            "cpu": {"limitPolicy": "Keep"},
            "metrics": {"intervalSeconds": 1},
            "tuning": {"windowSeconds": 3, "minDwellSeconds": 4},
        }
    )


@dataclass(frozen=True, slots=True)
class _Entry:
    policy: ThreadPolicy
    moves: bool
    """It has to be run in full: what it does depends on the time."""


def static_counts(scenario: LoadScenario, curves: PhaseCurves) -> dict[str, int]:
    """By name: the registry's static rules; r, 1+r and Goetz from the first load's known parts."""
    setting = Setting(seed=0, host=scenario.host, curves=curves, trained_static=1)
    first = scenario.phases[0][1]
    reach = min(float(scenario.host.cores), scenario.host.quota_cores or np.inf)
    blocked = first.blocking.mean_seconds / max(first.cpu.mean_seconds, 1e-9)
    named = ("unset", "floor-of-quota", "fixed-8", "fixed-16", "fixed-32")
    return {
        **{name: STATICS[name](setting).start(scenario.host) for name in named},
        "r": within(rule_threads(first.ratio)),
        "1+r": within(rule_threads(1.0 + first.ratio)),
        "goetz": within(rule_threads(reach * (1.0 + blocked))),
        "best-static-hindsight": best_static(curves),
    }


def measure_phases(
    scenario: LoadScenario, *, program: Path, seed: int, most: int = _MOST_THREADS
) -> PhaseCurves:
    """Every load's curve on the machine: each count twice, in random order, 0.3 s each."""
    grid = curve_grid(most)
    rng = random.Random(seed)  # noqa: S311 - an order of measurements
    rates = []
    for _, workload in scenario.phases:
        with NativePlant(program, workload, scenario.host, seed=seed) as plant:
            done: dict[int, list[float]] = {count: [] for count in grid}
            for _ in range(_VISITS):
                for count in rng.sample(grid, len(grid)):
                    plant.set_threads(count)
                    plant.pool.raw()
                    time.sleep(_SETTLING_SECONDS)
                    before = plant.pool.raw()
                    time.sleep(_VISIT_SECONDS)
                    after = plant.pool.raw()
                    tasks = after["tasks_total"] - before["tasks_total"]
                    span = after["monotonic_seconds"] - before["monotonic_seconds"]
                    done[count].append(max(tasks, 1) / span)
            rates.append(np.array([np.mean(done[count]) for count in grid]))
    starts = tuple(start for start, _ in scenario.phases)
    ends = (*starts[1:], scenario.duration_seconds)
    lengths = tuple(end - start for start, end in zip(starts, ends, strict=True))
    return PhaseCurves(grid, starts, lengths, tuple(rates))


def run_scenario(
    scenario: LoadScenario,
    *,
    program: Path,
    output: Path,
    predictors: Mapping[str, ThreadPredictor],
    seed: int,
    most_seconds: float = float("inf"),
    progress: Callable[[str], object] = str,
) -> int:
    """Run what `output` does not have yet; returns how many runs were made. Needs root.

    `predictors`: of the operator, by the name of the policy that uses it.
    """
    read_on_time()
    end = time.monotonic() + most_seconds
    curves, known = _known(output, scenario, seed)
    if curves is None:
        if most_seconds <= 0:
            return 0
        progress("curves")
        curves = measure_phases(scenario, program=program, seed=seed)
        _append(output, {"scenario": scenario.name, "seed": seed, "curves": curves.to_json()})
    entries = _entries(scenario, curves, predictors, seed)
    order = sorted(entries.keys() - known)
    random.Random(seed).shuffle(order)  # noqa: S311
    made = 0
    for name in order:
        if time.monotonic() >= end:
            break
        progress(name)
        record = _run(scenario, entries[name], program=program, seed=seed)
        _append(output, {"scenario": scenario.name, "seed": seed, "run": record.to_json()})
        made += 1
    return made


def _entries(
    scenario: LoadScenario,
    curves: PhaseCurves,
    predictors: Mapping[str, ThreadPredictor],
    seed: int,
) -> dict[str, _Entry]:
    setting = Setting(seed=seed, host=scenario.host, curves=curves, trained_static=1)
    entries = {
        name: _Entry(
            AutoThread(
                name=name,
                spec=autothread_spec(),
                predictor=predictor,
                apply_delay_seconds=_CHANNEL_SECONDS,
            ),
            True,
        )
        for name, predictor in predictors.items()
    }
    entries |= {name: _Entry(TUNERS[name](setting), True) for name in TUNED}
    # One run for all names of one count.
    for count in sorted(set(static_counts(scenario, curves).values())):
        entries[f"static-{count}"] = _Entry(Given(f"static-{count}", threads=count), False)
    entries[BEST_PER_PHASE] = _Entry(BestPerPhase(_shortened_curves(curves)), False)
    return entries


def _run(scenario: LoadScenario, entry: _Entry, *, program: Path, seed: int) -> RunRecord:
    played = scenario if entry.moves else _shortened(scenario)
    with NativePlant(program, played.phases[0][1], played.host, seed=seed) as plant:
        record = run_policy(played, entry.policy, seed=seed, plant=plant.as_plant())
    if entry.moves:
        return record
    return stretched(record, ticks=round(scenario.phases[1][0] / TICK_SECONDS))


def _shortened(scenario: LoadScenario) -> LoadScenario:
    """One tick a phase."""
    return replace(
        scenario,
        phases=tuple((i * TICK_SECONDS, load) for i, (_, load) in enumerate(scenario.phases)),
        duration_seconds=len(scenario.phases) * TICK_SECONDS,
    )


def _shortened_curves(curves: PhaseCurves) -> PhaseCurves:
    count = len(curves.starts)
    return replace(
        curves,
        starts=tuple(i * TICK_SECONDS for i in range(count)),
        seconds=(TICK_SECONDS,) * count,
    )


def stretched(record: RunRecord, *, ticks: int) -> RunRecord:
    """Each tick counted `ticks` times in a row, with all that belongs to it."""
    return replace(
        record,
        tasks=tuple(n for n in record.tasks for _ in range(ticks)),
        threads=tuple(k for k in record.threads for _ in range(ticks)),
        changes=tuple((at * ticks, k) for at, k in record.changes),
        cpu_core_seconds=record.cpu_core_seconds * ticks,
        cpu_used_seconds=record.cpu_used_seconds * ticks,
    )


def _known(output: Path, scenario: LoadScenario, seed: int) -> tuple[PhaseCurves | None, set[str]]:
    curves, policies = None, set()
    for line in read_lines(output):
        if (line["scenario"], line["seed"]) != (scenario.name, seed):
            continue
        if "curves" in line:
            curves = PhaseCurves.from_json(line["curves"])
        else:
            policies.add(line["run"]["policy"])
    return curves, policies


def read_lines(output: Path) -> Sequence[Mapping[str, Any]]:
    """What has been measured so far; a line cut off by a crash is left out."""
    found = []
    for text in output.read_text().splitlines() if output.exists() else ():
        try:
            found.append(json.loads(text))
        except ValueError:
            continue
    return found


def _append(output: Path, line: Mapping[str, Any]) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    facts = {
        "machine": asdict(read_machine()),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "load_average": _load_average(),
    }
    with output.open("a") as file:
        file.write(json.dumps({**line, **facts}) + "\n")


def _load_average() -> float:
    return float(Path("/proc/loadavg").read_text().split()[0])
