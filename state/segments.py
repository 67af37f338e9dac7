"""Segments of a stream: the names whose values its forecasts carry, and what they may be."""

from collections.abc import Sequence
from typing import Final, TypeGuard

#: Most names of segments of a stream, and most pairs of them.
MOST_NAMES: Final = 8
MOST_PAIRS: Final = 8
#: Longest name and longest value, bytes in UTF-8.
LONGEST: Final = 64


def check(names: Sequence[str], pairs: Sequence[Sequence[str]]) -> None:
    """Raise ValueError, saying what is allowed, unless a stream can have these segments."""
    if len(names) > MOST_NAMES:
        raise ValueError(f"segments names {len(names)}, at most {MOST_NAMES} are allowed")
    for name in names:
        if not name or not usable(name):
            raise ValueError(f"a segment has a printable name of 1 to {LONGEST} bytes, got {name!r}")
    if len(set(names)) < len(names):
        raise ValueError("segments must be different names")
    if len(pairs) > MOST_PAIRS:
        raise ValueError(f"pairs names {len(pairs)}, at most {MOST_PAIRS} are allowed")
    seen: set[frozenset[str]] = set()
    for pair in pairs:
        both = frozenset(pair)
        if len(pair) != 2 or len(both) != 2 or not both <= set(names):
            raise ValueError(f"a pair is two different names out of segments, got {list(pair)}")
        if both in seen:
            raise ValueError(f"pairs names {list(pair)} twice")
        seen.add(both)


def usable(value: object) -> TypeGuard[str]:
    """Whether something can be the value of a segment: text that is printable and no longer than `LONGEST`."""
    return (
        type(value) is str
        and len(value) <= LONGEST
        and value.isprintable()
        and (value.isascii() or len(value.encode()) <= LONGEST)
    )
