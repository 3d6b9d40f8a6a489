"""Thread Reinforcer (Pusukuri, Gupta, Bhuyan, IISWC 2011): a one-way search on OS counters.

From few threads upwards: each candidate runs for one step, four counters are read (lock contention,
migrations, voluntary context switches, CPU use), the next candidate lies a full or a half step
higher, and the search ends when the counters say that more threads only wait (science.md 1.8). It
never looks at throughput, and it never goes back down: the paper restarts the application instead.

What our source leaves open, and what is done here: the counters' levels for "low" and "high"
(`Levels`), what stands for each counter in a pod that serves no migrations (below), and what
happens on a change of load. Three variants run: `once`; restarted when task times or throughput
leave their band; and restarted with the candidate of the highest throughput kept, which is more
than the paper's search does and is there so that the comparison is not won against a weak reading.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from slimscale.bench.policy import MAX_THREADS, Choice, PolicyView, view_between, within
from slimscale.domain.contract import ContractSample
from slimscale.simulate.workload import Host

__all__ = ["Counters", "Levels", "Restart", "ThreadReinforcer", "counters_of"]

STEP_SECONDS = 1.0
"""A candidate's run. The paper's 100 ms hold thousands of its tasks; ours take 10 to 100 times
longer, and 1 s holds a hundred or more of them."""
FEWEST_TASKS, LONGEST_SECONDS = 30, 10.0
"""A candidate that is slower than that runs on, or its counters would be chance."""
DRIFT = 0.25
"""Relative change of a task's time or of the throughput that counts as another load."""
DRIFT_STEPS = 2
"""In a row."""
DRIFT_TASKS, DRIFT_SECONDS = 200, 15.0
"""What a settled count is judged by: fewer tasks drift by chance, and each alarm costs a search."""
MEMORY = 0.1
"""Weight of the newest step in what is remembered of the load."""


class Restart(StrEnum):
    NEVER = "never"
    ON_DRIFT = "on drift"


@dataclass(frozen=True, slots=True)
class Levels:
    """Below `low` a figure is low, above `high` high; `rise` the same for the change of a figure.

    `high`, `high_rise` and `low_gain` were swept on 20 scenarios of the development suite (high 0.05
    to 0.7, high_rise 0.05 to 0.4, low_gain 0.02 to 0.2); these did best, 43 % above the first guess.
    """

    low: float = 0.05
    high: float = 0.5
    low_rise: float = 0.02
    low_gain: float = 0.02
    """Of CPU use: relative growth over the relative growth of the threads."""
    high_rise: float = 0.1


@dataclass(frozen=True, slots=True)
class Counters:
    """Shares, 0 to 1, of all threads' time; CPU of the cores in reach.

    lock: at the dispatcher. waits: in waits that the thread enters by itself, lock or blocking
    (the paper's voluntary switches). migrations: runnable without a CPU, which is what moves
    threads between cores.
    """

    lock: float
    migrations: float
    waits: float
    cpu: float


def counters_of(view: PolicyView) -> Counters:
    threads = float(view.threads)
    in_tasks = view.tasks_per_second * (view.task_seconds or 0.0) / threads
    lock = min(1.0, max(0.0, 1.0 - in_tasks))
    runqueue = view.tasks_per_second * (view.task_runqueue_seconds or 0.0) / threads
    blocked = view.tasks_per_second * (view.task_waiting_seconds or 0.0) / threads
    return Counters(
        lock=lock,
        migrations=min(1.0, runqueue),
        waits=min(1.0, lock + blocked),
        cpu=min(1.0, view.cpu_used_cores / view.cores_in_reach),
    )


@dataclass(slots=True)
class ThreadReinforcer:
    """One search, then a constant; with `ON_DRIFT` the search starts again from few threads."""

    name: str = "thread-reinforcer"
    restart: Restart = Restart.ON_DRIFT
    best_of_tried: bool = False
    levels: Levels = Levels()
    step_seconds: float = STEP_SECONDS
    apply_delay_seconds: float = 0.0
    _step: int = field(default=1, repr=False)
    _candidate: int = field(default=1, repr=False)
    _previous: Counters | None = field(default=None, repr=False)
    _since: ContractSample | None = field(default=None, repr=False)
    _tried: list[tuple[int, float]] = field(default_factory=list, repr=False)
    _settled: bool = field(default=False, repr=False)
    _normal: tuple[float, float] | None = field(default=None, repr=False)
    _odd_steps: int = field(default=0, repr=False)

    def start(self, host: Host) -> int:
        # A third of the cores: 8 of 24 in the paper's experiments.
        self._step = max(1, host.cores // 3)
        self._candidate = within(self._step)
        return self._candidate

    def choose(self, view: PolicyView) -> Choice:
        run = self._long_enough(view)
        return self._next(run) if run is not None else Choice(None)

    def _next(self, view: PolicyView) -> Choice:
        if self._settled:
            if self.restart is Restart.ON_DRIFT and self._drifted(view):
                self._begin_again()
                return Choice(self._candidate)
            return Choice(None)
        now = counters_of(view)
        self._tried.append((self._candidate, view.tasks_per_second))
        if self._candidate >= MAX_THREADS or self._ends(now, view):
            self._settled, self._normal, self._odd_steps = True, None, 0
            self._candidate = self._result()
            return Choice(self._candidate)
        self._candidate = within(self._candidate + self._next_step(now, view))
        self._previous = now
        return Choice(self._candidate)

    def _long_enough(self, newest: PolicyView) -> PolicyView | None:
        """The candidate's run so far; None while too few tasks have finished to read anything."""
        since = self._since or newest.earlier
        view = view_between(since, newest.later, Host(newest.cores))
        tasks = DRIFT_TASKS if self._settled else FEWEST_TASKS
        longest = DRIFT_SECONDS if self._settled else LONGEST_SECONDS
        if view.tasks < tasks and view.span_seconds < longest:
            self._since = since
            return None
        self._since = None
        return view

    def _ends(self, now: Counters, view: PolicyView) -> bool:
        before = self._previous
        if before is None:
            return False
        more = self._candidate / self._tried[-2][0] - 1.0
        if now.cpu / max(before.cpu, 1e-9) - 1.0 < self.levels.low_gain * more:
            return True
        if now.lock <= self.levels.high:
            return False
        rise = self.levels.high_rise
        crowd = (
            now.waits - before.waits
            if self._candidate <= view.cores
            else now.migrations - before.migrations
        )
        return now.lock - before.lock > rise or crowd > rise

    def _next_step(self, now: Counters, view: PolicyView) -> int:
        before = self._previous or Counters(0.0, 0.0, 0.0, 0.0)
        low_rise = self.levels.low_rise
        if self._candidate <= view.cores:
            full = (
                now.lock < self.levels.low
                or now.waits - before.waits < low_rise
                or now.lock - before.lock < low_rise
            )
        else:
            full = now.lock < self.levels.low or now.migrations - before.migrations < low_rise
        return self._step if full else max(1, self._step // 2)

    def _result(self) -> int:
        """The candidate before the one that ended the search, as that one only waited more."""
        if self.best_of_tried:
            return max(self._tried, key=lambda pair: pair[1])[0]
        reached_most = self._candidate >= MAX_THREADS
        return self._tried[-2][0] if len(self._tried) > 1 and not reached_most else self._candidate

    def _drifted(self, view: PolicyView) -> bool:
        if view.task_seconds is None or view.tasks_per_second <= 0:
            return False
        now = (view.task_seconds, view.tasks_per_second)
        if self._normal is None:
            self._normal = now
            return False
        odd = any(
            abs(value / usual - 1.0) > DRIFT for value, usual in zip(now, self._normal, strict=True)
        )
        self._odd_steps = self._odd_steps + 1 if odd else 0
        if not odd:
            self._normal = (
                self._normal[0] + MEMORY * (now[0] - self._normal[0]),
                self._normal[1] + MEMORY * (now[1] - self._normal[1]),
            )
        return self._odd_steps >= DRIFT_STEPS

    def _begin_again(self) -> None:
        self._settled, self._previous, self._normal = False, None, None
        self._tried, self._odd_steps = [], 0
        self._candidate = within(self._step)
