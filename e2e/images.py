"""`python -m e2e.images build | load [NAME...]`: builds images/*/ and puts them into the nodes.

An image's tag is the hash of what its Containerfile copies, so that nothing is built or loaded
twice, and a changed image changes the pods that name it. The tag `e2e` always names the last one.
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster import kind, rootfs
from e2e.cluster.host import Host, HostLacks, answers, choose, environment
from e2e.cluster.pins import LOCAL_DEBIAN, LOCAL_PYTHON, OFFICIAL_DEBIAN, OFFICIAL_PYTHON
from e2e.paths import CLUSTER, LOGS, ROOT, STATE
from e2e.progress import Step, StepFailed, Steps

BUILT = STATE / "images.json"
STABLE_TAG = "e2e"
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
LOCAL_BASES = {OFFICIAL_PYTHON: LOCAL_PYTHON, OFFICIAL_DEBIAN: LOCAL_DEBIAN}
IGNORED = ("__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache")


@dataclass(frozen=True, slots=True)
class Image:
    """A Containerfile; the build context is always the repository's root."""

    name: str
    recipe: Path

    @property
    def repository(self) -> str:
        """Never a registry's: the nodes get it loaded."""
        return f"localhost/slimscale-{self.name}"

    @property
    def base(self) -> str:
        """The official base image that the Containerfile names."""
        found = re.search(r"^ARG BASE=(\S+)", self.recipe.read_text(), re.MULTILINE)
        return found[1] if found else ""

    def copied(self) -> list[Path]:
        """Every file that the Containerfile copies out of the context, in a stable order."""
        text = self.recipe.read_text().replace("\\\n", " ")
        files: set[Path] = {self.recipe}
        for line in re.findall(r"^(?:COPY|ADD)\s+(.+)$", text, re.MULTILINE | re.IGNORECASE):
            if "--from=" in line:
                continue
            words = [word for word in line.split() if not word.startswith("--")]
            for pattern in words[:-1]:
                files.update(_files(pattern))
        return sorted(files)

    def key(self, base: str) -> str:
        """Hash of the base image's name and of the files copied."""
        digest = hashlib.sha256(base.encode())
        for path in self.copied():
            digest.update(f"\n{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
        return digest.hexdigest()[:12]


def known() -> dict[str, Image]:
    """The project's images, and the Prometheus that the tests run."""
    recipes = [*sorted(ROOT.glob("images/*/Containerfile")), ROOT / "e2e/prometheus/Containerfile"]
    return {recipe.parent.name: Image(recipe.parent.name, recipe) for recipe in recipes}


def build(names: Iterable[str] = ()) -> dict[str, str]:
    """Build these images (all, when none is named); return name -> reference with hash tag."""
    steps = Steps(LOGS, environment())
    stamp = kind.current()
    host = Host(stamp.engine, stamp.from_source) if stamp else choose(steps)
    if host.from_source:
        rootfs.base_images(steps)
    wanted = known()
    built = built_references()
    for name in list(names) or list(wanted):
        if name not in wanted:
            raise HostLacks(f"no image {name!r}; there are: {', '.join(wanted)}")
        built[name] = _build(steps, wanted[name], host)
    STATE.mkdir(parents=True, exist_ok=True)
    BUILT.write_text(json.dumps(built, indent=1))
    return built


def built_references() -> dict[str, str]:
    """name -> reference of what was built last."""
    try:
        found: dict[str, str] = json.loads(BUILT.read_text())
    except (OSError, ValueError):
        return {}
    return found


def load(references: Iterable[str]) -> None:
    """Copy local images into every worker that lacks them."""
    stamp = kind.current()
    if stamp is None:
        raise HostLacks("no cluster: python -m e2e.cluster up")
    steps = Steps(LOGS, environment())
    # pods run on the workers: the control plane's node has a taint
    nodes = [node for node in kind.nodes(stamp.engine) if not node.endswith("-control-plane")]
    for reference in map(_full, references):
        targets = [node for node in nodes if reference not in _in_node(stamp.engine, node)]
        if not targets:
            steps.skip(f"load {reference}", "every worker has it")
            continue
        with steps.step(f"load {reference}") as step:
            _load(step, stamp.engine, reference, targets)


def _build(steps: Steps, image: Image, host: Host) -> str:
    base = LOCAL_BASES.get(image.base, "") if host.from_source else image.base
    reference = f"{image.repository}:{image.key(base)}"
    stable = f"{image.repository}:{STABLE_TAG}"
    if answers(host.engine, "image", "inspect", reference):
        steps.skip(f"image {image.name}", f"{reference} is there")
        subprocess.run((host.engine, "tag", reference, stable), env=environment(), check=True)
        return reference
    with steps.step(f"image {image.name}") as step:
        flags = ["--build-arg", f"BASE={base}"] if base else []
        if host.engine == "podman":
            flags += ["--network", "host"]
            if AUTHORITIES.exists():  # a machine behind a proxy trusts authorities of its own
                flags += ["-v", f"{AUTHORITIES}:{AUTHORITIES}:ro"]
        tags = ("-t", reference, "-t", stable)
        step.run(host.engine, "build", *flags, *tags, "-f", image.recipe, ROOT)
    return reference


def _load(step: Step, engine: str, reference: str, lacking: list[str]) -> None:
    target = ("--name", CLUSTER, "--nodes", ",".join(lacking))
    provider = {"KIND_EXPERIMENTAL_PROVIDER": engine}
    with tempfile.TemporaryDirectory(dir=STATE) as folder:
        archive = Path(folder) / "image.tar"
        step.run(engine, "save", "-o", archive, reference)
        step.run("kind", "load", "image-archive", archive, *target, env=provider)


def _in_node(engine: str, node: str) -> list[str]:
    listed = subprocess.run(
        (engine, "exec", node, "ctr", "-n", "k8s.io", "images", "ls", "-q"),
        capture_output=True,
        text=True,
        env=environment(),
        check=True,
    )
    return listed.stdout.split()


def _full(reference: str) -> str:
    """With registry and tag, as containerd stores it."""
    first = reference.split("/", maxsplit=1)[0]
    if "/" not in reference or not ("." in first or ":" in first or first == "localhost"):
        reference = f"localhost/{reference}"
    return reference if ":" in reference.rsplit("/", 1)[1] else f"{reference}:latest"


def _files(pattern: str) -> Iterable[Path]:
    found = sorted(ROOT.glob(pattern.rstrip("/")))
    if not found:
        raise HostLacks(f"a Containerfile copies {pattern}, which is not there")
    for path in found:
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from (
            file
            for file in inside
            if file.is_file() and not any(part in IGNORED for part in file.parts)
        )


def main(arguments: list[str] | None = None) -> int:
    """Do what is asked; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m e2e.images", description=__doc__)
    parser.add_argument("verb", choices=("build", "load"))
    parser.add_argument("name", nargs="*", help="folders under images/ (all, when none is named)")
    given = parser.parse_args(arguments)
    try:
        built = build(given.name)
        if given.verb == "load":
            load(built[name] for name in (given.name or built))
    except (StepFailed, HostLacks) as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    for name in given.name or built:
        print(f"{name}: {built[name]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
