"""What holds for every data plane: nobody is lost, queueing theory, capacity, the same run again."""

from dataclasses import replace
from math import exp

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slimscale.simulate.bounds.fleet import Fleet
from slimscale.simulate.bounds.planning import capacity
from slimscale.simulate.routing.heuristics import Kind, WidthRule
from slimscale.simulate.routing.scene import REGIMES, WIDTHS, Device, RequestClass, Scene, six
from tests.support.routed import route, setting

pytestmark = pytest.mark.timeout(300)  # the first one waits for the compiler

CAPACITY = 2209.13
"""Of the six devices at a mean accuracy of 74.5 %, as the first experiment gives it."""
NAMES = [name for name, regime in REGIMES.items() if not regime.trace]


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    load=st.floats(0.02, 1.5),
    kind=st.integers(Kind.RANDOM, Kind.PRICED),
    rule=st.integers(WidthRule.SLIMMEST, WidthRule.ANY),
    hold_share=st.sampled_from([0.0, 0.5]),
    seed=st.integers(0, 2**31),
)
def test_every_request_ends_exactly_once(  # noqa: PLR0917 - drawn by name
    name: str, load: float, kind: int, rule: int, hold_share: float, seed: int
) -> None:
    plane = route(
        Scene(six(), regime=REGIMES[name]),
        rate=load * CAPACITY,
        seconds=1.5,
        seed=seed,
        kind=kind,
        row=setting(rule, hold_share=hold_share, price=30.0),
    )
    s, q = plane.state[0], plane.requests
    answered = np.isfinite(q.of("latency"))
    assert q.of("done").all()
    assert s["answered"] == answered.sum()
    assert s["answered"] + s["dropped"] == len(q.each)
    assert s["inside"] == 0
    assert not s["queued"].any()
    assert (q.of("following")[answered] == -1).all()
    assert (s["busy_until"] == np.inf).all()
    # Each has a decision, the last of which is its own.
    assert (q.decisions["request"][q.of("decision")] == np.arange(len(q.each))).all()
    assert s["decisions"] >= len(q.each)
    areas = q.decisions["area"][: s["decisions"]]
    assert areas.sum() == pytest.approx(s["area_counted"], abs=1e-9)
    assert (areas >= 0.0).all()
    # Little's law without a limit: what the clock has counted is what the answered have waited.
    total = q.of("latency")[answered].sum()
    assert s["area"] >= total * (1.0 - 1e-9)
    if answered.all():
        assert s["area"] == pytest.approx(total)


@settings(max_examples=15, deadline=None)
@given(name=st.sampled_from(NAMES), seed=st.integers(0, 2**31))
def test_the_same_seed_gives_the_same_run(name: str, seed: int) -> None:
    scene = Scene(six(), regime=REGIMES[name])
    one, other = (route(scene, rate=1200.0, seconds=1.0, seed=seed) for _ in range(2))
    assert one.state.tobytes() == other.state.tobytes()
    assert one.requests.each.tobytes() == other.requests.each.tobytes()
    third = route(scene, rate=1200.0, seconds=1.0, seed=seed + 1)
    assert third.requests.each.tobytes() != one.requests.each.tobytes()


@pytest.mark.parametrize("load", [0.3, 0.6, 0.85])
@pytest.mark.parametrize("noise", [0.0, 0.6])
def test_one_device_without_batches_waits_as_pollaczek_and_khinchine_say(
    load: float, noise: float
) -> None:
    seconds = 0.004
    device = Device("one", seconds, 0.0, 100.0, 10.0)
    scene = Scene((device,), widths=WIDTHS[:1], classes=(RequestClass(1e6, 1.0),), noise=noise)
    mean, square = seconds * exp(noise**2 / 2), seconds**2 * exp(2 * noise**2)
    rate = load / mean
    plane = route(scene, rate=rate, seconds=800.0, row=setting(cap=1))
    waited = plane.requests.of("latency").mean() - mean
    assert waited == pytest.approx(rate * square / (2.0 * (1.0 - load)), rel=0.06)
    assert plane.state[0]["busy_seconds"][0] / 800.0 == pytest.approx(load, rel=0.02)


@settings(max_examples=8, deadline=None)
@given(rule=st.integers(WidthRule.SLIMMEST, WidthRule.ANY), seed=st.integers(0, 2**31))
def test_no_policy_serves_more_than_the_planning_problem_allows(rule: int, seed: int) -> None:
    devices = six()
    fleet = Fleet(
        base_seconds=tuple(device.base_seconds for device in devices),
        row_seconds=tuple(device.row_seconds for device in devices),
        dynamic_watts=tuple(device.dynamic_watts for device in devices),
        idle_watts=tuple(device.idle_watts for device in devices),
        accuracy=tuple(width.accuracy for width in WIDTHS),
        flops_ratio=tuple(width.flops_ratio for width in WIDTHS),
    )
    plane = route(
        replace(Scene(devices), noise=0.0), rate=12_000.0, seconds=2.0, seed=seed,
        row=setting(rule),
    )  # fmt: skip
    s, q = plane.state[0], plane.requests
    answered = np.isfinite(q.of("latency"))
    accuracy = np.array([width.accuracy for width in WIDTHS])[q.of("width")[answered]].mean()
    assert answered.sum() / s["now"] <= capacity(fleet, min_accuracy=accuracy) * (1.0 + 1e-9)
    assert (s["busy_seconds"] <= s["now"] * (1.0 + 1e-9)).all()
