"""`python -m e2e.demo.predictors`: operator network and queueing model choose for the same simulation.

Two operators, each with a namespace of its own and one predictor, look after one pod each. A pod
works only while it is its turn, so that neither disturbs the other. In each phase both choose, and then
their choices are measured in turns that alternate. Exit status 1 when the network is the worse one.

Example: python -m e2e.demo.predictors --rounds 4 --out docs/results
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from e2e import install
from e2e.demo.__main__ import machine
from e2e.demo.arms import SimulationPod, simulation_manifest, status_of
from e2e.demo.verdict import NOISE
from e2e.eventually import eventually
from e2e.helm import Helm
from e2e.install import webhook_answers
from e2e.kubectl import Kubectl
from e2e.paths import ROOT, STATE

PREDICTORS = ("analytic", "operator-network")
PHASES = ("light", "heavy", "blocking")
GUESSED_THREADS = 16
LEAST_WATCHED_SECONDS = 60.0
MOST_WATCHED_SECONDS = 150.0
SETTLED_SECONDS = 40.0
"""Two looks and what a change takes to be acknowledged fit in between."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What one predictor led to in one phase; a rate a round, steps a second."""

    threads: int | None
    cpu_limit_cores: float | None
    seconds_to_settle: float
    steps: int
    rates: tuple[float, ...] = ()


class Side:
    """One operator, its namespace and its pod."""

    def __init__(self, predictor: str, built: dict[str, str]) -> None:
        self.predictor = predictor
        self.namespace = f"slimscale-{predictor}"
        self._kubectl = Kubectl(namespace=self.namespace)
        self._helm = Helm(f"{self.namespace}-op")
        for namespace in (self.namespace, f"{self.namespace}-op"):
            Kubectl().run("delete", "namespace", namespace, "--ignore-not-found")
        Kubectl().run("create", "namespace", self.namespace)
        self._helm.install(
            "slimscale",
            {
                "image": install.image_values(built["operator"]),
                "crds": {"enabled": False},
                "watchNamespaces": [self.namespace],
                "operator": {"predictor": predictor},
            },
        )
        # A pod made before that is left as it is, and nothing can reach its threads.
        eventually(lambda: webhook_answers(self._kubectl), 60, what="the webhook answers")
        self._kubectl.apply(
            simulation_manifest(
                "sim", threads=GUESSED_THREADS, image=built["simserver"], phase="paused"
            )
        )
        self._kubectl.rollout("deployment/sim")
        self.pod = SimulationPod(self._kubectl, "sim")
        workload = yaml.safe_load((ROOT / "examples/simworkload.yaml").read_text())
        workload["metadata"]["name"] = workload["spec"]["targetRef"]["name"] = "sim"
        self._kubectl.apply(workload)

    def follow(self, phase: str) -> Choice:
        """Run a phase until the acknowledged target stays; then pause."""
        self.pod.switch(phase)
        start = time.monotonic()
        seen: list[tuple[int | None, str | None]] = []
        since = start
        while (now := time.monotonic()) - start < MOST_WATCHED_SECONDS:
            target = self._target()
            if target is not None and (not seen or target != seen[-1]):
                seen.append(target)
                since = now
            stays = bool(seen) and now - since >= SETTLED_SECONDS
            if stays and now - start >= LEAST_WATCHED_SECONDS:
                break
            time.sleep(1.0)
        figures = self.pod.figures()
        self.pod.switch("paused")
        return Choice(figures.threads, figures.cpu_limit_cores, since - start, len(seen))

    def restarts(self) -> int:
        return self.pod.restarts()

    def _target(self) -> tuple[int | None, str | None] | None:
        status = status_of(self._kubectl, "sim")
        target, pods = status.get("target") or {}, status.get("pods") or []
        if not target or any(pod.get("threads") != target["threads"] for pod in pods):
            return None
        return target["threads"], target.get("cpuLimit")

    def remove(self) -> None:
        self._helm.uninstall("slimscale")
        for namespace in (self.namespace, f"{self.namespace}-op"):
            Kubectl().run("delete", "namespace", namespace, "--ignore-not-found", "--wait=false")


def compare(console: Console, *, rounds: int, turn_seconds: float) -> dict[str, dict[str, Choice]]:
    """phase -> predictor -> choice with its measured rates."""
    built = install.prepare(("operator", "simserver"))
    # The release that owns the CRDs; its operator would choose for both pods as well.
    install.install(built["operator"]).run("scale", "deployment/slimscale-operator", "--replicas=0")
    sides = [Side(predictor, built) for predictor in PREDICTORS]
    try:
        results: dict[str, dict[str, Choice]] = {}
        for number, phase in enumerate(PHASES):
            ordered = sides if number % 2 == 0 else sides[::-1]
            chosen = {}
            for side in ordered:
                console.print(f"{phase}: {side.predictor} chooses")
                chosen[side.predictor] = side.follow(phase)
            rates: dict[str, list[float]] = {side.predictor: [] for side in sides}
            for turn in range(rounds):
                console.print(f"{phase}: measuring, round {turn + 1} of {rounds}")
                for side in sides if turn % 2 == 0 else sides[::-1]:
                    rates[side.predictor].append(side.pod.turn(phase, turn_seconds))
            results[phase] = {
                name: Choice(
                    choice.threads,
                    choice.cpu_limit_cores,
                    choice.seconds_to_settle,
                    choice.steps,
                    tuple(rates[name]),
                )
                for name, choice in chosen.items()
            }
        for side in sides:
            if side.restarts():
                raise AssertionError(f"{side.predictor}: {side.restarts()} restarts, 0 promised")
            if not any(choices[side.predictor].steps for choices in results.values()):
                raise AssertionError(f"{side.predictor}: no choice reached the pod in any phase")
        return results
    finally:
        for side in sides:
            side.remove()


def ratio(choices: dict[str, Choice]) -> float:
    """Network over model, median of the rounds' ratios."""
    model, network = (choices[name].rates for name in PREDICTORS)
    return statistics.median(b / a for a, b in zip(model, network, strict=True))


def rows(results: dict[str, dict[str, Choice]]) -> list[list[str]]:
    """One row a phase, as text."""
    found = []
    for phase, choices in results.items():
        row = [phase]
        for name in PREDICTORS:
            choice = choices[name]
            row += [
                f"{choice.threads} on {choice.cpu_limit_cores:g}",
                f"{statistics.median(choice.rates):.0f}",
                f"{choice.seconds_to_settle:.0f} s, {choice.steps}",
            ]
        found.append([*row, f"{ratio(choices):.2f}"])
    return found


HEADER = (
    *("phase", "model: threads on CPUs", "steps/s", "settled, targets"),
    *("network: threads on CPUs", "steps/s", "settled, targets", "network / model"),
)


def markdown(lines: Sequence[Sequence[str]], *, how: str) -> str:
    """The page of docs/results."""
    table = ["| " + " | ".join(HEADER) + " |", "|" + "---|" * len(HEADER)]
    table += ["| " + " | ".join(line) + " |" for line in lines]
    return (
        "# Operator network and queueing model in the cluster\n\n"
        f"Written by `python -m e2e.demo.predictors`. {machine()} {how}. Two operators, one predictor"
        " each, choose for one pod each of the same simulation; turns alternate; medians. The last column is the median of"
        " the rounds' ratios. *settled, targets*: seconds until the last change of the target, and how many targets there were.\n\n"
        + "\n".join(table)
        + "\n"
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m e2e.demo.predictors", description=__doc__)
    parser.add_argument("--rounds", type=int, default=6, help="interleaved rounds a phase")
    parser.add_argument("--turn-seconds", type=float, default=4.0, help="length of one turn")
    parser.add_argument("--out", type=Path, default=STATE / "demo", help="folder of the results")
    given = parser.parse_args(arguments)
    console = Console()
    results = compare(console, rounds=given.rounds, turn_seconds=given.turn_seconds)
    lines = rows(results)
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in HEADER:
        table.add_column(name)
    for line in lines:
        table.add_row(*line)
    console.print(table)
    given.out.mkdir(parents=True, exist_ok=True)
    how = f"{given.rounds} rounds a phase, {given.turn_seconds:g} s a turn"
    (given.out / "demo-predictors.md").write_text(markdown(lines, how=how))
    record = {
        phase: {name: asdict(choice) for name, choice in choices.items()}
        for phase, choices in results.items()
    }
    (given.out / "demo-predictors.json").write_text(json.dumps(record, indent=1) + "\n")
    worse = [phase for phase, choices in results.items() if ratio(choices) < 1 - NOISE]
    for phase in worse:
        console.print(f"[red]not as promised:[/] the network is the worse one in phase {phase}")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
