"""The kind node image from source, for machines that reach no image registry."""

import hashlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from e2e.cluster import rootfs
from e2e.cluster.host import KEY_LABEL, image_label
from e2e.cluster.pins import CONTROL_PLANE, KIND, KUBERNETES, LOCAL_NODE_IMAGE, MODULES, SUITE
from e2e.cluster.programs import build_all, go_build, module_folder
from e2e.paths import BIN, CACHE
from e2e.progress import Step, Steps

RECIPE = Path(__file__).parent / "node"
NODE_PROGRAMS = ("kubelet", "kubeadm", "kubectl", "containerd", "ctr", "containerd-shim-runc-v2")
REGISTRY = "registry.k8s.io"


def key() -> str:
    """Changes when anything that the node image is made of changes."""
    digest = hashlib.sha256(repr((MODULES, SUITE, rootfs.NODE, rootfs.PROXY)).encode())
    for path in sorted(RECIPE.iterdir()):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def build(steps: Steps) -> str:
    """Build what is missing; return the image's name."""
    build_all(steps)
    if image_label(LOCAL_NODE_IMAGE, KEY_LABEL) == key():
        steps.skip(f"image {LOCAL_NODE_IMAGE}", "it is there")
        return LOCAL_NODE_IMAGE
    node = rootfs.rootfs(steps, "node", rootfs.NODE)
    proxy = rootfs.rootfs(steps, "proxy", rootfs.PROXY, variant="extract")
    context = CACHE / "context"
    base = f"{LOCAL_NODE_IMAGE}-base"
    with steps.step("node image: base") as step:
        sandbox = _lay_out(step, context, node=node, proxy=proxy)
        flags = ("--label", f"{KEY_LABEL}={key()}", "--build-arg", f"KUBERNETES={KUBERNETES}")
        step.run("podman", "build", "-t", base, *flags, context)
    with steps.step("node image: images of the control plane") as step:
        archives = _archives(step, context, sandbox)
    with steps.step("node image: import and commit") as step:
        _commit(step, base=base, archives=archives)
    shutil.rmtree(context)
    return LOCAL_NODE_IMAGE


def _lay_out(step: Step, context: Path, *, node: Path, proxy: Path) -> str:
    """Fill the build context; return the sandbox image that containerd is told to use."""
    shutil.rmtree(context, ignore_errors=True)
    (context / "bin").mkdir(parents=True)
    for path in RECIPE.iterdir():
        shutil.copy(path, context / path.name)
    for name in (*NODE_PROGRAMS, *CONTROL_PLANE, "kube-proxy", "etcd", "coredns"):
        _link(BIN / name, context / "bin" / name)
    _link(node, context / "node.tar")
    _link(proxy, context / "proxy.tar")
    go_build(step, context / "bin" / "pause", "pause.go", cwd=context)
    files = context / "files"
    shutil.copytree(module_folder(step, "sigs.k8s.io/kind", KIND) / "images/base/files", files)
    for path in (files, *files.rglob("*")):  # Go's module cache is read-only
        path.chmod(path.stat().st_mode | 0o200)
    return _mend(files)


def _mend(files: Path) -> str:
    """Take out of kind's files what needs CAP_SYS_RESOURCE: raised limits, lowered OOM scores."""
    unit = files / "etc/systemd/system/containerd.service"
    raised = re.compile(r"^(Limit\w+|TasksMax|OOMScoreAdjust)=.*\n", re.MULTILINE)
    unit.write_text(raised.sub("", unit.read_text()))
    config = files / "etc/containerd/config.toml"
    text = config.read_text()
    mended = text.replace("restrict_oom_score_adj = false", "restrict_oom_score_adj = true")
    sandbox = re.search(r'sandbox(?:_image)? = "(.+?)"', mended)
    if mended == text or sandbox is None:
        raise ValueError(f"kind {KIND} lays out its containerd settings in a new way: {config}")
    config.write_text(mended)
    return sandbox[1]


def _archives(step: Step, context: Path, sandbox: str) -> Path:
    folder = context / "archives"
    folder.mkdir()
    recipe = context / "control-plane.Containerfile"
    for target, reference in _references(step, sandbox):
        step.run("podman", "build", "-f", recipe, "--target", target, "-t", reference, context)
        step.run("podman", "save", "-q", "-o", folder / f"{target}.tar", reference)
    return folder


def _references(step: Step, sandbox: str) -> Iterator[tuple[str, str]]:
    """(target, image name) as this kubeadm and kind's containerd settings spell them."""
    listed = step.output(BIN / "kubeadm", "config", "images", "list", *_VERSION).split()
    for reference in listed:
        target = reference.rsplit("/", 1)[1].split(":")[0]
        if target != "pause":  # kind's own settings name another one
            yield target, reference
    yield "pause", sandbox


_VERSION = ("--kubernetes-version", KUBERNETES)


def _commit(step: Step, *, base: str, archives: Path) -> None:
    name = "slimscale-node-build"
    step.run("podman", "rm", "-f", "-i", "-t", "0", name)
    # privileged: containerd mounts; /archives is mounted, so that it is no part of the image
    step.run(
        *("podman", "run", "--name", name, "--privileged", "-v", f"{archives}:/archives:ro"),
        *("--entrypoint", "/bin/sh", base, "/kind/build/import-images.sh"),
    )
    entry = 'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]'
    step.run(
        "podman", "commit", "-q", "--change", entry, "--change", "CMD []", name, LOCAL_NODE_IMAGE
    )
    step.run("podman", "rm", name)


def _link(source: Path, target: Path) -> None:
    target.hardlink_to(source.resolve())
