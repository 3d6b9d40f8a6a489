"""kubectl in one context and one namespace; never in a context that is not kind's."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster.host import environment
from e2e.guard import require_kind_context
from e2e.paths import CONTEXT, KUBECONFIG

Manifest = Mapping[str, Any]


class KubectlFailed(AssertionError):
    """kubectl exited with another status than 0; the message is what it said.

    An AssertionError, so that `eventually` takes it for "not yet".
    """


@dataclass(frozen=True, slots=True)
class Kubectl:
    """A thin wrapper; every call is bounded in time."""

    namespace: str = "default"
    context: str = CONTEXT
    kubeconfig: Path = KUBECONFIG
    timeout_seconds: float = 60.0

    def __post_init__(self) -> None:
        require_kind_context(self.context)

    def within(self, namespace: str) -> "Kubectl":
        """The same, in another namespace."""
        return replace(self, namespace=namespace)

    def command(self, *arguments: str) -> list[str]:
        """The whole command line, for what has to run in the background (logs -f, port-forward)."""
        target = ["--kubeconfig", str(self.kubeconfig), "--context", self.context]
        return ["kubectl", *target, "--namespace", self.namespace, *arguments]

    def run(self, *arguments: str, stdin: str | None = None) -> str:
        """Standard output; KubectlFailed with standard error when it fails."""
        try:
            done = subprocess.run(
                self.command(*arguments),
                input=stdin,
                stdin=subprocess.DEVNULL if stdin is None else None,
                capture_output=True,
                text=True,
                env=environment(),
                timeout=self.timeout_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise KubectlFailed(f"kubectl {arguments[0]}: {error.timeout:.0f} s passed") from error
        if done.returncode != 0:
            raise KubectlFailed(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """One object."""
        found: dict[str, Any] = json.loads(self.run("get", kind, name, "-o", "json"))
        return found

    def list(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        """Objects of a kind, by label selector."""
        flags = ["-l", selector] if selector else []
        items: list[dict[str, Any]] = json.loads(self.run("get", kind, *flags, "-o", "json"))[
            "items"
        ]
        return items

    def exists(self, kind: str, name: str) -> bool:
        """Whether the object is there."""
        return bool(self.run("get", kind, name, "--ignore-not-found", "-o", "name").strip())

    def apply(self, *manifests: Manifest | str, server_side: bool = True) -> str:
        """Apply mappings or YAML texts."""
        flags = ["--server-side", "--force-conflicts"] if server_side else []
        return self.run("apply", *flags, "-f", "-", stdin=_text(manifests))

    def dry_run(self, *manifests: Manifest | str) -> str:
        """Ask the API server whether it would take them."""
        return self.run("apply", "--dry-run=server", "-f", "-", stdin=_text(manifests))

    def delete(self, kind: str, name: str, *flags: str) -> None:
        """Delete and wait until it is gone; no error when it was not there."""
        self.run("delete", kind, name, "--ignore-not-found", *flags)

    def patch(self, kind: str, name: str, patch: Manifest, *flags: str) -> None:
        """A merge patch; `--subresource=resize` and the like as flags."""
        self.run("patch", kind, name, "--type=merge", "-p", json.dumps(patch), *flags)

    def logs(self, target: str, *flags: str) -> str:
        """Logs of a pod or `deployment/NAME`."""
        return self.run("logs", target, *flags)

    def exec(self, pod: str, command: Sequence[str], *, container: str = "") -> str:
        """Run a command in a container."""
        chosen = ["-c", container] if container else []
        return self.run("exec", pod, *chosen, "--", *command)

    def raw(self, path: str) -> str:
        """GET of an API path, e.g. a pod's metrics through the API server's proxy."""
        return self.run("get", "--raw", path)

    def wait(self, target: str, condition: str, timeout_seconds: float = 60.0) -> None:
        """`kubectl wait --for=CONDITION`."""
        limit = f"--timeout={timeout_seconds:.0f}s"
        patient = replace(self, timeout_seconds=timeout_seconds + 10)
        patient.run("wait", target, f"--for={condition}", limit)

    def rollout(self, target: str, timeout_seconds: float = 120.0) -> None:
        """Wait until a workload has rolled out."""
        limit = f"--timeout={timeout_seconds:.0f}s"
        replace(self, timeout_seconds=timeout_seconds + 10).run("rollout", "status", target, limit)


def _text(manifests: tuple[Manifest | str, ...]) -> str:
    texts = (one if isinstance(one, str) else yaml.safe_dump(dict(one)) for one in manifests)
    return "\n---\n".join(texts)
