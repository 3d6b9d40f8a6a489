"""The CustomResourceDefinition of SimWorkload: schema from the models, the rest by hand.

A rule here has the same words as its twin, the validator in `simworkload.py`; the cases in
`tests/support/spec_cases.py` are tried on both. Defaults are filled in before a rule is evaluated,
so a rule may count on every field that has one.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from slimscale.api.names import GROUP, SIMWORKLOAD_KIND, SIMWORKLOAD_PLURAL, VERSION
from slimscale.api.schema import Schema, structural_schema
from slimscale.api.simworkload import SimWorkloadSpec, SimWorkloadStatus

__all__ = ["ANNOTATION_SCHEMA_DIGEST", "CRD_NAME", "RULES", "CelRule", "schema_digest"]
__all__ += ["simworkload_crd"]

CRD_NAME = f"{SIMWORKLOAD_PLURAL}.{GROUP}"
ANNOTATION_SCHEMA_DIGEST = f"{GROUP}/schema-digest"
"""On the CRD: `schema_digest()` of the release that wrote it, so that an old CRD is noticed."""


@dataclass(frozen=True, slots=True)
class CelRule:
    """`message` is CEL too: it names field, value and remedy. `field`: where kubectl points to."""

    rule: str
    message: str
    field: str = ""
    reason: str = "FieldValueInvalid"

    def manifest(self) -> dict[str, str]:
        """The entry of `x-kubernetes-validations`."""
        entry = {"rule": self.rule, "messageExpression": self.message, "reason": self.reason}
        return entry | ({"fieldPath": self.field} if self.field else {})


def _number(field: str) -> str:
    return f"quantity(string({field}))"


RULES: Mapping[str, tuple[CelRule, ...]] = MappingProxyType(
    {
        "": (
            CelRule(
                "self.tuning.windowSeconds >= self.metrics.intervalSeconds",
                "'tuning.windowSeconds %d is below metrics.intervalSeconds %d; raise it'"
                ".format([self.tuning.windowSeconds, self.metrics.intervalSeconds])",
                ".tuning.windowSeconds",
            ),
        ),
        "threads": (
            CelRule(
                "self.min <= self.max",
                "'threads.min %d is above threads.max %d; lower min'.format([self.min, self.max])",
                ".min",
            ),
        ),
        "cpu": (
            CelRule(
                f"{_number('self.min')}.isGreaterThan(quantity('0'))",
                "'cpu.min %s is below 1m; write at least 1m'.format([self.min])",
                ".min",
            ),
            CelRule(
                "!has(self.max) || self.max == null"
                f" || !{_number('self.min')}.isGreaterThan({_number('self.max')})",
                "'cpu.min %s is above cpu.max %s; lower min'.format([self.min, self.max])",
                ".min",
            ),
        ),
        "objective": (
            CelRule(
                "self.type != 'TargetThroughput'"
                " || (has(self.tasksPerSecond) && self.tasksPerSecond != null)",
                "'objective.tasksPerSecond is missing; ' + self.type + ' needs the rate of a pod'",
                ".tasksPerSecond",
                "FieldValueRequired",
            ),
            CelRule(
                "!has(self.tasksPerSecond) || self.tasksPerSecond == null"
                f" || {_number('self.tasksPerSecond')}.isGreaterThan(quantity('0'))",
                "'objective.tasksPerSecond %s is not above 0; write e.g. 100'"
                ".format([self.tasksPerSecond])",
                ".tasksPerSecond",
            ),
        ),
        "metrics": (
            CelRule(
                "self.maxAgeSeconds >= 2 * self.intervalSeconds",
                "'metrics.maxAgeSeconds %d is below twice metrics.intervalSeconds %d; raise it'"
                ".format([self.maxAgeSeconds, self.intervalSeconds])",
                ".maxAgeSeconds",
            ),
        ),
    }
)
"""By the field of the spec that the rule stands on; the empty one is the spec itself."""

_COLUMNS: tuple[tuple[str, str, str, str, int], ...] = (
    ("Workload", "string", ".spec.targetRef.name", "The workload that is tuned", 0),
    ("Mode", "string", ".spec.updatePolicy.mode", "What may be changed, and when", 0),
    ("Threads", "integer", ".status.current.threads", "Threads that the pods acknowledged", 0),
    ("CPU", "string", ".status.current.cpuLimit", "CPU limit applied to the container", 0),
    ("Target", "integer", ".status.target.threads", "Threads that a pod is to use", 0),
    ("Target-CPU", "string", ".status.target.cpuLimit", "CPU limit that a pod is to have", 0),
    ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', "All is well", 0),
    ("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason', "Why, in a word", 0),
    ("Tasks/s", "number", ".status.measuredTasksPerSecond", "Measured, of a pod", 1),
    ("Confidence", "string", ".status.confidence", "How far the figures carry", 1),
    ("Acknowledged", "integer", ".status.acknowledgedPods", "Pods that use the target", 1),
    ("Age", "date", ".metadata.creationTimestamp", "Since when the object exists", 0),
)


def _spec_schema() -> Schema:
    spec = structural_schema(SimWorkloadSpec)
    for field, rules in RULES.items():
        node = spec["properties"][field] if field else spec
        node["x-kubernetes-validations"] = [rule.manifest() for rule in rules]
    spec.pop("default", None)
    return spec


def _object_schema() -> Schema:
    return {
        "type": "object",
        "description": (
            "Chooses the thread count and the CPU of a simulation's pods, applies them, and keeps"
            " choosing as the load changes."
        ),
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": _spec_schema(),
            "status": structural_schema(SimWorkloadStatus, defaults=False),
        },
    }


def schema_digest() -> str:
    """Twelve hexadecimal digits that change with the schema."""
    text = json.dumps(_object_schema(), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def simworkload_crd() -> dict[str, Any]:
    """The whole manifest, as it is written to crds/."""
    columns = []
    for name, kind, path, description, priority in _COLUMNS:
        column = {"name": name, "type": kind, "jsonPath": path, "description": description}
        columns.append(column | ({"priority": priority} if priority else {}))
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": CRD_NAME,
            "annotations": {ANNOTATION_SCHEMA_DIGEST: schema_digest()},
        },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": SIMWORKLOAD_KIND,
                "listKind": f"{SIMWORKLOAD_KIND}List",
                "plural": SIMWORKLOAD_PLURAL,
                "singular": SIMWORKLOAD_KIND.lower(),
                "shortNames": ["simw"],
                "categories": ["slimscale"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": _object_schema()},
                }
            ],
        },
    }
