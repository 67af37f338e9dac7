"""An audit proves what it says: any order is followed, and nothing that was altered, lost or made up passes."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from replay.audit.output_matcher import Differs, OutputDifference, Unauditable
from replay.audit.rows import fence_of
from state import kinds
from state.fence import EXPIRED_FORECAST
from state.journal import Entry
from streams.config.settings import Settings
from tests.events import Sent, forecast, mixed, outcome
from tests.replay.audit.partitions import Kept, Topics, served

SETTINGS = Settings.from_env({})


def difference(topics: Topics) -> OutputDifference:
    """Return what an audit of the topics complains of."""
    with pytest.raises(Differs) as found:
        topics.audit()
    assert isinstance(found.value.args[0], OutputDifference)
    return found.value.args[0]


def altered(value: bytes | None, **fields: object) -> bytes:
    """Return a JSON value with other fields."""
    return orjson.dumps(orjson.loads(value or b"") | fields)


@examples(max_examples=25)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.3]))
def test_whatever_order_a_worker_folded_is_followed(seed: int, crashes: float) -> None:
    made = mixed(300, seed=seed % 7)
    topics = served(made.sent, SETTINGS, seed, crashes)
    checked = topics.audit().checked
    records = {label: len(records) for label, records in topics.records.items()}
    assert checked.forecasts == records["forecasts"]
    assert checked.outcomes == records["outcomes"]
    assert checked.calibrated == made.fates["forecasts_issued"] + made.fates["forecasts_duplicate"]
    assert checked.dead_letters == made.fates["forecasts_dead"] + made.fates["outcomes_dead"]
    outputs = checked.calibrated + checked.resolved + checked.dead_letters + checked.copies
    assert outputs == records["calibrated"] + records["resolved"] + records["dead-letters"]
    assert (checked.waiting, checked.unsettled) == (0, 0)


@pytest.mark.parametrize("crashes", [0.0, 0.3])
def test_rows_that_expire_are_followed(tmp_path: Path, crashes: float) -> None:
    path = tmp_path / "streams.toml"
    path.write_text('early_ttl = "3s"\n[streams."stream-0"]\nttl = "4s"\n[streams."*"]\nttl = "9s"\n')
    settings = Settings.from_env({"TRUEUP_STREAMS": str(path)})
    topics = served(mixed(7000).sent, settings, 5, crashes)
    audited = topics.audit()
    assert audited.checked.calibrated + audited.checked.copies >= len(topics.records["calibrated"])
    assert fence_of(audited.derivation.rows).fates[EXPIRED_FORECAST] > 100


@pytest.mark.parametrize("crashes", [0.0, 0.3])
def test_streams_with_challengers_are_derived_and_answer_as_without(tmp_path: Path, crashes: float) -> None:
    path = tmp_path / "streams.toml"
    path.write_text(
        '[streams."*"]\nttl = "9s"\nshadow = ["platt", { calibrator = "minimax", options = { grid = 9 } }]\n'
    )
    settings = Settings.from_env({"TRUEUP_STREAMS": str(path)})
    topics = served(mixed(600).sent, settings, 5, crashes)
    audited = topics.audit()
    assert audited.checked.calibrated > 600
    assert any(key.startswith(kinds.COMPARISON.letter) for key, _ in audited.derivation.rows.items())
    path.write_text('[streams."*"]\nttl = "9s"\n')
    without = Settings.from_env({"TRUEUP_STREAMS": str(path)})
    plain = served(mixed(600).sent, without, 5, crashes)
    # Challengers come and go while a stream lives; the file that is audited with may be any of them.
    assert topics.audit(without).checked == plain.audit(settings).checked == audited.checked
    for label in ("calibrated", "resolved", "dead-letters"):
        assert [record.value for record in topics.records[label]] == [record.value for record in plain.records[label]]


VECTORS = """
[streams.demand]
calibrator = "quantile"
segments = ["country"]
shadow = [{ calibrator = "quantile", options = { rate = 0.2 } }]
[streams.intent]
calibrator = "multiclass"
segments = ["country"]
shadow = [{ calibrator = "multiclass", options = { each = "platt" } }]
"""


@pytest.mark.parametrize("crashes", [0.0, 0.3])
def test_classes_and_numbers_with_segments_and_challengers_are_derived(tmp_path: Path, crashes: float) -> None:
    path = tmp_path / "streams.toml"
    path.write_text(VECTORS)
    settings = Settings.from_env({"TRUEUP_STREAMS": str(path)})
    sent = []
    for n in range(300):
        stream = ("demand", "intent")[n % 2]
        raw = {"normal": {"mean": n % 7, "std": 2.0}} if n % 2 == 0 else {"probs": [0.5, 0.25, 0.25]}
        event_id, ts = f"{stream}-{n}", 1_700_000_000_000 + 1000 * n
        forecast = {"event_id": event_id, "stream": stream, "segments": {"country": f"c{n % 5}"}, "ts": ts, **raw}
        outcome = {"event_id": event_id, "y": n % 3, "ts": ts + 500}
        for topic, record in (("forecasts", forecast), ("outcomes", outcome)):
            sent.append(Sent(topic, event_id.encode(), orjson.dumps(record), ts))
    topics = served(sent, settings, 5, crashes)
    audited = topics.audit()
    assert (audited.checked.calibrated, audited.checked.resolved) == (300, 300)
    found = {key[:1] for key, _ in audited.derivation.rows.items()}
    assert {kinds.COMPARISON.letter, kinds.SEGMENT.letter, kinds.VECTORS.letter} <= found
    path.write_text(re.sub(r"shadow = .*", "", VECTORS))
    plain = served(sent, Settings.from_env({"TRUEUP_STREAMS": str(path)}), 5, crashes)
    for label in ("calibrated", "resolved", "dead-letters"):
        assert [record.value for record in topics.records[label]] == [record.value for record in plain.records[label]]


@pytest.mark.parametrize("crashes", [0.0, 0.3])
def test_streams_with_segments_are_derived(tmp_path: Path, crashes: float) -> None:
    path = tmp_path / "streams.toml"
    path.write_text('[streams."*"]\nsegments = ["country", "channel"]\npairs = [["country", "channel"]]\n')
    settings = Settings.from_env({"TRUEUP_STREAMS": str(path)})

    def carrying(n: int, sent: Sent) -> Sent:
        if sent.topic != "forecasts" or not sent.value.endswith(b"}"):
            return sent
        segments = {"country": f"c{n % 80}", "channel": ("web", "", 7)[n % 3]}
        return sent._replace(value=sent.value[:-1] + b',"segments":' + orjson.dumps(segments) + b"}")

    topics = served([carrying(n, each) for n, each in enumerate(mixed(600).sent)], settings, 5, crashes)
    audited = topics.audit()
    assert audited.checked.calibrated > 600
    assert {kinds.NAMES.letter, kinds.SEGMENT.letter} <= {key[:1] for key, _ in audited.derivation.rows.items()}


def test_streams_of_classes_and_of_numbers_are_derived_too(tmp_path: Path) -> None:
    path = tmp_path / "streams.toml"
    path.write_text(
        '[streams.intent]\ncalibrator = "multiclass"\noptions = { classes = 3 }\n'
        '[streams.demand]\ncalibrator = "quantile"\noptions = { levels = [0.1, 0.5, 0.9] }\n'
    )
    settings = Settings.from_env({"TRUEUP_STREAMS": str(path)})
    sent: list[Sent] = []
    for i in range(300):
        classes = orjson.dumps({"event_id": f"c{i}", "stream": "intent", "probs": [0.2, 0.3, 0.5]})
        numbers = orjson.dumps({"event_id": f"n{i}", "stream": "demand", "normal": {"mean": i % 9, "std": 2}})
        sent += [Sent("forecasts", b"k", classes, i), Sent("forecasts", b"k", numbers, i)]
        # Every tenth outcome is of a class there is not: unfit, or unfit and parked, as the order has it.
        sent += [outcome(f"c{i}", i % 3 if i % 10 else 7, i), outcome(f"n{i}", i % 11, i)]
    topics = served(sent, settings, 3, 0.3)
    checked = topics.audit().checked
    assert (checked.calibrated, checked.dead_letters) == (600, 30)


def test_a_changed_answer_is_named_with_what_changed() -> None:
    topics = served(mixed(200).sent, SETTINGS)
    record = topics.records["calibrated"][77]
    p = orjson.loads(record.value or b"")["p"]
    topics.replace("calibrated", 77, altered(record.value, p=p + 2**-40))
    found = difference(topics)
    assert (found.partition, found.topic, found.offset) == (3, "calibrated", 77)
    assert found.event_id == orjson.loads(record.value or b"")["event_id"]
    assert found.fields == {"p": (p + 2**-40, p)}


def test_of_several_differences_the_first_is_named() -> None:
    topics = served(mixed(200).sent, SETTINGS)
    for offset in (150, 30, 90):
        topics.replace("calibrated", offset, altered(topics.records["calibrated"][offset].value, expected=0.123))
    assert difference(topics).offset == 30


@pytest.mark.parametrize("field", ["raw", "p", "draw", "version", "ts", "stream", "calibrator", "applied", "event_id"])
def test_any_changed_field_of_an_answer_is_noticed(field: str) -> None:
    topics = served(mixed(200).sent, SETTINGS)
    value = topics.records["calibrated"][120].value
    old = orjson.loads(value or b"")[field]
    topics.replace("calibrated", 120, altered(value, **{field: old + 1 if isinstance(old, int | float) else f"{old}x"}))
    with pytest.raises((Differs, Unauditable)):
        topics.audit()


@pytest.mark.parametrize("field", ["raw", "p", "y", "version", "issued_ts", "resolved_ts", "event_id", "calibrator"])
def test_any_changed_field_of_a_joined_record_is_noticed(field: str) -> None:
    topics = served(mixed(200).sent, SETTINGS)
    value = topics.records["resolved"][60].value
    old = orjson.loads(value or b"")[field]
    topics.replace("resolved", 60, altered(value, **{field: old + 1 if isinstance(old, int | float) else f"{old}x"}))
    assert difference(topics).topic == "resolved"


def test_an_altered_copy_at_the_end_is_named() -> None:
    topics = served(mixed(200).sent, SETTINGS)
    record = topics.records["calibrated"][5]
    topics.append("calibrated", record.key, altered(record.value, p=0.5))
    found = difference(topics)
    assert (found.offset, list(found.fields)) == (len(topics.records["calibrated"]) - 1, ["p"])


@pytest.mark.parametrize("label", ["calibrated", "resolved", "dead-letters"])
@pytest.mark.parametrize("at", ["first", "middle", "last"])
def test_a_lost_output_is_missed(label: str, at: str) -> None:
    topics = served(mixed(400, seed=2).sent, SETTINGS)
    records = topics.records[label]
    values = [record.value for record in records]
    once = [i for i, value in enumerate(values) if values.count(value) == 1]
    lost = {"first": once[0], "middle": once[len(once) // 2], "last": once[-1]}[at]
    event = orjson.loads(records[lost].value or b"")
    topics.drop(label, lost)
    found = difference(topics)
    assert (found.topic, found.offset) == (label, None)
    assert found.event_id is not None
    assert str(event.get("event_id", event.get("offset"))) in found.event_id


@pytest.mark.parametrize("label", ["calibrated", "resolved", "dead-letters"])
def test_a_made_up_output_is_named(label: str) -> None:
    topics = served(mixed(200).sent, SETTINGS)
    value = altered(topics.records[label][0].value, event_id="nobody", offset=99_999)
    topics.append(label, b"k", value)
    found = difference(topics)
    assert (found.topic, found.offset) == (label, len(topics.records[label]) - 1)


@pytest.mark.parametrize("value", [b"", b"junk", b"[]", b'{"event_id":1}', None])
@pytest.mark.parametrize("label", ["calibrated", "resolved", "dead-letters"])
def test_what_no_worker_writes_is_named(label: str, value: bytes | None) -> None:
    topics = served(mixed(50).sent, SETTINGS)
    topics.append(label, None, value)
    assert difference(topics).what == "a record no worker writes"


def lose_an_input(topics: Topics) -> None:
    topics.drop("outcomes", 40)


def change_an_input(topics: Topics) -> None:
    topics.replace("forecasts", 40, altered(topics.records["forecasts"][40].value, p=0.987654321))


def change_an_outcome(topics: Topics) -> None:
    value = topics.records["outcomes"][40].value
    topics.replace("outcomes", 40, altered(value, y=1 - orjson.loads(value or b"")["y"]))


@pytest.mark.parametrize("harm", [lose_an_input, change_an_input, change_an_outcome])
def test_inputs_that_are_not_those_that_were_folded_are_noticed(harm: Callable[[Topics], None]) -> None:
    topics = served(
        [s for i in range(300) for s in (forecast(f"e{i}", i / 300, i), outcome(f"e{i}", i % 2, i))], SETTINGS
    )
    harm(topics)
    with pytest.raises(Differs):
        topics.audit()


def test_two_answers_that_changed_places_are_named() -> None:
    topics = served(mixed(200).sent, SETTINGS)
    records = topics.records["calibrated"]
    first, second = records[77], records[78]
    records[77], records[78] = second._replace(offset=77), first._replace(offset=78)
    found = difference(topics)
    assert (found.topic, found.offset) == ("calibrated", 77)
    assert "or it stands before that of" in found.what


def test_what_is_behind_the_last_entry_is_counted_and_not_judged() -> None:
    topics = served(mixed(400).sent, SETTINGS)
    before = topics.audit().checked
    later = mixed(30, seed=9, start=10_000_000)
    for record in later.sent:
        topics.append(record.topic, record.key, record.value, record.ts)
    topics.append("calibrated", b"k", altered(topics.records["calibrated"][0].value, event_id="9-1"))
    assert topics.audit().checked == replace(before, waiting=len(later.sent), unsettled=1)
    # Copies of what is judged must be the same all the same.
    topics.append(
        "calibrated", topics.records["calibrated"][0].key, altered(topics.records["calibrated"][0].value, p=0)
    )
    assert difference(topics).what == "a copy that is not the same"


def entries(topics: Topics) -> list[Entry]:
    return [Entry.decode(each.value or b"") for each in topics.records["journal"]]


def test_entries_that_overlap_must_agree() -> None:
    topics = served(mixed(300).sent, SETTINGS, 3)
    whole, every = topics.audit().checked, entries(topics)
    first, second = every[1:3]
    topics.records["journal"].clear()
    for entry in [*every[:2], first._replace(ends=second.ends, topics=first.topics + second.topics), *every[2:]]:
        last, applied = (second.last, second.applied) if entry.ends == second.ends else (entry.last, entry.applied)
        topics.append("journal", None, entry._replace(last=last, applied=applied).encode())
    assert topics.audit().checked == whole
    other = bytes([1 - first.topics[0]]) + first.topics[1:]
    topics.records["journal"].insert(2, Kept(2, None, first._replace(topics=other).encode(), 0))
    found = difference(topics)
    assert (found.topic, found.offset) == ("journal", 2)
    assert "contradicts those before it" in found.what


def test_a_gap_in_the_journal_ends_the_audit_there_in_one_sentence() -> None:
    topics = served(mixed(300).sent, SETTINGS)
    every = entries(topics)
    del topics.records["journal"][2]
    with pytest.raises(Unauditable, match=re.escape(f"goes on at offsets {list(every[3].begins)} of forecasts")):
        topics.audit()
    topics.replace("calibrated", 5, altered(topics.records["calibrated"][5].value, p=0.5))
    assert difference(topics).offset == 5, "what is before the gap is judged"


@pytest.mark.parametrize("harm", ["order", "applied", "ends", "config", "bytes"])
def test_a_journal_that_says_something_else_is_no_agreement(harm: str) -> None:
    topics = served(mixed(300).sent, SETTINGS)
    entry = entries(topics)[2]
    at = entry.topics.index(b"\1\0")
    forged = {
        "order": entry._replace(topics=entry.topics[:at] + b"\0\1" + entry.topics[at + 2 :]),
        "applied": entry._replace(applied=entry.applied + 1),
        "ends": entry._replace(ends=(entry.ends[0] + 1, entry.ends[1])),
        "config": entry._replace(config=bytes(16)),
        "bytes": entry,
    }[harm].encode()
    topics.replace("journal", 2, forged[:-1] if harm == "bytes" else forged)
    with pytest.raises((Differs, Unauditable)):
        topics.audit()


def test_a_last_record_that_was_rewritten_is_named() -> None:
    topics = served(mixed(300).sent, SETTINGS)
    for label, end in zip(("forecasts", "outcomes"), entries(topics)[3].ends, strict=True):
        record = topics.records[label][end - 1]
        topics.records[label][end - 1] = record._replace(timestamp=record.timestamp + 1)
        found = difference(topics)
        assert (found.topic, found.offset, list(found.fields)) == (label, end - 1, ["timestamp"])
        topics.records[label][end - 1] = record
