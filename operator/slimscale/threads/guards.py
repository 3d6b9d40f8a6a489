"""What stands between a prediction and a pod: sane numbers, no haste, no see-saw, no blind savings."""

import math
from dataclasses import dataclass

import numpy as np

from slimscale.api.simworkload import ObjectiveType, SimWorkloadSpec
from slimscale.domain.decision import Confidence, DecisionStep, PodTarget
from slimscale.threads.memo import MAX_PROPOSALS, Memo
from slimscale.threads.predictor import Surface

__all__ = ["Proposal", "Verdict", "dwell_seconds", "sane_surface", "sane_threads", "weigh"]

STAGE = "Guard"
MOST_SANE_THREADS = 1024
THROTTLED_TOO_MUCH = 0.10
"""Share of throttled periods above which a CPU limit is not lowered."""
SMALLEST_SAVING_MILLICORES = 50
SMALLEST_THREAD_SAVING = 0.8
URGENT_GAIN = 0.3
"""Predicted gain from which half of the dwell time is enough."""
DEEP_CUT_GAIN = 0.15
"""Predicted gain from which fewer threads are tried in one step, however few."""
LARGEST_CUT = 1.5
"""Factor of a saving of threads that nothing but the model says is free."""
UNSURE_STEP = 2
"""With low confidence a thread count at most doubles or halves."""


def sane_threads(value: float, *, last_good: int, least: int, most: int) -> tuple[int, str]:
    """Round down to a count inside the bounds; what is no count at all keeps the last good one.

    2.7 becomes 2: half a thread too many is a thread too many (pitfalls C2, C4).
    """
    if not math.isfinite(value) or value < 1 or value > MOST_SANE_THREADS:
        return last_good, f"the predictor said {value:g} threads, which cannot be"
    return min(max(math.floor(value), least), most), ""


def sane_surface(surface: Surface, *, rows: int, columns: int) -> str:
    """Why a predicted surface cannot be used; empty when it can."""
    rates = np.asarray(surface.tasks_per_second)
    if rates.shape != (rows, columns):
        return f"the predictor returned a table of {rates.shape}, not {(rows, columns)}"
    if not np.isfinite(rates).all():
        return "the predictor returned numbers that are not finite"
    if (rates <= 0).any():
        return "the predictor returned throughputs that are not above 0"
    cost = surface.cpu_seconds_a_task
    if not math.isfinite(cost) or cost < 0:
        return f"the predictor returned {cost!r} CPU seconds a task"
    return ""


@dataclass(frozen=True, slots=True)
class Proposal:
    """The predictor's choice beside what holds now. Rates are predicted, tasks a second a pod."""

    target: PodTarget
    tasks_per_second: float
    current: PodTarget
    current_tasks_per_second: float
    confidence: Confidence
    throttled_ratio: float | None
    least_threads: int
    most_threads: int
    work_waits: bool = True
    """Demand saturated the window: only then can more threads bring anything."""
    must_leave: str = ""
    """Why the current values may not stay (out of bounds); empty when they may."""
    in_the_way: bool = False
    """Something says that threads hinder each other or wait for something unseen."""
    safe: bool = False
    """The CPU or the dispatcher is busy all the time: threads beyond that only queue for it."""
    restarts: bool = False
    """A change would roll the pods: threads alone are not worth that, work or CPU may be."""

    @property
    def gain(self) -> float:
        return self.tasks_per_second / max(self.current_tasks_per_second, 1e-12) - 1.0


@dataclass(frozen=True, slots=True)
class Verdict:
    target: PodTarget
    changed: bool
    steps: tuple[DecisionStep, ...]
    proposals: tuple[PodTarget, ...]
    """For the memo: the savings that wait for confirmation."""
    settled: bool = False
    """The model has nothing more to ask for: what it chose may be doubted by a probe."""


def weigh(proposal: Proposal, *, spec: SimWorkloadSpec, memo: Memo, now_seconds: float) -> Verdict:
    """Decide whether the proposal replaces what holds now."""
    steps: list[DecisionStep] = []
    first = memo.target is None or memo.repredict
    wanted = _shaped(proposal, steps, first=first)
    current = proposal.current
    if proposal.must_leave:
        steps.append(_step("OutOfBounds", proposal.must_leave, constrained=True))
        return Verdict(wanted, wanted != current, tuple(steps), ())
    needless = _needless(wanted, proposal, memo, spec)
    if needless is not None:
        steps.append(needless)
        return Verdict(current, False, tuple(steps), (), settled=proposal.work_waits)
    hysteresis = spec.tuning.hysteresis_percent / 100.0
    clear = _clearly_less(wanted, current)
    at_once = memo.target is None or memo.regime.serial_seconds is not None or clear
    proposals: tuple[PodTarget, ...] = ()
    if proposal.gain > hysteresis:
        why = f"predicted gain {proposal.gain:.0%} is above the {hysteresis:.0%} of hysteresis"
    elif _starved(proposal, wanted):
        why = f"{proposal.throttled_ratio:.0%} of CPU periods are throttled: more CPU"
    elif (first or _may_save(wanted, proposal, spec)) and _saves(
        wanted, current, hysteresis, restarts=proposal.restarts
    ):
        agreed, proposals, why = _confirmed(
            wanted, memo, at_once=at_once and (first or memo.regime.serial_seconds is not None)
        )
        if agreed is not None and _saves(agreed, current, hysteresis, restarts=proposal.restarts):
            wanted = agreed
        else:
            steps.append(_step("Confirming", why))
            return Verdict(current, False, tuple(steps), proposals)
    else:
        steps.append(
            _step(
                "Hysteresis",
                f"predicted gain {proposal.gain:.1%} is not above {hysteresis:.0%}"
                " and there is little to save",
            )
        )
        return Verdict(current, False, tuple(steps), (), settled=True)
    waiting = dwell_seconds(spec, memo, now_seconds)
    if _is_urgent(proposal, wanted, memo):
        waiting -= spec.tuning.min_dwell_seconds / 2
    if waiting > 0 and not first:
        steps.append(
            _step(
                "Dwell", f"{why}; changed lately, next change in {waiting:.0f} s", constrained=True
            )
        )
        return Verdict(current, False, tuple(steps), proposals)
    steps.append(_step("Accepted", why))
    return Verdict(wanted, True, tuple(steps), ())


def _is_urgent(proposal: Proposal, wanted: PodTarget, memo: Memo) -> bool:
    """Much is to be gained, and the last change is judged already or is only being corrected."""
    if proposal.gain <= URGENT_GAIN or proposal.confidence is not Confidence.HIGH:
        return False
    if memo.pending is None:
        return True
    ends = sorted((memo.pending.before.threads, memo.pending.after.threads))
    return ends[0] <= wanted.threads <= ends[1]


def _needless(
    wanted: PodTarget, proposal: Proposal, memo: Memo, spec: SimWorkloadSpec
) -> DecisionStep | None:
    if wanted == proposal.current:
        return _step("Unchanged", "the present values are the best found")
    if proposal.work_waits:
        return None
    if wanted.threads > proposal.current.threads:
        return _step("NoDemand", "no work is waiting: more threads would have nothing to do")
    if memo.regime.points and memo.target is not None:
        # Without waiting work the throughput says nothing of what the pod can do.
        return _step("NoDemand", "no work is waiting: what was chosen under full demand stays")
    held, limit = proposal.current.cpu_limit_millicores, wanted.cpu_limit_millicores
    if spec.objective.type is ObjectiveType.MAX_THROUGHPUT and (held is None or limit == held):
        # A lull: fewer threads free nothing now, and the work that comes next may need them.
        return _step("NoDemand", "no work is waiting: fewer threads would save no CPU")
    return None


def _shaped(proposal: Proposal, steps: list[DecisionStep], *, first: bool) -> PodTarget:
    """Cut the proposal to what may be tried in one step. `first`: of this load."""
    wanted, current = proposal.target, proposal.current
    limit, request = wanted.cpu_limit_millicores, wanted.cpu_request_millicores
    held = current.cpu_limit_millicores
    ratio = proposal.throttled_ratio
    if limit and held and limit < held and ratio is not None and ratio > THROTTLED_TOO_MUCH:
        limit, request = held, current.cpu_request_millicores
        steps.append(
            _step(
                "KeepCPU",
                f"{ratio:.0%} of CPU periods were throttled: the limit is not lowered",
                constrained=True,
            )
        )
    threads = wanted.threads
    if not (first or proposal.safe) and proposal.gain <= DEEP_CUT_GAIN and limit == held:
        # What a few threads do is what the model knows least: a step that can be taken back.
        threads = max(threads, min(current.threads, math.ceil(current.threads / LARGEST_CUT)))
    if proposal.confidence in (Confidence.LOW, Confidence.NONE):
        most = max(current.threads * UNSURE_STEP, current.threads + 1)
        threads = min(max(threads, math.ceil(current.threads / UNSURE_STEP)), most)
        threads = min(max(threads, proposal.least_threads), proposal.most_threads)
        if threads != wanted.threads:
            steps.append(
                _step(
                    "StepLimit",
                    f"confidence is {proposal.confidence.value}: {threads} threads before"
                    f" {wanted.threads}",
                    constrained=True,
                )
            )
    return PodTarget(threads, request, limit)


def _starved(proposal: Proposal, wanted: PodTarget) -> bool:
    limit, held = wanted.cpu_limit_millicores, proposal.current.cpu_limit_millicores
    if not limit or not held or proposal.throttled_ratio is None or proposal.gain < 0:
        return False
    return limit > held and proposal.throttled_ratio > THROTTLED_TOO_MUCH


def _saves(wanted: PodTarget, current: PodTarget, hysteresis: float, *, restarts: bool) -> bool:
    """Enough CPU, or clearly fewer threads on no more CPU, to be worth a change.

    A thread that waits costs next to nothing: no pod is restarted to have fewer of them.
    """
    limit, held = wanted.cpu_limit_millicores, current.cpu_limit_millicores
    if limit is not None and held is not None:
        if limit > held:
            return False
        least = max(SMALLEST_SAVING_MILLICORES, max(0.10, 2 * hysteresis) * held)
        if held - limit >= least:
            return True
    return not restarts and wanted.threads <= SMALLEST_THREAD_SAVING * current.threads


def _may_save(wanted: PodTarget, proposal: Proposal, spec: SimWorkloadSpec) -> bool:
    """Threads alone in a settled load under MaxThroughput: only where they are seen to be too many.

    A thread that waits costs next to nothing, and a model that is a little wrong costs throughput.
    """
    if spec.objective.type is not ObjectiveType.MAX_THROUGHPUT:
        return True
    if wanted.cpu_limit_millicores != proposal.current.cpu_limit_millicores:
        return True
    return proposal.in_the_way or proposal.safe


def _clearly_less(wanted: PodTarget, current: PodTarget) -> bool:
    """A saving that a short window after a change of load may show without chance's help."""
    limit, held = wanted.cpu_limit_millicores, current.cpu_limit_millicores
    less_cpu = limit is not None and held is not None and limit <= 0.7 * held
    return wanted.threads <= 0.5 * current.threads or less_cpu


def _confirmed(
    wanted: PodTarget, memo: Memo, *, at_once: bool
) -> tuple[PodTarget | None, tuple[PodTarget, ...], str]:
    """The most modest of the last proposals: one quiet window must not take CPU away."""
    proposals = (*memo.proposals, wanted)[-MAX_PROPOSALS:]
    if at_once:
        return wanted, (), "as much work with less"
    if len(proposals) < MAX_PROPOSALS:
        words = f"a saving is proposed, {len(proposals)} of {MAX_PROPOSALS} windows agree"
        return None, proposals, words
    modest = max(proposals, key=lambda p: p.cpu_limit_millicores or 0)
    threads = max(p.threads for p in proposals)
    return (
        PodTarget(threads, modest.cpu_request_millicores, modest.cpu_limit_millicores),
        proposals,
        f"as much work with less, as {MAX_PROPOSALS} windows agree",
    )


def dwell_seconds(spec: SimWorkloadSpec, memo: Memo, now_seconds: float) -> float:
    """How long the last change keeps the next one waiting; not above 0 once it may come."""
    if memo.changed_at_seconds is None:
        return 0.0
    return memo.changed_at_seconds + spec.tuning.min_dwell_seconds - now_seconds


def _step(outcome: str, reason: str, *, constrained: bool = False) -> DecisionStep:
    return DecisionStep(STAGE, outcome, reason, constrained)
