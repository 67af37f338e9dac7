"""`trueup streams map` says what is served: at points and between them, and as SQL that a database runs."""

import csv
import io
import json
import math
import sqlite3
from pathlib import Path
from random import Random

import pytest

from cli.main import main
from cli.options import MISCONFIGURED
from state.bands import log_odds

SEGMENTED = '[streams.s]\nsegments = ["country"]\nunlabelled = "alike"\n'


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
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
    return ["--forecasts", str(made / "forecasts"), "--outcomes", str(made / "outcomes")]


@pytest.fixture
def streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "streams.toml"
    path.write_text(SEGMENTED)
    monkeypatch.setenv("TRUEUP_STREAMS", str(path))
    return path


def said(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["streams", "map", "s", *options]) == 0
    return capsys.readouterr().out


def answers(capsys: pytest.CaptureFixture[str], *options: str) -> dict[float, float]:
    rows = csv.DictReader(io.StringIO(said(capsys, *options, "--as", "csv")))
    return {float(row["raw"]): float(row["served"]) for row in rows}


@pytest.mark.usefixtures("streams")
def test_every_form_says_the_same(history: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    points = answers(capsys, *history)
    made = json.loads(said(capsys, *history, "--as", "json"))
    (one,) = made["maps"]
    assert dict(zip(one["x"], one["y"], strict=True)) == points
    assert (made["stream"], one["partition"], one["version"]) == ("s", 0, 3000)
    database = sqlite3.connect(":memory:")
    database.create_function("EXP", 1, math.exp)
    database.create_function("LN", 1, math.log)
    database.execute("CREATE TABLE scores (raw REAL)")
    database.executemany("INSERT INTO scores VALUES (?)", [(x,) for x in points])
    served = dict(database.execute(said(capsys, *history, "--as", "sql")).fetchall())
    database.close()
    assert served.keys() == points.keys()
    assert all(math.isclose(served[x], y, rel_tol=1e-6, abs_tol=1e-12) for x, y in points.items())
    table = said(capsys, *history)
    assert "s, partition 0: prudent+certified" in table
    assert "after 3,000 outcomes" in table


@pytest.mark.usefixtures("streams")
def test_the_map_of_a_segment_is_its_own(history: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    at = {}
    for country in ("DE", "FR"):
        points = answers(capsys, *history, "--of", f"country={country}")
        at[country] = min(points.items(), key=lambda point: abs(point[0] - 0.5))[1]
    assert log_odds(at["FR"]) > log_odds(at["DE"]) + 0.5


@pytest.mark.usefixtures("streams")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--of", "channel=web"), "'channel' is no segment with a value"),
        (("--as", "sql", "--diff", "2024-01-01T00:00Z"), "SQL of one"),
        (("--at", "2024-01-01T00:00Z"), "are of topics, not of files"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    history: list[str], capsys: pytest.CaptureFixture[str], options: tuple[str, ...], message: str
) -> None:
    assert main(["streams", "map", "s", *history, *options]) == MISCONFIGURED
    assert message in capsys.readouterr().err


def test_a_stream_without_a_map_says_why(history: list[str], streams: Path, capsys: pytest.CaptureFixture[str]) -> None:
    streams.write_text('[streams.s]\ncalibrator = "quantile"\n')
    assert main(["streams", "map", "s", *history]) == MISCONFIGURED
    assert "quantile does not serve one probability" in capsys.readouterr().err
    streams.write_text(SEGMENTED)
    assert main(["streams", "map", "other", *history]) == 1
    assert "has learnt nothing by then" in capsys.readouterr().err
