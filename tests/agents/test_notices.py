"""Dead letters and times far off: a line a minute of each kind in the log, and all of them on the page."""

import logging
from pathlib import Path

import pytest

from agents.notices import EVENTS, LOG_SECONDS, Notices, held, path
from streams.config.settings import Settings


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_thousands_of_dead_letters_are_a_line_a_minute_with_the_last_count_and_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    clock, settings = Clock(), Settings(data_dir=tmp_path)
    notices = Notices(path(settings, "intake"), clock)
    for offset in range(9000):
        notices.dead("scores", 1, offset, "not_json")
        if offset % 100 == 0:
            notices.tell()
    notices.dead("labels", 0, 7, "label")
    notices.tell()
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "dead letters of scores, not_json",
        "dead letters of labels, label",
    ]
    clock.now += LOG_SECONDS
    notices.tell()
    notices.tell()
    assert len(caplog.records) == 3
    line = caplog.records[-1].getMessage()
    assert line.startswith("dead letters of scores, not_json: 9,000. ")
    assert "scores/1@8999" in line
    assert line.endswith("trueup letters --topic scores --reason not_json")
    shown = held(settings)
    assert {(each["topic"], each["reason"], each["count"]) for each in shown} == {
        ("scores", "not_json", 9000),
        ("labels", "label", 1),
    }
    assert line in [each["line"] for each in shown]
    Notices(path(settings, "intake"), clock).tell()
    assert held(settings) == [], "a process that starts has met none yet"


def test_events_of_operation_outlive_the_process_and_stand_beside_changes_of_the_streams_file(tmp_path: Path) -> None:
    (tmp_path / "streams.toml.audit.jsonl").write_text(
        '{"at": "2026-03-01T06:00:00+00:00", "who": "grace", "reason": null, "pattern": "fraud-*", '
        '"from": {"calibrator": "minimax"}, "to": {"calibrator": "platt"}}\n'
        '{"at": "2026-03-02T06:00:00+00:00", "who": "grace", "reason": "review", "pattern": "fraud-*", '
        '"frozen": true}\n{"at": "2026-03-'
    )
    settings = Settings(data_dir=tmp_path, streams=tmp_path / "streams.toml")
    clock = Clock()
    for start in range(2):
        notices = Notices(path(settings, "worker"), clock)
        notices.happened(f"start {start}")
        for said in ("ready", "ready", "not ready: waiting for the schema registry", "ready"):
            notices.stands(said)
        notices.dead("scores", 0, start, "empty")
        notices.tell()
    lines = [each["line"] for each in reversed(held(settings))]
    of_start = ["ready", "not ready: waiting for the schema registry", "ready"]
    assert lines[0] == "streams file: fraud-*: minimax to platt, by grace; no reason given"
    assert lines[1] == "streams file: fraud-*: frozen, by grace; review"
    assert lines[2:10] == ["start 0", *of_start, "start 1", *of_start]
    assert lines[10].startswith("dead letters of scores, empty: 1. ")
    for n in range(EVENTS):
        notices.happened(f"event {n}")
    clock.now += LOG_SECONDS
    notices.tell()
    assert len(held(settings)) == EVENTS + 3


def test_a_disk_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    notices = Notices(tmp_path / "file" / "notices.json")
    notices.dead("scores", 0, 0, "empty")
    notices.tell()


def test_raw_scores_that_are_served_again_are_an_event_and_a_warning_and_late_labels_a_line_with_their_number(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings(data_dir=tmp_path)
    notices = Notices(path(settings, "worker"))
    notices.withheld("cards", 3, begins=True)
    notices.withheld("cards", 3, begins=False)
    for events in (2, 3):
        notices.overdue("cards", events)
    notices.tell()
    began, ended, late = (each["line"] for each in sorted(held(settings), key=lambda each: each["at"]))
    assert began.startswith("cards, partition 3: raw scores are served from now on, because most forecasts")
    assert ended.startswith("cards, partition 3: what was learnt is served again")
    assert late.startswith("labels of cards that came after silence had answered for them: 5. Until a label comes")
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [began, late]
