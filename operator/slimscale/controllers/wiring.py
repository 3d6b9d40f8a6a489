"""Which functions stand behind each stage: the one place that picks them."""

from functools import partial

from slimscale.act.apply import Applier
from slimscale.act.events import EventWriter
from slimscale.act.metrics import OperatorMetrics
from slimscale.act.outcome import fold_results
from slimscale.act.plan import plan
from slimscale.act.status_writer import StatusWriter
from slimscale.controllers.memo_keeper import MemoKeeper
from slimscale.controllers.reporting import Reporter, StatusKeeper
from slimscale.controllers.simworkload import Stages
from slimscale.domain.clock import Clock
from slimscale.kubeapi.ports import KubeClient
from slimscale.observe.observer import Observer
from slimscale.threads.decide import decide
from slimscale.threads.predictor import AnalyticPredictor, ThreadPredictor
from slimscale.weights.shipped import shipped_predictor

__all__ = ["make_stages"]


def make_stages(
    client: KubeClient,
    clock: Clock,
    observer: Observer,
    metrics: OperatorMetrics,
    reporter: str,
    *,
    predictor: str = "operator-network",
) -> Stages:
    """The real stages. reporter: the operator pod's name, shown in events."""
    model: ThreadPredictor = AnalyticPredictor() if predictor == "analytic" else shipped_predictor()
    events = EventWriter(client, reporter=reporter)
    return Stages(
        observer=observer,
        decide=partial(decide, predictor=model),
        plan=plan,
        applier=Applier(client, on_write=metrics.wrote),
        fold=fold_results,
        memo=MemoKeeper(client),
        status=StatusKeeper(StatusWriter(client), events, clock),
        reporter=Reporter(metrics, events, clock),
    )
