"""The lines of a watch, whole however the network cuts them, and 410 in the forms it takes there."""

import json
from collections.abc import AsyncIterator

import aiohttp

from slimscale.exceptions import Unavailable
from slimscale.kubeapi.ports import Json, WatchExpired

__all__ = ["decode_event", "lines_of"]

_LINE_LIMIT_BYTES = 8 * 2**20
"""An object in etcd has at most 1.5 MiB; its JSON form is longer, but not this long."""


async def lines_of(content: aiohttp.StreamReader, request: str) -> AsyncIterator[bytes]:
    """Yield lines without their end. The reader's own line iterator fails on lines over 128 KiB."""
    rest = bytearray()
    async for chunk in content.iter_any():
        rest += chunk
        while (end := rest.find(b"\n")) >= 0:
            line = bytes(rest[:end]).strip()
            del rest[: end + 1]
            if line:
                yield line
        if len(rest) > _LINE_LIMIT_BYTES:
            raise Unavailable(f"{request}: an event is over {_LINE_LIMIT_BYTES} bytes")
    if rest.strip():
        yield bytes(rest).strip()  # whole or not: the decoder tells


def decode_event(line: bytes, request: str) -> Json:
    """One event.

    Raises:
        WatchExpired: an ERROR event with 410, or a bare Status with 410 in the stream.
        Unavailable: any other ERROR event, or what is no event.
    """
    try:
        event = json.loads(line)
    except ValueError as error:
        raise Unavailable(f"{request}: an event is no JSON") from error
    if not isinstance(event, dict):
        raise Unavailable(f"{request}: an event is no object")
    status = event if event.get("kind") == "Status" else event.get("object")
    if event.get("type") == "ERROR" or event.get("kind") == "Status":
        code = status.get("code") if isinstance(status, dict) else None
        reason = status.get("reason") if isinstance(status, dict) else None
        if code == 410 or reason in ("Expired", "Gone"):
            raise WatchExpired(f"{request}: the resource version is too old")
        raise Unavailable(f"{request}: the server ended the watch with {reason or code}")
    if "type" not in event or not isinstance(event.get("object"), dict):
        raise Unavailable(f"{request}: an event lacks its type or object")
    return event
