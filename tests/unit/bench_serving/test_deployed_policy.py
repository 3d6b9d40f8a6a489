"""What routers run, shield and looks included, is worth about what the network alone is."""

import pytest

from slimscale.bench.router.deployed import Deployed
from slimscale.bench.router.deployed import run_deployed as run_on
from slimscale.routing.learned.weights import PolicyWeights
from slimscale.simulate.routing.scene import REGIMES, Scene, six
from slimscale.training.router.gate import first_gate
from slimscale.training.router.policy_value import value_of_policy
from slimscale.training.router.scenes import WARM_UP_SECONDS, Case, case_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]  # the first one waits for the compiler


def run_deployed(weights: PolicyWeights, case: Case) -> Deployed:
    return run_on(weights, case.scene, case.plane(), warm_seconds=WARM_UP_SECONDS)


def policy() -> PolicyWeights:
    gate = first_gate()
    return PolicyWeights("first", gate.start, gate.slopes, None, 60.0)


@pytest.mark.parametrize(("regime", "most_lost"), [("base", 0.05), ("fault", 0.12)])
def test_what_is_deployed_is_worth_about_what_the_network_is(regime: str, most_lost: float) -> None:
    """Over three traces: which device is slow when a request comes makes single ones differ by .1."""
    lost, stood, overruled = 0.0, 0, 0
    for seed in range(10_000, 10_003):
        case = case_of(Scene(six(), regime=REGIMES[regime]), load=0.5, seconds=2.0, seed=seed)
        deployed = run_deployed(policy(), case)
        lost += (value_of_policy(policy(), case) - deployed.value) / 3.0
        stood += deployed.stood
        overruled += sum(deployed.overruled.values())
    assert lost < most_lost
    assert stood > 20 * overruled


def test_the_same_case_gives_the_same_run() -> None:
    case = case_of(Scene(six(), regime=REGIMES["burst"]), load=0.3, seconds=2.0, seed=10_000)
    assert run_deployed(policy(), case) == run_deployed(policy(), case)
