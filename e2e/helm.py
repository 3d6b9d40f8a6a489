"""helm, in kind's contexts only."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster.host import environment
from e2e.guard import require_kind_context
from e2e.paths import CONTEXT, KUBECONFIG, ROOT

CHART = ROOT / "charts" / "slimscale"


class HelmFailed(AssertionError):
    """helm exited with another status than 0; the message is what it said."""


@dataclass(frozen=True, slots=True)
class Helm:
    """One release's namespace."""

    namespace: str = "slimscale"
    context: str = CONTEXT
    kubeconfig: Path = KUBECONFIG

    def __post_init__(self) -> None:
        require_kind_context(self.context)

    def run(self, *arguments: str, stdin: str | None = None, timeout_seconds: float = 300) -> str:
        """Standard output; HelmFailed with standard error when it fails."""
        target = ("--kubeconfig", str(self.kubeconfig), "--kube-context", self.context)
        done = subprocess.run(
            ("helm", *target, "--namespace", self.namespace, *arguments),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            env=environment(),
            timeout=timeout_seconds,
            check=False,
        )
        if done.returncode != 0:
            raise HelmFailed(f"helm {arguments[0]}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def install(
        self,
        release: str,
        values: dict[str, Any],
        *,
        chart: Path = CHART,
        timeout_seconds: float = 180,
    ) -> None:
        """Install or upgrade, and wait until the pods are ready.

        A release whose installation was cut off blocks every later one, so it is removed first.
        """
        for found in self.releases():
            if found["name"] == release and found["status"].startswith("pending-"):
                self.uninstall(release)
        limit = f"--timeout={timeout_seconds:.0f}s"
        flags = ("--install", "--create-namespace", "--wait", limit, "--values", "-")
        self.run(
            *("upgrade", release, str(chart), *flags),
            stdin=yaml.safe_dump(values),
            timeout_seconds=timeout_seconds + 60,
        )

    def uninstall(self, release: str) -> None:
        """Remove the release; no error when it is not there."""
        self.run("uninstall", release, "--ignore-not-found", "--wait")

    def releases(self) -> list[dict[str, Any]]:
        """What is installed in the namespace."""
        found: list[dict[str, Any]] = json.loads(self.run("list", "-o", "json"))
        return found
