"""The operator predicts with what ships, unless its setting names the queueing model alone."""

from functools import partial
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from slimscale.act.metrics import OperatorMetrics
from slimscale.controllers.clock import SystemClock
from slimscale.controllers.wiring import make_stages
from slimscale.observe.observer import Observer
from slimscale.settings import OperatorSettings
from slimscale.threads.closed_network import NetworkParameters
from slimscale.threads.decide import decide
from slimscale.threads.operator_network import OperatorPredictor
from tests.support.fake_kube import FakeKube
from tests.support.observations import SyntheticWorkload, make_spec


def _predictor_named(setting: str) -> str:
    stages = make_stages(
        FakeKube(), SystemClock(), cast(Observer, None), OperatorMetrics(CollectorRegistry()), "pod",
        predictor=setting,
    )  # fmt: skip
    return str(cast(partial[Any], stages.decide).keywords["predictor"].name)


@pytest.mark.parametrize(
    ("setting", "name"), [("operator-network", "operator-network"), ("analytic", "analytic")]
)
def test_the_setting_picks_the_model(setting: str, name: str) -> None:
    assert OperatorSettings(predictor=setting).predictor == setting
    assert _predictor_named(setting).startswith(name)


def test_the_step_says_when_the_queueing_model_answers_in_the_networks_place() -> None:
    network = OperatorPredictor(None, problem="no weights are installed")
    plant = SyntheticWorkload(NetworkParameters(5e-3, 2e-3, 60e-6, 2.0), threads=4)
    for _ in range(3):
        plant.tick()
    decision = decide(
        observation=plant.observe(), spec=make_spec(), memo={}, now_seconds=plant.now_seconds,
        predictor=network,
    )  # fmt: skip
    (step,) = [s for s in decision.steps if s.stage == "Predict"]
    assert step.outcome == "Analytic"
    assert decision.model.predictor == "analytic"
    assert "no weights are installed" in step.reason
