"""Karpenter with its kwok provider: nodes come when pods are pending and go when they are empty.

Both programs run on this machine against the test cluster. The nodes are simulated: pods on them turn Ready
and serve nothing, which is all that a test of scheduling and scaling needs.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2e.cluster.pins import KARPENTER, KWOK, NODE_AUTOSCALER
from e2e.cluster.programs import build_modules, module_folder
from e2e.eventually import eventually
from e2e.kubectl import Kubectl
from e2e.paths import BIN, KUBECONFIG, STATE
from e2e.progress import Steps

__all__ = ["POOL_LABEL", "TAINT", "karpenter", "nodes"]

POOL_LABEL = {"example.org/nodes": "elastic"}
TAINT = {"key": "example.org/elastic", "value": "true", "effect": "NoSchedule"}
"""Keeps everything else off the simulated nodes: nothing really runs there."""
_CRDS = ("pkg/apis/crds", "kwok/apis/crds")
_STAGES = (
    "node/fast/node-initialize.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
)
"""What kwok does to nodes and pods, as its own release has it."""
_METRICS_PORT, _PROBE_PORT = 18080, 18081


def _node_class() -> dict[str, Any]:
    return {
        "apiVersion": "karpenter.kwok.sh/v1alpha1",
        "kind": "KWOKNodeClass",
        "metadata": {"name": "elastic"},
        "spec": {"nodeRegistrationDelay": "2s"},
    }


def _node_pool() -> dict[str, Any]:
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "elastic"},
        "spec": {
            "limits": {"cpu": "16"},
            "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "5s"},
            "template": {
                "metadata": {"labels": POOL_LABEL},
                "spec": {
                    "nodeClassRef": {
                        "group": "karpenter.kwok.sh",
                        "kind": "KWOKNodeClass",
                        "name": "elastic",
                    },
                    "taints": [TAINT],
                    "requirements": [
                        {
                            "key": "node.kubernetes.io/instance-type",
                            "operator": "In",
                            "values": ["c-2x-amd64-linux", "c-4x-amd64-linux"],
                        },
                        {
                            "key": "karpenter.sh/capacity-type",
                            "operator": "In",
                            "values": ["on-demand"],
                        },
                    ],
                },
            },
        },
    }


def nodes(kubectl: Kubectl) -> list[dict[str, Any]]:
    """The nodes that Karpenter has made."""
    [(key, value)] = POOL_LABEL.items()
    return kubectl.list("nodes", f"{key}={value}")


@contextmanager
def karpenter(kubectl: Kubectl) -> Iterator[None]:
    """Both programs run, with one NodePool; all is taken away again at the end."""
    steps = Steps(STATE / "logs")
    build_modules(steps, NODE_AUTOSCALER)
    with steps.step("install Karpenter's CRDs") as step:
        folder = module_folder(step, "sigs.k8s.io/karpenter", KARPENTER)
        for part in _CRDS:
            kubectl.run("apply", "--server-side", "--force-conflicts", "-f", str(folder / part))
        stages = module_folder(step, "sigs.k8s.io/kwok", KWOK) / "kustomize" / "stage"
    pool, node_class = _node_pool(), _node_class()
    eventually(lambda: kubectl.apply(node_class, pool) or True, 60, what="Karpenter's kinds")
    logs = STATE / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    started = [
        _start(
            [str(BIN / "karpenter-kwok")],
            logs / "karpenter.log",
            KUBECONFIG=str(KUBECONFIG),
            DISABLE_LEADER_ELECTION="true",
            SYSTEM_NAMESPACE="kube-system",
            METRICS_PORT=str(_METRICS_PORT),
            HEALTH_PROBE_PORT=str(_PROBE_PORT),
            BATCH_IDLE_DURATION="500ms",
            BATCH_MAX_DURATION="2s",
        ),
        _start(
            [
                str(BIN / "kwok"),
                f"--kubeconfig={KUBECONFIG}",
                "--manage-all-nodes=false",
                "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
                "--node-lease-duration-seconds=40",
                *(f"--config={stages / part}" for part in _STAGES),
            ],
            logs / "kwok.log",
        ),
    ]
    try:
        yield
        for process in started:
            assert process.poll() is None, f"{process.args!r} ended; see {logs}"
    finally:
        try:
            _clear(kubectl)
        finally:  # whatever is left in the cluster: nothing stays behind on this machine
            for process in started:
                process.terminate()
                process.wait(20)


def _clear(kubectl: Kubectl) -> None:
    """While both programs still run, since Karpenter's finalizers are on the nodes."""
    kubectl.run("delete", "nodepool", "elastic", "--ignore-not-found", "--timeout=50s")
    eventually(lambda: not nodes(kubectl), 60, what="no simulated node is left")
    kubectl.run("delete", "kwoknodeclass", "elastic", "--ignore-not-found", "--timeout=50s")


def _start(command: list[str], log: Path, **environment: str) -> "subprocess.Popen[bytes]":
    with log.open("wb") as out:
        return subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **environment}
        )
