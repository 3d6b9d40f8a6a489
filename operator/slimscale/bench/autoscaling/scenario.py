"""What the autoscalers are tried on: one service, two recorded traces, everything else the same."""

import csv
from dataclasses import dataclass
from pathlib import Path
from random import Random

from slimscale.domain.scaling import PoolSpec, ScalingSpec
from slimscale.exceptions import SlimError
from slimscale.routing.policy import Width
from slimscale.scaling.sizing import BatchServer, pod_capacity
from slimscale.simulate.serving.arrivals import Arrivals, denser
from slimscale.simulate.serving.service import SimPool, SimService

__all__ = [
    "SLO_SECONDS",
    "STARTS_WITHIN_SECONDS",
    "TRACES",
    "TUNED_UNTIL_SECONDS",
    "WIDEST",
    "WIDTHS",
    "Scenario",
    "Trace",
    "pod_rows",
    "read_trace",
]

SLO_SECONDS = 1.0
DEADLINE_SECONDS = 4.0
PERCENTILE = 0.95
MOST_REPLICAS = 30
JITTER_SECONDS = 1.0
TUNED_UNTIL_SECONDS = 1700.0
"""Parameters of scaling were chosen on what comes before, half of a trace."""
STARTS_WITHIN_SECONDS = 300.0
"""Each seed begins at another second of the first ones: no run hangs on one beginning."""

WIDEST = Width(1.0, "digits-w100", 0.92, 1.0)
WIDTHS = (Width(0.25, "digits-w025", 0.89, 0.07), Width(0.5, "digits-w050", 0.91, 0.27), WIDEST)
POOL = SimPool(
    name="cpu",
    base_seconds=0.04,
    row_seconds=0.1,
    min_replicas=1,
    max_replicas=MOST_REPLICAS,
    start_seconds=10.0,
)


@dataclass(frozen=True, slots=True)
class Trace:
    name: str
    file: str
    copies: int
    """Each recorded arrival stands for so many requests: a pod takes more than the recorded rate."""
    shape: str


TRACES = (
    Trace("code", "azure-llm-2023-code.csv", 2, "on and off: bursts out of silence"),
    Trace("conv", "azure-llm-2023-conv.csv", 2, "near Poisson on a slow hump"),
)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A trace or its second half, and whether the router may choose narrower widths."""

    trace: Trace
    slimming: bool
    shortened_seconds: float = 0.0
    """Only the first part, for a quick look; 0: all of it."""
    whole: bool = True
    """False: only what nothing was tuned on."""

    @property
    def name(self) -> str:
        part = "" if self.whole else ", second half"
        return f"{self.trace.name}{part}{', all widths' if self.slimming else ''}"

    def service(self) -> SimService:
        return SimService(
            pools=(POOL,),
            widths=WIDTHS if self.slimming else (WIDEST,),
            slo_seconds=SLO_SECONDS,
            deadline_seconds=DEADLINE_SECONDS,
        )

    def arrivals(self, folder: Path, seed: int) -> Arrivals:
        """Of a seed: where the trace begins, and how the copies are spread."""
        begins = 0.0 if self.whole else TUNED_UNTIL_SECONDS
        if not self.shortened_seconds:
            # S311: a benchmark is to be repeatable.
            begins += Random(f"begins {seed}").uniform(0.0, STARTS_WITHIN_SECONDS)  # noqa: S311
        times = [at - begins for at in read_trace(folder / self.trace.file) if at >= begins]
        if self.shortened_seconds:
            times = [at for at in times if at <= self.shortened_seconds]
        return denser(
            self.name,
            times,
            copies=self.trace.copies,
            jitter_seconds=JITTER_SECONDS,
            rng=Random(seed),  # noqa: S311 - a benchmark is to be repeatable
        )

    def spec(self) -> ScalingSpec:
        """Ours, with the API's defaults."""
        return ScalingSpec(
            pools=(PoolSpec(POOL.name, POOL.min_replicas, POOL.max_replicas),),
            target_model=WIDEST.model,
            slo_seconds=SLO_SECONDS,
            percentile=PERCENTILE,
        )


def pod_rows() -> float:
    """Rows a second that a pod takes within the SLO, at the widest."""
    server = BatchServer(POOL.base_seconds, POOL.row_seconds, 32)
    return pod_capacity(server, slo_seconds=SLO_SECONDS, percentile=PERCENTILE)


def read_trace(path: Path) -> list[float]:
    """Seconds of each arrival. Raises SlimError where the file is not there or is no trace."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [int(row["t_ms"]) / 1000.0 for row in csv.DictReader(file)]
    except OSError as error:
        raise SlimError(
            f"{path}: {error.strerror}; --traces names the folder data/traces"
        ) from error
    except (KeyError, ValueError, TypeError) as error:
        raise SlimError(f"{path}: no column t_ms of whole numbers; is it a trace?") from error
