"""The cut layer moves with the link, the queues and the devices; never to a slower place."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slimscale.routing.related.cut_layer import CutCosts, best_cut, cut_seconds, cut_thresholds

# Activations shrink, as in most networks behind their first layers.
SHRINKING = CutCosts(
    edge_seconds=(0.010, 0.020, 0.030),
    server_seconds=(0.001, 0.002, 0.003),
    cut_bytes=(60_000, 30_000, 8_000, 40),
)


def test_a_slower_link_moves_the_cut_towards_the_edge() -> None:
    cuts = cut_thresholds(SHRINKING, [1e3, 5e5, 1.5e6, 1e8])
    assert cuts == [3, 2, 1, 0]


def test_a_queue_at_the_server_moves_the_cut_towards_the_edge_and_one_at_the_edge_away() -> None:
    fast = {"bytes_per_second": 1.5e6}
    assert best_cut(SHRINKING, **fast) == 1
    assert best_cut(SHRINKING, **fast, server_drain_seconds=0.2) == 3
    assert best_cut(SHRINKING, **fast, edge_drain_seconds=0.05) == 0


def test_the_servers_queue_drains_while_the_edge_computes() -> None:
    """So a cut late in the network costs nothing more until its turn comes."""
    waits = cut_seconds(SHRINKING, bytes_per_second=1e9, server_drain_seconds=0.025)
    assert waits[0] == pytest.approx(0.025 + 0.006)
    assert waits[1] == pytest.approx(0.025 + 0.005)  # the first segment fits into the wait


seconds = st.lists(st.floats(0.0, 0.1), min_size=3, max_size=3).map(tuple)


@settings(max_examples=40, deadline=None)
@given(
    edge=seconds, server=seconds, sizes=st.lists(st.integers(0, 10**6), min_size=4, max_size=4),
    bandwidth=st.floats(1e3, 1e9), link=st.floats(0.0, 0.1),
)  # fmt: skip
def test_no_other_cut_is_faster(
    edge: tuple[float, ...], server: tuple[float, ...], sizes: list[int], bandwidth: float,
    link: float,
) -> None:  # fmt: skip
    costs = CutCosts(edge, server, tuple(sizes))
    chosen = best_cut(costs, bytes_per_second=bandwidth, link_seconds=link)
    by_hand = [
        sum(edge[:c]) + (link + sizes[c] / bandwidth + sum(server[c:]) if c < 3 else 0.0)
        for c in range(4)
    ]
    assert by_hand[chosen] <= min(by_hand) + 1e-12


def test_wrong_sizes_and_links_are_refused() -> None:
    with pytest.raises(ValueError, match="need 2 server_seconds and 3 cut_bytes"):
        CutCosts((1.0, 1.0), (1.0,), (1, 1, 1))
    with pytest.raises(ValueError, match="give more than 0"):
        best_cut(SHRINKING, bytes_per_second=0.0)
