"""Where to cut the segmented network between two pools: near the client, and behind a link.

    T(c) = edge drain + sum_{i <= c} edge_i + latency + bytes(c) / bandwidth + server drain + sum_{i > c} server_i

Cut c runs the first c segments on the edge: 0 sends the image, the last answers without the server. This
is the cut-layer choice of split learning (science brief 3, after arXiv 2303.15991) for inference; its
training side, the aggregated gradients, is out of scope.
"""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["CutCosts", "best_cut", "cut_seconds", "cut_thresholds"]


@dataclass(frozen=True, slots=True)
class CutCosts:
    """Of one request at one width, S segments."""

    edge_seconds: tuple[float, ...]
    """[S] of each segment on the edge."""
    server_seconds: tuple[float, ...]
    """[S]."""
    cut_bytes: tuple[int, ...]
    """[S + 1] what goes over the link: the image, the activations after each segment, the answer."""

    def __post_init__(self) -> None:
        count = len(self.edge_seconds)
        if len(self.server_seconds) != count or len(self.cut_bytes) != count + 1:
            raise ValueError(
                f"{count} segments on the edge need {count} server_seconds and {count + 1}"
                f" cut_bytes; there are {len(self.server_seconds)} and {len(self.cut_bytes)}"
            )

    @property
    def segments(self) -> int:
        return len(self.edge_seconds)


def cut_seconds(
    costs: CutCosts,
    *,
    bytes_per_second: float,
    link_seconds: float = 0.0,
    edge_drain_seconds: float = 0.0,
    server_drain_seconds: float = 0.0,
) -> list[float]:
    """[S + 1] expected seconds until the answer of each cut. Drains count where a pool is used.

    The answer of the last cut is at the edge already: it does not cross the link.
    """
    if not bytes_per_second > 0.0:
        raise ValueError(f"bytes_per_second is {bytes_per_second:g}; give more than 0")
    found = []
    for cut in range(costs.segments + 1):
        seconds = 0.0
        if cut > 0:
            seconds += edge_drain_seconds + sum(costs.edge_seconds[:cut])
        if cut < costs.segments:
            seconds += link_seconds + costs.cut_bytes[cut] / bytes_per_second
            # The server's queue drains while the edge computes and the link carries.
            seconds = max(seconds, server_drain_seconds) + sum(costs.server_seconds[cut:])
        found.append(seconds)
    return found


def best_cut(
    costs: CutCosts,
    *,
    bytes_per_second: float,
    link_seconds: float = 0.0,
    edge_drain_seconds: float = 0.0,
    server_drain_seconds: float = 0.0,
) -> int:
    """The cut that answers soonest; among equals the one that leaves more to the server."""
    seconds = cut_seconds(
        costs,
        bytes_per_second=bytes_per_second,
        link_seconds=link_seconds,
        edge_drain_seconds=edge_drain_seconds,
        server_drain_seconds=server_drain_seconds,
    )
    return min(range(len(seconds)), key=lambda cut: (seconds[cut], cut))


def cut_thresholds(
    costs: CutCosts, bandwidths: Sequence[float], *, link_seconds: float = 0.0
) -> list[int]:
    """The best cut at each bandwidth (bytes a second), with both pools idle."""
    return [
        best_cut(costs, bytes_per_second=bandwidth, link_seconds=link_seconds)
        for bandwidth in bandwidths
    ]
