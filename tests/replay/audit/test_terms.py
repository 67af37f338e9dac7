"""An audit across configurations: every answer is derived under what was in force, and nothing altered passes."""

from dataclasses import replace

import orjson
import pytest

from replay.audit.output_matcher import Unauditable
from replay.audit.rows import Memory
from streams.config.in_force import described
from streams.config.settings import Settings
from tests.events import forecast, mixed, outcome
from tests.replay.audit.partitions import Topics, configured, difference, served

CHAMPION = '[streams."stream-*"]\ncalibrator = "minimax"\noptions = { grid = 20 }\nttl = "9s"\nshadow = ["histogram"]\n'
PROMOTED = (
    '[streams."stream-*"]\ncalibrator = "histogram"\nttl = "9s"\n'
    'shadow = [{ calibrator = "minimax", options = { grid = 20 } }]\n'
)
#: One stream is gone, and the limits are others.
CLOSED = 'closed = true\n[streams."stream-[01]"]\ncalibrator = "platt"\n'


def across(*texts: str, crashes: float = 0.0) -> tuple[Topics, list[Settings]]:
    """Serve a history under one file after another, forecasts of each resolved under the next."""
    topics, rows, every = None, Memory(), []
    for n, text in enumerate(texts):
        settings = replace(configured(text), letter_bytes=10_000 - n)
        every.append(settings)
        start = 1_000_000 + n * 60_000
        sent = [outcome(f"left-{n - 1}-{i}", i % 2, start + i) for i in range(30 if n else 0)]
        sent += mixed(250, seed=n + 1, start=start).sent
        sent += [forecast(f"left-{n}-{i}", i / 30, start + 50_000 + i, f"stream-{i % 3}") for i in range(30)]
        topics = served(sent, settings, n, crashes, topics=topics, rows=rows)
    assert topics is not None
    return topics, every


@pytest.mark.parametrize("texts", [(CHAMPION, PROMOTED, CHAMPION), (CHAMPION, CLOSED, PROMOTED)])
def test_answers_of_every_configuration_agree_whatever_file_is_given(texts: tuple[str, ...]) -> None:
    topics, every = across(*texts, crashes=0.3)
    answers = {orjson.loads(each.value or b"")["config"] for each in topics.records["calibrated"]}
    assert len(answers) >= 2
    found = [topics.audit(settings).checked for settings in every]
    assert found[0] == found[1] == found[2]
    outputs = found[0].calibrated + found[0].resolved + found[0].dead_letters + found[0].copies
    assert outputs == sum(len(topics.records[label]) for label in ("calibrated", "resolved", "dead-letters"))
    assert (found[0].waiting, found[0].unsettled) == (0, 0)


def test_an_answer_of_the_other_configuration_is_named_although_that_was_in_force_at_another_time() -> None:
    topics, (champion, promoted) = across(CHAMPION, PROMOTED)
    configs = [each.policies.of("stream-0") for each in (champion, promoted)]
    assert configs[0] is not None
    assert configs[1] is not None
    at = next(
        i for i, each in enumerate(topics.records["calibrated"]) if configs[0].config.encode() in (each.value or b"")
    )
    value = orjson.loads(topics.records["calibrated"][at].value or b"")
    topics.replace("calibrated", at, orjson.dumps(value | {"config": configs[1].config}))
    assert difference(topics, promoted).fields == {"config": (configs[1].config, configs[0].config)}


def test_a_configuration_that_nobody_wrote_down_is_no_agreement() -> None:
    topics, (champion, _) = across(CHAMPION, PROMOTED)
    checked = topics.audit(champion).checked
    del topics.in_force[1:]
    with pytest.raises(Unauditable, match=r"folded under .*, which trueup-configurations/3 does not have"):
        topics.audit(champion)
    assert checked.calibrated > 500


def test_a_taking_up_at_another_place_than_the_answers_say_is_named() -> None:
    topics, (champion, _) = across(CHAMPION, PROMOTED)
    first, second = topics.in_force[1].next
    topics.in_force[1] = replace(topics.in_force[1], next=(first - 1, second + 1))
    found = difference(topics, champion)
    assert (found.topic, list(found.fields)) == ("configurations", ["applied", "next"])


def test_who_took_a_partition_up_and_applied_nothing_changes_nothing() -> None:
    topics, (champion, promoted) = across(CHAMPION, PROMOTED)
    whole = topics.audit(champion)
    first, second = topics.in_force
    idle = replace(second, claim=1, configuration=described(configured(CLOSED)))
    topics.in_force = [first, idle, replace(second, claim=2)]
    assert topics.audit(promoted).checked == whole.checked
    assert [each.owner for each in whole.terms] == ["worker-0", "worker-1"]
    assert [each.applied for each in whole.terms] == [0, second.applied]
