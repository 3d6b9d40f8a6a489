"""The expected delay of a request on each (pod, width): the arithmetic that all policies share.

    serial:     drain + load + service + link          shortest expected delay (SED)
    cold-aware: max(drain, load) + service + link      loading overlaps the drain (science brief 3, CSGO)

`drain` is the time until the pod would begin: its own figure less the telemetry's age, plus the work
of the rows that this router has sent since, plus the time by which its oldest answer is overdue.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from slimscale.routing.feasibility import may_take
from slimscale.routing.policy import PodView, RequestView, Width
from slimscale.routing.service_times import ServiceTime, ServiceTimes, finite_or

__all__ = ["Candidate", "DelayModel", "batch_cap"]


class Candidate(NamedTuple):
    """A pod and width that may take the request. Rows of `service_seconds` are the request's own."""

    pod: PodView
    width: Width
    time: ServiceTime
    drain_seconds: float
    service_seconds: float
    expected_seconds: float
    """Cold-aware: the drain and the load overlap."""

    @property
    def serial_seconds(self) -> float:
        """As if loading began only after the drain."""
        overlap = min(self.drain_seconds, self.time.load_seconds)
        return self.expected_seconds + overlap


_candidate: Callable[[tuple[object, ...]], Candidate] = partial(tuple.__new__, Candidate)
"""Without the detour through Python that a named tuple's own constructor takes."""


class DelayModel:
    """Expected delays. `max_batch_rows` bounds a batch and with it how often `base` is paid."""

    def __init__(self, *, max_batch_rows: int) -> None:
        self.max_batch_rows = max(1, max_batch_rows)
        self._times = ServiceTimes()

    def candidates(
        self, request: RequestView, pods: Sequence[PodView], widths: Sequence[Width]
    ) -> list[Candidate]:
        """All feasible (pod, width) with their delays, in the order of `pods` and `widths`."""
        found: list[Candidate] = []
        rows, accuracy = request.rows, request.min_accuracy
        for pod, times in zip(pods, self._times.of_all(pods, widths), strict=True):
            if not may_take(pod, request):
                continue
            drain = self.drain_seconds(pod, times, widths)
            link = finite_or(pod.link_seconds, 0.0)
            for width, time in zip(widths, times, strict=True):
                if time is None or width.accuracy < accuracy:
                    continue
                base, row, load, _ = time
                service = base + rows * row
                start = load if load > drain else drain
                found.append(_candidate((pod, width, time, drain, service, start + service + link)))
        return found

    def drain_seconds(
        self, pod: PodView, times: Sequence[ServiceTime | None], widths: Sequence[Width]
    ) -> float:
        """Until the pod would begin a new request.

        An answer that is overdue by x is expected to take another x: what hangs, hangs on.
        """
        drain = finite_or(pod.overdue_seconds, 0.0)
        if pod.telemetry is not None:
            backlog = finite_or(pod.telemetry.backlog_seconds, 0.0)
            if backlog:
                drain += max(0.0, backlog - finite_or(pod.telemetry_age_seconds, 0.0))
        if pod.in_flight_rows:
            for width, time in zip(widths, times, strict=True):
                rows = pod.in_flight_rows.get(width.model, 0)
                if rows > 0 and time is not None:
                    batches = -(-rows // self.max_batch_rows)
                    drain += batches * time.base_seconds + rows * time.row_seconds
        return drain

    def forget(self, present: Iterable[str]) -> None:
        self._times.forget(present)


def batch_cap(candidate: Candidate, request: RequestView, *, max_batch_rows: int) -> int:
    """The largest power of two of rows whose batch still ends in time; at least the request's own.

    In time is before the deadline and the SLO, whichever comes first. However long the request has to
    wait, half of that time is the batch's: smaller batches work a queue off more slowly, so that the
    next request would wait longer and its batch be smaller still.
    """
    least = max(1, request.rows)
    budget = min(request.deadline_seconds, request.slo_seconds)
    time = candidate.time
    start = candidate.expected_seconds - candidate.service_seconds
    slack = max(budget - start, budget / 2.0) - time.base_seconds
    cap = 1
    while 2 * cap <= max_batch_rows and 2 * cap * time.row_seconds <= slack:
        cap *= 2
    return max(least, cap)
