"""A request on its way through the sidecar, and what a model is doing."""

from collections.abc import Sequence

from slimscale.routing.batch_times import BatchTimes
from slimscale.routing.holding import ArrivalRate
from slimscale.serving.http.deferred import Deferred
from slimscale.serving.http.messages import Response
from slimscale.serving.protocol.requests import InferRequest

__all__ = ["ModelState", "Pending"]

_WORTH_TELLING = 0.02
_MANY_ROWS = 31


class Pending:
    """One request with its future answer. `model`: the name under which the client asked."""

    __slots__ = (
        "answer", "expected_seconds", "hold_seconds", "losses", "model", "request", "wishes",
    )  # fmt: skip

    def __init__(
        self,
        request: InferRequest,
        wishes: Sequence[tuple[int, bool]],
        answer: Deferred[Response],
        model: str,
        *,
        expected_seconds: float = 0.0,
        hold_seconds: float = 0.0,
    ) -> None:
        self.hold_seconds = hold_seconds
        """How long it may wait for a fuller batch, from its arrival; 0: as the configuration says."""
        self.expected_seconds = expected_seconds
        """Until the answer, as it was expected when the request was taken; 0: not known."""
        self.request = request
        self.wishes = wishes
        self.answer = answer
        self.model = model
        self.losses = 0
        """How often the model server went away while it ran this request."""

    def settle(self, response: Response) -> bool:
        """Answer it; False where its client has gone or it has an answer already."""
        if self.answer.done():
            return False
        self.answer.set_result(response)
        return True


class ModelState:
    """One width model. Times are on the loop's clock."""

    __slots__ = (
        "_told", "arrivals", "idle_since", "instances", "load_seconds", "loading", "memory_bytes", "name",
        "refused_because", "refused_until", "running", "running_rows", "times",
    )  # fmt: skip

    def __init__(self, name: str, now: float) -> None:
        self.name = name
        self.instances = 0
        self.loading = False
        self.running = 0
        self.running_rows = 0
        self.idle_since = now
        self.load_seconds: float | None = None
        self.memory_bytes: int | None = None
        self.refused_until = 0.0
        """It could not be loaded: requests for it are refused until then."""
        self.refused_because = ""
        self.times = BatchTimes()
        self.arrivals = ArrivalRate()
        self._told: tuple[float | None, float | None] = (None, None)

    def told_times(self) -> tuple[float | None, float | None]:
        """Base and row seconds as telemetry has them: what was told before, unless it has become
        wrong by more than one part in fifty for one row or for many."""
        base, row = self.times.base_seconds, self.times.row_seconds
        was_base, was_row = self._told
        if base is None or row is None:
            return base, row
        if was_base is not None and was_row is not None:
            off = base - was_base + row - was_row
            off_many = off + _MANY_ROWS * (row - was_row)
            one = was_base + was_row
            if abs(off) <= _WORTH_TELLING * one and abs(off_many) <= _WORTH_TELLING * (
                one + _MANY_ROWS * was_row
            ):
                return self._told
        self._told = (base, row)
        return self._told
