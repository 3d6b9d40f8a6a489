"""Violence on the nodes: a true kill -9 of a container's process, by its id."""

import subprocess

from e2e.cluster import kind
from e2e.cluster.host import environment
from e2e.kubectl import Kubectl
from e2e.simworkloads import PodView


def kill_container(pod: PodView, container: str) -> None:
    """SIGKILL to everything in a container, past the kubelet and without a grace period."""
    status = pod.raw["status"]
    statuses = status["containerStatuses"] + status.get("initContainerStatuses", [])
    full = next(s["containerID"] for s in statuses if s["name"] == container)
    identity = full.removeprefix("containerd://")
    node = pod.raw["spec"]["nodeName"]
    stamp = kind.current()
    assert stamp is not None, "no cluster"
    kill = ("ctr", "-n", "k8s.io", "tasks", "kill", "-a", "-s", "SIGKILL", identity)
    done = subprocess.run(
        (stamp.engine, "exec", node, *kill),
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def api_server() -> PodView:
    """The static pod of the API server."""
    [pod] = Kubectl("kube-system").list("pods", "component=kube-apiserver")
    return PodView(pod)
