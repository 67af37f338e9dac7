"""Tables as people have them: made files of every way of writing, with faults, through ``trueup replay --table``.

Each file is made from a seed: encoding, separator, line ends, quotes, packing, extra rows and columns, ways to write
scores, times, labels and what is missing, and in half of the files one fault. What is read is compared with what was
written. Right is a reading that equals what was written, or where there is a fault, one sentence with the row and the
cell, or what else the fault names. A format that is proposed is then given, and has to work.
"""

import argparse
import bz2
import csv
import gzip
import io
import lzma
import random
import re
import shlex
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import cramjam
import numpy as np

from cli import history
from replay.sources.record import TableError
from replay.sources.table import TableRows
from replay.sources.times import NEVER
from streams.config.settings import Settings, SettingsError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_BERLIN: Final = ZoneInfo("Europe/Berlin")
_MISSING: Final = ("", "NULL", "None", "NaN", "NA", "N/A", "\\N", "<NA>", "-", "nan", "null")

Write = Callable[[datetime], str]


@dataclass
class Way:
    """How times are written: the text, to which unit it is exact (s), the options it needs, and what is proposed."""

    name: str
    write: Write
    exact: float = 1.0
    options: Sequence[str] = ()
    proposed: bool = False


def _form(form: str, exact: float = 60.0, *, given: bool = True) -> Way:
    return Way(form, lambda t: t.strftime(form), exact, ("--time-format", form) if given else (), not given)


def _number(name: str, per_ms: int) -> Way:
    return Way(name, lambda t: str((t - _EPOCH) // timedelta(milliseconds=1) * per_ms), 1e-3)


def _local(t: datetime) -> str:
    return t.astimezone(_BERLIN).strftime("%Y-%m-%d %H:%M:%S")


def _mixed_z(t: datetime) -> str:
    return t.strftime("%Y-%m-%dT%H:%M:%S") + ("Z", "", "+00:00", " UTC")[t.minute % 4]


WAYS: Final = (
    Way("iso", lambda t: t.strftime("%Y-%m-%dT%H:%M:%SZ")),
    Way("blank", lambda t: t.strftime("%Y-%m-%d %H:%M:%S")),
    Way("fraction", lambda t: t.isoformat(), 1e-3),
    Way("comma", lambda t: t.strftime("%Y-%m-%d %H:%M:%S,%f")[:-3], 1e-3),
    Way("nanos", lambda t: t.strftime("%Y-%m-%dT%H:%M:%S.%f") + "000Z", 1e-3),
    Way("offset", lambda t: t.astimezone(timezone(timedelta(hours=-5))).strftime("%Y-%m-%d %H:%M:%S %z")),
    Way("postgres", lambda t: t.strftime("%Y-%m-%d %H:%M:%S.%f").rstrip("0").rstrip(".") + "+00", 1e-3),
    Way("bigquery", lambda t: t.strftime("%Y-%m-%d %H:%M:%S UTC")),
    Way("mixed z", _mixed_z),
    Way("minutes", lambda t: t.strftime("%Y-%m-%dT%H:%M"), 60),
    Way("day", lambda t: t.strftime("%Y-%m-%d"), 86_400),
    Way("slashes", lambda t: t.strftime("%Y/%m/%d %H:%M:%S")),
    Way("basic", lambda t: t.strftime("%Y%m%dT%H%M%SZ")),
    Way("padded", lambda t: t.strftime("  %Y-%m-%d %H:%M:%S ")),
    Way("java", lambda t: t.strftime("%Y-%m-%dT%H:%M:%SZ[UTC]")),
    Way("berlin", _local, 1.0, ("--time-zone", "Europe/Berlin")),
    Way("s", lambda t: str(int((t - _EPOCH).total_seconds()))),
    _number("ms", 1),
    _number("us", 1000),
    _number("ns", 1_000_000),
    Way("float s", lambda t: f"{(t - _EPOCH).total_seconds():.3f}", 1e-3),
    Way("1e9", lambda t: f"{(t - _EPOCH).total_seconds():.13e}", 1e-3),
    Way("yyyymmdd", lambda t: t.strftime("%Y%m%d"), 86_400),
    Way("yyyymmdd.0", lambda t: t.strftime("%Y%m%d.0"), 86_400),
    Way("digits", lambda t: t.strftime("%Y%m%d%H%M%S")),
    Way("sheet", lambda t: f"{(t - _EPOCH).total_seconds() / 86_400 + 25_569:.9f}", 1e-3),
    _form("%Y%m%d", 86_400),
    _form("%d.%m.%Y %H:%M"),
    _form("%d/%m/%Y %H:%M:%S.%f", 1e-3),
    _form("%m/%d/%Y %I:%M:%S %p", 1),
    _form("%d-%b-%y %H:%M"),
    _form("%a %b %d %H:%M:%S %Z %Y", 1) if datetime.now(UTC).strftime("%Z") == "UTC" else _form("%d %B %Y", 86_400),
    _form("%d/%m/%Y %H:%M %z"),
    _form("%d.%m.%Y", 86_400, given=False),
    _form("%d/%m/%Y %H:%M", given=False),
    _form("%m/%d/%Y %I:%M:%S %p", 1, given=False),
    _form("%d-%b-%Y %H:%M:%S", 1, given=False),
    _form("%d/%m/%y %H:%M", given=False),
)


#: How scores are written, the probability that is meant, and the options.
SCORES: Final[tuple[tuple[str, Callable[[float], str], Sequence[str], float], ...]] = (
    ("plain", lambda p: f"{p:.6f}", (), 1e-6),
    ("full", repr, (), 0.0),
    ("exponent", lambda p: f"{p:.5e}", (), 1e-5),
    ("comma", lambda p: f"{p:.6f}".replace(".", ","), (), 1e-6),
    ("three", lambda p: f"{p:.3f}".replace(".", ","), (), 1e-3),
    ("bare", lambda p: f"{p:.4f}".removeprefix("0"), (), 1e-4),
    ("percent sign", lambda p: f"{100 * p:.2f}%", (), 1e-4),
    ("percent blank", lambda p: f"{100 * p:.2f} %".replace(".", ","), (), 1e-4),
    ("percent", lambda p: f"{100 * p:.3f}", ("--score-unit", "percent"), 1e-5),
    ("percent comma", lambda p: f"{100 * p:.3f}".replace(".", ","), ("--score-unit", "percent"), 1e-5),
    ("permille", lambda p: f"{1000 * p:.2f}", ("--score-unit", "permille"), 1e-5),
    ("log-odds", lambda p: f"{np.log(p / (1 - p)):.6f}", ("--score-unit", "log-odds"), 1e-6),
    ("log-odds comma", lambda p: f"{np.log(p / (1 - p)):.3f}".replace(".", ","), ("--score-unit", "log-odds"), 1e-3),
)
LABELS: Final[tuple[tuple[str, str, Sequence[str]], ...]] = (
    ("0", "1", ()),
    ("False", "True", ()),
    ("0.0", "1.0", ()),
    ("N", "Y", ()),
    (" 0", " 1", ()),
    ("geprüft", "bestätigt", ("--labels", "geprüft=0,bestätigt=1")),
    ("-1", "1", ("--labels=-1=0,1=1",)),
    ("ok; paid", 'say "no"', ("--labels", '"ok; paid=0","say ""no""=1"')),
)


def _zipped(data: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("in.csv", data)
    return file.getvalue()


ENCODINGS: Final = ("utf-8", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252")
PACKED: Final[dict[str, Callable[[bytes], bytes]]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: bytes(cramjam.zstd.compress(data)),
    ".zip": _zipped,
}


@dataclass
class Table:
    """A made file: bytes, name, options, what it holds, and what a message about its fault names."""

    name: str
    data: bytes
    options: list[str]
    told: str
    scores: list[float]
    exact: float
    labels: list[float]
    times: list[int]
    known: list[int]
    ids: list[str]
    fault: str = ""
    named: Sequence[str] = ()
    proposed: bool = False


def made(seed: int) -> Table:
    """Make a file."""
    rng = random.Random(seed)
    n = rng.choice((3, 30, 30, 60))
    way, (written, score, options, exact) = rng.choice(WAYS), rng.choice(SCORES)
    zero, one, meant = rng.choice(LABELS)
    start = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(
        days=rng.randrange(600), microseconds=1000 * rng.randrange(1000)
    )
    times = [start + timedelta(seconds=61 * rng.randrange(1, 60) * i) for i in range(n)]
    if way.name == "berlin":  # an hour of autumn is there twice
        times = [t for t in times if t.astimezone(_BERLIN).fold == 0 or t.month != 10]
        n = len(times)
    probabilities = [rng.uniform(0.001, 0.999) for _ in range(n)]
    labels = [float(rng.random() < 0.4) for _ in range(n)]
    labels[0] = 1.0
    encoding = rng.choice(ENCODINGS)
    late = rng.random() < 0.5
    late_way = (
        way
        if way.options or way.proposed
        else rng.choice([each for each in WAYS if not each.options and not each.proposed])
    )
    known = [t + timedelta(days=rng.randint(1, 20), hours=rng.randrange(20)) for t in times]
    header = ["id", "score", "label", "time", *(["known"] if late else []), "comment"]
    ids = [f"{rng.randrange(10**6):06d}-{i}" + ("ü" if encoding != "cp1252" or i % 3 else "") for i in range(n)]
    rows = [
        [ids[i], score(probabilities[i]), one if labels[i] else zero, way.write(times[i])]
        + ([late_way.write(known[i])] if late else [])
        + [rng.choice(("", "line one\nline two", "a; b, c\td|e", 'he said "no"', "grün"))]
        for i in range(n)
    ]
    stamp = [_floor(t, way.exact) for t in times]
    known_ms = [_floor(t, late_way.exact) for t in known] if late else list(stamp)
    values = list(probabilities)
    # What is missing.
    if n > 3 and rng.random() < 0.4:  # the smallest tables stay whole
        mark = rng.choice(_MISSING)
        at = rng.sample(range(1, n), 3)
        rows[at[0]][1], values[at[0]] = mark, np.nan
        rows[at[1]][2], labels[at[1]] = rng.choice(("", "NULL")), np.nan
        rows[at[2]][3], stamp[at[2]] = mark, NEVER
        if not late:
            known_ms[at[2]] = NEVER
    if late:  # zeros without a date are another matter
        for i in range(n):
            if labels[i] == 1 and i and rng.random() < 0.1:
                rows[i][4], known_ms[i] = rng.choice(("", "0000-00-00 00:00:00")), NEVER
    made_options = [
        "--score",
        "score",
        "--label",
        "label",
        "--time",
        "time",
        "--id",
        "id",
        *options,
        *meant,
        *way.options,
    ]
    made_options += ["--label-time", "known"] if late else []
    told = f"{encoding}, {way.name}, {late_way.name if late else 'at once'}, {written}"
    table = Table("", b"", made_options, told, values, exact, labels, stamp, known_ms, ids)
    table.proposed = way.proposed or (late and late_way.proposed)
    above = rng.choice(([], [], [], [["# exported on Monday"]], [["Report", "2024"], []]))
    if rng.random() < 0.2:
        header, rows = ["", *header], [[str(i), *row] for i, row in enumerate(rows)]
    if rng.random() < 0.2:
        header, rows = [*header, "comment"], [[*row, "x"] for row in rows]
    fault = rng.choice(tuple(FAULTS)) if rng.random() < 0.5 else ""
    lines = [*above, header, *rows]
    first = len(above) + 2
    if fault:
        table.fault = fault
        lines = FAULTS[fault](rng, table, lines, first)
    if rng.random() < 0.2 and not fault:
        blank = rng.randrange(first, len(lines) + 1)
        lines = [*lines[:blank], [], *lines[blank:]]
    separator = rng.choice((",", ";", "\t", "|"))
    quoting: Any = rng.choice((csv.QUOTE_MINIMAL, csv.QUOTE_ALL))
    end = (
        rng.choice(("\n", "\r\n"))
        if any("\n" in cell for row in lines for cell in row)
        else rng.choice(("\n", "\r\n", "\r"))
    )
    file = io.StringIO(newline="")
    csv.writer(file, delimiter=separator, quoting=quoting, lineterminator=end).writerows(lines)
    data = file.getvalue().encode(encoding)
    if fault in BYTES:
        data = BYTES[fault](rng, table, data)
    suffix = rng.choice(tuple(PACKED)) if fault != "workbook" and rng.random() < 0.3 else ""
    data = PACKED[suffix or (".gz" if fault == "cut" else "")](data)
    table.data = data[: len(data) * 2 // 3] if fault == "cut" else data
    table.name = f"in.csv{suffix}"
    table.told += f", {separator!r} {end!r} {suffix}"
    return table


def _floor(t: datetime, exact: float) -> int:
    ms = (t - _EPOCH) // timedelta(milliseconds=1)
    return ms - ms % max(1, round(1000 * exact))


Lines = list[list[str]]


def _cell(column: str, cells: Sequence[str], least: int = 4) -> Callable[[random.Random, Table, Lines, int], Lines]:
    """Put a cell into a row of a column; a message has to name both."""

    def fault(rng: random.Random, table: Table, lines: Lines, first: int) -> Lines:
        if len(lines) - first + 1 < least or column not in lines[first - 2]:
            table.fault = ""
            return lines
        row, cell = rng.randrange(first + 2, len(lines) + 1), rng.choice(cells)
        ways = table.told.split(", ")
        if table.fault == "units" and any(each in ways[1] for each in SAME[cell]):
            cell = "12"
        lines[row - 1][lines[first - 2].index(column)] = cell
        table.named = (f"row {row} ", repr(cell))
        return lines

    return fault


def _label(rng: random.Random, table: Table, lines: Lines, first: int) -> Lines:
    lines[rng.randrange(first, len(lines) + 1) - 1][lines[first - 2].index("label")] = "may\x1bbe"
    table.named = (repr("may\x1bbe"), "--labels")
    return lines


def _doubled(_: random.Random, table: Table, lines: Lines, first: int) -> Lines:
    at = first - 2
    table.named = ("2 columns of this name", "'#")
    return [row if n < at else [*row, "time" if n == at else ".5"] for n, row in enumerate(lines)]


def _ragged(rng: random.Random, table: Table, lines: Lines, first: int) -> Lines:
    row = rng.randrange(first, len(lines) + 1)
    lines[row - 1] = [*lines[row - 1], "extra"] if rng.random() < 0.5 else lines[row - 1][:2]
    table.named = (f"row {row} has {len(lines[row - 1])} cells",)
    return lines


def _missing_column(_: random.Random, table: Table, lines: Lines, first: int) -> Lines:
    lines[first - 2][lines[first - 2].index("score")] = "Score"
    table.named = ("--score score", "no such column", "Score")
    return lines


def _no_rows(_: random.Random, table: Table, lines: Lines, first: int) -> Lines:
    table.named = ("no rows",)
    return lines[: first - 1]


def _cut(_: random.Random, table: Table, lines: Lines, __: int) -> Lines:
    table.named = ("unpacked",)
    return lines


def _early(rng: random.Random, table: Table, lines: Lines, first: int) -> Lines:
    header = lines[first - 2]
    row = rng.randrange(first, len(lines) + 1)
    cells = lines[row - 1]
    if "known" not in header or not cells[header.index("label")].strip(" NUL"):
        table.fault = ""
        return lines
    at, time = header.index("known"), header.index("time")
    before = next((each[at] for each in lines[first - 1 :] if each[at] not in _MISSING), "")
    table.fault = "" if not before else "early"
    if table.fault:
        when = {"--time-format"}.isdisjoint(table.options)
        if not when or table.proposed or cells[time] in _MISSING:
            table.fault = ""
            return lines
        kind = next(way for way in WAYS if table.told.split(", ")[2] == way.name)
        cells[at] = kind.write(_EPOCH + timedelta(milliseconds=table.times[row - first]) - timedelta(days=40))
        table.named = (f"row {row} ", "before its score")
    return lines


#: Ways by which a cell of "units" is right.
SAME: Final = {
    "1704067200": ("s", "1e9", "float"),
    "1704067200000": ("ms", "1e9"),
    "1704067200000000": ("us",),
    "2024-01-01 00:00:00": tuple(way.name for way in WAYS[:16]),
    "20240101": ("yyyymmdd", "%Y%m%d", "basic"),
    "45292": ("sheet",),
}
FAULTS: Final[dict[str, Callable[[random.Random, Table, Lines, int], Lines]]] = {
    "score": _cell("score", ("unknown", "0.5.5", "1,2,3", "[0.1, 0.9]", "\x1b[31m0.5", "0x1f", "1_0")),
    "time": _cell("time", ("unknown", "soon", "12:30", "2024-13-45", "0", "1.5", "Total", "31.02.2024")),
    "year": _cell("time", ("9999-12-31", "1970-01-01", "1900-01-01T00:00:00", "99991231", "253402300799"), 6),
    "units": _cell(
        "time", ("1704067200", "1704067200000", "1704067200000000", "2024-01-01 00:00:00", "20240101", "45292"), 6
    ),
    "label": _label,
    "label time": _cell("known", ("soon", "0", "1970-01-01", "12:30:00")),
    "id": _cell("id", ("1.23457E+15", "4E+09")),
    "doubled": _doubled,
    "ragged": _ragged,
    "no column": _missing_column,
    "no rows": _no_rows,
    "early": _early,
    "cut": _cut,
    "nul": _cell("id", ("a\0b",)),
    "bytes": lambda _, __, lines, ___: lines,
    "workbook": lambda _, __, lines, ___: lines,
    "array": lambda _, __, lines, ___: lines,
}


def _broken(rng: random.Random, table: Table, data: bytes) -> bytes:
    """UTF-8 with letters beyond ASCII, and one byte of another encoding."""
    if "utf-8" not in table.told or "ü".encode() not in data:
        table.fault = ""
        return data
    table.named = ("is not utf-8", "--encoding")
    at = data.rindex("ü".encode())
    return data[:at] + b"\xfc" + data[at:] if rng.random() < 0.5 else data + b"\xe9"


def _book(_: random.Random, table: Table, __: bytes) -> bytes:
    table.named = ("Excel workbook",)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("xl/worksheets/sheet1.xml", "<worksheet/>")
    return file.getvalue()


def _array(_: random.Random, table: Table, __: bytes) -> bytes:
    table.named = ("is a JSON array",)
    return b'[{"id": "a", "score": 0.5, "label": 1, "time": "2024-01-01"}]\n'


BYTES: Final[dict[str, Callable[[random.Random, Table, bytes], bytes]]] = {
    "bytes": _broken,
    "workbook": _book,
    "array": _array,
}


def read(path: Path, options: Sequence[str]) -> TableRows:
    """Read a table as the command would."""
    parser = argparse.ArgumentParser()
    history.add_source(parser)
    source = history.source(parser.parse_args(history.joined(["--table", str(path), *options])), Settings.from_env({}))
    rows: TableRows = source._rows
    return rows


def judged(table: Table, directory: Path) -> tuple[str, str]:
    """Return what became of a file, and what is wrong with that: nothing, or a sentence."""
    path = directory / table.name
    path.write_bytes(table.data)
    try:
        try:
            rows = read(path, table.options)
        except TableError as exc:
            listed = re.findall(r"--time-format ('[^']+')", str(exc))
            if not table.proposed or not listed:
                raise
            wanted = next(form for form in table.told.split(", ") if form.startswith("%"))
            if repr(wanted) not in listed:
                return "asked", f"{wanted} is not proposed: {exc}"
            rows = read(path, [*table.options, *shlex.split(f"--time-format {wanted!r}")])
    except (TableError, SettingsError) as exc:
        said = str(exc)
        lacking = [each for each in table.named if each not in said]
        if not table.fault:
            return "refused", f"it has no fault: {said}"
        return "refused", f"{lacking} is not named: {said}" if lacking or "\n" in said else ""
    except Exception as exc:  # noqa: BLE001 - a traceback is what is looked for
        return "traceback", repr(exc)
    if table.fault:
        return "read", f"it has a fault ({table.named}), and was read"
    return "read", "; ".join(_differences(table, rows))


def _differences(table: Table, rows: TableRows) -> Iterator[str]:
    """Say in which columns what was read is not what was written."""
    labels = np.array(table.labels)
    known, times = np.array(table.known), np.array(table.times)
    undated = (labels == 0) & (known == NEVER) & ("--label-time" in table.options)
    silent = undated & (2 * undated.sum() >= (labels == 0).sum())
    if rows.ids != table.ids:
        yield f"ids {rows.ids[:3]} for {table.ids[:3]}"
    if not np.allclose(rows.scores, table.scores, rtol=table.exact, atol=table.exact, equal_nan=True):
        yield f"scores {rows.scores[:3]} for {table.scores[:3]}"
    if not np.array_equal(rows.labels, np.where(silent, np.nan, labels), equal_nan=True):
        yield f"labels {rows.labels[:5]} for {labels[:5]}"
    if np.abs(rows.times - times).max() > 1:
        at = int(np.abs(rows.times - times).argmax())
        yield f"time {rows.times[at]} for {times[at]}"
    labelled = ~np.isnan(rows.labels) & (known != NEVER)  # others are known when most were
    same_day = (known < times) & (known > times - 86_400_000)
    wanted = np.where(same_day & labelled, times, known)
    if labelled.any() and np.abs(rows.label_times - wanted)[labelled].max() > 1:
        at = int(np.abs(np.where(labelled, rows.label_times - wanted, 0)).argmax())
        yield f"label time {rows.label_times[at]} for {wanted[at]}"


def sweep(files: Sequence[int]) -> tuple[Counter[str], list[str]]:
    """Make files of these seeds; return how often what became of them, and what was wrong, each with its seed."""
    found: Counter[str] = Counter()
    wrong = []
    with tempfile.TemporaryDirectory(prefix="trueup-tables-") as made_in:
        for seed in files:
            table = made(seed)
            outcome, said = judged(table, Path(made_in))
            found[f"{table.fault or 'no fault'}: {outcome}"] += 1
            if said:
                wrong.append(f"seed {seed} ({table.told}; {table.fault or 'no fault'}): {said}")
    return found, wrong
