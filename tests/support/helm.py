"""Helm for tests: the one that is installed, else the end-to-end cache's, else built with Go."""

import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster.pins import HELM
from e2e.paths import BIN

__all__ = ["CHART", "ROOT", "helm", "helm_path", "render"]

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts/slimscale"

Document = dict[str, Any]


@cache
def helm_path() -> Path:
    """Where helm is. Building it takes a minute or two, once on a machine."""
    installed = shutil.which("helm")
    if installed:
        return Path(installed)
    target = BIN / "helm"
    if not target.exists():
        _build(target)
    return target


def _build(target: Path) -> None:
    if not shutil.which("go"):
        raise RuntimeError("install helm, or Go to build it: the chart's tests render the chart")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        subprocess.run(
            ["go", "install", f"helm.sh/helm/v4/cmd/helm@{HELM}"],
            env={**os.environ, "GOBIN": folder, "CGO_ENABLED": "0", "GOFLAGS": ""},
            check=True,
        )
        (Path(folder) / "helm").replace(target)


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run helm without any kubeconfig, so that no test reaches a cluster."""
    environment = {**os.environ, "KUBECONFIG": os.devnull}
    return subprocess.run(
        [str(helm_path()), *arguments], capture_output=True, text=True, check=False, env=environment
    )


@cache
def render(
    *, values: str = "default", release: str = "slimscale", namespace: str = "slimscale"
) -> tuple[Document, ...]:
    """The chart's manifests with `ci/<values>-values.yaml`."""
    done = helm(
        *("template", release, str(CHART), "--namespace", namespace),
        *("--values", str(CHART / f"ci/{values}-values.yaml")),
    )
    assert done.returncode == 0, done.stderr
    return tuple(document for document in yaml.safe_load_all(done.stdout) if document)
