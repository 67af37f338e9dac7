"""Reads a column of times as ms since 1970. All cells must have one format. An error names the cell that differs."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, time, timedelta, timezone, tzinfo
from functools import lru_cache, partial
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from numpy.typing import NDArray

from replay.sources.column import Column, counted, quoted
from replay.sources.record import TableError
from replay.sources.time_formats import UNIVERSAL, bare, forms, zone_of
from state.arrays import Integers
from state.scoring.ages import DAY_MS

#: Stands for *no time*.
NEVER: Final = int(np.iinfo(np.int64).min)
#: The first year of times; the last one is next year. So the size of a number shows its unit.
FIRST: Final = 1990
#: A label's time outside these years, such as 9999-12-31, means that there is no time.
_NONE_FROM, _NONE_TO = 2099, 1900
_NO_DATE: Final = re.compile(r"0000-00-00.*|1900-01-00.*|[+-]?infinity|0(\.0*)?|-1(\.0*)?", re.IGNORECASE)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_QUARTER_MS: Final = 900_000
#: No time zone is further from UTC. So a label's time that is no further from 1970 was a 0.
_ZONES_MS: Final = 14 * 3_600_000
#: Units of numbers since 1970, and their factors to ms.
_UNITS: Final = (
    ("seconds since 1970", 1e3),
    ("milliseconds since 1970", 1.0),
    ("microseconds since 1970", 1e-3),
    ("nanoseconds since 1970", 1e-6),
)
#: Ticks of .NET, 100 ns each: 1970-01-01 in ticks. If ticks of these decades are read as nanoseconds since 1970, they
#: are in early 1990.
_TICKS: Final = 621_355_968_000_000_000
#: Dates of digits alone, by how many digits they have.
_DIGITS: Final = {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S", 17: "%Y%m%d%H%M%S%f"}
#: 1970-01-01 as a spreadsheet's number.
_SHEET: Final = 25_569
ISO: Final = "ISO 8601"
_ISO: Final = re.compile(
    r"(?:(\d{4})([-/.])(\d\d?)\2(\d\d?)|(\d{4})(\d\d)(\d\d))"
    r"(?:(?:T|_|\s+)(\d\d?)(?::?(\d\d)(?::?(\d\d)(?:[.,](\d+))?)?)?)?"
    r"\s*(?:(?:(Z|UTC|GMT)|(?:(?:UTC|GMT)(?=[+-])|(?=[+-]\d\d))([+-]\d\d?):?(\d\d)?)(?:\s*[\[(]?[a-z]{3}[\w/+-]*[\])]?)?"
    r"|\[?([a-z]{3,}(?:/[\w/+-]+)?)\]?)?",
    re.IGNORECASE | re.ASCII,
)
_NUMBER: Final = re.compile(r"[+-]?\d+(?:[.,]\d*)?(?:[eE][+-]?\d+)?", re.ASCII)
#: A number with an exponent. Spreadsheets cut digits; other programs leave out zeros. A column was cut if the last
#: digit of every cell stands for more than 100 s: whole days, of 86,400 s, need no more digits than that.
_ROUNDED: Final = re.compile(r"\d(?:[.,](\d*))?[eE]\+(\d\d)", re.ASCII)
_CUT_MS: Final = 100_000
#: Matches a time of day, or a duration as pandas writes it.
_OF_DAY: Final = re.compile(r"(-?\d+ days?,? ?)?(\d{1,2}:\d\d(:\d\d([.,]\d+)?)?(\s*[AaPp][Mm])?)?", re.ASCII)
#: Number of cells that are tried before a format is proposed.
_TRIED: Final = 10_000


UTC_ASSUMED: Final = "Times without a zone were taken as UTC; --time-zone names another, such as Europe/Berlin."


class ReadTimes(NamedTuple):
    """Ms since 1970, `NEVER` if there is none; and assumptions, in sentences."""

    ms: Integers
    notes: Sequence[str] = ()


class _Clock:
    """The zone of times that do not name one; whether it was needed; and the range of plausible times, ms."""

    def __init__(self, zone: tzinfo) -> None:
        self._zone, self.assumed = zone, False
        now = datetime.now(UTC)
        self.now, self.last = (now - _EPOCH) // _MS, now.year + 1
        self.span = tuple((datetime(year, 1, 1, tzinfo=UTC) - _EPOCH) // _MS for year in (FIRST, self.last + 1))

    def ms(self, time: datetime) -> int:
        if time.tzinfo is None:
            self.assumed = True
            time = time.replace(tzinfo=self._zone)
        return (time - _EPOCH) // _MS

    def named(self, moment: datetime, name: str) -> int:
        """Return a time in UTC, given its zone: a region such as Europe/Berlin if it uses this name, or CET or CEST.

        Raises ValueError if the zone does not use the name: EST may be New York's or Sydney's.
        """
        if name.upper() in UNIVERSAL:
            return self.ms(moment.replace(tzinfo=UTC))
        if "/" in name and name.casefold() != str(self._zone).casefold():
            try:
                return self.ms(moment.replace(tzinfo=ZoneInfo(name)))
            except (ZoneInfoNotFoundError, OSError) as exc:
                raise ValueError(name) from exc
        for each in (moment.replace(tzinfo=self._zone, fold=fold) for fold in (0, 1)):
            if "/" in name or each.tzname() == name.upper():
                return self.ms(each)
        raise ValueError(name)


_Tell = Callable[[str, _Clock], tuple[str, int]]


def read(column: Column, form: str | None = None, zone: tzinfo | None = None, *, only: bool = True) -> ReadTimes:
    """Read a column of times.

    Raises TableError if cells have several formats or an unknown one, or are not from the year `FIRST` to next year. A
    ``--label-time`` in an impossible year means that there is none.

    ``form``: a format for strptime; None: ISO 8601, numbers since 1970, days of a spreadsheet, dates of digits alone.
    ``zone``: time zone of times that do not name one; None: UTC, and a note says so.
    ``only``: whether to use ``form`` even if no cell fits it.
    """
    clock, of_label = _Clock(zone or UTC), column.option == "--label-time"
    if not isinstance(column.cells, list):
        kind, ms = "", column.cells.astype(np.int64)
    else:
        texts = ["" if of_label and _NO_DATE.fullmatch(cell) else bare(cell) for cell in column.present()]
        tell = partial(_formatted, form) if form else _usual
        kinds, ms = _told(texts, tell, clock)
        if form and not only and kinds.keys() == {""}:
            tell = _usual
            kinds, ms = _told(texts, tell, clock)
        if len(kinds) > 1 or "" in kinds:
            raise _wrong(column, texts, tell, clock, kinds, form)
        kind = next(iter(kinds), "")
        if to_ms := dict(_UNITS).get(kind):
            shorts = (_ROUNDED.fullmatch(cell) for cell in texts if cell)
            if all(short and 10.0 ** (int(short[2]) - len(short[1] or "")) * to_ms > _CUT_MS for short in shorts):
                at = next(at for at, cell in enumerate(texts) if cell)
                raise column.wrong(at, ", whose last digits were cut; export the column with all of them")
    notes = []
    if clock.assumed and zone is None:
        notes.append(UTC_ASSUMED)
    if kind and kind not in (ISO, form):
        at = next(at for at, each in enumerate(ms) if each != NEVER)
        notes.append(f"{column.option} {column.name!r} was read as {kind}: {column.texts[at]!r} is {_date(ms[at])}.")
    there = ms != NEVER
    if of_label:
        none = there & ((ms >= _year(_NONE_FROM)) | (ms < _year(_NONE_TO + 1)) | (abs(ms) <= _ZONES_MS))
        if none.any():
            first = column.cells[int(np.argmax(none))]
            notes.append(f"--label-time {column.name!r}: {quoted(first)} was taken as no date ({none.sum():,} in all).")
        ms = np.where(none, NEVER, ms)
        there &= ~none
    return ReadTimes(ms, notes + _plausible(column, ms, there, clock))


def _plausible(column: Column, ms: Integers, there: NDArray[np.bool_], clock: _Clock) -> list[str]:
    """Note how many times are in the future. Raises TableError if a year is not plausible."""
    out = there & ((ms < clock.span[0]) | (ms >= clock.span[1]))
    if out.any():
        at = int(np.argmax(out))
        raise column.wrong(
            at, f", which is {_date(ms[at])} and not from {FIRST} to {clock.last}; correct it, or leave it empty"
        )
    late = there & (ms > clock.now)
    if not late.any():
        return []
    at = int(np.argmax(late))
    many = counted(int(late.sum()), "time")
    return [f"{column.option} {column.name!r}: {many} later than now; the first is {column.at(at)}, {_date(ms[at])}."]


def ends(moments: Integers, zone: tzinfo) -> Integers:
    """Return the end of the day (in a zone), minute or second to which each time was rounded, ms.

    It is the longest of the three such that all times are at its beginning.
    """
    if not (moments % _QUARTER_MS).any():  # zones differ from UTC by multiples of this
        starts = [datetime.fromtimestamp(each / 1000, zone) for each in moments.tolist()]
        if all(each.time() == time() for each in starts):
            return np.array([(each + timedelta(days=1)).timestamp() * 1000 for each in starts], dtype=np.int64)
    return moments + next(unit for unit in (60_000, 1_000, 1) if not (moments % unit).any())


def _told(texts: Sequence[str], tell: _Tell, clock: _Clock) -> tuple[Counter[str], Integers]:
    """Count the cells of each format ("" for an unknown one), and return their ms."""
    kinds: Counter[str] = Counter()
    found = np.full(len(texts), NEVER)
    for at, cell in enumerate(texts):
        if cell:
            try:
                kind, found[at] = tell(cell, clock)
            except (ValueError, OverflowError):
                kind = ""
            kinds[kind] += 1
    return kinds, found


def _usual(cell: str, clock: _Clock) -> tuple[str, int]:
    if cell[4:5] == "-" and cell[10:11] in ("T", " ", ""):
        try:
            return ISO, clock.ms(datetime.fromisoformat(cell))
        except ValueError:
            pass  # related programs write it like this
    if _NUMBER.fullmatch(cell):
        return _number(cell, clock)
    match = _ISO.fullmatch(cell)
    if not match:
        raise ValueError(cell)
    year, month, day = (int(part) for part in (match.group(1, 3, 4) if match[1] else match.group(5, 6, 7)))
    hour, minute, second = (int(part or 0) for part in match.group(8, 9, 10))
    zone: tzinfo | None = UTC if match[12] else None
    if match[13]:
        zone = timezone(timedelta(hours=int(match[13]), minutes=int(match[13][0] + (match[14] or "0"))))
    fraction = int(f"{match[11] or ''}000000"[:6])
    moment = datetime(year, month, day, hour, minute, second, fraction, zone)
    return ISO, clock.named(moment, match[15]) if match[15] else clock.ms(moment)


def _number(cell: str, clock: _Clock) -> tuple[str, int]:
    value = float(cell.replace(",", "."))
    first, last = clock.span
    if first <= (value - _TICKS) * 1e-4 < last:
        return "ticks of .NET", round((value - _TICKS) * 1e-4)
    for kind, to_ms in _UNITS:
        if first <= value * to_ms < last:
            return kind, round(value * to_ms)
    if first <= (days := (value - _SHEET) * DAY_MS) < last:
        return "days of a spreadsheet", clock.ms(datetime(1970, 1, 1) + timedelta(milliseconds=round(days)))  # noqa: DTZ001 - without a zone
    digits = cell.removesuffix(".0")
    if digits.isdecimal() and len(digits) in _DIGITS:
        form = _DIGITS[len(digits)]
        return f"dates written as {form}", clock.ms(datetime.strptime(digits, form))  # noqa: DTZ007 - the same
    raise ValueError(cell)


@lru_cache(maxsize=1 << 16)
def _parsed(form: str, cell: str) -> datetime:
    try:
        time = datetime.strptime(cell, form)  # noqa: DTZ007 - the zone is the clock's if the format has none
    except ValueError:
        # There are more digits than those of microseconds, an offset of hours alone, or an integer stored as a float.
        other = re.sub(r"([.,]\d{6})\d+", r"\1", cell.removesuffix(".0"))
        other = re.sub(r"([+-]\d\d)$", r"\g<1>00", other) if form.endswith("%z") else other
        time = datetime.strptime(other, form)  # noqa: DTZ007 - the same
    return time


def _formatted(form: str, cell: str, clock: _Clock) -> tuple[str, int]:
    zone = zone_of(cell) if "%Z" in form else ""
    moment = _parsed(form, cell.replace(zone, "UTC", 1) if zone else cell)
    # an offset is more exact than a name
    return form, clock.named(moment, zone) if zone and moment.tzinfo is None else clock.ms(moment)


def _wrong(
    column: Column, texts: Sequence[str], tell: _Tell, clock: _Clock, kinds: Counter[str], form: str | None
) -> TableError:
    """Return the error for the first cell that is not written like most others."""
    most, count = kinds.most_common(1)[0]
    if form and not most:
        most, count = form, kinds[form]
    others = counted(count, "other cell")

    def kind(cell: str) -> str:
        return next(iter(_told([cell], tell, clock)[0]))

    at = next(at for at, cell in enumerate(texts) if cell and (kind(cell) != most if most else not kind(cell)))
    if form:
        said = f", which is not written as {form}, as {others}" if count else f", not written as {form}"
        if _told(texts, _usual, clock)[0].keys() == {ISO}:
            return column.wrong(at, f"{said}; leave the format out: all are {ISO}")
        others_fit = _fitting([cell for cell in texts if cell][:_TRIED], clock)[:1] if kinds[""] > count else ()
        fits = "".join(f", such as '{each}'" for each in others_fit)
        return column.wrong(at, f"{said}; correct it, leave it empty, or give another {column.option}-format{fits}")
    cell = texts[at]
    if most:
        own = kind(cell)
        said = f", {f'which are {own}, and' if own else 'and'} {others} {most}"
        return column.wrong(at, f"{said}; correct it, or leave it empty")
    return column.wrong(at, _unknown(column, cell, [each for each in texts if each and not kind(each)], clock))


def _unknown(column: Column, cell: str, unknown: Sequence[str], clock: _Clock) -> str:
    """Return the message for a cell of unknown format, if others have it, too."""
    if _OF_DAY.fullmatch(cell):
        return f", which is not a date; {column.option} needs a column with dates"
    match, fits = _ISO.fullmatch(cell), _fitting(unknown[:_TRIED], clock)
    zone = match[15] if match else "" if fits else zone_of(cell)
    if zone and zone not in UNIVERSAL:
        return f", which names the zone {zone!r}; --time-zone says which it is, such as --time-zone Europe/Berlin"
    if fits:
        listed = " or ".join(f"{column.option}-format '{each}'" for each in fits)
        said = f"is not ISO 8601; say how it is written: {listed}"
    elif _NUMBER.fullmatch(cell):
        said = (
            f"is not a time from {FIRST} to {clock.last}: neither in s, ms, µs or ns since 1970, nor in days of a "
            f"spreadsheet, nor as a date of digits; write dates, or say by {column.option}-format how it is written"
        )
    else:
        said = (
            "is not a time that is recognised (ISO 8601, or a number since 1970); write it as 2024-01-31, or say how "
            f"it is written, such as {column.option}-format '%d.%m.%Y %H:%M'"
        )
    return f", which {said}"


def formats(text: str) -> list[str]:
    """Return the strptime formats with which a text is a plausible time."""
    return _fitting([text], _Clock(UTC))


def _fitting(cells: Sequence[str], clock: _Clock) -> list[str]:
    """Return the formats with which most cells are plausible times."""
    some = dict.fromkeys(form for cell in cells[:2] for form in forms(cell) if _fits(form, cell, clock))
    fits = {form: sum(_fits(form, cell, clock) for cell in cells) for form in some}
    return [form for form, n in fits.items() if n == max(fits.values()) and 2 * n > len(cells)][:4]


def _fits(form: str, cell: str, clock: _Clock) -> bool:
    try:
        return clock.span[0] <= _formatted(form, cell, clock)[1] < clock.span[1]
    except ValueError:
        return False


def _year(year: int) -> int:
    return int((datetime(year, 1, 1, tzinfo=UTC) - _EPOCH) // _MS)


def _date(ms: int) -> str:
    return str(np.datetime64(int(ms), "ms"))[:-4] if ms % 1000 == 0 else str(np.datetime64(int(ms), "ms"))
