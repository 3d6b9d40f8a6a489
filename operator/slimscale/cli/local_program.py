"""A program on this machine under the contract: started, asked for its metrics, told its threads."""

import contextlib
import http.client
import os
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from slimscale.act.thread_env import thread_variables
from slimscale.api.names import THREADS_FILE_ENV
from slimscale.domain.contract import ContractSample
from slimscale.exceptions import SlimError
from slimscale.observe.exposition import InvalidSamples, NoContract, read_page

__all__ = ["LocalProgram", "run_to_end"]

_POLL_SECONDS = 0.2
_WARM_UP_SECONDS = 1.0
_MAX_PAGE_BYTES = 1 << 20
PORT_ENV = "SLIMSCALE_METRICS_PORT"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_args: object, **_kwargs: object) -> None:
        return None


# A proxy of the environment is not on the way to a program of this machine.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects())


class LocalProgram:
    """Runs a command with a thread file and a metrics port of its own; a context manager."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._folder = tempfile.TemporaryDirectory(prefix="slimscale-")
        self._file = Path(self._folder.name) / "threads"
        self._port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._file.touch()
        environment = os.environ | {THREADS_FILE_ENV: str(self._file), PORT_ENV: str(self._port)}
        self._process = _start(self._command, environment)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._folder.cleanup()

    @property
    def exit_status(self) -> int | None:
        """None while it runs."""
        return self._process.poll() if self._process is not None else None

    def set_threads(self, threads: int) -> None:
        """Write the file as the kubelet does: whole or not at all."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(str(threads))
        fresh.replace(self._file)

    def sample(self) -> ContractSample | None:
        """One scrape; None while the program serves nothing of the contract."""
        request = f"http://127.0.0.1:{self._port}/metrics"
        try:
            with _opener.open(request, timeout=5) as answer:
                page = answer.read(_MAX_PAGE_BYTES).decode()
            return read_page(page, prefix="slimscale", pod_uid="local", now_seconds=time.time())
        except (urllib.error.URLError, http.client.HTTPException, OSError, NoContract):
            return None
        except (InvalidSamples, UnicodeDecodeError) as error:
            raise SlimError(f"the program's metrics cannot be read: {error}") from error

    def samples(self, *, seconds: float, every_seconds: float = 1.0) -> Iterator[ContractSample]:
        """Scrape for a while, the first at once and one at the very end.

        Raises:
            SlimError: the program ended or stopped answering.
        """
        end = time.monotonic() + seconds
        while True:
            found = self.sample()
            if found is None:
                if self.exit_status is not None:
                    raise SlimError(
                        "the program ended while it was measured: let it run longer, or lower"
                        " --seconds (about six times that is needed, once with --no-probe)"
                    )
                raise SlimError("the program stopped serving metrics while it was measured")
            yield found
            left = end - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(every_seconds, left))

    def wait_for_metrics(self, *, seconds: float) -> bool:
        """True when the contract is served; False when the program ends first.

        Raises:
            SlimError: it runs on without serving the contract.
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.sample() is not None:
                return True
            if self.exit_status is not None:
                return False
            time.sleep(_POLL_SECONDS)
        raise SlimError(
            f"the program served no metrics of the contract within {seconds:g} s on the port in"
            f" {PORT_ENV}; see docs/contract.md, or give a program that ends by itself"
        )

    def wait_until_busy(self, *, seconds: float) -> None:
        """Until tasks finish: what starts up must not be taken for the load. Gives up quietly."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.exit_status is None:
            found = self.sample()
            if found is not None and found.tasks_total:
                time.sleep(_WARM_UP_SECONDS)
                return
            time.sleep(_POLL_SECONDS)

    def wait_until_applied(self, threads: int, *, seconds: float = 15.0) -> bool:
        """Whether the program acknowledged this count in time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = self.sample()
            if found is not None and found.threads_applied == threads:
                return True
            time.sleep(_POLL_SECONDS)
        return False


def run_to_end(command: list[str], threads: int) -> float:
    """Run a program that ends by itself with every thread variable set; return its seconds.

    Raises:
        SlimError: it failed; its exit status is in the message.
    """
    start = time.monotonic()
    process = _start(command, os.environ | thread_variables(threads))
    try:
        status = process.wait()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    if status != 0:
        raise SlimError(f"the program ended with status {status} at {threads} threads")
    return time.monotonic() - start


def _start(command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(command, env=environment)
    except OSError as error:
        raise SlimError(f"{command[0]} cannot be started: {error.strerror}") from error


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
