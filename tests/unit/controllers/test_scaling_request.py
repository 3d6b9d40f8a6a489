"""What the custom resource says reaches scaling in scaling's own units."""

import pytest

from slimscale.api.sliminference import SlimInferenceSpec
from slimscale.controllers.scaling_spec import scaling_spec
from slimscale.domain.scaling import ScalingOwner, ScalingSpec
from tests.support.inferences import inference_spec


def asked(**fields: object) -> ScalingSpec:
    return scaling_spec(SlimInferenceSpec.model_validate(inference_spec(**fields)))


def test_defaults_of_the_api_are_those_of_scaling() -> None:
    given = asked()
    plain = ScalingSpec(pools=given.pools, target_model="fashion-w100", slo_seconds=0.25)
    assert given == plain


def test_percents_become_shares_and_milliseconds_seconds() -> None:
    given = asked(
        slo={"latencyMilliseconds": 40, "percentile": 99},
        scaling={
            "owner": "External", "headroomPercent": 30, "panicThresholdPercent": 150,
            "upPercent": 50, "downPercent": 10, "burstMemorySeconds": 0, "scaleToZeroAfterSeconds": 90,
        },
    )  # fmt: skip
    assert given.owner is ScalingOwner.EXTERNAL
    assert given.slo_seconds == 0.04
    assert given.percentile == pytest.approx(0.99)
    assert (given.headroom, given.panic_threshold) == (0.3, 1.5)
    assert (given.up_factor, given.down_factor) == (1.5, 0.1)
    assert given.idle_to_zero_seconds == 90.0
    assert given.burst_memory_seconds == 0.0


def test_pools_come_in_the_order_in_which_they_are_filled() -> None:
    pools = [{"name": "a"}, {"name": "b", "priority": 5}, {"name": "c", "priority": -1}]
    assert [pool.name for pool in asked(pools=pools).pools] == ["b", "a", "c"]


def test_never_to_zero_unless_asked_for() -> None:
    assert asked().idle_to_zero_seconds is None
