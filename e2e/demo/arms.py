"""One simulation pod of the demo: started from examples/, switched by annotation, asked for figures."""

import json
import time
from dataclasses import dataclass
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from e2e.eventually import eventually
from e2e.kubectl import Kubectl
from e2e.paths import ROOT

__all__ = ["Figures", "SimulationPod", "simulation_manifest"]

PHASE_ANNOTATION = "simserver.slimscale.dev/phase"
METRICS_PORT = 9464
SWITCH_TIMEOUT_SECONDS = 30.0
WARM_UP_SECONDS = 1.0


def simulation_manifest(name: str, *, threads: int, image: str, phase: str) -> dict[str, Any]:
    """examples/simulation.yaml under another name, with this guess and this first phase."""
    manifest: dict[str, Any] = yaml.safe_load((ROOT / "examples/simulation.yaml").read_text())
    manifest["metadata"] = {"name": name, "labels": {"app.kubernetes.io/name": name}}
    spec = manifest["spec"]
    spec["selector"]["matchLabels"] = {"app.kubernetes.io/name": name}
    template = spec["template"]
    template["metadata"]["labels"]["app.kubernetes.io/name"] = name
    template["metadata"]["annotations"][PHASE_ANNOTATION] = phase
    for container in template["spec"]["containers"]:
        container["image"] = image
        for entry in container.get("env", []):
            if entry["name"] == "SIM_THREADS":
                entry["value"] = str(threads)
        if container["name"] == "simserver":
            # three arms and the system share a small machine; only one of them works at a time
            container["resources"]["requests"]["cpu"] = "300m"
    return manifest


@dataclass(frozen=True, slots=True)
class Figures:
    """One look at a pod's metrics. Counters are cumulative, seconds are of the pod's own clock."""

    at_seconds: float
    phase: str
    steps: dict[str, float]
    phase_seconds: dict[str, float]
    threads: int | None
    cpu_limit_cores: float | None

    def rate_since(self, earlier: "Figures", phase: str) -> float | None:
        """Steps a second of a phase between two looks; None when it did not run in between."""
        seconds = self.phase_seconds.get(phase, 0.0) - earlier.phase_seconds.get(phase, 0.0)
        steps = self.steps.get(phase, 0.0) - earlier.steps.get(phase, 0.0)
        return steps / seconds if seconds > 0 else None


class SimulationPod:
    """The single pod of a Deployment; found anew by name so that a restart would be noticed."""

    def __init__(self, kubectl: Kubectl, deployment: str) -> None:
        self._kubectl = kubectl
        self._selector = f"app.kubernetes.io/name={deployment}"
        pods = kubectl.list("pods", self._selector)
        if len(pods) != 1:
            raise AssertionError(f"{deployment} has {len(pods)} pods, 1 expected")
        self.name: str = pods[0]["metadata"]["name"]
        self.uid: str = pods[0]["metadata"]["uid"]

    def object(self) -> dict[str, Any]:
        return self._kubectl.get("pod", self.name)

    def restarts(self) -> int:
        """Restarts of its containers; a pod that was replaced counts as one too."""
        pods = self._kubectl.list("pods", self._selector)
        replaced = len([pod for pod in pods if pod["metadata"]["uid"] != self.uid])
        statuses: list[dict[str, Any]] = [
            s for pod in pods for s in pod["status"].get("containerStatuses", [])
        ]
        return replaced + sum(int(s["restartCount"]) for s in statuses)

    def figures(self) -> Figures:
        """Read /metrics through the API server's proxy."""
        namespace = self._kubectl.namespace
        path = f"/api/v1/namespaces/{namespace}/pods/{self.name}:{METRICS_PORT}/proxy/metrics"
        page = self._kubectl.raw(path)
        steps: dict[str, float] = {}
        seconds: dict[str, float] = {}
        phase, threads, limit = "", None, None
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                if sample.name == "simserver_steps_total":
                    steps[sample.labels["phase"]] = sample.value
                elif sample.name == "simserver_phase_seconds_total":
                    seconds[sample.labels["phase"]] = sample.value
                elif sample.name == "simserver_phase" and sample.value == 1:
                    phase = sample.labels["phase"]
                elif sample.name == "slimscale_threads_applied":
                    threads = int(sample.value)
                elif sample.name == "slimscale_cpu_quota_cores":
                    limit = float(sample.value)
        return Figures(time.monotonic(), phase, steps, seconds, threads, limit)

    def switch(self, phase: str) -> None:
        """Set the phase and wait until the pod runs it."""
        self._kubectl.patch(
            "pod", self.name, {"metadata": {"annotations": {PHASE_ANNOTATION: phase}}}
        )
        eventually(
            lambda: self.figures().phase == phase,
            SWITCH_TIMEOUT_SECONDS,
            interval_seconds=0.3,
            what=f"{self.name} runs phase {phase}",
        )

    def turn(self, phase: str, seconds: float) -> float:
        """Run a phase alone for a while; return its steps a second without the warm-up."""
        self.switch(phase)
        time.sleep(WARM_UP_SECONDS)
        before = self.figures()
        time.sleep(seconds)
        rate = self.figures().rate_since(before, phase)
        self.switch("paused")
        return rate or 0.0


def status_of(kubectl: Kubectl, name: str) -> dict[str, Any]:
    """The SimWorkload's status, empty while there is none."""
    found = json.loads(kubectl.run("get", "simworkload", name, "-o", "json"))
    return dict(found.get("status", {}))
