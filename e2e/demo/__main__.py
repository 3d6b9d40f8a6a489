"""`python -m e2e.demo`: the whole story on a real cluster; exit status 1 when it does not hold.

Example: python -m e2e.demo --rounds 3 --out /tmp/demo
"""

import argparse
import json
import os
import re
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import yaml
from rich.console import Console

from e2e import images
from e2e.cluster import kind
from e2e.cluster.host import HostLacks
from e2e.demo.arms import Figures, SimulationPod, simulation_manifest, status_of
from e2e.demo.report import draw, markdown, results_table
from e2e.demo.verdict import (
    Arm,
    PhaseResult,
    TimelinePoint,
    failures,
    seconds_to_acknowledge,
    seconds_to_reach,
)
from e2e.helm import Helm
from e2e.kubectl import Kubectl
from e2e.paths import KUBECONFIG, ROOT, STATE
from e2e.progress import StepFailed

NAMESPACE = "slimscale-demo"
RELEASE = "slimscale"
GUESSED_THREADS = 16
CPU_LIMIT = 2
PHASES = (("light", True), ("heavy", False), ("blocking", True))
SETTLED_SECONDS = 20.0
LEAST_WATCHED_SECONDS = 45.0
"""A target that still stands from the phase before must not be taken for the answer to this one."""
FOLLOW_WITHIN_SECONDS = 60.0


class Demo:
    """Sets the scene, tells the story, and keeps what it saw."""

    def __init__(self, console: Console, *, rounds: int, turn_seconds: float) -> None:
        self._console = console
        self._rounds = rounds
        self._turn_seconds = turn_seconds
        self._kubectl = Kubectl(namespace=NAMESPACE)
        self._start = time.monotonic()
        self._pods: dict[str, SimulationPod] = {}
        self._previous: Figures | None = None
        self.timeline: list[TimelinePoint] = []
        self.results: list[PhaseResult] = []
        self.applied_at = 0.0
        self.apply_to_acknowledged = float("inf")

    def set_the_scene(self) -> None:
        """Cluster, images, operator by the chart, three arms of the same simulation."""
        kind.up()
        built = images.build(["operator", "simserver"])
        images.load([built["operator"], built["simserver"]])
        repository, tag = built["operator"].rsplit(":", 1)
        self._say("installing the operator with helm")
        Helm().install(RELEASE, {"image": {"repository": repository, "tag": tag}})
        self._say("starting three arms: guessed count, floor(quota), and the operator's")
        self._kubectl.run("delete", "namespace", NAMESPACE, "--ignore-not-found")
        self._kubectl.run("create", "namespace", NAMESPACE)
        arms = {"guessed": GUESSED_THREADS, "floor": CPU_LIMIT, "operator": GUESSED_THREADS}
        for name, threads in arms.items():
            self._kubectl.apply(
                simulation_manifest(name, threads=threads, image=built["simserver"], phase="paused")
            )
        for name in arms:
            self._kubectl.rollout(f"deployment/{name}")
            self._pods[name] = SimulationPod(self._kubectl, name)
        self._console.rule("the scene is set; the story's clock starts")
        self._start = time.monotonic()

    def tell(self) -> None:
        """The guess runs; the SimWorkload is applied; the load changes and the operator follows."""
        managed = self._pods["operator"]
        managed.switch(PHASES[0][0])
        self._say(f"running with the guess: {GUESSED_THREADS} threads, {CPU_LIMIT} CPUs")
        self._watch(PHASES[0][0], seconds=15)
        workload = yaml.safe_load((ROOT / "examples/simworkload.yaml").read_text())
        workload["metadata"]["name"] = workload["spec"]["targetRef"]["name"] = "operator"
        self._kubectl.apply(workload)
        self.applied_at = time.monotonic() - self._start
        self._say("kubectl apply simworkload")
        for index, (phase, must_be_better) in enumerate(PHASES):
            since = time.monotonic() if index else self._start + self.applied_at
            if index:
                managed.switch(phase)
                self._say(f"the load changes: {phase}")
            followed = self._follow(phase, since)
            if index == 0:
                self.apply_to_acknowledged = seconds_to_acknowledge(self.timeline, self.applied_at)
            self._measure(phase, must_be_better=must_be_better, followed=followed)

    def _follow(self, phase: str, since: float) -> float:
        """Watch until the acknowledged target stays; seconds until its neighbourhood was reached."""
        start = len(self.timeline)
        self._say(f"{phase}: watching the operator until its choice stays")
        reached: tuple[int | None, str | None] | None = None
        reached_at = time.monotonic()
        end = since + 3 * FOLLOW_WITHIN_SECONDS
        while time.monotonic() < end:
            self._look(phase)
            settled = self._settled_target()
            if settled is None or settled != reached:
                reached, reached_at = settled, time.monotonic()
            elif (
                time.monotonic() - reached_at >= SETTLED_SECONDS
                and time.monotonic() - since >= LEAST_WATCHED_SECONDS
            ):
                break
            time.sleep(1.0)
        seconds = seconds_to_reach(self.timeline[start:], since - self._start)
        threads = self.timeline[-1].threads
        self._say(f"{phase}: {threads} threads, followed within {seconds:.0f} s")
        return seconds

    def _settled_target(self) -> tuple[int | None, str | None] | None:
        """(threads, CPU limit) once every pod has acknowledged it; None until then."""
        status = status_of(self._kubectl, "operator")
        target = status.get("target") or {}
        pods = status.get("pods") or []
        conditions = {c["type"]: c["status"] for c in status.get("conditions", [])}
        if not target or not pods or conditions.get("Applied") != "True":
            return None
        if any(pod.get("threads") != target["threads"] for pod in pods):
            return None
        return target["threads"], target.get("cpuLimit")

    def _measure(self, phase: str, *, must_be_better: bool, followed: float) -> None:
        """Interleaved turns: each round runs every arm once, alone on the machine."""
        managed = self._pods["operator"]
        chosen = managed.figures()
        managed.switch("paused")
        rates: dict[str, list[float]] = {name: [] for name in self._pods}
        for number in range(self._rounds):
            self._say(f"{phase}: measuring, round {number + 1} of {self._rounds}")
            for name, pod in self._pods.items():
                rates[name].append(pod.turn(phase, self._turn_seconds))
        limit = f"{chosen.cpu_limit_cores:g}" if chosen.cpu_limit_cores else "-"
        before = str(CPU_LIMIT)
        self.results.append(
            PhaseResult(
                phase=phase,
                must_be_clearly_better=must_be_better,
                guessed=Arm(GUESSED_THREADS, before, tuple(rates["guessed"])),
                floor=Arm(CPU_LIMIT, before, tuple(rates["floor"])),
                operator=Arm(chosen.threads or 0, limit, tuple(rates["operator"])),
                seconds_to_follow=followed,
                restarts=managed.restarts(),
            )
        )

    def _watch(self, phase: str, *, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._look(phase)
            time.sleep(1.0)

    def _look(self, phase: str) -> None:
        """Add one point to the timeline; the rate is that since the look before."""
        figures = self._pods["operator"].figures()
        previous = self._previous
        rate = figures.rate_since(previous, phase) if previous is not None else None
        self._previous = figures
        self.timeline.append(
            TimelinePoint(
                seconds=figures.at_seconds - self._start,
                phase=phase,
                threads=figures.threads,
                cpu_limit_cores=figures.cpu_limit_cores,
                steps_per_second=rate,
            )
        )

    def _say(self, text: str) -> None:
        self._console.print(f"[dim]{time.monotonic() - self._start:6.1f} s[/] {text}")


def machine() -> str:
    """What it ran on, for a reader who compares."""
    models = re.findall(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return (
        f"{datetime.now(UTC).date().isoformat()}, {os.cpu_count()} CPUs ({models[0] if models else 'unknown'}),"
        f" Linux {os.uname().release.split('-')[0]}, a shared machine."
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the story; print the table, draw the picture; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m e2e.demo", description=__doc__)
    parser.add_argument("--rounds", type=int, default=4, help="interleaved rounds a phase")
    parser.add_argument("--turn-seconds", type=float, default=5.0, help="length of one turn")
    parser.add_argument("--out", type=Path, default=STATE / "demo", help="folder of the results")
    given = parser.parse_args(arguments)
    console = Console()
    demo = Demo(console, rounds=given.rounds, turn_seconds=given.turn_seconds)
    try:
        demo.set_the_scene()
        demo.tell()
    except (StepFailed, HostLacks, AssertionError) as error:
        console.print(f"[red]the demo stopped:[/] {error}", highlight=False)
        console.print("logs of each step: e2e/.state/logs")
        return 1
    given.out.mkdir(parents=True, exist_ok=True)
    picture = given.out / "demo.png"
    draw(picture, demo.timeline, demo.results, applied=demo.applied_at)
    record = {
        "apply_to_acknowledged_seconds": demo.apply_to_acknowledged,
        "results": [asdict(result) for result in demo.results],
        "timeline": [asdict(point) for point in demo.timeline],
    }
    (given.out / "demo.json").write_text(json.dumps(record, indent=1) + "\n")
    (given.out / "demo.md").write_text(
        markdown(
            demo.results,
            apply_to_acknowledged_seconds=demo.apply_to_acknowledged,
            where=machine(),
            how=f"{given.rounds} rounds a phase, {given.turn_seconds:g} s a turn",
        )
    )
    table = results_table(demo.results, apply_to_acknowledged_seconds=demo.apply_to_acknowledged)
    console.print(table)
    console.print(f"picture: {picture}")
    problems = failures(demo.results, follow_within_seconds=FOLLOW_WITHIN_SECONDS)
    for problem in problems:
        console.print(f"[red]not as promised:[/] {problem}")
    if problems:
        console.print(
            "What the operator decided and why: the command below. It measures, so a busy"
        )
        console.print("machine can spoil a run; run it again when nothing else runs.")
    console.print("The cluster stays up (`make clean` takes it away). To look around:")
    console.print(f"  export KUBECONFIG={KUBECONFIG}", highlight=False, soft_wrap=True)
    console.print(f"  .venv/bin/slimscale explain simworkload operator -n {NAMESPACE}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
