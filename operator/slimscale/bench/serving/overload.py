"""Overload: twice what a system can do, for a minute, with a deadline on each request.

What is promised: whoever is let in gets the answer in time, everybody else hears so at once, memory
stays, and when the load goes the system is as it was.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np

from slimscale.bench.serving.arrivals import poisson
from slimscale.bench.serving.gate import Gate
from slimscale.bench.serving.generator import Generator
from slimscale.bench.serving.loadgen.job import Answered, Job
from slimscale.bench.serving.processes import ServerFailed
from slimscale.bench.serving.systems import System

__all__ = ["OVERLOADED", "Overload", "overload"]

OVERLOADED = ("slimscale", "slimscale-routed")
CAPACITY_CLIENTS, CAPACITY_SECONDS = 64, 4.0
OVER = 2.0
CALM_SHARE = 0.25
"""Of the capacity, offered after the overload: what a pod with room has to take."""
CALM_SECONDS = 2.0
DEADLINE_MILLISECONDS = 250
_SAMPLE_SECONDS = 1.0
_SETTLED_SHARE = 0.25
"""Memory may grow while the queues fill for the first time: it is compared from here on."""
_PAGE_BYTES = 4096
_READY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Overload:
    """One system at `OVER` times its own capacity. Milliseconds, bytes."""

    system: str
    seconds: float
    deadline: float
    capacity_per_second: float
    offered_per_second: float
    right_per_second: float
    kept: int
    """Right answers within the deadline, as the client's clock says from sending on."""
    late: int
    """Right answers after it, and accepted requests that were told that it had passed (504)."""
    refused: int
    broken: int
    """Wrong, lost, failed otherwise, or still without an answer at the end."""
    accepted_p99: float
    refused_p50: float
    refused_p99: float
    generator_late_p99: float
    """How late the load generator itself was: it shares the CPUs."""
    settled_bytes: dict[str, int]
    """Resident memory by role: the median of the second quarter of the time."""
    last_bytes: dict[str, int]
    """The median of the last quarter."""
    calm_offered_per_second: float
    calm_right: int
    calm_not_right: int
    calm_p99: float
    """Of what was sent in the two seconds after the overload, at `CALM_SHARE` of the capacity."""
    load_average: float
    at: str

    @property
    def kept_share(self) -> float:
        return self.kept / max(1, self.kept + self.late)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class _Memory:
    """Resident bytes by role, sampled in a thread while the generator is waited for."""

    def __init__(self, pids: Mapping[str, list[int]]) -> None:
        self._pids = pids
        self._samples: list[dict[str, int]] = []
        self._over = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(_SAMPLE_SECONDS):
            self._samples.append({role: _resident(pids) for role, pids in self._pids.items()})

    def stop(self) -> tuple[dict[str, int], dict[str, int]]:
        """Medians of the second and of the last quarter."""
        self._over.set()
        self._thread.join()
        quarter = max(1, int(len(self._samples) * _SETTLED_SHARE))
        return _medians(self._samples[quarter : 2 * quarter]), _medians(self._samples[-quarter:])


def _resident(pids: list[int]) -> int:
    pages = 0
    for pid in pids:
        pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * _PAGE_BYTES


def _medians(samples: list[dict[str, int]]) -> dict[str, int]:
    roles = samples[0] if samples else {}
    return {role: int(np.median([sample[role] for sample in samples])) for role in roles}


def overload(
    system: System,
    generator: Generator,
    *,
    payload: Path,
    seconds: float,
    seed: int,
    gate: Gate,
    clock: Callable[[], float] = time.monotonic,
) -> Overload:
    """Start the system, measure its capacity, overload it, look how it is afterwards, stop it.

    Raises ServerFailed, or Missing where the system cannot be had.
    """

    def job(**more: Any) -> Job:
        return Job(
            host="127.0.0.1", port=system.port, path=system.path, payload=str(payload), seed=seed,
            **more,
        )  # fmt: skip

    def opened(rate: float, length: float) -> Job:
        return job(
            seconds=length,
            warm_seconds=0.0,
            arrivals_seconds=poisson(rate, length, seed=seed).tolist(),
            headers=[("slimscale-deadline-ms", str(DEADLINE_MILLISECONDS))],
        )

    gate.enter()
    try:
        system.start()
        until = clock() + _READY_SECONDS
        while not generator.do(job(seconds=0.2, warm_seconds=0.2, clients=1)).right:
            if clock() > until:
                raise ServerFailed(f"{system.name} gives no right answer")
        for process in system.processes():
            process.put_first()
        closed = job(seconds=CAPACITY_SECONDS, warm_seconds=1.0, clients=CAPACITY_CLIENTS)
        capacity = generator.do(closed).in_window / CAPACITY_SECONDS
        memory = _Memory({process.role: process.pids() for process in system.processes()})
        over = generator.do(opened(OVER * capacity, seconds))
        settled, last = memory.stop()
        calm = generator.do(opened(CALM_SHARE * capacity, CALM_SECONDS))
    finally:
        system.stop()
        gate.leave()
    return _result(system.name, capacity, seconds, over, calm, settled=settled, last=last)


def _result(
    name: str, capacity: float, seconds: float, over: Answered, calm: Answered, *,
    settled: dict[str, int], last: dict[str, int],
) -> Overload:  # fmt: skip
    taken = np.asarray(over.answer_micros or [0]) / 1000.0
    kept = int((taken <= DEADLINE_MILLISECONDS).sum()) if over.answer_micros else 0
    refusals = np.asarray(over.refused_micros or [0]) / 1000.0
    return Overload(
        system=name,
        seconds=seconds,
        deadline=DEADLINE_MILLISECONDS,
        capacity_per_second=round(capacity, 1),
        offered_per_second=round(OVER * capacity, 1),
        right_per_second=round(over.right / seconds, 1),
        kept=kept,
        late=over.right - kept + over.expired,
        refused=over.refused,
        broken=over.wrong + over.lost + over.failed - over.expired + over.unanswered,
        accepted_p99=_quantile(taken, 0.99),
        refused_p50=_quantile(refusals, 0.5),
        refused_p99=_quantile(refusals, 0.99),
        generator_late_p99=_quantile(np.asarray(over.late_start_micros or [0]) / 1000.0, 0.99),
        settled_bytes=settled,
        last_bytes=last,
        calm_offered_per_second=round(CALM_SHARE * capacity, 1),
        calm_right=calm.right,
        calm_not_right=calm.answered - calm.right + calm.lost + calm.unanswered,
        calm_p99=_quantile(np.asarray(calm.answer_micros or [0]) / 1000.0, 0.99),
        load_average=round(float(Path("/proc/loadavg").read_text().split()[0]), 2),
        at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _quantile(values: Any, share: float) -> float:
    return round(float(np.quantile(values, share)), 2)
