"""The router's update: its gradient is the objective's, in torch's words too, and it moves to what pays."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from slimscale.routing.learned.weights import PolicyWeights, Residual
from slimscale.simulate.routing.learned_policy import CELL_COUNT, HOLD, REGIME_COUNT
from slimscale.simulate.routing.scene import REGIMES, Scene, six
from slimscale.training.router.adam import Adam
from slimscale.training.router.advantage import (
    LinearValue,
    PidMultiplier,
    advantages,
    discounted_returns,
)
from slimscale.training.router.gate import first_gate
from slimscale.training.router.ppo import PpoSettings, gradient, improve, pack, unpack
from slimscale.training.router.rollout import Rollout, probabilities, roll_out
from slimscale.training.router.scenes import case_of

pytestmark = pytest.mark.slow  # the first run compiles for some ten seconds

SETTINGS = PpoSettings(clip=0.2, entropy=0.01)


def policy(seed: int, *, units: int = 3) -> PolicyWeights:
    rng = np.random.default_rng(seed)
    gate = first_gate()
    residual = Residual(
        rng.normal(0, 0.3, (units, CELL_COUNT + REGIME_COUNT)),
        rng.normal(0, 0.3, units),
        rng.normal(0, 0.05, units),
    )
    slopes = rng.normal(0, 0.02, gate.slopes.shape)
    start = gate.start + 0.0
    start[HOLD] = 0.5
    return PolicyWeights("t", start, slopes, residual if units else None, sharpness=20.0)


@pytest.fixture(scope="module")
def rollout() -> Rollout:
    scene = Scene(devices=six()[:3], regime=REGIMES["real"])
    return roll_out(case_of(scene, load=0.4, seconds=0.4, seed=3), policy(1))


def moved(rollout: Rollout, seed: int) -> tuple[PolicyWeights, np.ndarray, np.ndarray]:
    """Another policy than the one that rolled out, so that ratios differ from 1 and some are cut."""
    rng = np.random.default_rng(seed)
    here = policy(1)
    vector = pack(here) + rng.normal(0, 0.01, len(pack(here)))
    order = np.arange(len(rollout.action))
    return unpack(vector, here), rng.normal(0, 1, len(order)), order


def test_a_rollout_is_told_in_full(rollout: Rollout) -> None:
    assert len(rollout.action) > 50
    chosen = rollout.allowed[np.arange(len(rollout.action)), rollout.action]
    assert chosen.all()
    assert (rollout.log_probability <= 0.0).all()
    assert (np.diff(rollout.at_seconds) >= 0.0).all()
    assert rollout.reward.min() >= -3.0 - 1e-9
    assert set(np.unique(rollout.missed)) <= {0.0, 1.0}


def test_the_gradient_is_that_of_finite_differences(rollout: Rollout) -> None:
    weights, advantage, order = moved(rollout, 5)
    settings = replace(SETTINGS, leash=0.3)
    before = probabilities(policy(1), rollout.phi, rollout.allowed, rollout.regime)
    found, *_ = gradient(weights, rollout, advantage, order, settings, reference=before)
    vector = pack(weights)
    for index in np.random.default_rng(2).choice(len(vector), 40, replace=False):
        step = np.zeros_like(vector)
        step[index] = 1e-6
        above, below = (
            gradient(
                unpack(vector + sign * step, weights), rollout, advantage, order, settings,
                reference=before,
            )[1]
            for sign in (1.0, -1.0)
        )  # fmt: skip
        assert found[index] == pytest.approx((above - below) / 2e-6, rel=1e-3, abs=1e-5), index


def test_the_gradient_is_torchs(rollout: Rollout) -> None:
    torch = pytest.importorskip("torch")
    weights, advantage, order = moved(rollout, 6)
    found, objective, _, entropy, _ = gradient(weights, rollout, advantage, order, SETTINGS)
    assert weights.residual is not None
    leaves = [
        torch.tensor(one, dtype=torch.float64, requires_grad=True)
        for one in (
            weights.start,
            weights.slopes,
            weights.residual.hidden,
            weights.residual.hidden_bias,
            weights.residual.out,
        )
    ]
    start, slopes, hidden, bias, out = leaves
    phi = torch.tensor(rollout.phi, dtype=torch.float64)
    regime = torch.tensor(rollout.regime)
    coefficients = start + regime @ slopes.T
    seen = torch.cat([phi, regime[:, None, None, :].expand(*phi.shape[:3], -1)], dim=3)
    greedy = torch.einsum("npwk,nk->npw", phi[..., :HOLD], coefficients[:, :HOLD])
    greedy = greedy + torch.tanh(seen @ hidden.T + bias) @ out
    held = greedy + coefficients[:, HOLD, None, None] * phi[..., HOLD]
    scores = torch.cat([greedy.flatten(1), held.flatten(1)], dim=1)
    scores = scores.masked_fill(~torch.tensor(rollout.allowed), -1e8)
    spread = torch.log_softmax(scores * weights.sharpness, dim=1)
    log = spread[torch.arange(len(order)), torch.tensor(rollout.action)]
    ratio = torch.exp(log - torch.tensor(rollout.log_probability))
    gain = torch.tensor(advantage)
    uncertain = -(spread.exp() * spread.clamp(min=-30.0)).sum(dim=1)
    wanted = torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain)
    total = (wanted + SETTINGS.entropy * uncertain).mean()
    total.backward()
    torchs = torch.cat([leaf.grad.flatten() for leaf in leaves]).numpy()
    assert objective == pytest.approx(total.item(), abs=1e-5)
    assert entropy == pytest.approx(uncertain.mean().item(), abs=1e-5)
    np.testing.assert_allclose(found, torchs, atol=1e-5 * max(1.0, np.abs(torchs).max()))


def test_an_update_makes_what_paid_more_likely_and_stops_at_its_divergence(
    rollout: Rollout,
) -> None:
    before = policy(1)
    held = rollout.action >= rollout.allowed.shape[1] // 2
    paid = np.where(held, 1.0, -1.0)
    settings = PpoSettings(epochs=60, minibatch=256, rate=0.01, target_kl=0.01, entropy=0.0)
    after, report = improve(
        before,
        [(rollout, paid)],
        settings,
        adam=Adam(len(pack(before))),
        scale=np.full(len(pack(before)), 0.1),
        rng=np.random.default_rng(1),
    )
    chances = probabilities(after, rollout.phi, rollout.allowed, rollout.regime)
    taken = chances[np.arange(len(paid)), rollout.action]
    gained = np.log(taken) - rollout.log_probability
    assert held.any()
    assert gained[held].mean() > 0.0
    assert report.epochs < 60
    assert 0.01 < report.kl < 0.5


def test_log_probabilities_are_those_of_the_rollout(rollout: Rollout) -> None:
    chances = probabilities(policy(1), rollout.phi, rollout.allowed, rollout.regime)
    again = np.log(chances[np.arange(len(rollout.action)), rollout.action])
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    assert (chances[~rollout.allowed] == 0.0).all()
    # The features are kept in single precision.
    np.testing.assert_allclose(again, rollout.log_probability, atol=1e-4)


def test_returns_and_advantages_discount_by_time_not_by_steps() -> None:
    reward = np.array([1.0, 2.0, 4.0])
    at = np.array([0.0, 0.1, 1.1])
    returns = discounted_returns(reward, at, horizon_seconds=0.5)
    assert returns[1] == pytest.approx(2.0 + 4.0 * np.exp(-2.0))
    assert returns[0] == pytest.approx(1.0 + returns[1] * np.exp(-0.2))
    # A memory without end and no baseline: the advantage is the return.
    free = advantages(reward, np.zeros(3), at, horizon_seconds=0.5, memory_seconds=1e9)
    np.testing.assert_allclose(free, returns)
    # A baseline that knows the returns leaves no advantage, whatever the memory.
    none = advantages(reward, returns, at, horizon_seconds=0.5, memory_seconds=0.1)
    np.testing.assert_allclose(none, 0.0, atol=1e-12)


def test_the_value_is_fitted_to_the_returns() -> None:
    rng = np.random.default_rng(1)
    regime = np.concatenate([np.ones((500, 1)), rng.normal(size=(500, REGIME_COUNT - 1))], axis=1)
    returns = 3.0 + 2.0 * regime[:, 4] - regime[:, 6] ** 2
    value = LinearValue(ridge=1e-6)
    assert (value(regime) == 0.0).all()
    value.fit(regime, returns)
    np.testing.assert_allclose(value(regime), returns, atol=1e-4)


def test_a_constraints_price_rises_while_it_is_broken_and_goes_back_to_nothing() -> None:
    price = PidMultiplier()
    rising = [price.update(0.1) for _ in range(20)]
    assert all(later >= earlier for earlier, later in itertools.pairwise(rising[1:]))
    assert rising[-1] > 0.4
    for _ in range(60):
        price.update(-0.1)
    assert price.value == 0.0
