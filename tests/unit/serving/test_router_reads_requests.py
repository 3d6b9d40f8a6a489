"""Rows and id of a request are found without parsing it; headers are checked by name."""

import json

import pytest

from slimscale.api.serving_config import RouterConfig
from slimscale.serving.protocol.errors import InvalidRequest
from slimscale.serving.router.asked import Asked, read_asked
from slimscale.serving.router.live import make_live
from tests.support.routers import router_config

CONFIG = RouterConfig.model_validate(router_config(sloClasses={"gold": 50, "7": 70}))


def asked(body: bytes = b"{}", **headers: bytes) -> Asked:
    given = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    return read_asked(given, body, CONFIG)


def tensor(rows: int) -> dict[str, object]:
    return {"name": "image", "shape": [rows, 1, 28, 28], "datatype": "FP32"}


@pytest.mark.parametrize(
    ("body", "rows"),
    [
        (json.dumps({"inputs": [tensor(7)]}).encode(), 7),
        (json.dumps({"inputs": [tensor(7)]}, indent=3).encode(), 7),
        (b'{"inputs":[{"name":"i","data":[1,2],"shape":[9]}]}', 9),
        (json.dumps({"inputs": [tensor(5)]}).encode() + b"\x00\xff" * 4000, 5),
        (b"", 1),
        (b"not json", 1),
        (b'{"inputs":[{"shape":[0]}]}', 1),
        (b'{"inputs":[{"shape":[999999999]}]}', 2**20),
    ],
)
def test_rows_are_the_first_length_of_the_first_shape(body: bytes, rows: int) -> None:
    assert asked(body).rows == rows


def test_what_is_not_asked_for_comes_from_the_configuration() -> None:
    found = asked()
    assert (found.deadline_seconds, found.slo_seconds, found.slo_class) == (30.0, 0.25, "default")


def test_an_slo_is_a_class_or_milliseconds() -> None:
    assert (asked(slimscale_slo=b"gold").slo_seconds, asked(slimscale_slo=b"gold").slo_class) == (
        0.05,
        "gold",
    )
    assert (asked(slimscale_slo=b"120").slo_seconds, asked(slimscale_slo=b"120").slo_class) == (
        0.12,
        "own",
    )
    assert asked(slimscale_slo=b"7").slo_seconds == 0.07  # a class may be called as it likes


@pytest.mark.parametrize(
    ("body", "header", "found"),
    [
        (b'{"id":"a-1","inputs":[]}', None, b"a-1"),
        (b'{"id": "a-1"}', b"from-header", b"from-header"),
        (b'{"id":"with blank"}', None, b""),
        (b'{"id":"%s"}' % (b"x" * 200), None, b""),
        (b"{}", b"line\tbreak", b""),
        (b"{}", None, b""),
    ],
)
def test_only_a_short_plain_id_is_passed_on(
    body: bytes, header: bytes | None, found: bytes
) -> None:
    headers = {} if header is None else {"slimscale_request_id": header}
    assert asked(body, **headers).request_id == found


@pytest.mark.parametrize("value", [b"", b"0x10", b"inf", b"nan", b"-1", b"1e12", b"\xff"])
def test_a_number_that_is_none_is_refused_by_the_headers_name(value: bytes) -> None:
    with pytest.raises(InvalidRequest, match="Slimscale-Deadline-Ms"):
        asked(slimscale_deadline_ms=value)


def test_a_minimum_accuracy_that_no_width_has_falls_to_the_best_width() -> None:
    config = RouterConfig.model_validate(router_config(minAccuracy=0.99))
    assert make_live(config).config.min_accuracy == 0.76


def test_a_policy_that_stays_keeps_what_it_has_learnt_and_another_starts_anew() -> None:
    first = make_live(RouterConfig.model_validate(router_config(policy="Mixture")))
    same = make_live(
        RouterConfig.model_validate(router_config(policy="Mixture", sloMilliseconds=9)), first
    )
    shadowed = make_live(
        RouterConfig.model_validate(router_config(policy="Mixture", mode="Shadow")), same
    )
    other = make_live(RouterConfig.model_validate(router_config(policy="SED")), first)
    assert same.policy is first.policy
    assert shadowed.candidate is first.policy
    assert shadowed.policy.name == "SED"
    assert other.policy is not first.policy
