"""`python -m e2e.demo_inference`: recorded traffic on one SlimInference; exit status 1 on any loss.

Example: python -m e2e.demo_inference --minutes 4 --rate 10 --out /tmp/demo-inference
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from e2e import images, install
from e2e.cluster import kind
from e2e.cluster.host import HostLacks
from e2e.demo.__main__ import machine
from e2e.demo_inference.report import counts, draw, markdown, record, timeline_table
from e2e.demo_inference.verdict import Look, Story, attainment, busy_moment, failures, slices
from e2e.kubectl import Kubectl
from e2e.load.plan import make_plan
from e2e.load.pod import LoadPod
from e2e.load.tally import tally
from e2e.paths import KUBECONFIG, ROOT, STATE
from e2e.progress import StepFailed
from e2e.sliminferences import Inference
from slimscale.api.names import LABEL_POOL
from slimscale.bench.serving.arrivals import read_trace, squeezed

NAMESPACE = "slimscale-demo-inference"
IMAGES = ("operator", "dataplane", "modelserver")
TRACE = ROOT / "data/traces/azure-llm-2023-code-burst10m.csv"
LOOK_SECONDS = 2.0
AFTER_SECONDS = 30.0
"""Watched after the last request, for the pools to become small again."""
KILL_SHARE = 0.5
SLICES = 12
JSON_EVERY = 25
SCALING = {
    "stableWindowSeconds": 20,
    "downStabilisationSeconds": 30,
    "downCooldownSeconds": 10,
}
"""Shorter than the defaults, so that a few minutes show both directions."""
LEAST_ACCURACY = 0.9
"""Asked of every answer. A pod of the narrowest width alone could take all of this traffic."""


class Demo:
    """Sets the scene, tells the story, and keeps what it saw."""

    def __init__(
        self, console: Console, *, seconds: float, rate: float, rows: int, seed: int
    ) -> None:
        self._console = console
        self._seconds = seconds
        self._arrivals = squeezed(read_trace(TRACE), rate, seconds, seed=seed).tolist()
        self._rows = rows
        self._kubectl = Kubectl(namespace=NAMESPACE)
        self._inference = Inference(self._kubectl)
        self._image = ""
        self._start = time.time()
        self._looks: list[Look] = []
        self._killed = ""
        self._killed_at = float("nan")
        self._slo = float("nan")

    def set_the_scene(self) -> None:
        """Cluster, images, operator by the chart, the SlimInference of examples/."""
        kind.up()
        built = images.build(IMAGES)
        images.load(built[name] for name in IMAGES)
        self._image = built["dataplane"]
        self._say("installing the operator with helm")
        install.install(
            built["operator"],
            {
                "inference": {
                    "dataplaneImage": built["dataplane"],
                    "modelserverImage": built["modelserver"],
                    "scalingIntervalSeconds": 2,
                }
            },
        )
        self._kubectl.run("delete", "namespace", NAMESPACE, "--ignore-not-found")
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        metadata = {"name": NAMESPACE, "labels": labels}
        self._kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        self._say("kubectl apply examples/sliminference.yaml")
        example: dict[str, Any] = yaml.safe_load((ROOT / "examples/sliminference.yaml").read_text())
        example["spec"]["scaling"] |= SCALING
        example["spec"]["slo"]["minAccuracy"] = LEAST_ACCURACY
        self._slo = float(example["spec"]["slo"]["latencyMilliseconds"])
        self._kubectl.apply(example)
        self._inference.wait_ready()
        self._console.rule("the scene is set; the story's clock starts")

    def tell(self) -> Story:
        """The trace runs; half-way a pod is killed; pools grow and shrink."""
        plan = make_plan("demo", self._arrivals, rows=self._rows, json_every=JSON_EVERY)
        load = LoadPod(self._kubectl, self._image, plan)
        load.start()
        self._start = load.run().start_unix_seconds or time.time()
        self._say(f"{len(self._arrivals)} requests over {self._seconds:.0f} s have begun")
        kill_at = busy_moment(self._arrivals, KILL_SHARE * self._seconds)
        while self._now() < self._seconds + AFTER_SECONDS:
            self._look()
            if not self._killed and self._now() >= kill_at - LOOK_SECONDS:
                time.sleep(max(0.0, kill_at - self._now()))
                self._kill()
            time.sleep(LOOK_SECONDS)
        run = load.finish()
        return Story(
            tally=tally(run, len(self._arrivals)),
            slices=slices(
                run.ended,
                self._looks,
                seconds=self._seconds,
                slice_seconds=self._seconds / SLICES,
            ),
            looks=tuple(self._looks),
            killed=self._killed,
            killed_at_seconds=self._killed_at,
            slo_milliseconds=self._slo,
            attainment=attainment(run.ended, self._slo),
            decisions=tuple(
                f"{decision['pool']}: {decision['fromReplicas']} to {decision['toReplicas']}:"
                f" {decision.get('reason', '')}"
                for decision in self._inference.status().get("decisions") or []
            ),
        )

    def _look(self) -> None:
        wanted: dict[str, int] = {}
        ready: dict[str, int] = {}
        for thing in self._kubectl.list("deployments", LABEL_POOL):
            pool = thing["metadata"]["labels"][LABEL_POOL]
            wanted[pool] = int(thing["spec"].get("replicas", 0))
            ready[pool] = int(thing["status"].get("readyReplicas", 0))
        if self._looks and wanted != self._looks[-1].wanted:
            self._say(f"replicas wanted: {wanted}")
        self._looks.append(Look(self._now(), wanted, ready))

    def _kill(self) -> None:
        """One that serves, so that something is lost if anything can be."""
        serving = [
            pod["metadata"]["name"]
            for pod in self._inference.pods("pool")
            if any(
                c["type"] == "Ready" and c["status"] == "True"
                for c in pod["status"].get("conditions") or []
            )
        ]
        if not serving:
            return
        self._killed_at = self._now()
        self._killed = serving[0]
        self._say(f"kubectl delete pod --grace-period=0 --force {self._killed}")
        self._kubectl.run("delete", "pod", self._killed, "--grace-period=0", "--force")

    def _now(self) -> float:
        """Seconds from the start of the load; nodes and this process share a clock."""
        return time.time() - self._start

    def _say(self, text: str) -> None:
        self._console.print(f"[dim]{self._now():6.1f} s[/] {text}", highlight=False)


def _words(settings: dict[str, int]) -> str:
    return ", ".join(f"`{name}` {value}" for name, value in settings.items())


def main(arguments: list[str] | None = None) -> int:
    """Run the story; print the table, draw the picture; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m e2e.demo_inference", description=__doc__)
    parser.add_argument("--minutes", type=float, default=4.0, help="length of the load")
    parser.add_argument("--rate", type=float, default=10.0, help="requests a second in the mean")
    parser.add_argument("--rows", type=int, default=4, help="images in each request")
    parser.add_argument("--seed", type=int, default=1, help="which stretch of the trace")
    parser.add_argument(
        "--out", type=Path, default=STATE / "demo-inference", help="folder of the results"
    )
    given = parser.parse_args(arguments)
    console = Console()
    try:
        demo = Demo(
            console, seconds=60 * given.minutes, rate=given.rate, rows=given.rows, seed=given.seed
        )
    except ValueError as error:
        parser.error(f"--minutes and --rate: {error}; lower one of them")
    try:
        demo.set_the_scene()
        story = demo.tell()
    except (StepFailed, HostLacks, AssertionError) as error:
        console.print(f"[red]the demo stopped:[/] {error}", highlight=False)
        console.print(f"logs of each step: {STATE / 'logs'}")
        return 1
    given.out.mkdir(parents=True, exist_ok=True)
    picture = given.out / "demo-inference.png"
    draw(picture, story)
    (given.out / "demo-inference.json").write_text(json.dumps(record(story), indent=1) + "\n")
    how = (
        f"{given.minutes:g} minutes of `{TRACE.name}` squeezed to {given.rate:g} requests a second"
        f" in the mean, {given.rows} images each, on the two pools of `examples/sliminference.yaml`,"
        f" with an accuracy of {LEAST_ACCURACY:.0%} asked of every answer, and with shorter windows for"
        f" scaling ({_words(SCALING)}), so that minutes show both directions."
    )
    (given.out / "demo-inference.md").write_text(markdown(story, where=machine(), how=how))
    console.print(timeline_table(story))
    console.print(f"picture: {picture}", soft_wrap=True)
    problems = failures(story)
    for problem in problems:
        console.print(f"[red]not as promised:[/] {problem}")
    for detail in story.tally.details:
        console.print(f"  {detail}", highlight=False, markup=False)
    console.print("The cluster stays up (`make clean` takes it away). To look around:")
    console.print(f"  export KUBECONFIG={KUBECONFIG}", highlight=False, soft_wrap=True)
    console.print(f"  kubectl get slim -n {NAMESPACE}")
    console.print(f"[bold]{counts(story)}[/]", highlight=False)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
