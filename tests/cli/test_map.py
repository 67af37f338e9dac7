"""`trueup streams map` says what is served: at points and between them, and as SQL that a database runs."""

import csv
import io
import json
import math
import sqlite3
from pathlib import Path
from random import Random

import pytest

from cli.options import MISCONFIGURED
from state.odds import cut_log_odds
from tests.commands import Trueup

SEGMENTED = '[streams.s]\nsegments = ["country"]\nunlabelled = "alike"\n'
VERSIONS = '[streams.s]\nmodel_version = "model"\nunlabelled = "alike"\n'


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the options that name a history whose raw scores are four times too high, in DE more than in FR."""
    made, rng, forecasts, outcomes = tmp_path_factory.mktemp("history"), Random(4), [], []
    for n in range(3000):
        true, ts, country = rng.betavariate(1, 6), 1_700_000_000_000 + n * 60_000, ("DE", "FR")[n % 2]
        odds = (2, 8)[country == "DE"]
        raw = odds * true / (1 + (odds - 1) * true)
        named = {"segments": {"country": country}, "model": "new" if n > 2000 else "old"}
        one = {"event_id": f"e{n}", "stream": "s", "p": raw, "ts": ts, **named}
        forecasts.append(one)
        outcomes.append({"event_id": f"e{n}", "y": int(rng.random() < true), "ts": ts + 1})
    for name, lines in (("forecasts", forecasts), ("outcomes", outcomes)):
        (made / name).write_text("".join(json.dumps(each) + "\n" for each in lines))
    return f"--forecasts {made / 'forecasts'} --outcomes {made / 'outcomes'}"


@pytest.fixture
def streams(streams: Path) -> Path:
    streams.write_text(SEGMENTED)
    return streams


def answers(trueup: Trueup, options: str) -> dict[float, float]:
    rows = csv.DictReader(io.StringIO(trueup(f"streams map s {options} --as csv").out))
    return {float(row["raw"]): float(row["served"]) for row in rows}


@pytest.mark.usefixtures("streams")
def test_every_form_says_the_same(history: str, trueup: Trueup) -> None:
    points = answers(trueup, history)
    made = json.loads(trueup(f"streams map s {history} --as json").out)
    (one,) = made["maps"]
    assert dict(zip(one["x"], one["y"], strict=True)) == points
    assert (made["stream"], one["partition"], one["version"]) == ("s", 0, 3000)
    database = sqlite3.connect(":memory:")
    database.create_function("EXP", 1, math.exp)
    database.create_function("LN", 1, math.log)
    database.execute("CREATE TABLE scores (raw REAL)")
    database.executemany("INSERT INTO scores VALUES (?)", [(x,) for x in points])
    query = trueup(f"streams map s {history} --as sql").out
    served = dict(database.execute(query).fetchall())
    database.executescript("DELETE FROM scores; INSERT INTO scores VALUES (NULL), (-.1), (1.1)")
    assert [served for _, served in database.execute(query)] == [None] * 3, "no score from 0 to 1"
    database.close()
    assert served.keys() == points.keys()
    assert all(math.isclose(served[x], y, rel_tol=1e-6, abs_tol=1e-12) for x, y in points.items())
    table = trueup(f"streams map s {history}").out
    assert "partition 0: prudent+certified" in table
    assert "after 3,000 outcomes" in table


def test_a_map_that_is_frozen_now_is_that_of_then(history: str, streams: Path, trueup: Trueup) -> None:
    before = trueup(f"streams map s {history} --as csv").out
    streams.write_text(SEGMENTED + "frozen = true\n")
    now = trueup(f"streams map s {history} --as csv")
    assert now.out == before
    assert "is played as if it had never been" in now.err
    assert "outcomes, frozen" in trueup(f"streams map s {history}").out


@pytest.mark.usefixtures("streams")
def test_a_map_says_of_which_forecasts_it_is(history: str, trueup: Trueup) -> None:
    shown = trueup(f"streams map s {history} --as sql")
    assert shown.out.startswith("-- s, without country, partition 0: ")
    assert "of forecasts without country; those with a value are served another" in shown.err
    assert "s, without country, partition 0" in trueup(f"streams map s {history}").out
    rows = csv.DictReader(io.StringIO(trueup(f"streams map s {history} --as csv").out))
    assert {row["of"] for row in rows} == {"without country"}
    shown = trueup(f"streams map s {history} --of country=DE")
    assert "s, country=DE, partition 0" in shown.out
    assert not shown.err
    assert "no forecast with country=ED came" in trueup(f"streams map s {history} --of country=ED").err


@pytest.mark.usefixtures("streams")
def test_the_map_of_a_segment_is_its_own(history: str, trueup: Trueup) -> None:
    at = {}
    for country in ("DE", "FR"):
        points = answers(trueup, f"{history} --of country={country}")
        at[country] = min(points.items(), key=lambda point: abs(point[0] - 0.5))[1]
    assert cut_log_odds(at["FR"]) > cut_log_odds(at["DE"]) + 0.5


def test_intervals_stand_beside_what_is_served_and_hold_it(history: str, streams: Path, trueup: Trueup) -> None:
    streams.write_text(SEGMENTED + "interval = 0.9\n")
    (one,) = json.loads(trueup(f"streams map s {history} --as json").out)["maps"]
    assert all(low <= y <= high for low, y, high in zip(one["low"], one["y"], one["high"], strict=True))
    known = [(low, high) for x, low, high in zip(one["x"], one["low"], one["high"], strict=True) if 0.1 < x < 0.5]
    assert all(high - low < 0.2 for low, high in known), "outcomes have come of these"
    rows = {
        country: list(csv.DictReader(io.StringIO(trueup(f"streams map s {history} --as csv {country}").out)))
        for country in ("", "--of country=DE", "--of country=unheard")
    }
    widths = [
        max(float(row["high"]) - float(row["low"]) for row in of if 0.2 < float(row["raw"]) < 0.5)
        for of in rows.values()
    ]
    assert widths[0] < widths[1] < widths[2], "each segment leaves more open, one that never came nearly all"
    assert "high" in trueup(f"streams map s {history}").out


def test_each_version_of_the_model_has_a_map(history: str, streams: Path, trueup: Trueup) -> None:
    streams.write_text(VERSIONS)
    maps = json.loads(trueup(f"streams map s {history} --as json").out)["maps"]
    assert {each["model_version"]: each["version"] for each in maps} == {"old": 2001, "new": 999}
    rows = list(csv.DictReader(io.StringIO(trueup(f"streams map s {history} --as csv").out)))
    assert {row["model_version"] for row in rows} == {"old", "new"}
    database = sqlite3.connect(":memory:")
    database.create_function("EXP", 1, math.exp)
    database.create_function("LN", 1, math.log)
    database.executescript("CREATE TABLE scores (raw REAL); INSERT INTO scores VALUES (0.0), (1.0)")
    shown = database.execute(trueup(f"streams map s {history} --as sql").out).fetchall()
    database.close()
    ends = [(row["model_version"], float(row["raw"]), float(row["served"])) for row in rows if row["raw"] in "0.0 1.0"]
    assert sorted((version, raw, served) for _, version, raw, served in shown) == sorted(ends)
    assert {partition for partition, *_ in shown} == {0}
    assert "version new, partition 0" in trueup(f"streams map s {history} --as sql --of-version new").out
    assert "has learnt nothing" in trueup(f"streams map s {history} --of-version other").err


@pytest.mark.parametrize(
    ("stream", "plan", "options", "status", "message"),
    [
        ("s", SEGMENTED, "--of channel=web", MISCONFIGURED, "'channel' is not a segment with a value"),
        ("s", SEGMENTED, "--as sql --diff 2024-01-01T00:00Z", MISCONFIGURED, "SQL only one"),
        ("s", SEGMENTED, "--at 2024-01-01T00:00Z", MISCONFIGURED, "are for topics, not for files"),
        ("s", '[streams.s]\ncalibrator = "quantile"', "", MISCONFIGURED, "quantile does not serve one probability"),
        ("other", SEGMENTED, "", 1, "no stream 'other'; there are: s"),
    ],
)
def test_where_there_is_no_map_it_is_said_why(
    stream: str, plan: str, options: str, status: int, message: str, history: str, streams: Path, trueup: Trueup
) -> None:
    streams.write_text(plan)
    ended = trueup(f"streams map {stream} {history} {options}")
    assert ended.status == status
    assert message in ended.err


def test_a_map_of_a_stream_that_is_withheld_says_so(tmp_path: Path, trueup: Trueup) -> None:
    for name, every, more in (("forecasts", 1, '"p":0.3,"stream":"s"'), ("outcomes", 10, '"y":1')):
        lines = [f'{{"event_id":"e{n}","ts":{1_700_000_000_000 + n},{more}}}\n' for n in range(0, 1000, every)]
        (tmp_path / name).write_text("".join(lines))
    given = f"--forecasts {tmp_path / 'forecasts'} --outcomes {tmp_path / 'outcomes'}"
    said = trueup(f"streams map s {given} --as sql")
    assert "after 100 outcomes, withheld: raw scores are served" in said.out.partition("\n")[0], said.err
    assert "withheld: raw scores are served in partition 0, as most forecasts get no label" in said.err
    assert json.loads(trueup(f"streams map s {given} --as json").out)["maps"][0]["withheld"]
