"""Server processes: started, waited for, paused while others are measured, read for CPU, ended."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from slimscale.exceptions import SlimError

__all__ = [
    "ServerFailed",
    "ServerProcess",
    "cpu_seconds",
    "free_port",
    "put_first",
    "tree_of",
    "wait_for_port",
]

_TICK = 1.0 / os.sysconf("SC_CLK_TCK")
_END_SECONDS = 10.0
PRIORITY = -15


class ServerFailed(SlimError):
    """A server has not come up, or has gone."""


def put_first(pid: int) -> None:
    """Before other work on this machine, where we may: noise of others would be measured otherwise.

    Linux shares the CPUs between sessions first (sched_autogroup, sched(7)), so that a process's own
    nice value does little; what `pid` starts inherits both.
    """
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, PRIORITY)
    with suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(PRIORITY))


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class ServerProcess:
    """One child with its output in a file. `role` names it in tables of CPU."""

    def __init__(
        self,
        role: str,
        command: Sequence[str],
        *,
        log: Path,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        self.role = role
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            self._child = subprocess.Popen(  # noqa: S603 - commands of the benchmark's own making
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                cwd=folder,
                start_new_session=True,
            )
        put_first(self._child.pid)

    @property
    def pid(self) -> int:
        return self._child.pid

    def check(self) -> None:
        """Raises ServerFailed with the end of its output when the process has gone."""
        if (code := self._child.poll()) is not None:
            tail = self._log.read_text(errors="replace")[-600:]
            raise ServerFailed(f"{self.role} ended with {code}; its last words:\n{tail}")

    def pids(self) -> list[int]:
        return tree_of(self.pid)

    def put_first(self) -> None:
        """The whole tree alike: some servers start workers in sessions of their own."""
        for pid in self.pids():
            put_first(pid)

    def stop(self) -> None:
        """SIGTERM to the whole tree, SIGKILL to what is left of it."""
        pids = self.pids()
        _signal(pids, signal.SIGCONT)
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(_END_SECONDS)
        _signal([pid for pid in pids if _alive(pid)], signal.SIGKILL)
        self._child.wait()

    def pause(self) -> None:
        _signal(self.pids(), signal.SIGSTOP)

    def resume(self) -> None:
        _signal(self.pids(), signal.SIGCONT)


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def tree_of(pid: int) -> list[int]:
    """`pid` and all its descendants, as /proc says now."""
    found, position = [pid], 0
    while position < len(found):
        children = ""
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{found[position]}/task"):
                path = f"/proc/{found[position]}/task/{thread}/children"
                children += Path(path).read_text() + " "
        found += [int(child) for child in children.split()]
        position += 1
    return found


def cpu_seconds(pids: Sequence[int]) -> float:
    """CPU time of these processes so far, exact to nanoseconds where the kernel has schedstat.

    Threads that have ended are missing there, so that the larger of the two readings counts
    (proc_pid_stat(5) has whole ticks and ended threads).
    """
    return sum(max(_by_threads(pid), _by_ticks(pid)) for pid in pids)


def _by_threads(pid: int) -> float:
    nanos = 0
    with suppress(OSError, IndexError, ValueError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            nanos += int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[0])
    return nanos * 1e-9


def _by_ticks(pid: int) -> float:
    with suppress(OSError, IndexError, ValueError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12]) - 1) * _TICK
    return 0.0


def wait_for_port(port: int, processes: Sequence[ServerProcess], *, seconds: float) -> None:
    """Until something listens there. Raises ServerFailed."""
    end = time.monotonic() + seconds
    while True:
        for process in processes:
            process.check()
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return
        if time.monotonic() > end:
            raise ServerFailed(f"nothing listens on port {port} after {seconds:g} s")
        time.sleep(0.1)
