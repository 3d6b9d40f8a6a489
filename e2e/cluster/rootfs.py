"""Root file systems from Debian packages, as tar files and as base images."""

import hashlib
from pathlib import Path

from e2e.cluster.host import KEY_LABEL, image_label
from e2e.cluster.pins import LOCAL_DEBIAN, LOCAL_PYTHON, SUITE
from e2e.paths import CACHE
from e2e.progress import Steps

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

#: What a kind node needs, less what no test of ours mounts (NFS, iSCSI, FUSE overlays).
NODE = (
    *("systemd", "systemd-sysv", "conntrack", "iptables", "nftables", "iproute2", "ethtool"),
    *("util-linux", "mount", "kmod", "libseccomp2", "pigz", "e2fsprogs", "bash", "jq", "curl"),
    *("ca-certificates", "procps", "runc", "containernetworking-plugins"),
)
PROXY = ("iptables", "conntrack", "nftables", "kmod", "libc-bin", "dash", "coreutils", "bash")
PYTHON = ("python3-minimal", "python3-venv", "python3-pip", "ca-certificates", "libgomp1")
DEBIAN = ("ca-certificates",)


def rootfs(steps: Steps, name: str, packages: tuple[str, ...], *, variant: str = "minbase") -> Path:
    """A tar of Debian with these packages; kept until the list or the release changes."""
    key = hashlib.sha256(repr((SUITE, variant, packages)).encode()).hexdigest()[:10]
    tar = CACHE / "rootfs" / f"{name}-{key}.tar"
    if tar.exists():
        steps.skip(f"root file system {name}", "it is in the cache")
        return tar
    tar.parent.mkdir(parents=True, exist_ok=True)
    unfinished = tar.with_suffix(".part.tar")
    with steps.step(f"root file system {name}") as step:
        wanted = ",".join(packages)
        step.run("mmdebstrap", f"--variant={variant}", f"--include={wanted}", SUITE, unfinished)
        unfinished.replace(tar)
    return tar


def base_images(steps: Steps) -> tuple[str, str]:
    """(Python, Debian): stand-ins for the official images where no registry is reached."""
    _base(steps, LOCAL_PYTHON, rootfs(steps, "python", PYTHON))
    _base(steps, LOCAL_DEBIAN, rootfs(steps, "debian", DEBIAN))
    return LOCAL_PYTHON, LOCAL_DEBIAN


def _base(steps: Steps, reference: str, tar: Path) -> None:
    if image_label(reference, KEY_LABEL) == tar.stem:
        steps.skip(f"image {reference}", "it is there")
        return
    with steps.step(f"image {reference}") as step:
        context = CACHE / "base" / tar.stem
        context.mkdir(parents=True, exist_ok=True)
        (context / "Containerfile").write_text(
            f"FROM scratch\nADD {tar.name} /\nENV PATH={PATH} LANG=C.UTF-8\n"
        )
        (context / tar.name).unlink(missing_ok=True)
        (context / tar.name).hardlink_to(tar)
        label = f"{KEY_LABEL}={tar.stem}"
        step.run("podman", "build", "-q", "-t", reference, "--label", label, context)
