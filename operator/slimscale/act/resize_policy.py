"""Which CPU values a pod may be asked to take, and why not. Pure.

Kubernetes refuses a resize that changes the QoS class or removes a value, and a kubelet may leave
one pending for ever; what can be known before is decided here, before anything is asked.
"""

import math
from dataclasses import dataclass

from slimscale.act.plan_memo import CpuAsk, Refusal
from slimscale.api.simworkload import ControlledValues, LimitPolicy, SimWorkloadSpec, UpdateMode
from slimscale.domain.decision import PodTarget
from slimscale.domain.observation import (
    ContainerResources,
    LimitRangeBounds,
    PodObservation,
    QosClass,
)
from slimscale.domain.plan import PodState

__all__ = ["Objection", "Room", "desired_cpu", "may_ask_again", "object_to", "wanted_cpu"]

LONGEST_PAUSE_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Objection:
    """Why a resize is not asked for. `state` is what the status shows."""

    state: PodState
    message: str


@dataclass(slots=True)
class Room:
    """What is left to give in this plan: shrinks as pods are given more. None: unknown."""

    node_free_millicores: dict[str, int]
    static_nodes: frozenset[str]
    quota_request_millicores: int | None
    quota_limit_millicores: int | None

    def take(self, pod: PodObservation, ask: CpuAsk) -> None:
        """Count an ask that is going to be made: two pods must not be promised the same room."""
        more_request, more_limit = _increase(pod.spec_resources, ask)
        if pod.node in self.node_free_millicores:
            self.node_free_millicores[pod.node] -= max(0, more_request)
        if self.quota_request_millicores is not None:
            self.quota_request_millicores -= max(0, more_request)
        if self.quota_limit_millicores is not None:
            self.quota_limit_millicores -= max(0, more_limit)


def wanted_cpu(
    current: ContainerResources, target: PodTarget, *, spec: SimWorkloadSpec
) -> CpuAsk | None:
    """The target's values on top of what stands; None: the CPU stays as it is.

    A limit that exists is never removed, a request neither. Under Keep nothing is set at all.
    """
    if spec.cpu.limit_policy is LimitPolicy.KEEP:
        return None
    request, limit = current.cpu_request_millicores, current.cpu_limit_millicores
    if target.cpu_limit_millicores is not None:
        limit = target.cpu_limit_millicores
    limits_only = spec.cpu.controlled_values is ControlledValues.LIMITS_ONLY
    if target.cpu_request_millicores is not None and not limits_only:
        request = target.cpu_request_millicores
    if request is not None and limit is not None and request > limit:
        request, limit = (request, request) if limits_only else (limit, limit)
    return CpuAsk(request, limit)


def desired_cpu(
    pod: PodObservation,
    target: PodTarget,
    *,
    spec: SimWorkloadSpec,
    limit_range: LimitRangeBounds,
) -> CpuAsk | None:
    """`wanted_cpu`, moved to what the LimitRange and the pod's QoS class allow."""
    current = pod.spec_resources
    ask = wanted_cpu(current, target, spec=spec)
    if ask is None or ask == _as_ask(current):
        return None if ask is None else _as_ask(current)
    limits_only = spec.cpu.controlled_values is ControlledValues.LIMITS_ONLY
    ask = _within(ask, current, limit_range, limits_only=limits_only)
    if pod.qos_class is QosClass.GUARANTEED:
        # Request and limit are one value; wanted_cpu may have moved only one of them.
        return CpuAsk(ask.limit, ask.limit)
    if pod.qos_class is QosClass.BURSTABLE and _would_be_guaranteed(pod, ask):
        return _kept_burstable(ask, limits_only=limits_only)
    return ask


def _within(
    ask: CpuAsk, current: ContainerResources, bounds: LimitRangeBounds, *, limits_only: bool
) -> CpuAsk:
    request, limit = ask.request, ask.limit
    least, most = bounds.min_cpu_millicores, bounds.max_cpu_millicores
    if limit is not None and limit != current.cpu_limit_millicores:
        limit = max(min(limit, most or limit), least or 0)
    if request is not None and not limits_only:
        request = max(min(request, most or request), least or 0)
        if limit is not None:
            request = min(request, limit)
    ratio = bounds.max_limit_request_ratio
    if ratio and request and limit and limit > request * ratio:
        if limits_only:
            limit = max(request, math.floor(request * ratio))
        else:
            request = min(limit, math.ceil(limit / ratio))
    return CpuAsk(request, limit)


def _would_be_guaranteed(pod: PodObservation, ask: CpuAsk) -> bool:
    memory = pod.spec_resources
    return (
        ask.limit is not None
        and ask.request == ask.limit
        and pod.other_containers_guaranteed
        and memory.memory_limit_bytes is not None
        and memory.memory_request_bytes == memory.memory_limit_bytes
    )


def _kept_burstable(ask: CpuAsk, *, limits_only: bool) -> CpuAsk:
    request, limit = ask.request or 0, ask.limit or 0
    if limits_only or request <= 1:
        return CpuAsk(request, limit + 1)
    return CpuAsk(request - 1, limit)


def object_to(
    pod: PodObservation,
    ask: CpuAsk,
    *,
    spec: SimWorkloadSpec,
    room: Room,
    refusal: Refusal | None,
    now_seconds: float,
) -> Objection | None:
    """None: the resize may be asked for."""
    current = _as_ask(pod.spec_resources)
    unsupported = _unsupported(pod, ask, current, spec, room)
    if unsupported:
        return Objection(PodState.RESIZE_UNSUPPORTED, unsupported)
    more_request, more_limit = _increase(pod.spec_resources, ask)
    free = room.node_free_millicores.get(pod.node)
    if refusal is not None and refusal.ask == ask:
        deadline = float(spec.update_policy.resize_deadline_seconds)
        if not may_ask_again(
            refusal, free=free, more=more_request, now_seconds=now_seconds, pause_seconds=deadline
        ):
            return Objection(PodState(refusal.why), refusal.message)
    if free is not None and more_request > max(0, free):
        return Objection(
            PodState.RESIZE_INFEASIBLE,
            f"node {pod.node} has {max(0, free)}m CPU free, the pod would need {more_request}m more",
        )
    for left, more, what in (
        (room.quota_request_millicores, more_request, "requests.cpu"),
        (room.quota_limit_millicores, more_limit, "limits.cpu"),
    ):
        if left is not None and more > max(0, left):
            return Objection(
                PodState.RESIZE_REFUSED,
                f"the ResourceQuota has {max(0, left)}m of {what} left, the pod would need {more}m",
            )
    return None


def _unsupported(
    pod: PodObservation, ask: CpuAsk, current: CpuAsk, spec: SimWorkloadSpec, room: Room
) -> str:
    if pod.qos_class is QosClass.BEST_EFFORT:
        return "a BestEffort pod cannot be given CPU values: its QoS class may not change"
    if pod.qos_class is QosClass.GUARANTEED and (words := _not_guaranteed(pod, ask, spec, room)):
        return words
    if current.request is None and ask.request is not None and ask.limit is None:
        return "the container has no CPU request to change"
    # In the other mode a rollout follows, which restarts pods one by one under the user's strategy.
    if pod.resize_restarts_container:
        never = spec.update_policy.mode is UpdateMode.IN_PLACE
        return "the container's resizePolicy restarts it on a change of CPU" + (
            "; mode InPlace never restarts" if never else ""
        )
    return ""


def _not_guaranteed(pod: PodObservation, ask: CpuAsk, spec: SimWorkloadSpec, room: Room) -> str:
    if spec.cpu.controlled_values is ControlledValues.LIMITS_ONLY:
        return "a Guaranteed pod's request and limit move together; LimitsOnly forbids it"
    if ask.limit is None or ask.request != ask.limit:
        return "a Guaranteed pod's request and limit must stay equal"
    if pod.node in room.static_nodes:
        return (
            f"node {pod.node} has the static CPU manager policy, which does not resize"
            " Guaranteed pods in place"
        )
    return ""


def may_ask_again(
    refusal: Refusal, *, free: int | None, more: int, now_seconds: float, pause_seconds: float
) -> bool:
    """After a pause that doubles with each refusal, and only if the cause may have gone.

    Args:
        free: millicores free on the node now.
        more: how much more the pod would request.
        pause_seconds: the first pause.
    """
    pause = min(pause_seconds * 2 ** min(refusal.times - 1, 16), LONGEST_PAUSE_SECONDS)
    if now_seconds < refusal.at_seconds + pause:
        return False
    if refusal.may_retry:
        return True
    if refusal.free_millicores is None or free is None:
        return False
    grown = free - refusal.free_millicores
    return grown > 0 and grown * 10 >= more and free >= more


def _increase(current: ContainerResources, ask: CpuAsk) -> tuple[int, int]:
    return (
        (ask.request or 0) - (current.cpu_request_millicores or 0),
        (ask.limit or 0) - (current.cpu_limit_millicores or 0),
    )


def _as_ask(resources: ContainerResources) -> CpuAsk:
    return CpuAsk(resources.cpu_request_millicores, resources.cpu_limit_millicores)
