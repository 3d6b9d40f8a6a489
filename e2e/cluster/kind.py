"""Makes, checks and deletes the three-node cluster; heals one that is half made."""

import fcntl
import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster import node_image, programs
from e2e.cluster.host import Host, choose, environment
from e2e.cluster.owner import claim, release, require_ours
from e2e.cluster.pins import OFFICIAL_NODE_IMAGE
from e2e.guard import require_kind_context
from e2e.paths import CACHE, CLUSTER, CONTEXT, KUBECONFIG, LOGS, STATE
from e2e.progress import Step, StepFailed, Steps

STAMP = STATE / "cluster.json"
REGISTER = CACHE / "clusters"
POOLS = ("a", "b")


@dataclass(frozen=True, slots=True)
class Stamp:
    """What the running cluster is: written last, so that a half-made one has none."""

    engine: str
    from_source: bool
    key: str
    #: start of each node's container: another one means that the machine restarted in between,
    #: which moves addresses and forgets routes
    started: dict[str, str]


def up() -> Stamp:
    """Make the cluster, or find it as it should be."""
    STATE.mkdir(parents=True, exist_ok=True)
    with _alone():
        steps = Steps(LOGS, environment())
        stamp = current()
        if stamp is not None and not problem(stamp):
            steps.skip(f"cluster {CLUSTER}", "it is up")
            return stamp
        host = choose(steps)
        if host.from_source:
            image = node_image.build(steps)
        else:
            programs.build_clients(steps)
            image = OFFICIAL_NODE_IMAGE
        return _create(steps, host, image)


def down() -> None:
    """Delete the cluster and what is known of it; the caches stay."""
    stamp = current()
    engines = [stamp.engine] if stamp else [name for name in _ENGINES if shutil.which(name)]
    with _alone():
        steps = Steps(LOGS, environment())
        for engine in engines:
            running = nodes(engine)
            if running:
                require_ours(REGISTER, CLUSTER, STATE)
            if stamp is not None or running:
                with steps.step(f"delete cluster {CLUSTER}") as step:
                    _delete(step, engine)
        release(REGISTER, CLUSTER)
        STAMP.unlink(missing_ok=True)
        KUBECONFIG.unlink(missing_ok=True)


def current() -> Stamp | None:
    """The cluster that was made last, whether or not it still runs."""
    try:
        return Stamp(**json.loads(STAMP.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def problem(stamp: Stamp) -> str:
    """Why the cluster must be made anew; empty when it is as it should be."""
    if stamp.key != _key(from_source=stamp.from_source):
        return "it was made by another recipe"
    if nodes(stamp.engine) != stamp.started:
        return "its nodes do not run, or were restarted"
    if not KUBECONFIG.exists():
        return "its kubeconfig is missing"
    ready = _kubectl("get", "nodes", "-o", "json")
    if ready is None:
        return "its API server does not answer"
    for node in json.loads(ready)["items"]:
        conditions = {c["type"]: c["status"] for c in node["status"]["conditions"]}
        if conditions.get("Ready") != "True":
            return f"node {node['metadata']['name']} is not ready"
    return ""


def nodes(engine: str) -> dict[str, str]:
    """Running containers of this cluster and when each was started."""
    label = f"label=io.x-k8s.kind.cluster={CLUSTER}"
    names = _engine(engine, "ps", "--filter", label, "--format", "{{.Names}}").split()
    if not names:
        return {}
    return {
        one["Name"].lstrip("/"): one["State"]["StartedAt"]
        for one in json.loads(_engine(engine, "container", "inspect", *names))
    }


def config(*, from_source: bool) -> dict[str, Any]:
    """kind's cluster configuration: a control plane and two workers, each a pool of its own."""
    settings: dict[str, Any] = {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "nodes": [
            {"role": "control-plane"},
            *({"role": "worker", "labels": {"slimscale.dev/pool": pool}} for pool in POOLS),
        ],
        "kubeadmConfigPatches": ["kind: KubeletConfiguration\nfailCgroupV1: false\n"],
    }
    if from_source:
        # the kubelet may not lower OOM scores here; kindnet has no published image to be had
        settings["featureGates"] = {"KubeletInUserNamespace": True}
        settings["networking"] = {"disableDefaultCNI": True, "kubeProxyMode": "nftables"}
    return settings


_ENGINES = ("docker", "podman")


def _create(steps: Steps, host: Host, image: str) -> Stamp:
    STAMP.unlink(missing_ok=True)
    if nodes(host.engine):
        require_ours(REGISTER, CLUSTER, STATE)
    with steps.step(f"create cluster {CLUSTER}") as step:
        _delete(step, host.engine)
        file = STATE / "kind.yaml"
        file.write_text(yaml.safe_dump(config(from_source=host.from_source)))
        command = ("kind", "create", "cluster", "--name", CLUSTER, "--config", file)
        where = ("--image", image, "--kubeconfig", KUBECONFIG)
        step.run(*command, *where, env=_provider(host.engine), timeout_seconds=600)
        if host.from_source:
            _network(step, host.engine)
        target = ("kubectl", "--kubeconfig", KUBECONFIG, "--context", CONTEXT)
        step.run(*target, "wait", "--for=condition=Ready", "node", "--all", "--timeout=180s")
        dns = ("-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=180s")
        step.run(*target, *dns)
    key = _key(from_source=host.from_source)
    stamp = Stamp(host.engine, host.from_source, key, nodes(host.engine))
    STAMP.write_text(json.dumps(asdict(stamp), indent=1))
    claim(REGISTER, CLUSTER, STATE)
    return stamp


def _network(step: Step, engine: str) -> None:
    """A pod network by hand: on each node one ptp network, and routes to the other nodes' pods."""
    columns = (
        '{.metadata.name} {.spec.podCIDR} {.status.addresses[?(@.type=="InternalIP")].address}'
    )
    target = ("kubectl", "--kubeconfig", KUBECONFIG, "--context", CONTEXT)
    template = "{range .items[*]}" + columns + '{"\\n"}{end}'
    listed = step.output(*target, "get", "nodes", "-o", f"jsonpath={template}").splitlines()
    members = [line.split() for line in listed]
    for name, subnet, _ in members:
        plugin = {
            "type": "ptp",
            "mtu": 1500,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": subnet}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
        ports = {"type": "portmap", "capabilities": {"portMappings": True}}
        network = {"cniVersion": "0.3.1", "name": "pods", "plugins": [plugin, ports]}
        write = ("exec", "-i", name, "tee", "/etc/cni/net.d/10-pods.conflist")
        step.run(engine, *write, stdin=json.dumps(network))
        for other, other_subnet, address in members:
            if other != name:
                route = ("ip", "route", "replace", other_subnet, "via", address)
                step.run(engine, "exec", name, *route)


def _delete(step: Step, engine: str) -> None:
    command = ("kind", "delete", "cluster", "--name", CLUSTER, "--kubeconfig", KUBECONFIG)
    if not shutil.which("kind", path=environment()["PATH"]):
        return
    step.run(*command, env=_provider(engine), timeout_seconds=300)


def _key(*, from_source: bool) -> str:
    image = node_image.key() if from_source else OFFICIAL_NODE_IMAGE
    made_of = json.dumps([config(from_source=from_source), image], sort_keys=True)
    return hashlib.sha256(made_of.encode()).hexdigest()[:12]


def _provider(engine: str) -> dict[str, str]:
    return {"KIND_EXPERIMENTAL_PROVIDER": engine}


def _engine(*command: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment(), timeout=60, check=False
    )
    if done.returncode != 0:
        raise StepFailed(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def _kubectl(*arguments: str) -> str | None:
    target = ("--kubeconfig", str(KUBECONFIG), "--context", require_kind_context(CONTEXT))
    done = subprocess.run(
        ("kubectl", *target, "--request-timeout=10s", *arguments),
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    return done.stdout if done.returncode == 0 else None


@contextmanager
def _alone() -> Iterator[None]:
    """One process at a time changes the cluster; a second one waits."""
    STATE.mkdir(parents=True, exist_ok=True)
    with Path(STATE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
