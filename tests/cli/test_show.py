"""What ``trueup streams show`` reads and prints: the parts that need no broker."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from aiokafka.errors import KafkaError

from cli import reading, show
from state import kinds
from state.engine import Partition
from state.events import Event, Forecast, Outcome
from state.fence import FATES
from state.frames import seal, unseal
from state.policies import Policies
from state.policy import DEFAULT_CALIBRATOR, Policy
from state.scoring.ages import DAY_MS
from streams.config import in_force
from streams.config.settings import Settings
from streams.records.skips import PoisonError
from tests.cli.conftest import Held
from tests.commands import Trueup

pytestmark = pytest.mark.usefixtures("no_warm_up")

SETTINGS = Settings()


def learnt(stream: str, n: int, calibrator: str = DEFAULT_CALIBRATOR, then: Sequence[Event] = ()) -> dict[bytes, bytes]:
    """Return the rows of a partition that has resolved ``n`` events of a stream and waits for one more."""
    stored: dict[bytes, bytes] = {}
    events: list[Event] = []
    for i in range(n):
        events += [
            Forecast(i, None, f"e{i}", stream, i % 10 / 10, (), 1000 + i),
            Outcome(i, None, f"e{i}", float(i % 3 == 0), 2000 + i),
        ]
    events += [Forecast(n, None, "last", stream, 0.5, (), 9000), *then]
    effects = Partition(Policies(default=Policy(calibrator)), stored.get).fold(events)
    return {key: row for key, row in effects.rows.items() if row is not None}


@pytest.fixture
def two(held: Held, trueup: Trueup) -> Held:
    """Let the changelog have two streams, and the terminal be wide."""
    rows = learnt("fraud", 30), learnt("churn", 12, calibrator="platt")
    held[SETTINGS.changelog] = {n: [*each.items()] for n, each in enumerate(rows)}
    trueup.patch.setenv("COLUMNS", "160")
    return held


def test_the_newest_row_of_each_key_and_partition_counts(held: Held, trueup: Trueup) -> None:
    gone: list[tuple[bytes, bytes | None]] = [*learnt("gone", 3).items()]
    gone += [(key, None) for key in learnt("gone", 3)]
    held[SETTINGS.changelog] = {
        0: [*gone, *learnt("s", 3).items(), *learnt("s", 5).items()],
        1: [*learnt("s", 4).items()],
    }
    found = trueup("streams list --json").json
    assert found["streams"].keys() == {"s"}
    assert found["streams"]["s"]["resolved"] == 9
    assert (found["fates"]["outcomes_resolved"], found["waits"]["pending"]) == (9, 2)
    assert found["fates"].keys() == set(FATES)
    one = trueup("streams show s --json").json["streams"]["s"]
    assert [(each["partition"], each["version"]) for each in one["calibrators"]] == [(0, 5), (1, 4)]


def test_a_stream_that_stopped_while_others_of_its_partition_go_on_has_no_input(held: Held, trueup: Trueup) -> None:
    later = [Forecast(30 + n, None, f"t{n}", "t", 0.5, (), 9000 + 3 * DAY_MS) for n in range(5)]
    held[SETTINGS.changelog] = {0: [*learnt("s", 20, then=later).items()]}
    states = {of: trueup(f"streams show {of} --json").json["streams"][of]["standing"]["state"] for of in ("s", "t")}
    assert states["s"] == "no input" != states["t"]


def test_state_of_another_build_is_one_sentence_with_both_versions(held: Held, trueup: Trueup) -> None:
    stored, key, letter = learnt("s", 3), kinds.CALIBRATOR.key("s", Policy().config), kinds.CALIBRATOR.letter
    row = stored[key]
    stored[key] = seal(letter[0], 77, unseal(letter[0], row[1], row))
    held[SETTINGS.changelog] = {0: [*stored.items()]}
    ended = trueup("streams list")
    assert ended.status == 78
    said = f"a {letter.decode()!r} row has format version 77, this build reads version {row[1]}; another build of"
    assert said in ended.error
    assert "trueup replay --write-state" in ended.error


@pytest.mark.parametrize(
    ("why", "said"),
    [
        (None, "there is no topic trueup-state-changelog: is TRUEUP_APP_ID that of the workers?"),
        (KafkaError("not allowed"), "cannot read trueup-state-changelog from 127.0.0.1:9092: KafkaError: not allowed"),
        (PoisonError("c", 0, 7), "cannot read trueup-state-changelog from 127.0.0.1:9092: c/0@7 cannot be read"),
    ],
)
def test_a_changelog_that_cannot_be_read_is_said(why: Exception | None, said: str, held: Held, trueup: Trueup) -> None:
    async def fail(*_: object, **__: object) -> AsyncIterator[None]:
        assert why is not None
        raise why
        yield  # what makes it a generator

    if why is not None:
        held[SETTINGS.changelog] = {0: []}
    trueup.patch.setattr(reading, "batches", fail)
    assert trueup("streams list").error.startswith(f"trueup: {said}")


@pytest.mark.usefixtures("two")
def test_the_table_lists_every_stream_with_the_fates_or_the_curve_and_calibrators_of_one(trueup: Trueup) -> None:
    said = trueup("streams list").out
    assert "\n churn " in said
    assert "\n fraud " in said
    assert "outcomes_resolved 42" in said
    assert "outcomes_dead" not in said
    said = trueup("streams show fraud").out
    assert "reliability" in said
    assert "churn" not in said
    assert Policy().config in said
    (line,) = [line for line in trueup("streams show churn").out.splitlines() if Policy("platt").config in line]
    assert line.split()[-1] == "–", "a calibrator without a theorem has no bound"


@pytest.mark.usefixtures("two")
def test_of_many_streams_the_table_has_those_with_most_outcomes(trueup: Trueup) -> None:
    trueup.patch.setattr(show, "LINES", 1)
    said = trueup("streams list").out
    assert "\n fraud " in said
    assert "churn" not in said
    assert "with fewer outcomes that are left out: 1. Name one, or use --json." in said


@pytest.mark.parametrize("stream", ["a[b]c", "[/red]", "so:smile:", "é"])
def test_the_name_of_a_stream_is_shown_as_it_is(stream: str, held: Held, trueup: Trueup) -> None:
    held[SETTINGS.changelog] = {0: [*learnt(stream, 3).items()]}
    trueup.patch.setenv("COLUMNS", "160")
    assert f"\n {stream} " in trueup("streams show", stream).out
    assert trueup("streams show", "[/red]s") == (
        1,
        "",
        f"no state of stream '[/red]s'; there are: {stream}\n",
    )


def test_what_workers_run_is_shown_until_they_are_restarted(held: Held, streams: Path, trueup: Trueup) -> None:
    """The streams file was changed since they began: by a promotion, or as the stream was frozen."""
    held[SETTINGS.changelog] = {0: [*learnt("s", 30).items()]}
    streams.write_text("[streams.s]\n")
    runs = Settings.from_env({"TRUEUP_STREAMS": str(streams)})
    now = in_force.InForce(7, 9, (5, 4), in_force.described(runs), "here", "2026-03-01T06:00:00+00:00")
    held[SETTINGS.configurations] = {0: [*in_force.records(now, 300)]}
    assert not trueup("streams show s --json").err
    streams.write_text("[streams.s]\nfrozen = true\n")
    shown = trueup("streams show s --json")
    assert "frozen" not in shown.json["streams"]["s"]
    assert "workers run other streams than the streams file has, since 2026-03-01T06:00:00+00:00" in shown.err


def test_without_any_state_there_are_none(held: Held, trueup: Trueup) -> None:
    held[SETTINGS.changelog] = {0: []}
    assert "there are: none" in trueup("streams show s").err
    assert trueup("streams list --json").json["streams"] == {}
