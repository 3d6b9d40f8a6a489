"""The example of the learned router is valid and serves the model of the other example."""

import yaml

from slimscale.api.sliminference import SlimInferenceSpec
from slimscale.api.validation import validate_sliminference
from tests.support.helm import ROOT


def spec_of(name: str) -> SlimInferenceSpec:
    example = yaml.safe_load((ROOT / "examples" / name).read_text(encoding="utf-8"))
    example["metadata"]["namespace"] = "default"
    return validate_sliminference(example).spec


def test_the_learned_router_serves_the_same_model_and_begins_in_shadow() -> None:
    learned = spec_of("sliminference-learned.yaml")
    assert learned.model == spec_of("sliminference.yaml").model
    assert (learned.routing.policy, learned.routing.mode) == ("PPO", "Shadow")
    assert learned.routing.learned.policy_config_map is None  # the one that ships
