"""Window batching as KServe's agent does it, on the same HTTP stack as our sidecar.

Written from its public behaviour (batcher of the KServe agent, maxBatchSize and maxLatency): one loop takes
requests in; the batch fires when it has `--rows` rows or when its first request, as the loop took it in,
is `--window-milliseconds` old; while a batch runs nothing is taken in. The differences to ours are the policy
alone: what KServe's agent loses besides (ids, error isolation, deadlines) is not copied.

`python -m slimscale.bench.serving.servers.window --port N --upstream-port M --window-milliseconds 50`
"""

import argparse
import asyncio
from collections import deque
from typing import Any

import numpy as np
import uvloop

from slimscale.bench.serving.servers.tensors import Asked, answer, ask, logits_of, read
from slimscale.serving.headers import INFERENCE_HEADER_LENGTH
from slimscale.serving.http import (
    ClientPool,
    ExchangeFailed,
    HttpServer,
    Request,
    Response,
    text_response,
)

__all__ = ["WindowBatcher", "main"]

_UPSTREAM_SECONDS = 30.0


class WindowBatcher:
    """Collects and fires. `predict(rows)` runs one batch."""

    def __init__(self, predict: Any, *, rows: int, window_seconds: float, model: str) -> None:
        self._predict = predict
        self._rows = rows
        self._window = window_seconds
        self._model = model
        self._queue: deque[tuple[Asked, asyncio.Future[Response]]] = deque()
        self._woken = asyncio.Event()
        self._over = False
        """The window has ended: said by its timer. The loop's clock may lag behind that by a rounding
        of floats, and a batch that looked at the clock would then wait for the next request."""

    def take(self, asked: Asked) -> asyncio.Future[Response]:
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._queue.append((asked, future))
        self._woken.set()
        return future

    async def run(self) -> None:
        """Forever; cancel it to stop."""
        while True:
            await self._fire(await self._collect())

    async def _collect(self) -> list[tuple[Asked, asyncio.Future[Response]]]:
        loop = asyncio.get_running_loop()
        batch: list[tuple[Asked, asyncio.Future[Response]]] = []
        rows = 0
        timer: asyncio.TimerHandle | None = None
        self._over = False
        while True:
            while self._queue and rows < self._rows:
                if not batch:
                    timer = loop.call_later(self._window, self._end_window)
                asked, future = self._queue.popleft()
                batch.append((asked, future))
                rows += len(asked.rows)
            if batch and (rows >= self._rows or self._over):
                if timer is not None:
                    timer.cancel()
                return batch
            self._woken.clear()
            await self._woken.wait()

    def _end_window(self) -> None:
        self._over = True
        self._woken.set()

    async def _fire(self, batch: list[tuple[Asked, asyncio.Future[Response]]]) -> None:
        try:
            logits = await self._predict(np.concatenate([asked.rows for asked, _ in batch]))
        except ExchangeFailed as error:
            for _, future in batch:
                if not future.done():
                    future.set_result(text_response(502, f"{error}\n"))
            return
        first = 0
        for asked, future in batch:
            last = first + len(asked.rows)
            if not future.done():
                future.set_result(answer(asked, logits[first:last], model=self._model))
            first = last


async def serve(options: argparse.Namespace) -> None:
    pool = ClientPool(per_host=4)
    target = f"/v2/models/{options.name}/infer".encode()

    async def predict(rows: np.ndarray[Any, np.dtype[np.float32]]) -> Any:
        head, raw = ask(rows)
        got = await pool.request(
            b"POST",
            "127.0.0.1",
            options.upstream_port,
            target,
            headers=((INFERENCE_HEADER_LENGTH, str(len(head)).encode()),),
            body=(head, raw),
            timeout_seconds=_UPSTREAM_SECONDS,
        )
        if got.status != 200:
            raise ExchangeFailed(f"the model server answers {got.status}", sent=True)
        return logits_of(got.body, got.headers)

    batcher = WindowBatcher(
        predict,
        rows=options.rows,
        window_seconds=options.window_milliseconds / 1000.0,
        model=options.name,
    )

    def handle(request: Request) -> Response | asyncio.Future[Response]:
        if request.method == b"GET":
            return text_response(200, "ready\n")
        try:
            return batcher.take(read(request))
        except (ValueError, KeyError, IndexError) as error:
            return text_response(400, f"{error}\n")

    server = HttpServer(handle, name="window")
    await server.start("127.0.0.1", options.port)
    await batcher.run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--upstream-port", type=int, required=True)
    parser.add_argument("--window-milliseconds", type=float, default=50.0)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--name", default="model")
    uvloop.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
