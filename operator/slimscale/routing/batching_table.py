"""How many rows an idle instance waits for: a table of control limits, solved offline.

Where batches save much, the best batching of one device under Poisson load is a control limit: wait
until so many rows are queued, then serve all that fit (science brief 3, after arXiv 2301.12865). The limit
depends on three numbers without a unit, so that one table serves every device and width:

    base share   t0 / (t0 + t1)                   of a batch that takes t0 + t1 * rows
    load         rate * (t0 + t1 * B) / B         of what full batches of B rows can serve
    busy cost    what a busy second costs, in seconds of one waiting request

`slimscale bench bounds --table` solves it (`slimscale.simulate.bounds.batching_limits`). Between its
points the lower one counts: waiting too little only costs energy. Limits grow with the base share and the
busy cost; with the load they rise and, near its limit, fall, since batches are full anyway there.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["BatchingTable", "busy_cost", "read_table"]


@dataclass(frozen=True, slots=True)
class BatchingTable:
    """Axes ascending; `limits[i][j][k]` is for (base_shares[i], loads[j], busy_costs[k])."""

    base_shares: tuple[float, ...]
    loads: tuple[float, ...]
    busy_costs: tuple[float, ...]
    limits: tuple[tuple[tuple[int, ...], ...], ...]
    max_rows: int
    """B: of the batches that the table was solved for."""

    def __post_init__(self) -> None:
        for name in ("base_shares", "loads", "busy_costs"):
            axis = getattr(self, name)
            if not axis or list(axis) != sorted(set(axis)):
                raise ValueError(f"{name} {list(axis)}: give ascending numbers, at least one")
        sizes = (len(self.base_shares), len(self.loads), len(self.busy_costs))
        fits = len(self.limits) == sizes[0] and all(
            len(rows) == sizes[1] and all(len(row) == sizes[2] for row in rows)
            for rows in self.limits
        )
        if not fits:
            raise ValueError(f"limits must have the shape {sizes} of the axes")
        if any(not 1 <= n <= self.max_rows for rows in self.limits for row in rows for n in row):
            raise ValueError(f"each limit must be from 1 to max_rows {self.max_rows}")

    def limit(
        self,
        *,
        base_seconds: float,
        row_seconds: float,
        rows_per_second: float,
        busy_cost: float,
        max_rows: int,
    ) -> int:
        """Rows to wait for, 1 to `max_rows`; 1 where a figure makes no sense: then nobody waits."""
        alone = base_seconds + row_seconds
        if not (alone > 0.0 and base_seconds >= 0.0 and rows_per_second > 0.0 and busy_cost > 0.0):
            return 1
        full = base_seconds + row_seconds * self.max_rows
        load = rows_per_second * full / self.max_rows
        share = _place(self.base_shares, base_seconds / alone)
        row = self.limits[share][_place(self.loads, load)]
        return max(1, min(row[_place(self.busy_costs, busy_cost)], max_rows))


def busy_cost(
    *, watts: float, slo_seconds: float, energy_weight: float, latency_weight: float = 1.0
) -> float:
    """What a busy second costs, in seconds of one waiting request, for J = -wL latency/SLO - wE joules.

    A busy second draws `watts` joules; a second of waiting costs wL/SLO.
    """
    return energy_weight * watts * slo_seconds / latency_weight


def read_table(content: Mapping[str, object]) -> BatchingTable:
    """From parsed JSON.

    Raises:
        ValueError: it is no table; the message says what is wrong.
    """
    try:
        limits = content["limits"]
        if not isinstance(limits, Sequence):
            raise ValueError("limits must be a list of lists of lists")  # noqa: TRY004
        return BatchingTable(
            base_shares=_axis(content["base_shares"]),
            loads=_axis(content["loads"]),
            busy_costs=_axis(content["busy_costs"]),
            limits=tuple(tuple(tuple(int(n) for n in row) for row in rows) for rows in limits),
            max_rows=int(str(content["max_rows"])),
        )
    except KeyError as error:
        raise ValueError(f"the batching table lacks {error}; solve it again") from None
    except TypeError as error:
        raise ValueError(f"the batching table is no table: {error}; solve it again") from None


def _axis(value: object) -> tuple[float, ...]:
    if not isinstance(value, Sequence):
        raise TypeError(f"{value!r} is no list")
    return tuple(float(one) for one in value)


def _place(axis: Sequence[float], value: float) -> int:
    """The last point at or below the value; the first one below it all."""
    return max(0, bisect_right(axis, value * (1.0 + 1e-9)) - 1)
