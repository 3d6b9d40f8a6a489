"""What the tests of SlimInferences share: an object, its status, requests through the front door."""

import json
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from e2e.cluster.host import environment
from e2e.eventually import eventually
from e2e.kubectl import Kubectl
from slimscale.act.inference_names import InferenceNames

Json = dict[str, Any]

SIDE = 28
WIDTHS = [
    {"ratio": 0.25, "model": "fashion-w025", "accuracy": 0.86, "flopsRatio": 0.1},
    {"ratio": 0.5, "model": "fashion-w050", "accuracy": 0.88, "flopsRatio": 0.3},
    {"ratio": 0.75, "model": "fashion-w075", "accuracy": 0.89, "flopsRatio": 0.6},
    {"ratio": 1.0, "model": "fashion-w100", "accuracy": 0.9},
]
SMALL = {
    "requests": {"cpu": "50m", "memory": "160Mi"},
    "limits": {"cpu": "1", "memory": "512Mi"},
}


def manifest(name: str = "fashion", **spec: Any) -> Json:
    """One pool with one small pod; spec replaces whole sections."""
    pool = {"name": "cpu", "minReplicas": 1, "maxReplicas": 2, "resources": SMALL}
    base = {
        "model": {"name": "fashion", "inputShape": [1, SIDE, SIDE], "widths": WIDTHS},
        "pools": [pool],
        "slo": {"latencyMilliseconds": 1000},
        "router": {"replicas": 2, "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}}},
    }
    return {
        "apiVersion": "slimscale.dev/v1alpha1",
        "kind": "SlimInference",
        "metadata": {"name": name},
        "spec": base | spec,
    }


@dataclass(frozen=True, slots=True)
class Inference:
    """One SlimInference in one namespace."""

    kubectl: Kubectl
    name: str = "fashion"

    @property
    def names(self) -> InferenceNames:
        return InferenceNames(self.name)

    def status(self) -> Json:
        found: Json = self.kubectl.get("sliminference", self.name).get("status") or {}
        return found

    def condition(self, kind: str) -> Json:
        """Of this type; empty before it is there."""
        found = [c for c in self.status().get("conditions") or [] if c["type"] == kind]
        return found[0] if found else {}

    def ready(self) -> bool:
        """Ready, for the generation that stands in the spec."""
        thing = self.kubectl.get("sliminference", self.name)
        status = thing.get("status") or {}
        conditions = {c["type"]: c["status"] for c in status.get("conditions") or []}
        current = status.get("observedGeneration") == thing["metadata"]["generation"]
        return current and conditions.get("Ready") == "True"

    def wait_ready(self, seconds: float = 240) -> None:
        eventually(self.ready, seconds, what=f"SlimInference {self.name} is ready")

    def pool(self, pool: str = "cpu") -> Json:
        """The pool's Deployment."""
        return self.kubectl.get("deployment", self.names.pool(pool))

    def pods(self, role: str) -> list[Json]:
        selector = ",".join(f"{k}={v}" for k, v in self.names.role_selector(role).items())
        found: list[Json] = self.kubectl.list("pods", selector)
        return found

    @contextmanager
    def front_door(self) -> Iterator[str]:
        """`http://127.0.0.1:PORT`: the Service that clients call, for as long as the block runs."""
        command = self.kubectl.command(
            "port-forward", f"service/{self.names.front}", ":80", "--address", "127.0.0.1"
        )
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment()
        ) as process:
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                port = re.search(r"127\.0\.0\.1:(\d+)", line)
                assert port, f"no port was forwarded: {line!r}"
                yield f"http://127.0.0.1:{port[1]}"
            finally:
                process.terminate()


def infer(door: str, *, model: str = "fashion", rows: int = 1) -> Json:
    """One request of the Open Inference Protocol as JSON; its answer.

    Raises:
        AssertionError: another status than 200; the message holds the answer.
    """
    data = [[[[0.5] * SIDE] * SIDE]] * rows
    tensor = {"name": "image", "datatype": "FP32", "shape": [rows, 1, SIDE, SIDE], "data": data}
    request = urllib.request.Request(  # noqa: S310 - http on loopback
        f"{door}/v2/models/{model}/infer",
        data=json.dumps({"inputs": [tensor]}).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            found: Json = json.loads(answer.read())
            return found
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{error.code}: {error.read()[:500]!r}") from error
    except OSError as error:
        raise AssertionError(f"no answer: {error}") from error
