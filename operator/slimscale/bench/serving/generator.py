"""The load generator's process, seen from the benchmark."""

import json
import subprocess
import sys
from types import TracebackType

from slimscale.bench.serving.loadgen.job import Answered, Job
from slimscale.bench.serving.processes import ServerFailed, cpu_seconds, put_first

__all__ = ["Generator"]


class Generator:
    """A context manager: the process lives inside it and does one job after the other."""

    def __enter__(self) -> "Generator":
        self._child = subprocess.Popen(
            [sys.executable, "-m", "slimscale.bench.serving.loadgen"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        put_first(self._child.pid)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._child.terminate()
        self._child.wait()

    def do(self, job: Job) -> Answered:
        """Raises ServerFailed when the server does not take connections."""
        assert self._child.stdin is not None  # noqa: S101 - both are pipes
        assert self._child.stdout is not None  # noqa: S101
        self._child.stdin.write(json.dumps(job.to_json()) + "\n")
        self._child.stdin.flush()
        line = self._child.stdout.readline()
        if not line:
            raise ServerFailed(f"the load generator ended with {self._child.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise ServerFailed(f"the load generator could not connect: {answer['error']}")
        return Answered(**answer)

    def cpu_seconds(self) -> float:
        return cpu_seconds([self._child.pid])
