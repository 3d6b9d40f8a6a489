"""A configuration file that is taken up while running; a bad one keeps the last good one."""

import asyncio
import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel, ValidationError

__all__ = ["ConfigFile"]

_log = logging.getLogger(__name__)

ConfigT = TypeVar("ConfigT", bound=BaseModel)
_MOST_BYTES = 2**20


class ConfigFile(Generic[ConfigT]):
    """Reads a JSON file of `model` and, by `follow`, looks for changes once a second.

    The whole content is compared: a ConfigMap's volume swaps links, and times of files there tell
    little. `error` is the last file's fault in words, None when it was taken up; `loads` and
    `failures` count for metrics.
    """

    def __init__(self, path: str | Path, model: type[ConfigT]) -> None:
        self.path = Path(path)
        self._model = model
        self._digest = b""
        self.error: str | None = None
        self.loads = 0
        self.failures = 0

    def load(self) -> ConfigT:
        """The first reading: raises OSError or ValueError, since there is no last good one yet."""
        content = self._read()
        self._digest = hashlib.sha256(content).digest()
        config = self._parse(content)
        self.loads += 1
        return config

    def poll(self) -> ConfigT | None:
        """A new configuration, or None: unchanged, gone, or bad (said in the log once a content)."""
        try:
            content = self._read()
        except OSError as error:
            self._complain(f"cannot be read: {error.strerror or error}", b"")
            return None
        digest = hashlib.sha256(content).digest()
        if digest == self._digest:
            return None
        try:
            config = self._parse(content)
        except ValueError as error:
            self._complain(str(error), digest)
            return None
        self._digest = digest
        self.error = None
        self.loads += 1
        _log.info("%s taken up", self.path)
        return config

    async def follow(
        self, take_up: Callable[[ConfigT], None], *, every_seconds: float = 1.0
    ) -> None:
        """Until cancelled, hand each new configuration to `take_up`."""
        while True:
            await asyncio.sleep(every_seconds)
            config = self.poll()
            if config is not None:
                take_up(config)

    def _read(self) -> bytes:
        with self.path.open("rb") as file:
            return file.read(_MOST_BYTES + 1)

    def _parse(self, content: bytes) -> ConfigT:
        if len(content) > _MOST_BYTES:
            raise ValueError(f"more than {_MOST_BYTES} bytes")
        try:
            return self._model.model_validate_json(content)
        except ValidationError as error:
            raise ValueError(
                "; ".join(
                    f"{'.'.join(map(str, fault['loc'])) or 'file'}: {fault['msg']}"
                    for fault in error.errors(include_url=False, include_input=False)[:5]
                )
            ) from None

    def _complain(self, error: str, digest: bytes) -> None:
        if error != self.error:
            self.failures += 1
            _log.error("%s: %s; the last good one stays in use", self.path, error)
        self.error = error
        self._digest = digest or self._digest
