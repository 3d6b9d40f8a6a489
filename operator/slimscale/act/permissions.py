"""Everything the operator may do to the cluster, and why. The chart's RBAC equals this table.

A test compares it with the chart, another one with what the code was seen to call. No wildcard.
"""

from dataclasses import dataclass
from enum import StrEnum

from slimscale.api.names import GROUP, SIMWORKLOAD_PLURAL, SLIMINFERENCE_PLURAL

__all__ = ["PERMISSIONS", "Permission", "Scope", "allowed"]


class Scope(StrEnum):
    WATCHED = "Watched"
    """ClusterRole, or a Role in each watched namespace when the chart is told which."""
    CLUSTER = "Cluster"
    """Cluster-scoped objects, or reads across all namespaces: always a ClusterRole."""
    OWN = "Own"
    """A Role in the operator's own namespace."""


class ResourceName(StrEnum):
    """Placeholders for the names that the chart knows."""

    WEBHOOK_SECRET = "webhookSecret"  # noqa: S105 - a placeholder
    WEBHOOK_MUTATING = "mutatingConfiguration"
    WEBHOOK_VALIDATING = "validatingConfiguration"
    LEASE = "lease"


@dataclass(frozen=True, slots=True)
class Permission:
    """One rule of RBAC. `names` empty: objects of any name."""

    api_group: str
    resource: str
    verbs: tuple[str, ...]
    scope: Scope
    why: str
    names: tuple[ResourceName, ...] = ()


_READ = ("get", "list", "watch")

PERMISSIONS: tuple[Permission, ...] = (
    Permission(GROUP, SIMWORKLOAD_PLURAL, _READ, Scope.WATCHED, "the custom resources themselves"),
    Permission(
        GROUP, f"{SIMWORKLOAD_PLURAL}/status", ("patch",), Scope.WATCHED, "to say what is and why"
    ),
    Permission(
        GROUP, SLIMINFERENCE_PLURAL, _READ, Scope.WATCHED, "the custom resources themselves"
    ),
    Permission(
        GROUP, f"{SLIMINFERENCE_PLURAL}/status", ("patch",), Scope.WATCHED, "to say what is and why"
    ),
    Permission(
        "", "pods", (*_READ, "patch", "delete"), Scope.WATCHED,
        "target pods are read; patch sets annotations of slimscale.dev and, on our own pods, the"
        " deletion cost; delete replaces one of our own whose GPU is lost",
    ),
    Permission(
        "", "pods/resize", ("patch",), Scope.WATCHED, "CPU of the named container, in place"
    ),
    Permission(
        "apps", "deployments", (*_READ, "create", "patch", "delete"), Scope.WATCHED,
        "targets; patch in the modes Rollout and InPlaceOrRollout; router and pools are our own",
    ),
    Permission(
        "apps", "statefulsets", (*_READ, "patch"), Scope.WATCHED,
        "targets; patch in the modes Rollout and InPlaceOrRollout",
    ),
    Permission(
        "apps", "daemonsets", (*_READ, "patch"), Scope.WATCHED,
        "targets; patch in the modes Rollout and InPlaceOrRollout",
    ),
    Permission("apps", "replicasets", _READ, Scope.WATCHED, "targets, never written"),
    Permission("", "limitranges", ("list",), Scope.WATCHED, "bounds of a container's CPU"),
    Permission("", "resourcequotas", ("list",), Scope.WATCHED, "what a namespace has left"),
    Permission(
        "autoscaling", "horizontalpodautoscalers", ("list",), Scope.WATCHED,
        "an HPA on CPU and we would chase each other",
    ),
    Permission(
        "autoscaling.k8s.io", "verticalpodautoscalers", ("list",), Scope.WATCHED,
        "a VPA on the target owns the same fields",
    ),
    Permission(
        "", "configmaps", (*_READ, "create", "patch"), Scope.WATCHED,
        "learned state and the configuration of SlimInferences; read by our label alone, and the"
        " policy files that SlimInferences name",
    ),
    Permission(
        "", "services", (*_READ, "create", "patch"), Scope.WATCHED,
        "the front door of a SlimInference and the list of its pods",
    ),
    Permission(
        "", "serviceaccounts", ("get", "list", "create", "patch"), Scope.WATCHED,
        "of a SlimInference's router",
    ),
    Permission(
        "rbac.authorization.k8s.io", "roles", ("get", "list", "create", "patch"), Scope.WATCHED,
        "the router's right to read EndpointSlices; the API server lets us give away no other",
    ),
    Permission(
        "rbac.authorization.k8s.io", "rolebindings", ("get", "list", "create", "patch"),
        Scope.WATCHED, "gives the router's account its role",
    ),
    Permission(
        "discovery.k8s.io", "endpointslices", _READ, Scope.WATCHED,
        "never read by us: nobody may give away a right that he lacks",
    ),
    Permission(
        "networking.k8s.io", "networkpolicies", ("get", "list", "create", "patch"), Scope.WATCHED,
        "only routers reach the pods of a SlimInference",
    ),
    Permission(
        "policy", "poddisruptionbudgets", ("get", "list", "create", "patch", "delete"),
        Scope.WATCHED, "one pod of a SlimInference at a time leaves a node that is drained",
    ),
    Permission(
        "monitoring.coreos.com", "servicemonitors", ("get", "list", "create", "patch"),
        Scope.WATCHED, "where the Prometheus operator is installed",
    ),
    Permission("", "events", ("create", "patch"), Scope.WATCHED, "transitions, for kubectl describe"),
    Permission("", "nodes", ("get", "list"), Scope.CLUSTER, "room for a resize"),
    Permission(
        "", "pods", ("list",), Scope.CLUSTER, "what other pods on a target's node have requested"
    ),
    Permission(
        "admissionregistration.k8s.io", "mutatingwebhookconfigurations", ("get", "patch"),
        Scope.CLUSTER, "to keep caBundle true", (ResourceName.WEBHOOK_MUTATING,),
    ),
    Permission(
        "admissionregistration.k8s.io", "validatingwebhookconfigurations", ("get", "patch"),
        Scope.CLUSTER, "to keep caBundle true", (ResourceName.WEBHOOK_VALIDATING,),
    ),
    Permission(
        "", "secrets", ("get", "update"), Scope.OWN, "the webhook's certificate",
        (ResourceName.WEBHOOK_SECRET,),
    ),
    Permission(
        "", "secrets", ("create",), Scope.OWN,
        "the webhook's certificate at first start; RBAC cannot name an object that is not there yet",
    ),
    Permission(
        "coordination.k8s.io", "leases", ("get", "update"), Scope.OWN, "one writer at any time",
        (ResourceName.LEASE,),
    ),
    Permission(
        "coordination.k8s.io", "leases", ("create",), Scope.OWN,
        "the lease at first start; RBAC cannot name an object that is not there yet",
    ),
)  # fmt: skip


def allowed(verb: str, resource: str) -> bool:
    """Whether some rule allows the verb on the resource, a subresource written `pods/resize`."""
    return any(verb in rule.verbs and resource == rule.resource for rule in PERMISSIONS)
