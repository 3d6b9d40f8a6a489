"""The learned policy against every heuristic: chosen on validation traces, judged on test traces.

For each regime the heuristic that is best over the validation traces of loads up to .85 is the one to
beat there; its shape is the issue's. Differences are paired by trace.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any

import numpy as np
from rich.table import Table

from slimscale.routing.learned.weights import PolicyWeights
from slimscale.simulate.routing.scene import REGIMES, Scene, six
from slimscale.training.router.policy_value import value_of_policy
from slimscale.training.router.rules import all_rules, value_of_rule
from slimscale.training.router.scenes import case_of
from slimscale.training.router.train import (
    JUDGED_LOADS,
    JUDGED_REGIMES,
    TEST_SEED,
    VALIDATION_SEED,
)

__all__ = ["CompareSettings", "compare", "interval", "table_of"]

UP_TO = 0.85
"""The highest load at which a gain is asked for."""


@dataclass(frozen=True, slots=True)
class CompareSettings:
    validation_traces: int = 4
    traces: int = 10
    seconds: float = 10.0
    processes: int = 2
    regimes: tuple[str, ...] = JUDGED_REGIMES
    loads: tuple[float, ...] = JUDGED_LOADS

    def quick(self) -> "CompareSettings":
        return replace(
            self, validation_traces=1, traces=2, seconds=2.0, regimes=("base", "fault"),
            loads=(0.3, 0.7),
        )  # fmt: skip


Key = tuple[str, float, int]


def _rules_on(job: tuple[Key, float]) -> tuple[Key, dict[str, float]]:
    (regime, load, seed), seconds = job
    case = case_of(Scene(six(), regime=REGIMES[regime]), load=load, seconds=seconds, seed=seed)
    return (regime, load, seed), {rule.name: value_of_rule(rule, case) for rule in all_rules()}


def _both_on(job: tuple[Key, float, str, str, PolicyWeights]) -> tuple[Key, dict[str, float]]:
    (regime, load, seed), seconds, of_regime, over_all, policy = job
    case = case_of(Scene(six(), regime=REGIMES[regime]), load=load, seconds=seconds, seed=seed)
    rules = {rule.name: rule for rule in all_rules()}
    return (regime, load, seed), {
        "learned": value_of_policy(policy, case),
        "of_regime": value_of_rule(rules[of_regime], case),
        "over_all": value_of_rule(rules[over_all], case),
    }


def compare(
    policy: PolicyWeights, settings: CompareSettings, told: Callable[[int, int], None]
) -> dict[str, Any]:
    """Validation, choice, test; plain figures for JSON."""
    cells = [(regime, load) for regime in settings.regimes for load in settings.loads]
    chosen_on = [
        ((regime, load, VALIDATION_SEED + trace), settings.seconds)
        for regime, load in cells
        for trace in range(settings.validation_traces)
    ]
    total = len(chosen_on) + len(cells) * settings.traces
    validation: dict[Key, dict[str, float]] = {}
    tested: dict[Key, dict[str, float]] = {}
    with get_context("spawn").Pool(settings.processes) as pool:
        for key, values in pool.imap_unordered(_rules_on, chosen_on):
            validation[key] = values
            told(len(validation), total)
        best = {regime: _best(validation, regime) for regime in settings.regimes}
        single = _best(validation, None)
        jobs = [
            ((regime, load, TEST_SEED + trace), settings.seconds, best[regime], single, policy)
            for regime, load in cells
            for trace in range(settings.traces)
        ]
        for key, values in pool.imap_unordered(_both_on, jobs):
            tested[key] = values
            told(len(validation) + len(tested), total)
    return {
        "policy": policy.version,
        "validation_traces": settings.validation_traces,
        "test_traces": settings.traces,
        "seconds": settings.seconds,
        "best_single": single,
        "regimes": {
            regime: _regime(tested, regime, best[regime], settings.loads)
            for regime in settings.regimes
        },
    }


def _best(validation: dict[Key, dict[str, float]], regime: str | None) -> str:
    """The rule of most mean J over the loads up to UP_TO; of one regime, or of all."""
    counted = [
        values
        for (name, load, _), values in validation.items()
        if regime in {None, name} and load <= UP_TO
    ]
    return max(counted[0], key=lambda rule: float(np.mean([values[rule] for values in counted])))


def _regime(
    tested: dict[Key, dict[str, float]], regime: str, best: str, loads: Sequence[float]
) -> dict[str, Any]:
    def of(load: float, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        keys = sorted(key for key in tested if key[0] == regime and key[1] == load)
        return np.array([tested[key][name] for key in keys])

    rows = []
    for load in loads:
        gain, over = of(load, "learned") - of(load, "of_regime"), of(load, "learned")
        rows.append(
            {
                "load": load,
                "learned": float(over.mean()),
                "best_of_regime": float(of(load, "of_regime").mean()),
                "gain": interval(gain),
                "gain_over_best_single": interval(over - of(load, "over_all")),
            }
        )
    upto = [load for load in loads if load <= UP_TO]
    together = np.mean([of(load, "learned") - of(load, "of_regime") for load in upto], axis=0)
    return {"best": best, "loads": rows, "gain": interval(together)}


def interval(differences: np.ndarray[Any, np.dtype[np.float64]]) -> list[float]:
    """[mean, low, high]: 95 % by Student's t over traces."""
    from scipy.stats import t  # a second to import

    count = len(differences)
    mean = float(differences.mean())
    if count < 2:
        return [mean, mean, mean]
    half = float(t.ppf(0.975, count - 1) * differences.std(ddof=1) / np.sqrt(count))
    return [mean, mean - half, mean + half]


def table_of(found: dict[str, Any]) -> Table:
    """J by regime and load: learned, best heuristic of the regime, difference."""
    table = Table(title=f"{found['policy']}: J on {found['test_traces']} test traces a cell")
    for name in ("regime", "best heuristic", "load", "learned", "heuristic", "gain", "95 %"):
        table.add_column(name)
    for regime, one in found["regimes"].items():
        for row in one["loads"]:
            mean, low, high = row["gain"]
            table.add_row(
                regime, one["best"], f"{row['load']:g}", f"{row['learned']:.3f}",
                f"{row['best_of_regime']:.3f}", f"{mean:+.3f}", f"{low:+.3f} to {high:+.3f}",
            )  # fmt: skip
        mean, low, high = one["gain"]
        table.add_row(
            regime, one["best"], f"to {UP_TO:g}", "", "", f"{mean:+.3f}",
            f"{low:+.3f} to {high:+.3f}", end_section=True,
        )  # fmt: skip
    return table
