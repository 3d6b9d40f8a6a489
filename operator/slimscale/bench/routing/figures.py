"""What is measured of one run."""

from dataclasses import asdict, dataclass, fields

import numpy as np

from slimscale.bench.routing.stage import Stage
from slimscale.simulate.routing.state import Plane

__all__ = ["WARM_UP_SECONDS", "Figures", "figures_of", "mean_of"]

WARM_UP_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Figures:
    """Of the requests that arrived after the warm-up; energies of the whole run, by request.

    Latencies count a request that was dropped at the time at which it was given up at the latest.
    """

    value: float
    """Mean J."""
    mean_seconds: float
    p50_seconds: float
    p95_seconds: float
    p99_seconds: float
    missed: float
    """Share later than the SLO, or without an answer."""
    dropped: float
    accuracy: float
    """Mean of the widths that answered; the slimmest's where none did."""
    dynamic_joules: float
    total_joules: float
    """With what idle devices draw."""
    in_system: float
    """Mean number."""
    batch_rows: float

    def to_json(self) -> dict[str, float]:
        return asdict(self)


def figures_of(plane: Plane, stage: Stage) -> Figures:
    s, q, scene = plane.state[0], plane.requests, stage.scene
    counted = q.of("arrival") >= WARM_UP_SECONDS
    slos = np.array([one.slo_seconds for one in scene.classes])
    slo = slos[q.of("klass")[counted]]
    latency = q.of("latency")[counted]
    answered = np.isfinite(latency)
    shown = np.where(answered, latency, scene.drop_ratio * slo)
    accuracies = np.array([width.accuracy for width in scene.widths])
    width = q.of("width")[counted][answered]
    p50, p95, p99 = np.quantile(shown, (0.5, 0.95, 0.99))
    requests, seconds = len(q.each), float(s["now"])
    dynamic = float(s["energy_joules"].sum())
    return Figures(
        value=float(q.of("value")[counted].mean()),
        mean_seconds=float(shown.mean()),
        p50_seconds=float(p50),
        p95_seconds=float(p95),
        p99_seconds=float(p99),
        missed=float((shown > slo).mean()),
        dropped=float(1.0 - answered.mean()),
        accuracy=float(accuracies[width].mean()) if len(width) else float(accuracies.min()),
        dynamic_joules=dynamic / requests,
        total_joules=(dynamic + float(s["idle_watts"].sum()) * seconds) / requests,
        in_system=float(s["area"]) / seconds,
        batch_rows=float(s["answered"]) / max(1, int(s["batches"])),
    )


def mean_of(several: list[Figures]) -> Figures:
    """Figure by figure."""
    return Figures(
        **{
            field.name: float(np.mean([getattr(one, field.name) for one in several]))
            for field in fields(Figures)
        }
    )
