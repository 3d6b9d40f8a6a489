"""Builds Kubernetes, containerd and the clients from Go modules; what is built already is kept.

A binary says itself which package and version it was built from (`go version -m`), so that is what
decides whether it is up to date: no stamp can disagree with it.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from e2e.cluster.host import HostLacks
from e2e.cluster.pins import CLIENTS, MODULES, Module, Program
from e2e.paths import BIN, CACHE
from e2e.progress import Step, Steps

MINIMUM_GO = "1.25.0"
#: Snapshotters that need C libraries, none of which a kind node uses.
TAGS = "no_btrfs no_devmapper no_zfs no_aufs"


def build_all(steps: Steps) -> None:
    """Every program of the node image and every client."""
    for module in MODULES:
        _build_module(steps, module, module.programs)


def build_clients(steps: Steps) -> None:
    """kind, kubectl and helm; the user's own are taken where all three are installed."""
    if all((BIN / name).exists() or shutil.which(name) for name in CLIENTS):
        return
    for module in MODULES:
        wanted = tuple(program for program in module.programs if program.name in CLIENTS)
        if wanted:
            _build_module(steps, module, wanted)


def build_modules(steps: Steps, modules: tuple[Module, ...]) -> None:
    """Further programs, for a test that needs them."""
    for module in modules:
        _build_module(steps, module, module.programs)


def module_folder(step: Step, path: str, version: str) -> Path:
    """The module's sources in Go's cache (downloaded where missing)."""
    return Path(_download(step, path, version)["Dir"])


def go_build(step: Step, output: Path, package: str, *, ldflags: str = "", cwd: Path) -> None:
    """Build one static program; the output appears only when it is complete."""
    unfinished = output.with_name(f".{output.name}.{os.getpid()}")
    output.parent.mkdir(parents=True, exist_ok=True)
    flags = ("-tags", TAGS, "-ldflags", f"-s -w {ldflags}")
    step.run("go", "build", *flags, "-o", unfinished, package, cwd=cwd, env={"CGO_ENABLED": "0"})
    unfinished.replace(output)


def up_to_date(program: Program) -> bool:
    """Whether the cached binary is this program at the version pinned."""
    binary = BIN / program.name
    if not binary.exists() or not shutil.which("go"):
        return binary.exists()
    shown = subprocess.run(
        ("go", "version", "-m", str(binary)), capture_output=True, text=True, check=False
    ).stdout
    if not re.search(rf"^\tpath\t{re.escape(program.package)}$", shown, re.MULTILINE):
        return False
    version = re.search(r"^\tmod\t\S+\t(\S+)", shown, re.MULTILINE)
    return not program.version or (version is not None and version[1] == program.version)


def _build_module(steps: Steps, module: Module, programs: tuple[Program, ...]) -> None:
    outdated = [program for program in programs if not up_to_date(program)]
    names = " ".join(program.name for program in programs)
    if not outdated:
        steps.skip(f"build {names}", f"{module.version} is in the cache")
        return
    if not shutil.which("go"):
        raise HostLacks(f"install Go {MINIMUM_GO} or newer: {names} are built from source")
    folder = CACHE / "modules" / f"{module.name}-{module.version}"
    if not (folder / "go.sum").exists():
        with steps.step(f"resolve {module.name} {module.version}") as step:
            _resolve(step, module, folder)
    for program in outdated:
        with steps.step(f"build {program.name} {program.version or 'of ' + module.name}") as step:
            package, flags = program.package, program.ldflags
            go_build(step, BIN / program.name, package, ldflags=flags, cwd=folder)


def _resolve(step: Step, module: Module, folder: Path) -> None:
    """Write a Go module whose tools are the programs, at exactly the version pinned."""
    folder.mkdir(parents=True, exist_ok=True)
    tools = "".join(f"\t{program.package}\n" for program in module.programs)
    text = f"module slimscale.dev/tools/{module.name}\n\ngo {MINIMUM_GO}\n"
    # one module each: `go get -tool` would raise versions that a staging module must not exceed
    text += f"\ntool (\n{tools})\n\nrequire {module.path} {module.version}\n"
    if module.staging:
        text += f"\nreplace (\n{_staging(step, module)})\n"
    (folder / "go.mod").write_text(text)
    try:
        if module.staging:
            step.run("go", "mod", "tidy", cwd=folder)
        else:
            wanted = [f"{program.package}@{module.version}" for program in module.programs]
            step.run("go", "get", "-tool", *wanted, cwd=folder)
    except BaseException:
        (folder / "go.sum").unlink(missing_ok=True)  # half a resolution must not look like one
        raise


def _staging(step: Step, module: Module) -> str:
    release = "v0." + module.version.removeprefix("v1.")
    gomod = Path(_download(step, module.path, module.version)["GoMod"]).read_text()
    staged = re.findall(r"^\s*(k8s\.io/\S+) => \./staging", gomod, re.MULTILINE)
    return "".join(f"\t{path} => {path} {release}\n" for path in staged)


def _download(step: Step, path: str, version: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(
        step.output("go", "mod", "download", "-json", f"{path}@{version}")
    )
    return found
