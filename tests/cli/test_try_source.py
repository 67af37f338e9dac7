"""`trueup streams try` prints what records become, or why not; `config check` says who reads each source."""

import json
from pathlib import Path

import pytest

from cli.options import MISCONFIGURED
from tests.commands import Trueup

PLAN = """
[streams.cards]
calibrator = "platt"
[sources.scores]
topics = ["scores.v3", "scores.v4"]
role = "forecast"
event_id = "txn.id"
stream = { constant = "cards" }
p = { path = "risk", scale = [0, 1000] }
when = { type = "score" }
[sources.labels]
topic = "outcomes"
role = "outcome"
event_id = "txn"
y = "fraud"
"""
RECORDS = """\
{"type": "score", "txn": {"id": 7}, "risk": 250}
{"type": "ping"}
{"type": "score", "txn": {"id": 7}, "risk": 2500}
{"type": "score", "txn": {"id": 7}, "risk": "high"}
{"type": "score"
"""


@pytest.fixture
def plan(streams: Path) -> Path:
    streams.write_text(PLAN)
    streams.with_name("records.json").write_text(RECORDS)
    return streams


def test_each_record_of_a_file_is_shown_as_what_it_becomes(plan: Path, trueup: Trueup) -> None:
    file = plan.with_name("records.json")
    lines = trueup("streams try scores", file).out.splitlines()
    assert lines[0] == 'records.json:1  {"event_id": "7", "stream": "cards", "p": 0.25}'
    assert lines[1] == "records.json:2  passed over: when does not hold"
    assert lines[2].startswith(
        "records.json:3  dead letter, probability: p is not a number in [0, 1]; it was mapped to"
    )
    assert lines[3] == "records.json:4  dead letter, probability: p is 'high', which is not a number"
    assert lines[4].startswith("records.json:5  dead letter, not_json: the value is not JSON")
    none = trueup(f"streams try labels {file} --records 1 --json")
    assert (none.status, none.json["record"]) == (1, None), "not one is a label"


def test_times_are_shown_as_dates_and_one_in_another_unit_with_a_warning(plan: Path, trueup: Trueup) -> None:
    plan.write_text(PLAN.replace("[sources.labels]", 'ts = "at"\n[sources.labels]'))
    file = plan.with_name("times.json")
    good = '{"type": "score", "txn": {"id": 7}, "risk": 250, "at": %s}\n'
    file.write_text(good % 1_700_000_000_000 + good % 1_700_000_000 + "\n")
    lines = trueup("streams try scores", file).out.splitlines()
    assert lines[0].endswith("  ts: 2023-11-14 22:13:20 UTC")
    assert lines[1].endswith("  ts: 1970-01-20 16:13:20 UTC")
    assert lines[2].startswith("times.json:2  warning: ts of source scores says 1970-01-20 16:13:20 UTC")
    assert 'set unit = "s" for ts' in lines[2]
    shown = [json.loads(line) for line in trueup(f"streams try scores {file} --json").out.splitlines()]
    assert [bool(each["warning"]) for each in shown] == [False, True, False]


@pytest.mark.parametrize(
    ("ts", "said"),
    [
        ('"27/11/2026 18:00"', 'which is not a time from 1970 to 9999; set format = "%d/%m/%Y %H:%M" for ts'),
        ('"05/11/2026"', 'set format = "%d/%m/%Y" or format = "%m/%d/%Y" for ts'),
        ('"yesterday"', "which is not a time from 1970 to 9999"),
        ("4102444800000", "ts says 2100-01-01 00:00:00 UTC, more than 300 s (TRUEUP_AHEAD_SECONDS) ahead of the Kafka"),
    ],
)
def test_a_time_that_cannot_be_is_said_with_its_remedy(ts: str, said: str, plan: Path, trueup: Trueup) -> None:
    plan.write_text(PLAN.replace("p = { path", 'ts = "at"\np = { path'))
    file = plan.with_name("times.json")
    file.write_text(f'{{"type": "score", "txn": {{"id": 7}}, "risk": 250, "at": {ts}}}\n')
    (line,) = trueup("streams try scores", file).out.splitlines()
    assert said in line
    assert ("before 1970" in line, line.count("format =") > 0) == (False, "format" in said)


def test_where_all_records_are_passed_over_it_is_said_once_and_how_to_try_more(plan: Path, trueup: Trueup) -> None:
    file = plan.with_name("pings.json")
    file.write_text('{"type": "ping"}\n' * 4 + '{"type": "score", "txn": {"id": 7}, "risk": 250}\n')
    passed = trueup(f"streams try scores {file} --records 4")
    assert (passed.status, len(passed.out.splitlines())) == (1, 4)
    assert passed.err.splitlines()[-1].startswith("all of the first records are passed over (4)")
    assert "--records 40 tries more" in passed.err
    more = trueup(f"streams try scores {file} --records 40")
    assert (more.status, "passed over (" in more.err) == (0, False)


def test_a_source_that_is_none_and_a_file_that_is_not_there_are_said(plan: Path, trueup: Trueup) -> None:
    assert "there is no source 'score'; there are: scores, labels" in trueup("streams try score").error
    assert "cannot read" in trueup("streams try scores", plan.with_name("none")).error


def test_config_check_says_who_reads_each_source_and_why(plan: Path, trueup: Trueup) -> None:
    shown = trueup("config check").out
    for topic in ("scores.v3", "scores.v4"):
        why = "it is not TRUEUP_FORECASTS: the intake maps it and writes to forecasts"
        assert f"# source 'scores': {topic} of forecasts is for the intake, for {why}" in shown
    assert "# source 'labels': outcomes of outcomes is direct, for it is TRUEUP_OUTCOMES" in shown
    sources = trueup("config check --json").json["sources"]
    assert [each["mode"] for each in sources] == ["for the intake", "for the intake", "direct"]
    plan.write_text(PLAN.replace("[0, 1000]", "[0]"))
    assert "sources.scores: p: a range is two numbers such as [0, 1000]" in trueup("config check").error


@pytest.mark.parametrize(("topic", "refused"), [("calibrated", True), ("trueup-labels", True), ("scores", False)])
def test_a_source_of_what_trueup_writes_is_refused(topic: str, plan: Path, trueup: Trueup, *, refused: bool) -> None:
    plan.write_text(PLAN.replace('"scores.v4"', f'"{topic}"'))
    checked = trueup("config check")
    said = f"sources.scores: trueup itself writes {topic}; name the topic of your own records"
    assert (said in checked.err) == (checked.status == MISCONFIGURED) == refused


@pytest.mark.parametrize(
    ("before", "pattern", "covered"),
    [
        ("*", "a", True),
        ("a*", "a-[xy]*", True),
        ("a?", "ab", True),
        ("a?", "a*", False),
        ("a????", "a[bc]", False),
        ("a", "*", False),
        ("*b*", "[ab]*", False),
        ("*", "[]a]?", True),
    ],
)
def test_a_pattern_that_never_applies_is_noted(
    before: str, pattern: str, plan: Path, trueup: Trueup, *, covered: bool
) -> None:
    plan.write_text(f'[streams."{before}"]\n[streams."{pattern}"]\n')
    said = f"# note: streams {pattern!r} never applies: {before!r} stands before it, and the first that matches counts"
    assert (said in trueup("config check").out) == covered
    assert trueup("config check --json").json["covered"] == ({pattern: before} if covered else {})


@pytest.mark.parametrize("wrong", ["[streams.a]\nk = 1", "k = ", "[sources.a]\nk = 1"])
def test_what_is_wrong_in_the_streams_file_is_said_with_its_path(wrong: str, plan: Path, trueup: Trueup) -> None:
    plan.write_text(wrong)
    assert f"trueup: {plan}: " in trueup("config check").err
