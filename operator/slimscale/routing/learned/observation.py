"""What the learned router sees: arrays of `layout`, built from the views of pods.

The arrays live as long as the builder and are overwritten by the next `build`: a decision costs a few
float writes a pod, and a pod's cells are written anew only when its telemetry has changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slimscale.domain.serving import PodTelemetry
from slimscale.routing.feasibility import may_take
from slimscale.routing.learned import layout
from slimscale.routing.learned.objective import Objective
from slimscale.routing.policy import PodView, RequestView, Width
from slimscale.routing.service_times import ServiceTime, ServiceTimes, finite_or

__all__ = ["FloatArray", "Observation", "ObservationBuilder"]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

_NO_ROWS: Mapping[str, int] = {}
_MOST = 1e4
"""Bound of what is only ever compared: seconds, ratios."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One decision's input; shapes and units are in `layout`."""

    cells: FloatArray
    pods: FloatArray
    widths: FloatArray
    request: FloatArray
    service: FloatArray
    mask: BoolArray


class ObservationBuilder:
    """Builds observations for one service. Not for use from two threads at once."""

    def __init__(
        self, *, widths: Sequence[Width], max_batch_rows: int, objective: Objective | None = None
    ) -> None:
        self.widths = tuple(widths)
        self._models = [width.model for width in self.widths]
        self._accuracy = np.array([width.accuracy for width in self.widths])
        self._traits = np.array([[w.accuracy, w.flops_ratio] for w in self.widths])
        self._most_rows = float(max(1, max_batch_rows))
        self._request = np.zeros(layout.REQUEST)
        self._service = np.zeros(layout.SERVICE)
        self._times = ServiceTimes()
        self._names: list[str] = []
        self._written: list[tuple[PodTelemetry | None, object]] = []
        self.set_objective(objective or Objective())
        self._resize([])

    def set_objective(self, objective: Objective) -> None:
        service = self._service
        service[layout.SERVICE_ACCURACY_WEIGHT] = objective.accuracy
        service[layout.SERVICE_LATENCY_WEIGHT] = objective.latency
        service[layout.SERVICE_ENERGY_WEIGHT] = objective.energy
        service[layout.SERVICE_MISS_WEIGHT] = objective.miss
        service[layout.SERVICE_MAX_BATCH_ROWS] = self._most_rows

    @property
    def deployed(self) -> BoolArray:
        """(P, W) of the last build: where a width is deployed, whether or not its pod is well."""
        return self._deployed

    def build(
        self,
        request: RequestView,
        pods: Sequence[PodView],
        *,
        arrivals: tuple[float, float],
        planned_load: float | None = None,
        slowdowns: Mapping[str, float] | None = None,
    ) -> Observation:
        """The observation of this request. `arrivals`: (fast, slow) rows a second.

        `slowdowns`: by pod's name, see POD_SLOWDOWN. Pods may come and go and change their order.
        """
        names = [pod.name for pod in pods]
        if names != self._names:
            self._resize(names)
        self._write_cells(pods)
        self._write_pods(request, pods, slowdowns or {})
        self._write_request(request, arrivals, planned_load)
        mask = self._takes[:, None] & self._deployed
        if request.min_accuracy > 0.0:
            mask &= self._accuracy >= request.min_accuracy
        return Observation(
            self._cells, self._pods, self._traits, self._request, self._service, mask
        )

    def _resize(self, names: list[str]) -> None:
        pods, widths = len(names), len(self.widths)
        self._times.forget(names)
        self._names = names
        self._written = [(None, None)] * pods
        self._cells = np.zeros((pods, widths, layout.CELLS))
        self._pods = np.zeros((pods, layout.PODS))
        self._deployed = np.zeros((pods, widths), dtype=np.bool_)
        self._takes = np.zeros(pods, dtype=np.bool_)
        self._told_rows = np.zeros((pods, widths))
        self._sent_rows = np.zeros((pods, widths))
        self._sent: list[bool] = [False] * pods

    def _write_cells(self, pods: Sequence[PodView]) -> None:
        """What rests on telemetry alone, where that has changed."""
        for index, (pod, times) in enumerate(
            zip(pods, self._times.of_all(pods, self.widths), strict=True)
        ):
            telemetry, seen = self._written[index]
            if telemetry is pod.telemetry and seen is times:
                continue
            self._written[index] = (pod.telemetry, times)
            self._cells[index] = [_cell(time) for time in times]
            self._deployed[index] = [time is not None for time in times]
            queued = (
                {width.model: width.queued_rows for width in pod.telemetry.widths}
                if pod.telemetry is not None
                else _NO_ROWS
            )
            self._told_rows[index] = [queued.get(model, 0) for model in self._models]

    def _write_pods(
        self, request: RequestView, pods: Sequence[PodView], slowdowns: Mapping[str, float]
    ) -> None:
        figures: list[tuple[float, ...]] = []
        takes: list[bool] = []
        anything_sent = False
        for index, pod in enumerate(pods):
            telemetry, sent = pod.telemetry, pod.in_flight_rows
            if sent:
                self._sent_rows[index] = [sent.get(model, 0) for model in self._models]
                self._sent[index] = anything_sent = True
            elif self._sent[index]:
                self._sent_rows[index] = 0.0
                self._sent[index] = False
            age = min(finite_or(pod.telemetry_age_seconds, _MOST), _MOST)
            overdue = min(finite_or(pod.overdue_seconds, 0.0), _MOST)
            backlog = finite_or(telemetry.backlog_seconds, 0.0) if telemetry is not None else 0.0
            figures.append((
                min(max(backlog - age, 0.0), _MOST) + overdue,
                age,
                0.0,
                overdue,
                1.0 if pod.ejected and not pod.probing else 0.0,
                _watts(pod),
                min(max(slowdowns.get(pod.name, 1.0), 0.0), _MOST),
                finite_or(pod.link_seconds, 0.0),
            ))  # fmt: skip
            takes.append(may_take(pod, request))
        if not figures:
            return
        self._pods[:] = figures
        self._takes[:] = takes
        cells, rows = self._cells, self._sent_rows
        np.add(self._told_rows, rows, out=cells[:, :, layout.CELL_QUEUED_ROWS])
        if anything_sent:
            row = cells[:, :, layout.CELL_ROW_SECONDS]
            base = cells[:, :, layout.CELL_SERVICE_SECONDS] - row
            work = np.ceil(rows / self._most_rows) * base + rows * row
            self._pods[:, layout.POD_DRAIN_SECONDS] += work.sum(axis=1)
            self._pods[:, layout.POD_IN_FLIGHT_ROWS] = rows.sum(axis=1)

    def _write_request(
        self, request: RequestView, arrivals: tuple[float, float], planned_load: float | None
    ) -> None:
        fast, slow = arrivals
        self._request[:] = (
            min(max(request.deadline_seconds, 0.0), _MOST),
            request.slo_seconds,
            request.rows,
            request.min_accuracy,
        )
        self._service[: layout.SERVICE_ACCURACY_WEIGHT] = (
            fast,
            slow,
            fast / slow if slow > 0.0 else 1.0,
            slow if planned_load is None else planned_load,
        )


def _cell(time: ServiceTime | None) -> tuple[float, ...]:
    if time is None:
        return 0.0, 0.0, 0.0, 0.0, 0.0
    return (
        time.base_seconds + time.row_seconds,
        time.row_seconds,
        0.0,
        0.0 if time.load_seconds > 0.0 else 1.0,
        time.load_seconds,
    )


def _watts(pod: PodView) -> float:
    told = pod.telemetry.power_watts if pod.telemetry is not None else None
    for watts in (told, pod.power_watts):
        if watts is not None and 0.0 < watts < _MOST:
            return watts
    return 0.0
