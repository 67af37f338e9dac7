"""Dead letters of a real broker: shown by reason, and sent again once when their source is repaired."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from cli.dead_letters import HEADER
from tests.commands import Trueup, trueup
from tests.e2e.world import MakeWorld, wait_for
from tests.events import Sent

__all__ = ["trueup"]

START = 1_700_000_000_000
SOURCE = """
[sources.scores]
topic = "{topic}"
role = "forecast"
event_id = "id"
stream = {{ constant = "cards" }}
p = {p}
"""


@pytest.fixture
def said(trueup: Trueup) -> Callable[[str], tuple[int, dict[str, Any]]]:
    """Run `trueup letters`, and return its status and what it says."""

    def run(options: str) -> tuple[int, dict[str, Any]]:
        ended = trueup(f"letters {options} --json")
        return ended.status, ended.json

    return run


def test_dead_letters_are_shown_and_sent_again_as_they_were_when_the_source_is_repaired(
    world: MakeWorld, tmp_path: Path, said: Callable[[str], tuple[int, dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    w = world(partitions=1)
    for name, p in (("broken", '"risk"'), ("mended", '{ path = "risk", scale = [0, 1000] }')):
        (tmp_path / f"{name}.toml").write_text(SOURCE.format(topic=w.topic("forecasts"), p=p))
    for variable, value in {**w.environment, "TRUEUP_STREAMS": str(tmp_path / "mended.toml")}.items():
        monkeypatch.setenv(variable, value)

    values = [orjson.dumps({"id": f"e{n}", "risk": 250 + n}) for n in range(3)] + [
        b"junk",
        b'{"id": "good", "risk": 1}',
    ]
    w.send(
        Sent("forecasts", b"k%d" % n, value, START + n, (("traceparent", b"00-%d" % n),))
        for n, value in enumerate(values)
    )
    with w.worker(TRUEUP_STREAMS=str(tmp_path / "broken.toml")) as worker:
        wait_for("the dead letters", lambda: len(w.read("dead-letters")) == 4)
        wait_for("the answer", lambda: len(w.read("calibrated")) == 1)
        assert worker.stop() == 0

    status, shown = said("")
    assert status == 0
    topic = w.topic("forecasts")
    assert shown["counts"] == [
        {"reason": "probability", "topic": topic, "letters": 3},
        {"reason": "not_json", "topic": topic, "letters": 1},
    ]
    newest, junk = shown["letters"][2:]
    assert (newest["place"], newest["record"], newest["key"]) == (f"{topic}/0@2", {"id": "e2", "risk": 252}, "k2")
    assert newest["now"].startswith("can be used")
    assert (junk["record"], junk["now"][:22]) == ("junk", "dead letter, not_json:")
    _, few = said(f"--reason not_json --topic {topic} --last 1h")
    assert [each["place"] for each in few["letters"]] == [f"{topic}/0@3"]

    places = [f"{topic}/0@{n}" for n in range(3)]
    status, tried = said("send --dry-run")
    assert (status, tried["sent"], list(tried["left"])) == (1, places, [f"{topic}/0@3"])
    assert len(w.read("forecasts")) == 5, "a dry run sends nothing"
    status, sent = said("send --reason probability")
    assert (status, sent["sent"], sent["without_headers"]) == (0, places, [])
    before, after = w.read("forecasts")[:3], w.read("forecasts")[5:]
    assert [(each.key, each.value, each.timestamp) for each in after] == [
        (each.key, each.value, each.timestamp) for each in before
    ]
    assert [each.headers for each in after] == [
        (*each.headers, (HEADER, place.encode())) for each, place in zip(before, places, strict=True)
    ]
    status, twice = said("send --reason probability")
    assert (status, twice["sent"], twice["sent_before"]) == (0, [], places)
    assert len(w.read("forecasts")) == 8
    with w.worker(TRUEUP_STREAMS=str(tmp_path / "mended.toml")):
        wait_for("the answers", lambda: len(w.read("calibrated")) == 4)
    answers = {each["event_id"]: each["raw"] for each in w.said("calibrated")}
    assert answers == {"good": 1.0, "e0": 0.25, "e1": 0.251, "e2": 0.252}
    _, last = said("send --reason probability --limit 1 --again")
    assert last["sent"] == places[2:], "told to, it sends one twice"
