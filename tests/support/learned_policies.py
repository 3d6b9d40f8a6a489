"""A learned policy that is none: it does what its file says, and the file can be made in a line."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from slimscale.api.serving_config import ObjectiveWeights
from slimscale.routing.learned import layout
from slimscale.routing.learned.observation import Observation
from slimscale.routing.policy import Outcome, PodView, RequestView, Route, Width
from slimscale.routing.shielded import DecisionTrace, Slowdowns
from slimscale.serving.router.candidate import CandidateKeeper
from slimscale.serving.router.live import LoadedPolicy
from slimscale.serving.router.policy_file import PolicyFile

__all__ = ["Obedient", "fake_candidates", "read_fake", "write_policy"]


@dataclass(slots=True)
class Obedient:
    """Sends everything to one pod; a pod called `raise` makes it fail."""

    pod: str
    width: Width
    objective: ObjectiveWeights
    hold_seconds: float = 0.0
    name: str = "PPO"
    arrivals: list[float] = field(default_factory=list)
    ends: list[bool] = field(default_factory=list)
    seen: tuple[str, ...] = ()
    widths: Sequence[Width] = ()
    slowdowns: Slowdowns = dict

    def choose(
        self, request: RequestView, pods: Sequence[PodView], widths: Sequence[Width], rng: Random
    ) -> Route | None:
        if self.pod == "raise" and pods[0].name == "a":  # not while it is tried out
            raise FloatingPointError
        self.seen, self.widths = tuple(pod.name for pod in pods), widths
        return Route(self.pod, self.width, 8, 1e-6, "", hold_seconds=self.hold_seconds)

    def learn(self, outcome: Outcome) -> None:
        self.ends.append(outcome.succeeded)

    def arrived(self, rows: int, *, now: float) -> None:
        self.arrivals.append(now)

    def follow(self, slowdowns: Slowdowns) -> None:
        self.slowdowns = slowdowns

    def trace(self) -> DecisionTrace | None:
        """Always the first pod, the first width, a cap of 8 and no hold."""
        pods, widths = len(self.seen), len(self.widths)
        observation = Observation(
            np.full((pods, widths, layout.CELLS), 0.5),
            np.zeros((pods, layout.PODS)),
            np.zeros((widths, layout.WIDTHS)),
            np.zeros(layout.REQUEST),
            np.zeros(layout.SERVICE),
            np.ones((pods, widths), dtype=np.bool_),
        )
        return DecisionTrace(observation, self.seen, (0, 0, 3, 0), -0.25)


def read_fake(data: bytes, card: Mapping[str, Any]) -> LoadedPolicy:
    """Card: {"version": ..., "pod": ..., "model": index}."""
    if data[:4] != b"fine":
        raise ValueError("the weights are no numbers; train again")

    def make(widths: Sequence[Width], _rows: int, objective: ObjectiveWeights) -> Obedient:
        hold = float(card.get("hold", 0.0))
        return Obedient(card["pod"], widths[card.get("width", 0)], objective, hold)

    return LoadedPolicy(make, str(card["version"]), "")


def fake_candidates(folder: Path) -> CandidateKeeper:
    return CandidateKeeper(PolicyFile(read_fake), folder / "policy", shipped=None)


def write_policy(folder: Path, *, data: bytes = b"fine", **card: Any) -> None:
    """Both files beside router.json, swapped as a ConfigMap's volume swaps them."""
    content = hashlib.sha256(data + repr(card).encode()).hexdigest()[:8]
    real = folder / f"..{content}"
    real.mkdir(exist_ok=True)
    (real / "policy.safetensors").write_bytes(data)
    document = {"sha256": hashlib.sha256(data).hexdigest(), "version": "1"} | card
    (real / "policy.json").write_text(json.dumps(document), encoding="utf-8")
    link = folder / "..new"
    link.symlink_to(real, target_is_directory=True)
    link.rename(folder / "policy")
