"""One run: a scenario, an autoscaler, a seed; and what counts of it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from slimscale.bench.autoscaling.scalers import Fixed, Hpa, Kpa, Ours
from slimscale.bench.autoscaling.scenario import MOST_REPLICAS, SLO_SECONDS, Scenario, pod_rows
from slimscale.routing.heuristics import ColdAwareSED
from slimscale.settings import OperatorSettings
from slimscale.simulate.serving.arrivals import Arrivals
from slimscale.simulate.serving.plane import Outcome, Scaler, ServingRun, simulate_serving

__all__ = ["SCALERS", "Record", "operator_period", "peak_count", "run_one", "turns"]

PEAK_SECONDS = 6.0
KNATIVE_UTILISATION = 0.7
TIMELINE_SECONDS = 10.0

Maker = Callable[[Scenario, int], Scaler]
SCALERS: Mapping[str, Maker] = {
    "slimscale": lambda scenario, _: Ours(scenario.spec(), operator_period()),
    "slimscale-2s": lambda scenario, _: Ours(scenario.spec(), 2.0),
    "hpa-cpu-50": lambda _s, _p: Hpa(0.5, 1, MOST_REPLICAS),
    "hpa-cpu-70": lambda _s, _p: Hpa(0.7, 1, MOST_REPLICAS),
    "kpa-rps": lambda _s, _p: Kpa(KNATIVE_UTILISATION * pod_rows(), 1, MOST_REPLICAS),
    "static-peak": lambda _s, _p: Fixed(),
}
"""By name; all begin with one pod but the static ones."""


def operator_period() -> float:
    """How often the operator looks at a SlimInference by default."""
    return float(OperatorSettings.model_fields["scaling_interval_seconds"].default)


@dataclass(frozen=True, slots=True)
class Record:
    """What is published of a run."""

    scenario: str
    scaler: str
    seed: int
    requests: int
    attainment: float
    """Share of all requests answered within the SLO; refused and dropped ones are misses."""
    pod_seconds: float
    changes: int
    turns: int
    """Changes of direction: up after down or down after up."""
    most: int
    p95_seconds: float | None
    """None: fewer than 95 % were answered at all."""
    late: int
    rejected: int
    accuracy: float
    """Mean of the widths that answered."""
    batch_rows: float
    timeline: tuple[tuple[float, int, int], ...]
    """(second, replicas asked for, ready)."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> "Record":
        line = tuple((at, asked, ready) for at, asked, ready in content["timeline"])
        return Record(**{**content, "timeline": line})


def peak_count(arrivals: Arrivals, headroom: float) -> int:
    """Pods for the busiest six seconds, sized as ours are: what a careful owner would provide."""
    slices: dict[int, int] = {}
    for at, rows in zip(arrivals.seconds, arrivals.rows, strict=True):
        slices[int(at)] = slices.get(int(at), 0) + rows
    width = int(PEAK_SECONDS)
    busiest = max(sum(slices.get(s + k, 0) for k in range(width)) for s in slices)
    rate = busiest / PEAK_SECONDS * (1.0 + headroom)
    return min(MOST_REPLICAS, max(1, math.ceil(rate / pod_rows())))


def turns(replicas: Sequence[int]) -> int:
    """How often the direction of a change differs from the last one's."""
    signs = [1 if after > before else -1 for before, after in pairwise(replicas) if after != before]
    return sum(before != after for before, after in pairwise(signs))


def run_one(
    scenario: Scenario, scaler: str, seed: int, folder: Path, *, static: int | None = None
) -> Record:
    """Simulate. `static`: a fixed count in place of the peak's."""
    arrivals = scenario.arrivals(folder, seed)
    peak = peak_count(arrivals, scenario.spec().headroom) if static is None else static
    fixed = scaler.startswith("static")
    made: Scaler = Fixed() if fixed else SCALERS[scaler](scenario, peak)
    service = scenario.service()
    run = simulate_serving(
        service,
        arrivals,
        ColdAwareSED(max_batch_rows=service.max_batch_rows),
        made,
        start={service.pools[0].name: peak if fixed else service.pools[0].min_replicas},
        seed=seed,
    )
    return _record(scenario, scaler, seed, run)


def _record(scenario: Scenario, scaler: str, seed: int, run: ServingRun) -> Record:
    total = max(1, len(run.latencies))
    counts = [sum(by_pool.values()) for _, by_pool in run.replicas]
    tail = sorted(run.latencies)[min(total - 1, math.ceil(0.95 * total) - 1)]
    answered = [accuracy for accuracy in run.accuracies if accuracy > 0]
    every = int(TIMELINE_SECONDS)
    return Record(
        scenario=scenario.name,
        scaler=scaler,
        seed=seed,
        requests=total,
        attainment=run.attainment(SLO_SECONDS),
        pod_seconds=sum(run.pod_seconds.values()),
        changes=len(counts) - 1,
        turns=turns(counts),
        most=max(counts),
        p95_seconds=tail if math.isfinite(tail) else None,
        late=run.outcomes.count(Outcome.LATE),
        rejected=run.outcomes.count(Outcome.REJECTED),
        accuracy=sum(answered) / max(1, len(answered)),
        batch_rows=run.batch_rows / max(1, run.batches),
        timeline=tuple(run.timeline[::every]),
    )
