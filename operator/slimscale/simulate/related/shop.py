"""A job shop with interruptions: jobs of one to three segments, machines that shut down at random.

The evaluation axis of ISBJSSP (science brief 3): each operation is interrupted with probability p, its work is
lost, and the machine is away for a while. Decisions fall when a machine is free and a job waits.
"""

import heapq
from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from slimscale.routing.related.bipartite import BipartiteEncoder, FloatArray
from slimscale.routing.related.dispatch_rules import Job, PriorityRule, next_job

__all__ = ["ENCODER", "Dispatch", "Shop", "ShopView", "by_encoder", "by_rule", "run_shop", "train"]

_LOOK = 24
"""Jobs that a dispatcher sees, the oldest: in an overload the rest waits unseen."""

ENCODER = BipartiteEncoder(requests=4, machines=2, edges=2, hidden=6)


@dataclass(frozen=True, slots=True)
class Shop:
    """Work in seconds of a machine of speed 1."""

    speeds: tuple[float, ...] = (4.0, 2.5, 2.5, 1.5, 1.0, 0.6)
    load: float = 0.6
    """Arriving work over the machines' speeds, without interruptions."""
    mean_work: float = 1.0
    """Of one operation: exponential, floored at a tenth."""
    shutdown_probability: float = 0.0
    """Of an operation."""
    down_seconds: float = 1.0
    slack: float = 4.0
    """A job is due at so many times its own work after it came."""


@dataclass(frozen=True, slots=True)
class ShopView:
    """What a dispatcher sees: jobs that wait, machines that are free, the share that is up."""

    now: float
    jobs: tuple[Job, ...]
    """`next_seconds` and `remaining_seconds` are on a machine of speed 1."""
    free: tuple[int, ...]
    speeds: tuple[float, ...]
    up: tuple[bool, ...]


Dispatch = Callable[[ShopView], tuple[int, int] | None]
"""(place in jobs, machine), or None to leave the free machines idle until something happens."""


def by_rule(rule: PriorityRule) -> Dispatch:
    """The fastest free machine takes the job that the rule says."""

    def dispatch(view: ShopView) -> tuple[int, int] | None:
        machine = max(view.free, key=lambda one: view.speeds[one])
        return view.jobs.index(next_job(rule, view.jobs)), machine

    return dispatch


def by_encoder(weights: FloatArray) -> Dispatch:
    """The pair of best score; the prior is SPT's: the shorter on this machine, the better."""

    def dispatch(view: ShopView) -> tuple[int, int] | None:
        jobs = view.jobs
        free = np.asarray(view.free)
        speeds = np.asarray(view.speeds)
        requests = np.asarray(
            [
                (min(view.now - one.arrived, 20.0) / 5.0, (one.due - view.now) / 10.0,
                 one.next_seconds, one.remaining_seconds / 2.0)
                for one in jobs
            ]
        )  # fmt: skip
        machines = np.stack([speeds, np.asarray(view.up, dtype=np.float64)], axis=1)
        seconds = requests[:, 2:3] / speeds[None]
        edges = np.stack([seconds, seconds * (requests[:, 3:4] > requests[:, 2:3])], axis=2)
        mask = np.zeros((len(jobs), len(speeds)), dtype=np.bool_)
        mask[:, free] = True
        prior = speeds[None] - requests[:, 2:3]  # the fastest machine, then the shortest job
        scores = ENCODER.scores(
            weights, requests=requests, machines=machines, edges=edges, mask=mask, prior=prior
        )
        place, machine = np.unravel_index(int(scores.argmax()), scores.shape)
        return int(place), int(machine)

    return dispatch


def run_shop(shop: Shop, dispatch: Dispatch, *, jobs: int, seed: int) -> dict[str, float]:
    """`flow_seconds`: mean from arrival to the end of a job; `late_share` of jobs past their due date.

    The same seed gives the same jobs and, operation by operation, the same interruptions.
    """
    floor = _Floor(shop, jobs, seed)
    while floor.events and len(floor.flows) < jobs:
        floor.happen()
        while floor.waiting and floor.free:
            chosen = dispatch(floor.view())
            if chosen is None:
                break
            floor.begin(*chosen)
    return {
        "flow_seconds": sum(floor.flows) / len(floor.flows),
        "late_share": floor.late / len(floor.flows),
    }


class _Floor:
    """What happens, one event after the other: a job comes, an operation ends or fails, a machine is back."""

    def __init__(self, shop: Shop, jobs: int, seed: int) -> None:
        rng = Random(seed)  # noqa: S311 - drawn cases, not secrets
        self.shop = shop
        self.work = [
            [max(0.1, rng.expovariate(1.0)) * shop.mean_work for _ in range(rng.randint(1, 3))]
            for _ in range(jobs)
        ]
        self.luck = [[[rng.random() for _ in range(6)] for _ in one] for one in self.work]
        rate = shop.load * sum(shop.speeds) / (2.0 * shop.mean_work)
        self.arrived: list[float] = []
        at = 0.0
        for _ in range(jobs):
            at += rng.expovariate(rate)
            self.arrived.append(at)
        self.due = [
            at + shop.slack * sum(one) for at, one in zip(self.arrived, self.work, strict=True)
        ]
        self.done, self.tries = [0] * jobs, [0] * jobs
        self.events: list[tuple[float, int, str, int, int]] = [
            (at, number, "comes", number, -1) for number, at in enumerate(self.arrived)
        ]
        self.order = jobs
        self.now = 0.0
        self.waiting: list[int] = []
        """The oldest first: numbers go by arrival."""
        self.free = set(range(len(shop.speeds)))
        self.up = [True] * len(shop.speeds)
        self.flows: list[float] = []
        self.late = 0

    def happen(self) -> None:
        self.now, _, what, number, machine = heapq.heappop(self.events)
        if what == "comes":
            insort(self.waiting, number)
        elif what == "back":
            self.up[machine] = True
            self.free.add(machine)
        elif what == "fails":
            self.up[machine] = False
            insort(self.waiting, number)
            self._later(self.shop.down_seconds, "back", -1, machine)
        else:
            self.free.add(machine)
            self._ended(number)

    def _ended(self, number: int) -> None:
        self.done[number] += 1
        self.tries[number] = 0
        if self.done[number] < len(self.work[number]):
            insort(self.waiting, number)
            return
        self.flows.append(self.now - self.arrived[number])
        self.late += self.now > self.due[number]

    def view(self) -> ShopView:
        jobs = []
        for one in self.waiting[:_LOOK]:
            left = self.work[one][self.done[one] :]
            jobs.append(Job(one, self.arrived[one], self.due[one], left[0], sum(left)))
        free, up = tuple(sorted(self.free)), tuple(self.up)
        return ShopView(self.now, tuple(jobs), free, self.shop.speeds, up)

    def begin(self, place: int, machine: int) -> None:
        number = self.waiting.pop(place)
        self.free.discard(machine)
        lasts = self.work[number][self.done[number]] / self.shop.speeds[machine]
        draws = self.luck[number][self.done[number]]
        chance = draws[self.tries[number] % len(draws)]
        self.tries[number] += 1
        fails = chance < self.shop.shutdown_probability
        if fails:
            lasts *= chance / self.shop.shutdown_probability
        self._later(lasts, "fails" if fails else "ends", number, machine)

    def _later(self, after: float, what: str, number: int, machine: int) -> None:
        heapq.heappush(self.events, (self.now + after, self.order, what, number, machine))
        self.order += 1


def train(
    shop: Shop,
    *,
    seeds: Sequence[int],
    jobs: int = 120,
    steps: int = 30,
    pairs: int = 8,
    seed: int = 0,
    advance: Callable[[], None] = lambda: None,
) -> FloatArray:
    """Weights that lower the mean flow time: evolution strategy with antithetic pairs, common seeds.

    (Salimans et al. 2017: the gradient of the mean over Gaussian neighbours, ranks instead of values.)
    """
    rng = np.random.default_rng(seed)
    weights = ENCODER.initial(rng)
    sigma, rate = 0.15, 0.3

    def cost(candidate: FloatArray, of: Sequence[int]) -> float:
        return float(
            np.mean(
                [
                    run_shop(shop, by_encoder(candidate), jobs=jobs, seed=s)["flow_seconds"]
                    for s in of
                ]
            )
        )

    best, least = weights, cost(weights, seeds)
    for step in range(steps):
        batch = [seeds[(step + i) % len(seeds)] for i in range(2)]
        noise = rng.normal(size=(pairs, ENCODER.size))
        costs = np.asarray(
            [[cost(weights + sign * sigma * one, batch) for sign in (1.0, -1.0)] for one in noise]
        )
        ranks = costs.reshape(-1).argsort().argsort().reshape(costs.shape) / (2 * pairs - 1) - 0.5
        slope = ((ranks[:, 0] - ranks[:, 1])[:, None] * noise).mean(0)
        weights = weights - rate * slope
        if step % 5 == 4:
            value = cost(weights, seeds)
            if value < least:
                best, least = weights.copy(), value
        advance()
    return best
