"""All that is read for one SlimInference, as one `InferenceObservation`."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Protocol

from slimscale.api.names import ANNOTATION_OWNER, LABEL_INFERENCE, LABEL_ROLE
from slimscale.api.serving_config import POLICY_CARD_KEY, POLICY_WEIGHTS_KEY
from slimscale.api.sliminference import SlimInferenceSpec
from slimscale.domain.clock import Clock
from slimscale.domain.inference import (
    InferenceObservation,
    PodProblem,
    PolicyConfigMap,
    RouterReport,
    TelemetryOfPod,
)
from slimscale.domain.scaling import DemandObservation, PoolObservation, ScalingObservation
from slimscale.exceptions import SlimError
from slimscale.kubeapi.paths import collection, item
from slimscale.kubeapi.ports import Json, KubeClient
from slimscale.observe.inference_pods import (
    deployment_problem,
    observe_pool,
    pod_problem,
    pool_of,
)

__all__ = ["InferenceObserver", "RouterSource", "demand_of", "newest_telemetry", "router_pods"]

_MONITORING_PATH = "/apis/monitoring.coreos.com/v1"
_MONITORING_SECONDS = 300.0
_MAX_PROBLEMS = 20

Kinds = Sequence[tuple[str, str]]
"""(apiVersion, plural) of the children."""


class RouterSource(Protocol):
    async def fetch(
        self, routers: Iterable[Json], spec: SlimInferenceSpec
    ) -> tuple[RouterReport, ...]:
        """What each of these pods reports; those that do not answer are left out. Never raises."""
        ...


class InferenceObserver:
    """One for the operator. kinds: of the children, which `act/` makes."""

    def __init__(
        self, client: KubeClient, clock: Clock, *, kinds: Kinds, routers: RouterSource
    ) -> None:
        self._client = client
        self._clock = clock
        self._kinds = kinds
        self._routers = routers
        self._monitoring = False
        self._monitoring_asked_seconds = float("-inf")

    async def observe(
        self,
        sliminference: Json,
        spec: SlimInferenceSpec,
        *,
        label: str,
        deployments: dict[str, str],
    ) -> InferenceObservation:
        """Read children, pods and routers.

        Args:
            label: value of the label that marks children and pods of this object.
            deployments: pool name to the name of its Deployment.

        Raises:
            SlimError: something could not be read; nothing is decided on half of it.
        """
        metadata: Json = sliminference["metadata"]
        namespace, name = str(metadata["namespace"]), str(metadata["name"])
        selector = f"{LABEL_INFERENCE}={label}"
        monitoring = await self._knows_monitors()
        kinds = [
            *self._kinds,
            *([("monitoring.coreos.com/v1", "servicemonitors")] if monitoring else []),
        ]
        lists = await asyncio.gather(
            self._client.list(collection("v1", "pods", namespace), label_selector=selector),
            *(
                self._client.list(collection(version, plural, namespace), label_selector=selector)
                for version, plural in kinds
            ),
        )
        pods = [pod for pod in lists[0].items if _is_of(pod, name)]
        children = {
            (plural, str(thing["metadata"]["name"])): thing
            for (_, plural), listed in zip(kinds, lists[1:], strict=True)
            for thing in listed.items
        }
        routers = router_pods(pods)
        reports = await self._routers.fetch(routers, spec)
        policy_file = await self._policy_file(namespace, spec)
        now = self._clock.now_seconds()
        telemetry = newest_telemetry(reports)
        by_pool = {pool.name: [p for p in pods if pool_of(p) == pool.name] for pool in spec.pools}
        found = {
            pool.name: children.get(("deployments", deployments[pool.name])) for pool in spec.pools
        }
        pools = tuple(
            observe_pool(
                pool.name,
                found[pool.name],
                by_pool[pool.name],
                telemetry=telemetry,
                min_replicas=pool.min_replicas,
            )
            for pool in sorted(spec.pools, key=lambda pool: -pool.priority)
        )
        demand = demand_of(reports, routers=len(routers), now_seconds=now)
        return InferenceObservation(
            namespace=namespace,
            name=name,
            uid=str(metadata["uid"]),
            generation=int(metadata.get("generation", 0)),
            sampled_at_seconds=now,
            children=children,
            pods=tuple(pods),
            scaling=ScalingObservation(now, demand, pools),
            reports=reports,
            problems=_problems(pods, found, pools),
            monitoring=monitoring,
            policy_file=policy_file,
        )

    async def _policy_file(self, namespace: str, spec: SlimInferenceSpec) -> PolicyConfigMap | None:
        """By its name alone: whether it is there, and what changes with it. The routers read it."""
        name = spec.routing.learned.policy_config_map
        if name is None:
            return None
        found = await self._client.get(item("v1", "configmaps", name, namespace))
        if found is None:
            return PolicyConfigMap(name, exists=False)
        parts = {POLICY_WEIGHTS_KEY: "binaryData", POLICY_CARD_KEY: "data"}
        missing = tuple(
            f"{key} in {part}" for key, part in parts.items() if key not in (found.get(part) or {})
        )
        revision = str(found["metadata"].get("resourceVersion", ""))
        return PolicyConfigMap(name, missing_keys=missing, revision=revision)

    async def _knows_monitors(self) -> bool:
        now = self._clock.monotonic_seconds()
        if now - self._monitoring_asked_seconds >= _MONITORING_SECONDS:
            self._monitoring_asked_seconds = now
            try:
                known = await self._client.get(_MONITORING_PATH)
            except SlimError:
                return self._monitoring
            resources = (known or {}).get("resources") or []
            self._monitoring = any(r.get("name") == "servicemonitors" for r in resources)
        return self._monitoring


def router_pods(pods: Iterable[Json]) -> list[Json]:
    """Those that can be asked."""
    return [pod for pod in pods if _role(pod) == "router" and _may_answer(pod)]


def newest_telemetry(reports: Iterable[RouterReport]) -> dict[str, TelemetryOfPod]:
    """By pod: of what several routers know, what was heard last."""
    newest: dict[str, TelemetryOfPod] = {}
    for report in reports:
        for heard in report.pods:
            known = newest.get(heard.pod)
            if known is None or heard.age_seconds < known.age_seconds:
                newest[heard.pod] = heard
    return newest


def demand_of(
    reports: Sequence[RouterReport], *, routers: int, now_seconds: float
) -> DemandObservation | None:
    """The routers' figures added up; None: none has answered. What one lacks, the sum lacks."""
    if not reports:
        return None
    requests = _sum([r.requests_per_second for r in reports])
    rows = _sum([r.stable_rows_per_second for r in reports])
    idle = [r.idle_seconds for r in reports]
    kept = [
        (r.slo_attainment, r.requests_per_second)
        for r in reports
        if r.slo_attainment is not None and r.requests_per_second
    ]
    weight = sum(rate for _, rate in kept)
    return DemandObservation(
        sampled_at_seconds=now_seconds,
        stable_rows_per_second=rows,
        panic_rows_per_second=_sum([r.panic_rows_per_second for r in reports]),
        rows_per_request=max(1.0, rows / requests) if rows and requests else 1.0,
        buffered_rows=sum(r.buffered_rows for r in reports),
        rejected_rows_per_second=_sum([r.rejected_rows_per_second for r in reports]) or 0.0,
        idle_seconds=min((i for i in idle if i is not None), default=None)
        if None not in idle
        else None,
        slo_attainment=sum(share * rate for share, rate in kept) / weight if weight else None,
        routers=max(routers, len(reports)),
        routers_answering=len(reports),
    )


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _problems(
    pods: Sequence[Json],
    deployments: dict[str, Json | None],
    pools: Sequence[PoolObservation],
) -> tuple[PodProblem, ...]:
    found = [problem for pod in pods if (problem := pod_problem(pod)) is not None]
    found += [
        PodProblem(
            pod.name,
            pool.name,
            "DeviceLost",
            f"its GPU {pod.telemetry.device or ''} can't be reached; the pod is replaced",
        )
        for pool in pools
        for pod in pool.pods
        if pod.device_lost and not pod.terminating and pod.telemetry is not None
    ]
    for pool, deployment in deployments.items():
        problem = deployment_problem(deployment, pool) if deployment is not None else None
        if problem is not None:
            found.append(problem)
    return tuple(found[:_MAX_PROBLEMS])


def _is_of(pod: Json, name: str) -> bool:
    annotations = pod["metadata"].get("annotations") or {}
    return bool(annotations.get(ANNOTATION_OWNER, name) == name)


def _role(pod: Json) -> str:
    return str((pod["metadata"].get("labels") or {}).get(LABEL_ROLE, ""))


def _may_answer(pod: Json) -> bool:
    """A router that is starting or ending has nothing to tell."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]
