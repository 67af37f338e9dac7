"""Letters and the records that they are of; `tests/e2e/test_letters.py` has a real broker."""

from types import SimpleNamespace

import pytest

from cli.dead_letters import Letter, read_letter
from state.events import Rejected
from state.fence import FORECASTS
from streams.records.limits import Limits
from streams.records.output_json import encode_letter
from tests.cli.conftest import Held
from tests.commands import Trueup


def written(value: bytes | None, reason: str, limits: Limits | None = None, *, withheld: bool = False) -> bytes:
    """Return the letter of a forecast, the fourth of a partition."""
    rejected = Rejected(3, b"key-1", value, FORECASTS, reason, withheld=withheld)
    return encode_letter(rejected, "forecasts", 1, limits or Limits())


def read(value: bytes) -> Letter:
    letter = read_letter(SimpleNamespace(timestamp=5, value=value))
    assert letter is not None
    return letter


def test_a_letter_knows_its_record_and_a_topic_that_was_made_anew_has_another() -> None:
    cut = read(written(b"a long value", "not_json", Limits(letter_bytes=4)))
    assert (cut.place, cut.whole, cut.value) == ("forecasts/1@3", False, b"a lo")
    assert cut.is_of(b"key-1", b"a long value")
    for key, other in ((b"key-1", b"another one!"), (b"other", b"a long value"), (b"key-1", None)):
        assert not cut.is_of(key, other)
    withheld = read(written(b"a long value", "not_json", withheld=True))
    assert (withheld.whole, withheld.is_of(b"any", b"x" * 12), withheld.is_of(b"any", b"x")) == (False, True, False)
    assert read(written(b"junk", "not_json")).whole
    for junk in (b"", b"[]", b"junk", b'{"reason": "empty"}'):
        assert read_letter(SimpleNamespace(timestamp=5, value=junk)) is None, "whatever else stands in the topic"


@pytest.mark.parametrize(("reason", "left"), [("", ["forecasts/1@3"]), ("--reason conflict", [])])
def test_what_conflicts_is_sent_again_only_where_its_reason_is_named(
    reason: str, left: list[str], held: Held, trueup: Trueup
) -> None:
    held["dead-letters"] = {0: [(None, written(b'{"event_id": "a", "stream": "s", "p": 0.5}', "conflict"))]}
    held["forecasts"] = {0: [], 1: []}
    (shown,) = trueup("letters --json").json["letters"]
    assert "conflicts again; give it an event_id of its own, or a `scope`" in shown["now"]
    ended = trueup(f"letters send --dry-run --json {reason}")
    assert ended.status == len(left)
    assert list(ended.json["left"]) == left
    assert ended.json["without_headers"] == ([] if left else ["forecasts/1@3"]), "retention has taken it"
