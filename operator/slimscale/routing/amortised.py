"""The learned router at a heuristic's price: one look of the network serves the requests of 40 ms.

Between two looks only delays move much: by what this router sends, by time, by telemetry. They are
known afresh for each request (the shield needs them anyway), and the scores follow them to first order:

    score(p, w) = s_0 + k (d - d_0),      k = (s(drain + delta) - s_0) / delta

A request that is sent to an empty queue makes room in a batch for the next one there, which no line
tells: that cell's score is then the one that a look has worked out for it with something queued. Where
the chosen delay has moved so far that a line says little, the network looks again. It costs about ten
times a heuristic's decision, nearly all of it calls of NumPy on small arrays.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import NamedTuple

import numpy as np

from slimscale.routing.expected_delay import Candidate
from slimscale.routing.learned import layout
from slimscale.routing.learned.features import SLACK_CENTRE, cell_features, regime_features
from slimscale.routing.learned.network import HOLD, correction, scores
from slimscale.routing.learned.objective import Objective
from slimscale.routing.learned.observation import FloatArray, Observation
from slimscale.routing.learned.prices import PriceTable
from slimscale.routing.learned.router import LearnedRouter
from slimscale.routing.learned.weights import PolicyWeights
from slimscale.routing.looks import Kind, Look, best_of, kind_of, two_digits
from slimscale.routing.policy import PodView, RequestView, Route, Width
from slimscale.routing.shielded import DecisionTrace, Pick, Slowdowns

__all__ = ["AmortisedRouter"]

LOOK_SECONDS = 0.04
LEAST_LOOK_SECONDS = 0.005
"""Between two looks for the same kind of request, however far delays have moved."""
MOVED_SLOS = 0.05
"""A chosen delay that has moved by so much of the SLO is looked at again."""
_MOST_KINDS = 32
_DELTA_SLOS = 0.05


class _Picked(NamedTuple):
    request: RequestView
    pods: Sequence[PodView]
    chosen: Candidate
    rows: int
    holds: bool


class AmortisedRouter(LearnedRouter):
    """Proposes among candidates whose delays are worked out; see `routing.shielded`."""

    is_frozen = True
    """It learns nothing while routing: nobody needs to tell it how its routes end."""

    def __init__(
        self,
        weights: PolicyWeights,
        *,
        widths: Sequence[Width],
        max_batch_rows: int,
        objective: Objective | None = None,
    ) -> None:
        super().__init__(weights, widths=widths, max_batch_rows=max_batch_rows, objective=objective)
        self._most_rows = max(1, max_batch_rows)
        self._looks: dict[Kind, Look] = {}
        self._picked: _Picked | None = None
        self._slowdowns: Slowdowns = dict
        self._new_rows = 0
        self._new_moment = 0.0

    def follow(self, slowdowns: Slowdowns) -> None:
        """Read at each look."""
        self._slowdowns = slowdowns

    def arrived(self, rows: int, *, now: float) -> None:
        """Only noted: the rates get all rows since the last look at once, at their mean time."""
        self._now = now
        self._new_rows += rows
        self._new_moment += rows * now

    def choose(
        self, request: RequestView, pods: Sequence[PodView], widths: Sequence[Width], rng: Random
    ) -> Route | None:
        self._picked = None
        self._count_arrivals()
        return super().choose(request, pods, widths, rng)

    def pick(
        self,
        candidates: Sequence[Candidate],
        delays: Sequence[float],
        request: RequestView,
        pods: Sequence[PodView],
        rng: Random,
    ) -> Pick | None:
        """`candidates`: all feasible ones of `pods`, at least one; `delays`: what they expect."""
        kind = kind_of(request)
        look = self._looks.get(kind)
        now = self._now
        if look is None or now - look.at >= LOOK_SECONDS or now < look.at:
            look = self._look(kind, candidates, delays, request, pods)
        index, place = best_of(look, candidates, delays, pods, rng=rng)
        moved = 0.0 if place is None else abs(delays[index] - look.delays[place])
        if place is None or moved > MOVED_SLOS * kind[0]:
            if now - look.at >= LEAST_LOOK_SECONDS or place is None:
                look = self._look(kind, candidates, delays, request, pods)
                index, place = best_of(look, candidates, delays, pods, rng=rng)
            if place is None:
                return None
        chosen, cap = candidates[index], look.caps[place]
        holds = cap > 0.0
        rows = int(cap) if holds else self._most_rows
        look.offsets[place], look.caps[place] = look.joined_offsets[place], look.joined_caps[place]
        self._picked = _Picked(request, pods, chosen, rows, holds)
        return Pick(chosen, rows, _hold_seconds(chosen, cap, request) if holds else 0.0)

    def trace(self) -> DecisionTrace | None:
        """Of the last pick, as the network sees it without the line."""
        if self._picked is None:
            return super().trace()
        request, pods, chosen, rows, holds = self._picked
        observation, table = self._observe(request, pods)
        greedy, gain, caps = scores(observation, table, self.weights)
        names = tuple(pod.name for pod in pods)
        pod, width = names.index(chosen.pod.name), self._widths.index(chosen.width)
        held = np.where(caps > 0.0, greedy + gain, -np.inf)
        mine = held[pod, width] if holds else greedy[pod, width]
        top = max(greedy.max(), held.max())
        sharpness = self.weights.sharpness
        total = np.exp((greedy - top) * sharpness).sum() + np.exp((held - top) * sharpness).sum()
        log_probability = float((mine - top) * sharpness - np.log(total))
        copies = (observation.cells, observation.pods, observation.request, observation.service)
        cells, figures, asked, service = (one.copy() for one in copies)
        kept = Observation(
            cells, figures, observation.widths, asked, service, observation.mask.copy()
        )
        cap = max(i for i, most in enumerate(layout.ACTION_CAPS) if i == 0 or most <= rows)
        if not np.isfinite(log_probability):
            return None
        return DecisionTrace(kept, names, (pod, width, cap, int(holds)), log_probability)

    # ---- a look

    def _count_arrivals(self) -> None:
        rows = self._new_rows
        if rows:
            self._rates.arrived(rows, now=self._new_moment / rows)
            self._new_rows, self._new_moment = 0, 0.0

    def _observe(
        self, request: RequestView, pods: Sequence[PodView]
    ) -> tuple[Observation, PriceTable]:
        slo = two_digits(request.slo_seconds)
        asked = replace(request, slo_seconds=slo)
        self._count_arrivals()
        arrivals = self._rates.per_second(now=self._now)
        observation = self._builder.build(
            asked, pods, arrivals=arrivals, slowdowns=self._slowdowns()
        )
        names = tuple(pod.name for pod in pods)
        return observation, self._plan(observation, names, slo)

    def _look(
        self,
        kind: Kind,
        candidates: Sequence[Candidate],
        delays: Sequence[float],
        request: RequestView,
        pods: Sequence[PodView],
    ) -> Look:
        observation, table = self._observe(request, pods)
        regime = regime_features(observation, table.capacity)
        coefficients = self.weights.start + self.weights.slopes @ regime
        value, caps = self._values(observation, table, regime, coefficients)
        queued = observation.cells[:, :, layout.CELL_QUEUED_ROWS]
        queued += request.rows
        joined, joined_caps = self._values(observation, table, regime, coefficients)
        queued -= request.rows
        delta = max(0.001, _DELTA_SLOS * kind[0])
        observation.pods[:, layout.POD_DRAIN_SECONDS] += delta
        later, _ = self._values(observation, table, regime, coefficients)
        slope = np.minimum((later - value) / delta, 0.0)
        places = {
            (pods[pod].name, self._widths[width].model): (pod, width)
            for pod, width in np.argwhere(observation.mask)
        }
        found = [places[one.pod.name, one.width.model] for one in candidates]
        rows, columns = [place[0] for place in found], [place[1] for place in found]
        slopes = slope[rows, columns]
        line = slopes * np.asarray(delays)
        look = Look(
            at=self._now,
            pods=[pod.name for pod in pods],
            whole=len(candidates) == len(pods) * int(observation.mask.any(axis=0).sum()),
            offsets=(value[rows, columns] - line).tolist(),
            slopes=slopes.tolist(),
            delays=list(delays),
            caps=caps[rows, columns].tolist(),
            joined_offsets=(joined[rows, columns] - line).tolist(),
            joined_caps=joined_caps[rows, columns].tolist(),
            places={(one.pod.name, one.width.model): i for i, one in enumerate(candidates)},
        )
        if len(self._looks) >= _MOST_KINDS:
            self._looks.clear()
        self._looks[kind] = look
        return look

    def _values(
        self,
        observation: Observation,
        table: PriceTable,
        regime: FloatArray,
        coefficients: FloatArray,
    ) -> tuple[FloatArray, FloatArray]:
        """((P, W) of the better of batching greedily and holding, (P, W) cap when holding, else 0)."""
        phi, caps = cell_features(observation, table)
        value = phi[:, :, :HOLD] @ coefficients[:HOLD]
        if self.weights.residual is not None:
            value += correction(phi, regime, self.weights.residual)
        gain = phi[:, :, HOLD] * coefficients[HOLD]
        holds = (caps > 0.0) & (gain > 0.0)
        return np.where(holds, value + gain, value), np.where(holds, caps, 0.0)


def _hold_seconds(chosen: Candidate, cap: float, request: RequestView) -> float:
    """How long a batch of the cap may be waited for within the slack."""
    budget = SLACK_CENTRE * min(request.slo_seconds, request.deadline_seconds)
    return max(0.0, budget - chosen.time.base_seconds - cap * chosen.time.row_seconds)
