"""Builders of decisions, and a pod that behaves as kubelet and program do with a plan's writes."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from slimscale.act.outcome import fold_results
from slimscale.act.plan import plan
from slimscale.api.simworkload import SimWorkloadSpec
from slimscale.domain.decision import Action, Confidence, Decision, ModelView, PodTarget
from slimscale.domain.observation import (
    ContainerResources,
    Observation,
    PodObservation,
    ResizeCondition,
    ResizeState,
)
from slimscale.domain.plan import ApplyResult, OperationResult, Plan, ResizePod, SetThreads
from tests.support.observations import make_observation, make_pod, make_sample

__all__ = ["FollowedPod", "make_decision", "pod_with"]


def make_decision(target: PodTarget | None = None, **changes: object) -> Decision:
    decision = Decision(
        decision_id="d-1",
        decided_at_seconds=1000.0,
        action=Action.NO_CHANGE,
        target=target,
        uncapped=target,
        lower=target,
        upper=target,
        confidence=Confidence.HIGH,
        reason="Predicted",
        message="as predicted",
        metrics_reason="MetricsFound",
        metrics_message="1 of 1 pods",
        may_write=True,
        model=ModelView(predictor="analytic", ratio=200.0, measured_tasks_per_second=100.0),
    )
    return replace(decision, **changes)  # type: ignore[arg-type]


def pod_with(
    *,
    threads: int | None = 4,
    request: int | None = 1000,
    limit: int | None = 2000,
    index: int = 0,
    **changes: object,
) -> PodObservation:
    """A pod that reports `threads` and stands at these CPU values, asked and applied."""
    resources = ContainerResources(request, limit, 2**28, 2**29)
    samples = () if threads is None else (make_sample(1000.0, tasks=100.0, threads=threads),)
    pod = make_pod(
        index,
        spec_resources=resources,
        applied_resources=resources,
        samples=samples,
        desired_threads=threads,
    )
    return replace(pod, **changes)  # type: ignore[arg-type]


@dataclass(slots=True)
class FollowedPod:
    """The closed loop of plan and pod. `kubelet` False: resizes are left pending; `program` False:
    the thread count is not acknowledged."""

    pod: PodObservation
    spec: SimWorkloadSpec
    now_seconds: float = 1000.0
    kubelet: bool = True
    program: bool = True
    refuse: str = ""
    """A reason with which the API server refuses each resize."""
    state: ResizeState = ResizeState.NONE
    """What a kubelet that does not apply says."""
    state_message: str = ""
    memo: Mapping[str, object] = field(default_factory=dict)
    writes: list[object] = field(default_factory=list)
    last: Plan = field(default_factory=Plan)
    changes: dict[str, object] = field(default_factory=dict)
    """Of the observation."""

    def observe(self) -> Observation:
        return make_observation((self.pod,), self.now_seconds, **self.changes)

    def step(self, target: PodTarget, *, seconds: float = 5.0, may_write: bool = True) -> Plan:
        """One look, its writes, and what pod and kubelet make of them."""
        decision = make_decision(target, may_write=may_write)
        made = plan(
            observation=self.observe(),
            decision=decision,
            spec=self.spec,
            memo=self.memo,
            now_seconds=self.now_seconds,
        )
        results = tuple(self._write(operation) for operation in made.operations)
        made = fold_results(made, ApplyResult(results), now_seconds=self.now_seconds)
        if made.memo is not None:
            self.memo = made.memo
        self.last = made
        self._follow()
        self.now_seconds += seconds
        return made

    def run(self, target: PodTarget, steps: int, *, seconds: float = 5.0) -> Plan:
        for _ in range(steps):
            self.step(target, seconds=seconds)
        return self.last

    def _write(self, operation: object) -> OperationResult:
        self.writes.append(operation)
        match operation:
            case SetThreads():
                self.pod = replace(self.pod, desired_threads=operation.threads)
                return OperationResult(operation, ok=True, changed=True)
            case ResizePod():
                if self.refuse:
                    return OperationResult(operation, False, False, self.refuse, "refused: words")
                spec = self.pod.spec_resources
                asked = replace(
                    spec,
                    cpu_request_millicores=operation.cpu_request_millicores
                    or spec.cpu_request_millicores,
                    cpu_limit_millicores=operation.cpu_limit_millicores
                    or spec.cpu_limit_millicores,
                )
                self.pod = replace(self.pod, spec_resources=asked)
                return OperationResult(operation, ok=True, changed=True)
            case _:
                raise AssertionError(f"{operation} is not for a pod")

    def _follow(self) -> None:
        if self.program and self.pod.desired_threads is not None:
            sample = make_sample(self.now_seconds, tasks=100.0, threads=self.pod.desired_threads)
            self.pod = replace(self.pod, samples=(sample,))
        if self.pod.spec_resources == self.pod.applied_resources:
            self.pod = replace(self.pod, resize=ResizeCondition())
        elif self.kubelet:
            self.pod = replace(
                self.pod, applied_resources=self.pod.spec_resources, resize=ResizeCondition()
            )
        else:
            self.pod = replace(
                self.pod, resize=ResizeCondition(self.state, self.state_message, self.now_seconds)
            )
