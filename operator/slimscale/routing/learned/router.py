"""The learned router as a routing policy: observation, network and plan behind the protocol.

The plan is worked out again at most once a second, in few steps from the last one (about 3 ms at 8
pods), since prices move slowly. Not for use from two threads at once. The shield around it is
`slimscale.routing.shielded`; nothing here decides whether a choice may stand.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np

from slimscale.routing.learned import layout
from slimscale.routing.learned.arrivals import ArrivalRates
from slimscale.routing.learned.features import SLACK_CENTRE
from slimscale.routing.learned.network import Choice, choose
from slimscale.routing.learned.objective import Objective
from slimscale.routing.learned.observation import Observation, ObservationBuilder
from slimscale.routing.learned.prices import PriceTable, SloClass
from slimscale.routing.learned.weights import PolicyWeights
from slimscale.routing.policy import Outcome, PodView, RequestView, Route, Width
from slimscale.routing.shielded import DecisionTrace

__all__ = ["LearnedRouter"]

_REFRESH_SECONDS = 1.0
_REASON = "Learned"
_CLASSES = 8
"""SLOs that the plan tells apart; the rarest go first."""
_FADE = 0.999
"""Of a class's share, a request."""


class LearnedRouter:
    """Routes for one service by `weights`. See `slimscale.routing.shielded.LearnedPolicy`."""

    name = "PPO"

    def __init__(
        self,
        weights: PolicyWeights,
        *,
        widths: Sequence[Width],
        max_batch_rows: int,
        objective: Objective | None = None,
    ) -> None:
        self.weights = weights
        self._widths = tuple(widths)
        self._builder = ObservationBuilder(
            widths=self._widths, max_batch_rows=max_batch_rows, objective=objective
        )
        self._rates = ArrivalRates()
        self._now = 0.0
        self._table: PriceTable | None = None
        self._planned_at = -np.inf
        self._planned_for: tuple[str, ...] = ()
        self._shares: dict[float, float] = {}
        self._seen: tuple[Observation, tuple[str, ...], Choice] | None = None

    def arrived(self, rows: int, *, now: float) -> None:
        self._now = now
        self._rates.arrived(rows, now=now)

    def choose(
        self,
        request: RequestView,
        pods: Sequence[PodView],
        widths: Sequence[Width],  # noqa: ARG002 - those of the service, as it was made for
        rng: Random,  # noqa: ARG002 - its choice is the most probable one
    ) -> Route | None:
        self._seen = None
        if not pods:
            return None
        arrivals = self._rates.per_second(now=self._now)
        observation = self._builder.build(request, pods, arrivals=arrivals)
        names = tuple(pod.name for pod in pods)
        table = self._plan(observation, names, request.slo_seconds)
        choice = choose(observation, table, self.weights)
        if choice is None:
            return None
        self._seen = (observation, names, choice)
        cells, figures = observation.cells, observation.pods
        row = cells[choice.pod, choice.width]
        start = max(figures[choice.pod, layout.POD_DRAIN_SECONDS], row[layout.CELL_LOAD_SECONDS])
        service = row[layout.CELL_SERVICE_SECONDS]
        service += (request.rows - 1) * row[layout.CELL_ROW_SECONDS]
        expected = float(start + service + figures[choice.pod, layout.POD_LINK_SECONDS])
        return Route(
            pod=names[choice.pod],
            width=self._widths[choice.width],
            batch_cap=max(choice.cap, request.rows),
            expected_seconds=expected,
            reason=_REASON,
            hold_seconds=_hold_seconds(choice, row, request) if choice.hold else 0.0,
        )

    def learn(self, outcome: Outcome) -> None:
        """Nothing is learnt while routing: see `slimscale.training.router`."""

    def trace(self) -> DecisionTrace | None:
        """Of the last choice."""
        if self._seen is None:
            return None
        seen, names, choice = self._seen
        kept = Observation(
            seen.cells.copy(),
            seen.pods.copy(),
            seen.widths,
            seen.request.copy(),
            seen.service.copy(),
            seen.mask.copy(),
        )
        cap = max(i for i, rows in enumerate(layout.ACTION_CAPS) if i == 0 or rows <= choice.cap)
        action = (choice.pod, choice.width, cap, int(choice.hold))
        return DecisionTrace(kept, names, action, choice.log_probability)

    def _plan(
        self, observation: Observation, names: tuple[str, ...], slo_seconds: float
    ) -> PriceTable:
        """The plan in use; worked out anew when its time has come or the pods are others."""
        known = slo_seconds in self._shares
        for slo in self._shares:
            self._shares[slo] *= _FADE
        self._shares[slo_seconds] = self._shares.get(slo_seconds, 0.0) + 1.0
        table = self._table
        due = self._now - self._planned_at >= _REFRESH_SECONDS
        if table is not None and known and not due and names == self._planned_for:
            return table
        if len(self._shares) > _CLASSES:
            rarest = min(self._shares, key=lambda slo: (slo == slo_seconds, self._shares[slo]))
            del self._shares[rarest]
        classes = [SloClass(slo, share) for slo, share in sorted(self._shares.items())]
        slos = [one.slo_seconds for one in classes]
        if table is None or [one.slo_seconds for one in table.classes] != slos:
            table = PriceTable(classes, hurried=True)
        else:
            table.classes = tuple(classes)
        well = replace(observation, mask=self._builder.deployed)
        table.refresh(well)
        self._table, self._planned_at, self._planned_for = table, self._now, names
        return table


def _hold_seconds(choice: Choice, cell: np.ndarray, request: RequestView) -> float:
    """How long a batch of the cap may be waited for within the slack; the pod bounds it again."""
    row = float(cell[layout.CELL_ROW_SECONDS])
    base = float(cell[layout.CELL_SERVICE_SECONDS]) - row
    budget = SLACK_CENTRE * min(request.slo_seconds, request.deadline_seconds)
    return max(0.0, budget - base - choice.cap * row)
