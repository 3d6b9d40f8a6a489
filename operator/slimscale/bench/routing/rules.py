"""The policies of the benchmark: every rule with its settings, and learned policies from their files."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from slimscale.bench.routing.stage import Stage
from slimscale.bench.suite import code_digest
from slimscale.exceptions import SlimError
from slimscale.routing.learned.observation import Observation
from slimscale.routing.learned.prices import PriceTable, SloClass
from slimscale.routing.learned.weights import PolicyWeights
from slimscale.simulate.routing.build import new_plane
from slimscale.simulate.routing.heuristics import SETTINGS, Kind, Setting, WidthRule, run_rule
from slimscale.simulate.routing.learned_policy import Plans, plans_of, run_gate, run_policy
from slimscale.simulate.routing.mixture import run_mixture
from slimscale.simulate.routing.state import FloatArray, Plane
from slimscale.simulate.routing.view import fill_observation

__all__ = ["LEARNED", "Learned", "Player", "Rule", "learned_players", "rules"]

LEARNED = "learned"
LEARNED_SOURCES = ("simulate/routing/learned_policy.py", "routing/learned")


class Player(Protocol):
    """Routes every request of a plane."""

    @property
    def name(self) -> str: ...

    @property
    def family(self) -> str:
        """What is compared as one: a rule with all its settings."""
        ...

    @property
    def key(self) -> str:
        """The same for the same policy only."""
        ...

    def play(self, plane: Plane, stage: Stage) -> None: ...


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    family: str
    kind: int
    rule: int = WidthRule.ANY
    cold_aware: bool = True
    slack_share: float = 0.8
    price: float = 0.0
    hold_share: float = 0.0
    cap: int = 32
    inflation: float = 0.0
    """Above 0: within the plan for so many times the true mean load."""
    thrifty: bool = False
    """The plan of least energy instead of most J."""
    reference: bool = False
    """As the same rule in `slimscale.simulate.serving`."""

    @property
    def key(self) -> str:
        return repr(self)

    def row(self) -> FloatArray:
        """(SETTINGS,) as compiled code takes it."""
        row = np.zeros(SETTINGS)
        row[Setting.RULE], row[Setting.COLD_AWARE] = self.rule, self.cold_aware
        row[Setting.SLACK_SHARE], row[Setting.PRICE] = self.slack_share, self.price
        row[Setting.HOLD_SHARE], row[Setting.CAP] = self.hold_share, self.cap
        row[Setting.REFERENCE] = self.reference
        return row

    def play(self, plane: Plane, stage: Stage) -> None:
        scene = stage.scene
        support = (
            stage.support(self.inflation, thrifty=self.thrifty)
            if self.inflation > 0.0
            else np.ones(
                (len(scene.classes), len(scene.devices), len(scene.widths)), dtype=np.bool_
            )
        )
        run_rule(plane, self.kind, self.row(), support)


_RULES = (
    ("slimmest", WidthRule.SLIMMEST, (0.8,)),
    ("widest", WidthRule.WIDEST, (0.8,)),
    ("widest within slack", WidthRule.WITHIN_SLACK, (0.8, 0.5, 0.3, 0.2, 0.1)),
)
PRICES = (0.0, 10.0, 30.0, 60.0, 100.0, 200.0, 400.0, 1000.0)
INFLATIONS = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0)
HOLDS = ((0.3, 4), (0.3, 8), (0.5, 16), (0.6, 32))
"""(share of the SLO below which a request may wait, rows it may wait for)."""


def rules() -> Iterator["Rule | Mixture"]:
    """All of the issue's list. Names say the settings, families the rule."""
    for learning_rate in (0.02, 0.1):
        yield Mixture(f"mixture {learning_rate:g}", learning_rate)
    yield Rule("random", "random", Kind.RANDOM)
    yield Rule("random, slimmest", "random, slimmest", Kind.RANDOM, WidthRule.SLIMMEST)
    for kind, label in (
        (Kind.ROUND_ROBIN, "round robin"),
        (Kind.JSQ, "JSQ"),
        (Kind.POWER_OF_TWO, "P2C"),
    ):
        for width, rule, shares in _RULES:
            family = f"{label}, {width}"
            yield Rule(family, family, kind, rule, slack_share=shares[0])
    for cold_aware, label in ((False, "SED"), (True, "cold-aware SED")):
        for width, rule, shares in _RULES:
            for share in shares:
                family = f"{label}, {width}"
                name = f"{family} {share:g}" if len(shares) > 1 else family
                yield Rule(name, family, Kind.SED, rule, cold_aware, share)
    for share, cap in HOLDS:
        yield Rule(
            f"SED, slimmest, hold {share:g}/{cap}", "SED, slimmest, hold", Kind.SED,
            WidthRule.SLIMMEST, hold_share=share, cap=cap,
        )  # fmt: skip
    yield from _planned()


def _planned() -> Iterator[Rule]:
    """Rules with prices and plans."""
    for slack in (0.5, 0.8):
        for price in PRICES:
            yield Rule(
                f"priced greedy {price:g}, slack {slack:g}", "priced greedy", Kind.PRICED,
                slack_share=slack, price=price,
            )  # fmt: skip
    for inflation in INFLATIONS:
        yield Rule(f"LPsupport-SED x{inflation:g}", "LPsupport-SED", Kind.SED, inflation=inflation)
    for inflation in INFLATIONS[:4]:
        for share, cap in HOLDS:
            yield Rule(
                f"LPsupport-SED x{inflation:g}, hold {share:g}/{cap}", "LPsupport-SED, hold",
                Kind.SED, hold_share=share, cap=cap, inflation=inflation,
            )  # fmt: skip
    for inflation in (1.0, 1.5):
        for cap in (8, 16, 32):
            yield Rule(
                f"thrifty plan x{inflation:g}, hold/{cap}", "thrifty plan, hold", Kind.SED,
                hold_share=1.0, cap=cap, inflation=inflation, thrifty=True,
            )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mixture:
    """Learns online, from each trace's beginning, how much to trust each of four rules."""

    name: str
    learning_rate: float
    family: str = "mixture"

    @property
    def key(self) -> str:
        return repr(self)

    def play(self, plane: Plane, stage: Stage) -> None:  # noqa: ARG002 - knows no plan
        bases = (
            Rule("", "", Kind.SED, WidthRule.WITHIN_SLACK),
            Rule("", "", Kind.SED, WidthRule.WITHIN_SLACK, slack_share=0.2),
            Rule("", "", Kind.SED, WidthRule.SLIMMEST),
            Rule("", "", Kind.PRICED, slack_share=0.5, price=60.0),
        )
        kinds = np.array([base.kind for base in bases], dtype=np.int64)
        run_mixture(plane, kinds, np.array([base.row() for base in bases]), self.learning_rate)


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """A policy from its file, most probable action each time, as it is deployed."""

    name: str
    weights: PolicyWeights
    family: str = LEARNED

    @property
    def key(self) -> str:
        digest = hashlib.sha256(code_digest(LEARNED_SOURCES).encode())
        for name, tensor in sorted(self.weights.tensors().items()):
            digest.update(name.encode() + tensor.tobytes())
        return digest.hexdigest()

    def play(self, plane: Plane, stage: Stage) -> None:
        plans, weights = _plans(stage), self.weights
        if weights.residual is None:
            run_gate(plane, plans, weights.start, weights.slopes)
        else:
            r = weights.residual
            run_policy(plane, plans, weights.start, weights.slopes, r.hidden, r.hidden_bias, r.out)


_PLANS: dict[object, Plans] = {}


def _plans(stage: Stage) -> Plans:
    """What the policy would work out itself of a fleet that is well and warm."""
    key = (stage.scene.devices, stage.scene.widths, stage.scene.classes, stage.scene.objective,
           stage.scene.regime.energy_times)  # fmt: skip
    if key not in _PLANS:
        scene = stage.scene
        plane = new_plane(scene, np.zeros(1), np.zeros(1, dtype=np.int64), seed=0)
        plane.state["delay"], plane.state["told_load"] = 0.0, 0.0
        fill_observation(plane.state[0], plane.requests, 0, plane.look)
        table = PriceTable([SloClass(one.slo_seconds, one.share) for one in scene.classes])
        table.refresh(Observation(*plane.look))
        _PLANS[key] = plans_of(table)
    return _PLANS[key]


def learned_players(files: Sequence[Path]) -> list[Learned]:
    """One for each safetensors file with its card (.json) beside it, named after it.

    Raises SlimError, which names the file and the remedy.
    """
    found = []
    for file in files:
        try:
            card = json.loads(file.with_suffix(".json").read_text(encoding="utf-8"))
            found.append(Learned(file.stem, PolicyWeights.read(file.read_bytes(), card)))
        except OSError as error:
            raise SlimError(
                f"no policy {file}: {error.strerror}; name a .safetensors file with its .json beside it"
            ) from error
        except ValueError as error:
            raise SlimError(f"policy {file}: {error}") from error
    return found
