"""A whole benchmark: curves, training of the trained baselines, then every run, on a few processes.

What is done is on disk at once: an interrupted benchmark goes on where it stopped. A result counts
for the code that made it: after a change of that code it is made again.
"""

import hashlib
import json
import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

import slimscale
from slimscale.bench.baselines.boosted import LabelledLoad, draw_labelled_load, train_trees
from slimscale.bench.baselines.oracle import best_static_over
from slimscale.bench.curves import PhaseCurves, measure_phases
from slimscale.bench.registry import Setting, build
from slimscale.bench.results import Results
from slimscale.bench.runner import RunRecord, run_policy
from slimscale.bench.scenarios import training_scenarios
from slimscale.simulate.load import LoadScenario

__all__ = ["Plan", "Progress", "code_digest", "code_version", "no_progress", "run_plan"]

CURVE_SEED = 7
TRAINING_OFFSET = 1_000_003
"""Added to the suite's seed for what the trained baselines learn from: never the test's loads."""
PACKAGE = Path(slimscale.__file__).parent
_SIMULATED = tuple(
    f"simulate/{name}.py"
    for name in ("distributions", "engine", "measure", "observe", "plant", "state", "workload")
)
_BASE = (*_SIMULATED, "bench/curves.py")
_TRAINED = ("threads", "bench/loads.py", "bench/scenarios.py", "bench/baselines/boosted.py")
_RUN = (*_BASE, "bench/policy.py", "bench/runner.py", "bench/baselines")
_TUNED = (*_RUN, "bench/autothread.py", "threads", "api/simworkload.py", "weights")
_USES_THREADS = ("autothread", "analytic", "xgboost")

T = TypeVar("T")
R = TypeVar("R")


class Progress(Protocol):
    """Told what is going on: a bar on a terminal, nothing in tests."""

    def begin(self, what: str, count: int) -> None: ...

    def step(self) -> None: ...


class _NoProgress:
    def begin(self, what: str, count: int) -> None:
        pass

    def step(self) -> None:
        pass


def no_progress() -> Progress:
    return _NoProgress()


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run. `folder` keeps curves, training data and runs between calls."""

    scenarios: tuple[LoadScenario, ...]
    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    suite_seed: int
    folder: Path
    processes: int = 2
    training_loads: int = 600
    most_seeds: Mapping[str, int] = field(default_factory=dict)
    """Policies that run on the first so many seeds only."""


@dataclass(slots=True)
class _Store:
    """JSON lines by key; a line of another code version is as good as none."""

    path: Path
    found: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def load(path: Path) -> "_Store":
        store = _Store(path)
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    entry = json.loads(line)
                    store.found[entry["key"]] = entry["value"]
                except (ValueError, KeyError, TypeError):
                    continue  # the line that an interruption cut off
        return store

    def add(self, key: str, value: Any) -> None:
        self.found[key] = value
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": key, "value": value}, allow_nan=False) + "\n")


def run_plan(plan: Plan, progress: Progress) -> Results:
    """Run what is missing and return everything that the plan asks for."""
    with _workers(plan.processes) as pool:
        curves = _curves(plan, plan.scenarios, pool, progress)
        statics = _trained_statics(plan, pool, progress)
        trees = _trees(plan, pool, progress)
        learned = _Learned(curves, statics, trees)
        records = _runs(plan, learned, pool, progress)
    return Results.of(records, curves)


Pool = ProcessPoolExecutor | None


@contextmanager
def _workers(processes: int) -> Iterator[Pool]:
    """None for one process: everything runs here, which is what a debugger and a test want."""
    if processes <= 1:
        yield None
        return
    context = get_context("spawn")
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_end_with_parent)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _end_with_parent() -> None:
    """A benchmark that is ended from outside leaves no worker behind."""
    parent = parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def _each(
    work: Callable[[T], R], items: Sequence[T], pool: Pool, progress: Progress
) -> Iterator[tuple[T, R]]:
    """(item, result) as they come; the order is kept only without a pool."""
    if pool is None:
        for item in items:
            yield item, work(item)
            progress.step()
        return
    waiting: dict[Future[R], T] = {pool.submit(work, item): item for item in items}
    for future in as_completed(waiting):
        yield waiting[future], future.result()
        progress.step()


def _curves(
    plan: Plan, scenarios: Iterable[LoadScenario], pool: Pool, progress: Progress
) -> dict[str, PhaseCurves]:
    store = _Store.load(plan.folder / "curves.jsonl")
    keys = {s.name: _key("curve", _BASE, repr(s)) for s in scenarios}
    missing = [s for s in scenarios if keys[s.name] not in store.found]
    progress.begin("true curves of the phases", len(missing))
    for scenario, curves in _each(_measure, missing, pool, progress):
        store.add(keys[scenario.name], curves.to_json())
    return {name: PhaseCurves.from_json(store.found[key]) for name, key in keys.items()}


def _measure(scenario: LoadScenario) -> PhaseCurves:
    return measure_phases(scenario, seed=CURVE_SEED)


def _trained_statics(plan: Plan, pool: Pool, progress: Progress) -> dict[str, int]:
    """For each scenario the static count that was best on the training scenarios of its host."""
    if "best-static-trained" not in plan.policies:
        return {scenario.name: 1 for scenario in plan.scenarios}
    seed = plan.suite_seed + TRAINING_OFFSET
    sets = {s.host: training_scenarios(s.host, seed) for s in plan.scenarios}
    named = [scenario for both in sets.values() for scenario in both]
    curves = _curves(plan, named, pool, progress)
    best = {
        host: best_static_over([curves[scenario.name] for scenario in both])
        for host, both in sets.items()
    }
    return {scenario.name: best[scenario.host] for scenario in plan.scenarios}


def _trees(plan: Plan, pool: Pool, progress: Progress) -> str:
    if not any(name.startswith("xgboost") for name in plan.policies):
        return ""
    seed = plan.suite_seed + TRAINING_OFFSET
    store = _Store.load(plan.folder / "training.jsonl")
    sources = (*_BASE, *_TRAINED)
    keys = {index: _key("load", sources, seed, index) for index in range(plan.training_loads)}
    missing = [(seed, index) for index, key in keys.items() if key not in store.found]
    progress.begin("loads to train XGBoost on", len(missing))
    for (_, index), labelled in _each(_label, missing, pool, progress):
        value = None if labelled is None else [labelled.features, labelled.log_threads]
        store.add(keys[index], value)
    found = [store.found[key] for key in keys.values()]
    loads = [LabelledLoad(tuple(map(tuple, rows)), best) for rows, best in filter(None, found)]
    return train_trees(loads, seed=seed)


def _label(item: tuple[int, int]) -> LabelledLoad | None:
    return draw_labelled_load(*item)


_NO_CURVES = PhaseCurves((1,), (0.0,), (1.0,), (np.ones(1),))
"""For a policy that is only made to see its parameters."""


@dataclass(frozen=True, slots=True)
class _Unit:
    """One scenario and seed with the policies that still have to run on it."""

    scenario: LoadScenario
    policies: tuple[str, ...]
    setting: Setting


@dataclass(frozen=True, slots=True)
class _Learned:
    """What the runs are made with. By scenario: its true curves, its host's trained static."""

    curves: dict[str, PhaseCurves]
    statics: dict[str, int]
    trees: str


def _runs(plan: Plan, learned: _Learned, pool: Pool, progress: Progress) -> list[RunRecord]:
    store = _Store.load(plan.folder / "runs.jsonl")
    keys: dict[tuple[str, int, str], str] = {}
    units: list[_Unit] = []
    for number, seed in enumerate(plan.seeds):
        wanted = [p for p in plan.policies if number < plan.most_seeds.get(p, len(plan.seeds))]
        for scenario in plan.scenarios:
            trained = learned.statics[scenario.name]
            for policy in wanted:
                sources = _TUNED if policy.startswith(_USES_THREADS) else _RUN
                keys[(scenario.name, seed, policy)] = _key(
                    policy,
                    sources,
                    repr(scenario),
                    seed,
                    repr(build(policy, Setting(seed, scenario.host, _NO_CURVES, trained))),
                    plan.training_loads if policy.startswith("xgboost") else 0,
                )
            left = tuple(p for p in wanted if keys[(scenario.name, seed, p)] not in store.found)
            if left:
                setting = Setting(
                    seed, scenario.host, learned.curves[scenario.name], trained, learned.trees
                )
                units.append(_Unit(scenario, left, setting))
    progress.begin("runs: a scenario with a seed, all policies", len(units))
    for _, records in _each(_run, units, pool, progress):
        for record in records:
            store.add(keys[(record.scenario, record.seed, record.policy)], record.to_json())
    return [RunRecord.from_json(store.found[key]) for key in keys.values()]


def _run(unit: _Unit) -> list[RunRecord]:
    """Policies that are never asked and begin with the same count do the same: they share a run."""
    records: list[RunRecord] = []
    of_count: dict[int, RunRecord] = {}
    for name in unit.policies:
        policy = build(name, unit.setting)
        never_asked = math.isinf(policy.step_seconds)
        threads = policy.start(unit.scenario.host) if never_asked else 0
        record = of_count.get(threads) if never_asked else None
        if record is None:
            record = run_policy(unit.scenario, policy, seed=unit.setting.seed)
        if never_asked:
            of_count[threads] = record
        records.append(replace(record, policy=name))
    return records


def code_version() -> str:
    """A digest of all code that the figures depend on."""
    return _code(_TUNED)[:12]


def code_digest(sources: tuple[str, ...]) -> str:
    """Of those files and folders of the package: results of other code count for nothing."""
    return _code(sources)[:12]


def _key(what: str, sources: tuple[str, ...], *parts: object) -> str:
    text = "|".join((what, _code(sources), *map(str, parts)))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


_CODE: dict[tuple[str, ...], str] = {}


def _code(sources: tuple[str, ...]) -> str:
    """Digest of those source files, as they were when first asked for in this process."""
    if sources not in _CODE:
        digest = hashlib.sha256()
        for source in sources:
            path = PACKAGE / source
            files = sorted(path.rglob("*")) if path.is_dir() else [path]
            for file in files:
                if file.is_file() and file.suffix in {".py", ".json", ".safetensors"}:
                    digest.update(file.relative_to(PACKAGE).as_posix().encode())
                    digest.update(file.read_bytes())
        _CODE[sources] = digest.hexdigest()
    return _CODE[sources]
