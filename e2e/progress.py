"""Steps with a clock that runs while they do, a log file each, and the log's end when one fails."""

import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

SHOWN_LINES = 25
#: Without a terminal (continuous integration) a line this often says that work goes on.
HEARTBEAT_SECONDS = 30.0


class StepFailed(Exception):
    """A step's command failed; the message holds the end of its log."""


@dataclass(slots=True)
class Step:
    """One step in progress: what it runs is logged to its file."""

    name: str
    log_path: Path
    log: IO[str]
    env: Mapping[str, str]

    def run(
        self,
        *command: str | Path,
        cwd: Path | None = None,
        stdin: str | None = None,
        timeout_seconds: float | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Run to the log; raise StepFailed when it exits with another status than 0."""
        self._start(command)
        try:
            done = subprocess.run(
                [str(part) for part in command],
                cwd=cwd,
                input=stdin,
                stdin=None if stdin is not None else subprocess.DEVNULL,
                stdout=self.log,
                stderr=subprocess.STDOUT,
                text=True,
                env={**self.env, **(env or {})},
                timeout=timeout_seconds,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise self.failed(f"{command[0]}: {error}") from error
        if done.returncode != 0:
            raise self.failed(f"{Path(command[0]).name} exited with {done.returncode}")

    def output(self, *command: str | Path, cwd: Path | None = None) -> str:
        """What the command prints; errors go to the log."""
        self._start(command)
        done = subprocess.run(
            [str(part) for part in command],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env=dict(self.env),
            check=False,
        )
        if done.returncode != 0:
            raise self.failed(f"{Path(command[0]).name} exited with {done.returncode}")
        return done.stdout

    def pipe(self, producer: Sequence[str | Path], consumer: Sequence[str | Path]) -> None:
        """`producer | consumer`, failing when either does."""
        self._start([*producer, "|", *consumer])
        env = dict(self.env)
        source = subprocess.Popen(
            [str(part) for part in producer], stdout=subprocess.PIPE, stderr=self.log, env=env
        )
        sink = subprocess.run(
            [str(part) for part in consumer],
            stdin=source.stdout,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            env=env,
            check=False,
        )
        if source.stdout is not None:
            source.stdout.close()
        if source.wait() != 0 or sink.returncode != 0:
            raise self.failed(f"{producer[0]} | {consumer[0]} failed")

    def note(self, text: str) -> None:
        """A line into the log."""
        self.log.write(f"{text}\n")
        self.log.flush()

    def failed(self, reason: str) -> StepFailed:
        """The exception that says so, with the last lines of the log."""
        self.log.flush()
        lines = self.log_path.read_text(errors="replace").splitlines()[-SHOWN_LINES:]
        end = "\n".join(f"    {line}" for line in lines)
        return StepFailed(f"{self.name}: {reason}\n{end}\n  whole log: {self.log_path}")

    def _start(self, command: Sequence[str | Path]) -> None:
        self.note("$ " + " ".join(str(part) for part in command))


@dataclass(slots=True)
class Steps:
    """Runs steps one after the other and shows how long each has taken."""

    logs: Path
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    console: Console = field(default_factory=lambda: Console(stderr=True, highlight=False))
    timings: list[tuple[str, float]] = field(default_factory=list)

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """A named step; its log is `logs/<name>.log`, overwritten each time."""
        self.logs.mkdir(parents=True, exist_ok=True)
        path = self.logs / (re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-") + ".log")
        start = time.monotonic()
        with path.open("w") as log, self._clock(name):
            yield Step(name, path, log, self.env)
        seconds = time.monotonic() - start
        self.timings.append((name, seconds))
        self.console.print(f"[green]done[/] {name} ({seconds:.0f} s)", soft_wrap=True)

    def skip(self, name: str, why: str) -> None:
        """Say that a step's output is already there."""
        self.console.print(f"[dim]skip {name}: {why}[/]", soft_wrap=True)

    @contextmanager
    def _clock(self, name: str) -> Iterator[None]:
        if self.console.is_terminal:
            columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
            with Progress(*columns, console=self.console, transient=True) as progress:
                progress.add_task(name, total=None)
                yield
            return
        self.console.print(f"...  {name}", soft_wrap=True)
        ended = threading.Event()
        start = time.monotonic()

        def beat() -> None:
            while not ended.wait(HEARTBEAT_SECONDS):
                self.console.print(
                    f"...  {name}: {time.monotonic() - start:.0f} s so far", soft_wrap=True
                )

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
