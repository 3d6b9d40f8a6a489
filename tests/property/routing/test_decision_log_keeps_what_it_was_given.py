"""A decision log gives back what it was given, and refuses what is none."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load, save

from slimscale.routing.decision_records import (
    DecisionRecord,
    decode_segment,
    encode_segment,
)
from slimscale.routing.learned import layout
from slimscale.routing.learned.observation import Observation

WIDTHS = np.array([[0.7, 0.1], [0.76, 1.0]])


def record(pods: int, seed: int) -> DecisionRecord:
    draw = np.random.default_rng(seed)

    def figures(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        return draw.random(shape).astype(np.float32).astype(np.float64)

    def action() -> tuple[int, int, int, int]:
        limits = (pods, 2, len(layout.ACTION_CAPS), layout.ACTION_HOLDS)
        pod, width, cap, hold = (int(draw.integers(limit)) for limit in limits)
        return pod, width, cap, hold

    return DecisionRecord(
        Observation(
            figures(pods, 2, layout.CELLS), figures(pods, layout.PODS), WIDTHS,
            figures(layout.REQUEST), figures(layout.SERVICE), draw.random((pods, 2)) > 0.5,
        ),
        proposed=action(), done=action(), acted=bool(draw.integers(2)), log_probability=-0.5,
        at_seconds=float(seed), latency_seconds=0.25, answered=True, met=bool(draw.integers(2)),
        compute_seconds=0.125 if seed % 2 else math.nan, batch_rows=seed % 33, sends=1 + seed % 3,
    )  # fmt: skip


records = st.builds(record, pods=st.integers(1, 9), seed=st.integers(0, 2**31))


@given(kept=st.lists(records, min_size=1, max_size=12))
@settings(max_examples=40, deadline=None)
def test_what_is_written_is_read(kept: list[DecisionRecord]) -> None:
    segment = decode_segment(encode_segment(kept, {"router": "r-1", "policy": "7"}))
    assert segment.facts["router"] == "r-1"
    assert len(segment.records) == len(kept)
    for given_one, read in zip(kept, segment.records, strict=True):
        for name in ("cells", "pods", "request", "service", "mask"):
            there, here = getattr(read.observation, name), getattr(given_one.observation, name)
            assert np.array_equal(there, here), name
        assert np.allclose(read.observation.widths, WIDTHS)
        for name in ("proposed", "done", "acted", "at_seconds", "met", "batch_rows", "sends"):
            assert getattr(read, name) == getattr(given_one, name), name
        assert math.isnan(read.compute_seconds) == math.isnan(given_one.compute_seconds)


@given(cut=st.integers(0, 400))
@settings(max_examples=40, deadline=None)
def test_a_log_that_was_cut_off_is_refused(cut: int) -> None:
    data = encode_segment([record(3, 1)], {})
    with pytest.raises(ValueError, match="decision log"):
        decode_segment(data[: len(data) - 1 - cut])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": "2"}, "version '2', this program reads '1'"),
        ({"format": "weights"}, "another safetensors file"),
        ({"caps": "1,2"}, "caps 1,2, not"),
    ],
)
def test_another_version_is_refused_by_name(change: dict[str, str], says: str) -> None:
    arrays = load(encode_segment([record(2, 1)], {}))
    caps = ",".join(map(str, layout.ACTION_CAPS))
    facts = {"format": "slimscale-decisions", "version": "1", "caps": caps} | change
    with pytest.raises(ValueError, match=says):
        decode_segment(save(arrays, metadata=facts))


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("done", 99, "done has an index out of range"),
        ("proposed", -1, "proposed has an index out of range"),
        ("latency_seconds", math.inf, "latency_seconds has a figure that is not finite"),
        ("cells", math.nan, "cells has a figure that is not finite"),
        ("pod_count", 4, "has shape"),
    ],
)
def test_figures_that_cannot_be_are_refused_by_name(name: str, value: float, says: str) -> None:
    arrays = load(encode_segment([record(2, 1)], {}))
    arrays[name] = arrays[name].copy()
    arrays[name].flat[0] = value
    caps = ",".join(map(str, layout.ACTION_CAPS))
    facts = {"format": "slimscale-decisions", "version": "1", "caps": caps}
    with pytest.raises(ValueError, match=says):
        decode_segment(save(arrays, metadata=facts))
