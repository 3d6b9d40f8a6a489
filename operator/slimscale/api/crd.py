"""CustomResourceDefinitions: schema from the models, the rest by hand. Here: SimWorkload's.

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

from pydantic import BaseModel

from slimscale.api.names import GROUP, SIMWORKLOAD_KIND, SIMWORKLOAD_PLURAL, VERSION
from slimscale.api.schema import Schema, structural_schema
from slimscale.api.simworkload import SimWorkloadSpec, SimWorkloadStatus

__all__ = ["ANNOTATION_SCHEMA_DIGEST", "CRD_NAME", "RULES", "CelRule", "Column", "CustomResource"]
__all__ += ["build_crd", "schema_digest", "simworkload_crd"]

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


Column = tuple[str, str, str, str, int]
"""Name, type, path, description, priority: what `kubectl get` shows."""


@dataclass(frozen=True, slots=True)
class CustomResource:
    """What a CRD is made of. rules: by the path of the field of the spec on which they stand."""

    kind: str
    plural: str
    short_name: str
    description: str
    spec: type[BaseModel]
    status: type[BaseModel]
    rules: Mapping[str, tuple[CelRule, ...]]
    columns: tuple[Column, ...]


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

_COLUMNS: tuple[Column, ...] = (
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


def _node_at(spec: Schema, path: str) -> Schema:
    """`pools[].resources`: the schema of that field, of the items where it says []."""
    node = spec
    for part in path.split(".") if path else ():
        node = node["properties"][part.removesuffix("[]")]
        if part.endswith("[]"):
            node = node["items"]
    return node


def _object_schema(resource: CustomResource) -> Schema:
    spec = structural_schema(resource.spec)
    for path, rules in resource.rules.items():
        node = _node_at(spec, path)
        node["x-kubernetes-validations"] = [rule.manifest() for rule in rules]
    spec.pop("default", None)
    return {
        "type": "object",
        "description": resource.description,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": structural_schema(resource.status, defaults=False),
        },
    }


def _digest(schema: Schema) -> str:
    text = json.dumps(schema, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def build_crd(resource: CustomResource) -> dict[str, Any]:
    """The whole manifest, as it is written to crds/."""
    schema = _object_schema(resource)
    columns = []
    for name, kind, path, description, priority in resource.columns:
        column = {"name": name, "type": kind, "jsonPath": path, "description": description}
        columns.append(column | ({"priority": priority} if priority else {}))
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{resource.plural}.{GROUP}",
            "annotations": {ANNOTATION_SCHEMA_DIGEST: _digest(schema)},
        },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                "shortNames": [resource.short_name],
                "categories": ["slimscale"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def _simworkload() -> CustomResource:
    return CustomResource(
        kind=SIMWORKLOAD_KIND,
        plural=SIMWORKLOAD_PLURAL,
        short_name="simw",
        description=(
            "Chooses the thread count and the CPU of a simulation's pods, applies them, and keeps"
            " choosing as the load changes."
        ),
        spec=SimWorkloadSpec,
        status=SimWorkloadStatus,
        rules=RULES,
        columns=_COLUMNS,
    )


def schema_digest() -> str:
    """Twelve hexadecimal digits that change with SimWorkload's schema."""
    return _digest(_object_schema(_simworkload()))


def simworkload_crd() -> dict[str, Any]:
    """The whole manifest, as it is written to crds/."""
    return build_crd(_simworkload())
