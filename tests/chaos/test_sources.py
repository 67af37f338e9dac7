"""Sources of other keys under faults, shortly; and a judge of them that can fail."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import pytest

from tests.chaos import campaign, sources
from tests.chaos.judge import judge_all
from tests.chaos.sources_judge import Recorded, judge
from tests.e2e.test_intake import WIDTHS
from tests.e2e.world import Read

FAULTS = (
    sources.FreezeStage("intake", step=1, seconds=5.0),
    sources.GrowSource("decisions"),
    sources.KillStages(),
    sources.KillBrokerSending(seconds=1.0),
)
Change = Callable[[Recorded], None]


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Return what a short campaign leaves, and find it good."""
    directory: Path = tmp_path_factory.mktemp("sources")
    stages = ("intake", "intake", "router", "router", "worker")
    with sources.stage(directory, seed=7, rate=300.0, stages=stages, partitions=2, session=4.0) as on:
        seen = campaign.run(on, FAULTS, recover=sources.recover)
        assert sources.drain(on, 2_000) == [0] * len(stages)
        recorded, of_workers = Recorded.of(on), judge_all(on.world)
    assert not any(each.broken for each in seen)
    assert [-9 in [ended.status for ended in each.exits] for each in seen] == [False, False, True, False]
    assert of_workers.good, of_workers.findings
    assert of_workers.events >= 2_000
    return recorded


@pytest.mark.slow
def test_nothing_is_lost_or_doubled_on_the_way_from_the_sources(truth: Recorded) -> None:
    found = judge(truth)
    assert found.good, found.findings
    assert found.records >= 4_000
    assert any(record.partition == WIDTHS["decisions"] for record in truth.sources["decisions"])


def lose(label: str) -> Change:
    """Return what removes a record of which a topic has one copy."""

    def change(recorded: Recorded) -> None:
        records = recorded.topics[label]
        values = [record.value for record in records]
        del records[next(i for i, value in enumerate(values) if values.count(value) == 1)]

    return change


def lose_a_score(recorded: Recorded) -> None:
    """As if it had never been taken in: it is in the sources alone."""
    recorded.topics["calibrated"] = [r for r in recorded.topics["calibrated"] if b'"700000-5"' not in (r.value or b"")]


def turn_back(recorded: Recorded) -> None:
    """Let a record of a source partition come first behind a later one."""
    labels = [record for record in recorded.topics["labels"] if record.partition == 0]
    recorded.topics["labels"] = [*reversed(labels), *(r for r in recorded.topics["labels"] if r.partition)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [*map(lose, ("forecasts", "routes", "labels", "outcomes", "calibrated", "dead-letters")), lose_a_score, turn_back],
)
def test_a_loss_is_noticed(truth: Recorded, change: Change) -> None:
    recorded = deepcopy(truth)
    change(recorded)
    assert judge(recorded).lost >= 1


def forge(label: str) -> Change:
    """Return what adds a record that nobody asked for."""

    def change(recorded: Recorded) -> None:
        first = recorded.topics[label][0]
        value = (first.value or b"").replace(b'"7', b'"8')
        recorded.topics[label].append(Read(first.partition, 10**6, first.key, value, first.ts))

    return change


@pytest.mark.slow
@pytest.mark.parametrize("label", ["forecasts", "routes", "outcomes", "calibrated"])
def test_a_double_is_noticed(truth: Recorded, label: str) -> None:
    recorded = deepcopy(truth)
    forge(label)(recorded)
    assert judge(recorded).doubled >= 1


@pytest.mark.slow
def test_two_answers_that_differ_are_noticed(truth: Recorded) -> None:
    recorded = deepcopy(truth)
    first = recorded.topics["calibrated"][0]
    value = (first.value or b"").replace(b'"p":', b'"p":1')
    recorded.topics["calibrated"].append(first._replace(offset=10**6, value=value))
    assert judge(recorded).differing_answers == 1


def test_a_seed_draws_the_same_faults_again_every_kind_among_them() -> None:
    drawn = sources.schedule(3, 6.0, sources.KINDS)
    assert drawn == sources.schedule(3, 6.0, sources.KINDS)
    assert drawn != sources.schedule(4, 6.0, sources.KINDS)
    assert {type(fault) for fault in drawn} == set(sources.KINDS)
