"""A result that comes later, told at once to the one who waits: a future without a turn of the loop.

An asyncio future tells its waiter in the next turn, and a turn costs a system call. On the way of a
request there would be four of them.
"""

import logging
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Deferred"]

_log = logging.getLogger(__name__)
ResultT = TypeVar("ResultT")


class Deferred(Generic[ResultT]):
    """Set once, by `set_result` or `set_exception`; what is set later is left out.

    One waiter, by `then`; it is called within the call that sets the result, so that it must not
    raise (that is logged) and may find its caller in the midst of something.
    """

    __slots__ = ("_error", "_result", "_settled", "_waiter")

    def __init__(self) -> None:
        self._settled = False
        self._result: ResultT | None = None
        self._error: BaseException | None = None
        self._waiter: Callable[[Deferred[ResultT]], None] | None = None

    def done(self) -> bool:
        return self._settled

    def set_result(self, result: ResultT) -> None:
        if not self._settled:
            self._settled = True
            self._result = result
            self._tell()

    def set_exception(self, error: BaseException) -> None:
        if not self._settled:
            self._settled = True
            self._error = error
            self._tell()

    def cancel(self) -> None:
        """Nobody waits any more; a result that comes is thrown away."""
        self._settled = True
        self._waiter = None

    def exception(self) -> BaseException | None:
        return self._error

    def result(self) -> ResultT:
        """The result, or raises what was set."""
        if self._error is not None:
            raise self._error
        if not self._settled:
            raise RuntimeError("not settled yet")
        return self._result  # type: ignore[return-value]  # None may be a result

    def then(self, waiter: "Callable[[Deferred[ResultT]], None]") -> None:
        """Call `waiter` with this once it is settled; at once if it is."""
        self._waiter = waiter
        if self._settled:
            self._tell()

    def _tell(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is None:
            return
        try:
            waiter(self)
        except Exception:
            _log.exception("who waited for a result has failed")
