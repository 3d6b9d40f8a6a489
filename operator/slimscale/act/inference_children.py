"""The children of a SlimInference, all of them, as the API server is to hold them. Pure."""

import hashlib
import json
from dataclasses import dataclass

from slimscale.act.inference_config import config_files
from slimscale.act.inference_names import POOL_ROLE, ROUTER_ROLE, InferenceNames
from slimscale.act.inference_pods import Images, pool_template, router_template
from slimscale.api.names import (
    ANNOTATION_APPLIED_DIGEST,
    ANNOTATION_OWNER,
    API_VERSION,
    DEFAULT_METRICS_PORT,
    SLIMINFERENCE_KIND,
)
from slimscale.api.serving_config import (
    ROUTER_PORT,
    ROUTER_STATUS_PORT,
    SIDECAR_PORT,
    SIDECAR_STATUS_PORT,
)
from slimscale.api.sliminference import Pool, SlimInferenceSpec
from slimscale.kubeapi.ports import Json

__all__ = ["CHILD_KINDS", "Child", "ChildSettings", "children_of"]

FRONT_PORT = 80
_RBAC = "rbac.authorization.k8s.io/v1"
_MONITORING = "monitoring.coreos.com/v1"

CHILD_KINDS: tuple[tuple[str, str], ...] = (
    ("v1", "configmaps"),
    ("v1", "serviceaccounts"),
    (_RBAC, "roles"),
    (_RBAC, "rolebindings"),
    ("v1", "services"),
    ("networking.k8s.io/v1", "networkpolicies"),
    ("policy/v1", "poddisruptionbudgets"),
    ("apps/v1", "deployments"),
)
"""(apiVersion, plural) of what is always there, in the order in which it is made."""


@dataclass(frozen=True, slots=True)
class ChildSettings:
    """What the operator's own settings say."""

    images: Images
    metrics_namespaces: tuple[str, ...] = ()
    """Whose pods may read metrics and state: the operator's, and those of a Prometheus."""


@dataclass(frozen=True, slots=True)
class Child:
    """One object. The body of a Deployment has no replicas: those have an owner of their own."""

    plural: str
    body: Json
    pool: str = ""

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    @property
    def api_version(self) -> str:
        return str(self.body["apiVersion"])


def children_of(
    spec: SlimInferenceSpec,
    *,
    name: str,
    namespace: str,
    uid: str,
    settings: ChildSettings,
    monitoring: bool = False,
) -> tuple[Child, ...]:
    """All children in the order of creation: what pods need comes before the pods.

    monitoring: the cluster knows ServiceMonitors.
    """
    make = _Maker(spec, InferenceNames(name), namespace, uid, settings)
    children = [
        make.config(),
        *make.account(),
        *make.services(),
        *make.policies(),
        make.budget("router", make.names.router, make.names.role_selector(ROUTER_ROLE)),
        *(
            make.budget(pool.name, make.names.pool(pool.name), _pool(make.names, pool.name))
            for pool in spec.pools
        ),
        make.router(),
        *make.pools(),
    ]
    if monitoring:
        children += make.monitoring()
    return tuple(make.dated(child) for child in children)


def _pool(names: InferenceNames, pool: str) -> dict[str, str]:
    return names.role_selector(POOL_ROLE, pool)


@dataclass(frozen=True, slots=True)
class _Maker:
    spec: SlimInferenceSpec
    names: InferenceNames
    namespace: str
    uid: str
    settings: ChildSettings

    def dated(self, child: Child) -> Child:
        """With a digest of itself: what was asked for last can be told from what is asked now."""
        text = json.dumps(child.body, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        child.body["metadata"]["annotations"][ANNOTATION_APPLIED_DIGEST] = digest
        return child

    def config(self) -> Child:
        files = config_files(self.spec, self.names, self.namespace)
        return Child("configmaps", self._object("v1", "ConfigMap", self.names.config, data=files))

    def account(self) -> list[Child]:
        """The router may read EndpointSlices of its namespace and nothing else."""
        name = self.names.router
        account = self._object("v1", "ServiceAccount", name)
        rule = {
            "apiGroups": ["discovery.k8s.io"],
            "resources": ["endpointslices"],
            "verbs": ["get", "list", "watch"],
        }
        role = self._object(_RBAC, "Role", name, rules=[rule])
        binding = self._object(
            _RBAC,
            "RoleBinding",
            name,
            roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            subjects=[{"kind": "ServiceAccount", "name": name, "namespace": self.namespace}],
        )
        return [
            Child("serviceaccounts", account | {"automountServiceAccountToken": False}),
            Child("roles", role),
            Child("rolebindings", binding),
        ]

    def services(self) -> list[Child]:
        names = self.names
        front = self._service(
            names.front,
            selector=names.role_selector(ROUTER_ROLE),
            ports=[_port("http", FRONT_PORT, ROUTER_PORT)],
        )
        pods = self._service(
            names.endpoints,
            selector=names.role_selector(POOL_ROLE),
            ports=[_port("http", SIDECAR_PORT, SIDECAR_PORT)],
            headless=True,
        )
        return [Child("services", front), Child("services", pods)]

    def policies(self) -> list[Child]:
        """Only routers reach the pods of the pools, and those reach nothing."""
        names = self.names
        watchers = [
            {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
            for namespace in self.settings.metrics_namespaces
        ]
        routers = [{"podSelector": {"matchLabels": names.role_selector(ROUTER_ROLE)}}]
        pool = {
            "podSelector": {"matchLabels": names.role_selector(POOL_ROLE)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [
                {"from": routers, "ports": [_tcp(SIDECAR_PORT)]},
                *(
                    [
                        {
                            "from": watchers,
                            "ports": [_tcp(SIDECAR_STATUS_PORT), _tcp(DEFAULT_METRICS_PORT)],
                        }
                    ]
                    if watchers
                    else []
                ),
            ],
        }
        router = {
            "podSelector": {"matchLabels": names.role_selector(ROUTER_ROLE)},
            "policyTypes": ["Ingress"],
            "ingress": [
                {"ports": [_tcp(ROUTER_PORT)]},
                *([{"from": watchers, "ports": [_tcp(ROUTER_STATUS_PORT)]}] if watchers else []),
            ],
        }
        kind = ("networking.k8s.io/v1", "NetworkPolicy")
        return [
            Child("networkpolicies", self._object(*kind, names.endpoints, spec=pool)),
            Child("networkpolicies", self._object(*kind, names.router, spec=router)),
        ]

    def budget(self, pool: str, name: str, selector: dict[str, str]) -> Child:
        body = self._object(
            "policy/v1",
            "PodDisruptionBudget",
            name,
            spec={
                "maxUnavailable": 1,
                "selector": {"matchLabels": selector},
                # A pod that serves nobody must not keep a node from being drained.
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
            },
        )
        return Child("poddisruptionbudgets", body, pool=pool)

    def router(self) -> Child:
        names = self.names
        template = router_template(
            self.spec, names=names, images=self.settings.images, account=names.router
        )
        body = self._deployment(names.router, names.role_selector(ROUTER_ROLE), template)
        body["metadata"]["labels"] = names.labels(ROUTER_ROLE)
        body["spec"]["replicas"] = self.spec.router.replicas
        return Child("deployments", body)

    def pools(self) -> list[Child]:
        return [self._pool(pool) for pool in self.spec.pools]

    def _pool(self, pool: Pool) -> Child:
        names = self.names
        template = pool_template(self.spec, pool, names=names, images=self.settings.images)
        selector = names.role_selector(POOL_ROLE, pool.name)
        body = self._deployment(names.pool(pool.name), selector, template)
        body["metadata"]["labels"] = names.labels(POOL_ROLE, pool.name)
        return Child("deployments", body, pool=pool.name)

    def monitoring(self) -> list[Child]:
        """For a Prometheus operator: the metrics of all pods."""
        names = self.names
        labels = names.labels("metrics")
        service = self._service(
            names.metrics,
            selector=dict(names.selector),
            ports=[_port("status", ROUTER_STATUS_PORT, ROUTER_STATUS_PORT)],
            headless=True,
        )
        service["metadata"]["labels"] = labels
        endpoint = {"port": "status", "path": "/metrics", "interval": "15s"}
        monitor = self._object(
            _MONITORING,
            "ServiceMonitor",
            names.metrics,
            spec={
                "endpoints": [endpoint],
                "selector": {"matchLabels": names.role_selector("metrics")},
                "podTargetLabels": ["slimscale.dev/pool", "slimscale.dev/role"],
            },
        )
        return [Child("services", service), Child("servicemonitors", monitor)]

    def _deployment(self, name: str, selector: dict[str, str], template: Json) -> Json:
        return self._object(
            "apps/v1",
            "Deployment",
            name,
            spec={
                "selector": {"matchLabels": selector},
                # One more before one less: a rollout never takes capacity away.
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1},
                },
                "revisionHistoryLimit": 3,
                "progressDeadlineSeconds": 900,
                "template": template,
            },
        )

    def _service(
        self, name: str, *, selector: dict[str, str], ports: list[Json], headless: bool = False
    ) -> Json:
        spec: Json = {"type": "ClusterIP", "selector": selector, "ports": ports}
        if headless:
            spec["clusterIP"] = "None"
        return self._object("v1", "Service", name, spec=spec)

    def _object(self, api_version: str, kind: str, name: str, **parts: object) -> Json:
        return {
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "labels": self.names.labels(),
                "annotations": {ANNOTATION_OWNER: self.names.owner},
                # In the same namespace always: the garbage collector takes the children along.
                "ownerReferences": [
                    {
                        "apiVersion": API_VERSION,
                        "kind": SLIMINFERENCE_KIND,
                        "name": self.names.owner,
                        "uid": self.uid,
                        "controller": True,
                    }
                ],
            },
            **parts,
        }


def _port(name: str, port: int, target: int) -> Json:
    return {"name": name, "port": port, "targetPort": target, "protocol": "TCP"}


def _tcp(port: int) -> Json:
    return {"protocol": "TCP", "port": port}
