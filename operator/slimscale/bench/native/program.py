"""Build the native pool, run it, and talk with it: one line of JSON for each line sent."""

import hashlib
import json
import math
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from slimscale.bench.native.cgroups import CpuGroup
from slimscale.bench.native.errors import BuildError, PoolError
from slimscale.domain.contract import ContractSample, HistogramSnapshot
from slimscale.inpod.cgroup import CgroupCpu
from slimscale.simulate.workload import Family, TimeDistribution, Workload

__all__ = ["NativePool", "build", "load_fields", "sample_of", "source_folder"]

_ANSWER_SECONDS = 30.0
_SOURCES = ("nativepool.c", "pool.c", "load.c")
_HEADERS = ("pool.h", "load.h")
_FLAGS = ("-O2", "-std=c11", "-Wall", "-Wextra", "-Werror", "-pthread")


def source_folder() -> Path:
    """images/nativepool of the checkout that this package is run from. Raises BuildError."""
    folder = Path(__file__).resolve().parents[4] / "images" / "nativepool"
    if not (folder / _SOURCES[0]).is_file():
        raise BuildError("the sources of the native pool are not here; run from a checkout")
    return folder


def build(folder: Path | None = None) -> Path:
    """Compile if the sources have changed since; returns the program. Raises BuildError."""
    sources = source_folder()
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise BuildError("there is no C compiler; install gcc or clang, or set CC")
    text = b"".join((sources / name).read_bytes() for name in (*_SOURCES, *_HEADERS))
    target = folder or Path(tempfile.gettempdir()) / f"slimscale-nativepool-{os.getuid()}"
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder is None and target.stat().st_uid != os.getuid():
        raise BuildError(f"{target} belongs to somebody else")
    program = target / f"nativepool-{hashlib.sha256(text).hexdigest()[:12]}"
    if program.is_file():
        return program
    fresh = program.with_suffix(f".{os.getpid()}")
    made = subprocess.run(  # noqa: S603 - a compiler that the user names, and our own sources
        [compiler, *_FLAGS, "-o", fresh, *(sources / name for name in _SOURCES), "-lm"],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        raise BuildError(f"{compiler} refused the native pool: {made.stderr.strip()[:500]}")
    fresh.replace(program)
    return program


def load_fields(workload: Workload) -> str:
    """The workload as the program reads it (images/nativepool/load.h).

    Raises ValueError for what the program does not do: truncated Pareto times, hand-over costs
    on order (those of the machine are in every measurement).
    """
    if workload.contention_handover:
        raise ValueError("contention_handover is the machine's own here; give 0")
    return " ".join(
        (
            f"cpu={_distribution(workload.cpu)}",
            f"blocking={_distribution(workload.blocking)}",
            f"dispatch={_distribution(workload.dispatch)}",
            f"contention_linear={workload.contention_linear:.9g}",
            f"contention_quadratic={workload.contention_quadratic:.9g}",
            f"outstanding={workload.outstanding or 0}",
        )
    )


def _distribution(part: TimeDistribution) -> str:
    if part.family is Family.PARETO:
        raise ValueError("the native pool has no Pareto times; give another family")
    return f"{part.family}:{part.mean_seconds:.9g}:{part.squared_variation:.9g}"


class NativePool:
    """One run of the program, optionally inside a control group. A context manager.

    `threads` goes through the thread file of the contract, everything else through a pipe.
    """

    def __init__(
        self,
        program: Path,
        workload: Workload,
        *,
        threads: int,
        seed: int,
        group: CpuGroup | None = None,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="nativepool-")
        self._file = Path(self._folder.name) / "threads"
        self._group = group
        self.want(threads)
        self._process = subprocess.Popen(  # noqa: S603 - what `build` made
            [
                program,
                "--waiting",
                str(workload.waiting),
                "--seed",
                str(seed),
                *load_fields(workload).split(),
            ],
            env={"SLIMSCALE_THREADS_FILE": str(self._file)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            ready = self._answer()
            self.bounds_seconds = tuple(float(b) for b in ready["bucket_bounds_seconds"])
            self.loops_a_second = float(ready["loops_a_second"])
            if group is not None:
                group.add(self._process.pid)  # before there are threads, after the calibration
            self._ask("start")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def want(self, threads: int) -> None:
        """Write the thread file; the program follows within 0.2 s, or when it is asked next."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{threads}\n")
        fresh.replace(self._file)

    def set_workload(self, workload: Workload) -> None:
        """From the next task on. How threads wait for the dispatcher stays as it was."""
        self._ask(f"load {load_fields(workload)}")

    def raw(self) -> Mapping[str, Any]:
        """All counters since the start; follows the thread file first, to the end."""
        return self._ask("sample")

    def figures(self) -> CgroupCpu:
        return self._group.figures() if self._group is not None else CgroupCpu()

    def sample(self, *, pod_uid: str = "native-0") -> ContractSample:
        return sample_of(self.raw(), self.figures(), bounds=self.bounds_seconds, pod_uid=pod_uid)

    def close(self) -> None:
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):  # it has ended already
                self._process.stdin.close()
        try:
            self._process.wait(timeout=2.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._folder.cleanup()

    def _ask(self, command: str) -> Mapping[str, Any]:
        assert self._process.stdin is not None  # noqa: S101 - opened as a pipe above
        try:
            self._process.stdin.write(command.encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise PoolError("the native pool has ended") from error
        answer = self._answer()
        if "error" in answer:
            raise PoolError(f"the native pool refused `{command}`: {answer['error']}")
        return answer

    def _answer(self) -> Mapping[str, Any]:
        stdout = self._process.stdout
        assert stdout is not None  # noqa: S101 - opened as a pipe above
        end, line = time.monotonic() + _ANSWER_SECONDS, b""
        while not line.endswith(b"\n"):
            # Read straight from the descriptor: a buffer of ours would hide lines from select.
            if not select.select([stdout], [], [], max(0.0, end - time.monotonic()))[0]:
                raise PoolError(f"the native pool did not answer within {_ANSWER_SECONDS:.0f} s")
            more = os.read(stdout.fileno(), 65536)
            if not more:
                raise PoolError("the native pool has ended")
            line += more
        answer: Mapping[str, Any] = json.loads(line)
        return answer


def sample_of(
    raw: Mapping[str, Any], group: CgroupCpu, *, bounds: tuple[float, ...], pod_uid: str
) -> ContractSample:
    """What a pod with this program would serve; the container's part is the control group's."""
    return ContractSample(
        pod_uid=pod_uid,
        sampled_at_seconds=raw["sampled_at_seconds"],
        process_start_seconds=raw["process_start_seconds"],
        threads_applied=raw["threads_applied"],
        tasks_total=float(raw["tasks_total"]),
        tasks_outstanding=float(raw["tasks_outstanding"]),
        task=_histogram(raw["task"], bounds),
        dispatch=_histogram(raw["dispatch"], bounds),
        task_cpu_seconds_total=raw["task_cpu_seconds"],
        task_runqueue_seconds_total=raw.get("task_runqueue_seconds"),
        cpu_quota_cores=group.quota_cores,
        cpu_usage_seconds_total=group.usage_seconds,
        cpu_periods_total=_number(group.periods),
        cpu_throttled_periods_total=_number(group.throttled_periods),
        cpu_throttled_seconds_total=group.throttled_seconds,
    )


def _histogram(raw: Mapping[str, Any], bounds: tuple[float, ...]) -> HistogramSnapshot:
    cumulative = tuple(float(count) for count in accumulate(raw["counts"]))
    return HistogramSnapshot((*bounds, math.inf), cumulative, raw["sum_seconds"])


def _number(value: int | None) -> float | None:
    return None if value is None else float(value)
