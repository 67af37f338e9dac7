"""Reads a column of labels: 0, 1 or no label."""

import csv
import io
import math
import re
import shlex
from collections.abc import Mapping
from typing import Final

from replay.sources.column import MISSING

#: What text means without ``--labels``; numbers that equal 0 or 1 mean these.
_WORDS: Final = {
    **dict.fromkeys(("false", "f", "no", "n", "legit"), 0),
    **dict.fromkeys(("true", "t", "yes", "y", "fraud"), 1),
}
#: Text that stands where nothing is known.
_NOTHING: Final = frozenset(each.casefold() for each in MISSING)
#: Beside words it may be the other answer.
_NONE: Final = "none"
#: A number as databases write bits, with a decimal comma, or in percent.
_NUMBER: Final = re.compile(r"(?:0x|b(?='))?'?(-?\d+)(?:([.,])(\d{1,2}))?'?\s*%?", re.ASCII)
#: By name: what ``--labels`` may say that a label means.
_MEANINGS: Final = {"0": 0, "1": 1, "skip": None}
#: More different values than this are no labels.
_MOST: Final = 10

Meanings = Mapping[str, int | None]


def parse(text: str) -> Meanings:
    """Return what ``--labels`` says that labels mean; a name with a comma stands in quotes, as in a CSV file.

    Raises ValueError if it says something else; the message names the part.
    """
    found: dict[str, int | None] = {}
    for each in next(csv.reader([text], skipinitialspace=True)) if text else ():
        label, _, meaning = each.rpartition("=")
        if not label.strip() or meaning.strip() not in _MEANINGS:
            raise ValueError(f"{each!r}: write TEXT=0, TEXT=1 or TEXT=skip, separated by commas")
        found[_name(label)] = _MEANINGS[meaning.strip()]
    return found


def meanings(values: Mapping[str, int], given: Meanings) -> dict[str, float]:
    """Return what each value of a column means: 0.0, 1.0, or NaN for no label.

    Raises ValueError if a value may mean several things; the message says what to write.

    ``values``: the different values, and how often each occurs.
    ``given``: what ``--labels`` says. If it says what is 0 or 1, other values have no meaning of their own.
    """
    names = {value: _name(value) for value in values}
    known: dict[str, int | None] = dict(given)
    if all(meaning is None for meaning in given.values()):
        known |= {name: meaning for name in names.values() if (meaning := _usual(name)) is not None}
        if "t" not in names.values() and "f" not in given:
            known.pop("f", None)  # alone it may mark frauds
    there = {name: known.get(name) for name in names.values() if name not in _NOTHING}
    # Beside words that mean no 0, none is a word, too.
    nothing = _NOTHING - {_NONE} if 0 not in there.values() and not all(map(_is_number, there)) else _NOTHING
    known |= dict.fromkeys(nothing - known.keys())
    if unknown := [value for value, name in names.items() if name not in known]:
        raise ValueError(_question(unknown, values, names, known))
    return {value: math.nan if (meaning := known[name]) is None else float(meaning) for value, name in names.items()}


def _name(value: str) -> str:
    """Return a value as it is compared: without blanks around it and without case, numbers in one form."""
    text = value.strip().casefold()
    if match := _NUMBER.fullmatch(text):
        text = f"{match[1]}.{match[3] or 0}"
    try:
        number = float(text)
    except ValueError:
        return text
    return f"{number + 0.0:.15g}" if math.isfinite(number) else text


def _is_number(name: str) -> bool:
    return name[-1:].isdecimal()


def _usual(name: str) -> int | None:
    return int(name) if name in ("0", "1") else _WORDS.get(name)


def _question(unknown: list[str], values: Mapping[str, int], names: Mapping[str, str], known: Meanings) -> str:
    """Return the sentence that asks what values mean, with an answer that lacks only what is not known."""
    first = unknown[0]
    listed = [value for value, name in names.items() if name not in _NOTHING or known.get(name, 0) is not None]
    if len({names[value] for value in listed}) > _MOST:
        return f"holds {first!r} and {len(listed) - 1:,} other values, and a label has two: name the column of labels"
    written: dict[str, str] = {}
    for value in listed:
        written.setdefault(names[value], value.strip())
    # In 1 and 2, as in -1 and 1, a number means what the other leaves to it.
    sure: Meanings = {} if all(map(_is_number, written)) else known
    meant = {1: "1", 0: "0", None: "skip"}
    said = [f"{value}={meant[sure[name]] if name in sure else '?'}" for name, value in written.items()]
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(said)
    found = ", ".join(f"{value!r} ({values[value]:,})" for value in listed)
    return (
        f"holds {found}, and what {first!r} means is not known. Write 0, 1 or skip (no label) for each ?, and add: "
        f"--labels {shlex.quote(text.getvalue())}"
    )
