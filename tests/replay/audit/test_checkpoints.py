"""An audit goes on from a checkpoint, and finds what one from the beginning finds."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from replay.audit import checkpoint
from replay.audit.output_matcher import Differs, Unauditable
from replay.audit.rows import Memory
from state.formats import ARITHMETIC
from streams.config import in_force
from streams.config.settings import Settings
from tests.events import Sent, forecast, mixed, outcome
from tests.replay.audit.partitions import OF, RAW, Topics, carrying, configured, resumed, served
from tests.replay.audit.test_terms import CHAMPION, CLOSED, PROMOTED, across


def promoted(day: int) -> list[Sent]:
    """Return what happens on a day; its last forecasts are resolved on the next."""
    start = 1_000_000 + day * 60_000
    sent = [outcome(f"left-{day - 1}-{i}", i % 2, start + i) for i in range(30 if day else 0)]
    sent += mixed(250, seed=day + 1, start=start).sent
    return sent + [forecast(f"left-{day}-{i}", i / 30, start + 50_000 + i, f"stream-{i % 2}") for i in range(30)]


def later(sent: list[Sent], day: int) -> list[Sent]:
    return [each._replace(ts=each.ts + day * 60_000) for each in sent]


@pytest.mark.parametrize("of", ["promotions", "raw answers", "formats"])
def test_a_day_costs_a_day_and_all_agrees(avro: Settings, tmp_path: Path, of: str) -> None:
    days: list[tuple[Settings, list[Sent]]] = {
        "promotions": [
            (configured(text), promoted(day)) for day, text in enumerate((CHAMPION, CHAMPION, PROMOTED, CLOSED))
        ],
        "raw answers": [(RAW, later(carrying(day + 1, 150), day)) for day in range(3)],
        "formats": [(each, later(carrying(day + 1, 150), day)) for day, each in enumerate((RAW, avro, RAW))],
    }[of]
    reads, rows, topics, path, before = replace(days[-1][0], registry=avro.registry), Memory(), None, tmp_path / "3", 0
    for day, (settings, sent) in enumerate(days):
        topics = served(sent, settings, day, 0.3, topics=topics, rows=rows)
        checked, whole = resumed(topics, reads, path).checked, topics.audit(reads).checked
        assert replace(checked, copies=whole.copies) == whole
        folded = checked.forecasts + checked.outcomes
        assert folded - before == len(sent)
        before = folded


def test_an_answer_that_was_altered_after_a_checkpoint_is_named(tmp_path: Path) -> None:
    topics, (champion, _) = across(CHAMPION, PROMOTED)
    cut = {label: len(records) for label, records in topics.records.items()}
    path = tmp_path / "partition-3"
    resumed(topics, champion, path)
    before = path.read_bytes()
    rows = Memory()
    again = checkpoint.read(path, OF, topics.in_force, rows)
    more = [forecast(f"more-{i}", i / 50, 2_000_000 + i, "stream-1") for i in range(50)]
    served(more, champion, topics=topics, rows=rows)
    assert again.begins["calibrated"] == cut["calibrated"]
    assert resumed(topics, champion, path).checked.calibrated >= cut["calibrated"] + 50
    path.write_bytes(before)
    at = cut["calibrated"] + 25
    value = orjson.loads(topics.records["calibrated"][at].value or b"")
    topics.replace("calibrated", at, orjson.dumps(value | {"p": 0.123}))
    with pytest.raises(Differs) as found:
        resumed(topics, champion, path)
    assert found.value.args[0].offset == at


def test_what_two_builds_answered_is_audited_by_each_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topics, rows, path, folded = Topics(RAW), Memory(), tmp_path / "3", []
    for day, version in enumerate((ARITHMETIC, ARITHMETIC + 1, ARITHMETIC)):
        monkeypatch.setattr(in_force, "ARITHMETIC", version)
        topics = served(promoted(day), RAW, day, 0.3, topics=topics, rows=rows)
        folded.append(len(topics.records["forecasts"]) + len(topics.records["outcomes"]))
    for version, until, unable in (
        (ARITHMETIC, folded[0], f"has version {ARITHMETIC + 1} of the arithmetic, this build has {ARITHMETIC}"),
        (ARITHMETIC + 1, folded[1], f"has version {ARITHMETIC} of the arithmetic, this build has {ARITHMETIC + 1}"),
        (ARITHMETIC, folded[2], ""),
    ):
        monkeypatch.setattr(in_force, "ARITHMETIC", version)
        found = resumed(topics, RAW, path)
        assert found.checked.forecasts + found.checked.outcomes == until
        assert found.checked.waiting == folded[-1] - until
        assert unable in found.unable
        assert bool(found.unable) == bool(unable)


def test_an_owner_that_says_late_what_it_took_up_and_did_not_begin_is_no_other_history(tmp_path: Path) -> None:
    topics, (champion, _) = across(CHAMPION, PROMOTED)
    path = tmp_path / "partition-3"
    resumed(topics, champion, path)
    before, after = topics.in_force
    topics.in_force.insert(1, replace(after, claim=after.claim - 1, configuration=before.configuration))
    checkpoint.read(path, OF, topics.in_force, Memory())


def test_a_checkpoint_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    topics, (champion, _) = across(CHAMPION, PROMOTED)
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
    refuses(made, "names other earlier owners of the partition")
