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
from state.bands import log_odds
from tests.commands import Trueup

SEGMENTED = '[streams.s]\nsegments = ["country"]\nunlabelled = "alike"\n'


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the options that name a history whose raw scores are four times too high, in DE more than in FR."""
    made, rng, forecasts, outcomes = tmp_path_factory.mktemp("history"), Random(4), [], []
    for n in range(3000):
        true, ts, country = rng.betavariate(1, 6), 1_700_000_000_000 + n * 60_000, ("DE", "FR")[n % 2]
        odds = (2, 8)[country == "DE"]
        raw = odds * true / (1 + (odds - 1) * true)
        one = {"event_id": f"e{n}", "stream": "s", "p": raw, "ts": ts, "segments": {"country": country}}
        forecasts.append(one)
        outcomes.append({"event_id": f"e{n}", "y": int(rng.random() < true), "ts": ts + 1})
    for name, lines in (("forecasts", forecasts), ("outcomes", outcomes)):
        (made / name).write_text("".join(json.dumps(each) + "\n" for each in lines))
    return f"--forecasts {made / 'forecasts'} --outcomes {made / 'outcomes'}"


@pytest.fixture
def streams(tmp_path: Path, trueup: Trueup) -> Path:
    path = tmp_path / "streams.toml"
    path.write_text(SEGMENTED)
    trueup.set(STREAMS=path)
    return path


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
    served = dict(database.execute(trueup(f"streams map s {history} --as sql").out).fetchall())
    database.close()
    assert served.keys() == points.keys()
    assert all(math.isclose(served[x], y, rel_tol=1e-6, abs_tol=1e-12) for x, y in points.items())
    table = trueup(f"streams map s {history}").out
    assert "s, partition 0: prudent+certified" in table
    assert "after 3,000 outcomes" in table


@pytest.mark.usefixtures("streams")
def test_the_map_of_a_segment_is_its_own(history: str, trueup: Trueup) -> None:
    at = {}
    for country in ("DE", "FR"):
        points = answers(trueup, f"{history} --of country={country}")
        at[country] = min(points.items(), key=lambda point: abs(point[0] - 0.5))[1]
    assert log_odds(at["FR"]) > log_odds(at["DE"]) + 0.5


@pytest.mark.parametrize(
    ("stream", "plan", "options", "status", "message"),
    [
        ("s", SEGMENTED, "--of channel=web", MISCONFIGURED, "'channel' is no segment with a value"),
        ("s", SEGMENTED, "--as sql --diff 2024-01-01T00:00Z", MISCONFIGURED, "SQL of one"),
        ("s", SEGMENTED, "--at 2024-01-01T00:00Z", MISCONFIGURED, "are of topics, not of files"),
        ("s", '[streams.s]\ncalibrator = "quantile"', "", MISCONFIGURED, "quantile does not serve one probability"),
        ("other", SEGMENTED, "", 1, "has learnt nothing by then"),
    ],
)
def test_where_there_is_no_map_it_is_said_why(
    stream: str, plan: str, options: str, status: int, message: str, history: str, streams: Path, trueup: Trueup
) -> None:
    streams.write_text(plan)
    ended = trueup(f"streams map {stream} {history} {options}")
    assert ended.status == status
    assert message in ended.err
