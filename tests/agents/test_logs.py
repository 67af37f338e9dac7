"""Logs: text for people, one JSON object a line for machines."""

import io
import logging
import sys
from typing import Any

import orjson
import pytest

from agents import logs


class Stream(io.StringIO):
    """Standard error, at a terminal or not."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give pytest its handlers back."""
    monkeypatch.setattr(logging.root, "handlers", [])


def configured(monkeypatch: pytest.MonkeyPatch, level: str = "INFO", *, terminal: bool = False) -> Stream:
    monkeypatch.setattr(sys, "stderr", stream := Stream(terminal=terminal))
    logs.configure(level, "router")
    return stream


def lines(stream: Stream) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in stream.getvalue().splitlines()]


def test_a_record_is_one_json_object_when_nobody_sits_at_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = configured(monkeypatch)
    record = logging.makeLogRecord(
        {"name": "trueup", "levelno": 30, "levelname": "WARNING", "msg": "%d of\n%s", "args": (2, "é")}
    )
    record.created, record.msecs = 1_700_000_000.25, 250.0
    logging.root.handle(record)
    assert lines(stream) == [
        {
            "time": "2023-11-14T22:13:20.250Z",
            "level": "warning",
            "command": "router",
            "logger": "trueup",
            "message": "2 of\né",
        }
    ]


def test_a_record_is_text_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = configured(monkeypatch, terminal=True)
    logging.getLogger("trueup").warning("mind the %s", "gap")
    assert stream.getvalue().endswith(" WARNING  router: mind the gap\n")


def test_an_exception_is_one_line_with_its_traceback_also_where_text_is_not_unicode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = configured(monkeypatch)
    path = b"/data/\xff".decode(errors="surrogateescape")  # as Python gives the names of files and variables
    try:
        raise OSError(f"two\nlines {path}")
    except OSError as exc:
        logging.getLogger("trueup").critical("cannot make %s", path, exc_info=exc)
    (line,) = lines(stream)
    assert line["message"].startswith("cannot make /data/")
    assert line["traceback"].startswith("Traceback (most recent call last):\n")
    assert "OSError: two\nlines" in line["traceback"]


@pytest.mark.parametrize(
    ("level", "shown"),
    [("DEBUG", 4), ("INFO", 3), ("WARNING", 2), ("ERROR", 1), ("LOUD", 3), ("", 3), ("-1", 3), ("info", 3)],
)
def test_only_what_is_at_least_the_level_is_logged_and_a_level_that_is_none_is_taken_for_info(
    monkeypatch: pytest.MonkeyPatch, level: str, shown: int
) -> None:
    stream = configured(monkeypatch, level)
    for method in ("debug", "info", "warning", "error"):
        getattr(logging.getLogger("trueup"), method)(method)
    assert [line["level"] for line in lines(stream)] == ["debug", "info", "warning", "error"][-shown:]


@pytest.mark.parametrize("name", ["faust.transport.consumer", "mode.services", "aiokafka.conn"])
def test_the_libraries_are_quiet_until_they_warn(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    stream = configured(monkeypatch, "DEBUG")
    logging.getLogger(name).info("rebalancing")
    logging.getLogger(name).warning("a broker is gone")
    assert [line["message"] for line in lines(stream)] == ["a broker is gone"]


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("[^--LoopConsumer]: Thread keepalive is not responding...", ["is the machine overloaded?"]),
        ("[^App]: Warning: Task timed out!", ["or is a topic gone?"]),
        ("[^App]: Please make sure it's hanging before restart.", []),
        ("[^App]: Crashed reason=OSError('No space left on device')", []),
    ],
)
def test_what_only_the_authors_of_a_library_know_is_said_in_other_words_or_not_at_all(
    monkeypatch: pytest.MonkeyPatch, said: str, written: list[str]
) -> None:
    stream = configured(monkeypatch)
    logging.getLogger("faust.app.base").error("%s", said)
    found = lines(stream)
    assert [line["level"] for line in found] == ["warning"] * len(written)
    assert all(line["message"].endswith(end) for line, end in zip(found, written, strict=True))
    logging.getLogger("trueup").error("%s", said)
    assert lines(stream)[-1]["message"] == said


def test_what_is_said_ten_times_a_second_is_written_once_a_minute_with_how_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = configured(monkeypatch)
    fields = {"name": "aiokafka", "levelno": 40, "levelname": "ERROR", "msg": "broker %d is away"}
    for tenth in range(601):
        for broker in (1, 2):
            record = logging.makeLogRecord({**fields, "args": (broker,)})
            record.created = 1_700_000_000 + tenth / 10
            logging.root.handle(record)
    for _ in range(2):
        logging.getLogger("trueup").info("ready")
    assert [line["message"] for line in lines(stream)] == [
        "broker 1 is away",
        "broker 2 is away",
        "broker 1 is away (and 599 times more since this was last written)",
        "broker 2 is away (and 599 times more since this was last written)",
        "ready",
        "ready",
    ]
