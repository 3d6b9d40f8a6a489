"""From a good window to a recommendation: Estimate, Predict, Choose, Guard."""

import math
from dataclasses import dataclass, replace

import numpy as np

from slimscale.api.conditions import Reason
from slimscale.api.simworkload import ObjectiveType, SimWorkloadSpec
from slimscale.domain.decision import (
    Action,
    Confidence,
    DecisionStep,
    ModelView,
    PodTarget,
)
from slimscale.threads.bounds import CpuBounds, Standing
from slimscale.threads.bracket import lower_and_upper, uncapped_target
from slimscale.threads.calibrate import through_measured
from slimscale.threads.describe import (
    choose_step,
    estimate_step,
    model_view,
    recommendation_message,
)
from slimscale.threads.estimate import Estimate, crowd_at_dispatcher
from slimscale.threads.guards import (
    Proposal,
    Verdict,
    dwell_seconds,
    sane_surface,
    sane_threads,
    weigh,
)
from slimscale.threads.innovation import learn
from slimscale.threads.load_memory import (
    MOST_THREADS,
    cores_of,
    estimate_of,
    known_load,
)
from slimscale.threads.memo import KnownLoad, Memo, Pending, Regime
from slimscale.threads.objective import Choice, choose, cpu_candidates, with_resources
from slimscale.threads.predictor import (
    AnalyticPredictor,
    Surface,
    ThreadPredictor,
    worth_looking_at,
)
from slimscale.threads.probe import Probe, in_each_others_way, next_probe
from slimscale.threads.recall import before_cliff
from slimscale.threads.window import WorkloadWindow

__all__ = ["Recommendation", "recommend"]

WINDOWS_TO_END_A_SEARCH = 8
CPU_BOUND_SHARE = 0.9
"""Of the CPU in use, from which it is what the threads queue for."""
PREDICTED = "Predict"
"""The first tier, in the memo and in the status."""


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
    now_seconds: float
    writes: bool
    restarts: bool


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
    restarts: bool = False,
) -> Recommendation:
    """`writes`: whether the pods will follow; only then is a change verified afterwards.

    `restarts`: a change rolls them, so that nothing is tried for its own sake.
    """
    cores = cores_of(window, standing)
    estimate = estimate_of(memo, window, spec=spec, standing=standing)
    current = _current(memo, window, standing, bounds)
    if estimate is None:
        return _held(memo, window, "the pods serve no CPU time of tasks: computing and waiting"
                     " cannot be told apart")  # fmt: skip
    estimate, regime, refused = learn(estimate, window, memo.regime)
    memo = replace(memo, regime=regime)
    if estimate.crowd_seen:
        contention = estimate.parameters.contention_linear
        memo = replace(memo, regime=replace(memo.regime, contention_linear=contention))
    steps = [estimate_step(estimate, window), *([refused] if refused is not None else [])]
    bounds = _floored(bounds, memo)
    case = _Case(window, spec, now_seconds, writes, restarts)
    rows = _rows(cpu_candidates(bounds, standing, spec.cpu.limit_policy), current, cores)
    columns = max(
        worth_looking_at(estimate, most_cores=rows[-1], max_threads=spec.threads.max),
        min(current.threads, MOST_THREADS),
    )
    prediction, problem = _predict(estimate, predictor, rows, columns)
    if problem:
        memo = replace(memo, invalid_predictions=memo.invalid_predictions + 1)
        steps.append(DecisionStep("Predict", "Refused", problem, constrained=True))
        return _held(memo, window, f"{problem}; the last good values stay", steps)
    modelled = prediction.surface
    if modelled.note:
        steps.append(DecisionStep("Predict", "Analytic", modelled.note[:512]))
    prediction = replace(
        prediction, surface=through_measured(prediction.surface, memo.regime.points, cores=cores)
    )
    least, most = _thread_bounds(spec, memo)
    if estimate.waits_are_doubted:
        # By half at most: then two counts have been measured and the waits are told apart.
        least = max(least, min(math.ceil(window.threads / 2), most))
    most = max(least, min(most, before_cliff(memo, window.threads)))
    choice = _choose(prediction.surface, spec, bounds, standing, least=least, most=most)
    threads, odd = sane_threads(
        choice.threads, last_good=current.threads, least=spec.threads.min, most=spec.threads.max
    )
    if odd:
        memo = replace(memo, invalid_predictions=memo.invalid_predictions + 1)
        return _held(memo, window, odd, steps)
    steps.append(choose_step(choice, prediction.surface, spec, bounds))
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
            work_waits=window.saturated,
            must_leave=_must_leave(current, spec, bounds),
            restarts=restarts,
            in_the_way=memo.regime.serial_seconds is not None
            or estimate.waits_are_doubted
            or in_each_others_way(estimate, crowded=False),
            safe=_only_queue(window, cores),
        ),
        spec=spec,
        memo=memo,
        now_seconds=now_seconds,
    )
    known = known_load(memo, estimate, window, spec=spec)
    if known is not None and least <= known.threads <= most:
        verdict = _recalled(known, limit, current, spec=spec, standing=standing)
    steps.extend(verdict.steps)
    ready = _may_probe(verdict, current, memo=memo, case=case)
    probe = (
        _probe(estimate, memo, case, surface=modelled, least=least, most=most) if ready else None
    )
    if ready and probe is None and _seen_enough(memo, window):
        memo = replace(memo, regime=replace(memo.regime, searched=True))
    if probe is not None:
        steps.append(
            DecisionStep("Probe", probe.tier.value, f"{probe.threads} threads: {probe.reason}")
        )
        verdict = replace(verdict, target=replace(current, threads=probe.threads), changed=True)
    rate = _rate(prediction.surface, verdict.target, cores)
    lower, upper = lower_and_upper(
        verdict.target,
        estimate,
        spec=spec,
        bounds=bounds,
        standing=standing,
        least=least,
        most=most,
    )
    memo = _remember(memo, verdict, current, rate=rate, case=case, probe=probe)
    return Recommendation(
        action=_action(current, verdict),
        target=verdict.target,
        uncapped=uncapped_target(
            choice, wanted, estimate, spec=spec, bounds=bounds, standing=standing
        ),
        lower=lower,
        upper=upper,
        confidence=estimate.confidence,
        reason=Reason.PREDICTED,
        message=recommendation_message(verdict.target, rate, window),
        model=model_view(
            prediction.surface,
            estimate,
            window,
            verdict.target,
            predictor=prediction.predictor,
            rate=rate,
            cores=cores,
        ),
        steps=tuple(steps),
        memo=memo,
    )


def _recalled(
    known: KnownLoad,
    limit: int | None,
    current: PodTarget,
    *,
    spec: SimWorkloadSpec,
    standing: Standing,
) -> Verdict:
    target = with_resources(known.threads, limit, spec, standing)
    words = f"a load like this one settled on {known.threads} threads before"
    step = DecisionStep("Recall", "KnownLoad", words)
    return Verdict(target, target != current, (step,), ())


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
    name = AnalyticPredictor.name if surface.note else predictor.name
    return _Prediction(surface, estimate, name), problem


def _choose(
    surface: Surface,
    spec: SimWorkloadSpec,
    bounds: CpuBounds,
    standing: Standing,
    *,
    least: int,
    most: int,
) -> Choice:
    """Only candidates of the policy."""
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
    return choose(part, spec, bounds, least=least, most=most)


def _thread_bounds(spec: SimWorkloadSpec, memo: Memo) -> tuple[int, int]:
    """The spec's, within what this load has not refused already."""
    least = max(spec.threads.min, min(memo.regime.floor_threads or 1, spec.threads.max))
    most = min(spec.threads.max, max(memo.regime.ceiling_threads or spec.threads.max, least))
    return least, most


def _only_queue(window: WorkloadWindow, cores: float) -> bool:
    """Whether the CPU or the dispatcher is busy all the time, so that fewer threads do as much."""
    used = window.cpu_used_cores
    return crowd_at_dispatcher(window) is not None or (
        used is not None and used >= CPU_BOUND_SHARE * cores
    )


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


def _seen_enough(memo: Memo, window: WorkloadWindow) -> bool:
    """One window without room may be chance: the search ends when several agree."""
    here = [p.windows for p in memo.regime.points if p.threads == window.threads]
    return max(here, default=0) >= WINDOWS_TO_END_A_SEARCH


def _may_probe(verdict: Verdict, current: PodTarget, *, memo: Memo, case: _Case) -> bool:
    """Once what was chosen has stood for a whole window, and until nothing is left to try."""
    window = case.window
    return (
        verdict.settled
        and not verdict.changed
        and case.writes
        and not case.restarts
        and case.spec.objective.type is ObjectiveType.MAX_THROUGHPUT
        and memo.pending is None
        and memo.target == current
        and not memo.regime.searched
        and window.threads == current.threads
        and window.span_seconds >= 0.9 * case.spec.tuning.window_seconds
        and dwell_seconds(case.spec, memo, case.now_seconds) <= 0
    )


def _probe(
    estimate: Estimate, memo: Memo, case: _Case, *, surface: Surface, least: int, most: int
) -> Probe | None:
    tuning = case.spec.tuning
    cores = estimate.parameters.cpu_servers
    row = int(np.argmin(np.abs(np.asarray(surface.cpu_cores) - cores)))
    rates = surface.tasks_per_second[row]
    return next_probe(
        case.window,
        estimate,
        memo.regime,
        predicted=lambda threads: float(rates[min(threads, len(rates)) - 1]),
        least=least,
        most=most,
        cpu_aware=tuning.cpu_aware,
        search=tuning.search,
    )


def _remember(
    memo: Memo,
    verdict: Verdict,
    current: PodTarget,
    *,
    rate: float,
    case: _Case,
    probe: Probe | None = None,
) -> Memo:
    window, spec, now_seconds, writes = case.window, case.spec, case.now_seconds, case.writes
    memo = replace(
        memo,
        proposals=verdict.proposals,
        regime=replace(memo.regime, settled=verdict.settled and not verdict.changed),
    )
    if not verdict.changed:
        return replace(
            memo,
            target=memo.target or verdict.target,
            target_tier=memo.target_tier or PREDICTED,
            repredict=False,
        )
    if probe is not None:
        memo = replace(memo, regime=replace(memo.regime, probes=memo.regime.probes + 1))
    else:
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
        probe=probe.tier.value if probe is not None else "",
    )
    return replace(
        memo,
        target=verdict.target,
        target_tier=probe.tier.value if probe is not None else PREDICTED,
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
