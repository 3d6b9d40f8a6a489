"""What happens to a service in a real cluster: pods are replaced, killed, moved, and scaled away."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from e2e.eventually import eventually
from e2e.kubectl import Kubectl
from e2e.nodes import kill_container
from e2e.simworkloads import PodView, operator_pod
from e2e.sliminferences import Inference

__all__ = [
    "all_ready",
    "delete_pod",
    "drained",
    "kill",
    "kill_operator",
    "ready_pods",
    "rerun_requests",
    "roll",
    "scale_pool",
]

BACK_SECONDS = 120.0
METRICS = (
    "import urllib.request as r;"
    "print(r.urlopen('http://127.0.0.1:8081/metrics', timeout=5).read().decode())"
)


def ready_pods(inference: Inference, role: str = "pool") -> list[PodView]:
    """Those that are to stay."""
    return [
        pod
        for pod in map(PodView, inference.pods(role))
        if pod.ready and "deletionTimestamp" not in pod.raw["metadata"]
    ]


def all_ready(inference: Inference, role: str, count: int) -> None:
    """Wait until so many pods are ready and none is on its way out."""

    def calm() -> bool:
        pods = inference.pods(role)
        return len(pods) == count == len(ready_pods(inference, role))

    eventually(calm, BACK_SECONDS, what=f"{count} pods of the {role} and no other")


def roll(inference: Inference, pool: str = "cpu") -> None:
    """A change of the pod template, until every pod of the pool is a new one."""
    before = {pod.uid for pod in ready_pods(inference)}
    spec = inference.kubectl.get("sliminference", inference.name)["spec"]
    for one in spec["pools"]:
        if one["name"] == pool:
            requests = one.setdefault("resources", {}).setdefault("requests", {})
            requests["cpu"] = "51m" if requests.get("cpu") != "51m" else "52m"
    inference.kubectl.patch("sliminference", inference.name, {"spec": {"pools": spec["pools"]}})

    def replaced() -> bool:
        pods = [PodView(pod) for pod in inference.pods("pool")]
        return len(pods) == len(before) and all(p.ready and p.uid not in before for p in pods)

    eventually(replaced, BACK_SECONDS, what="each pod of the pool is a new one")


def delete_pod(inference: Inference, role: str = "pool", *, force: bool = False) -> None:
    """One that serves; until another one has its place."""
    pods = ready_pods(inference, role)
    flags = ("--grace-period=0", "--force") if force else ("--wait=false",)
    inference.kubectl.run("delete", "pod", pods[0].name, *flags)

    def another() -> bool:
        now = {pod.uid for pod in ready_pods(inference, role)}
        return pods[0].uid not in now and len(now) == len(pods)

    eventually(another, BACK_SECONDS, what=f"another pod in the place of {pods[0].name}")


def kill(inference: Inference, role: str, container: str) -> None:
    """SIGKILL to all processes of a container; until it runs again and the pod is ready."""
    before = ready_pods(inference, role)[0]
    kill_container(before, container)

    def back() -> bool:
        pod = PodView(inference.kubectl.get("pod", before.name))
        return restarts(pod, container) > restarts(before, container) and pod.ready

    eventually(back, BACK_SECONDS, what=f"{container} of {before.name} is back")


def kill_operator(operator: Kubectl) -> None:
    """SIGKILL; until it is ready again."""
    before = operator_pod(operator)
    kill_container(before, "operator")

    def back() -> bool:
        pod = operator_pod(operator)
        return pod.restarts > before.restarts and pod.ready

    eventually(back, BACK_SECONDS, what="the operator is back")


def restarts(pod: PodView, container: str) -> int:
    """How often a container, sidecars included, was started anew."""
    status = pod.raw["status"]
    all_of_them = status.get("containerStatuses", []) + status.get("initContainerStatuses", [])
    return sum(int(one["restartCount"]) for one in all_of_them if one["name"] == container)


@contextmanager
def drained(node: str) -> Iterator[None]:
    """No pod that could be elsewhere is on the node inside the block."""
    everywhere = Kubectl(timeout_seconds=200)
    flags = ("--ignore-daemonsets", "--delete-emptydir-data", "--timeout=180s")
    try:
        everywhere.run("drain", node, *flags)
        yield
    finally:
        everywhere.run("uncordon", node)


def rerun_requests(inference: Inference) -> dict[str, float]:
    """By reason: requests that routers sent to a second pod. `connection_lost` may have run twice."""
    found: dict[str, float] = {}
    for pod in ready_pods(inference, "router"):
        page = inference.kubectl.exec(pod.name, ["python", "-c", METRICS], container="router")
        for line in page.splitlines():
            if line.startswith("slimscale_router_retries_total{"):
                labels, value = line.rsplit(" ", 1)
                reason = labels.split('reason="', 1)[1].split('"', 1)[0]
                found[reason] = found.get(reason, 0.0) + float(value)
    return found


def scale_pool(inference: Inference, **bounds: int) -> None:
    """Other minReplicas or maxReplicas of the first pool."""
    spec = inference.kubectl.get("sliminference", inference.name)["spec"]
    spec["pools"][0] |= bounds
    patch = json.dumps({"spec": {"pools": spec["pools"]}})
    inference.kubectl.run("patch", "sliminference", inference.name, "--type=merge", "-p", patch)
