"""What surrounds a target: the values for shorter and longer tasks, and without any bounds."""

import math
from dataclasses import replace

from slimscale.api.simworkload import SimWorkloadSpec
from slimscale.domain.decision import PodTarget
from slimscale.threads.bounds import CpuBounds, Standing
from slimscale.threads.estimate import Estimate
from slimscale.threads.objective import Choice, choose, cpu_candidates, with_resources
from slimscale.threads.predictor import AnalyticPredictor, worth_looking_at

__all__ = ["lower_and_upper", "uncapped_target"]

UNBOUNDED_THREADS = 256


def lower_and_upper(
    target: PodTarget,
    estimate: Estimate,
    *,
    spec: SimWorkloadSpec,
    bounds: CpuBounds,
    standing: Standing,
    least: int,
    most: int,
) -> tuple[PodTarget, PodTarget]:
    """The target had tasks been shorter or longer by the estimate's uncertainty."""
    limit = target.cpu_limit_millicores
    cores = limit / 1000.0 if limit is not None else estimate.parameters.cpu_servers
    fixed = replace(bounds, adjustable=False)
    found: list[PodTarget] = []
    for factor in (1 / (1 + estimate.uncertainty), 1 + estimate.uncertainty):
        stretched = estimate.stretched(factor)
        columns = worth_looking_at(stretched, most_cores=cores, max_threads=most)
        surface = AnalyticPredictor().surface(stretched, cpu_cores=(cores,), max_threads=columns)
        choice = choose(surface, spec, fixed, least=least, most=most)
        threads = choice.threads
        bound = limit
        if limit is not None:
            bound = round(min(max(limit * factor, bounds.least), bounds.most))
        threads = min(threads, target.threads) if factor < 1 else max(threads, target.threads)
        found.append(with_resources(threads, bound, spec, standing))
    return found[0], found[1]


def uncapped_target(
    choice: Choice,
    wanted: PodTarget,
    estimate: Estimate,
    *,
    spec: SimWorkloadSpec,
    bounds: CpuBounds,
    standing: Standing,
) -> PodTarget:
    """What would be chosen without the spec's, the namespace's and the node's bounds."""
    at_bound = choice.threads in (spec.threads.min, spec.threads.max) or (
        bounds.adjustable and wanted.cpu_limit_millicores in (bounds.least, bounds.most)
    )
    if not at_bound:
        return wanted
    cores = standing.node_cores if math.isfinite(standing.node_cores) else choice.cpu_cores
    most = max(round(cores * 1000), bounds.most, 1)
    free = CpuBounds(min(100, most), most, bounds.adjustable, "none")
    rows = cpu_candidates(free, standing, spec.cpu.limit_policy)[::3] or (choice.cpu_cores,)
    if bounds.adjustable:
        rows = tuple(sorted({*rows, most / 1000.0}))
    columns = worth_looking_at(estimate, most_cores=rows[-1], max_threads=UNBOUNDED_THREADS)
    surface = AnalyticPredictor().surface(estimate, cpu_cores=rows, max_threads=columns)
    free_choice = choose(surface, spec, free, least=1, most=columns)
    limit = round(free_choice.cpu_cores * 1000) if bounds.adjustable else None
    return with_resources(free_choice.threads, limit, spec, standing)
