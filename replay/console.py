"""Coloured tables and lines whose text cannot control the terminal, and a progress bar."""

import sys
from collections.abc import Iterable
from typing import Any, Self

from rich import console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.segment import Segment
from rich.text import Text

from agents.terminal import plain, shown


class Console(console.Console):
    """rich's console on a standard stream. Control characters in printed text are escaped; those of rich are not.

    ``stderr``: whether it writes to standard error.
    """

    def __init__(self, *, stderr: bool = False, **options: Any) -> None:  # noqa: ANN401 - rich's
        super().__init__(file=plain(sys.stderr if stderr else sys.stdout), **options)

    def render_str(self, text: str, **options: Any) -> Text:  # noqa: ANN401 - rich's
        """Return text to measure and to print."""
        return super().render_str(shown(text), **options)

    def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:  # noqa: ANN401 - rich's
        """Return the pieces to be written. Text that rich did not get as a string is escaped, too."""
        for piece in super().render(renderable, options):
            yield piece if piece.control else Segment(shown(piece.text), piece.style)


class Bar:
    """A progress bar that disappears at its end. It is a context.

    ``to``: where it is drawn; nothing is drawn unless it is a terminal.
    """

    def __init__(self, to: console.Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=40), TaskProgressColumn(show_speed=True),
            TimeElapsedColumn(), TimeRemainingColumn(),
            console=to, transient=True, disable=not to.is_terminal,
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
        """Show how much of ``what`` is done; without a size, only that it is in progress."""
        self._progress.update(self._task, description=what, completed=done, total=size or None)
