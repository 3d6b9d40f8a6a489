"""What the API server said to a plan's writes, folded into what is remembered. Pure.

Without it the next plan would ask for a refused size again, and would take a write that failed for
a change by someone else.
"""

from dataclasses import replace

from slimscale.act.plan_memo import CpuAsk, PlanMemo, PodEntry, Refusal, load_plan_memo
from slimscale.domain.plan import (
    ApplyResult,
    OperationResult,
    PatchTemplate,
    Plan,
    PodState,
    ResizePod,
    SetThreads,
)

__all__ = ["fold_results"]

_LASTING = ("Refused", "NotPermitted")


def fold_results(plan: Plan, result: ApplyResult, *, now_seconds: float) -> Plan:
    """The plan with a memo that knows which writes did not happen."""
    failed = [r for r in result.results if not r.ok]
    if not failed or plan.memo is None:
        return plan
    memo = load_plan_memo(plan.memo)
    for outcome in failed:
        memo = _fold(memo, outcome, now_seconds)
    return replace(plan, memo=memo.to_json())


def _fold(memo: PlanMemo, outcome: OperationResult, now_seconds: float) -> PlanMemo:
    operation = outcome.operation
    match operation:
        case PatchTemplate():
            lasting = outcome.reason in _LASTING
            entry = memo.rollout
            if entry is None or operation.reason == "RollBack":
                return replace(memo, rollout=replace(entry, rolled_back=False) if entry else None)
            kept = replace(entry, refused=outcome.message[:300]) if lasting else None
            return replace(memo, rollout=kept)
        case SetThreads():
            entry_of_pod = memo.pods.get(operation.uid, PodEntry())
            changed = replace(entry_of_pod, threads_asked=None)
            return replace(memo, pods={**memo.pods, operation.uid: changed})
        case ResizePod():
            entry_of_pod = memo.pods.get(operation.uid, PodEntry())
            changed = _resize_failed(entry_of_pod, operation, outcome, now_seconds)
            return replace(memo, pods={**memo.pods, operation.uid: changed})


def _resize_failed(
    entry: PodEntry, operation: ResizePod, outcome: OperationResult, now_seconds: float
) -> PodEntry:
    asked = entry.cpu_asked
    changed = replace(entry, cpu_asked=None)
    if operation.reverts or outcome.reason not in _LASTING or asked is None:
        return changed
    previous = entry.refusal
    ask = CpuAsk(asked.request, asked.limit)
    times = previous.times + 1 if previous is not None and previous.ask == ask else 1
    refusal = Refusal(
        ask=ask,
        at_seconds=now_seconds,
        why=PodState.RESIZE_REFUSED.value,
        message=outcome.message[:300],
        times=times,
        # Rights and quotas may be given later; a request that is invalid stays so.
        may_retry=outcome.reason == "NotPermitted",
    )
    return replace(changed, pending_since_seconds=None, refusal=refusal)
