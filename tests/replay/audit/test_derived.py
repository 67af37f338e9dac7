"""An audit derives whatever a worker answered: any configuration, in any order, and however often the worker died."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from replay.audit.partition_verifier import Checked
from state import kinds
from state.fence import EXPIRED_FORECAST, FATES, Fence
from state.kind import Kind
from streams.config.settings import Settings
from tests.events import Sent, mixed, outcome
from tests.night import EXAMPLES
from tests.replay.audit.partitions import ANSWERING, RAW, Topics, carrying, configured, raws, served

OUTPUTS = ("calibrated", "resolved", "dead-letters")


def plain(seed: int) -> list[Sent]:
    return mixed(300, seed=seed).sent


def many(seed: int) -> list[Sent]:
    return mixed(600, seed=seed).sent


def segmented(seed: int) -> list[Sent]:
    """Return everything that happens to events of segments, some of them nameless or no names."""
    made = []
    for n, sent in enumerate(plain(seed)):
        segments = {"country": f"c{n % 80}", "channel": ("web", "", 7)[n % 3]}
        if sent.topic == "forecasts" and sent.value.endswith(b"}"):
            value = sent.value[:-1] + b',"segments":' + orjson.dumps(segments) + b"}"
            made.append(sent._replace(value=value))
        else:
            made.append(sent)
    return made


def vectors(_: int) -> list[Sent]:
    """Return forecasts of classes and of numbers; every tenth label is of a class there is not, or parked."""
    sent = []
    for n in range(300):
        stream = ("demand", "intent")[n % 2]
        raw = {"normal": {"mean": n % 7, "std": 2.0}} if n % 2 == 0 else {"probs": [0.5, 0.25, 0.25]}
        event_id, ts = f"{stream}-{n}", 1_700_000_000_000 + 1000 * n
        forecast = {"event_id": event_id, "stream": stream, "segments": {"country": f"c{n % 5}"}, "ts": ts, **raw}
        sent.append(Sent("forecasts", event_id.encode(), orjson.dumps(forecast), ts))
        sent.append(outcome(event_id, n % 3 if n % 10 != 1 else 7, ts + 500))
    return sent


def nothing(_: Topics, __: Checked) -> None:
    """Demand nothing more."""


def answered_raw(topics: Topics, checked: Checked) -> None:
    """Demand that each dead forecast that can be read was answered with its raw score, and answers carry."""
    answers = topics.records["calibrated"]
    places = {orjson.loads(answers[at].value or b"")["dead_letter"]["offset"] for at in raws(topics)}
    letters = [orjson.loads(each.value or b"") for each in topics.records["dead-letters"]]
    unreadable = {"not_json", "not_object", "event_id", "probability", "empty"}
    wanted = {x["offset"] for x in letters if x["topic"] == "forecasts" and x["reason"] not in unreadable}
    assert places == wanted
    assert checked.raw_answers == len(places) > 50
    assert any(each.headers for each in answers)
    assert any(b'"carried"' in (each.value or b"") for each in answers)


#: How likely a worker dies at each step.
CRASHES = 0.3


class History(NamedTuple):
    """What is sent by a seed, under which file, which kinds of rows must come of it, and what else must hold."""

    toml: str
    sent: Callable[[int], list[Sent]]
    kinds: tuple[Kind[Any], ...] = ()
    also: Callable[[Topics, Checked], None] = nothing


SHADOW = 'shadow = ["platt", { calibrator = "minimax", options = { grid = 9 } }]'
CHALLENGED = f'[streams."*"]\nttl = "9s"\n{SHADOW}\n'
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
SEGMENTED = '[streams."*"]\nsegments = ["country", "channel"]\npairs = [["country", "channel"]]\n'
HISTORIES = {
    "plain": History("", plain),
    "challengers": History(CHALLENGED, many),
    "segments": History(SEGMENTED, segmented, (kinds.NAMES, kinds.SEGMENT)),
    "vectors": History(VECTORS, vectors, (kinds.SEGMENT, kinds.VECTORS)),
    "raw": History(ANSWERING, carrying, (), answered_raw),
}


@pytest.mark.parametrize("name", HISTORIES)
@examples(max_examples=EXAMPLES // 3, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([0.0, CRASHES]))
def test_whatever_order_a_worker_folded_is_followed(name: str, seed: int, crashes: float) -> None:
    history = HISTORIES[name]
    topics = served(history.sent(seed % 5), configured(history.toml), seed, crashes)
    found = topics.audit()
    checked, records = found.checked, {label: len(records) for label, records in topics.records.items()}
    assert (checked.forecasts, checked.outcomes) == (records["forecasts"], records["outcomes"])
    outputs = checked.calibrated + checked.resolved + checked.dead_letters + checked.raw_answers + checked.copies
    assert outputs == sum(records[label] for label in OUTPUTS)
    assert (checked.waiting, checked.unsettled) == (0, 0)
    rows = dict(found.derivation.rows.items())
    assert {each.letter for each in history.kinds} <= {key[:1] for key in rows}
    fates = dict(zip(FATES, Fence.decode(rows[kinds.FENCE.key()]).fates, strict=False))
    assert checked.calibrated == fates["forecasts_issued"] + fates["forecasts_duplicate"]
    history.also(topics, checked)


def test_rows_that_expire_are_followed() -> None:
    settings = configured('early_ttl = "3s"\n[streams."stream-0"]\nttl = "4s"\n[streams."*"]\nttl = "9s"\n')
    topics = served(mixed(4000).sent, settings, 5, CRASHES)
    found = topics.audit()
    assert found.checked.calibrated + found.checked.copies >= len(topics.records["calibrated"])
    row = found.derivation.rows.get(kinds.FENCE.key())
    assert row is not None
    assert Fence.decode(row).fates[EXPIRED_FORECAST] > 100


@pytest.mark.parametrize("name", ["challengers", "vectors"])
def test_challengers_change_no_answer_and_the_file_that_is_audited_with_may_be_any(name: str) -> None:
    toml, sent, *_ = HISTORIES[name]
    given = configured(toml)
    without = configured("\n".join(line for line in toml.splitlines() if not line.startswith("shadow")))
    topics, alone = (served(sent(1), settings, 5, CRASHES) for settings in (given, without))
    found = topics.audit(without)
    assert found.checked == alone.audit(given).checked
    assert any(key.startswith(kinds.COMPARISON.letter) for key, _ in found.derivation.rows.items())
    for label in OUTPUTS:
        assert [record.value for record in topics.records[label]] == [record.value for record in alone.records[label]]


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


def test_dead_letters_and_raw_answers_of_other_stages_are_not_judged() -> None:
    topics = served(carrying(1), RAW)
    before = topics.audit().checked
    letter = {"reason": "timestamp", "topic": "scores.v3", "partition": 7, "offset": 1, "key": None, "value": None}
    topics.append("dead-letters", None, orjson.dumps(letter))
    place = {name: letter[name] for name in ("topic", "partition", "offset")}
    answer = {"event_id": "e", "stream": "s", "raw": 0.5, "p": 0.5, "calibrated": False, "dead_letter": place}
    topics.append("calibrated", b"s", orjson.dumps(answer))
    assert topics.audit().checked == before


def test_several_fields_are_carried_in_the_same_order_by_a_worker_and_an_audit(tmp_path: Path) -> None:
    path = tmp_path / "streams.toml"
    path.write_text(
        '[sources.a]\ntopic = "forecasts"\nrole = "forecast"\nevent_id = "event_id"\nstream = "stream"\np = "p"\n'
        'carry = { p = "p", customer = "stream", amount = "event_id" }\n'
    )
    topics = served(mixed(100).sent, Settings.from_env({"TRUEUP_STREAMS": str(path)}))
    assert b'"carried":{"amount":' in (topics.records["calibrated"][0].value or b"")
    assert topics.audit().checked.calibrated > 90
