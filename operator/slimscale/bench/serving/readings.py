"""What the clocks say before and after a cell, and the cell that comes of it."""

import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import numpy as np

from slimscale.bench.native.machine import steal_seconds
from slimscale.bench.serving.generator import Generator
from slimscale.bench.serving.loadgen.job import Answered
from slimscale.bench.serving.plan import CLOSED, Load, Turn
from slimscale.bench.serving.processes import cpu_seconds
from slimscale.bench.serving.records import Cell, quantiles_of

__all__ = ["Reading", "cell_of"]

_TICKS = os.sysconf("SC_CLK_TCK")
_MICROS = 1e6


class Reading:
    """CPU clocks of everything at one moment."""

    def __init__(
        self, *, at: float, roles: dict[str, float], client: float, busy: float, steal: float
    ) -> None:
        self.at, self.roles, self.client, self.busy, self.steal = at, roles, client, busy, steal

    @classmethod
    def take(cls, pids: Mapping[str, list[int]], generator: Generator) -> Self:
        return cls(
            at=time.monotonic(),
            roles={role: cpu_seconds(found) for role, found in pids.items()},
            client=generator.cpu_seconds(),
            busy=_busy_seconds(),
            steal=steal_seconds(),
        )


def _busy_seconds() -> float:
    """CPU time of user, nice, system, interrupts of all cores since boot (proc_stat(5))."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    return sum(int(fields[i]) for i in (0, 1, 2, 5, 6)) / _TICKS


def cell_of(
    name: str, load: Load, turn: Turn, *, offered: float, answered: Answered,
    before: Reading, after: Reading,
) -> Cell:  # fmt: skip
    count = max(1, answered.answered)
    seconds = after.at - before.at
    used = {role: after.roles[role] - before.roles[role] for role in before.roles}
    client = after.client - before.client
    others = after.busy - before.busy - sum(used.values()) - client
    p50, p99, p999 = quantiles_of(answered)
    late = answered.late_start_micros
    return Cell(
        system=name,
        load=load.label,
        repetition=turn.repetition,
        offered_per_second=round(offered, 2),
        per_second=round(
            (answered.in_window if load.kind == CLOSED else answered.in_time)
            / answered.window_seconds,
            2,
        ),
        p50=p50,
        p99=p99,
        p999=p999,
        timed=len(answered.latencies_micros),
        right=answered.right,
        wrong=answered.wrong,
        refused=answered.refused,
        failed=answered.failed,
        lost=answered.lost,
        unanswered=answered.unanswered,
        first_wrong=answered.first_wrong,
        cpu_micros={role: round(value / count * _MICROS, 1) for role, value in used.items()},
        client_cpu_micros=round(client / count * _MICROS, 1),
        late_start_p99=round(float(np.quantile(late, 0.99)) / 1000.0, 3) if late else 0.0,
        others_cores=round(max(0.0, others) / seconds, 2),
        steal_cores=round((after.steal - before.steal) / seconds, 3),
        load_average=round(os.getloadavg()[0], 2),
        at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
