"""What ``trueup streams show`` makes of rows: the parts that need no broker."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest
from aiokafka.errors import KafkaError

from cli import running, show
from state import kinds
from state.engine import Partition
from state.events import Event, Forecast, Outcome
from state.fence import FATES, Fence
from state.frames import seal, unseal
from state.policies import Policies
from state.policy import DEFAULT_CALIBRATOR, Policy
from state.scoring.losses import NAMES
from state.scoring.scores import Scores
from state.scoring.windows import KINDS
from streams.config import in_force
from streams.config.settings import Settings
from streams.kafka import whole_topics
from streams.kafka.topics import TopicsError
from streams.metrics.description import describe
from streams.metrics.rows import StateRows
from streams.records.skips import PoisonError
from tests.streams.fakes import record

pytestmark = pytest.mark.usefixtures("no_warm_up")

SETTINGS = Settings(app_id="mine")


def learnt(stream: str, n: int, start: int = 0, calibrator: str = DEFAULT_CALIBRATOR) -> dict[bytes, bytes]:
    """Return the rows of a partition that has resolved ``n`` events of a stream and waits for one more."""
    stored: dict[bytes, bytes] = {}
    events: list[Event] = []
    for i in range(start, start + n):
        events += [
            Forecast(i, None, f"e{i}", stream, i % 10 / 10, (), 1000 + i),
            Outcome(i, None, f"e{i}", float(i % 3 == 0), 2000 + i),
        ]
    events.append(Forecast(start + n, None, "last", stream, 0.5, (), 9000))
    effects = Partition(Policies(default=Policy(calibrator)), stored.get).fold(events)
    return {key: row for key, row in effects.rows.items() if row is not None}


def changelog(monkeypatch: pytest.MonkeyPatch, partitions: dict[int, list[tuple[bytes, bytes | None]]] | None) -> None:
    """Let a changelog have these records."""

    async def count(_: Settings, name: str) -> int | None:
        assert name == SETTINGS.changelog
        return None if partitions is None else len(partitions)

    async def batches(_: Settings, topics: list[str]) -> AsyncIterator[tuple[str, list[Any]]]:
        assert topics == [SETTINGS.changelog]
        for n, held in (partitions or {}).items():
            for offset, (key, value) in enumerate(held):
                yield topics[0], [record(topics[0], n, offset, 0, key, value)]

    monkeypatch.setattr(show, "batches", batches)
    monkeypatch.setattr(show, "partitions", count)
    announced(monkeypatch, [])


def announced(monkeypatch: pytest.MonkeyPatch, records: list[tuple[bytes, bytes]]) -> None:
    """Let the topic of configurations have these records."""

    async def count(_: Settings, name: str) -> int | None:
        assert name == SETTINGS.configurations
        return 1 if records else None

    async def batches(_: Settings, topics: list[str], *, starts: object) -> AsyncIterator[tuple[str, list[Any]]]:
        assert starts is None
        yield topics[0], [record(topics[0], 0, n, 0, key, value) for n, (key, value) in enumerate(records)]

    monkeypatch.setattr(running, "partitions", count)
    monkeypatch.setattr(whole_topics, "batches", batches)


def inspected(stream: str | None = None, *, json_output: bool = True) -> int:
    return show.run(SETTINGS, stream, json_output=json_output)


# -- reading -------------------------------------------------------------------------------------------------------


def test_the_newest_row_of_each_key_and_partition_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    older, newer, other = learnt("s", 3), learnt("s", 5), learnt("s", 4)
    changelog(monkeypatch, {0: [*older.items(), (kinds.LEDGER.key("e0"), None), *newer.items()], 1: [*other.items()]})
    found = asyncio.run(show.read(SETTINGS))
    assert found.fences == {0: Fence.decode(newer[kinds.FENCE.key()]), 1: Fence.decode(other[kinds.FENCE.key()])}
    assert {n: history.total.n for n, history in found.of(kinds.SCORES, "s").items()} == {0: 5, 1: 4}
    config = Policy().config
    assert {place: each.calibrator.learnt for place, each in found.of(kinds.CALIBRATOR, "s").items()} == {
        (0, config): 5,
        (1, config): 4,
    }


def test_state_of_another_build_is_one_sentence_with_both_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    stored, key, letter = learnt("s", 3), kinds.COUNTS.key("s"), kinds.COUNTS.letter[0]
    row = stored[key]
    stored[key] = seal(letter, 77, unseal(letter, row[1], row))
    changelog(monkeypatch, {0: [*stored.items()]})
    with pytest.raises(TopicsError) as caught:
        inspected()
    assert f"a 's' row has format version 77, this build reads version {row[1]}; another build of" in str(caught.value)
    assert "trueup replay --write-state" in str(caught.value)


def test_a_changelog_that_is_not_there_is_said_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    changelog(monkeypatch, None)
    with pytest.raises(TopicsError, match=r"no topic mine-state-changelog: is TRUEUP_APP_ID"):
        inspected()


@pytest.mark.parametrize("why", [KafkaError("not allowed"), PoisonError("mine-state-changelog", 0, 7)])
def test_a_changelog_that_cannot_be_read_is_said(monkeypatch: pytest.MonkeyPatch, why: Exception) -> None:
    changelog(monkeypatch, {0: []})

    async def fail(*_: object) -> AsyncIterator[tuple[str, list[Any]]]:
        raise why
        yield  # what makes it a generator

    monkeypatch.setattr(show, "batches", fail)
    with pytest.raises(TopicsError, match=r"cannot read mine-state-changelog from 127\.0\.0\.1:9092: .*(allowed|@7)"):
        inspected()


# -- describing ----------------------------------------------------------------------------------------------------


def found(**streams: list[dict[bytes, bytes]]) -> StateRows:
    """Return what is found of streams, each with the rows of its partitions."""
    made = StateRows()
    for stream, partitions in streams.items():
        for n, held in enumerate(partitions):
            made.fences[n] = Fence.decode(held[kinds.FENCE.key()])
            made.of(kinds.SCORES, stream)[n] = kinds.history(kinds.apart(held)[kinds.SCORES.key(stream)], None)
            config = Policy().config
            row = held[kinds.CALIBRATOR.key(stream, config)]
            made.of(kinds.CALIBRATOR, stream)[n, config] = kinds.CALIBRATOR.decode(row, stream)
    return made


def test_the_scores_of_a_stream_are_those_of_all_its_partitions() -> None:
    partitions = [learnt("s", 30), learnt("s", 20, start=5)]
    total = sum(
        (kinds.history(kinds.apart(each)[kinds.SCORES.key("s")], None).present for each in partitions), Scores()
    )
    described = describe(found(s=partitions), "s")
    assert described["resolved"] == 50
    for kind in KINDS:
        assert described[kind]["brier"] == total.brier(kind)
        assert described[kind]["ece"] == total.error(kind)
        assert described[kind]["log_loss"] == total.log_loss(kind)
        assert sum(each["n"] for each in described[kind]["reliability"]) == 50
        assert all(each["n"] for each in described[kind]["reliability"])
    assert described["regret"] == {loss: total.regret(loss) for loss in NAMES}


def test_every_calibrator_is_described_by_its_own_row() -> None:
    described = describe(found(s=[learnt("s", 300), learnt("s", 200)]), "s")["calibrators"]
    assert [(each["partition"], each["version"]) for each in described] == [(0, 300), (1, 200)]
    for each in described:
        assert (each["calibrator"], each["config"], each["seed"]) == (DEFAULT_CALIBRATOR, Policy().config, 0)
        assert 0 <= each["error"] <= 1
        assert each["bound"] > 0


def test_a_stream_without_an_outcome_has_no_scores() -> None:
    described = describe(StateRows(), "s")
    assert described == {"resolved": 0, "partitions": 0, "calibrators": []}


# -- showing -------------------------------------------------------------------------------------------------------


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[], str]:
    """Return what returns what a wide terminal shows of two streams."""
    changelog(monkeypatch, {0: [*learnt("fraud", 30).items()], 1: [*learnt("churn", 12, calibrator="platt").items()]})
    monkeypatch.setenv("COLUMNS", "160")
    return lambda: capsys.readouterr().out


def test_json_is_one_line_with_every_stream_and_fate_or_the_stream_that_was_named(shown: Callable[[], str]) -> None:
    assert inspected() == 0
    (line,) = shown().splitlines()
    report = orjson.loads(line)
    assert {name: each["resolved"] for name, each in report["streams"].items()} == {"churn": 12, "fraud": 30}
    assert list(report["fates"]) == list(FATES)
    assert report["fates"]["forecasts_issued"] == 30 + 1 + 12 + 1
    assert report["fates"]["outcomes_resolved"] == 30 + 12
    assert inspected("churn") == 0
    assert list(orjson.loads(shown())["streams"]) == ["churn"]


def test_the_table_lists_every_stream_with_the_fates_or_the_curve_and_calibrators_of_one(
    shown: Callable[[], str],
) -> None:
    assert inspected(json_output=False) == 0
    said = shown()
    assert all(f"\n {name} " in said for name in ("churn", "fraud"))
    assert "forecasts_issued 44" in said
    assert "outcomes_dead" not in said, "what did not happen is left out"
    assert "reliability" not in said
    assert inspected("fraud", json_output=False) == 0
    said = shown()
    assert "reliability" in said
    assert "churn" not in said
    assert Policy().config in said
    assert inspected("churn", json_output=False) == 0
    (line,) = [line for line in shown().splitlines() if Policy("platt").config in line]
    assert line.split()[-1] == "–", "a calibrator without a theorem has no bound"


def test_of_many_streams_the_table_has_those_with_most_outcomes(
    shown: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(show, "LINES", 1)
    assert inspected(json_output=False) == 0
    said = shown()
    assert "\n fraud " in said
    assert "churn" not in said
    assert "with fewer outcomes that are left out: 1. Name one, or use --json." in said


@pytest.mark.parametrize("stream", ["a[b]c", "[/red]", "[red]", "so:smile:", "é"])
def test_the_name_of_a_stream_is_shown_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stream: str
) -> None:
    changelog(monkeypatch, {0: [*learnt(stream, 3).items()]})
    monkeypatch.setenv("COLUMNS", "160")
    assert inspected(stream, json_output=False) == 0
    assert f"\n {stream} " in capsys.readouterr().out


@pytest.mark.usefixtures("shown")
def test_a_stream_without_state_is_said_with_those_that_have_some(capsys: pytest.CaptureFixture[str]) -> None:
    assert inspected("[/red]") == 1
    assert capsys.readouterr() == ("", "no state of stream '[/red]'; there are: churn, fraud\n")


def test_what_workers_run_is_shown_until_they_are_restarted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The streams file was changed since they began: by a promotion, or as the stream was frozen."""
    changelog(monkeypatch, {0: [*learnt("s", 30).items()]})
    runs = Settings(app_id="mine", policies=Policies(default=Policy(DEFAULT_CALIBRATOR)))
    now = in_force.InForce(7, 9, (5, 4), in_force.described(runs), "here", "2026-03-01T06:00:00+00:00")
    announced(monkeypatch, in_force.records(now, 300))
    file = replace(runs, policies=Policies(default=Policy(DEFAULT_CALIBRATOR, frozen=True)))
    assert show.run(file, "s", json_output=True) == 0
    out, err = capsys.readouterr()
    assert "frozen" not in orjson.loads(out)["streams"]["s"]
    assert "workers run other streams than the streams file has, since 2026-03-01T06:00:00+00:00" in err
    assert show.run(runs, "s", json_output=True) == 0
    assert not capsys.readouterr().err


def test_without_any_state_there_are_none(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    changelog(monkeypatch, {0: []})
    assert inspected("s") == 1
    assert "there are: none" in capsys.readouterr().err
    assert inspected() == 0
    assert orjson.loads(capsys.readouterr().out)["streams"] == {}
