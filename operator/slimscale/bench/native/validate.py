"""Models against measured curves: errors of their throughputs, and what their choices cost."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from slimscale.bench.native.choices import (
    TOLERANCE,
    best_of_curve,
    fixed_threads,
    loss,
    noise_floor,
    operated,
)
from slimscale.bench.native.dataset import MeasuredCurve
from slimscale.bench.native.models import (
    NO_COSTS,
    MachineCosts,
    fit_handover,
    network_rates,
    simulated_rates,
    single_thread_costs,
)
from slimscale.threads.predictor import ThreadPredictor

__all__ = ["CurveResult", "Validation", "groups", "quantiles", "validate"]

FloatArray = NDArray[np.float64]

SEED = 4
NETWORK, NETWORK_HERE = "closed network", "closed network + machine"
SIMULATOR, SIMULATOR_HERE = "simulator", "simulator + machine"
NOISE = "noise alone"


@dataclass(frozen=True, slots=True)
class CurveResult:
    """One curve. `models` by name, each in tasks a second at `threads`."""

    name: str
    kind: str
    family: str
    split: str
    quota_cores: float | None
    threads: tuple[int, ...]
    measured: FloatArray
    spread: float
    """Median over the counts of (largest - smallest repeat)/median."""
    models: Mapping[str, FloatArray]
    losses: Mapping[str, tuple[float, ...]]
    """By way of choosing; a value for each thread count that the operator was started from."""
    fallbacks: int
    """Of the learned predictor: cases that it left to the analytic model."""

    def errors(self, model: str) -> FloatArray:
        """|model/measured - 1| at each count, shape (len(threads),)."""
        return np.asarray(np.abs(self.models[model] / self.measured - 1.0))


@dataclass(frozen=True, slots=True)
class Validation:
    costs: MachineCosts
    curves: tuple[CurveResult, ...]

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(self.curves[0].models)

    @property
    def ways(self) -> tuple[str, ...]:
        return tuple(self.curves[0].losses)

    def to_json(self) -> dict[str, object]:
        split = groups(self.curves)
        return {
            "machine_costs": asdict(self.costs),
            "relative_error": {
                model: {
                    name: quantiles(np.concatenate([c.errors(model) for c in members]))
                    for name, members in split.items()
                }
                for model in self.models
            },
            "loss": {
                way: {
                    name: quantiles([v for c in members for v in c.losses[way]])
                    for name, members in split.items()
                }
                for way in self.ways
            },
            "curves": [_curve_json(curve) for curve in self.curves],
        }


def _curve_json(curve: CurveResult) -> dict[str, object]:
    return {
        "name": curve.name,
        "family": curve.family,
        "split": curve.split,
        "quota_cores": curve.quota_cores,
        "threads": list(curve.threads),
        "measured": _rounded(curve.measured),
        "spread": round(curve.spread, 4),
        "models": {name: _rounded(rates) for name, rates in curve.models.items()},
        "losses": {way: [round(v, 4) for v in values] for way, values in curve.losses.items()},
    }


def _rounded(values: FloatArray) -> list[float]:
    return [float(f"{value:.5g}") for value in values]


def groups(curves: Sequence[CurveResult]) -> dict[str, list[CurveResult]]:
    """All, the two splits, then each kind of load."""
    found: dict[str, list[CurveResult]] = {"all": list(curves)}
    for curve in curves:
        found.setdefault(curve.split, []).append(curve)
    for curve in sorted(curves, key=lambda c: c.kind):
        found.setdefault(curve.kind, []).append(curve)
    return found


def quantiles(values: Sequence[float] | FloatArray) -> dict[str, float]:
    """Empty input gives an empty mapping."""
    if not len(values):
        return {}
    data = np.asarray(values, dtype=np.float64)
    median, p90, p95 = (float(q) for q in np.quantile(data, (0.5, 0.9, 0.95)))
    figures = {
        "median": median,
        "p90": p90,
        "p95": p95,
        "most": float(data.max()),
        "mean": float(data.mean()),
    }
    return {name: round(value, 5) for name, value in figures.items()} | {"values": len(data)}


def validate(
    curves: Sequence[MeasuredCurve],
    predictors: Mapping[str, ThreadPredictor],
    *,
    progress: Callable[[str], object] = str,
) -> Validation:
    """`predictors`: those of the operator, by the name that the report gives them.

    The machine's costs are taken from the families in `train` alone.
    """
    train = [m for m in curves if m.curve.split == "train"] or list(curves)
    progress("costs of the machine")
    costs = fit_handover(train, single_thread_costs(train), seed=SEED)
    results = []
    for measured in curves:
        progress(measured.curve.name)
        results.append(_judge(measured, costs, predictors))
    return Validation(costs, tuple(results))


def _judge(
    measured: MeasuredCurve, costs: MachineCosts, predictors: Mapping[str, ThreadPredictor]
) -> CurveResult:
    models = {
        NETWORK: network_rates(measured, NO_COSTS),
        NETWORK_HERE: network_rates(measured, costs),
        SIMULATOR: simulated_rates(measured, NO_COSTS, seed=SEED),
        SIMULATOR_HERE: simulated_rates(measured, costs, seed=SEED),
    }
    losses: dict[str, tuple[float, ...]] = {NOISE: (noise_floor(measured),)}
    fallbacks = 0
    for name, predictor in predictors.items():
        made = [
            found
            for count in measured.threads
            if (found := operated(measured, count, predictor)) is not None
        ]
        losses[f"operator, {name}"] = tuple(o.loss for o in made)
        fallbacks += sum(bool(o.note) for o in made)
    for name, rates in models.items():
        chosen = best_of_curve(measured.threads, rates, tolerance=TOLERANCE)
        losses[name] = (loss(measured, chosen),)
    for name, threads in fixed_threads(measured).items():
        losses[name] = (loss(measured, threads),)
    low, high = measured.repeats.min(axis=1), measured.repeats.max(axis=1)
    curve = measured.curve
    return CurveResult(
        name=curve.name,
        kind=curve.kind,
        family=curve.family,
        split=curve.split,
        quota_cores=curve.quota_cores,
        threads=measured.threads,
        measured=measured.rates,
        spread=float(np.median((high - low) / measured.rates)),
        models=models,
        losses=losses,
        fallbacks=fallbacks,
    )
