"""The learned router's policy that is shipped: it can be read, and is worth more than the fallback."""

import hashlib

import numpy as np
import pytest

from slimscale.routing.learned.weights import PolicyWeights
from slimscale.simulate.routing.scene import REGIMES, Scene, six
from slimscale.training.router.policy_value import value_of_policy
from slimscale.training.router.rules import all_rules, value_of_rule
from slimscale.training.router.scenes import case_of
from slimscale.weights import read_weights

NAME = "router-ppo"


def shipped() -> PolicyWeights:
    found = read_weights(NAME)
    assert found is not None
    data, card = found
    assert hashlib.sha256(data).hexdigest() == card["sha256"]
    assert isinstance(card["judged"], dict)
    return PolicyWeights.read(data, card)


def test_the_shipped_policy_belongs_to_its_card_and_is_finite() -> None:
    policy = shipped()
    assert policy.version
    assert np.abs(policy.start).max() < 50.0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_it_is_worth_more_than_the_heuristic_that_it_falls_back_to() -> None:
    policy = shipped()
    fallback = next(
        rule for rule in all_rules() if rule.name == "cold-aware SED, within 0.8 of slack"
    )
    for regime in ("base", "fault", "burst"):
        case = case_of(Scene(six(), regime=REGIMES[regime]), load=0.5, seconds=5.0, seed=77)
        assert value_of_policy(policy, case) > value_of_rule(fallback, case) + 0.05, regime
