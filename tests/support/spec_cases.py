"""Specs of a SimWorkload that are right or wrong: one table for the models and for the API server.

`says` is a part of the message that both give. Where the API server words it its own way, `says`
holds only what the two share: the field.
"""

from dataclasses import dataclass, field
from typing import Any

__all__ = ["CASES", "SpecCase", "manifest"]


@dataclass(frozen=True, slots=True)
class SpecCase:
    """`rule`: the case is there for a rule across fields, by a part of its CEL."""

    name: str
    ok: bool
    spec: dict[str, Any] = field(default_factory=dict)
    says: str = ""
    rule: str = ""


def _with(**fields: Any) -> dict[str, Any]:
    return {"targetRef": {"name": "ant"}, **fields}


_WINDOW = "self.tuning.windowSeconds >="
_THREADS = "self.min <= self.max"
_CPU_MIN = "quantity(string(self.min)).isGreaterThan(quantity('0'))"
_CPU_BOUNDS = "isGreaterThan(quantity(string(self.max)))"
_RATE_GIVEN = "self.type != 'TargetThroughput'"
_RATE_ABOVE_0 = "quantity(string(self.tasksPerSecond)).isGreaterThan"
_AGE = "self.maxAgeSeconds >="

CASES: tuple[SpecCase, ...] = (
    SpecCase("only-a-target", True, _with()),
    SpecCase(
        "everything-set", True,
        _with(
            containerName="sim",
            updatePolicy={"mode": "InPlaceOrRollout", "resizeDeadlineSeconds": 30},
            suspend=True,
            threads={"min": 2, "max": 2, "env": ["MY_THREADS"], "processesPerPod": 2},
            cpu={"min": "500m", "max": 2, "limitPolicy": "EqualThreads"},
            objective={"type": "TargetThroughput", "tasksPerSecond": "1.5k"},
            metrics={"source": "Prometheus", "prometheus": {"matchers": {"job": "sim"}}},
            tuning={"online": False, "windowSeconds": 30},
        ),
    ),
    SpecCase("empty-sections", True, _with(threads={}, cpu={}, objective={}, metrics={})),
    SpecCase("cpu-max-null", True, _with(cpu={"max": None})),
    # one value alone, the other by default
    SpecCase("threads-min-alone", True, _with(threads={"min": 64}), rule=_THREADS),
    SpecCase(
        "threads-min-above-default-max", False, _with(threads={"min": 65}),
        "threads.min 65 is above threads.max 64; lower min", _THREADS,
    ),
    SpecCase(
        "threads-min-above-max", False, _with(threads={"min": 9, "max": 8}),
        "threads.min 9 is above threads.max 8; lower min", _THREADS,
    ),
    SpecCase("cpu-min-equals-max", True, _with(cpu={"min": "1", "max": "1000m"}), rule=_CPU_BOUNDS),
    SpecCase(
        "cpu-min-above-max", False, _with(cpu={"min": "1500m", "max": 1}),
        "cpu.min 1500m is above cpu.max 1; lower min", _CPU_BOUNDS,
    ),
    SpecCase(
        "cpu-default-min-above-max", False, _with(cpu={"max": "50m"}),
        "cpu.min 100m is above cpu.max 50m; lower min", _CPU_BOUNDS,
    ),
    SpecCase("cpu-min-tiny", True, _with(cpu={"min": "1m"}), rule=_CPU_MIN),
    SpecCase(
        "cpu-min-zero", False, _with(cpu={"min": 0}),
        "cpu.min 0 is below 1m; write at least 1m", _CPU_MIN,
    ),
    SpecCase(
        "cpu-min-negative", False, _with(cpu={"min": "-1"}),
        "cpu.min -1 is below 1m; write at least 1m", _CPU_MIN,
    ),
    SpecCase(
        "rate-missing", False, _with(objective={"type": "TargetThroughput"}),
        "objective.tasksPerSecond is missing; TargetThroughput needs the rate of a pod",
        _RATE_GIVEN,
    ),
    SpecCase(
        "rate-null", False, _with(objective={"type": "TargetThroughput", "tasksPerSecond": None}),
        "objective.tasksPerSecond is missing; TargetThroughput needs the rate of a pod",
        _RATE_GIVEN,
    ),
    SpecCase(
        "rate-given", True, _with(objective={"type": "TargetThroughput", "tasksPerSecond": "100m"}),
        rule=_RATE_GIVEN,
    ),
    SpecCase(
        "rate-zero", False, _with(objective={"tasksPerSecond": 0}),
        "objective.tasksPerSecond 0 is not above 0; write e.g. 100", _RATE_ABOVE_0,
    ),
    SpecCase("rate-tiny", True, _with(objective={"tasksPerSecond": "1n"}), rule=_RATE_ABOVE_0),
    SpecCase(
        "age-below-two-samples", False, _with(metrics={"intervalSeconds": 10, "maxAgeSeconds": 19}),
        "metrics.maxAgeSeconds 19 is below twice metrics.intervalSeconds 10; raise it", _AGE,
    ),
    SpecCase(
        "age-of-two-samples", True, _with(metrics={"intervalSeconds": 10, "maxAgeSeconds": 20}),
        rule=_AGE,
    ),
    SpecCase(
        "window-below-interval", False, _with(tuning={"windowSeconds": 4}),
        "tuning.windowSeconds 4 is below metrics.intervalSeconds 5; raise it", _WINDOW,
    ),
    SpecCase("window-of-one-sample", True, _with(tuning={"windowSeconds": 5}), rule=_WINDOW),
    # single fields: types, bounds, patterns
    SpecCase("no-target", False, {}, "targetRef"),
    SpecCase("target-without-name", False, {"targetRef": {}}, "targetRef.name"),
    SpecCase("target-kind-unknown", False, {"targetRef": {"name": "a", "kind": "Pod"}}, "kind"),
    SpecCase(
        "target-in-another-namespace", False, {"targetRef": {"name": "a", "namespace": "b"}},
        "namespace",
    ),
    SpecCase("target-name-uppercase", False, {"targetRef": {"name": "Ant"}}, "targetRef.name"),
    SpecCase("mode-unknown", False, _with(updatePolicy={"mode": "Auto"}), "updatePolicy.mode"),
    SpecCase("threads-zero", False, _with(threads={"min": 0}), "threads.min"),
    SpecCase("threads-negative", False, _with(threads={"max": -1}), "threads.max"),
    SpecCase("threads-overflow", False, _with(threads={"max": 2**31}), "threads.max"),
    SpecCase("threads-as-text", False, _with(threads={"max": "many"}), "threads.max"),
    SpecCase("env-not-a-name", False, _with(threads={"env": ["A=B"]}), "threads.env[0]"),
    SpecCase("env-too-many", False, _with(threads={"env": [f"V{i}" for i in range(17)]}), "threads.env"),
    SpecCase("cpu-not-a-quantity", False, _with(cpu={"max": "two"}), "cpu.max"),
    SpecCase("cpu-too-long", False, _with(cpu={"max": "1" * 40}), "cpu.max"),
    SpecCase("tolerance-above-50", False, _with(objective={"tolerancePercent": 51}), "tolerancePercent"),
    SpecCase("path-with-a-host", False, _with(metrics={"path": "//169.254.169.254/"}), "metrics.path"),
    SpecCase("path-not-a-path", False, _with(metrics={"path": "http://a/"}), "metrics.path"),
    SpecCase("port-zero", False, _with(metrics={"port": 0}), "metrics.port"),
    SpecCase(
        "matcher-injects", False,
        _with(metrics={"prometheus": {"matchers": {'a"} or b{c': "d"}}}), "metrics.prometheus.matchers",
    ),
    SpecCase("typo", False, _with(thread={"max": 4}), "thread"),
)  # fmt: skip


def manifest(case: SpecCase, *, namespace: str = "sims") -> dict[str, Any]:
    """The whole custom resource of a case, as `kubectl apply` takes it."""
    return {
        "apiVersion": "slimscale.dev/v1alpha1",
        "kind": "SimWorkload",
        "metadata": {"name": case.name, "namespace": namespace},
        "spec": case.spec,
    }
