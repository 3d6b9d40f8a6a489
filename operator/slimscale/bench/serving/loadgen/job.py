"""What the load generator is asked to do and what it answers: JSON, one line each."""

from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["Answered", "Job"]


@dataclass(frozen=True, slots=True)
class Job:
    """Closed loop: `clients` that each send again at their answer. Open loop: `arrivals_seconds`.

    Both begin with `warm_seconds` whose requests are checked but not timed. `arrivals_seconds` is
    relative to the start of the job, warm-up included, and ascending.
    """

    host: str
    port: int
    path: str
    payload: str
    """File written by `payload.write_payload`."""
    seconds: float
    warm_seconds: float
    clients: int = 0
    arrivals_seconds: list[float] = field(default_factory=list)
    headers: list[tuple[str, str]] = field(default_factory=list)
    most_connections: int = 512
    grace_seconds: float = 2.0
    """After the last request is sent: what is not answered by then counts as unanswered."""
    seed: int = 0
    """Which image goes with which request."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class Answered:
    """Counts over the whole job; latencies of what was due (open) or sent (closed) in the window.

    `latencies_micros` ends with the unanswered ones at what they had waited: a lower bound.
    """

    latencies_micros: list[int] = field(default_factory=list)
    right: int = 0
    wrong: int = 0
    refused: int = 0
    """429 and 503."""
    failed: int = 0
    """Any other status."""
    expired: int = 0
    """504: taken, but its deadline passed. Counted as failed too."""
    lost: int = 0
    """The connection ended before the answer."""
    unanswered: int = 0
    in_window: int = 0
    """Right answers that came inside the window: throughput is this over its seconds."""
    in_time: int = 0
    """Right answers within a second to what was due in the window: an open loop's throughput."""
    window_seconds: float = 0.0
    refused_micros: list[int] = field(default_factory=list)
    answer_micros: list[int] = field(default_factory=list)
    """Right answers, from sending on: how late this generator was is not in it."""
    late_start_micros: list[int] = field(default_factory=list)
    """Open loop: how late this generator itself was, which the latencies include."""
    connections: int = 0
    first_wrong: str = ""

    @property
    def answered(self) -> int:
        return self.right + self.wrong + self.refused + self.failed

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}
