"""From a good window to a recommendation: Estimate, Predict, Choose, Guard."""

import math
from dataclasses import dataclass, replace

import numpy as np

from slimscale.api.conditions import Reason
from slimscale.api.simworkload import SimWorkloadSpec
from slimscale.domain.decision import (
    Action,
    Confidence,
    DecisionStep,
    ModelView,
    PodTarget,
)
from slimscale.threads.bounds import CpuBounds, Standing
from slimscale.threads.estimate import Estimate, estimate_parameters
from slimscale.threads.guards import Proposal, Verdict, sane_surface, sane_threads, weigh
from slimscale.threads.memo import LoadPoint, Memo, Pending, Regime
from slimscale.threads.objective import Choice, choose, cpu_candidates, with_resources
from slimscale.threads.predictor import (
    AnalyticPredictor,
    Surface,
    ThreadPredictor,
    worth_looking_at,
)
from slimscale.threads.window import WorkloadWindow

__all__ = ["Recommendation", "recommend"]

CURVE_POINTS = 32
UNBOUNDED_THREADS = 256
UNKNOWN_NODE_CORES = 8.0


@dataclass(frozen=True, slots=True)
class Recommendation:
    action: Action
    target: PodTarget | None
    uncapped: PodTarget | None
    lower: PodTarget | None
    upper: PodTarget | None
    confidence: Confidence
    reason: Reason
    message: str
    model: ModelView
    steps: tuple[DecisionStep, ...]
    memo: Memo


@dataclass(frozen=True, slots=True)
class _Case:
    """What the stages share."""

    window: WorkloadWindow
    spec: SimWorkloadSpec
    standing: Standing
    bounds: CpuBounds
    now_seconds: float
    writes: bool


@dataclass(frozen=True, slots=True)
class _Prediction:
    surface: Surface
    """With the present CPU among its rows."""
    estimate: Estimate
    predictor: str


def recommend(
    *,
    window: WorkloadWindow,
    spec: SimWorkloadSpec,
    memo: Memo,
    standing: Standing,
    bounds: CpuBounds,
    predictor: ThreadPredictor,
    now_seconds: float,
    writes: bool,
) -> Recommendation:
    """`writes`: whether the pods will follow; only then is a change verified afterwards."""
    cores = min(window.cpu_quota_cores or standing.cores, standing.node_cores)
    if not math.isfinite(cores):
        cores = UNKNOWN_NODE_CORES
    if window.saturated:
        point = LoadPoint(window.threads, round(cores, 3), window.tasks_per_second)
        memo = replace(memo, regime=memo.regime.with_point(point))
    estimate = estimate_parameters(
        window,
        cores=cores,
        node_cores=standing.node_cores if math.isfinite(standing.node_cores) else cores,
        regime=memo.regime,
        min_tasks=spec.tuning.min_tasks,
    )
    current = _current(memo, window, standing, bounds)
    if estimate is None:
        return _held(memo, window, "the pods serve no CPU time of tasks: computing and waiting"
                     " cannot be told apart")  # fmt: skip
    if estimate.crowd_seen:
        contention = estimate.parameters.contention_linear
        memo = replace(memo, regime=replace(memo.regime, contention_linear=contention))
    steps = [_estimate_step(estimate, window)]
    bounds = _floored(bounds, memo)
    case = _Case(window, spec, standing, bounds, now_seconds, writes)
    rows = _rows(cpu_candidates(bounds, standing, spec.cpu.limit_policy), current, cores)
    columns = max(
        worth_looking_at(estimate, most_cores=rows[-1], max_threads=spec.threads.max),
        min(current.threads, UNBOUNDED_THREADS * 4),
    )
    prediction, problem = _predict(estimate, predictor, rows, columns)
    if problem:
        memo = replace(memo, invalid_predictions=memo.invalid_predictions + 1)
        steps.append(DecisionStep("Predict", "Refused", problem, constrained=True))
        return _held(memo, window, f"{problem}; the last good values stay", steps)
    choice = _choose(prediction.surface, spec, bounds, standing, memo)
    threads, odd = sane_threads(
        choice.threads, last_good=current.threads, least=spec.threads.min, most=spec.threads.max
    )
    if odd:
        memo = replace(memo, invalid_predictions=memo.invalid_predictions + 1)
        return _held(memo, window, odd, steps)
    steps.append(_choose_step(choice, prediction, spec, bounds))
    limit = round(choice.cpu_cores * 1000) if bounds.adjustable else None
    wanted = with_resources(threads, limit, spec, standing)
    verdict = weigh(
        Proposal(
            target=wanted,
            tasks_per_second=choice.tasks_per_second,
            current=current,
            current_tasks_per_second=_rate(prediction.surface, current, cores),
            confidence=estimate.confidence,
            throttled_ratio=window.throttled_ratio,
            least_threads=spec.threads.min,
            most_threads=spec.threads.max,
            must_leave=_must_leave(current, spec, bounds),
        ),
        spec=spec,
        memo=memo,
        now_seconds=now_seconds,
    )
    steps.extend(verdict.steps)
    rate = _rate(prediction.surface, verdict.target, cores)
    lower, upper = _range(verdict.target, prediction, case, memo)
    memo = _remember(memo, verdict, current, rate=rate, case=case)
    return Recommendation(
        action=_action(current, verdict),
        target=verdict.target,
        uncapped=_uncapped(choice, wanted, prediction, case),
        lower=lower,
        upper=upper,
        confidence=estimate.confidence,
        reason=Reason.PREDICTED,
        message=_message(verdict, rate, window),
        model=_view(prediction, window, verdict.target, rate, cores),
        steps=tuple(steps),
        memo=memo,
    )


def _current(
    memo: Memo, window: WorkloadWindow, standing: Standing, bounds: CpuBounds
) -> PodTarget:
    """What holds: our last target, or what the pods came with."""
    if memo.target is not None and (
        memo.target.cpu_limit_millicores is not None or not bounds.adjustable
    ):
        return memo.target
    threads = memo.target.threads if memo.target is not None else window.threads
    if not bounds.adjustable:
        return PodTarget(threads)
    resources = standing.resources
    return PodTarget(threads, resources.cpu_request_millicores, resources.cpu_limit_millicores)


def _floored(bounds: CpuBounds, memo: Memo) -> CpuBounds:
    floor = memo.regime.floor_cpu_millicores
    if not bounds.adjustable or floor is None or floor <= bounds.least:
        return bounds
    return replace(bounds, least=min(floor, bounds.most))


def _rows(candidates: tuple[float, ...], current: PodTarget, cores: float) -> tuple[float, ...]:
    limit = current.cpu_limit_millicores
    here = limit / 1000.0 if limit is not None else cores
    return tuple(sorted({*candidates, here}))


def _predict(
    estimate: Estimate, predictor: ThreadPredictor, rows: tuple[float, ...], columns: int
) -> tuple[_Prediction, str]:
    """The predictor's surface, checked; on a fault the reason beside an analytic stand-in."""
    try:
        surface = predictor.surface(estimate, cpu_cores=rows, max_threads=columns)
        problem = sane_surface(surface, rows=len(rows), columns=columns)
    except (ValueError, ArithmeticError) as error:
        surface, problem = Surface(rows, np.empty((0, 0)), 0.0), f"the predictor failed: {error}"
    return _Prediction(surface, estimate, predictor.name), problem


def _choose(
    surface: Surface,
    spec: SimWorkloadSpec,
    bounds: CpuBounds,
    standing: Standing,
    memo: Memo,
) -> Choice:
    """Only candidates of the policy; within what this load has not refused already."""
    wanted = set(cpu_candidates(bounds, standing, spec.cpu.limit_policy))
    if not bounds.adjustable:
        keep = list(range(len(surface.cpu_cores)))[-1:]
    else:
        keep = [i for i, cores in enumerate(surface.cpu_cores) if cores in wanted]
    part = Surface(
        tuple(surface.cpu_cores[i] for i in keep),
        surface.tasks_per_second[keep],
        surface.cpu_seconds_a_task,
    )
    least = max(spec.threads.min, min(memo.regime.floor_threads or 1, spec.threads.max))
    most = min(spec.threads.max, max(memo.regime.ceiling_threads or spec.threads.max, least))
    return choose(part, spec, bounds, least=least, most=most)


def _rate(surface: Surface, target: PodTarget, cores: float) -> float:
    limit = target.cpu_limit_millicores
    wanted = limit / 1000.0 if limit is not None else cores
    row = int(np.argmin(np.abs(np.asarray(surface.cpu_cores) - wanted)))
    column = min(target.threads, surface.tasks_per_second.shape[1]) - 1
    return float(surface.tasks_per_second[row, column])


def _must_leave(current: PodTarget, spec: SimWorkloadSpec, bounds: CpuBounds) -> str:
    if not spec.threads.min <= current.threads <= spec.threads.max:
        return (
            f"{current.threads} threads are outside threads.min {spec.threads.min} and"
            f" threads.max {spec.threads.max}"
        )
    limit = current.cpu_limit_millicores
    if bounds.adjustable and limit is not None and limit > bounds.most:
        return f"the limit of {limit}m is above {bounds.most}m ({bounds.reason})"
    return ""


def _range(
    target: PodTarget, prediction: _Prediction, case: _Case, memo: Memo
) -> tuple[PodTarget, PodTarget]:
    """The target had tasks been shorter or longer by the estimate's uncertainty."""
    spec, bounds, standing = case.spec, case.bounds, case.standing
    limit = target.cpu_limit_millicores
    cores = limit / 1000.0 if limit is not None else prediction.estimate.parameters.cpu_servers
    fixed = replace(bounds, adjustable=False)
    found: list[PodTarget] = []
    for factor in (1 / (1 + prediction.estimate.uncertainty), 1 + prediction.estimate.uncertainty):
        estimate = prediction.estimate.stretched(factor)
        columns = prediction.surface.tasks_per_second.shape[1]
        surface = AnalyticPredictor().surface(estimate, cpu_cores=(cores,), max_threads=columns)
        choice = _choose(surface, spec, fixed, standing, memo)
        threads = choice.threads
        bound = limit
        if limit is not None:
            bound = round(min(max(limit * factor, bounds.least), bounds.most))
        threads = min(threads, target.threads) if factor < 1 else max(threads, target.threads)
        found.append(with_resources(threads, bound, spec, standing))
    return found[0], found[1]


def _uncapped(choice: Choice, wanted: PodTarget, prediction: _Prediction, case: _Case) -> PodTarget:
    """What would be chosen without the spec's, the namespace's and the node's bounds."""
    spec, bounds, standing = case.spec, case.bounds, case.standing
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
    columns = worth_looking_at(
        prediction.estimate, most_cores=rows[-1], max_threads=UNBOUNDED_THREADS
    )
    surface = AnalyticPredictor().surface(prediction.estimate, cpu_cores=rows, max_threads=columns)
    free_choice = choose(surface, spec, free, least=1, most=columns)
    limit = round(free_choice.cpu_cores * 1000) if bounds.adjustable else None
    return with_resources(free_choice.threads, limit, spec, standing)


def _remember(
    memo: Memo, verdict: Verdict, current: PodTarget, *, rate: float, case: _Case
) -> Memo:
    window, spec, now_seconds, writes = case.window, case.spec, case.now_seconds, case.writes
    memo = replace(memo, proposals=verdict.proposals)
    if not verdict.changed:
        return replace(memo, target=memo.target or verdict.target, repredict=False)
    memo = replace(memo, regime=_bounded_by_change(memo, current, verdict.target))
    measured = window.tasks_per_second if window.saturated else None
    at_current = window.threads == current.threads
    pending = Pending(
        before=current,
        after=verdict.target,
        since_seconds=now_seconds,
        tasks_per_second=measured if at_current else None,
        predicted_tasks_per_second=rate,
        intervals=max(1.0, window.span_seconds / spec.metrics.interval_seconds),
    )
    return replace(
        memo,
        target=verdict.target,
        previous=current,
        changed_at_seconds=now_seconds,
        pending=pending if writes else None,
        repredict=False,
    )


def _bounded_by_change(memo: Memo, before: PodTarget, after: PodTarget) -> Regime:
    """Saved once, raised again: then that saving is not repeated while the load stays the same."""
    regime = memo.regime
    limits = (before.cpu_limit_millicores, after.cpu_limit_millicores)
    more_cpu = limits[0] is not None and limits[1] is not None and limits[1] > limits[0]
    less_cpu = limits[0] is not None and limits[1] is not None and limits[1] < limits[0]
    more, less = after.threads > before.threads, after.threads < before.threads
    if regime.lowered and more:
        regime = replace(regime, floor_threads=max(after.threads, regime.floor_threads or 1))
    if regime.lowered and more_cpu:
        regime = replace(
            regime, floor_cpu_millicores=max(limits[1] or 0, regime.floor_cpu_millicores or 0)
        )
    return replace(regime, lowered=regime.lowered or less or less_cpu)


def _action(current: PodTarget, verdict: Verdict) -> Action:
    if not verdict.changed:
        return Action.NO_CHANGE
    target = verdict.target
    if target.threads != current.threads:
        return Action.SCALE_UP if target.threads > current.threads else Action.SCALE_DOWN
    more = (target.cpu_limit_millicores or 0) > (current.cpu_limit_millicores or 0)
    return Action.SCALE_UP if more else Action.SCALE_DOWN


def _held(
    memo: Memo, window: WorkloadWindow, why: str, steps: list[DecisionStep] | None = None
) -> Recommendation:
    said = [*(steps or []), DecisionStep("Guard", "Held", why, constrained=True)]
    return Recommendation(
        action=Action.HOLD,
        target=memo.target,
        uncapped=None,
        lower=None,
        upper=None,
        confidence=Confidence.LOW if memo.target is not None else Confidence.NONE,
        reason=Reason.HELD,
        message=f"held: {why}",
        model=ModelView(
            predictor="none",
            task_seconds=window.task_seconds,
            measured_tasks_per_second=window.tasks_per_second,
        ),
        steps=tuple(said),
        memo=memo,
    )


def _estimate_step(estimate: Estimate, window: WorkloadWindow) -> DecisionStep:
    p = estimate.parameters
    words = (
        f"a task computes {p.cpu_seconds * 1e3:.3g} ms, waits {p.blocking_seconds * 1e3:.3g} ms,"
        f" its dispatch takes {p.dispatch_seconds * 1e6:.3g} µs (r = {estimate.ratio:.3g}) on"
        f" {p.cpu_servers:.3g} CPUs"
    )
    if window.throttled_ratio is not None:
        words += f", {window.throttled_ratio:.0%} of periods throttled"
    if estimate.notes:
        words += "; " + "; ".join(estimate.notes)
    return DecisionStep("Estimate", f"Confidence{estimate.confidence.value}", words[:512])


def _choose_step(
    choice: Choice, prediction: _Prediction, spec: SimWorkloadSpec, bounds: CpuBounds
) -> DecisionStep:
    kind = spec.objective.type.value
    words = (
        f"{kind}: {choice.threads} threads on {choice.cpu_cores * 1000:.0f}m are predicted to give"
        f" {choice.tasks_per_second:.4g} tasks/s; the best of"
        f" {len(prediction.surface.cpu_cores)} CPU values x"
        f" {prediction.surface.tasks_per_second.shape[1]} thread counts gives"
        f" {choice.best_tasks_per_second:.4g}"
    )
    if not choice.reached:
        words += "; the rate asked for is out of reach"
    words += (
        f" (CPU up to {bounds.most}m: {bounds.reason})"
        if bounds.adjustable
        else (f" (CPU unchanged: {bounds.reason})")
    )
    outcome = "Chosen" if choice.reached else "OutOfReach"
    return DecisionStep("Choose", outcome, words[:512], constrained=not choice.reached)


def _message(verdict: Verdict, rate: float, window: WorkloadWindow) -> str:
    target = verdict.target
    limit = target.cpu_limit_millicores
    cpu = f" on {limit}m CPU" if limit is not None else ""
    return (
        f"{target.threads} thread{'s' if target.threads != 1 else ''}{cpu}: predicted"
        f" {rate:.4g} tasks/s a pod, measured {window.tasks_per_second:.4g} with {window.threads}"
    )


def _view(
    prediction: _Prediction, window: WorkloadWindow, target: PodTarget, rate: float, cores: float
) -> ModelView:
    p = prediction.estimate.parameters
    limit = target.cpu_limit_millicores
    row = int(
        np.argmin(
            np.abs(
                np.asarray(prediction.surface.cpu_cores)
                - (limit / 1000.0 if limit is not None else cores)
            )
        )
    )
    rates = prediction.surface.tasks_per_second[row]
    counts = np.unique(
        np.round(np.geomspace(1, len(rates), min(CURVE_POINTS, len(rates)))).astype(int)
    )
    return ModelView(
        predictor=prediction.predictor,
        task_seconds=window.task_seconds,
        task_cpu_seconds=window.task_cpu_seconds,
        task_blocked_seconds=p.blocking_seconds,
        dispatch_seconds=p.dispatch_seconds,
        contention=p.contention_handover + p.contention_linear,
        cpu_limit_cores=cores,
        throttled_ratio=window.throttled_ratio,
        ratio=prediction.estimate.ratio,
        predicted_tasks_per_second=rate,
        measured_tasks_per_second=window.tasks_per_second,
        curve=tuple((int(k), float(rates[k - 1])) for k in counts),
    )
