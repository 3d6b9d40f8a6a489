"""What is measured: each system is a few processes, an address and a path, behind one protocol."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from slimscale.bench.serving.processes import ServerProcess, free_port, wait_for_port

__all__ = [
    "MODEL",
    "ONE_THREAD",
    "ROWS",
    "START_SECONDS",
    "Dialect",
    "Missing",
    "ProcessSystem",
    "Setting",
    "System",
    "start_server",
]

ROWS = 32
"""Most rows of a batch, for every system that batches."""
MODEL = "bench-w100"
START_SECONDS = 90.0


class Dialect:
    """How a system wants its body: all but one speak v2."""

    V2 = "v2"
    V2_BINARY = "v2-binary"
    ROWS = "rows"
    """`{"image": [...]}` in, rows of logits out: no id, so that logits alone tell the answers apart."""


class Missing(Exception):
    """A system that cannot be had here; the text says why and stands in the table."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Where things are. `models` holds `<model>/model.onnx`."""

    models: Path
    work: Path
    python: str = sys.executable

    @property
    def model_file(self) -> Path:
        return self.models / MODEL / "model.onnx"

    @property
    def logs(self) -> Path:
        return self.work / "logs"


class System(Protocol):
    """Started and stopped any number of times; between `start` and `stop` it serves on `port`."""

    @property
    def name(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def dialect(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def pausable(self) -> bool: ...
    @property
    def headers(self) -> Mapping[str, str]: ...

    def prepare(self) -> None:
        """Install what it needs, which may take minutes. Raises Missing where it cannot be had."""

    def start(self) -> None:
        """Returns when it serves. Raises ServerFailed, or Missing where it cannot be had."""

    def stop(self) -> None: ...

    def processes(self) -> Sequence[ServerProcess]: ...


@dataclass
class ProcessSystem:
    """A system made of child processes. `build(port, add)` starts them; `add` keeps each for `stop`."""

    name: str
    build: Callable[[int, "ProcessSystem"], None]
    path: str = f"/v2/models/{MODEL}/infer"
    dialect: str = Dialect.V2
    pausable: bool = True
    headers: Mapping[str, str] = field(default_factory=dict)
    install: Callable[[], object] = lambda: None
    port: int = 0
    _running: list[ServerProcess] = field(default_factory=list)

    def prepare(self) -> None:
        self.install()

    def start(self) -> None:
        self.port = free_port()
        try:
            self.build(self.port, self)
            wait_for_port(self.port, self._running, seconds=START_SECONDS)
        except BaseException:
            self.stop()
            raise

    def add(self, process: ServerProcess) -> ServerProcess:
        self._running.append(process)
        return process

    def stop(self) -> None:
        """The front first, as they were started last."""
        while self._running:
            self._running.pop().stop()

    def processes(self) -> Sequence[ServerProcess]:
        return tuple(self._running)


def start_server(setting: Setting, role: str, module: str, *options: object) -> ServerProcess:
    """One of the benchmark's own servers, by its module."""
    return ServerProcess(
        role,
        [setting.python, "-m", module, *map(str, options)],
        log=setting.logs / f"{role}.log",
        environment=ONE_THREAD,
    )


ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
"""The model has one thread everywhere; nothing beside it may start a pool of its own."""
