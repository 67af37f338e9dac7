"""A worker maps what its input topics hold, where they are sources: to the same events, and with the source's bytes."""

from pathlib import Path

import orjson
import pytest

from state.engine import Partition
from state.events import Event, Forecast, Outcome, Passed, Rejected
from state.fence import FENCE, FORECASTS, OUTCOMES, Fence
from streams.config import in_force
from streams.config.settings import Settings, SettingsError
from streams.records.decoding import Decoder

NOW = 1_700_000_000_000
PLAN = """
[streams.s]
calibrator = "platt"

[sources.scores]
topic = "scores.v3"
role = "forecast"
when = { type = "score" }
event_id = "txn.id"
stream = { constant = "s" }
p = { path = "risk", scale = "percent" }
ts = { path = "at", unit = "s" }

[sources.rules]
topic = "scores.v3"
role = "forecast"
when = { type = "rule" }
event_id = "@header.id"
stream = { constant = "rules" }
p = "risk"

[sources.chargebacks]
topic = "chargebacks"
role = "outcome"
event_id = "@key"
y = { path = "status", labels = { lost = 1, won = 0, open = "skip" } }
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    plan = tmp_path / "streams.toml"
    plan.write_text(PLAN)
    return {"TRUEUP_STREAMS": str(plan), "TRUEUP_FORECASTS": "scores.v3", "TRUEUP_OUTCOMES": "chargebacks"}


@pytest.fixture
def settings(environment: dict[str, str]) -> Settings:
    return Settings.from_env(environment)


def decoder(settings: Settings) -> Decoder:
    return Decoder(settings.policies, settings.limits, settings.direct)


SCORE = orjson.dumps({"type": "score", "txn": {"id": 7}, "risk": 25, "at": NOW // 1000})


def test_mapped_records_are_the_events_of_the_same_canonical_records(settings: Settings) -> None:
    plain = Decoder(settings.policies, settings.limits)
    mapped = decoder(settings).forecast(3, b"k", SCORE, NOW)
    said = plain.forecast(3, b"k", b'{"event_id": "7", "stream": "s", "p": 0.25, "ts": 1700000000000}', NOW)
    assert isinstance(mapped, Forecast)
    assert isinstance(said, Forecast)
    assert mapped.value == SCORE, "a dead letter shows what came"
    assert mapped._replace(value=None) == said._replace(value=None)
    outcome = decoder(settings).outcome(4, b"7", b'{"status": "lost"}', NOW)
    assert outcome == Outcome(4, b"7", "7", 1.0, NOW, b'{"status": "lost"}')


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"{", "not_json"),
        (b'{"type": "score", "txn": {"id": 7}, "risk": 101, "at": 1}', "probability"),
        (b'{"type": "score", "txn": {"id": 7}, "risk": 25, "at": 17000000000}', "timestamp"),
        (b"x" * 70_000, "oversized"),
    ],
)
def test_a_dead_letter_has_the_bytes_of_the_source_and_a_reason(settings: Settings, value: bytes, reason: str) -> None:
    found = decoder(settings).forecast(5, b"k", value, NOW)
    assert isinstance(found, Rejected)
    assert found[:5] == (5, b"k", value, FORECASTS, reason)


def test_records_that_are_passed_over_move_the_next_offset_and_nothing_else(settings: Settings) -> None:
    table: dict[bytes, bytes] = {}

    def fold(events: list[Event]) -> Fence:
        effects = Partition(settings.policies, table.get).fold(events)
        assert not effects.outputs
        assert sum(effects.fates) == 0
        table.update({key: row for key, row in effects.rows.items() if row is not None})
        return Fence.decode(table[FENCE.key()])

    read = decoder(settings)
    other = read.forecast(8, None, b'{"type": "other"}', NOW)
    still = read.outcome(5, b"7", b'{"status": "open"}', NOW)
    fence = fold([other, still])
    assert (fence.next, fence.applied, fence.stream_time) == ([9, 6], 0, 0)
    assert table.keys() == {FENCE.key()}, "where nothing is wanted of a topic, too: its records may be deleted"
    effects = Partition(settings.policies, table.get).fold([Passed(9, FORECASTS), Passed(6, OUTCOMES)])
    assert effects.passed == [1, 1]


def test_what_is_in_force_holds_the_sources_and_gives_them_back(settings: Settings) -> None:
    described = in_force.described(settings)
    restored = in_force.restored(described, Settings(forecasts="scores.v3", outcomes="chargebacks"))
    assert in_force.described(restored) == described
    assert decoder(restored).forecast(3, b"k", SCORE, NOW) == decoder(settings).forecast(3, b"k", SCORE, NOW)
    plain = in_force.described(Settings())
    assert b"sources" not in plain, "without sources nothing that was written before changes"
    assert in_force.restored(plain, settings).direct is None


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('topic = "chargebacks"', 'topics = ["chargebacks", "decisions"]', "set TRUEUP_OUTCOMES"),
        ("[sources.scores]", "[[sources]]", "sources"),
    ],
)
def test_what_is_wrong_with_a_source_is_said_before_anything_is_read(
    environment: dict[str, str], old: str, new: str, said: str
) -> None:
    Path(environment["TRUEUP_STREAMS"]).write_text(PLAN.replace(old, new, 1))
    with pytest.raises(SettingsError, match=said.replace("[", r"\[")):
        Settings.from_env(environment)
