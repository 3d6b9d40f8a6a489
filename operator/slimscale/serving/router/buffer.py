"""Requests that wait because no pod can take them: bounded by count, bytes and their deadlines.

They are let go a few at a time as pods come and answers return: all at once would only fill the first
pod's queue and be refused.
"""

import asyncio
from collections import OrderedDict

from slimscale.routing.admission import BufferLimits, Refusal, may_hold

__all__ = ["RequestBuffer"]


class RequestBuffer:
    """First come, first let go."""

    def __init__(self, limits: BufferLimits) -> None:
        self.limits = limits
        self.held_rows = 0
        self.held_bytes = 0
        self.taken = 0
        """Requests that have ever waited here."""
        self._waiting: OrderedDict[asyncio.Future[None], int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._waiting)

    def refuses(self, body_bytes: int) -> Refusal | None:
        return may_hold(
            held=len(self._waiting),
            held_bytes=self.held_bytes,
            body_bytes=body_bytes,
            limits=self.limits,
        )

    async def wait(self, *, rows: int, body_bytes: int, deadline: float) -> bool:
        """Until let go (True) or until `deadline` (False; the loop's time). Ask `refuses` before."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting[turn] = rows
        self.taken += 1
        self.held_rows += rows
        self.held_bytes += body_bytes
        try:
            async with asyncio.timeout_at(deadline):
                await turn
        except TimeoutError:
            return False
        finally:
            self._waiting.pop(turn, None)
            self.held_rows -= rows
            self.held_bytes -= body_bytes
        return True

    def release(self, rows: int) -> None:
        """Let go of the longest waiting, up to `rows` of them and at least one request."""
        left = rows
        while self._waiting and left > 0:
            turn, waiting_rows = self._waiting.popitem(last=False)
            left -= waiting_rows
            if not turn.done():
                turn.set_result(None)
