"""An audit across configurations: every answer is derived under what was in force, and nothing altered passes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from replay.audit import checkpoint
from replay.audit.output_matcher import Differs, Unauditable
from replay.audit.rows import Memory
from streams.config.in_force import described
from streams.config.settings import Settings
from tests.events import forecast, mixed, outcome
from tests.replay.audit.partitions import Topics, audited, served

CHAMPION = '[streams."stream-*"]\ncalibrator = "minimax"\noptions = { grid = 20 }\nttl = "9s"\nshadow = ["histogram"]\n'
PROMOTED = (
    '[streams."stream-*"]\ncalibrator = "histogram"\nttl = "9s"\n'
    'shadow = [{ calibrator = "minimax", options = { grid = 20 } }]\n'
)
#: One stream is gone, and the limits are others.
CLOSED = 'closed = true\n[streams."stream-[01]"]\ncalibrator = "platt"\n'
OF: dict[str, Any] = {"application": "trueup", "partition": 3}


def configured(directory: Path, text: str, **settings: str) -> Settings:
    """Return settings with a streams file."""
    path = directory / "streams.toml"
    path.write_text(text)
    return Settings.from_env({"TRUEUP_STREAMS": str(path), **settings})


def across(directory: Path, *texts: str, crashes: float = 0.0) -> tuple[Topics, list[Settings]]:
    """Serve a history under one file after another, forecasts of each resolved under the next."""
    topics, rows, every = None, Memory(), []
    for n, text in enumerate(texts):
        settings = configured(directory, text, TRUEUP_LETTER_BYTES=str(10_000 - n))
        every.append(settings)
        start = 1_000_000 + n * 60_000
        sent = [outcome(f"left-{n - 1}-{i}", i % 2, start + i) for i in range(30 if n else 0)]
        sent += mixed(250, seed=n + 1, start=start).sent
        sent += [forecast(f"left-{n}-{i}", i / 30, start + 50_000 + i, f"stream-{i % 3}") for i in range(30)]
        topics = served(sent, settings, n, crashes, topics=topics, rows=rows)
    assert topics is not None
    return topics, every


@pytest.mark.parametrize("crashes", [0.0, 0.3])
@pytest.mark.parametrize("texts", [(CHAMPION, PROMOTED, CHAMPION), (CHAMPION, CLOSED, PROMOTED)])
def test_answers_of_every_configuration_agree_whatever_file_is_given(
    tmp_path: Path, texts: tuple[str, ...], crashes: float
) -> None:
    topics, every = across(tmp_path, *texts, crashes=crashes)
    answers = {orjson.loads(each.value or b"")["config"] for each in topics.records["calibrated"]}
    assert len(answers) >= 2
    found = [topics.audit(settings).checked for settings in every]
    assert found[0] == found[1] == found[2]
    outputs = found[0].calibrated + found[0].resolved + found[0].dead_letters + found[0].copies
    assert outputs == sum(len(topics.records[label]) for label in ("calibrated", "resolved", "dead-letters"))
    assert (found[0].waiting, found[0].unsettled) == (0, 0)


@pytest.mark.parametrize("offset", [20, 120, 400, 540])
@pytest.mark.parametrize("field", ["p", "draw", "config"])
def test_an_altered_answer_under_either_configuration_is_named(tmp_path: Path, offset: int, field: str) -> None:
    topics, every = across(tmp_path, CHAMPION, PROMOTED)
    value = orjson.loads(topics.records["calibrated"][offset].value or b"")
    other = "01234567" if field == "config" else value[field] + 2**-30
    topics.replace("calibrated", offset, orjson.dumps(value | {field: other}))
    for settings in every:
        with pytest.raises(Differs) as found:
            topics.audit(settings)
        assert found.value.args[0].offset == offset
        assert list(found.value.args[0].fields) == [field]


def test_an_answer_of_the_other_configuration_is_named_although_that_was_in_force_at_another_time(
    tmp_path: Path,
) -> None:
    topics, (champion, promoted) = across(tmp_path, CHAMPION, PROMOTED)
    configs = [each.policies.of("stream-0") for each in (champion, promoted)]
    assert configs[0] is not None
    assert configs[1] is not None
    at = next(
        i for i, each in enumerate(topics.records["calibrated"]) if configs[0].config.encode() in (each.value or b"")
    )
    value = orjson.loads(topics.records["calibrated"][at].value or b"")
    topics.replace("calibrated", at, orjson.dumps(value | {"config": configs[1].config}))
    with pytest.raises(Differs) as found:
        topics.audit(promoted)
    assert found.value.args[0].fields == {"config": (configs[1].config, configs[0].config)}


def test_a_configuration_that_nobody_wrote_down_is_no_agreement(tmp_path: Path) -> None:
    topics, (champion, _) = across(tmp_path, CHAMPION, PROMOTED)
    checked = topics.audit(champion).checked
    del topics.in_force[1:]
    with pytest.raises(Unauditable, match=r"folded under .*, which trueup-configurations/3 does not have"):
        topics.audit(champion)
    assert checked.calibrated > 500


def test_a_taking_up_at_another_place_than_the_answers_say_is_named(tmp_path: Path) -> None:
    topics, (champion, _) = across(tmp_path, CHAMPION, PROMOTED)
    first, second = topics.in_force[1].next
    topics.in_force[1] = replace(topics.in_force[1], next=(first - 1, second + 1))
    with pytest.raises(Differs) as found:
        topics.audit(champion)
    assert (found.value.args[0].topic, list(found.value.args[0].fields)) == ("configurations", ["applied", "next"])


def test_who_took_a_partition_up_and_applied_nothing_changes_nothing(tmp_path: Path) -> None:
    topics, (champion, promoted) = across(tmp_path, CHAMPION, PROMOTED)
    whole = topics.audit(champion)
    first, second = topics.in_force
    idle = replace(second, claim=1, configuration=described(configured(tmp_path, CLOSED)))
    topics.in_force = [first, idle, replace(second, claim=2)]
    assert topics.audit(promoted).checked == whole.checked
    assert [each.owner for each in whole.terms] == ["worker-0", "worker-1"]
    assert [each.applied for each in whole.terms] == [0, second.applied]


# -- checkpoints -----------------------------------------------------------------------------------------------------


def resumed(topics: Topics, settings: Settings, path: Path) -> int:
    """Audit from a checkpoint if there is one, leave the next one, and return how many records were folded."""
    since = checkpoint.read(path, OF, topics.in_force, Memory()) if path.exists() else None
    before = since.checked.forecasts + since.checked.outcomes if since else 0
    found = audited(topics, settings, since)
    checkpoint.write(path, OF, topics.in_force, found.derivation)
    return found.checked.forecasts + found.checked.outcomes - before


@pytest.mark.parametrize("crashes", [0.0, 0.3])
def test_an_audit_goes_on_from_a_checkpoint_and_finds_what_one_from_the_beginning_finds(
    tmp_path: Path, crashes: float
) -> None:
    rows, topics, path = Memory(), None, tmp_path / "partition-3"
    for day, text in enumerate((CHAMPION, CHAMPION, PROMOTED, CLOSED)):
        settings = configured(tmp_path, text)
        start = 1_000_000 + day * 60_000
        sent = [outcome(f"left-{day - 1}-{i}", i % 2, start + i) for i in range(30 if day else 0)]
        sent += mixed(250, seed=day + 1, start=start).sent
        sent += [forecast(f"left-{day}-{i}", i / 30, start + 50_000 + i, f"stream-{i % 2}") for i in range(30)]
        topics = served(sent, settings, day, crashes, topics=topics, rows=rows)
        assert resumed(topics, settings, path) == len(sent), "a day costs a day"
        whole = topics.audit(settings).checked
        file = checkpoint.read(path, OF, topics.in_force, Memory()).checked
        assert replace(file, copies=whole.copies) == whole
    assert topics is not None


def test_an_answer_that_was_altered_after_a_checkpoint_is_named(tmp_path: Path) -> None:
    topics, (champion, _) = across(tmp_path, CHAMPION, PROMOTED)
    cut = {label: len(records) for label, records in topics.records.items()}
    path = tmp_path / "partition-3"
    resumed(topics, champion, path)
    before = path.read_bytes()
    rows = Memory()
    again = checkpoint.read(path, OF, topics.in_force, rows)
    more = [forecast(f"more-{i}", i / 50, 2_000_000 + i, "stream-1") for i in range(50)]
    served(more, champion, topics=topics, rows=rows)
    assert again.begins["calibrated"] == cut["calibrated"]
    assert resumed(topics, champion, path) >= 50
    path.write_bytes(before)
    at = cut["calibrated"] + 25
    value = orjson.loads(topics.records["calibrated"][at].value or b"")
    topics.replace("calibrated", at, orjson.dumps(value | {"p": 0.123}))
    with pytest.raises(Differs) as found:
        resumed(topics, champion, path)
    assert found.value.args[0].offset == at


def test_a_checkpoint_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    topics, (champion, _) = across(tmp_path, CHAMPION, PROMOTED)
    path = tmp_path / "partition-3"
    resumed(topics, champion, path)
    made = path.read_bytes()

    def refuses(content: bytes, match: str, of: dict[str, Any] = OF) -> None:
        path.write_bytes(content)
        with pytest.raises(Unauditable, match=match):
            checkpoint.read(path, of, topics.in_force, Memory())

    for at in range(0, len(made), len(made) // 40):
        refuses(made[:at] + bytes([made[at] ^ 1]) + made[at + 1 :], "cannot be used")
        refuses(made[:at], "cannot be used")
    refuses(made + b"x", "it is damaged")
    refuses(made, "it is of another partition: 3, not 4", OF | {"partition": 4})
    refuses(made, "it is of another forecasts", OF | {"forecasts": ["forecasts", "cluster", "topic", 1]})
    topics.in_force[0] = replace(topics.in_force[0], owner="else", configuration=topics.in_force[1].configuration)
    refuses(made, "says otherwise who had taken the partition up before")
