"""The condition PolicyInUse: what is wrong with a learned policy, where, and what mends it."""

from dataclasses import replace
from typing import Any

import pytest

from slimscale.act.inference_policy import policy_condition, routing_status
from slimscale.api.inference_status import RoutingStatus
from slimscale.api.sliminference import SlimInferenceSpec
from slimscale.domain.inference import (
    InferenceObservation,
    PolicyConfigMap,
    PolicyReport,
    RouterReport,
)
from slimscale.domain.scaling import ScalingObservation
from tests.support.inferences import inference_spec

WELL = PolicyReport("PPO", "PPO", stage="Active", reason="AsAsked", version="7")


def spec(mode: str = "Active", **learned: Any) -> SlimInferenceSpec:
    routing = {"policy": "PPO", "mode": mode, "learned": learned}
    return SlimInferenceSpec.model_validate(inference_spec(routing=routing))


def seen(*policies: PolicyReport | None, file: PolicyConfigMap | None = None) -> Any:
    reports = tuple(
        RouterReport(f"router-{index}", policy=policy) for index, policy in enumerate(policies)
    )
    return InferenceObservation(
        "ns", "fashion", "uid", 1, 0.0, {}, (), ScalingObservation(0.0, None, ()), reports,
        policy_file=file,
    )  # fmt: skip


def told(*policies: PolicyReport | None, mode: str = "Active") -> tuple[str, str, str]:
    _, status, reason, message = policy_condition(seen(*policies), spec(mode))
    return status, reason, message


def test_a_policy_with_the_share_that_was_asked_for_is_in_use() -> None:
    assert told(WELL, WELL) == ("True", "InUse", "PPO 7 on 2 routers")
    shadow = replace(WELL, stage="Shadow", acting="ColdAwareSED")
    assert told(shadow, mode="Shadow")[:2] == ("True", "InShadow")
    assert told(replace(WELL, stage="Canary"), mode="Canary")[:2] == ("True", "Canary")


@pytest.mark.parametrize("others", [(), (WELL,)], ids=["alone", "beside a good one"])
def test_one_router_that_refused_the_file_says_so_with_its_words(
    others: tuple[PolicyReport, ...],
) -> None:
    bad = replace(WELL, error="policy.json is no JSON object; make it again; 7 stays in use")
    status, reason, message = told(*others, bad)
    assert (status, reason) == ("False", "PolicyRefused")
    assert message.endswith("policy.json is no JSON object; make it again; 7 stays in use")
    assert message.startswith(f"router-{len(others)}: ")


def test_a_policy_that_fell_is_no_longer_in_use_until_it_acts_again() -> None:
    fallen = replace(
        WELL, stage="Shadow", acting="ColdAwareSED", reason="SloBurn", falls=1, words="40 % missed"
    )
    status, reason, message = told(WELL, fallen)
    assert (status, reason) == ("False", "SloBurn")
    assert "router-1: Shadow: 40 % missed; ColdAwareSED answers" in message
    canary = replace(fallen, stage="Canary", reason="CooledDown")
    assert told(WELL, canary)[:2] == ("False", "SloBurn")
    worse = replace(fallen, reason="WorseThanIncumbent", falls=2)
    assert told(canary, worse)[:2] == ("False", "WorseThanIncumbent")
    assert told(replace(WELL, falls=1))[:2] == ("True", "InUse")


def test_a_policy_that_still_proves_itself_is_no_fault() -> None:
    new = replace(WELL, stage="Shadow", reason="NewPolicy", words="a new policy file")
    assert told(WELL, new) == ("Unknown", "ProvingItself", "router-1: Shadow: a new policy file")


def test_routers_that_have_not_heard_of_it_yet_say_nothing() -> None:
    assert told()[:2] == ("Unknown", "WarmingUp")
    assert told(None, replace(WELL, asked="SED"))[:2] == ("Unknown", "WarmingUp")
    heuristic = SlimInferenceSpec.model_validate(inference_spec())
    assert policy_condition(seen(), heuristic)[1:3] == ("True", "InUse")


@pytest.mark.parametrize(
    ("file", "says"),
    [
        (PolicyConfigMap("tuned", exists=False), "there is no ConfigMap tuned in this namespace"),
        (
            PolicyConfigMap("tuned", missing_keys=("policy.json in data",)),
            "ConfigMap tuned has no policy.json in data",
        ),
    ],
)
def test_a_config_map_that_lacks_something_is_named(file: PolicyConfigMap, says: str) -> None:
    _, status, reason, message = policy_condition(
        seen(WELL, file=file), spec(policyConfigMap="tuned")
    )
    assert (status, reason) == ("False", "PolicyNotFound")
    assert says in message
    assert "slimscale train router" in message
    other = SlimInferenceSpec.model_validate(
        inference_spec(routing={"learned": {"policyConfigMap": "tuned"}})
    )
    assert policy_condition(seen(file=file), other)[1] == "True"  # no policy of ours needs it


def test_the_status_shows_the_router_that_is_furthest_behind() -> None:
    behind = replace(WELL, stage="Canary", acting="ColdAwareSED", overruled_share=0.25)
    shown = routing_status(seen(replace(WELL, overruled_share=0.05), behind), spec())
    assert shown == {
        "policy": "PPO", "acting": "ColdAwareSED", "stage": "Canary", "version": "7",
        "overruledShare": 0.15,
    }  # fmt: skip
    RoutingStatus.model_validate(shown)
    assert routing_status(seen(), spec()) == {"policy": "PPO"}
