"""The process: read the settings, serve the metrics, run phases until SIGTERM."""

import contextlib
import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

from threadpoolctl import threadpool_limits

from .contract import InpodContract
from .figures import Figures
from .phases import PhaseFile, PhaseSelector
from .settings import Settings
from .workload import Workload

__all__ = ["engine_address", "run"]

log = logging.getLogger("simserver")

ENGINE_START_SECONDS = 20.0
ENGINE_STOP_SECONDS = 5.0


def run(settings: Settings, *, metrics_port: int) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    # The policy's matrices are small: a second BLAS thread would only wait for the first. Said
    # here as well as in the image, because an admission webhook may have set the variables.
    threadpool_limits(1, user_api="blas")
    figures = Figures()
    selector = PhaseSelector(
        settings.schedule, PhaseFile(settings.phase_file), started_seconds=time.monotonic()
    )
    with (
        engine_address(settings) as engine,
        InpodContract(settings.threads, metrics_port=metrics_port, figures=figures) as contract,
    ):
        workload = Workload(settings, contract, figures, engine=engine)
        log.info("running with %d threads, schedule %s", workload.threads, settings.schedule.text)
        problem, phase = "", None
        try:
            while not stop.is_set():
                now = selector.current(time.monotonic())
                if now is not phase:
                    log.info("phase %s", now)
                    phase = now
                if selector.problem != problem:
                    problem = selector.problem
                    log.warning("phase annotation: %s", problem or "mended")
                workload.slice(now, rejected_phases=selector.rejected)
        finally:
            workload.close()
    return 0


@contextlib.contextmanager
def engine_address(settings: Settings) -> Iterator[tuple[str, int]]:
    """Where the external engine listens; starts one as a child process where none is named."""
    if settings.engine is not None:
        yield settings.engine
        return
    command = [sys.executable, "-m", __package__ or "simserver", "engine", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:  # noqa: S603
        try:
            yield ("127.0.0.1", _port_of(child))
        finally:
            child.terminate()
            try:
                child.wait(ENGINE_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()


def _port_of(child: "subprocess.Popen[str]") -> int:
    """The child writes the port that it got as its first line."""
    timer = threading.Timer(ENGINE_START_SECONDS, child.kill)
    timer.start()
    try:
        assert child.stdout is not None  # noqa: S101 - asked for above
        line = child.stdout.readline().strip()
    finally:
        timer.cancel()
    if not line.isdigit():
        raise RuntimeError("the engine did not start; its own output says why")
    return int(line)
