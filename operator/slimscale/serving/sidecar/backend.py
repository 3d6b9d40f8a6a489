"""Asks the model server on localhost: batches, metadata, what is loaded, the device."""

import asyncio
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Protocol

from pydantic_core import from_json

from slimscale.exceptions import SlimError
from slimscale.serving.http.client import (
    ClientPool,
    ClientResponse,
    ExchangeFailed,
    request_head,
)
from slimscale.serving.http.deferred import Deferred
from slimscale.serving.protocol.backend import parse_response
from slimscale.serving.protocol.metadata import ModelMetadata
from slimscale.serving.protocol.tensors import Tensor

__all__ = ["Backend", "ModelNotLoaded", "ModelRefused", "ModelServer", "ModelServerGone", "Outcome"]

_SHORT_SECONDS = 2.0
_LOAD_SECONDS = 300.0
Headers = tuple[tuple[bytes, bytes], ...]


class ModelServerGone(SlimError):
    """No connection, or it broke before the answer. `late`: it said nothing for too long."""

    def __init__(self, message: str, *, late: bool = False) -> None:
        super().__init__(message)
        self.late = late


class ModelNotLoaded(SlimError):
    """The model server is well but has no instance of the model."""


class ModelRefused(SlimError):
    """The model server answered a batch with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


Outcome = list[Tensor] | Exception
Parts = Sequence[bytes | memoryview]


class Backend(Protocol):
    """What the batcher needs of a model server."""

    def start(
        self,
        model: str,
        headers: Headers,
        parts: Parts,
        seconds: float,
        done: Callable[[Outcome], None],
    ) -> None: ...


class ModelServer:
    """Open Inference Protocol v2 with the model repository extension, as ours and Triton speak it."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._tasks: set[asyncio.Task[None]] = set()
        self._pool = ClientPool(per_host=32, idle_seconds=30.0, connect_seconds=0.5)

    def start(
        self,
        model: str,
        headers: Headers,
        parts: Parts,
        seconds: float,
        done: Callable[[Outcome], None],
    ) -> None:
        """Send a batch now, and later call `done` once with its outputs or with what `infer` raises.

        On a connection that is open already nothing waits for a turn of the loop in between.
        """
        connection = self._pool.idle_now(self._host, self._port)
        if connection is None:
            task = asyncio.get_running_loop().create_task(
                self._start_slowly(model, headers, parts, seconds, done)
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        head = request_head(
            b"POST", self._host, self._port, _infer_path(model),
            headers=headers, body_bytes=sum(map(len, parts)),
        )  # fmt: skip
        answer: Deferred[ClientResponse] = Deferred()

        def settled(answer: Deferred[ClientResponse]) -> None:
            self._pool.give_back(self._host, self._port, connection)
            error = answer.exception()
            if error is None:
                done(_outcome(answer.result()))
            elif isinstance(error, ExchangeFailed):
                done(ModelServerGone(str(error), late=error.late))
            else:
                done(ModelServerGone(repr(error)))

        answer.then(settled)
        connection.send((head, *parts), asyncio.get_running_loop().time() + seconds, answer)

    async def _start_slowly(
        self,
        model: str,
        headers: Headers,
        parts: Parts,
        seconds: float,
        done: Callable[[Outcome], None],
    ) -> None:
        try:
            outcome: Outcome = await self.infer(model, headers, parts, seconds)
        except asyncio.CancelledError:
            done(ModelServerGone("the sidecar is shutting down"))
            raise
        except Exception as error:
            outcome = error
        done(outcome)

    async def infer(
        self, model: str, headers: Headers, parts: Parts, seconds: float
    ) -> list[Tensor]:
        """Outputs of a batch. Raises ModelServerGone, ModelNotLoaded, ModelRefused, or ValueError
        for an answer that makes no sense."""
        path = f"/v2/models/{model}/infer"
        response = await self._ask(b"POST", path, seconds, headers=headers, body=parts)
        outcome = _outcome(response)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def ready(self) -> bool:
        """Whether it takes requests at all."""
        try:
            response = await self._ask(b"GET", "/v2/health/ready", _SHORT_SECONDS)
        except ModelServerGone:
            return False
        return response.status == 200

    async def loaded(self, model: str) -> bool:
        response = await self._ask(b"GET", f"/v2/models/{model}/ready", _SHORT_SECONDS)
        return response.status == 200

    async def metadata(self, model: str) -> ModelMetadata:
        """Raises ValueError where the model isn't loaded or can't be served."""
        response = await self._ask(b"GET", f"/v2/models/{model}", _SHORT_SECONDS)
        if response.status != 200:
            raise ValueError(f"no metadata of {model}: {_error_of(response)}")
        return ModelMetadata.from_json(from_json(response.body))

    async def load(self, model: str, instances: int = 1) -> None:
        """Returns when it is loaded and warm. Raises ModelRefused where it can't be."""
        body = b'{"parameters":{"instances":%d}}' % instances
        path = f"/v2/repository/models/{model}/load"
        response = await self._ask(b"POST", path, _LOAD_SECONDS, body=(body,))
        if response.status != 200:
            raise ModelRefused(response.status, _error_of(response))

    async def unload(self, model: str) -> None:
        path = f"/v2/repository/models/{model}/unload"
        response = await self._ask(b"POST", path, _SHORT_SECONDS, body=(b"{}",))
        if response.status != 200:
            raise ModelRefused(response.status, _error_of(response))

    async def device(self) -> dict[str, Any]:
        """`/device` of our model server; empty where there is none (another server, an error)."""
        response = await self._ask(b"GET", "/device", _SHORT_SECONDS)
        try:
            document = from_json(response.body) if response.status == 200 else None
        except ValueError:
            document = None
        return document if isinstance(document, dict) else {}

    async def close(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._pool.close()

    async def _ask(
        self,
        method: bytes,
        path: str,
        seconds: float,
        *,
        headers: Headers = (),
        body: Sequence[bytes | memoryview] = (),
    ) -> ClientResponse:
        for last in (False, True):
            try:
                return await self._pool.request(
                    method, self._host, self._port, path.encode(),
                    headers=headers, body=body, timeout_seconds=seconds,
                )  # fmt: skip
            except ExchangeFailed as error:
                if last or error.sent or error.late:
                    raise ModelServerGone(str(error), late=error.late) from error
            await asyncio.sleep(0)  # nothing was sent: an idle connection had been closed
        raise AssertionError("unreachable")


@lru_cache(maxsize=64)
def _infer_path(model: str) -> bytes:
    return f"/v2/models/{model}/infer".encode()


def _outcome(response: ClientResponse) -> Outcome:
    if response.status == 200:
        try:
            return parse_response(response.headers, response.body)
        except ValueError as error:
            return error
    message = _error_of(response)
    if response.status in (404, 503):
        return ModelNotLoaded(message)
    return ModelRefused(response.status, message)


def _error_of(response: ClientResponse) -> str:
    try:
        message = from_json(response.body)["error"]
    except (ValueError, KeyError, TypeError):
        message = response.body[:200].decode("utf-8", "replace")
    return f"{response.status}: {str(message)[:500]}"
