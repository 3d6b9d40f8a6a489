"""All policies by name, and how each is made afresh for a run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from slimscale.bench.autothread import AutoThread, benchmark_spec
from slimscale.bench.baselines.analytic import PredictOnce
from slimscale.bench.baselines.bandit import SlidingWindowUCB
from slimscale.bench.baselines.boosted import BoostedTrees
from slimscale.bench.baselines.cpu_percentile import CpuPercentile
from slimscale.bench.baselines.formula import Goetz, Ratio
from slimscale.bench.baselines.hill_climbing import DotNetHillClimbing
from slimscale.bench.baselines.openmp_dynamic import OpenMPDynamic
from slimscale.bench.baselines.oracle import BestPerPhase, Given, best_static
from slimscale.bench.baselines.static import Fixed, FloorOfQuota, Unset
from slimscale.bench.baselines.thread_reinforcer import Restart, ThreadReinforcer
from slimscale.bench.curves import PhaseCurves
from slimscale.bench.policy import ThreadPolicy, cores_in_reach
from slimscale.simulate.workload import Host
from slimscale.threads.predictor import AnalyticPredictor

__all__ = [
    "ABLATIONS",
    "AUTOTHREAD",
    "ORACLES",
    "POLICIES",
    "STATICS",
    "TUNERS",
    "Setting",
    "build",
]


@dataclass(frozen=True, slots=True)
class Setting:
    """What a policy may be made from. Only oracles look at `curves`."""

    seed: int
    host: Host
    curves: PhaseCurves
    trained_static: int
    """Threads that were best on other scenarios of the same host."""
    trees: str = ""
    """The trained gradient-boosted trees, as XGBoost's JSON; empty: not trained."""


Builder = Callable[[Setting], ThreadPolicy]


def _auto(name: str, **spec: Any) -> Builder:
    return lambda _: AutoThread(name=name, spec=benchmark_spec(**spec))


def _efficient(setting: Setting) -> ThreadPolicy:
    """Threads and CPU together, within the CPU that the pod came with: the same machine for all."""
    cores = cores_in_reach(setting.host.cores, setting.host.quota_cores)
    name = "autothread-efficiency"
    spec = benchmark_spec(objective="Efficiency", limit_policy="Headroom", most_cores=cores)
    return AutoThread(name=name, spec=spec)


AUTOTHREAD: dict[str, Builder] = {
    "autothread": _auto("autothread"),
    "autothread-2s": _auto(
        "autothread-2s",
        interval_seconds=2,
        tuning={"windowSeconds": 6, "minDwellSeconds": 8},
    ),
    "autothread-efficiency": _efficient,
}
ABLATIONS: dict[str, Builder] = {
    "autothread-analytic": lambda _: AutoThread(
        "autothread-analytic", predictor=AnalyticPredictor()
    ),
    "autothread-no-quick-looks": _auto("autothread-no-quick-looks", quick_interval_seconds=0),
    "autothread-no-tier-1": _auto("autothread-no-tier-1", tuning={"online": False}),
    "autothread-no-tier-2": _auto("autothread-no-tier-2", tuning={"cpuAware": False}),
    "autothread-no-tier-3": _auto("autothread-no-tier-3", tuning={"search": False}),
    "autothread-no-tiers-2-3": _auto(
        "autothread-no-tiers-2-3", tuning={"cpuAware": False, "search": False}
    ),
}
STATICS: dict[str, Builder] = {
    "unset": lambda _: Unset(),
    "floor-of-quota": lambda _: FloorOfQuota(),
    "fixed-8": lambda _: Fixed("fixed-8", threads=8),
    "fixed-16": lambda _: Fixed("fixed-16", threads=16),
    "fixed-32": lambda _: Fixed("fixed-32", threads=32),
    "r": lambda _: Ratio("r"),
    "1+r": lambda _: Ratio("1+r", extra=1.0),
    "goetz": lambda _: Goetz("goetz"),
    "best-static-trained": lambda s: Given("best-static-trained", threads=s.trained_static),
}
TUNERS: dict[str, Builder] = {
    "analytic-once": lambda _: PredictOnce(),
    "xgboost-once": lambda s: BoostedTrees(trees=s.trees),
    "xgboost-every-window": lambda s: BoostedTrees(
        "xgboost-every-window", trees=s.trees, every_window=True
    ),
    "thread-reinforcer-once": lambda _: ThreadReinforcer(
        "thread-reinforcer-once", restart=Restart.NEVER
    ),
    "thread-reinforcer": lambda _: ThreadReinforcer(),
    "thread-reinforcer-best": lambda _: ThreadReinforcer(
        "thread-reinforcer-best", best_of_tried=True
    ),
    "dotnet-hill-climbing": lambda s: DotNetHillClimbing(s.seed),
    "openmp-dynamic": lambda _: OpenMPDynamic(),
    "sliding-window-ucb": lambda _: SlidingWindowUCB(),
    "vpa-percentile": lambda _: CpuPercentile(),
}
ORACLES: dict[str, Builder] = {
    "best-static-hindsight": lambda s: Given(
        "best-static-hindsight", threads=best_static(s.curves)
    ),
    "best-per-phase": lambda s: BestPerPhase(s.curves),
}
POLICIES: dict[str, Builder] = {**AUTOTHREAD, **STATICS, **TUNERS, **ORACLES, **ABLATIONS}


def build(name: str, setting: Setting) -> ThreadPolicy:
    """A fresh policy. Raises KeyError for a name that is not in `POLICIES`."""
    return POLICIES[name](setting)
