"""Finds unreadable records that mention an event. Nothing is known of their fields, only their bytes."""

import json
import re
from collections.abc import Callable, Iterable
from typing import Final

from streams.records.output_avro import varint

#: Matches a byte of a word; and a position where a word or a mark begins, not inside a word.
_INSIDE: Final = re.compile(rb"[\w-]")
_WORD: Final = re.compile(rb"(?<![\w-])(?=.)", re.DOTALL)
#: The digits of an escaped character.
_DIGITS: Final = re.compile(r"(?<=\\u)[0-9a-f]{4}")


def mentions(texts: Iterable[str]) -> Callable[[bytes], bool]:
    """Return a function that says whether bytes hold one of some texts as a whole: ``a1`` does not stand in ``a12``.

    A text between two marks is whole. In Avro and Protobuf, the text's length stands before it, and the next field may
    look like more of the word. So a text of exactly twice the length may match, too. In JSON a text may also be
    escaped.
    """
    wanted = {form.encode() for each in texts for form in _forms(each)}
    #: By length of a text: the bytes that Protobuf and Avro write before it.
    lengths = {size: (varint(size), varint(2 * size)) for size in sorted({len(each) for each in wanted})}

    def holds(value: bytes) -> bool:
        words = value.lstrip()[:1] == b"{"
        starts = (each.start() for each in _WORD.finditer(value)) if words else range(len(value))
        return any(
            value[at : at + size] in wanted
            and (
                _whole(value, at, at + size) or (not words and any(value.endswith(length, 0, at) for length in framed))
            )
            for at in starts
            for size, framed in lengths.items()
        )

    return holds


def _forms(text: str) -> set[str]:
    """Return a text and its escaped forms in JSON: non-ASCII letters, in digits of either case, and slashes."""
    forms = {json.dumps(text, ensure_ascii=escaped)[1:-1] for escaped in (True, False)}
    forms |= {_DIGITS.sub(lambda found: found[0].upper(), each) for each in forms}
    return {text} | forms | {each.replace("/", "\\/") for each in forms}


def _whole(value: bytes, begin: int, end: int) -> bool:
    return not (_INSIDE.match(value, end) or (begin and _INSIDE.match(value, begin - 1)))
