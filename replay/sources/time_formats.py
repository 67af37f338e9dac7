"""The formats that a time may have, from its text alone: strptime's directives for its numbers and words."""

import calendar
import re
from collections.abc import Iterator
from itertools import chain, product
from typing import Final

#: Orders of the numbers in a date, with strptime's names; and orders of the numbers in the clock time after it.
_DATES: Final = ("d m Y", "m d Y", "d m y", "m d y", "Y m d", "y m d", "Y j", "dmY", "mdY", "Ymd", "ymd", "Yj")
_CLOCKS: Final = ("", " H M", " H M S", " H M S f")
#: Orders of numbers beside a month's name. The year may come after the clock time.
_BESIDE: Final = ("d Y", "d y", "Y d")
#: Orders for months, and for compact hours, with no clock time after them.
_ALONE: Final = ("Y m", "m Y", "Ym", "YmdH")
_ALONE_BESIDE: Final = ("y", "Y")
#: Number of digits of a directive, if it does not have one or two.
_DIGITS: Final = {"Y": 4, "j": 3}
#: Matches an offset after a clock time, a number, or a word.
_PARTS: Final = re.compile(r"(?<=[\d\sA-Z])[+-]\d\d:?\d\d(?=\s*$|\s+\d{4}$)|\d+|[^\W\d_]+")
#: Names of time zones that have no offset.
UNIVERSAL: Final = ("UTC", "GMT")
_NAMES: Final = {
    name.casefold(): directive
    for directive, names in (
        ("%B", calendar.month_name),
        ("%A", calendar.day_name),
        ("%b", calendar.month_abbr),
        ("%a", calendar.day_abbr),
        ("%p", ("AM", "PM")),
        ("%z", ("Z",)),
        ("%Z", UNIVERSAL),
    )
    for name in names
}
#: Words that join a date and a clock time. Others may be zones, or mean weeks and quarters.
_JOINING: Final = frozenset(("T", "at", "um", *"年月日時时分秒년월일"))
#: What programs write around a time: quotes, brackets, and a name before them, as in ``{"$date": "…"}`` and
#: ``Date(…)``.
_AROUND: Final = re.compile(r"""((?:/?[A-Za-z][\w. ]*)?[(\[]|\{\s*"\$\w+"\s*:|\s|["'])+(?P<time>.*?)["'\s)\]}/]*""")
#: Matches a number with marks between its thousands. No date has so many groups.
_GROUPED: Final = re.compile(r"\d{1,3}([.,'\u2019 ])\d{3}(\1\d{3}){2,}", re.ASCII)
#: Matches the name of a zone after its offset, and ``a. m.``.
_BEHIND: Final = re.compile(r"([+-]\d\d:?\d\d)\s*\([^()]*\)$", re.ASCII)
_HALF: Final = re.compile(r"\b([ap])\.\s?m\.", re.ASCII | re.IGNORECASE)


def bare(cell: str) -> str:
    """Return a time with plain blanks, without what a program wrote around it or between its digits.

    Examples
    --------
    >>> bare('{"$date": "2024-01-31T00:00:00Z"}'), bare("1,706,659,200,000"), bare("31/01/2024 09:05 a.\u00a0m.")
    ('2024-01-31T00:00:00Z', '1706659200000', '31/01/2024 09:05 am')
    """
    if cell[4:5] == "-" or cell.isdecimal():
        return cell
    cell = cell if cell.isascii() else cell.replace("\u202f", " ").replace("\u00a0", " ")
    if _GROUPED.fullmatch(cell):
        return re.sub(r"\D", "", cell)
    if match := _AROUND.fullmatch(cell):
        return match["time"]
    return _HALF.sub(r"\1m", _BEHIND.sub(r"\1", cell))


def zone_of(cell: str) -> str:
    """Return the name of a zone in a time, such as CET; empty if there is none."""
    return next((word for word in _PARTS.findall(cell) if _directive(word) == "%Z"), "")


def forms(cell: str) -> Iterator[str]:
    """Yield the formats that a text may have, by its numbers and words. The marks between them stay.

    Examples
    --------
    >>> [*forms("13/01/2024 9:05 AM")], [*forms("Mon Jan 13 09:05:00 CET 2025")], [*forms("2024-W05")]
    (['%d/%m/%Y %I:%M %p', '%m/%d/%Y %I:%M %p'], ['%a %b %d %H:%M:%S %Z %Y'], [])
    """
    parts = _PARTS.findall(cell)
    said = ["%z" if part[0] in "+-" else "" if part.isdecimal() else _directive(part) for part in parts]
    numbers = [part for part, each in zip(parts, said, strict=True) if not each]
    if any(each and each[0] != "%" for each in {*said} - _JOINING):
        return
    marks = [re.sub(r"\s+", " ", mark.replace("%", "%%")) for mark in _PARTS.split(cell)]
    beside = not {"%b", "%B"}.isdisjoint(said)
    orders = [date + clock for date, clock in product(_BESIDE if beside else _DATES, _CLOCKS)]
    if beside:
        orders += [re.sub(r"^d Y (.+)", r"d \1 Y", order) for order in orders if order.startswith("d Y ")]
    for order in (*orders, *(_ALONE_BESIDE if beside else _ALONE)):
        directives = [name.replace("H", "I") if "%p" in said else name for name in order.split()]
        if len(directives) != len(numbers) or not all(map(_holds, numbers, directives)):
            continue
        left = iter(directives)
        made = [name or "%" + "%".join(next(left)) for name in said]
        form = "".join(chain(*zip(marks, made, strict=False), marks[-1:]))
        if "%f" not in form or re.search("[.,]%f", form):
            yield form


def _directive(word: str) -> str:
    """Return strptime's directive for a word; the word itself if there is none."""
    zone = len(word) > 2 and word.isascii() and word.isupper()
    return _NAMES.get(word.casefold()) or ("%Z" if zone else word)


def _holds(number: str, directives: str) -> bool:
    """Whether a number has the digits that strptime takes for directives; one of two digits may lack its zero."""
    digits = sum(_DIGITS.get(each, 2) for each in directives)
    return directives == "f" or len(number) == digits or len(number) == len(directives) == digits - 1
