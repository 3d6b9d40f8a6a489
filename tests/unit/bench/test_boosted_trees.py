"""XGBoost on the operator's features."""

import math

import numpy as np
import pytest

from slimscale.bench.baselines.boosted import (
    BoostedTrees,
    LabelledLoad,
    draw_labelled_load,
    features_of,
    train_trees,
)
from slimscale.bench.policy import view_between
from slimscale.exceptions import SlimError
from slimscale.simulate.measure import measure_curve
from slimscale.simulate.plant import Plant
from slimscale.simulate.workload import Host
from slimscale.threads.features import BRANCH_FEATURES
from tests.support.bench_cases import make_view, make_workload

pytest.importorskip("xgboost")


def test_a_training_load_has_the_operators_features_and_its_simulated_best_as_label() -> None:
    drawn = next(d for i in range(5) if (d := draw_labelled_load(1, i)) is not None)
    assert all(len(row) == len(BRANCH_FEATURES) for row in drawn.features)
    assert 1 <= math.exp(drawn.log_threads) <= 256
    again = next(d for i in range(5) if (d := draw_labelled_load(1, i)) is not None)
    assert drawn == again


def test_the_trees_learn_what_the_features_say_and_answer_once() -> None:
    host = Host(4)
    loads = []
    for index, blocking in enumerate(np.geomspace(0.01, 0.4, 24)):
        workload = make_workload(cpu_seconds=0.02, blocking_seconds=float(blocking))
        plant = Plant(workload, host, threads=4, seed=index)
        earlier = plant.sample()
        plant.advance(15.0)
        row = features_of(view_between(earlier, plant.sample(), host))
        assert row is not None
        best = 4 * (1 + float(blocking) / 0.02)
        loads.append(LabelledLoad((tuple(map(float, row)),), math.log(best)))
    policy = BoostedTrees(trees=train_trees(loads, seed=1))
    workload = make_workload(cpu_seconds=0.02, blocking_seconds=0.2)
    plant = Plant(workload, host, threads=policy.start(host), seed=99)
    earlier = plant.sample()
    plant.advance(15.0)
    view = view_between(earlier, plant.sample(), host)
    chosen = policy.choose(view).threads
    assert chosen is not None
    rates = measure_curve(workload, host, (chosen, 60), seed=1, tasks=4000)
    assert rates[0] >= 0.8 * rates[1]
    assert policy.choose(view).threads == chosen


def test_a_window_without_tasks_gives_no_answer() -> None:
    assert BoostedTrees(trees="").choose(make_view()).threads is None


def test_without_xgboost_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "xgboost", None)
    with pytest.raises(SlimError, match=r"pip install '.\[train\]'"):
        train_trees([LabelledLoad(((0.0,) * len(BRANCH_FEATURES),), 0.0)], seed=1)
