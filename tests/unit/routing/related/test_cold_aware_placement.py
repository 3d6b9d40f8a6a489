"""Placement of segments whose loads overlap: exact, never worse than planning with sums."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slimscale.routing.related.placement import (
    Placement,
    Stretch,
    place_segments,
    placement_seconds,
)

Grid = list[list[float]]
SECONDS = st.floats(0.0, 3.0)


@st.composite
def _cases(draw: st.DrawFn) -> tuple[Grid, Grid, list[float]]:
    devices, segments = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    grid = st.lists(
        st.lists(SECONDS, min_size=segments, max_size=segments), min_size=devices, max_size=devices
    )
    ends = st.lists(SECONDS, min_size=segments + 1, max_size=segments + 1)
    return draw(grid), draw(grid), draw(ends)


def _all(devices: int, segments: int) -> list[tuple[Stretch, ...]]:
    """Every assignment in which each device runs one stretch."""
    found = []
    for owners in product(range(devices), repeat=segments):
        stretches: list[Stretch] = []
        for segment, device in enumerate(owners):
            if stretches and stretches[-1].device == device:
                stretches[-1] = Stretch(device, stretches[-1].first, segment + 1)
            else:
                stretches.append(Stretch(device, segment, segment + 1))
        if len({one.device for one in stretches}) == len(stretches):
            found.append(tuple(stretches))
    return found


@settings(max_examples=25, deadline=None)
@given(_cases())
def test_the_programme_finds_what_trying_all_placements_finds(
    case: tuple[Grid, Grid, list[float]],
) -> None:
    load, compute, transfer = case
    best = place_segments(
        load_seconds=load, compute_seconds=compute, transfer_seconds=transfer
    ).seconds
    by_hand = min(
        placement_seconds(
            one, load_seconds=load, compute_seconds=compute, transfer_seconds=transfer
        )
        for one in _all(len(load), len(load[0]))
    )
    assert best == pytest.approx(by_hand, abs=1e-12)


def _planned(load: Grid, compute: Grid, transfer: list[float], *, overlapped: bool) -> Placement:
    return place_segments(
        load_seconds=load, compute_seconds=compute, transfer_seconds=transfer, overlapped=overlapped
    )


@settings(max_examples=25, deadline=None)
@given(_cases())
def test_planning_with_the_longer_of_load_and_drain_is_never_worse_than_with_their_sum(
    case: tuple[Grid, Grid, list[float]],
) -> None:
    load, compute, transfer = case
    serial = _planned(load, compute, transfer, overlapped=False)
    aware = _planned(load, compute, transfer, overlapped=True)
    really = placement_seconds(
        serial.stretches, load_seconds=load, compute_seconds=compute, transfer_seconds=transfer
    )
    assert aware.seconds <= really + 1e-12
    assert really <= serial.seconds + 1e-12


def test_a_second_device_loads_its_segments_while_the_first_computes() -> None:
    """Alone, device 0 loads 3 s before it can begin. Two load half each at once, and the sum's plan
    does not see that the second load is free."""
    load = [[1.0, 1.0, 1.0], [1.2, 1.2, 1.2]]
    compute = [[0.8, 0.8, 0.8], [0.8, 0.8, 0.8]]
    transfer = [0.05, 0.05, 0.05, 0.0]
    aware = _planned(load, compute, transfer, overlapped=True)
    # The slower loader takes one segment; the other's two are there before the first is done.
    assert aware.stretches == (Stretch(1, 0, 1), Stretch(0, 1, 3))
    assert aware.seconds == pytest.approx(1.2 + 0.8 + 0.05 + 1.6 + 0.05 - 0.05)
    alone = placement_seconds(
        [Stretch(0, 0, 3)], load_seconds=load, compute_seconds=compute, transfer_seconds=transfer
    )
    assert alone == pytest.approx(3.0 + 2.4)
    serial = _planned(load, compute, transfer, overlapped=False)
    assert serial.stretches == (Stretch(0, 0, 3),)


def test_warm_segments_pull_the_request_to_their_device() -> None:
    load = [[0.0, 0.0], [2.0, 2.0]]
    compute = [[0.5, 0.5], [0.1, 0.1]]
    assert _planned(load, compute, [0.1, 0.1, 0.0], overlapped=True).stretches == (
        Stretch(0, 0, 2),
    )


def test_wrong_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="give 3: the image's and one after each segment"):
        _planned([[1.0, 1.0]], [[1.0, 1.0]], [0.0], overlapped=True)
