"""The operator network: bound by physics, and silent where it knows nothing."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slimscale.threads.features import BRANCH_FEATURES, Setting, branch_features, trunk_features
from slimscale.threads.guards import sane_surface
from slimscale.threads.operator_network import (
    GRID_THREADS,
    OperatorPredictor,
    OperatorWeights,
    load_operator,
)
from slimscale.threads.predictor import AnalyticPredictor, Surface
from tests.support.operator_weights import (
    BLOCKING,
    estimate_of,
    random_arrays,
    weights_card,
    weights_file,
)

CORES = (0.5, 1.0, 2.0)


def analytic(threads: int = 64, **changes: Any) -> Surface:
    return AnalyticPredictor().surface(estimate_of(**changes), cpu_cores=CORES, max_threads=threads)


def predictor(**changes: np.ndarray) -> OperatorPredictor:
    return load_operator(weights_file({**random_arrays(), **changes}), weights_card())


@pytest.mark.parametrize("threads", [1, 5, 64, 400])
def test_no_correction_is_exactly_the_analytic_model(threads: int) -> None:
    network = load_operator(weights_file(random_arrays(size=0.0)), weights_card())
    surface = network.surface(estimate_of(), cpu_cores=CORES, max_threads=threads)
    assert surface.note == ""
    assert surface.tasks_per_second == pytest.approx(analytic(threads).tasks_per_second, rel=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_no_weights_take_the_throughput_past_the_bound(seed: int) -> None:
    network = load_operator(weights_file(random_arrays(seed, size=30.0)), weights_card())
    estimate = estimate_of()
    surface = network.surface(estimate, cpu_cores=CORES, max_threads=256)
    view = AnalyticPredictor().view(estimate, cpu_cores=CORES, max_threads=256)
    assert estimate.window is not None
    bound = Setting.of(estimate, estimate.window, view).bound
    assert (surface.tasks_per_second <= bound).all()
    assert sane_surface(surface, rows=3, columns=256) == ""
    assert not np.allclose(surface.tasks_per_second, view.surface.tasks_per_second)


def outside_range() -> OperatorPredictor:
    return predictor(range_high=np.full_like(random_arrays()["range_high"], -19.0))


def not_finite_later() -> OperatorPredictor:
    network = predictor()
    assert network.weights is not None
    weight, bias = network.weights.branch[-1]
    broken = (*network.weights.branch[:-1], (weight, np.full_like(bias, np.nan)))
    return OperatorPredictor(replace(network.weights, branch=broken))


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (outside_range(), "outside the training range"),
        (not_finite_later(), "no positive numbers"),
        (load_operator(None, None), "no weights"),
        (load_operator(b"damaged", weights_card()), "cannot be read"),
        (load_operator(weights_file(random_arrays())[:-8], weights_card()), "cannot be read"),
        (load_operator(weights_file(random_arrays()), weights_card(format="x")), "format"),
        (
            load_operator(weights_file(random_arrays()), weights_card(trunk_features=["k"])),
            "trunk_features",
        ),
        (predictor(bias=np.asarray([1.0, 2.0], np.float32)), "cannot be read"),
        (predictor(branch_mean=np.zeros(3, np.float32)), "branch_mean"),
        (predictor(**{"trunk.1.bias": np.zeros(9, np.float32)}), "trunk layer"),
        (
            predictor(**{"branch.0.weight": random_arrays()["branch.0.weight"] * np.inf}),
            "not finite",
        ),
    ],
)
def test_the_analytic_model_answers_and_says_why(network: OperatorPredictor, words: str) -> None:
    surface = network.surface(estimate_of(), cpu_cores=CORES, max_threads=64)
    assert np.array_equal(surface.tasks_per_second, analytic().tasks_per_second)
    assert surface.note.startswith("analytic model: ")
    assert words in surface.note


@pytest.mark.parametrize(
    "changes",
    [
        {"serial_seconds": 1e-3, "serial_threads": 4},
        {"alone_per_second": 100.0},
        {"window": None},
    ],
)
def test_loads_that_the_data_does_not_have_are_left_to_the_analytic_model(
    changes: dict[str, Any],
) -> None:
    surface = predictor().surface(estimate_of(**changes), cpu_cores=CORES, max_threads=64)
    assert np.array_equal(surface.tasks_per_second, analytic(**changes).tasks_per_second)
    assert surface.note


def test_features_do_not_depend_on_the_unit_of_time() -> None:
    slow, fast = (features_of(scale) for scale in (1.0, 0.25))
    unlike = {
        name
        for name, a, b in zip(BRANCH_FEATURES, slow, fast, strict=True)
        if not np.isclose(a, b, rtol=0.05, atol=0.05) and "quantile" not in name
    }
    # The quota's period, a hand-over's cost and a window's length are times of their own.
    assert unlike == {
        "log task CPU over 100 ms",
        "log dispatch over 60 us",
        "log1p hand-over contention",
        "log tasks seen",
    }


def features_of(scale: float) -> np.ndarray:
    truth = replace(
        BLOCKING,
        blocking_seconds=BLOCKING.blocking_seconds * scale,
        cpu_seconds=BLOCKING.cpu_seconds * scale,
        dispatch_seconds=BLOCKING.dispatch_seconds * scale,
    )
    estimate = estimate_of(truth)
    assert estimate.window is not None
    view = AnalyticPredictor().view(estimate, cpu_cores=(2.0,), max_threads=64)
    features = branch_features(Setting.of(estimate, estimate.window, view))
    return np.asarray(features[0])


def test_the_network_reads_the_same_at_every_count_of_its_grid() -> None:
    # What lies between two counts of the grid is interpolated: the grid itself must be exact.
    network = predictor()
    estimate = estimate_of()
    assert network.weights is not None
    assert estimate.window is not None
    view = AnalyticPredictor().view(estimate, cpu_cores=CORES, max_threads=256)
    setting = Setting.of(estimate, estimate.window, view)
    grid = np.asarray(GRID_THREADS)
    correction = network.weights.correction(branch_features(setting), trunk_features(setting, grid))
    expected = setting.bound[:, grid - 1] / (1.0 + np.exp(-setting.odds[:, grid - 1] - correction))
    surface = network.surface(estimate, cpu_cores=CORES, max_threads=256)
    assert surface.tasks_per_second[:, grid - 1] == pytest.approx(expected, rel=1e-9)


def test_weights_read_back_what_was_written() -> None:
    arrays = random_arrays()
    weights = OperatorWeights.read(weights_file(arrays), weights_card())
    assert np.array_equal(weights.branch[0][0], arrays["branch.0.weight"].astype(np.float64))
    assert weights.version == "test"
