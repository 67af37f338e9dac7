"""Tables as other systems export them are read as they were meant, or refused with what to write."""

import gzip
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from unicodedata import normalize
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from replay.sources.labels import parse
from replay.sources.record import TableError
from replay.sources.table import Columns, TableRows, TableSource, read
from replay.sources.times import NEVER
from state.fence import FORECASTS, OUTCOMES
from tests.commands import Trueup

PLAIN = Columns("p", "y", "t")
DATED = Columns("p", "y", "t", "known")
BERLIN = Columns("p", "y", "t", zone=ZoneInfo("Europe/Berlin"))
NUMBERED = Columns("#1", "#2", "#3")
NAMED = Columns("p", "y", "t", id="id")
HEADER = "p,y,t"
ROWS = ".25,1,2026-01-01\n.5,0,2026-01-02"


def rows(tmp_path: Path, text: str, columns: Columns = PLAIN) -> TableRows:
    path = tmp_path / "in.csv"
    path.write_text(text)
    return read(path, columns)


def scored(*scores: str) -> str:
    """Return a table with these scores."""
    return "p;y;t\n" + "".join(f"{score};1;2026-01-01\n" for score in scores)


@pytest.mark.parametrize(
    ("text", "columns", "scores"),
    [
        # What stands for 0 and for 1 may be a unit.
        (scored("250"), replace(PLAIN, unit="0,1000"), [0.25]),
        (scored("712,5"), replace(PLAIN, unit="850,300"), [0.25]),
        (scored(".75"), replace(PLAIN, unit="1,0"), [0.25]),
        (scored("-2.5"), replace(PLAIN, unit="-5,5"), [0.25]),
        (scored("Inf", "-Inf"), replace(PLAIN, unit="log-odds"), [1.0, 0.0]),
        (scored("%25,5"), PLAIN, [0.255]),
        (scored("0.255"), PLAIN, [0.255]),
        # Blanks before quotes and within names count where a table fits so.
        (f'{HEADER},note\n.25,1,2026-01-01, "so called" bank\n.5,0,2026-01-02, "\n', PLAIN, [0.25, 0.5]),
        # A quote that a blank precedes encloses nothing, though the next line would close it.
        ('p,note,y,t\n.25, ",1,2026-01-01\n.5, ",0,2026-01-02\n', PLAIN, [0.25, 0.5]),
        ('p,note,y,t\n.25, "a, b",1,2026-01-01\n.5, "c",0,2026-01-02\n', PLAIN, [0.25, 0.5]),
        (
            f"a b,a  b,y,t\n{ROWS}\n".replace(".25,", ".1,.25,").replace(".5,", ".2,.5,"),
            Columns("a b", "y", "t"),
            [0.1, 0.2],
        ),
    ],
)
def test_scores_are_read_as_they_were_meant(tmp_path: Path, text: str, columns: Columns, scores: list[float]) -> None:
    assert rows(tmp_path, text, columns).scores.tolist() == pytest.approx(scores, abs=1e-12)


def test_a_few_scores_in_no_unit_are_named_and_more_of_them_are_another_unit(tmp_path: Path) -> None:
    many = [f"{HEADER}\n", *(f".{n + 1},1,2026-01-01\n" for n in range(400))]
    few = rows(tmp_path, "".join([*many, "1.5,1,2026-01-01\n"]))
    assert few.notes[-1] == "--score 'p': 1 score is not in [0, 1] and cannot be used; the first is row 402, '1.5'."
    with pytest.raises(TableError, match=r"2% of the scores .* the first is row 402, '1\.5'\); --score-unit says"):
        rows(tmp_path, "".join([*many, *["1.5,1,2026-01-01\n"] * 9]))
    # Percents of a rare event: 99 in 100 of them are probabilities, too, and the highest are not.
    with pytest.raises(TableError, match=r"4 scores are not in \[0, 1\] .* --score-unit says"):
        rows(tmp_path, "".join([*many, *(f"1.{n},1,2026-01-01\n" for n in range(5))]))
    with pytest.raises(TableError, match=r"5 scores are not in \[0, 1\] .* --score-unit says"):
        rows(
            tmp_path,
            "".join([f"{HEADER}\n", *["0,1,2026-01-01\n"] * 600, *(f"{n},1,2026-01-01\n" for n in range(1, 7))]),
        )


@pytest.mark.parametrize(
    ("marks", "made", "unit"),
    [
        ("-9 -8 -2 -1", ".{}", "probability"),
        ("996 997 998 999 9999", ".{}", "probability"),
        ("-1e-9 -2e-9 1.0000001 1.0000002 1.0000003", ".{}", "probability"),
        ("9000 9001 9002 9003", "{}", "850,300"),  # of a credit bureau
        ("100.5 101.5 102.5 103.5", "0.{}", "percent"),
    ],
)
def test_marks_of_errors_are_no_other_unit(tmp_path: Path, marks: str, made: str, unit: str) -> None:
    lines = [*(made.format(n) for n in range(301, 801)), *marks.split()]
    found = rows(
        tmp_path, f"{HEADER}\n" + "".join(f"{each},1,2026-01-01\n" for each in lines), replace(PLAIN, unit=unit)
    )
    assert f"{len(marks.split())} scores are not in" in found.notes[-1]


@pytest.mark.parametrize(
    ("amounts", "found"),
    [
        (("1,234.50", "12"), [1234.5, 12]),
        (("1.234,50", "1.234.567,25"), [1234.5, 1234567.25]),
        (("1'234.5", "0.5"), [1234.5, 0.5]),
        (("0,123", "1,234"), [0.123, 1.234]),
        (("$1,234.50", "$12.00"), [1234.5, 12]),
        (("1.234,50 €", "12,00 €"), [1234.5, 12]),
        (("EUR 1234.50", "EUR 12"), [1234.5, 12]),
        (("1\u2009234,5", "\u20130,5"), [1234.5, -0.5]),
        (("$5.00", "$-"), [5, 0]),
        (("$ -   ", "$5.00"), [0, 5]),
    ],
)
def test_marks_between_thousands_are_read_where_they_can_be_told_from_fractions(
    tmp_path: Path, amounts: tuple[str, ...], found: list[float]
) -> None:
    lines = "".join(f'.5,1,2026-01-01,"{amount}"\n' for amount in amounts)
    assert rows(tmp_path, f"{HEADER},amount\n{lines}", WEIGHED).numbers["weight"].tolist() == found


@pytest.mark.parametrize(
    ("text", "columns", "note"),
    [
        (f"{HEADER}\n{ROWS}\n".replace("\n.5", f"\n{HEADER}\n.5"), PLAIN, "stands again in row 3 and was passed over"),
        (f"{ROWS}\n", NUMBERED, "The table has no header: row 1"),
        (f"@relation scores\n@attribute y {{0,1}}\n@data\n{ROWS}\n", NUMBERED, "The table has no header: row 4"),
        (f'{HEADER}\n{ROWS}\n\nFrauds\n"(c) 2026, all rights"\nConfidential\nBy: Ana\n', PLAIN, "(4 in all)"),
        (f"{HEADER}\n{ROWS}\n", NUMBERED, ""),
        (f"{HEADER}\n{ROWS}\n.,1,(null)\n", PLAIN, ""),
        (normalize("NFD", f"Prüfwert,y,t\n{ROWS}\n"), Columns(normalize("NFC", "Prüfwert"), "y", "t"), ""),
        ("  p  y          t\n .25  1 2026-01-01\n  .5  0 2026-01-02\n", PLAIN, ""),
        # Lines and counts that databases write; other separators; blanks behind them; headers with marks of their file.
        (f"{HEADER}\n---,-,---\n{ROWS}\n", PLAIN, "1 row is without score, label and time"),
        (f"{HEADER}\n-+-+-\n{ROWS}\n\0\0\0\n\x1a", PLAIN, ""),
        (f"{HEADER}\n{ROWS}\n(2 rows)\n", PLAIN, "What stands below the table was passed over: row 4, '(2 rows)'."),
        (f"{HEADER}\n{ROWS}\n2 rows\nin 1 s\n", PLAIN, "row 4, '2 rows'; row 5, 'in 1 s'."),
        (f"{HEADER}\n{ROWS}\n".replace(",", "\x01"), PLAIN, ""),
        (
            f'"p", "y", "t"\n{ROWS}\n'.replace(".25,", ".25, ")
            .replace("1,2026", '"1", "2026')
            .replace("01\n", '01"\n', 1),
            PLAIN,
            "",
        ),
        (f"{HEADER}\n{ROWS}\n".replace("\n.5", f"\n\ufeff{HEADER}\n.5"), PLAIN, "stands again in row 3"),
        (f'"risk\nscore",y,t\n{ROWS}\n', Columns("risk score", "y", "t"), ""),
        (f"{HEADER},note\n{ROWS},{'x' * 200_000}\n", PLAIN, ""),
    ],
)
def test_headers_are_found_where_they_are(tmp_path: Path, text: str, columns: Columns, note: str) -> None:
    found = rows(tmp_path, text, columns)
    assert found.scores.tolist()[:2] == [0.25, 0.5]
    assert any(note in each for each in found.notes)


def labelled(*labels: str) -> str:
    """Return a table with these labels."""
    return f"{HEADER}\n" + "".join(f".5,{label},2026-01-01\n" for label in labels)


def timed(time: str) -> str:
    """Return a table of one row, of this time."""
    return f"{HEADER}\n.5,1,{time}\n"


WEIGHED = Columns("p", "y", "t", weight="amount")


@pytest.mark.parametrize(
    ("text", "columns", "said"),
    [
        (f"{ROWS}\n", PLAIN, "if the table has no header, name columns by number"),
        (f"{HEADER}\n1,.25,1,2026-01-01\n2,.5,0,2026-01-02\n", PLAIN, "if rows begin with a name"),
        (f'{HEADER},note\n.5,1,2026-01-01,"say \\"no\\", then"\n', PLAIN, "; sed 's/.*' .* writes"),
        # Numbers that may be read in two ways.
        (
            f'{HEADER},amount\n.5,1,2026-01-01,950\n.5,1,2026-01-01,"1,250"\n',
            WEIGHED,
            "row 3 holds '1,250', which may be 1250 or a fraction",
        ),
        (f"{HEADER},amount\n.5,1,2026-01-01,12K\n", WEIGHED, "12K"),
        (f"{HEADER},amount\n.5,1,2026-01-01,5 €\n.5,1,2026-01-01,€\n", WEIGHED, "row 3 holds '€'"),
        (
            f"{HEADER},amount\n.5,1,2026-01-01,$5\n.5,1,2026-01-01,$6\n.5,1,2026-01-01,£5\n",
            WEIGHED,
            "row 4 holds '£5', which is not written in .*: write all alike",
        ),
        (
            f"id,{HEADER}\n99999,.5,1,2026-01-01\n1e+05,.5,1,2026-01-01\n",
            NAMED,
            r"row 3 holds '1e\+05': .* rounded this id",
        ),
        (
            "p,y,t\n25,1,2026-01-01\n800,0,2026-01-01\n",
            PLAIN,
            r"100% of the scores are not in \[0, 1\] .* --score-unit",
        ),
        # Labels: a proposal must not turn them over, and None beside a word may be the other answer.
        (labelled(*(f"2026-01-{n + 10}" for n in range(12))), PLAIN, "name it by --label-time, too"),
        (
            labelled(*(str(n / 100) for n in range(60))),
            PLAIN,
            "holds '0.01' and 59 other values.* name the column of labels",
        ),
        (labelled("0", "0", "-1"), PLAIN, r"--labels 0=0,-1=1; else write 0, 1 or skip \(no label\) behind each$"),
        (labelled("-", "-", "+"), PLAIN, "--labels -=0,.=1; else"),
        (labelled("✓", "no", "no"), PLAIN, "--labels 'no=0,✓=1'; else"),
        (labelled("✓", ""), PLAIN, "what '✓' means is not known"),
        (labelled("good", "good", "bad", "open"), PLAIN, "--labels good=0,bad=1,open=skip"),
        (labelled("100%", "0%"), PLAIN, "--labels 0%=0,100%=1"),
        (labelled("fraud", "none", "none"), PLAIN, "--labels fraud=1,none=0"),
        (labelled("b1", "b0", "b0"), PLAIN, "--labels b0=0,b1=1"),
        (labelled("0", "1", "2", "3", "4"), PLAIN, "--labels 0=0,1=1,2=1,3=1,4=1;"),  # counts
        (labelled("0", "1", "2"), PLAIN, "--labels 0=0,1=1,2=skip;"),  # codes
        (labelled("TP", "FP", "TN", "FN"), PLAIN, "--labels TP=1,FP=0,TN=0,FN=1"),
        # Times that lack digits or an offset, and such as could be read in two ways.
        (timed("1.767226E+09"), PLAIN, r"row 2 holds '1.767226E\+09', whose last digits were cut"),
        (timed("1.76723E+18"), PLAIN, r"row 2 holds '1.76723E\+18', whose last digits were cut"),
        (timed("2026-01-01T00:00:00[Europe/Atlantis]"), PLAIN, "names the zone 'Europe/Atlantis'; --time-zone says"),
        (timed("2026-01-01 10:00:00 EST"), PLAIN, "names the zone 'EST'; --time-zone says which it is"),
        (timed("20260101-1"), PLAIN, "20260101-1"),
        (timed("24107"), PLAIN, "is not a time from 1990 to"),  # 2026-01-01 in days since 1960, and no 2024-10-07
        (timed("03/04/2026"), PLAIN, r"row 2 holds '03/04/2026'.*-format '%d/%m/%Y' or .*-format '%m/%d/%Y'"),
        (timed("01-JAN-24 12.00.00.000000000 AM"), PLAIN, r"--time-format '%d-%b-%y %I\.%M\.%S\.%f %p'"),
        (timed("2024-001"), PLAIN, "--time-format '%Y-%j'"),
        (timed("2026-01-13 오후 1:28"), PLAIN, "write it as 2024-01-31, or say how"),  # in the afternoon
        (timed("2026-01-13 10:00:00 +0000 UTC m=+0.01"), PLAIN, "write it as 2024-01-31, or say how"),  # Go
        (timed("2024q1"), PLAIN, "write it as 2024-01-31, or say how"),
        (f"{HEADER}\n.5,1,2026-01-02\n.5,1,2026-31-01\n.5,1,2026-30-01\n", PLAIN, "row 3 holds '2026-31-01'"),
        # Rows that are none are named as such only at the end, and few.
        (f"{HEADER}\n.25,1,2026-01-01\n# again\n.5,0,2026-01-02\n", PLAIN, "row 3 has 1 cells"),
        (f"{HEADER}\n{ROWS}\np;y;t\n.5;1;2026-01-01\n.5;1;2026-01-01\n", PLAIN, "row 4 has 1 cells"),
        (f'{HEADER}\n.5,1,2026-01-01\n.5,"1,2026-01-01\n.5,1,2026-01-01\n', PLAIN, "begins in line 3 cannot be read"),
        (f"{HEADER}\n(0.5),1,2026-01-01\n", PLAIN, "which is no number; correct it"),
        (timed("202401"), PLAIN, "--time-format '%Y%m'"),
        (
            f"{HEADER}\n.5,1,2026-01-01 10:00:00 UTC\n.5,1,2026-01-01 10:00:00.001 UTC\n",  # as BigQuery cuts zeros
            replace(PLAIN, time_format="%Y-%m-%d %H:%M:%S.%f UTC"),
            "as 1 other cell is; leave the format out: all are ISO 8601",
        ),
        (
            "id p y t country channel\na .5 1 2026-01-01 NL web\nb .5 1 2026-01-01  web\n",
            replace(PLAIN, segments=("country",)),
            "row 3 has 5 cells, and the header names 6",
        ),
        (timed("2 days 03:04:05"), PLAIN, "which is not a date; --time needs a column with dates"),
        (
            f"{HEADER},known\n.5,1,2026-01-01,13.01.2026\n",
            replace(DATED, label_time_format="%d.%m.%Y %H:%M"),
            r"not written as .* another --label-time-format, such as '%d\.%m\.%Y'",
        ),
        (timed('"1/13/26, 9:05\u202fAM"'), PLAIN, "--time-format '%m/%d/%y, %I:%M %p'"),
        (timed("Jan  1 2026 10:00AM"), PLAIN, "--time-format '%b %d %Y %I:%M%p'"),  # SQL Server
        (timed("2026-01-01 10:00 PM"), PLAIN, "--time-format '%Y-%m-%d %I:%M %p'"),
        (timed("01JAN2026:10:00:00.000"), PLAIN, "--time-format '%d%b%Y:%H:%M:%S.%f'"),  # SAS
        (timed("2026-01-13-10.00.00.000000"), PLAIN, r"--time-format '%Y-%m-%d-%H\.%M\.%S\.%f'"),  # Db2
        (timed('"Jan 13, 2026 @ 10:00:00.000"'), PLAIN, r"--time-format '%b %d, %Y @ %H:%M:%S\.%f'"),  # Kibana
        (timed("Mon Jan 12 2026 10:00:00 GMT+0100 (Central European Time)"), PLAIN, "'%a %b %d %Y %H:%M:%S %Z%z'"),
        (timed("Mon 12 Jan 2026 10:00:00"), PLAIN, "'%a %d %b %Y %H:%M:%S'"),  # PostgreSQL
        (timed("Mon Jan 12 10:00:00.123456 2026 UTC"), PLAIN, r"'%a %b %d %H:%M:%S\.%f %Y %Z'"),
        (timed("Mon Jan 12 10:00:00 CET 2026"), PLAIN, "names the zone 'CET'; --time-zone"),
        (timed("2026. 1. 13 10:00:00"), PLAIN, r"'%Y\. %m\. %d %H:%M:%S'"),
        (timed("13. 1. 2026 10:00:00"), PLAIN, r"'%d\. %m\. %Y %H:%M:%S'"),
        (timed("13/01/2026 10:00:00 p. m."), PLAIN, "'%d/%m/%Y %I:%M:%S %p'"),
        (timed("[13/Jan/2026:10:00:00 +0000]"), PLAIN, "'%d/%b/%Y:%H:%M:%S %z'"),
        (timed("2026年1月13日 10:00"), PLAIN, "'%Y年%m月%d日 %H:%M'"),
    ],
)
def test_what_cannot_be_read_is_refused_with_what_to_write_and_not_guessed(
    tmp_path: Path, text: str, columns: Columns, said: str
) -> None:
    with pytest.raises(TableError, match=said):
        rows(tmp_path, text, columns)


@pytest.mark.parametrize("times", ["1.768e+12 1768003600000", "1.768000000E+12 1.768003600E+12"])
def test_times_that_are_written_with_exponents_and_were_not_cut_are_read(tmp_path: Path, times: str) -> None:
    found = rows(tmp_path, f"{HEADER}\n" + "".join(f".5,1,{each}\n" for each in times.split()))
    assert found.times.tolist() == [1_768_000_000_000, 1_768_003_600_000]


def test_scores_and_labels_in_rows_of_their_own_are_joined_by_their_ids(tmp_path: Path) -> None:
    log = "kind,id,p,y,t\nscore,a,.5,,2026-01-01\nlabel,a,,1,2026-01-03\n"
    with pytest.raises(TableError, match=r"no row with a label has a score.* name its id by --id"):
        rows(tmp_path, log)
    columns = Columns("p", "y", "t", "t", id="id")
    assert rows(tmp_path, log, columns).notes[-1].startswith("1 row is of a label without a score; --id says")
    source = TableSource(tmp_path / "in.csv", tmp_path / "in.csv", columns=columns)
    (forecast,) = (record for chunk in source.read(FORECASTS, 0) for record in chunk.records)
    (outcome,) = (record for chunk in source.read(OUTCOMES, 0) for record in chunk.records)
    assert forecast.key == outcome.key == b"a"
    assert outcome.timestamp - forecast.timestamp == 2 * 86_400_000
    assert rows(tmp_path, f"{log}label,b,,1,2026-01-03\n", columns).forecast.tolist() == [True, False, True]


def test_a_label_in_a_row_of_its_own_is_of_its_score_s_stream_and_as_old_as_that_says(tmp_path: Path) -> None:
    """So labels that take longer than the default ttl are waited for, and zeros without a date are silence."""
    lines = ["a,s,.5,,2026-01-01,", "b,s,.5,,2026-01-01,", "a,,,1,,2026-02-10", "b,,,0,,"]
    columns = replace(DATED, id="id", stream="stream")
    found = rows(tmp_path, "\n".join(["id,stream,p,y,t,known", *lines, ""]), columns)
    source = TableSource(tmp_path / "in.csv", tmp_path / "in.csv", columns=columns)
    assert (source.latest_ms, source.silent, source.streams) == ({"s": 40 * 86_400_000}, {"s": 1}, ["s"])
    assert source.ages_ms.tolist() == [40 * 86_400_000]
    assert not any("Rows without a time" in each for each in found.notes)
    plain = TableSource(source.forecasts, source.outcomes, columns=replace(columns, label_time=None))
    assert not plain.at_once, "labels are of the times of their own rows"
    early = "id,p,y,t,known\na,.5,,2026-01-05,\na,,1,,2026-01-01\n"
    with pytest.raises(TableError, match=r"row 3 holds '2026-01-01', before its score's time '2026-01-05'"):
        rows(tmp_path, early, replace(DATED, id="id"))


def test_an_empty_label_is_what_it_is_said_to_be(tmp_path: Path) -> None:
    """So a flag that is set or empty has two answers."""
    said = parse("Y=1,=0")
    assert rows(tmp_path, labelled("Y", "", "NULL"), replace(PLAIN, labels=said)).labels.tolist()[:2] == [1, 0]


@pytest.mark.parametrize(
    ("written", "y"),
    [
        ("WAHR FALSCH", [1, 0]),  # Excel, in German, and in French
        ("vrai faux", [1, 0]),
        ("Sí No", [1, 0]),
        ("да нет", [1, 0]),
        ("はい いいえ", [1, 0]),
        ("1,0 0,0", [1, 0]),
        ("0x01 0x00", [1, 0]),  # a bit of SQL Server
        ("b'1' b'0'", [1, 0]),  # and of MySQL, by pandas
        ("1 -", [1, np.nan]),
        ("1 none", [1, np.nan]),
        ("1 0 ?", [1, 0, np.nan]),
        ("1 0 - . --", [1, 0, np.nan, np.nan, np.nan]),
    ],
)
def test_labels_of_other_languages_and_databases_are_read_and_marks_beside_them_are_none(
    tmp_path: Path, written: str, y: list[float]
) -> None:
    lines = "".join(f".5;{label};2026-01-01\n" for label in written.split())
    assert np.array_equal(rows(tmp_path, f"p;y;t\n{lines}").labels, y, equal_nan=True)


@pytest.mark.parametrize(
    ("time", "utc"),
    [
        # By the name of its zone.
        ("2026-07-01 10:00:00 Europe/Berlin", "2026-07-01T08:00"),
        ("2026-07-01T10:00:00[America/New_York]", "2026-07-01T14:00"),
        ("2026-07-01 10:00:00 CEST", "2026-07-01T08:00"),
        ("2026-07-01 10:00:00 +02:00 Europe/Berlin", "2026-07-01T08:00"),
        ("2026-07-01 10:00 UTC+2", "2026-07-01T08:00"),
        ("2026-10-25 02:30 CEST", "2026-10-25T00:30"),
        ("2026-10-25 02:30 CET", "2026-10-25T01:30"),
        ("Wed Jul 01 10:00:00 CEST 2026", "2026-07-01T08:00"),
        ("Wed Jan 07 10:00:00 UTC 2026", "2026-01-07T10:00"),
        # Without what programs write around it or between its digits.
        ('"{""$date"": ""2026-01-31T00:00:00Z""}"', "2026-01-31"),
        ('"{""$date"": {""$numberLong"": ""1769817600000""}}"', "2026-01-31"),
        ('"ISODate(""2026-01-31"")"', "2026-01-30T23:00"),
        ("Timestamp('2026-01-31 00:00:00')", "2026-01-30T23:00"),
        ("/Date(1769817600000)/", "2026-01-31"),
        ("'2026-01-31", "2026-01-30T23:00"),
        ('"1,769,817,600,000"', "2026-01-31"),
        ("1.769.817.600", "2026-01-31"),
        ("1 769 817 600", "2026-01-31"),
        ("639028224000000000", "2026-01-01"),  # ticks of .NET are no ns of 1990
    ],
)
def test_a_time_is_what_it_says_in_its_zone_and_without_what_programs_add(tmp_path: Path, time: str, utc: str) -> None:
    columns = replace(BERLIN, time_format="%a %b %d %H:%M:%S %Z %Y") if time.startswith("Wed") else BERLIN
    assert np.datetime64(int(rows(tmp_path, timed(time), columns).times[0]), "ms") == np.datetime64(utc)


@pytest.mark.parametrize("none", ["0", "-1", "1970-01-01", "1970-01-01 01:00:00", "1900-01-00", "infinity"])
def test_a_label_s_time_that_began_as_0_is_none(tmp_path: Path, none: str) -> None:
    found = rows(tmp_path, f"{HEADER},known\n.5,1,2026-01-01,2026-01-05\n.5,0,2026-01-01,{none}\n", DATED)
    assert found.silent.tolist() == [False, True]
    assert found.label_times[1] == NEVER


@pytest.mark.parametrize(
    ("written", "ids"),
    [('"=""00042""" "=""7"""', ["00042", "7"]), ("42.0 7.0", ["42", "7"]), ("00042 7.0", ["00042", "7.0"])],
)
def test_ids_are_what_they_were_before_an_export(tmp_path: Path, written: str, ids: list[str]) -> None:
    """A name such as RDX is no beginning of a file of R."""
    lines = "".join(f"{each},.5,1,2026-01-01\n" for each in written.split())
    assert rows(tmp_path, f"RDX,{HEADER}\n{lines}", replace(NAMED, id="RDX")).ids == ids


def test_segments_that_pandas_took_for_numbers_are_whole_again(tmp_path: Path) -> None:
    text = f"mcc,{HEADER}\n0742.0,.5,1,2026-01-01\n,.5,1,2026-01-01\n"
    found = rows(tmp_path, text, replace(PLAIN, segments=("mcc",)))
    assert found.segments["mcc"] == ["0742", ""]
    assert "holds whole numbers with .0 behind them" in "".join(found.notes)


#: So days and months that were taken for each other are seen.
LATER = f"{datetime.now(UTC).year + 1}-12-31"
TINY = f"{HEADER}\n" + "".join(f".{n + 10},1,2026-01-01\n" for n in range(50))
TWICE = f"id,{HEADER}\na,.5,1,2026-01-01\nb,.5,1,2026-01-01\na,.25,0,2026-01-02\n"
#: Decisions, at seconds since 2001, as Apple counts.
DECIDED = f"{HEADER}\n" + "".join(f"{n % 2},1,{725_760_000 + n}\n" for n in range(30))


@pytest.mark.parametrize(
    ("text", "columns", "note"),
    [
        (timed(LATER), PLAIN, f"1 time is later than now; the first is row 2, '{LATER}', {LATER}T00:00:00."),
        *(
            (TINY, replace(PLAIN, unit=unit), "are from 0.1 to 0.59. If they are probabilities, leave out --score-unit")
            for unit in ("percent", "0,1000", "log-odds")
        ),
        (TWICE, NAMED, "1 row repeats the id of an earlier row, the first is row 4, 'a'"),
        (DECIDED, PLAIN, "was read as seconds since 1970: '725760000' is 1992-12-31T00:00:00."),
        (DECIDED, PLAIN, "'p': all are 0 or 1. If this is what was decided, name the score behind it."),
    ],
)
def test_what_may_be_meant_otherwise_is_said(tmp_path: Path, text: str, columns: Columns, note: str) -> None:
    assert note in "\n".join(rows(tmp_path, text, columns).notes)


def test_ids_that_were_rounded_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "in.parquet"
    for ids, said in (
        (pa.array([1.2345678901234567e17]), "holds double, which has rounded ids"),
        (pa.array([b"\xfe" * 16], pa.binary(16)), "is not text"),
    ):
        pa.parquet.write_table(pa.table({"p": [0.5], "y": [1], "t": ["2026-01-01"], "id": ids}), path)
        with pytest.raises(TableError, match=said):
            read(path, NAMED)


def test_quotes_that_join_no_cells_are_text(tmp_path: Path) -> None:
    """PostgreSQL's COPY and MySQL's client quote nothing: by CSV's rules rows between two quotes would be lost."""
    line = '.5\t1\t2026-01-01\t"six\n'
    found = rows(tmp_path, "p\ty\tt\tnote\n" + line + line.replace('"six', "") + line)
    assert len(found.scores) == 3
    assert "they were read as text" in "".join(found.notes)
    quoted = rows(tmp_path, 'p\ty\tt\tnote\n.5\t1\t2026-01-01\t"two\nlines"\n')
    assert len(quoted.scores) == 1
    inches = rows(tmp_path, 'p\ty\tt\tid\tnote\n.5\t1\t2026-01-01\t"x"\tscreen 27"\n', NAMED)
    assert inches.ids == ["x"]


def test_a_date_in_place_of_a_label_is_a_one_and_none_is_silence(tmp_path: Path) -> None:
    text = "p,defaulted,t\n.25,2026-02-01,2026-01-01\n.5,,2026-01-01\n"
    found = rows(tmp_path, text, Columns("p", "defaulted", "t", "defaulted"))
    assert np.array_equal(found.labels, [1.0, np.nan], equal_nan=True)
    assert found.silent.tolist() == [False, True]


def test_a_label_of_the_score_s_day_in_its_zone_comes_with_the_score(tmp_path: Path) -> None:
    """The day of the change to summer time has 23 hours, and begins at 23:00 of the day before in UTC."""
    berlin = replace(BERLIN, label_time="known")
    text = "p,y,t,known\n.5,1,2026-03-29 23:59,2026-03-29\n.5,0,2026-03-28 10:00,2026-04-01\n"
    found = rows(tmp_path, text, berlin)
    assert found.label_times[0] == found.times[0] == datetime(2026, 3, 29, 21, 59, tzinfo=UTC).timestamp() * 1000
    with pytest.raises(TableError, match="before its score's time"):
        rows(tmp_path, text.replace("2026-03-29 23:59", "2026-03-30 00:00"), berlin)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        # Clocks that show seconds, or minutes, and one in a hundred that is wrong.
        ([("10:00:00.5", "10:00:00"), ("10:00:00.7", "10:00:07")], "1 label is before the score"),
        ([("10:00:31", "10:00"), ("10:00:33", "10:00"), ("10:00:35", "10:09")], "2 labels are before the score"),
        (
            [("10:00", "11:00")] * 199 + [("10:00", "09:00")],
            r"1 label is before .* first is row 201, '2026-01-01 09:00'",
        ),
        ([("10:00", "11:00")] * 9 + [("10:00", "09:00")], None),
        ([("10:00:00.5", "10:00:00"), ("10:00:00.7", "10:00:07.1")], None),
        ([("10:00", "12:00"), ("11:00", "12:00")], "all 2 labels are of one time"),
    ],
)
def test_labels_that_are_early_by_their_clock_or_are_few_come_with_their_score(
    tmp_path: Path, lines: list[tuple[str, str]], said: str | None
) -> None:
    text = f"{HEADER},known\n" + "".join(f".5,1,2026-01-01 {at},2026-01-01 {known}\n" for at, known in lines)
    if said is None:
        with pytest.raises(TableError, match=r"before its score's time .* by --time-zone, or leave out --label-time"):
            rows(tmp_path, text, DATED)
        return
    found = rows(tmp_path, text, DATED)
    assert (found.label_times >= found.times).all()
    assert any(re.search(said, note) for note in found.notes)


def test_a_table_of_json_lines_has_paths_for_columns(tmp_path: Path) -> None:
    """Fields come in any order; what a row lacks, null and NaN are nothing; an id keeps all its digits."""
    path = tmp_path / "in.jsonl.gz"
    lines = (
        '{"s": {"v": [0.75, 0.25]}, "y": true, "@t": "2026-01-01", "id": 123456789012345678901234567891}\n'
        '{"@t": "2026-01-02", "id": "b", "y": null, "s": {"v": [0, NaN]}}\n{"@t": "2026-01-03", "s": {}}\n'
    )
    path.write_bytes(gzip.compress(lines.encode()))
    found = read(path, Columns("s.v[1]", "y", "@t", id="id"))
    assert np.array_equal(found.scores, [0.25, np.nan, np.nan], equal_nan=True)
    assert np.array_equal(found.labels, [1.0, np.nan, np.nan], equal_nan=True)
    assert found.ids == ["123456789012345678901234567891", "b", "row 3"]


@pytest.mark.parametrize(
    ("held", "score", "said"),
    [
        ('{"s": {"v": [0, 1]}, "y": 1, "t": 1}', "s.w", r"no such field; there are: s\.v\[1\], y, t"),
        ('{"s": {"v": [0, 1]}, "y": 1, "t": 1}', "s", r"row 1 holds .* such as 's\.v\[1\]'"),
        ('{"s": {"0": 1, "1": 0}, "y": {"0": 1, "1": 0}, "t": {"0": 1}}', "s", "a whole column, as pandas writes it"),
        (
            '{"s": 1, "y": 1, "t": 1}\n{"s": 1,',
            "s",
            "record 2 is '{\"s\": 1,', not a JSON object on a line, from '' on .column 9.: correct it",
        ),
        ('{"s": 1, "y": 1, "t": 1},', "s", "from ',' on .column 25.: correct it"),
        ('{"n": [1], "data": [{"s": 1, "y": 1}, {"s": 1}]}', "s", r"""one object.* jq -c '\.\["data"\]\[\]'"""),
        ('{"n": 1, "hits": {"hits": [{"s": 1}, {"s": 1}]}}', "s", r"""jq -c '\.\["hits"\]\["hits"\]\[\]'"""),
        ('{"index": [0, 1], "data": [[1, 1], [1, 0]]}', "s", r"""jq -r '\.\["data"\]\[\] \| @csv' .* by number"""),
        ('[{"s": 1, "y": 1, "t": 1}]', "s", r"jq -c '\.\[\]' .* > records\.jsonl"),
        ('["a", 1]\n["b", 0]', "s", "jq -r @csv .* > table.csv, and name columns by number"),
        ("[[1, 1, 1], [1, 0, 2]]", "s", r"jq -r '\.\[\] \| @csv'"),
        ('{"s": 1, "y": 1, "t": 1}\n'.encode("utf-16"), "s", "is UTF-16, not UTF-8: iconv"),
        # Letters may be wrong: another encoding is proposed.
        (
            "оценка;y;t\n.5;1;2026-01-01\n".encode("cp1251"),
            "оценка",
            r"there are: îöåíêà, y, t\. .* cp1251 \(Russian\)",
        ),
        (
            "s;y;t\n.5;żądanie;2026-01-01\n.5;nie;2026-01-01\n".encode("cp1250"),
            "s",
            r"'¿¹danie' means .* --encoding names .* cp1250",
        ),
        ("s;y;t\n.5;1;2026年1月1日\n".encode("cp932"), "s", r"holds '2026”N.*--encoding names .* cp932"),
        (
            "不正;y;t\n.5;1;2026-01-01\n".encode("cp932"),
            "不正",
            r"line 1 is not cp1252; --encoding names .* cp932 \(Japanese\)",
        ),
        (b"7z\xbc\xaf\x27\x1c\0\x04\x81s,y,t\n", "s", "holds a packed file"),
        (b"in.csv" + bytes(251) + b"ustars,y,t\n", "s", "holds a packed file"),
        (b"in.csv" + bytes(94) + b"s,y,t\n.5,1,2026-01-01\n", "s", "neither text nor Parquet"),
    ],
)
def test_a_file_that_is_no_table_or_none_that_can_be_read_is_named(
    tmp_path: Path, held: str | bytes, score: str, said: str
) -> None:
    (path := tmp_path / "in").write_bytes(held.encode() if isinstance(held, str) else held)
    with pytest.raises(TableError, match=said):
        read(path, Columns(score, "y", "t"))


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet"])
def test_a_folder_is_read_as_its_parts_one_behind_the_other(tmp_path: Path, kind: str) -> None:
    for n, text in enumerate(ROWS.split("\n")):
        part = tmp_path / f"part-{n}.{kind}"
        match kind:
            case "csv":
                part.write_text(f"{HEADER}\n{text}")
            case "csv.gz":
                part.write_bytes(gzip.compress(f"\ufeff{HEADER}\n{text}\n".encode()))
            case _:
                p, y, t = text.split(",")
                kind_of_p = pa.float64() if n else pa.float32()
                table = pa.table({"p": pa.array([float(p)], kind_of_p), "y": [int(y)], "t": [t]})
                pa.parquet.write_table(table, part)
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "part-2.csv").touch()
    found = read(tmp_path, PLAIN)
    assert (found.scores.tolist(), found.labels.tolist()) == ([0.25, 0.5], [1.0, 0.0])


def test_counts_below_each_part_of_a_folder_are_passed_over(tmp_path: Path) -> None:
    for n, text in enumerate(ROWS.split("\n")):
        (tmp_path / f"part-{n}.csv").write_text(f"{HEADER}\n{text}\n(1 row)\n")
    found = read(tmp_path, PLAIN)
    assert (found.scores.tolist(), found.labels.tolist()) == ([0.25, 0.5], [1.0, 0.0])
    assert "What stands below the table was passed over: row 3, '(1 row)'; row 6, '(1 row)'." in found.notes


def test_columns_that_folders_are_named_for_are_read(tmp_path: Path) -> None:
    for n, day in enumerate(("2026-01-01", "2026-01-02 10%3A00")):
        part = tmp_path / "in" / f"t={day}" / f"y={n}"
        part.mkdir(parents=True)
        pa.parquet.write_table(pa.table({"p": [0.5, 0.25]}), part / "part-0.parquet")
    found = read(tmp_path / "in", PLAIN)
    assert found.labels.tolist() == [0, 0, 1, 1]
    assert np.array_equal(found.times[1:3], [1767225600_000, 1767225600_000 + 34 * 3_600_000])


def test_a_folder_of_text_and_parquet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"{HEADER}\n{ROWS}\n")
    pa.parquet.write_table(pa.table({"p": [0.5], "y": [1], "t": [1]}), tmp_path / "b.parquet")
    with pytest.raises(TableError, match=r"b\.parquet is Parquet, and the first file of its folder is not"):
        read(tmp_path, PLAIN)


def test_labels_without_a_time_are_known_when_most_others_were(tmp_path: Path) -> None:
    """Left out, they would become zeros by silence; zeros are silence only where most of them have no time."""
    lines = [".5,1,2026-01-01,2026-01-05", ".5,0,2026-01-01,2026-01-05", ".5,0,2026-02-01,2026-02-20"]
    found = rows(tmp_path, "\n".join([f"{HEADER},known", *lines, ".5,1,2026-01-02,", ".5,0,2026-01-03,", ""]), DATED)
    assert not found.silent.any()
    assert found.labels.tolist() == [1, 0, 0, 1, 0]
    day = 86_400_000
    assert (found.label_times - found.times).tolist()[:3] == [4 * day, 4 * day, 19 * day]
    assert all(18 * day < each <= 19 * day for each in (found.label_times - found.times).tolist()[3:])
    assert "--label-time: 2 labels are without a time and taken as known at the age of 19d" in found.notes[-1]
    # Most zeros have none here: they are silence, and the ones are still ones.
    lines = [".5,1,2026-01-01,2026-01-05", ".5,0,2026-01-01,", ".5,0,2026-02-01,", ".5,1,2026-01-02,"]
    found = rows(tmp_path, "\n".join([f"{HEADER},known", *lines, ""]), DATED)
    assert found.silent.tolist() == [False, True, True, False]
    assert found.label_times[3] != NEVER


def test_a_folder_without_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "_SUCCESS").touch()
    with pytest.raises(TableError, match="no file in it holds anything"):
        read(tmp_path, PLAIN)


@pytest.mark.parametrize("given", ["*.csv", "a.csv {0}/b.csv"])
def test_a_pattern_and_what_a_shell_makes_of_it_are_told_of_folders(tmp_path: Path, trueup: Trueup, given: str) -> None:
    for name in "ab":
        (tmp_path / f"{name}.csv").touch()
    told = trueup(f"replay --table {tmp_path}/{given.format(tmp_path)} --score p --label y --time t")
    assert "of several files, name their folder" in told.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("", "The scores of in rank backwards: the higher, the fewer events (AUC 0."),
        ("--score-unit 1,0", "Serve the calibrated scores"),
        ("--label-time late", "No choice can be made from this replay: nothing was learnt before the last forecast."),
    ],
)
def test_scores_that_rank_backwards_and_labels_that_come_too_late_are_said(
    tmp_path: Path, trueup: Trueup, options: str, said: str
) -> None:
    lines = [
        f"{(n % 10 + 0.5) / 10},{int(n * 7 // 10 % 10 >= n % 10)},{1_767_225_600 + 60 * n},2026-06-01"
        for n in range(1500)
    ]
    path = tmp_path / "in.csv"
    path.write_text("\n".join(["p,y,t,late", *lines]))
    told = trueup(f"replay --table {path} --score p --label y --time t {options}").out
    assert said in told
    assert ("rank backwards" in told) == (options != "--score-unit 1,0")
