"""What the tests read: a SimWorkload's status, its pods, the operator's own metrics."""

import re
from dataclasses import dataclass
from typing import Any

from e2e.eventually import eventually
from e2e.kubectl import Kubectl, Manifest
from e2e.workloads import CONTAINER, FAULT, LOAD, PHASE
from slimscale.act.child_names import memo_name
from slimscale.api.quantity import parse_millicores

Json = dict[str, Any]

THREADS_ANNOTATION = "slimscale.dev/threads"
_STEERING = {"phase": PHASE, "load": LOAD, "fault": FAULT}
OPERATOR_LABELS = "app.kubernetes.io/name=slimscale,app.kubernetes.io/component=operator"


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod as the API server shows it. CPU in millicores, None: not set."""

    raw: Json

    @property
    def name(self) -> str:
        return str(self.raw["metadata"]["name"])

    @property
    def uid(self) -> str:
        return str(self.raw["metadata"]["uid"])

    @property
    def resource_version(self) -> str:
        return str(self.raw["metadata"]["resourceVersion"])

    @property
    def address(self) -> str:
        """In the pod network."""
        return str(self.raw["status"]["podIP"])

    @property
    def asked_threads(self) -> int | None:
        text = (self.raw["metadata"].get("annotations") or {}).get(THREADS_ANNOTATION)
        return int(text) if text else None

    @property
    def restarts(self) -> int:
        return sum(int(s["restartCount"]) for s in self._statuses())

    @property
    def cpu_limit(self) -> int | None:
        return _cpu(self.container()["resources"], "limits")

    @property
    def cpu_request(self) -> int | None:
        return _cpu(self.container()["resources"], "requests")

    @property
    def applied_cpu_limit(self) -> int | None:
        """What the kubelet says that it applied."""
        for status in self._statuses():
            if status["name"] == CONTAINER:
                return _cpu(status.get("resources") or {}, "limits")
        return None

    @property
    def ready(self) -> bool:
        conditions = self.raw["status"].get("conditions") or []
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    def container(self) -> Json:
        """The simulation's container."""
        found: Json = next(c for c in self.raw["spec"]["containers"] if c["name"] == CONTAINER)
        return found

    def env(self) -> dict[str, str]:
        """The container's plain variables."""
        return {e["name"]: e.get("value", "") for e in self.container().get("env") or []}

    def condition(self, kind: str) -> Json | None:
        """A condition of the pod's status."""
        conditions: list[Json] = self.raw["status"].get("conditions") or []
        return next((c for c in conditions if c["type"] == kind), None)

    def _statuses(self) -> list[Json]:
        found: list[Json] = self.raw["status"].get("containerStatuses") or []
        return found


def pods(kubectl: Kubectl, app: str) -> list[PodView]:
    """Pods of a workload that are not on their way out, oldest first."""
    found = [
        p for p in kubectl.list("pods", f"app={app}") if "deletionTimestamp" not in p["metadata"]
    ]
    return [PodView(p) for p in sorted(found, key=lambda p: p["metadata"]["creationTimestamp"])]


def only_pod(kubectl: Kubectl, app: str) -> PodView:
    """The one pod; LookupError while there is none or a second one."""
    found = pods(kubectl, app)
    if len(found) != 1:
        raise LookupError(f"{len(found)} pods of {app}")
    return found[0]


@dataclass(frozen=True, slots=True)
class WorkloadView:
    """One SimWorkload as the API server shows it."""

    raw: Json

    @property
    def status(self) -> Json:
        found: Json = self.raw.get("status") or {}
        return found

    @property
    def target_threads(self) -> int | None:
        return (self.status.get("target") or {}).get("threads")

    @property
    def target_cpu(self) -> int | None:
        text = (self.status.get("target") or {}).get("cpuLimit")
        return parse_millicores(text) if text else None

    @property
    def changes(self) -> list[Json]:
        found: list[Json] = self.status.get("history") or []
        return found

    def reason(self, condition: str) -> str:
        """`STATUS/REASON` of a condition, empty while it is not there."""
        for one in self.status.get("conditions") or []:
            if one["type"] == condition:
                return f"{one['status']}/{one['reason']}"
        return ""

    def message(self, condition: str) -> str:
        """A condition's message."""
        for one in self.status.get("conditions") or []:
            if one["type"] == condition:
                return str(one.get("message", ""))
        return ""

    def acknowledged(self) -> dict[str, int | None]:
        """Threads that each pod has acknowledged, by its name."""
        return {p["name"]: p.get("threads") for p in self.status.get("pods") or []}


def workload(kubectl: Kubectl, name: str) -> WorkloadView:
    """The SimWorkload now."""
    return WorkloadView(kubectl.get("simworkload", name))


def memo(kubectl: Kubectl, name: str) -> Json:
    """The ConfigMap that holds what was learned."""
    return kubectl.get("configmap", memo_name(name))


def operator_pod(kubectl: Kubectl) -> PodView:
    """The operator's ready pod."""
    found = [PodView(p) for p in kubectl.list("pods", OPERATOR_LABELS)]
    ready = [p for p in found if p.ready and "deletionTimestamp" not in p.raw["metadata"]]
    if len(ready) != 1:
        raise LookupError(f"{len(ready)} ready operators")
    return ready[0]


def operator_metrics(kubectl: Kubectl) -> dict[str, float]:
    """The operator's own metrics: series as text -> value. Through the API server's proxy."""
    pod = operator_pod(kubectl)
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/{pod.name}:8080/proxy/metrics"
    found = {}
    for line in kubectl.raw(path).splitlines():
        parsed = re.match(r"^([a-zA-Z_:][^ ]*(?:\{.*\})?) ([^ ]+)$", line)
        if parsed and not line.startswith("#"):
            found[parsed[1]] = float(parsed[2])
    return found


def settled(kubectl: Kubectl, name: str, app: str) -> tuple[WorkloadView, list[PodView]]:
    """The workload and its pods once all show the target; AssertionError while they do not."""
    seen, running = workload(kubectl, name), pods(kubectl, app)
    target = seen.target_threads
    assert target is not None, seen.message("RecommendationProvided") or "no target yet"
    assert running, "no pods"
    assert seen.acknowledged() == {p.name: target for p in running}, seen.status.get("pods")
    for pod in running:
        assert pod.asked_threads in (None, target), f"{pod.name} is asked for {pod.asked_threads}"
        if seen.target_cpu is not None:
            assert pod.applied_cpu_limit == seen.target_cpu, (
                f"{pod.name} has {pod.applied_cpu_limit}m, {seen.target_cpu}m are wanted"
            )
    return seen, running


def start(kubectl: Kubectl, app: str, *manifests: Manifest) -> PodView:
    """Apply manifests and wait for the one pod of the Deployment `app` among them."""
    kubectl.apply(*manifests)
    kubectl.rollout(f"deployment/{app}", timeout_seconds=180)
    return eventually(lambda: only_pod(kubectl, app), 60)


def wait_settled(
    kubectl: Kubectl, name: str, app: str, timeout_seconds: float = 180.0, *, unlike: int = 0
) -> tuple[WorkloadView, list[PodView]]:
    """`settled`, waited for; with `unlike` on another thread count than this one."""

    def there() -> tuple[WorkloadView, list[PodView]]:
        seen, running = settled(kubectl, name, app)
        assert seen.target_threads != unlike, f"still {unlike} threads"
        return seen, running

    return eventually(there, timeout_seconds, interval_seconds=1.0, what=f"{name} settled")


def steer(kubectl: Kubectl, pod: PodView, **annotations: str) -> None:
    """Annotate a pod: `phase` for the simulation, `load` and `fault` for the contract server."""
    pairs = [f"{_STEERING[word]}={value}" for word, value in annotations.items()]
    kubectl.run("annotate", "pod", pod.name, "--overwrite", *pairs)


def _cpu(resources: Json, part: str) -> int | None:
    text = (resources.get(part) or {}).get("cpu")
    return parse_millicores(text) if text is not None else None
