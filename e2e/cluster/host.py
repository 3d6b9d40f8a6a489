"""What the machine offers: a container engine, an image registry, Debian packages, its limits."""

import json
import os
import re
import resource
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.pins import OFFICIAL_NODE_IMAGE
from e2e.paths import CACHE, search_path
from e2e.progress import Steps

PROBE_SECONDS = 15.0

#: For building from source; runc because crun refuses a hybrid cgroup hierarchy.
DEBIAN_PACKAGES = ("podman", "runc", "buildah", "mmdebstrap", "iptables", "conntrack", "catatonit")

CAP_SYS_RESOURCE = 24

#: Our own images carry what they were built from, so that a change of it rebuilds them.
KEY_LABEL = "slimscale.dev/key"


class HostLacks(Exception):
    """The machine lacks something that cannot be installed from here; the message says what."""


@dataclass(frozen=True, slots=True)
class Host:
    """The engine that runs the nodes, and whether images are pulled or built from source."""

    engine: str
    from_source: bool


def environment() -> dict[str, str]:
    """For every command: the cached tools first, and this machine's limits for podman."""
    env = {**os.environ, "PATH": search_path()}
    env.pop("KUBECONFIG", None)
    limited = CACHE / "containers.conf"
    if limited.exists() and not os.environ.get("CONTAINERS_CONF"):
        env["CONTAINERS_CONF"] = str(limited)
    return env


def answers(*command: str, seconds: float = PROBE_SECONDS) -> bool:
    """Whether the command succeeds in the time given."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            env=environment(),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def image_label(reference: str, label: str, *, engine: str = "podman") -> str:
    """A label of a local image; empty where image or label is missing."""
    labels = "{{ json .Config.Labels }}"
    done = subprocess.run(
        (engine, "image", "inspect", "--format", labels, reference),
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    if done.returncode != 0:
        return ""
    return str((json.loads(done.stdout) or {}).get(label, ""))


def choose(steps: Steps) -> Host:
    """Docker where its daemon answers, else podman; from source where no registry answers."""
    docker = answers("docker", "info")
    engine = "docker" if docker else "podman"
    if not docker and not shutil.which("podman"):
        _install(steps, ("podman",))
    if answers(engine, "manifest", "inspect", OFFICIAL_NODE_IMAGE):
        steps.console.print(f"{engine}, with the published node image")
        _limits(steps)
        return Host(engine, from_source=False)
    steps.console.print("no image registry answers: podman, with a node image built from source")
    _install(steps, DEBIAN_PACKAGES)
    _limits(steps)
    return Host("podman", from_source=True)


def _install(steps: Steps, packages: tuple[str, ...]) -> None:
    missing = [name for name in packages if not answers("dpkg", "-s", name)]
    if not missing:
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise HostLacks(f"install these (Debian's names), or run as root: {' '.join(missing)}")
    with steps.step("debian packages") as step:
        quiet = {"DEBIAN_FRONTEND": "noninteractive"}
        step.run("apt-get", "update", "-qq", env=quiet)
        command = ("apt-get", "install", "-y", "-qq", "--no-install-recommends")
        step.run(*command, *missing, env=quiet)


def _limits(steps: Steps) -> None:
    """Mend what kind's nodes trip over on a machine that is itself a container.

    Without CAP_SYS_RESOURCE no limit can be raised, so podman must ask for no more than what is
    there. It goes into a file of our own: the machine's settings stay as they are.
    """
    if os.geteuid() != 0:
        return
    Path("/lib/modules").mkdir(parents=True, exist_ok=True)  # kind mounts it
    if not cramped():
        return
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    files = 65536 if files == resource.RLIM_INFINITY else files
    processes = int(Path("/proc/sys/kernel/pid_max").read_text())
    CACHE.mkdir(parents=True, exist_ok=True)
    (CACHE / "containers.conf").write_text(
        "[engine]\n"
        'runtime = "runc"\n'
        'cgroup_manager = "cgroupfs"\n'
        "[containers]\n"
        f'default_ulimits = ["nofile={files}:{files}", "nproc={processes}:{processes}"]\n'
    )
    steps.env = environment()


def cramped() -> bool:
    """Whether this machine may not raise limits or has no unified cgroup hierarchy."""
    status = Path("/proc/self/status").read_text()
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    capable = found is not None and bool(int(found[1], 16) >> CAP_SYS_RESOURCE & 1)
    return not capable or not Path("/sys/fs/cgroup/cgroup.controllers").exists()
