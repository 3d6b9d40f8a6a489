"""Specs of a SlimInference that are right or wrong: one table for the models and for the API server.

`says` is a part of the message that both give.
"""

from typing import Any

from tests.support.inferences import inference_spec
from tests.support.spec_cases import SpecCase

__all__ = ["INFERENCE_CASES"]

_ACCURACY = "width.accuracy >= self.slo.minAccuracy"
_TIMEOUT = "self.slo.latencyMilliseconds <= self.routing"
_HOLD = "self.batching.holdMilliseconds <"
_BUSY = "self.batching.busyCost =="
_ROWS = "self.batching.maxRows <="
_BYTES = "self.routing.maxBodyBytes <="
_POOLS = "self.pools.exists_one"
_WIDTHS = "self.widths.exists_one"
_PRELOAD = "self.preload.all"
_SOURCE = "has(self.persistentVolumeClaim)"
_REPLICAS = "self.minReplicas <= self.maxReplicas"
_RESOURCES = "self.requests.all"
_PANIC = "self.panicWindowSeconds <="
_IDLE = "self.scaleToZeroAfterSeconds >="
_LOG = "self.decisionLog.samplePercent =="


def _with(**fields: Any) -> dict[str, Any]:
    return inference_spec(**fields)


def _model(**fields: Any) -> dict[str, Any]:
    spec = inference_spec()
    return spec | {"model": spec["model"] | fields}


def _pool(**fields: Any) -> dict[str, Any]:
    return _with(pools=[{"name": "cpu", **fields}])


def _width(ratio: float, model: str) -> dict[str, Any]:
    return {"ratio": ratio, "model": model, "accuracy": 0.9}


_TWICE = {"requests": {"cpu": "2"}, "limits": {"cpu": "1000m"}}
_ONCE = {"requests": {"cpu": "1"}, "limits": {"cpu": "1000m"}}
_CLAIM = {"claimName": "models"}

INFERENCE_CASES: tuple[SpecCase, ...] = (
    SpecCase("least", True, _with()),
    SpecCase(
        "everything", True,
        _with(
            pools=[
                {
                    "name": "gpu", "nodeSelector": {"kubernetes.io/arch": "amd64"},
                    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
                    "resources": {"limits": {"nvidia.com/gpu": 1}}, "minReplicas": 0,
                    "maxReplicas": 2, "costPerHour": 2.5, "powerWatts": 700, "priority": -1,
                }
            ],
            slo={"latencyMilliseconds": 100, "percentile": 99, "classes": {"gold": 20}},
            routing={
                "policy": "PPO", "mode": "Canary", "decisionLog": {"samplePercent": 10},
                "learned": {
                    "policyConfigMap": "tuned.v2", "canaryPercent": 1.5, "objective": {"energy": 1},
                },
            },
            batching={"maxRows": 8, "holdMilliseconds": 5, "busyCost": 2.5},
            scaling={"owner": "External", "scaleToZeroAfterSeconds": 600},
            router={"replicas": 3, "resources": {"limits": {"cpu": "1"}}},
            imagePullSecrets=[{"name": "registry"}],
        ),
    ),
    SpecCase("policy-in-shadow", True, _with(routing={"policy": "Mixture", "mode": "Shadow"})),
    SpecCase(
        "log-of-a-learned-policy", True,
        _with(routing={"policy": "PPO", "decisionLog": {"samplePercent": 0.5}}), rule=_LOG,
    ),
    SpecCase(
        "log-of-a-heuristic", False, _with(routing={"decisionLog": {"samplePercent": 5}}),
        "routing.decisionLog.samplePercent keeps what PPO saw and did; set it to 0, or"
        " routing.policy to PPO", _LOG,
    ),
    SpecCase("best-accuracy", True, _with(slo={"minAccuracy": 0.91}), rule=_ACCURACY),
    SpecCase(
        "accuracy-nobody-has", False, _with(slo={"minAccuracy": 0.95}),
        "slo.minAccuracy is above the accuracy of every width; lower it", _ACCURACY,
    ),
    SpecCase("latency-alone", True, _with(slo={"latencyMilliseconds": 30_000}), rule=_TIMEOUT),
    SpecCase(
        "latency-above-default-timeout", False, _with(slo={"latencyMilliseconds": 30_001}),
        "slo.latencyMilliseconds 30001 is above routing.timeoutMilliseconds 30000; raise the timeout",
        _TIMEOUT,
    ),
    SpecCase("hold-alone", True, _with(batching={"holdMilliseconds": 249}), rule=_HOLD),
    SpecCase(
        "hold-eats-the-latency", False, _with(batching={"holdMilliseconds": 250}),
        "batching.holdMilliseconds 250 leaves nothing of slo.latencyMilliseconds 250; lower it",
        _HOLD,
    ),
    SpecCase(
        "busy-cost-with-a-hold", True, _with(batching={"busyCost": 4, "holdMilliseconds": 20}),
        rule=_BUSY,
    ),
    SpecCase(
        "busy-cost-without-a-hold", False, _with(batching={"busyCost": 4}),
        "batching.busyCost is above 0 and batching.holdMilliseconds is 0, so nothing ever waits; set"
        " holdMilliseconds", _BUSY,
    ),
    SpecCase("rows-of-a-queue", True, _with(batching={"maxRows": 512}), rule=_ROWS),
    SpecCase(
        "batch-above-queue", False, _with(batching={"maxRows": 513}),
        "batching.maxRows 513 is above batching.queueRows 512, so no batch is ever full; lower it",
        _ROWS,
    ),
    SpecCase("body-of-a-queue", True, _with(routing={"maxBodyBytes": 67_108_864}), rule=_BYTES),
    SpecCase(
        "body-above-queue", False, _with(routing={"maxBodyBytes": 67_108_865}),
        "routing.maxBodyBytes 67108865 is above batching.queueBytes 67108864, so no queue could"
        " hold it; lower it", _BYTES,
    ),
    SpecCase("two-pools", True, _with(pools=[{"name": "a"}, {"name": "b"}]), rule=_POOLS),
    SpecCase(
        "same-pools", False, _with(pools=[{"name": "a"}, {"name": "a"}]),
        "pools: two of them have the same name; give each its own", _POOLS,
    ),
    SpecCase("two-widths", True, _model(widths=[_width(0.5, "a"), _width(1, "b")]), rule=_WIDTHS),
    SpecCase(
        "same-ratio", False, _model(widths=[_width(1, "a"), _width(1, "b")]),
        "model.widths: two of them have the same ratio or model; give each its own", _WIDTHS,
    ),
    SpecCase(
        "same-model", False, _model(widths=[_width(0.5, "a"), _width(1, "a")]),
        "model.widths: two of them have the same ratio or model; give each its own", _WIDTHS,
    ),
    SpecCase("preload-known", True, _model(preload=["fashion-w025"]), rule=_PRELOAD),
    SpecCase(
        "preload-unknown", False, _model(preload=["fashion-w099"]),
        "model.preload has a name that is no model of model.widths; write one of those", _PRELOAD,
    ),
    SpecCase("image", True, _model(source={"image": "reg/models:1"}), rule=_SOURCE),
    SpecCase("claim", True, _model(source={"persistentVolumeClaim": _CLAIM})),
    SpecCase(
        "image-and-claim", False,
        _model(source={"image": "reg/models:1", "persistentVolumeClaim": _CLAIM}),
        "model.source has both image and persistentVolumeClaim; leave one of them out", _SOURCE,
    ),
    SpecCase("min-alone", True, _pool(minReplicas=10), rule=_REPLICAS),
    SpecCase(
        "min-above-default-max", False, _pool(minReplicas=11),
        "minReplicas 11 is above maxReplicas 10; lower minReplicas", _REPLICAS,
    ),
    SpecCase("request-equals-limit", True, _pool(resources=_ONCE), rule=_RESOURCES),
    SpecCase(
        "request-above-limit", False, _pool(resources=_TWICE),
        "resources.requests are above resources.limits; lower the request", _RESOURCES,
    ),
    SpecCase(
        "router-request-above-limit", False, _with(router={"resources": _TWICE}),
        "resources.requests are above resources.limits; lower the request", _RESOURCES,
    ),
    SpecCase("bursts-never-remembered", True, _with(scaling={"burstMemorySeconds": 0})),
    SpecCase(
        "burst-memory-beyond-what-is-kept", False, _with(scaling={"burstMemorySeconds": 3601}),
        "scaling.burstMemorySeconds",
    ),
    SpecCase("panic-alone", True, _with(scaling={"panicWindowSeconds": 60}), rule=_PANIC),
    SpecCase(
        "panic-above-stable", False, _with(scaling={"panicWindowSeconds": 61}),
        "scaling.panicWindowSeconds 61 is above scaling.stableWindowSeconds 60; lower it", _PANIC,
    ),
    SpecCase("idle-alone", True, _with(scaling={"scaleToZeroAfterSeconds": 60}), rule=_IDLE),
    SpecCase("idle-null", True, _with(scaling={"scaleToZeroAfterSeconds": None})),
    SpecCase(
        "idle-below-window", False, _with(scaling={"scaleToZeroAfterSeconds": 59}),
        "scaling.scaleToZeroAfterSeconds 59 is below scaling.stableWindowSeconds 60; raise it",
        _IDLE,
    ),
    # bounds of single fields: both sides name the field
    SpecCase("max-zero", False, _pool(maxReplicas=0), "maxReplicas"),
    SpecCase("min-negative", False, _pool(minReplicas=-1), "minReplicas"),
    SpecCase("max-overflow", False, _pool(maxReplicas=2**31), "maxReplicas"),
    SpecCase("no-pools", False, _with(pools=[]), "pools"),
    SpecCase("no-widths", False, _model(widths=[]), "widths"),
    SpecCase("zero-ratio", False, _model(widths=[_width(0, "a")]), "ratio"),
    SpecCase("unknown-policy", False, _with(routing={"policy": "Fastest"}), "policy"),
    SpecCase("pod-template", False, _with(template={"spec": {}}), "template"),
)  # fmt: skip
