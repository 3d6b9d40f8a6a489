"""One thread that runs its tasks itself pays no hand-over: what it does says nothing of two."""

from dataclasses import replace

from slimscale.domain.decision import Decision
from slimscale.domain.observation import Observation
from slimscale.threads.closed_network import NetworkParameters
from slimscale.threads.decide import decide
from tests.support.decide_cases import BLOCKING, fresh_decision, step_outcomes
from tests.support.observations import SyntheticWorkload, drive, make_histogram, make_spec

TEAM = NetworkParameters(0.0, 2e-6, 30e-6, 2.0, contention_linear=0.05)
"""A lock-step team: tasks of two microseconds, thirty to hand one over."""
ALONE_PER_SECOND = 400_000.0


class Team(SyntheticWorkload):
    """With one thread the caller works by itself; the page still tells what a hand-over costs."""

    def rate(self, threads: int, limit_millicores: int | None) -> float:
        if threads == 1:
            return ALONE_PER_SECOND
        return super().rate(threads, limit_millicores)

    def tick(self) -> None:
        before = self.samples[-1].dispatch
        super().tick()
        after = self.samples[-1]
        if self.threads == 1 and before is not None and after.tasks_total is not None:
            told = make_histogram(after.tasks_total, self.truth.dispatch_seconds)
            self.samples[-1] = replace(after, dispatch=told)


def run(team: SyntheticWorkload, ticks: int) -> list[Decision]:
    seen: list[Decision] = []
    drive(team, make_spec(), ticks, decide=decide, each=seen.append)
    return seen


def test_light_tasks_go_to_one_thread_and_stay_there() -> None:
    team = Team(TEAM, threads=16, limit_millicores=2000, node_cores=2.0)
    counts = [d.target.threads for d in run(team, 60) if d.target]
    assert counts[-1] == 1
    first = counts.index(1)
    assert set(counts[first:]) == {1}, counts


def unsaturated(observation: Observation, *, only_in_between: bool) -> Observation:
    """The same, with samples that found the pod short of work."""
    pod = observation.pods[0]
    last = len(pod.samples) - 1
    samples = tuple(
        sample if only_in_between and index != last - 1 else replace(sample, tasks_outstanding=0.0)
        for index, sample in enumerate(pod.samples)
    )
    return replace(observation, pods=(replace(pod, samples=samples),))


def blocked_few() -> Observation:
    plant = SyntheticWorkload(BLOCKING, threads=2, limit_millicores=2000)
    for _ in range(6):
        plant.tick()
    return plant.observe()


def test_more_threads_are_asked_for_only_while_work_waits() -> None:
    waiting = fresh_decision(blocked_few())
    assert waiting.target is not None
    assert waiting.target.threads > 8
    for only_in_between in (True, False):
        idle = fresh_decision(unsaturated(blocked_few(), only_in_between=only_in_between))
        assert "NoDemand" in step_outcomes(idle)
        assert idle.target is not None
        assert idle.target.threads == 2


def test_what_was_chosen_under_full_demand_stays_when_demand_ends() -> None:
    plant = SyntheticWorkload(BLOCKING, threads=2, limit_millicores=2000)
    memo = drive(plant, make_spec(), 24, decide=decide)
    chosen = plant.threads
    assert chosen > 8
    plant.saturated = False
    seen: list[Decision] = []
    drive(plant, make_spec(), 24, memo=memo, decide=decide, each=seen.append)
    assert {d.target.threads for d in seen if d.target} == {chosen}
