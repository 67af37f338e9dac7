"""Output to terminals. Text from records and tables must not control them.

The name of a column, a label or a stream may hold anything: sequences that colour, hide or move text, and characters
that reverse its direction.
"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TextIO, cast

#: Control characters except tab and end of line; and characters that reverse the direction of text.
_STEERING: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def shown(text: str) -> str:
    r"""Return text in which every character that controls a terminal is spelled out.

    >>> shown("a\x1b[2Jb")
    'a⟨U+001B⟩[2Jb'
    """
    return _STEERING.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)


class Shown:
    """A text stream that spells out characters that control a terminal."""

    def __init__(self, stream: TextIO) -> None:
        #: The stream to which it writes.
        self.stream = stream

    def write(self, text: str) -> int:
        """Write text as `shown` returns it."""
        return self.stream.write(shown(text))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a stream has
        return getattr(self.stream, name)


def plain(stream: TextIO) -> TextIO:
    """Return the stream below a `Shown`, for a caller that applies `shown` itself and writes its own sequences."""
    return stream.stream if isinstance(stream, Shown) else stream


@contextmanager
def guarded() -> Iterator[None]:
    """Put a `Shown` over the standard streams of this process.

    One that was closed by whoever started it goes nowhere: its number is taken, so no file of the state gets it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - for as long as the process lives
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = cast("TextIO", Shown(sys.stdout)), cast("TextIO", Shown(sys.stderr))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
