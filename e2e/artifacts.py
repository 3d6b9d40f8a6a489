"""What a failed end-to-end test leaves behind to read: objects, descriptions, events, logs."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from e2e.kubectl import Kubectl
from e2e.paths import ARTIFACTS

KINDS = "pods,deployments,replicasets,statefulsets,services,configmaps,horizontalpodautoscalers"


def dump(test: str, *namespaces: str) -> Path:
    """Write e2e/.state/artifacts/<test>/; a part that fails is noted and stops nothing."""
    folder = ARTIFACTS / re.sub(r"[^A-Za-z0-9_.-]+", "-", test).strip("-")
    folder.mkdir(parents=True, exist_ok=True)
    cluster = Kubectl()
    _write(folder / "nodes.txt", lambda: cluster.run("describe", "nodes"))
    for kind in ("simw", "slim"):
        _write(folder / f"{kind}.yaml", partial(cluster.run, "get", kind, "-A", "-o", "yaml"))
    for namespace in namespaces:
        kubectl = cluster.within(namespace)
        _write_namespace(folder, kubectl)
    return folder


def _write_namespace(folder: Path, kubectl: Kubectl) -> None:
    start = folder / kubectl.namespace
    parts: dict[str, tuple[str, ...]] = {
        "objects.yaml": ("get", KINDS, "-o", "yaml"),
        "wide.txt": ("get", KINDS, "-o", "wide"),
        "pods.txt": ("describe", "pods"),
        "events.txt": ("get", "events", "--sort-by=.lastTimestamp"),
    }
    for name, command in parts.items():
        _write(Path(f"{start}-{name}"), partial(kubectl.run, *command))
    try:
        pods = [pod["metadata"]["name"] for pod in kubectl.list("pods")]
    except AssertionError:
        return
    everything = ("--all-containers", "--prefix", "--tail=2000", "--ignore-errors")
    for pod in pods:
        path = Path(f"{start}-{pod}.log")
        _write(path, partial(kubectl.logs, pod, *everything))
        # what a container said before it was restarted is mostly the reason
        before = Path(f"{start}-{pod}-previous.log")
        _write(before, partial(kubectl.logs, pod, "--previous", *everything), optional=True)


def _write(path: Path, produce: Callable[[], str], *, optional: bool = False) -> None:
    try:
        path.write_text(produce())
    except AssertionError as error:
        if not optional:
            path.write_text(f"could not be had: {error}\n")
