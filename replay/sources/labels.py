"""Reads a column of labels: 0, 1 or no label."""

import csv
import io
import math
import re
import shlex
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from replay.sources.column import MISSING, is_marks

#: What text means without ``--labels``. Numbers that equal 0 or 1 mean these.
_WORDS: Final = {
    **dict.fromkeys(("false", "f", "no", "n", "legit"), 0),
    **dict.fromkeys(("true", "t", "yes", "y", "fraud"), 1),
    # The same in other languages.
    **dict.fromkeys(("falsch", "faux", "falso", "onwaar", "fałsz", "ложь", "偽"), 0),
    **dict.fromkeys(("wahr", "vrai", "verdadero", "verdadeiro", "vero", "waar", "prawda", "истина", "真"), 1),
    **dict.fromkeys(("nein", "non", "não", "nee", "nej", "nie", "нет", "いいえ"), 0),
    **dict.fromkeys(("ja", "oui", "sí", "sì", "si", "sim", "tak", "да", "はい"), 1),
}
#: Text that means *unknown*.
_NOTHING: Final = frozenset(each.casefold() for each in MISSING)
#: Characters of lines that databases draw, and of marks that stand for nothing.
_DRAWN: Final = frozenset("-–—.=_")
#: Text that, among words, may be the other answer.
_NONE: Final = "none"
#: A number as databases write bits, with a decimal comma, or in percent.
_NUMBER: Final = re.compile(r"(?:0x|b(?='))?'?(-?\d+)(?:([.,])(\d{1,2}))?'?\s*%?", re.ASCII)
#: A bit as MySQL writes it.
_BITS: Final = {"\0": "0", "\1": "1"}
#: What words probably mean. It is proposed, not assumed.
_LIKELY: Final = {
    **dict.fromkeys(("good", "paid", "fully paid", "repaid", "genuine", "retained", _NONE), 0),
    **dict.fromkeys(("fp", "false positive", "tn", "true negative"), 0),
    **dict.fromkeys(("tp", "true positive", "fn", "false negative", "confirmed fraud", "confirmed_fraud"), 1),
    **dict.fromkeys(("bad", "default", "defaulted", "charged off", "chargeback", "churned"), 1),
    **dict.fromkeys(("open", "pending", "unknown", "indeterminate", "current", "in progress"), None),
}
#: Meanings that ``--labels`` may give, by name.
_MEANINGS: Final = {"0": 0, "1": 1, "skip": None}
#: A column with more different values than this does not hold labels.
_MOST: Final = 10
#: At most this many numbers from 0 on may be codes, of which 2 stands for no label. More are counts.
_CODES: Final = 3

Meanings = Mapping[str, int | None]


def parse(text: str) -> Meanings:
    """Parse ``--labels``: the meaning of each label.

    A name with a comma must be in quotes. An empty name is an empty cell.

    Raises ValueError if a part has another form; the message names the part.
    """
    found: dict[str, int | None] = {}
    for each in next(csv.reader([text], skipinitialspace=True)) if text else ():
        label, _, meaning = each.rpartition("=")
        if "=" not in each or meaning.strip() not in _MEANINGS:
            raise ValueError(f"{each!r}: write TEXT=0, TEXT=1 or TEXT=skip, separated by commas")
        found[_name(label)] = _MEANINGS[meaning.strip()]
    return found


def meanings(values: Mapping[str, int], given: Meanings) -> dict[str, float]:
    """Return what each value of a column means: 0.0, 1.0, or NaN for no label.

    Raises ValueError if a value may mean several things; the message says what to write.

    ``values``: the different values, and how often each occurs.
    ``given``: the meanings from ``--labels``. If they include a 0 or a 1, other values have no default meaning.
    """
    names = {value: _name(value) for value in values}
    known: dict[str, int | None] = dict(given)
    if all(meaning is None for meaning in given.values()):
        known |= {name: meaning for name in names.values() if (meaning := _usual(name)) is not None}
        if "t" not in names.values() and "f" not in given:
            known.pop("f", None)  # without a "t" for true, "f" may mark frauds
    nothing = _NOTHING | _empty(names.values(), known)
    there = {name: known.get(name) for name in names.values() if name not in nothing}
    # Among words of which none means 0, "none" is a word, too.
    if 0 not in there.values() and not all(map(_is_number, there)):
        nothing -= {_NONE}
    known |= dict.fromkeys(nothing - known.keys())
    if unknown := [value for value, name in names.items() if name not in known]:
        raise ValueError(_question(unknown, values, names, known, nothing))
    return {value: math.nan if (meaning := known[name]) is None else float(meaning) for value, name in names.items()}


def _empty(names: Collection[str], known: Meanings) -> AbstractSet[str]:
    """Return the marks that mean no label: a dash or a dot, but beside a plus; another mark beside a 0 and a 1."""
    marks = {name for name in names if name and is_marks(name)}
    if len(marks) == 1 and {0, 1} <= {known.get(name) for name in names}:
        return marks
    return {mark for mark in marks if set(mark) <= _DRAWN} if "+" not in marks - known.keys() else set()


def _name(value: str) -> str:
    """Return a value in the form for comparison: stripped, in lower case, and with one form for numbers."""
    text = _BITS.get(value) or value.strip().casefold()
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


def _question(
    unknown: list[str], values: Mapping[str, int], names: Mapping[str, str], known: Meanings, nothing: AbstractSet[str]
) -> str:
    """Return the sentence that asks what values mean, with an answer that can be typed as it is."""
    first = unknown[0]
    listed = [value for value, name in names.items() if name not in nothing or known.get(name, 0) is not None]
    if len({names[value] for value in listed}) > _MOST:
        return f"holds {first!r} and {len(listed) - 1:,} other values, and a label has two: name the column of labels"
    written: dict[str, str] = {}
    for value in listed:
        written.setdefault(names[value], value.strip())
    said = _proposal(written, values, known)
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(f"{value}={meaning}" for value, meaning in said.items())
    found = ", ".join(f"{value!r} ({values[value]:,})" for value in listed)
    return (
        f"holds {found}, and what {first!r} means is not known. If it is this, add: "
        f"--labels {shlex.quote(text.getvalue())}; else write 0, 1 or skip (no label) behind each"
    )


def _proposal(shown: Mapping[str, str], values: Mapping[str, int], known: Meanings) -> dict[str, str]:
    """Guess what values mean. Of numbers the largest is 1 (of counts, all except 0); of other words the rarest."""
    meant = {name: known[name] for name in shown if name in known}
    try:
        order = {name: float(name) for name in shown}
        if {*meant.values()} == {1}:
            meant = {}  # in pairs such as 1 and 2, or -1 and 1, the larger is 1
    except ValueError:
        order = {name: -float(sum(n for value, n in values.items() if _name(value) == name)) for name in shown}
    meant |= {name: _LIKELY[name] for name in shown if name not in meant and name in _LIKELY}
    asked = sorted((name for name in shown if name not in meant), key=order.__getitem__)
    found = dict(meant) | dict.fromkeys(asked)
    if [*sorted(order.values())] == [*range(len(order))] and len(order) > _CODES:
        found |= dict.fromkeys(asked, 1)  # counts
    for meaning, at in ((0, 0), (1, -1)):
        if asked and meaning not in meant.values():
            found[asked[at]] = meaning
    return {shown[name]: "skip" if meaning is None else str(meaning) for name, meaning in found.items()}
