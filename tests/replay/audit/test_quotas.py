"""An audit derives what quotas refuse, however a worker interleaved the topics, and however often it died."""

import random
from collections import Counter
from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from replay.audit.output_matcher import Differs
from replay.audit.rows import Memory
from state.journal import Entry
from streams.config import stream_config
from streams.config.in_force import described, digest, under
from streams.config.settings import Settings
from tests.events import Sent, mixed
from tests.replay.audit.partitions import Topics, audited, served

#: Most of the streams' records come faster than this.
TIGHT = """
[quota]
ids = "1/s"
dead_letters = "2/m"
[streams."stream-0"]
quota = { records = "2/s", dead_letters = "1/s" }
[streams."stream-1"]
quota = { ids = "90/m", dead_letters = "3/h" }
"""
LOOSE = TIGHT.replace("2/s", "9/s").replace("90/m", "9/s")


def settings_of(toml: str) -> Settings:
    plain = Settings.from_env({})
    return under(plain, stream_config.parse(toml, plain.default_calibrator))


def flood(seed: int, n: int = 250) -> list[Sent]:
    """Return everything that happens to events, in order; every other forecast is sent again a little later."""
    rng = random.Random(seed)
    sent = mixed(n, seed).sent
    again = [
        each._replace(ts=each.ts + rng.randrange(1, 2000))
        for each in sent
        if each.topic == "forecasts" and rng.random() < 0.5
    ]
    return sorted([*sent, *again], key=lambda each: each.ts)


def reasons(topics: Topics) -> Counter[str]:
    letters = [orjson.loads(record.value or b"") for record in topics.records["dead-letters"]]
    return Counter(letter["reason"] for letter in letters) + Counter(
        withheld=sum("withheld" in letter for letter in letters)
    )


@examples(max_examples=20)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.3]))
def test_what_quotas_refuse_is_derived_in_any_order(seed: int, crashes: float) -> None:
    settings = settings_of(TIGHT)
    topics = served(flood(seed % 5), settings, seed, crashes)
    checked = topics.audit().checked
    assert checked.forecasts == len(topics.records["forecasts"])
    assert checked.outcomes == len(topics.records["outcomes"])
    assert (checked.waiting, checked.unsettled) == (0, 0)
    found = reasons(topics)
    assert min(found[each] for each in ("quota", "quota_ids", "withheld")) > 10
    # Each record has one answer or one letter.
    places = {
        (letter["topic"], letter["offset"])
        for record in topics.records["dead-letters"]
        if (letter := orjson.loads(record.value or b""))["reason"] != "parked_label"
    }
    assert checked.dead_letters == len(places) + found["parked_label"]


@pytest.mark.parametrize("crashes", [0.0, 0.3])
def test_rates_may_change_between_two_workers(crashes: float) -> None:
    sent = flood(3, 500)
    rows, topics = Memory(), None
    for i, toml in enumerate(("", TIGHT, LOOSE, "", TIGHT)):
        part = sent[i * len(sent) // 5 : (i + 1) * len(sent) // 5]
        topics = served(part, settings_of(toml), i, crashes, topics=topics, rows=rows)
    assert topics is not None
    checked = topics.audit().checked
    assert checked.forecasts == len(topics.records["forecasts"])
    assert reasons(topics)["quota"] > 10


def test_an_audit_goes_on_from_another_while_quotas_are_used_up() -> None:
    sent, settings = flood(4, 400), settings_of(TIGHT)
    rows = Memory()
    topics = served(sent[: len(sent) // 2], settings, 1, rows=rows)
    before = audited(topics).derivation
    topics = served(sent[len(sent) // 2 :], settings, 2, topics=topics, rows=rows)
    whole = topics.audit().checked
    assert whole.calibrated > before.checked.calibrated
    assert audited(topics, since=before).checked == whole


def test_an_answer_that_a_quota_refuses_is_a_difference() -> None:
    topics = served(flood(2), settings_of(LOOSE), 1)
    tight = described(settings_of(TIGHT))
    topics.in_force = [replace(topics.in_force[0], configuration=tight)]
    for each in topics.records["journal"]:
        forged = Entry.decode(each.value or b"")._replace(config=bytes.fromhex(digest(tight)))
        topics.replace("journal", each.offset, forged.encode())
    with pytest.raises(Differs):
        topics.audit()


def test_a_letter_that_withholds_what_it_should_tell_is_a_difference() -> None:
    topics = served(flood(2), settings_of(TIGHT), 1)
    for record in topics.records["dead-letters"]:
        letter = orjson.loads(record.value or b"")
        if letter["reason"] == "quota" and "withheld" not in letter:
            topics.replace("dead-letters", record.offset, orjson.dumps(letter | {"value": None, "withheld": True}))
            break
    with pytest.raises(Differs, match=r"value|withheld"):
        topics.audit()
