"""An audit derives what answers carry and which dead forecasts were answered with their raw score, crashes or not."""

import random
from io import BytesIO
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from replay.audit import checkpoint
from replay.audit.checkpoint import Skips
from replay.audit.output_matcher import Differs, OutputDifference
from replay.audit.partition_verifier import Memory
from streams.config import in_force, stream_config
from streams.config.in_force import under
from streams.config.settings import Settings
from tests.events import Sent, mixed
from tests.replay.audit.partitions import Topics, audited, served
from tests.replay.audit.test_quotas import TIGHT

OF = {"partition": 3}


def settings_of(toml: str) -> Settings:
    plain = Settings.from_env({})
    return under(plain, stream_config.parse(toml, plain.default_calibrator))


RAW = settings_of('on_error = "raw"\n' + TIGHT)


def carrying(seed: int, n: int = 250) -> list[Sent]:
    """Return everything that happens to events; most forecasts carry a trace and a field, each record its own."""
    rng = random.Random(seed)
    made = []
    for i, sent in enumerate(mixed(n, seed).sent):
        each = sent
        if each.topic == "forecasts" and rng.random() < 0.8:
            each = each._replace(headers=(("traceparent", b"%d" % i), ("other", b"x")))
            if each.value.endswith(b"}"):
                each = each._replace(value=each.value[:-1] + b',"carried":{"n":%d}}' % i)
        made.append(each)
    return made


def raws(topics: Topics) -> list[int]:
    """Return where raw answers stand."""
    return [each.offset for each in topics.records["calibrated"] if b'"calibrated":false' in (each.value or b"")]


def difference(topics: Topics) -> OutputDifference:
    with pytest.raises(Differs) as found:
        topics.audit()
    return found.value.args[0]  # type: ignore[no-any-return]


@examples(max_examples=20)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.3]))
def test_what_was_carried_and_answered_raw_is_derived_in_any_order(seed: int, crashes: float) -> None:
    topics = served(carrying(seed % 7), RAW, seed, crashes)
    checked = topics.audit().checked
    answers = topics.records["calibrated"]
    places = {orjson.loads(answers[at].value or b"")["dead_letter"]["offset"] for at in raws(topics)}
    assert checked.raw_answers == len(places) > 50
    letters = [orjson.loads(each.value or b"") for each in topics.records["dead-letters"]]
    unreadable = {"not_json", "not_object", "event_id", "probability", "empty"}
    wanted = {x["offset"] for x in letters if x["topic"] == "forecasts" and x["reason"] not in unreadable}
    assert places == wanted
    outputs = checked.calibrated + checked.resolved + checked.dead_letters + checked.raw_answers + checked.copies
    assert outputs == sum(len(topics.records[label]) for label in ("calibrated", "resolved", "dead-letters"))
    assert any(each.headers for each in answers)
    assert any(b'"carried"' in (each.value or b"") for each in answers)


def test_a_raw_answer_is_marked_and_names_its_dead_letter() -> None:
    topics = served(carrying(1), RAW)
    answer = orjson.loads(topics.records["calibrated"][raws(topics)[0]].value or b"")
    assert answer["p"] == answer["raw"]
    assert answer["calibrated"] is False
    assert not {"draw", "calibrator", "config", "version", "applied"} & answer.keys()
    place = answer["dead_letter"]
    letters = [orjson.loads(each.value or b"") for each in topics.records["dead-letters"]]
    (letter,) = (x for x in letters if {name: x[name] for name in place} == place)
    assert letter["reason"] == answer["reason"]


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


def test_dead_letters_and_raw_answers_of_other_stages_are_not_judged() -> None:
    topics = served(carrying(1), RAW)
    before = topics.audit().checked
    letter = {"reason": "timestamp", "topic": "scores.v3", "partition": 7, "offset": 1, "key": None, "value": None}
    topics.append("dead-letters", None, orjson.dumps(letter))
    place = {name: letter[name] for name in ("topic", "partition", "offset")}
    answer = {"event_id": "e", "stream": "s", "raw": 0.5, "p": 0.5, "calibrated": False, "dead_letter": place}
    topics.append("calibrated", b"s", orjson.dumps(answer))
    assert topics.audit().checked == before


def test_a_copy_of_an_answer_carries_the_same() -> None:
    topics = served(carrying(1), RAW)
    before = topics.audit().checked
    first = next(each for each in topics.records["calibrated"] if each.headers and each.offset not in raws(topics))
    topics.append("calibrated", first.key, first.value, headers=first.headers)
    assert topics.audit().checked.copies == before.copies + 1
    value = orjson.loads(first.value or b"")
    topics.append("calibrated", first.key, orjson.dumps({**value, "carried": {"n": "other"}}), headers=first.headers)
    assert difference(topics).fields.keys() == {"carried"}


@pytest.mark.parametrize("crashes", [0.0, 0.3])
def test_an_audit_goes_on_from_a_checkpoint(tmp_path: Path, crashes: float) -> None:
    rows, topics, path = Memory(), None, tmp_path / "partition-3"
    for day in range(3):
        sent = [each._replace(ts=each.ts + day * 60_000) for each in carrying(day + 1, 150)]
        topics = served(sent, RAW, day, crashes, topics=topics, rows=rows)
        since = checkpoint.read(path, OF, topics.in_force, Memory()).derivation if day else None
        found = audited(topics, RAW, since)
        checked, file = found.checked, BytesIO()
        checkpoint.write(file, OF, topics.in_force, Skips(0, {}), found.derivation)
        path.write_bytes(file.getvalue())
        whole = topics.audit().checked
        assert (checked.calibrated, checked.raw_answers) == (whole.calibrated, whole.raw_answers)
        assert checked.raw_answers > 30


def test_several_fields_are_carried_in_the_same_order_by_a_worker_and_an_audit(tmp_path: Path) -> None:
    path = tmp_path / "streams.toml"
    path.write_text(
        '[sources.a]\ntopic = "forecasts"\nrole = "forecast"\nevent_id = "event_id"\nstream = "stream"\np = "p"\n'
        'carry = { p = "p", customer = "stream", amount = "event_id" }\n'
    )
    settings = Settings.from_env({"TRUEUP_STREAMS": str(path)})
    topics = served(mixed(100).sent, settings)
    assert b'"carried":{"amount":' in (topics.records["calibrated"][0].value or b"")
    assert topics.audit().checked.calibrated > 90


def test_a_configuration_says_what_is_carried_and_answered_raw(tmp_path: Path) -> None:
    path = tmp_path / "streams.toml"
    path.write_text(
        'on_error = "raw"\ncarry_headers = ["x-*"]\n[streams.quiet]\non_error = "none"\n'
        '[sources.a]\ntopic = "forecasts"\nrole = "forecast"\nevent_id = "i"\nstream = "s"\np = "p"\n'
        'carry = { who = "w" }\n'
    )
    made = Settings.from_env({"TRUEUP_STREAMS": str(path)})
    back = in_force.restored(in_force.described(made), Settings.from_env({}))
    assert back.carry_headers == ("x-*",)
    assert [back.policies.answers_raw(stream) for stream in ("quiet", "other", "")] == [False, True, True]
    assert [dict(each.table) for each in back.sources] == [dict(each.table) for each in made.sources]
    assert in_force.described(back) == in_force.described(made)
