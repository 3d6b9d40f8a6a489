"""Asks the model server on localhost: batches, metadata, what is loaded, the device."""

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from pydantic_core import from_json

from slimscale.exceptions import SlimError
from slimscale.serving.http.client import ClientPool, ClientResponse, ExchangeFailed
from slimscale.serving.protocol.backend import parse_response
from slimscale.serving.protocol.metadata import ModelMetadata
from slimscale.serving.protocol.tensors import Tensor

__all__ = ["Backend", "ModelNotLoaded", "ModelRefused", "ModelServer", "ModelServerGone"]

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


class Backend(Protocol):
    """What the batcher needs of a model server."""

    async def infer(
        self, model: str, headers: Headers, parts: Sequence[bytes | memoryview], seconds: float
    ) -> list[Tensor]: ...


class ModelServer:
    """Open Inference Protocol v2 with the model repository extension, as ours and Triton speak it."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._pool = ClientPool(per_host=32, idle_seconds=30.0, connect_seconds=0.5)

    async def infer(
        self, model: str, headers: Headers, parts: Sequence[bytes | memoryview], seconds: float
    ) -> list[Tensor]:
        """Outputs of a batch. Raises ModelServerGone, ModelNotLoaded, ModelRefused, or ValueError
        for an answer that makes no sense."""
        response = await self._ask(
            b"POST", f"/v2/models/{model}/infer", seconds, headers=headers, body=parts
        )
        if response.status == 200:
            return parse_response(response.headers, response.body)
        message = _error_of(response)
        if response.status in (404, 503):
            raise ModelNotLoaded(message)
        raise ModelRefused(response.status, message)

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


def _error_of(response: ClientResponse) -> str:
    try:
        message = from_json(response.body)["error"]
    except (ValueError, KeyError, TypeError):
        message = response.body[:200].decode("utf-8", "replace")
    return f"{response.status}: {str(message)[:500]}"
