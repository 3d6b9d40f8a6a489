"""One policy on one scenario: simulated time runs, phases change, the policy is asked and obeyed.

Nothing stops while a policy measures or tries: what its tuning costs is in its throughput.
"""

import math
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

from slimscale.bench.policy import Choice, ThreadPolicy, view_between
from slimscale.domain.contract import ContractSample
from slimscale.simulate.load import LoadScenario
from slimscale.simulate.plant import Plant

__all__ = ["TICK_SECONDS", "RunRecord", "run_policy"]

TICK_SECONDS = 5.0
"""Resolution of the record."""
_CLOSE = 1e-9


@runtime_checkable
class _Attachable(Protocol):
    def attach(self, plant: Plant) -> None: ...


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What happened, a tick a figure: `tasks[i]` finished in tick i, `threads[i]` held at its end."""

    scenario: str
    policy: str
    seed: int
    tick_seconds: float
    tasks: tuple[int, ...]
    threads: tuple[int, ...]
    changes: tuple[tuple[float, int], ...]
    """(seconds, threads from then on), the start among them."""
    cpu_core_seconds: float
    """Quota (or all cores) times time: the CPU that was set aside."""
    cpu_used_seconds: float

    @property
    def total_tasks(self) -> int:
        return sum(self.tasks)

    @property
    def duration_seconds(self) -> float:
        return self.tick_seconds * len(self.tasks)

    @property
    def tasks_per_second(self) -> float:
        return self.total_tasks / self.duration_seconds

    def threads_at(self, seconds: float) -> int:
        held = self.changes[0][1]
        for start, threads in self.changes:
            if start > seconds:
                break
            held = threads
        return held

    def to_json(self) -> dict[str, Any]:
        return {
            "scenario": self.scenario,
            "policy": self.policy,
            "seed": self.seed,
            "tick_seconds": self.tick_seconds,
            "tasks": list(self.tasks),
            "threads": list(self.threads),
            "changes": [[round(t, 3), k] for t, k in self.changes],
            "cpu_core_seconds": round(self.cpu_core_seconds, 3),
            "cpu_used_seconds": round(self.cpu_used_seconds, 3),
        }

    @staticmethod
    def from_json(document: dict[str, Any]) -> "RunRecord":
        return RunRecord(
            scenario=str(document["scenario"]),
            policy=str(document["policy"]),
            seed=int(document["seed"]),
            tick_seconds=float(document["tick_seconds"]),
            tasks=tuple(int(n) for n in document["tasks"]),
            threads=tuple(int(k) for k in document["threads"]),
            changes=tuple((float(t), int(k)) for t, k in document["changes"]),
            cpu_core_seconds=float(document["cpu_core_seconds"]),
            cpu_used_seconds=float(document["cpu_used_seconds"]),
        )


def run_policy(
    scenario: LoadScenario, policy: ThreadPolicy, *, seed: int, plant: Plant | None = None
) -> RunRecord:
    """Run from 0 to `scenario.duration_seconds`. `seed` draws the tasks' times and nothing else.

    `plant`: a pod that runs already, with the first phase's load; None: a simulated one is made.
    """
    return _Run(scenario, policy, seed, plant).finish()


class _Run:
    """The clockwork: whichever of phase, question, application and tick comes next."""

    def __init__(
        self, scenario: LoadScenario, policy: ThreadPolicy, seed: int, plant: Plant | None
    ) -> None:
        self.scenario, self.policy, self.seed = scenario, policy, seed
        threads = policy.start(scenario.host)
        if plant is None:
            plant = Plant(scenario.phases[0][1], scenario.host, threads=threads, seed=seed)
        else:
            plant.set_threads(threads)
        self.plant = plant
        self.began = self.plant.now_seconds
        if isinstance(policy, _Attachable):
            cast(_Attachable, policy).attach(self.plant)
        self.changes: list[tuple[float, int]] = [(0.0, threads)]
        self.tasks: list[int] = []
        self.threads: list[int] = []
        self.done = self.plant.tasks_done
        self.phase = 1
        self.asked_next = policy.step_seconds
        self.pending: list[tuple[float, Choice]] = []
        self.since: ContractSample = self.plant.sample()
        self.first: ContractSample = self.since
        self.core_seconds = 0.0

    @property
    def now(self) -> float:
        return self.plant.now_seconds - self.began

    def finish(self) -> RunRecord:
        while self.now < self.scenario.duration_seconds - _CLOSE:
            self._step()
        last = self.plant.sample()
        used = (last.cpu_usage_seconds_total or 0.0) - (self.first.cpu_usage_seconds_total or 0.0)
        return RunRecord(
            scenario=self.scenario.name,
            policy=self.policy.name,
            seed=self.seed,
            tick_seconds=TICK_SECONDS,
            tasks=tuple(self.tasks),
            threads=tuple(self.threads),
            changes=tuple(self.changes),
            cpu_core_seconds=self.core_seconds,
            cpu_used_seconds=used,
        )

    def _step(self) -> None:
        phases = self.scenario.phases
        tick = TICK_SECONDS * (len(self.tasks) + 1)
        until = min(
            tick,
            self.asked_next,
            phases[self.phase][0] if self.phase < len(phases) else math.inf,
            self.pending[0][0] if self.pending else math.inf,
            self.scenario.duration_seconds,
        )
        self._advance(until)
        if self.phase < len(phases) and phases[self.phase][0] <= until + _CLOSE:
            self.plant.set_workload(phases[self.phase][1])
            self.phase += 1
        if tick <= until + _CLOSE:
            self.tasks.append(self.plant.tasks_done - self.done)
            self.done = self.plant.tasks_done
            self.threads.append(self.plant.threads)
        due = [choice for at, choice in self.pending if at <= until + _CLOSE]
        self.pending = self.pending[len(due) :]
        if self.asked_next <= until + _CLOSE:
            self._ask()  # what it is shown ends before what was decided last begins to hold
        for choice in due:
            self._apply(choice)

    def _advance(self, until: float) -> None:
        seconds = until - self.now
        if seconds <= 0:
            return
        host = self.scenario.host
        quota = self.plant.quota_cores
        self.core_seconds += seconds * min(host.cores, quota if quota is not None else host.cores)
        self.plant.advance(seconds)

    def _ask(self) -> None:
        sample = self.plant.sample()
        view = view_between(self.since, sample, self.scenario.host)
        self.since = sample
        choice = self.policy.choose(view)
        self.asked_next = self.now + self.policy.step_seconds  # it may depend on what was seen
        if self.policy.apply_delay_seconds > 0:
            self.pending.append((self.now + self.policy.apply_delay_seconds, choice))
        else:
            self._apply(choice)

    def _apply(self, choice: Choice) -> None:
        quota = self.plant.quota_cores
        moved = choice.quota_cores is not None and choice.quota_cores != quota
        threads = choice.threads if choice.threads is not None else self.plant.threads
        if threads == self.plant.threads and not moved:
            return
        if threads != self.plant.threads:
            self.plant.set_threads(threads)
            self.changes.append((self.now, threads))
        if moved and choice.quota_cores is not None:
            self.plant.set_quota(choice.quota_cores)
        # The next view must not mix what was before with what is now.
        self.since = self.plant.sample()
