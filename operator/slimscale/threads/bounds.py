"""What a target may be: the spec's bounds, LimitRange, quota and the room on the pods' nodes."""

import math
from dataclasses import dataclass

from slimscale.api.quantity import parse_millicores
from slimscale.api.simworkload import ControlledValues, LimitPolicy, SimWorkloadSpec
from slimscale.domain.observation import (
    ContainerResources,
    Observation,
    PodObservation,
    QosClass,
)

__all__ = ["CpuBounds", "Standing", "cpu_bounds", "standing_of"]


@dataclass(frozen=True, slots=True)
class Standing:
    """The container as it is now: what a choice starts from. The pods' own, not the template's."""

    resources: ContainerResources
    qos_class: QosClass
    equality_makes_guaranteed: bool
    """Everything but this container's CPU has requests equal to limits already."""
    node_cores: float
    """Of the smallest node that runs a pod; infinite where no node is known."""

    @property
    def cores(self) -> float:
        """CPU that one container can use now."""
        limit = self.resources.cpu_limit_millicores
        quota = limit / 1000.0 if limit else math.inf
        return min(quota, self.node_cores)


@dataclass(frozen=True, slots=True)
class CpuBounds:
    """Millicores of the CPU limit. `adjustable` False: the CPU stays as it is, `reason` says why."""

    least: int
    most: int
    adjustable: bool
    reason: str
    """Which rule is the tight one."""
    most_request: int | None = None


def standing_of(observation: Observation) -> Standing:
    pods = observation.running_pods
    target = observation.target
    resources = target.template_resources if target is not None else ContainerResources()
    qos = QosClass.BURSTABLE
    alone = False
    if pods:
        # Of pods that differ (a change is under way) the one with the least: it bounds them all.
        pod = min(pods, key=lambda p: (p.spec_resources.cpu_limit_millicores or 0, p.name))
        resources, qos = pod.spec_resources, pod.qos_class
        alone = pod.other_containers_guaranteed
    memory_equal = (
        resources.memory_request_bytes is not None
        and resources.memory_request_bytes == resources.memory_limit_bytes
    )
    cores = [
        observation.nodes[p.node].allocatable_millicores / 1000.0
        for p in pods
        if p.node in observation.nodes
    ]
    return Standing(resources, qos, alone and memory_equal, min(cores, default=math.inf))


def cpu_bounds(observation: Observation, spec: SimWorkloadSpec, standing: Standing) -> CpuBounds:
    """Bounds for the limit. A limit in force always stays allowed by the room on the nodes."""
    limit = standing.resources.cpu_limit_millicores
    fixed = _why_fixed(spec, standing)
    if fixed:
        return CpuBounds(limit or 0, limit or 0, False, fixed)
    ceilings: list[tuple[float, str]] = []
    if spec.cpu.max is not None:
        ceilings.append((float(parse_millicores(spec.cpu.max)), "cpu.max"))
    room = _node_room(observation, spec, standing)
    if room is not None:
        ceilings.append(room)
    ranges = observation.limit_range
    if ranges.max_cpu_millicores is not None:
        ceilings.append((float(ranges.max_cpu_millicores), "LimitRange max"))
    request = standing.resources.cpu_request_millicores
    limits_only = spec.cpu.controlled_values is ControlledValues.LIMITS_ONLY
    if ranges.max_limit_request_ratio and request and limits_only:
        ceilings.append((request * ranges.max_limit_request_ratio, "LimitRange ratio"))
    ceilings.extend(_quota_room(observation, standing))
    most, reason = min(ceilings, default=(float(limit or 0), "no node is known to have room"))
    least = max(
        float(parse_millicores(spec.cpu.min)),
        float(ranges.min_cpu_millicores or 0),
        float(request or 0) if limits_only else 0.0,
        1.0,
    )
    if most < 1:
        return CpuBounds(limit or 0, limit or 0, False, f"{reason} leaves no CPU to set")
    return CpuBounds(int(min(least, most)), int(most), True, reason)


def _why_fixed(spec: SimWorkloadSpec, standing: Standing) -> str:
    limit, request = (
        standing.resources.cpu_limit_millicores,
        standing.resources.cpu_request_millicores,
    )
    if spec.cpu.limit_policy is LimitPolicy.KEEP:
        return "cpu.limitPolicy Keep"
    if standing.qos_class is QosClass.BEST_EFFORT or (limit is None and request is None):
        return "the container sets no CPU, and adding it could change the pod's QoS class"
    limits_only = spec.cpu.controlled_values is ControlledValues.LIMITS_ONLY
    if standing.qos_class is QosClass.GUARANTEED and limits_only:
        return "the pod is Guaranteed: its limit cannot move while LimitsOnly keeps its request"
    return ""


def _node_room(
    observation: Observation, spec: SimWorkloadSpec, standing: Standing
) -> tuple[float, str] | None:
    """The smallest over the nodes: what their free requests and this target's own give each pod."""
    neighbours: dict[str, list[PodObservation]] = {}
    for pod in observation.running_pods:
        if pod.node in observation.nodes:
            neighbours.setdefault(pod.node, []).append(pod)
    limit = standing.resources.cpu_limit_millicores
    request = standing.resources.cpu_request_millicores or 0
    follows = spec.cpu.controlled_values is ControlledValues.REQUESTS_AND_LIMITS and request > 0
    share = min(1.0, request / limit) if limit and follows else 0.0
    in_force = float(_limit_in_force(observation))
    rooms: list[tuple[float, str]] = []
    for name, pods in neighbours.items():
        node = observation.nodes[name]
        # A limit reserves nothing, so it may reach the whole node; what requests leave bounds it
        # only through the request that moves with it.
        room = float(node.allocatable_millicores)
        if share > 0:
            taken = sum(p.spec_resources.cpu_request_millicores or 0 for p in pods)
            each = (taken + node.free_millicores) / len(pods)
            room = min(room, max(each / share, in_force))
        rooms.append((max(room, float(limit or 0) if share > 0 else 0.0), f"room on node {name}"))
    return min(rooms, default=None)


def _quota_room(observation: Observation, standing: Standing) -> list[tuple[float, str]]:
    pods = observation.running_pods
    count = max(1, len(pods))
    limit = standing.resources.cpu_limit_millicores
    request = standing.resources.cpu_request_millicores
    in_force = float(_limit_in_force(observation) or limit or 0)
    found = []
    if observation.quota_free_limit_millicores is not None:
        taken = sum(p.spec_resources.cpu_limit_millicores or 0 for p in pods)
        room = (taken + observation.quota_free_limit_millicores) / count
        found.append((max(room, in_force), "ResourceQuota limits.cpu"))
    if observation.quota_free_request_millicores is not None and request and limit:
        taken = sum(p.spec_resources.cpu_request_millicores or 0 for p in pods)
        room = (taken + observation.quota_free_request_millicores) / count * limit / request
        found.append((max(room, in_force), "ResourceQuota requests.cpu"))
    return found


def _limit_in_force(observation: Observation) -> int:
    """The largest: pods reach a target one by one, and those not there yet must not undo it."""
    return max(
        (p.spec_resources.cpu_limit_millicores or 0 for p in observation.running_pods), default=0
    )
