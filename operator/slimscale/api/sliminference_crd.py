"""The CustomResourceDefinition of SlimInference: its rules across fields and its columns.

A rule here has the same words as its twin, the validator in `sliminference.py`; the cases in
`tests/support/inference_cases.py` are tried on both.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from slimscale.api.crd import CelRule, Column, CustomResource, build_crd
from slimscale.api.inference_status import SlimInferenceStatus
from slimscale.api.names import GROUP, SLIMINFERENCE_KIND, SLIMINFERENCE_PLURAL
from slimscale.api.sliminference import SlimInferenceSpec

__all__ = ["INFERENCE_CRD_NAME", "INFERENCE_RULES", "sliminference_crd"]

INFERENCE_CRD_NAME = f"{SLIMINFERENCE_PLURAL}.{GROUP}"

_RESOURCES = (
    CelRule(
        "!has(self.requests) || !has(self.limits) || self.requests.all(name,"
        " !(name in self.limits) || !quantity(string(self.requests[name]))"
        ".isGreaterThan(quantity(string(self.limits[name]))))",
        "'resources.requests are above resources.limits; lower the request'",
        ".requests",
    ),
)

INFERENCE_RULES: Mapping[str, tuple[CelRule, ...]] = MappingProxyType(
    {
        "": (
            CelRule(
                "self.model.widths.exists(width, width.accuracy >= self.slo.minAccuracy)",
                # with the value in it the message would cost more than CEL may
                "'slo.minAccuracy is above the accuracy of every width; lower it'",
                ".slo.minAccuracy",
            ),
            CelRule(
                "self.slo.latencyMilliseconds <= self.routing.timeoutMilliseconds",
                "'slo.latencyMilliseconds %d is above routing.timeoutMilliseconds %d; raise the"
                " timeout'.format([self.slo.latencyMilliseconds, self.routing.timeoutMilliseconds])",
                ".slo.latencyMilliseconds",
            ),
            CelRule(
                "self.batching.holdMilliseconds < self.slo.latencyMilliseconds",
                "'batching.holdMilliseconds %d leaves nothing of slo.latencyMilliseconds %d; lower"
                " it'.format([self.batching.holdMilliseconds, self.slo.latencyMilliseconds])",
                ".batching.holdMilliseconds",
            ),
            CelRule(
                "self.batching.busyCost == 0.0 || self.batching.holdMilliseconds > 0",
                "'batching.busyCost is above 0 and batching.holdMilliseconds is 0, so nothing ever"
                " waits; set holdMilliseconds'",
                ".batching.busyCost",
            ),
            CelRule(
                "self.batching.maxRows <= self.batching.queueRows",
                "'batching.maxRows %d is above batching.queueRows %d, so no batch is ever full;"
                " lower it'.format([self.batching.maxRows, self.batching.queueRows])",
                ".batching.maxRows",
            ),
            CelRule(
                "self.routing.maxBodyBytes <= self.batching.queueBytes",
                "'routing.maxBodyBytes %d is above batching.queueBytes %d, so no queue could hold"
                " it; lower it'.format([self.routing.maxBodyBytes, self.batching.queueBytes])",
                ".routing.maxBodyBytes",
            ),
            CelRule(
                "self.pools.all(pool, self.pools.exists_one(other, other.name == pool.name))",
                "'pools: two of them have the same name; give each its own'",
                ".pools",
            ),
        ),
        "model": (
            CelRule(
                "self.widths.all(width, self.widths.exists_one(other,"
                " other.ratio == width.ratio || other.model == width.model))",
                "'model.widths: two of them have the same ratio or model; give each its own'",
                ".widths",
            ),
            CelRule(
                "!has(self.preload) || self.preload.all(name,"
                " self.widths.exists(width, width.model == name))",
                "'model.preload has a name that is no model of model.widths; write one of those'",
                ".preload",
            ),
        ),
        "model.source": (
            CelRule(
                "!(has(self.image) && dyn(self.image) != null"
                " && has(self.persistentVolumeClaim) && dyn(self.persistentVolumeClaim) != null)",
                "'model.source has both image and persistentVolumeClaim; leave one of them out'",
                ".image",
            ),
        ),
        "pools[]": (
            CelRule(
                "self.minReplicas <= self.maxReplicas",
                "'minReplicas %d is above maxReplicas %d; lower minReplicas'"
                ".format([self.minReplicas, self.maxReplicas])",
                ".minReplicas",
            ),
        ),
        "pools[].resources": _RESOURCES,
        "router.resources": _RESOURCES,
        "routing": (
            CelRule(
                "self.decisionLog.samplePercent == 0.0 || self.policy == 'PPO'",
                "'routing.decisionLog.samplePercent keeps what PPO saw and did; set it to 0, or"
                " routing.policy to PPO'",
                ".decisionLog.samplePercent",
            ),
        ),
        "scaling": (
            CelRule(
                "self.panicWindowSeconds <= self.stableWindowSeconds",
                "'scaling.panicWindowSeconds %d is above scaling.stableWindowSeconds %d; lower it'"
                ".format([self.panicWindowSeconds, self.stableWindowSeconds])",
                ".panicWindowSeconds",
            ),
            CelRule(
                "!has(self.scaleToZeroAfterSeconds) || dyn(self.scaleToZeroAfterSeconds) == null"
                " || self.scaleToZeroAfterSeconds >= self.stableWindowSeconds",
                "'scaling.scaleToZeroAfterSeconds %d is below scaling.stableWindowSeconds %d; raise"
                " it'.format([self.scaleToZeroAfterSeconds, self.stableWindowSeconds])",
                ".scaleToZeroAfterSeconds",
            ),
        ),
    }
)
"""By the path of the field of the spec that the rule stands on; the empty one is the spec."""

_COLUMNS: tuple[Column, ...] = (
    ("Model", "string", ".spec.model.name", "The model that clients ask for", 0),
    ("Policy", "string", ".spec.routing.policy", "What picks pod, width and batch cap", 0),
    ("Replicas", "integer", ".status.replicas", "Pods of all pools", 0),
    ("Ready-Pods", "integer", ".status.readyReplicas", "Pods that take requests", 0),
    ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', "All is well", 0),
    ("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason', "Why, in a word", 0),
    ("SLO-ms", "integer", ".spec.slo.latencyMilliseconds", "Latency that requests count on", 0),
    ("Attainment", "number", ".status.slo.attainment", "Share of requests in time", 0),
    ("Scaling", "string", ".spec.scaling.owner", "Who says how many pods", 1),
    ("URL", "string", ".status.url", "Where it answers", 1),
    ("Age", "date", ".metadata.creationTimestamp", "Since when the object exists", 0),
)


def sliminference_crd() -> dict[str, Any]:
    """The whole manifest, as it is written to crds/."""
    return build_crd(
        CustomResource(
            kind=SLIMINFERENCE_KIND,
            plural=SLIMINFERENCE_PLURAL,
            short_name="slim",
            description=(
                "Serves a slimmable model on pools of unlike nodes: each request gets a pod, a width"
                " and a batch cap, and pods follow the load."
            ),
            spec=SlimInferenceSpec,
            status=SlimInferenceStatus,
            rules=INFERENCE_RULES,
            columns=_COLUMNS,
        )
    )
