"""One table of scores and labels, as risk teams keep them, is two topics."""

import gzip
import re
import shlex
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import orjson
import pyarrow as pa
import pyarrow.parquet
import pytest

from agents.worker import MISCONFIGURED
from cli.options import UNUSABLE
from replay.configuration import configurations
from replay.silence import understood
from replay.sources.labels import parse
from replay.sources.record import SourceRecord, TableError
from replay.sources.table import Columns, TableSource
from state.fence import FORECASTS, OUTCOMES
from streams.config.settings import Settings
from tests.commands import Ended, Trueup

PLAIN = Columns("p", "fraud", "at")
#: 2026-01-01 in ms since 1970.
JANUARY = 1_767_225_600_000
DAY = 86_400_000


#: Columns of `made` and of `reported`, and those without a time of the label.
SCORED = "--score p --label fraud --time at"
COLUMNS = f"{SCORED} --label-time known"


def replayed(trueup: Trueup, path: Path, options: str = COLUMNS) -> Ended:
    """Replay a table."""
    return trueup(f"replay --json --table {path} {options}")


def table(tmp_path: Path, text: str, columns: Columns = PLAIN, **options: Any) -> TableSource:
    path = tmp_path / "scores.csv"
    path.write_text(text)
    return TableSource(path, path, options.get("partitions", 1), columns=columns)


def records(source: TableSource, topic: int) -> list[SourceRecord]:
    return [record for chunk in source.read(topic, 0) for record in chunk.records]


def values(source: TableSource, topic: int) -> list[tuple[int, dict[str, Any]]]:
    return [(each.timestamp, orjson.loads(each.value or b"")) for each in records(source, topic)]


def test_a_row_is_a_forecast_and_where_its_label_is_known_an_outcome(tmp_path: Path) -> None:
    source = table(
        tmp_path,
        "id,p,fraud,at,known\na,0.25,1,2026-01-02,2026-01-20\nb,0.5,,2026-01-01,\n007,0.75,0,2026-01-03,2026-01-04\n",
        Columns("p", "fraud", "at", "known", "id", stream_name="cards"),
    )
    assert values(source, FORECASTS) == [
        (JANUARY, {"event_id": "b", "stream": "cards", "p": 0.5}),
        (JANUARY + DAY, {"event_id": "a", "stream": "cards", "p": 0.25}),
        (JANUARY + 2 * DAY, {"event_id": "007", "stream": "cards", "p": 0.75}),
    ]
    assert values(source, OUTCOMES) == [
        (JANUARY + 3 * DAY, {"event_id": "007", "y": 0}),
        (JANUARY + 19 * DAY, {"event_id": "a", "y": 1}),
    ]
    assert source.size == 5


def test_rows_of_one_time_go_in_the_same_order_however_the_file_is_sorted(tmp_path: Path) -> None:
    """Sorted by label, a batch of zeros and then one of ones would teach what no day has seen."""
    lines = [f"e{n},0.{n % 9 + 1},{int(n % 4 == 0)},2026-01-0{n % 2 + 1}\n" for n in range(400)]
    one, other = (
        [values(source, topic) for topic in (FORECASTS, OUTCOMES)]
        for order in (sorted(lines, key=lambda line: line.split(",")[2]), lines[::-1])
        for source in [table(tmp_path, "id,p,fraud,at\n" + "".join(order), replace(PLAIN, id="id"))]
    )
    assert one == other
    labels = [made["y"] for _, made in one[OUTCOMES]][:200]
    assert sum(a != b for a, b in pairwise(labels)) > 40, "the labels of a day are mixed"


def test_a_column_says_what_shares_an_outcome(tmp_path: Path, trueup: Trueup) -> None:
    path, page = tmp_path / "scores.csv", tmp_path / "review.html"
    lines = [f"{0.2 + n % 7 / 100},{int(n % 5 == 0)},{1_700_000_000 + n * 60},a{n % 200}" for n in range(2000)]
    path.write_text("\n".join(["p,fraud,at,account", *lines]) + "\n")
    (contender,) = replayed(trueup, path, f"{SCORED} --entity account --report {page}").json["contenders"]
    assert contender["fates"]["outcomes_resolved"] == 2000
    # The first account taught before stream time was known, and once more after it.
    overall = contender["overall"]
    assert (contender["untaught"], overall["untaught"], overall["raw"]["n"]) == (1799, 1799, 201)
    assert all(each["identifiable"] for each in overall["coverage"] if each["issued"])
    # What taught nothing is scored apart; all labels after the warm-up are here or there.
    told, settled, warm = overall["told"], overall["settled"]["raw"], overall["warmup"]["issued"]
    assert told["n"] + settled["n"] == 2000 - warm
    ones = sum(n % 5 == 0 for n in range(warm, 2000))
    assert told["n"] * told["base_rate"] + settled["n"] * settled["base_rate"] == pytest.approx(ones)
    assert told["mean"]["raw"] == pytest.approx(0.23)
    assert told["log_loss"]["calibrated"] < told["log_loss"]["raw"]
    assert re.search(
        r"outcomes of 1,799 of 2,000 forecasts \([^)]*\) taught nothing: their entity had taught", page.read_text()
    )


def test_columns_of_segments_become_segments_as_they_are_written(tmp_path: Path) -> None:
    columns = Columns("p", "fraud", "at", segments=("country", "mcc"))
    source = table(tmp_path, "p,fraud,at,country,mcc\n.1,,2026-01-01,DE,0742\n.2,1,2026-01-02,,5411\n", columns)
    assert [made["segments"] for _, made in values(source, FORECASTS)] == [
        {"country": "DE", "mcc": "0742"},
        {"mcc": "5411"},
    ]
    assert all("segments" not in made for _, made in values(source, OUTCOMES))
    with pytest.raises(TableError, match=r"--segments country: .* has no such column; there are: p, fraud"):
        values(table(tmp_path, "p,fraud,at\n.1,,2026-01-01\n", columns), FORECASTS)
    under_a_title = "Report of 2026,,,,\np,fraud,at,mcc\n.1,,2026-01-01,1\n"
    with pytest.raises(TableError, match=r"--segments country: .* there are: p, fraud, at, mcc$"):
        values(table(tmp_path, under_a_title, columns), FORECASTS)


@pytest.mark.parametrize(
    ("written", "answer", "meant"),
    [
        ("1 2 1", "1=0,2=1", [0, 1, 0]),
        ("-1 1 -1.0", "-1=0,1=1", [0, 1, 0]),
        ("0 1 2", "0=0,1=1,2=skip", [0, 1]),
        ("F", "F=1", [1]),
        ("legit fraud open", "legit=0,fraud=1,open=skip", [0, 1]),
        ("\"lost, won\" it's=so it's=so", "'it'\"'\"'s=so=0,\"lost, won=1\"'", [1, 0, 0]),
    ],
)
def test_labels_that_may_mean_several_things_are_asked_about_with_an_answer_that_works(
    tmp_path: Path, trueup: Trueup, written: str, answer: str, meant: list[int]
) -> None:
    path = tmp_path / "scores.csv"
    cells = re.findall(r'"[^"]*"|\S+', written)
    path.write_text("p,fraud,at\n" + "".join(f".1,{cell},2026-01-01\n" for cell in cells))
    asked = replayed(trueup, path, SCORED)
    assert asked.status == UNUSABLE
    assert f"add: --labels {answer};" in asked.err
    typed = shlex.split(f"--labels {answer}")
    assert trueup(f"replay --table {path} {SCORED}", *typed).status == 0
    source = table(tmp_path, path.read_text(), replace(PLAIN, labels=parse(typed[1])))
    assert [
        each["y"] for _, each in sorted(values(source, OUTCOMES), key=lambda each: int(each[1]["event_id"]))
    ] == meant


def test_rows_without_a_time_or_a_score_become_dead_letters(tmp_path: Path) -> None:
    source = table(tmp_path, "p,fraud,at\n.1,1,\n,0,2026-01-02\n.3,1,2026-01-03\n")
    assert {orjson.loads(each.value or b"")["p"]: each.reason for each in records(source, FORECASTS)} == {
        0.1: "timestamp",
        None: None,
        0.3: None,
    }


def test_parquet_gives_the_same_records(tmp_path: Path) -> None:
    rows = {"p": [0.25, 0.5], "fraud": [True, None], "at": [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2)]}
    path = tmp_path / "scores.parquet"
    pa.parquet.write_table(pa.table(rows), path)
    text = table(tmp_path, "p,fraud,at\n0.25,true,2026-01-01\n0.5,,2026-01-02\n")
    for topic in (FORECASTS, OUTCOMES):
        assert records(TableSource(path, path, columns=PLAIN), topic) == records(text, topic)


def made(tmp_path: Path, rows: int = 2000) -> Path:
    path = tmp_path / "quarter.csv"
    lines = [
        f"{(i % 100 + 0.5) / 100},{int(i % 7 == 0)},{1_767_225_600 + 60 * i},{1_767_312_000 + 60 * i}"
        for i in range(rows)
    ]
    path.write_text("\n".join(["p,fraud,at,known", *lines]) + "\n")
    return path


def test_a_report_comes_of_one_table_in_one_command(tmp_path: Path, trueup: Trueup) -> None:
    page = tmp_path / "review.html"
    found = replayed(trueup, made(tmp_path), f"{COLUMNS} --report {page} --partitions 3").json
    assert found["records"] == 4000
    (contender,) = found["contenders"]
    assert contender["overall"]["raw"]["n"] == 2000
    assert contender["calibrators"].keys() == {"quarter"}
    assert "One table" in page.read_text()


def test_a_column_says_which_version_of_the_model_made_a_score(tmp_path: Path, trueup: Trueup) -> None:
    """From the middle on a model scores whose scores are four times as large, in odds; one day late labels follow."""
    path, plan, page = tmp_path / "quarter.csv", tmp_path / "streams.toml", tmp_path / "review.html"
    lines = ["p,fraud,at,known,model"]
    for i in range(2400):
        new, ones = i >= 1200, i % 5
        odds = 0.1 * (1 + ones) * (4.0 if new else 1.0)
        at = 1_767_225_600 + 60 * i
        happened = int(i // 5 % 8 < (1 + ones) / 2)
        lines.append(f"{odds / (1 + odds)},{happened},{at},{at + 86_400},{'v2' if new else 'v1'}")
    path.write_text("\n".join(lines) + "\n")
    plan.write_text('[streams."quarter"]\nunlabelled = "alike"\nmodel_version = "model_version"\n')
    named = f"{COLUMNS} --streams {plan} --report {page}"
    (contender,) = replayed(trueup, path, f"{named} --model-version model").json["contenders"]
    new, old = contender["streams"]["quarter"]["versions"]
    assert (new["version"], new["after"], new["forecasts"]) == ("v2", "v1", 1200)
    assert (old["version"], old["after"], old["slope"]) == ("v1", None, None)
    assert new["offset"] < -0.5
    assert new["log_loss_gain"] > 0.0
    assert "Versions of the model" in page.read_text()
    hashes = {"v1": old["config"], "v2": new["config"]}
    assert contender["versions"] == {"quarter": hashes}
    assert set(contender["recipes"]) == set(hashes.values()), "no record bears the hash of the stream itself"
    assert all(f"quarter, version {name}" in page.read_text() for name in hashes)
    without = replayed(trueup, path, named)
    assert without.status == MISCONFIGURED, "without the column every forecast would be a dead letter"
    assert "add --model-version COLUMN" in without.err


def test_segments_that_no_plan_has_are_refused_with_what_to_write(tmp_path: Path, trueup: Trueup) -> None:
    path, plan = tmp_path / "quarter.csv", tmp_path / "streams.toml"
    path.write_text("p,fraud,at,country\n" + "0.25,1,2026-01-02,DE\n0.5,0,2026-01-03,FR\n" * 20)
    options = f"{SCORED} --segments country"
    refused = replayed(trueup, path, options)
    assert refused.status == MISCONFIGURED
    assert "--segments country: the streams file" in refused.err
    assert '[streams."quarter"] and below it segments = ["country"]' in refused.err
    plan.write_text('[streams."other"]\nsegments = ["country"]\n')
    assert replayed(trueup, path, f"{options} --streams {plan}").status == MISCONFIGURED, "another stream's"
    plan.write_text('[streams."quarter"]\nsegments = ["country"]\n')
    (contender,) = replayed(trueup, path, f"{options} --streams {plan}").json["contenders"]
    assert contender["streams"]["quarter"]["segments"]["warming"] == 2


@pytest.mark.parametrize(
    ("command", "options", "status", "said"),
    [
        ("replay", "--score score --label fraud --time at", UNUSABLE, "there are: p, fraud, at, known"),
        ("streams suggest q", COLUMNS.replace("score p", "score s"), UNUSABLE, "there are: p, fraud, at, known"),
        ("streams suggest q", SCORED, MISCONFIGURED, "needs --label-time"),
        ("replay", "--score p --label fraud", MISCONFIGURED, "--table needs --time too"),
        *(
            ("replay", f"{COLUMNS} --score-unit {unit}", MISCONFIGURED, f"--score-unit {unit}: must be probability")
            for unit in ("1,1", "1", "0,1,2", "a,b", "0,inf", "thousand")
        ),
        ("replay", f"{COLUMNS} --score-unit thousand", MISCONFIGURED, "850,300"),
        ("replay", f"{COLUMNS} --labels fraud", MISCONFIGURED, "TEXT=0, TEXT=1 or TEXT=skip"),
        ("replay", f"{COLUMNS} --last 7d", MISCONFIGURED, "for topics"),
        ("replay", f"{COLUMNS} --time-format=%Q", MISCONFIGURED, "--time-format"),
        ("replay", f"{COLUMNS} --time-format=DD/MM/YYYY", MISCONFIGURED, "has no year; write one such as '%d.%m.%Y"),
        ("replay", f"{COLUMNS} --time-zone=Mars", MISCONFIGURED, "--time-zone"),
        ("replay", f"{COLUMNS} --encoding=foo", MISCONFIGURED, "--encoding"),
    ],
)
def test_a_wrong_column_is_unusable_data_and_a_wrong_option_a_wrong_question(
    tmp_path: Path, trueup: Trueup, command: str, options: str, status: int, said: str
) -> None:
    ended = trueup(f"{command} --table {made(tmp_path, 10)} {options}")
    assert ended.status == status
    assert said in ended.err


def test_forecasts_are_kept_until_the_labels_of_a_table_come(tmp_path: Path, trueup: Trueup) -> None:
    path, plan, n = tmp_path / "loans.csv", tmp_path / "plan.toml", 800
    rows = [
        f"{(i % 100 + 0.5) / 100},{int(i % 7 == 0)},2024-{m:02}-01,2025-{m:02}-01"
        for m in range(1, 9)
        for i in range(n // 8)
    ]
    path.write_text("\n".join(["p,fraud,at,known", *rows]) + "\n")
    kept = replayed(trueup, path)
    late = kept.json["contenders"][0]["streams"]["loans"]["late"]
    assert (late["outcomes"], late["missed"], late["expired"]) == (n, 0, 0)
    said = "Labels of loans took up to 366d, and a worker keeps forecasts for 30d where no `ttl` is set."
    assert said in kept.err.replace("\n", " ")
    assert 'ttl = "403d"' in kept.err
    assert "too short" not in kept.err
    plan.write_text('[streams.loans]\nttl = "20d"\n')
    short = replayed(trueup, path, f"{COLUMNS} --streams {plan}")
    late = short.json["contenders"][0]["streams"]["loans"]["late"]
    assert (late["missed"], late["expired"]) == (n, n)
    (line,) = [line for line in short.err.splitlines() if "too short" in line]
    assert line.startswith("The ttl of loans, 20 d, is too short for its outcomes. 99 in 100 of its ")
    assert 'set `ttl = "403d"` for the stream' in line
    assert short.err.index(line) < short.err.index("ECE")


def test_forecasts_outlast_labels_that_take_as_long_as_a_worker_keeps_them(tmp_path: Path, trueup: Trueup) -> None:
    """A row expires at its ttl, so a label of that very age finds it only by the order of rows of one time."""
    path = tmp_path / "loans.csv"
    days = [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(days=k) for k in range(60)]
    rows = [f"0.{i + 1},{i % 2},{day:%Y-%m-%d},{day + timedelta(days=30):%Y-%m-%d}" for day in days for i in range(8)]
    path.write_text("\n".join(["p,fraud,at,known", *rows]) + "\n")
    kept = replayed(trueup, path)
    late = kept.json["contenders"][0]["streams"]["loans"]["late"]
    assert (late["outcomes"], late["missed"], late["expired"]) == (len(rows), 0, 0)
    assert 'ttl = "33d"' in kept.err


def reported(tmp_path: Path, rows: int = 3000, span_days: float = 60, late_days: int = 20) -> Path:
    """A table of which only the ones have a date: one in ten, known after up to `late_days` days."""
    path = tmp_path / "cards.csv"
    lines = [
        f"{(i % 100 + 0.5) / 100},{int(i % 10 == 0)},{at // 1000},"
        f"{(at + DAY * (1 + i // 10 % late_days)) // 1000 if i % 10 == 0 else ''}"
        for i in range(rows)
        for at in [JANUARY + round(i * span_days * DAY / rows)]
    ]
    path.write_text("\n".join(["p,fraud,at,known", *lines]) + "\n")
    return path


def test_zeros_without_a_date_are_silence_from_the_age_at_which_ones_are_known(tmp_path: Path, trueup: Trueup) -> None:
    path, plan, page = reported(tmp_path), tmp_path / "streams.toml", tmp_path / "review.html"
    told = replayed(trueup, path, f"{COLUMNS} --report {page}")
    said = "2,700 zeros of cards have no date. They are taken as silence: a forecast without an outcome counts as 0 "
    assert f"{said}from the age of 21d on, by which 99 in 100 ones were known." in told.err
    assert said in page.read_text()
    assert told.json["dead"] == {"forecasts": {}, "outcomes": {}}
    (contender,) = told.json["contenders"]
    fates = contender["fates"]
    assert (fates["forecasts_issued"], fates["expired_forecasts"]) == (3000, 0)
    assert fates["matured"] + fates["implied"] + contender["immature"] == 3000
    # The lines that it tells for a worker give the same, and are then what was taken.
    lines = told.err.split("streams file:\n")[1].split("\n\n")[0].splitlines()[:4]
    plan.write_text("\n".join(lines))
    again = replayed(trueup, path, f"{COLUMNS} --streams {plan}")
    assert f"{said}from the age of 21d on, as the streams file says." in again.err
    assert again.json["contenders"][0]["fates"] == fates


@pytest.mark.parametrize(
    ("rows", "plan", "said"),
    [
        (
            ".5,0,2026-01-01,\n.5,0,2026-01-02,2026-01-03\n",
            "",
            "no 1 has a date that says how long reports take",
        ),
        (
            ".5,0,2026-01-01,\n.5,0,2026-01-02,2026-01-03\n",
            '[streams.cards]\nmatures = "1d"\nsilence = 1',
            "zeros of cards have no date, so silence means 0, but silence = 1.0",
        ),
        (".5,0,2026-01-01,\n.5,1,2026-01-02,\n", "", "no row with label 1 has a time; leave the option out"),
    ],
)
def test_zeros_without_a_date_are_asked_about_where_nothing_says_how_long_silence_takes(
    tmp_path: Path, trueup: Trueup, rows: str, plan: str, said: str
) -> None:
    (path := tmp_path / "cards.csv").write_text(f"p,fraud,at,known\n{rows}")
    (file := tmp_path / "streams.toml").write_text(plan)
    ended = replayed(trueup, path, f"{COLUMNS} --streams {file}")
    assert ended.status == UNUSABLE
    assert said in ended.err


def test_what_is_due_when_a_table_ends_is_resolved_and_what_is_not_is_counted(tmp_path: Path, trueup: Trueup) -> None:
    # After the last score 20 labels come, and each record lets 64 forecasts mature.
    path, plan = tmp_path / "cards.csv", tmp_path / "streams.toml"
    lines = [f".5,0,{(JANUARY + i * DAY // 500) // 1000}," for i in range(10_000)]
    lines += [f".5,1,{(JANUARY + i * DAY) // 1000},{(JANUARY + (26 + i) * DAY) // 1000}" for i in range(20)]
    path.write_text("\n".join(["p,fraud,at,known", *lines]) + "\n")
    plan.write_text('[streams.cards]\nmatures = "30d"\nsilence = 0\nttl = "40d"\n')
    told = replayed(trueup, path, f"{COLUMNS} --partitions 2 --streams {plan}")
    (contender,) = told.json["contenders"]
    young = 2499 + 4  # The table ends on day 45: zeros and ones that are later than day 15.
    assert (contender["immature"], contender["overall"]["raw"]["n"]) == (young, 10_020 - young)
    assert "2,503 of 10,020 forecasts (25.0%) had not matured when the history ended" in told.err


@pytest.mark.parametrize(("stream", "said"), [("Cards", 1), ("car*", 0)])
def test_a_streams_file_of_other_streams_than_the_table_s_is_said(tmp_path: Path, stream: str, said: int) -> None:
    source = table(tmp_path, "p,fraud,at\n.5,1,2026-01-01\n", replace(PLAIN, stream_name="cards"))
    (plan := tmp_path / "streams.toml").write_text(f'\ufeff[streams."{stream}"]\nttl = "3d"\n')  # as Notepad writes it
    _, told = understood(source, configurations(Settings.from_env({}), [], [plan]))
    warned = [each for each in told if "says nothing of cards, a stream of the table" in each]
    assert len(warned) == said
    assert all("it names Cards." in each for each in warned)


def test_labels_without_a_time_are_said_to_be_taken_as_known_at_once(tmp_path: Path, trueup: Trueup) -> None:
    path = made(tmp_path)
    assert "Labels were taken as known at once" in replayed(trueup, path, SCORED).err
    assert "known at once" not in replayed(trueup, path).err


@pytest.mark.parametrize("topic", ["forecasts", "outcomes"])
def test_a_replay_of_mostly_dead_letters_of_one_topic_is_an_error(tmp_path: Path, trueup: Trueup, topic: str) -> None:
    files = {
        "forecasts": '{"event_id": "a", "stream": "s", "p": 0.5, "ts": 1}',
        "outcomes": '{"event_id": "a", "y": 1, "ts": 1}',
    }
    for name, line in files.items():
        (tmp_path / name).write_text(f"{line}\n" * 100)
    (tmp_path / topic).write_text('{"id": 1, "riskScore": 0.5, "ts": 1}\n' * 11 + f"{files[topic]}\n" * 10)
    ended = trueup(f"replay --forecasts {tmp_path / 'forecasts'} --outcomes {tmp_path / 'outcomes'}")
    assert ended.status == UNUSABLE
    assert f"more than half of 21 {topic} cannot be used: 11 event_id;" in ended.err


def test_a_zone_is_that_of_times_without_one(tmp_path: Path) -> None:
    text = "p,fraud,at\n.5,1,2026-01-01 01:00\n.5,1,2026-01-02T00:00Z\n"
    source = table(tmp_path, text, Columns("p", "fraud", "at", zone=ZoneInfo("Europe/Berlin")))
    assert [each.timestamp for each in records(source, FORECASTS)] == [JANUARY, JANUARY + DAY]
    assert not source.notes
    assert "taken as UTC" in table(tmp_path, text).notes[0]


DATED = Columns("p", "fraud", "at", "known")


def test_labels_before_their_score_are_refused_but_for_days(tmp_path: Path) -> None:
    rows = "p,fraud,at,known\n.5,1,2026-01-02 10:00,{}\n.5,1,2026-01-03 10:00,2026-01-05\n"
    source = table(tmp_path, rows.format("2026-01-02"), DATED)
    assert [each.timestamp for each in records(source, OUTCOMES)] == [JANUARY + DAY * 17 // 12, JANUARY + 4 * DAY]
    with pytest.raises(TableError, match=r"row 2 holds '2026-01-01', before its score's time '2026-01-02 10:00'"):
        records(table(tmp_path, rows.format("2026-01-01"), DATED), OUTCOMES)
    first, later = ".5,1,2026-01-02 10:00,2026-01-02 09:30", ".5,1,2026-01-02 10:00,2026-01-01 10:00"
    with pytest.raises(TableError, match=r"row 2 holds '2026-01-02 09:30'.*, and 1 other label is early, too"):
        records(table(tmp_path, f"p,fraud,at,known\n{first}\n{later}\n", DATED), OUTCOMES)
    same_day, before = ".5,1,2026-01-02 10:00,2026-01-02", ".5,1,2026-01-02 10:00,2026-01-01"
    with pytest.raises(TableError, match=r"row 3 holds '2026-01-01', before its score's time '2026-01-02 10:00'; "):
        records(table(tmp_path, f"p,fraud,at,known\n{same_day}\n{before}\n", DATED), OUTCOMES)


def test_a_label_time_that_nobody_means_is_none(tmp_path: Path) -> None:
    rows = "p,fraud,at,known\n.5,1,2026-01-02,2026-01-03\n.5,0,2026-01-03,9999-12-31\n.5,0,2026-01-03,0000-00-00\n"
    source = table(tmp_path, rows, DATED)
    assert len(records(source, OUTCOMES)) == 1
    assert "'9999-12-31' was taken as no date (1 in all)" in source.notes[1]


@pytest.mark.parametrize(
    ("score", "said"),
    [
        ("vector", r"--score 'vector\.values\[1\]'"),
        ("vector.values", r"--score 'vector\.values\[1\]'"),
        ("vector.values[2]", r"not every row has a value \[2\]"),
        ("vector.x", "there is no x in struct"),
        ("map.x", "there is no x in map.*; write a column of it"),
    ],
)
def test_a_value_inside_a_list_is_named_by_its_path(tmp_path: Path, score: str, said: str) -> None:
    path = tmp_path / "scores.parquet"
    at = pa.array([20260101, 20260102])
    keyed = pa.array([[("x", 0.25)]] * 2, pa.map_(pa.string(), pa.float64()))
    vector = [{"values": [0.75, 0.25]}] * 2
    pa.parquet.write_table(pa.table({"vector": vector, "map": keyed, "fraud": [0, 1], "at": at}), path)
    columns = Columns("vector.values[1]", "fraud", "at")
    assert [made["p"] for _, made in values(TableSource(path, path, columns=columns), FORECASTS)] == [0.25, 0.25]
    with pytest.raises(TableError, match=said):
        records(TableSource(path, path, columns=replace(columns, score=score)), FORECASTS)


@pytest.mark.parametrize(
    ("name", "holds", "said"),
    [
        ("array.json", b'[\n{"event_id": "a", "ts": 1}\n]', "is a JSON array"),
        ("utf16.jsonl", '{"event_id": "a"}'.encode("utf-16"), "is UTF-16"),
        (
            "scores.csv",
            b"event_id,stream,p,ts\n1,s,.5,1\n",
            "no JSON lines; it begins with 'event_id,stream,p,ts'. --table",
        ),
        ("blank.jsonl", b"\n \n", "holds no records"),
        ("empty.jsonl", b"", "is empty"),
        ("cut.parquet", b"PAR1 and no more", "cannot be read as a Parquet file"),
        ("book.xls", b"\xd0\xcf\x11\xe0", "neither text nor Parquet"),
        ("cut.jsonl.gz", gzip.compress(b'{"event_id": "a", "ts": 1}\n' * 5000)[:-20], "is cut"),
    ],
)
def test_a_file_that_holds_no_records_is_refused_in_one_sentence(
    tmp_path: Path, trueup: Trueup, name: str, holds: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(holds)
    ended = trueup(f"replay --forecasts {tmp_path / name} --outcomes {tmp_path / name}")
    assert ended.status == UNUSABLE
    told = ended.err.strip().splitlines()[-1]
    assert told.startswith("trueup: ")
    assert said in told
