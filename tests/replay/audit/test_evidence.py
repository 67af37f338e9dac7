"""An audit proves what it says: nothing that was altered, lost or made up passes."""

import re
from collections.abc import Callable
from dataclasses import replace

import orjson
import pytest

from replay.audit.along import Along
from replay.audit.output_matcher import Differs, Unauditable
from replay.audit.partition_verifier import INPUTS
from state.engine import Partition
from state.journal import Entry
from streams.config.in_force import described, digest
from streams.config.settings import Settings
from tests.events import forecast, mixed, outcome
from tests.replay.audit.partitions import (
    ANSWERING,
    RAW,
    Kept,
    Topics,
    altered,
    carrying,
    configured,
    difference,
    raws,
    served,
)

SETTINGS = Settings.from_env({})


def test_of_several_differences_the_first_is_named() -> None:
    topics = served(mixed(200).sent, SETTINGS)
    for offset in (150, 30, 90):
        topics.replace("calibrated", offset, altered(topics.records["calibrated"][offset].value, expected=0.123))
    assert difference(topics).offset == 30


FIELDS = {
    "calibrated": ("raw", "p", "draw", "version", "ts", "stream", "calibrator", "applied", "event_id"),
    "resolved": ("raw", "p", "y", "version", "issued_ts", "resolved_ts", "event_id", "calibrator"),
}


@pytest.mark.parametrize(("label", "field"), [(label, each) for label, names in FIELDS.items() for each in names])
def test_any_changed_field_is_named_with_what_changed(label: str, field: str) -> None:
    topics = served(mixed(200).sent, SETTINGS)
    value = topics.records[label][60].value
    record = orjson.loads(value or b"")
    was = record[field]
    now = was + 2**-40 if isinstance(was, float) else was + 1 if isinstance(was, int) else f"{was}x"
    topics.replace(label, 60, altered(value, **{field: now}))
    found = difference(topics)
    assert (found.partition, found.topic) == (3, label)
    if field != "event_id":  # of another event it is another record
        assert (found.offset, found.event_id, found.fields) == (60, record["event_id"], {field: (now, was)})


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


def test_what_the_clock_has_made_due_is_counted_and_not_judged_and_nothing_else_is() -> None:
    settings = configured('[streams."*"]\ncalibrator = "histogram"\nmatures = "1s"\nsilence = 0')
    sent = mixed(200).sent
    topics, now = served(sent, settings), sent[-1].ts + 1100
    before, resolved = topics.audit(), topics.records["resolved"]
    end = len(resolved)
    engine = Partition(settings.policies, before.derivation.rows.get)
    engine.begin()
    topics.sent(engine.tick(now), settings)
    assert len(resolved) > end
    assert topics.audit().checked == replace(before.checked, unsettled=len(resolved) - end)
    topics.append("resolved", resolved[-1].key, altered(resolved[-1].value, event_id="nobody"), now)
    assert difference(topics).what == "nothing in the inputs leads to this record"


def test_what_is_behind_the_last_entry_is_counted_and_not_judged() -> None:
    topics = served(mixed(400).sent, SETTINGS)
    before = topics.audit().checked
    later = mixed(30, seed=9, start=10_000_000)
    for record in later.sent:
        topics.append(record.topic, record.key, record.value, record.ts)
    topics.append("calibrated", b"k", altered(topics.records["calibrated"][0].value, event_id="9-1"))
    assert topics.audit().checked == replace(before, waiting=len(later.sent), unsettled=1)
    # Of one input record there is one dead letter, whatever waits; an event may have come back.
    answer, letter = topics.records["calibrated"][0], topics.records["dead-letters"][0]
    topics.append("calibrated", answer.key, altered(answer.value, p=0))
    assert topics.audit().checked == replace(before, waiting=len(later.sent), unsettled=2)
    topics.append("dead-letters", letter.key, altered(letter.value, reason="stream"))
    assert difference(topics).what == "a copy that is not the same"


def test_an_event_that_came_back_after_its_row_had_left_may_be_answered_behind_the_last_entry() -> None:
    settings = configured('[streams."*"]\ncalibrator = "histogram"\nttl = "2s"\nmatures = "1s"\nsilence = 0')
    start = 1_000_000
    before = [forecast("back", 0.5, start), *(forecast(f"{i}", 0.5, start + i * 1000) for i in range(3, 9))]
    topics = served([*before, forecast("back", 0.25, start + 10_000)], settings)
    checked = topics.audit()
    engine = Partition(settings.policies, checked.derivation.rows.get)
    engine.begin()
    resolved, now = topics.records["resolved"], start + 11_500
    end = len(resolved)
    topics.sent(engine.tick(now), settings)
    assert [i for i, each in enumerate(resolved) if b'"back"' in (each.value or b"")] == [0, len(resolved) - 1]
    assert topics.audit().checked == replace(checked.checked, unsettled=len(resolved) - end)
    topics.append("resolved", resolved[1].key, altered(resolved[1].value, p=0), now)
    assert difference(topics).what == "a copy that is not the same"


@pytest.mark.parametrize("kind", ["answer", "raw"])
@pytest.mark.parametrize("part", ["headers", "fields"])
def test_what_is_carried_cannot_be_changed(kind: str, part: str) -> None:
    topics = served(carrying(1), RAW)
    records = topics.records["calibrated"]
    raw = raws(topics)
    at = next(i for i, each in enumerate(records) if each.headers and (i in raw) == (kind == "raw") and i > 20)
    if part == "headers":
        records[at] = records[at]._replace(headers=(("traceparent", b"forged"),))
    else:
        value = orjson.loads(records[at].value or b"")
        records[at] = records[at]._replace(value=orjson.dumps(value | {"carried": {"n": -1}}))
    found = difference(topics)
    assert found.offset == at
    assert list(found.fields) == ["headers" if part == "headers" else "carried"]


def test_a_raw_answer_that_is_lost_changed_or_made_up_is_named() -> None:
    topics = served(carrying(1), RAW)
    at = raws(topics)[10]
    value = orjson.loads(topics.records["calibrated"][at].value or b"")
    topics.replace("calibrated", at, orjson.dumps(value | {"p": 0.5}))
    assert difference(topics).fields == {"p": (0.5, value["p"])}
    topics = served(carrying(1), RAW)
    topics.drop("calibrated", at)
    assert (difference(topics).topic, difference(topics).offset) == ("calibrated", None)
    topics = served(carrying(1), RAW)
    topics.append("calibrated", b"k", orjson.dumps(value | {"dead_letter": {**value["dead_letter"], "offset": 9999}}))
    assert difference(topics).what == "nothing in the inputs leads to this record"


def test_a_copy_of_an_answer_carries_the_same() -> None:
    topics = served(carrying(1), RAW)
    before = topics.audit().checked
    first = next(each for each in topics.records["calibrated"] if each.headers and each.offset not in raws(topics))
    topics.append("calibrated", first.key, first.value, headers=first.headers)
    assert topics.audit().checked.copies == before.copies + 1
    value = orjson.loads(first.value or b"")
    topics.append("calibrated", first.key, orjson.dumps({**value, "carried": {"n": "other"}}), headers=first.headers)
    assert difference(topics).fields.keys() == {"carried"}


def test_an_answer_that_the_configuration_refuses_is_a_difference() -> None:
    topics = served(carrying(2), configured(ANSWERING.replace("closed = true", "closed = false")), 1)
    tight = described(RAW)
    topics.in_force = [replace(topics.in_force[0], configuration=tight)]
    for each in topics.records["journal"]:
        forged = Entry.decode(each.value or b"")._replace(config=bytes.fromhex(digest(tight)))
        topics.replace("journal", each.offset, forged.encode())
    with pytest.raises(Differs):
        topics.audit()


def test_a_letter_that_withholds_what_it_should_tell_is_a_difference() -> None:
    topics = served(carrying(2), RAW, 1)
    for record in topics.records["dead-letters"]:
        letter = orjson.loads(record.value or b"")
        if letter["reason"] == "unknown_stream":
            topics.replace("dead-letters", record.offset, orjson.dumps(letter | {"value": None, "withheld": True}))
            break
    with pytest.raises(Differs, match=r"value|withheld"):
        topics.audit()


# -- the journal -----------------------------------------------------------------------------------------------------


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
    topics.append("journal", None, every[0].encode())  # by a worker that had lost the partition
    assert topics.audit().checked == whole
    other = bytes([1 - first.topics[0]]) + first.topics[1:]
    topics.records["journal"].insert(2, Kept(2, None, first._replace(topics=other).encode(), 0))
    found = difference(topics)
    assert (found.topic, found.offset) == ("journal", 2)
    assert "contradicts earlier ones" in found.what


def test_an_entry_that_says_nothing_new_ends_no_audit_whatever_build_wrote_it() -> None:
    """A worker of the build before may write its last one late."""
    records, before = served(mixed(300).sent, SETTINGS, 3).records, b"build before now"
    every = [*map(Entry.decode, [each.value or b"" for each in records["journal"]])]
    written = [*every[:3], every[0]._replace(config=before), *every[3:]]
    noted = [Kept(n, None, each.encode(), 0) for n, each in enumerate(written)]
    inputs = [iter(records[label]) for label in INPUTS]
    along = Along("journal/0", 0, INPUTS, iter(noted), inputs, (0, 0), ends=lambda config: config == before)
    assert sum(len(part.records) for part in along.parts()) == every[-1].applied
    assert along.reached(0).journal == len(noted)


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
