"""Carrying out a plan: who runs when, what is written down, what a failing system does to the others."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from slimscale.bench.serving.gate import Gate
from slimscale.bench.serving.loadgen.job import Answered, Job
from slimscale.bench.serving.plan import Plan, groups_of
from slimscale.bench.serving.processes import ServerFailed, ServerProcess
from slimscale.bench.serving.records import Journal
from slimscale.bench.serving.runner import Runner
from slimscale.bench.serving.systems import Dialect, Missing
from slimscale.exceptions import SlimError


@dataclass
class Scene:
    """Everything that happened, in order."""

    events: list[str] = field(default_factory=list)
    running: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    failing: set[str] = field(default_factory=set)
    jobs: list[tuple[str, Job]] = field(default_factory=list)


class FakeProcess:
    """Stands for one server: says when it is paused and resumed."""

    def __init__(self, scene: Scene, name: str) -> None:
        self.role, self._scene, self._name = "server", scene, name

    def pids(self) -> list[int]:
        return []

    def check(self) -> None: ...

    def put_first(self) -> None: ...

    def pause(self) -> None:
        self._scene.running.discard(self._name)

    def resume(self) -> None:
        self._scene.running.add(self._name)


@dataclass
class FakeSystem:
    name: str
    scene: Scene
    pausable: bool = True
    path: str = "/"
    dialect: str = Dialect.V2
    port: int = 1
    headers: dict[str, str] = field(default_factory=dict)

    def prepare(self) -> None:
        if self.name in self.scene.missing:
            raise Missing("not installed: no such package")

    def start(self) -> None:
        self.scene.events.append(f"start {self.name}")
        if self.name in self.scene.failing:
            raise ServerFailed("ended with 1")
        self.scene.running.add(self.name)

    def stop(self) -> None:
        self.scene.events.append(f"stop {self.name}")
        self.scene.running.discard(self.name)

    def processes(self) -> Sequence[ServerProcess]:
        return (FakeProcess(self.scene, self.name),)  # type: ignore[return-value]


class FakeGenerator:
    """Answers every job at 100 a second; notes who was running."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def do(self, job: Job) -> Answered:
        (only,) = self._scene.running  # exactly one system runs at a time
        self._scene.jobs.append((only, job))
        count = int(100 * job.seconds)
        return Answered(
            latencies_micros=[1000] * count, right=count, in_window=count, in_time=count,
            window_seconds=job.seconds,
        )  # fmt: skip

    def cpu_seconds(self) -> float:
        return 0.0


class Silent:
    def begin(self, what: str, count: int) -> None: ...

    def step(self) -> None: ...


def plan_of(*systems: str, repetitions: int = 2) -> Plan:
    return Plan(
        systems=systems,
        groups=groups_of((1, 4), (0.5,), bursts=(), trace=False),
        repetitions=repetitions,
        seconds=1.0,
        warm_seconds=0.1,
        seed=1,
    )


def runner_of(
    scene: Scene, plan: Plan, journal: Journal, *, unpausable: str = "", gate: Gate | None = None
) -> Runner:
    def build(name: str) -> Any:
        return FakeSystem(name, scene, pausable=name != unpausable)

    no_verdict: Callable[..., Any] = lambda *_, **__: None  # noqa: E731
    return Runner(
        plan, journal, build=build, payloads={Dialect.V2: Path("p")},
        generator=FakeGenerator(scene),  # type: ignore[arg-type]
        verdict=no_verdict, gate=gate or Gate(),
    )  # fmt: skip


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.jsonl")


def test_one_system_runs_at_a_time_and_each_is_started_once(journal: Journal) -> None:
    scene = Scene()
    runner = runner_of(scene, plan_of("direct", "a", "b"), journal)
    assert runner.run(Silent(), until=math.inf)
    runner.close()
    assert sorted(scene.events) == sorted(
        [f"{what} {name}" for what in ("start", "stop") for name in ("direct", "a", "b")]
    )
    assert len(journal.cells) == 3 * 3 * 2  # systems, loads, repetitions
    assert {(c.system, c.load, c.repetition) for c in journal.cells} == {
        (s, load, r)
        for s in ("direct", "a", "b")
        for load in ("closed 1", "closed 4", "poisson 50%")
        for r in (0, 1)
    }


def test_what_does_not_bear_a_pause_is_stopped_after_each_turn(journal: Journal) -> None:
    scene = Scene()
    runner_of(scene, plan_of("direct", "ray"), journal, unpausable="ray").run(
        Silent(), until=math.inf
    )
    assert scene.events.count("start ray") == scene.events.count("stop ray") == 4


def test_a_stopped_run_goes_on_with_what_is_left(journal: Journal) -> None:
    plan = plan_of("direct", "a", repetitions=1)
    assert not runner_of(Scene(), plan, journal).run(Silent(), until=-math.inf)
    assert not journal.cells
    first = Scene()
    runner_of(first, plan, journal).run(Silent(), until=math.inf)
    again = Scene()
    assert runner_of(again, plan, Journal.load(journal.path)).run(Silent(), until=math.inf)
    assert first.jobs
    assert not again.jobs


def test_a_system_that_cannot_be_installed_is_named_and_the_others_are_measured(
    journal: Journal,
) -> None:
    scene = Scene(missing={"a"})
    runner = runner_of(scene, plan_of("direct", "a", "b"), journal)
    runner.prepare(Silent())
    runner.run(Silent(), until=math.inf)
    assert journal.missing == {"a": "not installed: no such package"}
    assert {cell.system for cell in journal.cells} == {"direct", "b"}
    assert "start a" not in scene.events


def test_a_system_that_fails_is_tried_once_a_call_and_keeps_its_reason(journal: Journal) -> None:
    scene = Scene(failing={"a"})
    runner_of(scene, plan_of("direct", "a"), journal).run(Silent(), until=math.inf)
    assert scene.events.count("start a") == 1
    assert journal.missing == {"a": "ended with 1"}
    assert len([cell for cell in journal.cells if cell.system == "direct"]) == 6


def test_without_the_unbatched_server_nothing_can_be_compared(journal: Journal) -> None:
    scene = Scene(failing={"direct"})
    with pytest.raises(SlimError, match="unbatched server fails"):
        runner_of(scene, plan_of("a", "direct"), journal).run(Silent(), until=math.inf)
    assert "a" not in journal.missing


def test_open_loops_are_set_from_the_capacity_of_their_own_block(journal: Journal) -> None:
    scene = Scene()
    runner_of(scene, plan_of("direct", "a"), journal).run(Silent(), until=math.inf)
    opened = [(name, job) for name, job in scene.jobs if job.arrivals_seconds]
    assert {cell.offered_per_second for cell in journal.cells if "poisson" in cell.load} == {50.0}
    assert len(journal.capacities) == 2
    # Both systems of a block get the very same arrivals, another repetition gets others.
    arrivals = [tuple(job.arrivals_seconds) for _, job in opened]
    assert arrivals[0] == arrivals[1]
    assert arrivals[2] == arrivals[3]
    assert arrivals[0] != arrivals[2]


def test_every_turn_goes_through_the_gate(journal: Journal, tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    scene = Scene()
    runner = runner_of(scene, plan_of("direct", "a"), journal, gate=Gate(lock))
    runner.run(Silent(), until=math.inf)
    assert lock.exists()
    runner.close()
    assert not lock.exists()
