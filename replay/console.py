"""Tables and lines in colour, in which no text steers the terminal."""

import sys
from collections.abc import Iterable
from typing import Any

from rich import console
from rich.segment import Segment
from rich.text import Text

from agents.terminal import plain, shown


class Console(console.Console):
    """rich's console on a standard stream; what it is given to print is spelled out, its own sequences are not.

    ``stderr``: whether it writes to standard error.
    """

    def __init__(self, *, stderr: bool = False, **options: Any) -> None:  # noqa: ANN401 - rich's
        super().__init__(file=plain(sys.stderr if stderr else sys.stdout), **options)

    def render_str(self, text: str, **options: Any) -> Text:  # noqa: ANN401 - rich's
        """Return text to measure and to print."""
        return super().render_str(shown(text), **options)

    def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:  # noqa: ANN401 - rich's
        """Return what is written, piece by piece; text that no string was made of is spelled out, too."""
        for piece in super().render(renderable, options):
            yield piece if piece.control else Segment(shown(piece.text), piece.style)
