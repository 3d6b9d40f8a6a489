"""Progress on a terminal: what is being done, how much of it, how long it will take."""

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

__all__ = ["TerminalProgress"]


class TerminalProgress:
    """One bar for each stage. A context manager: the bars live inside it."""

    def __init__(self, console: Console) -> None:
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
        )
        self._console = console
        self._stage: TaskID | None = None

    def __enter__(self) -> "TerminalProgress":
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def begin(self, what: str, count: int) -> None:
        self._stage = self._bars.add_task(what, total=count) if count else None
        if count and not self._console.is_terminal:
            self._console.print(f"{what}: {count}", highlight=False)

    def step(self) -> None:
        if self._stage is not None:
            self._bars.advance(self._stage)
