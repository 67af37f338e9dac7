"""Letters and the records that they are of; `tests/e2e/test_letters.py` has a real broker."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from cli import dead_letters
from cli.dead_letters import Wanted, _now, read_letter
from cli.try_source import Trial
from state.events import Rejected
from state.fence import FORECASTS
from streams.config.settings import Settings
from streams.records.limits import Limits
from streams.records.output_json import encode_letter


def test_a_letter_knows_its_record_and_a_topic_that_was_made_anew_has_another() -> None:
    limits = Limits(letter_bytes=4)

    def letter(value: bytes | None, *, withheld: bool = False) -> object:
        rejected = Rejected(3, b"key-1", value, FORECASTS, "not_json", withheld=withheld)
        return SimpleNamespace(timestamp=5, value=encode_letter(rejected, "scores", 1, limits))

    cut = read_letter(letter(b"a long value"))
    assert cut is not None
    assert (cut.place, cut.whole, cut.value) == ("scores/1@3", False, b"a lo")
    assert cut.is_of(b"key-1", b"a long value")
    assert not cut.is_of(b"key-1", b"another one!")
    assert not cut.is_of(b"other", b"a long value")
    assert not cut.is_of(b"key-1", None)
    withheld = read_letter(letter(b"a long value", withheld=True))
    assert withheld is not None
    assert (withheld.whole, withheld.is_of(b"any", b"x" * 12), withheld.is_of(b"any", b"x")) == (False, True, False)
    whole = read_letter(letter(b"junk"))
    assert whole is not None
    assert whole.whole
    for junk in (b"", b"[]", b"junk", b'{"reason": "empty"}'):
        assert read_letter(SimpleNamespace(timestamp=5, value=junk)) is None, "whatever else stands in the topic"


def test_what_conflicts_is_not_said_to_be_usable_as_it_is() -> None:
    value = b'{"event_id": "a", "stream": "s", "p": 0.5}'
    of = Rejected(3, b"s", value, FORECASTS, "conflict")
    letter = read_letter(SimpleNamespace(timestamp=5, value=encode_letter(of, "forecasts", 1, Limits())))
    assert letter is not None
    said = _now(Trial(Settings.from_env({})), letter)
    assert "conflicts again" in said
    assert "scope" in said


@pytest.mark.parametrize(("reason", "left"), [(None, ["forecasts/1@3"]), ("conflict", [])])
def test_what_conflicts_is_sent_again_only_where_its_reason_is_named(
    reason: str | None, left: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    of = Rejected(3, b"s", b'{"event_id": "a", "stream": "s", "p": 0.5}', FORECASTS, "conflict")
    letter = read_letter(SimpleNamespace(timestamp=5, value=encode_letter(of, "forecasts", 1, Limits())))

    async def letters(*_: Any) -> Any:
        return Counter(), [letter]

    async def originals(*_: Any) -> Any:
        return {}, set()

    monkeypatch.setattr(dead_letters, "_letters", letters)
    monkeypatch.setattr(dead_letters, "_originals", originals)
    settings = Settings.from_env({})
    status = dead_letters.send(settings, Wanted(reason=reason), dry_run=True, json_output=True)
    assert status == len(left)
    assert list(orjson.loads(capsys.readouterr().out)["left"]) == left
