"""How far a replay is: a bar with rate and time left, at a terminal only."""

from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Bar:
    """A progress bar that goes when it is done. A context.

    ``console``: where it is drawn; nothing is drawn unless it is a terminal.
    """

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=40), TaskProgressColumn(show_speed=True),
            TimeElapsedColumn(), TimeRemainingColumn(),
            console=console, transient=True, disable=not console.is_terminal,
        )  # fmt: skip
        self._task = self._progress.add_task("")

    def __enter__(self) -> Self:
        """Begin."""
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._progress.stop()

    def show(self, what: str, done: int, size: int) -> None:
        """Show how much of what is done; without a size, that something goes on."""
        self._progress.update(self._task, description=what, completed=done, total=size or None)
