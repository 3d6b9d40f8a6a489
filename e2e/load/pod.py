"""A pod that sends requests from inside the cluster, in the data plane's image."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.eventually import eventually
from e2e.kubectl import Kubectl
from e2e.load.tally import Run, Tally, read, tally

__all__ = ["LoadPod"]

DRIVER = Path(__file__).with_name("driver.py")
START_SECONDS = 120.0
END_SECONDS = 90.0


@dataclass(slots=True)
class LoadPod:
    """`start`, do something to the service, `finish`."""

    kubectl: Kubectl
    image: str
    plan: dict[str, Any]
    name: str = "load"
    node_selector: dict[str, str] | None = None

    def start(self) -> None:
        """Returns once the first requests are answered or lost."""
        files = {"driver.py": DRIVER.read_text(), "plan.json": json.dumps(self.plan)}
        self.kubectl.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": self.name},
                "data": files,
            },
            self._pod(),
        )
        eventually(
            lambda: self.run().ended, START_SECONDS, what="the load pod has written its first line"
        )

    def run(self) -> Run:
        """What it has written so far."""
        return read(self.kubectl.logs(self.name).splitlines())

    def tally(self) -> Tally:
        return tally(self.run(), len(self.plan["arrivals"]))

    def finish(self) -> Run:
        """Wait until each request has its end."""
        longest = float(self.plan["arrivals"][-1]) + float(self.plan["deadline_seconds"])

        def phase() -> bool:
            thing = self.kubectl.get("pod", self.name)
            found = thing["status"]["phase"]
            assert found != "Failed", self.kubectl.logs(self.name, "--tail=20")
            return bool(found == "Succeeded")

        eventually(phase, longest + END_SECONDS, interval_seconds=1.0, what="the load has ended")
        return self.run()

    def _pod(self) -> dict[str, Any]:
        secure = {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        container = {
            "name": "load",
            "image": self.image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["python", "/load/driver.py", "/load/plan.json"],
            "securityContext": secure,
            "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
            "volumeMounts": [{"name": "load", "mountPath": "/load", "readOnly": True}],
        }
        spec = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "nodeSelector": self.node_selector or {},
            "containers": [container],
            "volumes": [{"name": "load", "configMap": {"name": self.name}}],
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self.name, "labels": {"app.kubernetes.io/name": "load"}},
            "spec": spec,
        }
