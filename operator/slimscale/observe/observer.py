"""All that is read for one SimWorkload, as one `Observation`."""

import asyncio
from contextlib import suppress
from dataclasses import replace

from slimscale.api.conditions import Reason
from slimscale.api.simworkload import MetricsSource, SimWorkloadSpec
from slimscale.domain.clock import Clock
from slimscale.domain.observation import (
    Observation,
    OtherOwner,
    PodObservation,
    TargetObservation,
)
from slimscale.exceptions import NotPermitted, Unavailable
from slimscale.kubeapi.paths import collection, item
from slimscale.kubeapi.ports import Json, KubeClient
from slimscale.observe.conflicts import read_other_owners
from slimscale.observe.limits import read_limits
from slimscale.observe.nodes import NodeReader
from slimscale.observe.pods import observe_pod, parse_time
from slimscale.observe.prometheus import PrometheusReader, PrometheusSource
from slimscale.observe.sampling import Sampler, SampleSource, SamplingPlan
from slimscale.observe.scrape import scrape_target
from slimscale.observe.target import (
    TARGET_PLURALS,
    TargetUnresolved,
    belongs_to_target,
    observe_target,
)
from slimscale.threads.looks import quickest_seconds

__all__ = ["Observer", "horizon_seconds"]

Key = tuple[str, str]

_FIRST_ROUND_SECONDS = 5.0
_WINDOWS = 4
_FRESH_SHARE = 0.5
"""Of the quick interval: a look takes samples anew that are older."""


def horizon_seconds(spec: SimWorkloadSpec) -> float:
    """How far back samples are kept: a few windows, and at least as long as one may be used."""
    return float(
        max(_WINDOWS * spec.tuning.window_seconds, spec.metrics.max_age_seconds)
        + 2 * spec.metrics.interval_seconds
    )


def _fresh_seconds(spec: SimWorkloadSpec) -> float:
    """Without quick looks the sampler's own pace is all there is."""
    quick, calm = quickest_seconds(spec), float(spec.metrics.interval_seconds)
    return _FRESH_SHARE * quick if quick < calm else calm


class Observer:
    """One for the operator; holds a sampler for each SimWorkload until `forget`."""

    def __init__(
        self,
        client: KubeClient,
        clock: Clock,
        *,
        pods_source: SampleSource,
        prometheus: PrometheusReader | None = None,
        nodes: NodeReader | None = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._pods_source = pods_source
        self._prometheus = prometheus
        self._nodes = nodes if nodes is not None else NodeReader(client, clock)
        self._samplers: dict[Key, tuple[str, Sampler]] = {}
        self._owners: dict[Key, tuple[OtherOwner, ...]] = {}

    async def observe(self, simworkload: Json, spec: SimWorkloadSpec) -> Observation:
        """Look once.

        Raises:
            Unavailable: the API server gives no answer about the object, its target or its pods.
        """
        metadata: Json = simworkload["metadata"]
        namespace, name = str(metadata["namespace"]), str(metadata["name"])
        bare = Observation(
            namespace=namespace,
            name=name,
            uid=str(metadata.get("uid", "")),
            generation=int(metadata.get("generation", 0)),
            sampled_at_seconds=self._clock.now_seconds(),
            target=None,
        )
        try:
            target = await self._target(namespace, spec)
            listed = await self._client.list(
                collection("v1", "pods", namespace), label_selector=target.selector
            )
        except TargetUnresolved as error:
            await self.forget((namespace, name))
            return replace(bare, target_problem=str(error.reason), target_message=error.message)
        except NotPermitted as error:
            return replace(
                bare, target_problem=str(Reason.NOT_PERMITTED), target_message=str(error)
            )
        raw_pods = sorted(
            (pod for pod in listed.items if belongs_to_target(pod, spec.target_ref, target.uid)),
            key=lambda pod: str(pod["metadata"]["name"]),
        )
        sampler, problem = await self._sample((namespace, name), bare.uid, raw_pods, spec)
        pods = tuple(self._pod(pod, target.container, spec, sampler) for pod in raw_pods)
        bounds, quota = await read_limits(self._client, namespace)
        return replace(
            bare,
            sampled_at_seconds=self._clock.now_seconds(),
            target=target,
            pods=pods,
            nodes=await self._nodes.read(pod.node for pod in pods if not pod.terminating),
            limit_range=bounds,
            quota_free_limit_millicores=quota[0],
            quota_free_request_millicores=quota[1],
            other_owners=await self._other_owners(simworkload, spec, target.container),
            metrics_problem=problem,
        )

    async def glance(self, before: Observation, spec: SimWorkloadSpec) -> Observation | None:
        """`before` with the pods' samples of now; nothing is read from the API server.

        None: the pods are not being sampled, or cannot be: look properly.
        """
        known = self._samplers.get((before.namespace, before.name))
        if known is None or known[0] != before.uid:
            return None
        sampler = known[1]
        with suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_ROUND_SECONDS):
                await sampler.look_now(at_least_seconds=_fresh_seconds(spec))
        return replace(
            before,
            sampled_at_seconds=self._clock.now_seconds(),
            pods=tuple(self._sampled(pod, spec, sampler) for pod in before.pods),
            metrics_problem=sampler.problem,
        )

    async def forget(self, key: Key) -> None:
        """Stop sampling for an object that is gone or has no target."""
        self._owners.pop(key, None)
        known = self._samplers.pop(key, None)
        if known is not None:
            await known[1].stop()

    async def close(self) -> None:
        for key in list(self._samplers):
            await self.forget(key)

    async def _other_owners(
        self, simworkload: Json, spec: SimWorkloadSpec, container: str
    ) -> tuple[OtherOwner, ...]:
        key = (str(simworkload["metadata"]["namespace"]), str(simworkload["metadata"]["name"]))
        try:
            owners = await read_other_owners(
                self._client, simworkload=simworkload, target=spec.target_ref, container=container
            )
        except Unavailable:
            if key not in self._owners:
                raise  # nobody can say yet whether we may write
            return self._owners[key]
        self._owners[key] = owners
        return owners

    async def _target(self, namespace: str, spec: SimWorkloadSpec) -> TargetObservation:
        reference = spec.target_ref
        workload = await self._client.get(
            item(reference.api_version, TARGET_PLURALS[reference.kind], reference.name, namespace)
        )
        if workload is None:
            raise TargetUnresolved(
                Reason.TARGET_NOT_FOUND,
                f"there is no {reference.kind} {reference.name} in namespace {namespace}; create"
                " it or correct spec.targetRef",
            )
        return observe_target(workload, spec)

    async def _sample(
        self, key: Key, uid: str, raw_pods: list[Json], spec: SimWorkloadSpec
    ) -> tuple[Sampler, str]:
        known = self._samplers.get(key)
        if known is not None and known[0] != uid:
            await self.forget(key)  # another object under the same name
            known = None
        sampler = known[1] if known is not None else Sampler()
        self._samplers[key] = (uid, sampler)
        source = self._source(key[0], spec)
        if source is None:
            return sampler, (
                "metrics.source is Prometheus, but the operator has no Prometheus address; set"
                " prometheus.url when installing it"
            )
        targets = (
            scrape_target(
                pod,
                spec.metrics,
                parse_time(pod["metadata"].get("creationTimestamp")) or 0.0,
            )
            for pod in raw_pods
            if "deletionTimestamp" not in pod["metadata"]
        )
        sampler.follow(
            SamplingPlan(
                source=source,
                targets=tuple(target for target in targets if target is not None),
                interval_seconds=spec.metrics.interval_seconds,
                horizon_seconds=horizon_seconds(spec),
            )
        )
        with suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_ROUND_SECONDS):
                await sampler.first_round()
                await sampler.look_now(at_least_seconds=_fresh_seconds(spec))
        return sampler, sampler.problem

    def _source(self, namespace: str, spec: SimWorkloadSpec) -> SampleSource | None:
        if spec.metrics.source is MetricsSource.PODS:
            return self._pods_source
        if self._prometheus is None:
            return None
        return PrometheusSource(
            reader=self._prometheus,
            namespace=namespace,
            settings=spec.metrics.prometheus,
            max_age_seconds=spec.metrics.max_age_seconds,
        )

    def _pod(
        self, pod: Json, container: str, spec: SimWorkloadSpec, sampler: Sampler
    ) -> PodObservation:
        return self._sampled(observe_pod(pod, container=container), spec, sampler)

    def _sampled(
        self, observed: PodObservation, spec: SimWorkloadSpec, sampler: Sampler
    ) -> PodObservation:
        read = sampler.store.read(
            observed.uid,
            now_seconds=self._clock.now_seconds(),
            horizon_seconds=horizon_seconds(spec),
            max_age_seconds=spec.metrics.max_age_seconds,
        )
        return replace(
            observed,
            samples=read.samples,
            freshness=read.freshness,
            sample_problem=read.problem,
        )
