"""The simulation's own metrics, beside those of the contract, in Prometheus' text format."""

import threading
from collections.abc import Mapping

from .phases import Phase

__all__ = ["Figures"]


class Figures:
    """Counted by the workload's thread, read by the endpoint's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._steps = dict.fromkeys(Phase, 0)
        self._seconds = dict.fromkeys(Phase, 0.0)
        self._phase = Phase.PAUSED
        self._threads = 0
        self._engine_errors = 0
        self._rejected_phases = 0

    def add(self, phase: Phase, *, steps: int, seconds: float, engine_errors: int = 0) -> None:
        with self._lock:
            self._steps[phase] += steps
            self._seconds[phase] += seconds
            self._engine_errors += engine_errors

    def now(self, *, phase: Phase, threads: int, rejected_phases: int) -> None:
        with self._lock:
            self._phase = phase
            self._threads = threads
            self._rejected_phases = rejected_phases

    def steps(self) -> Mapping[Phase, int]:
        with self._lock:
            return dict(self._steps)

    def render(self) -> str:
        with self._lock:
            steps, seconds = dict(self._steps), dict(self._seconds)
            phase, threads = self._phase, self._threads
            errors, rejected = self._engine_errors, self._rejected_phases
        lines = [
            "# HELP simserver_steps_total Environment steps done; one task is one step.",
            "# TYPE simserver_steps_total counter",
            *(f'simserver_steps_total{{phase="{p}"}} {n}' for p, n in steps.items()),
            "# HELP simserver_phase_seconds_total Time spent in each phase.",
            "# TYPE simserver_phase_seconds_total counter",
            *(f'simserver_phase_seconds_total{{phase="{p}"}} {s:.3f}' for p, s in seconds.items()),
            "# HELP simserver_phase 1 for the phase in force, 0 for the others.",
            "# TYPE simserver_phase gauge",
            *(f'simserver_phase{{phase="{p}"}} {int(p is phase)}' for p in Phase),
            "# HELP simserver_threads Threads that step environments now.",
            "# TYPE simserver_threads gauge",
            f"simserver_threads {threads}",
            "# HELP simserver_engine_errors_total Tasks that the external engine failed.",
            "# TYPE simserver_engine_errors_total counter",
            f"simserver_engine_errors_total {errors}",
            "# HELP simserver_phase_rejected_total Values of the phase annotation that are no phase.",
            "# TYPE simserver_phase_rejected_total counter",
            f"simserver_phase_rejected_total {rejected}",
        ]
        return "\n".join(lines) + "\n"
