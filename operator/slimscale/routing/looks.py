"""What one look of the learned router's network leaves for the requests that follow it."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log10
from random import Random

from slimscale.routing.expected_delay import Candidate
from slimscale.routing.policy import PodView, RequestView

__all__ = ["Kind", "Look", "best_of", "kind_of", "two_digits"]

NEAR = 0.002
"""J: choices no further apart count as equal, or all routers would send to the same one of equal pods."""

Kind = tuple[float, float, int, float]
"""SLO and deadline in seconds, rows, least accuracy: requests of one kind share a look."""


@dataclass(slots=True)
class Look:
    """What one look of the network gave, one entry a candidate."""

    at: float
    pods: list[str]
    """Names; with the same pods, and every width on each, the candidates are the same."""
    whole: bool
    """Every pod has every width that is accurate enough."""
    offsets: list[float]
    """s_0 - k d_0."""
    slopes: list[float]
    delays: list[float]
    caps: list[float]
    """When holding; 0: it does not hold."""
    joined_offsets: list[float]
    """The same two, with rows of this request queued already."""
    joined_caps: list[float]
    places: dict[tuple[str, str], int]
    """By pod and model, for when some candidates are missing."""


def best_of(
    look: Look,
    candidates: Sequence[Candidate],
    delays: Sequence[float],
    pods: Sequence[PodView],
    *,
    rng: Random,
) -> tuple[int, int | None]:
    """Index of the best candidate, and its place in the look; None: it has none of them."""
    same = look.whole and len(candidates) == len(look.offsets)
    if same and [pod.name for pod in pods] == look.pods:
        values = [
            offset + slope * delay
            for offset, slope, delay in zip(look.offsets, look.slopes, delays, strict=True)
        ]
        index = _near_best(values, rng)
        return index, index
    known = [
        (index, place)
        for index, one in enumerate(candidates)
        if (place := look.places.get((one.pod.name, one.width.model))) is not None
    ]
    if not known:
        return 0, None
    values = [look.offsets[place] + look.slopes[place] * delays[index] for index, place in known]
    return known[_near_best(values, rng)]


def _near_best(values: list[float], rng: Random) -> int:
    limit = max(values) - NEAR
    near = [index for index, value in enumerate(values) if value >= limit]
    return near[0] if len(near) == 1 else near[int(rng.random() * len(near))]


def kind_of(request: RequestView) -> Kind:
    """What requests share a look: SLO and deadline to two digits, rows, accuracy."""
    slo = two_digits(request.slo_seconds)
    deadline = request.deadline_seconds
    late = two_digits(deadline) if deadline < request.slo_seconds else 0.0
    return slo, late, request.rows, request.min_accuracy


def two_digits(seconds: float) -> float:
    """What is left of an SLO differs with each request by what has passed since it came."""
    if seconds <= 0.0:
        return 0.001
    return round(seconds, 1 - floor(log10(seconds)))
