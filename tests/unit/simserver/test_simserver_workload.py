"""The loop that owns the threads: phases, thread counts, closed-loop demand, faults."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest

from simserver import episodes, workload
from simserver.episodes import EnvironmentLoop, Pool, StepTask
from simserver.figures import Figures
from simserver.phases import Phase
from simserver.scenes import Environment
from simserver.settings import read_settings
from simserver.team import Block, LockstepTeam
from simserver.workload import Workload

NO_ENGINE = ("127.0.0.1", 1)


class WaitingPool:
    """Takes tasks and runs none until told to."""

    def __init__(self) -> None:
        self.waiting: list[tuple[StepTask, Environment, Future[bool]]] = []

    def submit(self, fn: StepTask, environment: Environment, /) -> Future[bool]:
        future: Future[bool] = Future()
        self.waiting.append((fn, environment, future))
        return future

    def finish(self, count: int) -> None:
        for fn, environment, future in self.waiting[:count]:
            if future.set_running_or_notify_cancel():
                future.set_result(fn(environment))
        self.waiting = self.waiting[count:]


class FakeContract:
    cores = 2.0

    def __init__(self, pool: Pool, threads: int = 2) -> None:
        self.pool = pool
        self.threads = threads
        self.applied: list[int] = []
        self.blocks: list[Block] = []

    def wanted_threads(self) -> int:
        return self.threads

    def apply(self, threads: int) -> None:
        self.applied.append(threads)

    def record(self, block: Block) -> None:
        self.blocks.append(block)

    def outstanding(self, tasks: int) -> None:
        self.lockstep_outstanding = tasks


class Bench:
    """A workload on real threads, with slices short enough for a test."""

    def __init__(self, pool: Pool) -> None:
        self.contract = FakeContract(pool)
        self.figures = Figures()
        environ = {"SIMSERVER_HEAVY_STEPS": "2", "SIMSERVER_BLOCKING_STEPS": "2"}
        self.workload = Workload(
            read_settings(environ), self.contract, self.figures, engine=NO_ENGINE
        )

    def run_until_steps(self, phase: Phase) -> None:
        for _ in range(200):
            self.workload.slice(phase)
            if self.steps(phase):
                return

    def steps(self, phase: Phase) -> int:
        return self.figures.steps()[phase]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(workload, "SLICE_SECONDS", 0.02)
    monkeypatch.setattr(workload, "BLOCK_SECONDS", 0.005)
    monkeypatch.setattr(workload, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(episodes, "ENGINE_RETRY_SECONDS", 0.0)
    with ThreadPoolExecutor(2) as pool:
        made = Bench(pool)
        yield made
        made.workload.close()


@pytest.mark.parametrize("phase", [Phase.LIGHT, Phase.HEAVY])
def test_a_phase_does_steps_and_counts_them_as_its_own(bench: Bench, phase: Phase) -> None:
    bench.run_until_steps(phase)
    others = [p for p in Phase if p is not phase]
    assert bench.steps(phase) > 0
    assert [bench.steps(p) for p in others] == [0, 0, 0]
    assert f'simserver_phase{{phase="{phase}"}} 1' in bench.figures.render()


def test_paused_does_no_step_at_all(bench: Bench) -> None:
    bench.workload.slice(Phase.PAUSED)
    assert set(bench.figures.steps().values()) == {0}
    assert bench.contract.blocks == []


def test_a_new_thread_count_is_acknowledged_only_with_the_work_that_uses_it(bench: Bench) -> None:
    bench.workload.slice(Phase.LIGHT)
    bench.contract.threads = 3
    assert bench.contract.applied == [2]
    bench.workload.slice(Phase.LIGHT)
    assert bench.contract.applied == [2, 3]
    assert "simserver_threads 3" in bench.figures.render()


def test_lock_step_tasks_report_what_the_contract_asks_for(bench: Bench) -> None:
    bench.workload.slice(Phase.LIGHT)
    block = bench.contract.blocks[0]
    assert block.tasks == 8 * block.rounds
    assert 0 < block.task_seconds < 1e-3
    assert block.dispatch_seconds > 0


def test_lock_step_work_is_outstanding_in_its_own_phase_only(bench: Bench) -> None:
    bench.workload.slice(Phase.LIGHT)
    assert bench.contract.lockstep_outstanding == 256
    bench.workload.slice(Phase.PAUSED)
    assert bench.contract.lockstep_outstanding == 0


def test_an_engine_that_is_gone_is_counted_and_makes_no_steps(bench: Bench) -> None:
    bench.workload.slice(Phase.BLOCKING)
    bench.workload.slice(Phase.PAUSED)
    assert bench.steps(Phase.BLOCKING) == 0
    failed = next(
        line for line in bench.figures.render().splitlines()
        if line.startswith("simserver_engine_errors_total")
    )  # fmt: skip
    assert int(failed.split()[1]) > 0


@pytest.mark.parametrize(("threads", "outstanding"), [(1, 128), (16, 128), (64, 256)])
def test_there_is_always_more_work_than_threads(threads: int, outstanding: int) -> None:
    pool = WaitingPool()
    EnvironmentLoop(pool, seed=1).run(lambda _: True, 0.0, threads=threads)
    assert len(pool.waiting) == outstanding


def test_fewer_threads_later_let_the_surplus_run_out() -> None:
    pool = WaitingPool()
    loop = EnvironmentLoop(pool, seed=1)
    loop.run(lambda _: True, 0.0, threads=64)
    pool.finish(100)
    loop.run(lambda _: True, 0.002, threads=1)
    assert len(pool.waiting) == 256 - 100


def test_leaving_a_phase_drops_what_has_not_begun_and_counts_what_was_done() -> None:
    pool = WaitingPool()
    loop = EnvironmentLoop(pool, seed=1)
    loop.run(lambda _: True, 0.0, threads=1)
    pool.finish(5)
    count = loop.drain(1.0)
    assert (count.done, count.failed) == (5, 0)
    assert all(future.cancelled() for _, _, future in pool.waiting)
    loop.run(lambda _: True, 0.0, threads=1)
    assert len(pool.waiting) == (128 - 5) + 128


def test_the_same_seed_gives_the_same_motion() -> None:
    def heights() -> list[float]:
        pool = WaitingPool()
        EnvironmentLoop(pool, seed=7).run(episodes.HeavyStep(20), 0.0, threads=1)
        environments = [environment for _, environment, _ in pool.waiting]
        pool.finish(128)
        return [float(e.data.qpos[2]) for e in environments]

    first = heights()
    assert heights() == first
    assert len(set(first)) == 128


def test_a_team_gives_the_same_states_as_the_caller_alone() -> None:
    def states(threads: int) -> object:
        team = LockstepTeam(environments=4, batch=4, threads=threads, rng=np.random.default_rng(3))
        team._act()
        for _ in range(20):
            team._step(team._team)
        team.close()
        return team._state.tolist()

    assert states(3) == states(1)
