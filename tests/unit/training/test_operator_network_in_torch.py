"""The network that is trained is the one that runs, and its losses want what they say."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="pip install slimscale[train]")

from slimscale.threads.closed_network import NetworkParameters, throughput_curve  # noqa: E402
from slimscale.threads.features import BRANCH_FEATURES, TRUNK_FEATURES  # noqa: E402
from slimscale.threads.operator_network import GRID_THREADS, OperatorWeights  # noqa: E402
from slimscale.training.card import arrays_of, weights_of  # noqa: E402
from slimscale.training.dataset import Dataset  # noqa: E402
from slimscale.training.fit import AVERAGE_DECAY, Average  # noqa: E402
from slimscale.training.judge import operator_curves, smooth_log  # noqa: E402
from slimscale.training.losses import (  # noqa: E402
    Physics,
    balance_residual,
    decision_loss,
    shape_loss,
)
from slimscale.training.network import OperatorNetwork, Standardisation  # noqa: E402
from tests.support.operator_weights import weights_card, weights_file  # noqa: E402

POINTS = len(GRID_THREADS)
MOST = 64


def network(seed: int = 3) -> OperatorNetwork:
    torch.manual_seed(seed)
    made = OperatorNetwork(
        Standardisation(
            torch.randn(len(BRANCH_FEATURES)),
            torch.rand(len(BRANCH_FEATURES)) + 0.5,
            torch.randn(len(TRUNK_FEATURES)),
            torch.rand(len(TRUNK_FEATURES)) + 0.5,
        )
    )
    with torch.no_grad():
        last = made.branch[-1]
        assert isinstance(last, torch.nn.Linear)
        last.weight.mul_(400.0)  # away from the start, where g is nearly 0
    return made


def rows(count: int = 6) -> Dataset:
    rng = np.random.default_rng(5)
    return Dataset(
        branch=rng.normal(0, 1, (count, len(BRANCH_FEATURES))),
        trunk=rng.normal(0, 1, (count, POINTS, len(TRUNK_FEATURES))),
        analytic=np.ones((count, 256)),
        bound=np.full((count, 256), 2.0),
        physics=np.ones((count, 4)),
        labels=np.ones((count, POINTS)),
        again=np.ones((count, POINTS)),
        facts=np.ones((count, 4)),
        case=np.arange(count),
    )


def test_what_runs_without_torch_equals_what_was_trained() -> None:
    trained, data = network(), rows()
    branch, trunk = torch.tensor(data.branch).float(), torch.tensor(data.trunk).float()
    zeros = torch.zeros(len(data), POINTS)
    with torch.no_grad():
        expected = trained(branch, trunk, zeros, zeros).correction.numpy()
    weights = OperatorWeights.read(weights_file(arrays_of(trained, data)), weights_card())
    assert np.abs(expected).max() > 0.1
    assert weights.correction(data.branch, data.trunk) == pytest.approx(expected, abs=1e-5)


def test_the_written_range_is_that_of_the_training_data() -> None:
    data = rows()
    arrays = arrays_of(network(), data)
    assert (arrays["range_low"] < data.branch.min(axis=0)).all()
    assert (arrays["range_high"] > data.branch.max(axis=0)).all()
    assert (arrays["range_high"] - data.branch.max(axis=0) < 1.0).all()


def physics_of(parameters: NetworkParameters, counts: list[int]) -> Physics:
    """As `tensors_of` makes it, for one row."""
    outside = NetworkParameters(
        parameters.blocking_seconds, parameters.cpu_seconds, 0.0, parameters.cpu_servers
    )
    rate = np.concatenate(([0.0], throughput_curve(outside, MOST) * parameters.dispatch_seconds))
    log_outside = np.concatenate(([0.0], -np.cumsum(np.log(rate[1:]))))
    return Physics(
        torch.tensor(counts),
        torch.tensor(log_outside)[None].float(),
        torch.tensor(rate)[None].float(),
        torch.zeros(1, MOST + 1),
    )


@pytest.mark.parametrize("blocking", [0.0, 5.0, 40.0])
def test_the_queueing_model_itself_leaves_no_residual(blocking: float) -> None:
    parameters = NetworkParameters(blocking, 3.0, 1.0, 4.0)
    counts = [1, 2, 7, 30, MOST]
    curve = throughput_curve(parameters, MOST)
    log_rates = torch.tensor(np.log(curve[np.asarray(counts) - 1]))[None].float()
    state = torch.zeros(1, len(counts), MOST + 1)
    none = torch.zeros(1, 3)
    residual = balance_residual(physics_of(parameters, counts), state, none, log_rates)
    assert float(residual.max()) < 1e-5
    wrong_curve = balance_residual(physics_of(parameters, counts), state, none, log_rates + 0.1)
    assert float(wrong_curve.min()) > 5e-3
    crowded = torch.tensor([[0.5, 0.0, 0.0]])
    wrong_lock = balance_residual(physics_of(parameters, counts), state, crowded, log_rates)
    assert float(wrong_lock[0, 1:].min()) > 1e-4


def test_the_decision_loss_is_what_the_choice_gives_up() -> None:
    shares = torch.tensor([[0.25, 0.5, 1.0, 0.75]])
    right = torch.tensor([[0.0, 1.0, 9.0, 2.0]])
    wrong = torch.tensor([[0.0, 9.0, 1.0, 2.0]])
    assert float(decision_loss(right, shares)) == pytest.approx(0.0, abs=1e-6)
    assert float(decision_loss(wrong, shares)) == pytest.approx(0.5, abs=1e-6)


def test_the_decision_loss_never_looks_at_what_was_not_measured() -> None:
    shares = torch.tensor([[0.5, 1.0, 0.0]])
    assert float(decision_loss(torch.tensor([[0.0, 5.0, 90.0]]), shares)) < 1e-6


def test_labels_with_noise_become_a_curve_that_rises_and_falls_between_measured_counts() -> None:
    labels = np.full((1, POINTS), np.nan)
    labels[0, [2, 5, 8, 11, 14]] = 1.0, 3.0, 2.9, 3.1, 2.0
    smooth = np.exp(smooth_log(labels)[0])
    assert np.isnan(smooth[:2]).all()
    assert np.isnan(smooth[15:]).all()
    assert smooth[5] == pytest.approx(smooth[8])
    assert 2.9 < smooth[8] < 3.0
    assert (np.diff(smooth[2:12]) >= 0).all()
    assert (np.diff(smooth[11:15]) <= 0).all()


def test_one_rise_and_one_fall_is_a_curve_of_threads_and_two_are_not() -> None:
    below = torch.tensor([[True, False, False, False]])
    rises_and_falls = torch.tensor([[0.0, 1.0, 2.0, 1.5, 1.0]])
    two_tops = torch.tensor([[0.0, 2.0, 1.0, 1.5, 1.0]])
    early_fall = torch.tensor([[2.0, 1.0, 0.9, 0.8, 0.7]])
    assert float(shape_loss(rises_and_falls, below)) == 0.0
    assert float(shape_loss(two_tops, below)) > 0.4
    assert float(shape_loss(early_fall, below)) > 0.9


def test_the_average_stands_in_for_the_weights_only_while_it_is_judged() -> None:
    made = network()
    before = {name: value.clone() for name, value in made.state_dict().items()}
    average = Average(made)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(1.0)
    average.add(made, step=10**6)
    with average.in_place_of(made):
        for name, value in made.named_parameters():
            moved = (value.detach() - before[name]).abs().max()
            assert 0.5 * (1 - AVERAGE_DECAY) < float(moved) < 2 * (1 - AVERAGE_DECAY)
    for name, value in made.named_parameters():
        assert torch.allclose(value.detach(), before[name] + 1.0)


def test_rows_outside_the_training_range_are_judged_by_the_analytic_curve() -> None:
    data = rows()
    weights = weights_of(network(), data)
    inside = operator_curves(weights, data)
    assert (np.abs(inside / data.analytic - 1.0).max(axis=1) > 1e-3).all()
    branch = data.branch.copy()
    branch[2, 0] = 1e3
    branch[4, 1] = np.nan
    answered = operator_curves(weights, replace(data, branch=branch))
    assert np.array_equal(answered[[2, 4]], data.analytic[[2, 4]])
    assert np.array_equal(answered[[0, 1, 3, 5]], inside[[0, 1, 3, 5]])
