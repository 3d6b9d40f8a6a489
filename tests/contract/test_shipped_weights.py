"""The weights in the package are those that their card describes, for the features of this version."""

import hashlib

import pytest

from slimscale.threads.operator_network import load_operator
from slimscale.weights import read_weights
from tests.support.operator_weights import estimate_of

NAME = "threads-operator"


def shipped() -> tuple[bytes, dict[str, object]]:
    found = read_weights(NAME)
    assert found is not None
    data, card = found
    return data, dict(card)


def test_the_operator_can_use_the_shipped_weights() -> None:
    predictor = load_operator(*shipped())
    assert predictor.problem == ""
    surface = predictor.surface(estimate_of(), cpu_cores=(1.0, 2.0), max_threads=64)
    assert surface.note == ""


def test_the_card_is_of_these_weights() -> None:
    data, card = shipped()
    assert card["version"] == hashlib.sha256(data).hexdigest()[:12]


def test_the_card_says_that_the_network_is_the_better_one_on_held_out_families() -> None:
    metrics = shipped()[1]["metrics"]
    assert isinstance(metrics, dict)
    network = metrics["operator network, held-out families"]
    analytic = metrics["analytic, held-out families"]
    for figure in ("median", "mean", "p95"):
        assert network[figure] < analytic[figure]


def test_weights_that_are_not_there_are_no_error() -> None:
    assert read_weights("no-such-weights") is None


@pytest.mark.parametrize("part", ["seed", "cases", "fit", "loss"])
def test_the_card_says_how_to_make_the_weights_again(part: str) -> None:
    settings = shipped()[1]["settings"]
    assert isinstance(settings, dict)
    assert settings[part]
