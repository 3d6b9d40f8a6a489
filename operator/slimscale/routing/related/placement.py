"""Cold-aware placement: which device runs which segments, when all have to be loaded first.

Loading starts everywhere at once and overlaps the computing before it, so a device is ready after the
longer of the two, not their sum (science brief 3, after CSGO, arXiv 2508.11287):

    F_i = max(L_i, F_{i-1} + comm_i) + comp_i        L_i: load of all that device i runs, from time 0

A dynamic programme over (segments done, last device, devices used) minimises the last F. It is exact,
since F grows with the F before it. Each device runs one stretch of segments.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

__all__ = ["Placement", "Stretch", "place_segments", "placement_seconds"]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Segments `first` to `last` - 1 on one device."""

    device: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Placement:
    stretches: tuple[Stretch, ...]
    seconds: float
    """Until the answer of a request that comes while all is cold."""


def place_segments(
    *,
    load_seconds: Sequence[Sequence[float]],
    compute_seconds: Sequence[Sequence[float]],
    transfer_seconds: Sequence[float],
    overlapped: bool = True,
) -> Placement:
    """The placement that answers first. Loads and computing are [devices][segments]; 0 loads are warm.

    `transfer_seconds` [segments + 1]: of the image, and of the activations after each segment, paid
    wherever the next segment runs on another device (the image's always). `overlapped` False plans as
    if loading began only once the input is there: the comparator.
    """
    devices, segments = len(load_seconds), len(load_seconds[0]) if load_seconds else 0
    if not devices or not segments:
        raise ValueError("a placement needs at least one device and one segment")
    if len(transfer_seconds) != segments + 1:
        raise ValueError(
            f"transfer_seconds has {len(transfer_seconds)} figures for {segments} segments; give"
            f" {segments + 1}: the image's and one after each segment"
        )
    best: dict[tuple[int, int, int], tuple[float, tuple[Stretch, ...]]] = {(0, -1, 0): (0.0, ())}
    for first in range(segments):
        reached = [(key, value) for key, value in best.items() if key[0] == first]
        for (_, _, used), (before, stretches) in reached:
            for device in range(devices):
                if used >> device & 1:
                    continue
                for last in range(first + 1, segments + 1):
                    stretch = Stretch(device, first, last)
                    seconds = _after(
                        before, stretch, load_seconds, compute_seconds, transfer_seconds,
                        overlapped=overlapped,
                    )  # fmt: skip
                    key = (last, device, used | 1 << device)
                    if seconds < best.get(key, (inf, ()))[0]:
                        best[key] = (seconds, (*stretches, stretch))
    done = [value for key, value in best.items() if key[0] == segments]
    seconds, stretches = min(done, key=lambda value: value[0])
    return Placement(stretches, seconds)


def placement_seconds(
    stretches: Sequence[Stretch],
    *,
    load_seconds: Sequence[Sequence[float]],
    compute_seconds: Sequence[Sequence[float]],
    transfer_seconds: Sequence[float],
    overlapped: bool = True,
) -> float:
    """What a given placement comes to."""
    seconds = 0.0
    for stretch in stretches:
        seconds = _after(
            seconds, stretch, load_seconds, compute_seconds, transfer_seconds, overlapped=overlapped
        )
    return seconds


def _after(
    before: float,
    stretch: Stretch,
    load_seconds: Sequence[Sequence[float]],
    compute_seconds: Sequence[Sequence[float]],
    transfer_seconds: Sequence[float],
    *,
    overlapped: bool,
) -> float:
    own = slice(stretch.first, stretch.last)
    load = sum(load_seconds[stretch.device][own])
    arrives = before + transfer_seconds[stretch.first]
    start = max(load, arrives) if overlapped else load + arrives
    return start + sum(compute_seconds[stretch.device][own])
