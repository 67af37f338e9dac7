"""A judge that cannot fail is worth nothing: everything it must notice, done to what a real worker recorded."""

from collections.abc import Callable
from copy import deepcopy

import pytest

from state import kinds
from state.fence import RESOLVED
from streams.config.settings import Settings
from tests.chaos.judge import Recorded, Verdict, judge
from tests.e2e.world import World
from tests.events import mixed

Change = Callable[[Recorded], None]


@pytest.fixture(scope="module")
def truth(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Recorded, Settings]:
    world = World(kafka, tmp_path_factory.mktemp("judged"), partitions=1, TRUEUP_BATCH_RECORDS="100")
    made = mixed(500)
    world.send(made.sent)
    with world.worker() as worker:
        world.wait_until_applied(len(made.sent))
        assert worker.stop() == 0
    return Recorded.of(world, 0), world.settings


def verdict(truth: tuple[Recorded, Settings], change: Change) -> Verdict:
    recorded = deepcopy(truth[0])
    change(recorded)
    return judge(recorded, truth[1])


def test_what_a_worker_recorded_is_good(truth: tuple[Recorded, Settings]) -> None:
    found = verdict(truth, lambda _: None)
    assert found.good, found.findings
    assert found.events == 500


def test_copies_that_are_alike_are_counted_and_allowed(truth: tuple[Recorded, Settings]) -> None:
    def copy(recorded: Recorded) -> None:
        (value,) = recorded.outputs["calibrated"]["1-7"]
        recorded.outputs["calibrated"]["1-7"][value] += 1

    assert verdict(truth, copy).good
    assert verdict(truth, copy).copies == verdict(truth, lambda _: None).copies + 1


def lose_an_answer(recorded: Recorded) -> None:
    del recorded.outputs["calibrated"]["1-7"]


def lose_a_join(recorded: Recorded) -> None:
    recorded.outputs["resolved"].popitem()


def lose_a_letter(recorded: Recorded) -> None:
    recorded.outputs["dead-letters"].popitem()


def lose_a_row(recorded: Recorded) -> None:
    del recorded.rows[kinds.LEDGER.key("1-7")]


def lose_the_end(recorded: Recorded) -> None:
    recorded.entries.pop()


@pytest.mark.parametrize("change", [lose_an_answer, lose_a_join, lose_a_letter, lose_a_row, lose_the_end])
def test_a_loss_is_noticed(truth: tuple[Recorded, Settings], change: Change) -> None:
    found = verdict(truth, change)
    assert found.lost >= 1
    assert found.findings


def count_an_outcome_twice_in_the_scores(recorded: Recorded) -> None:
    key = kinds.SCORES.key("stream-1")
    history = kinds.history(recorded.rows[key], recorded.rows.get(kinds.WINDOWS.key("stream-1")))
    history.observe(0.5, 0.5, 1.0, 0.5)
    recorded.rows[key] = kinds.SCORES.encode(history)


def count_an_outcome_twice_in_the_fates(recorded: Recorded) -> None:
    fence = recorded.fence
    fence.fates[RESOLVED] += 1
    recorded.rows[kinds.FENCE.key()] = fence.encode()


def answer_what_nobody_asked(recorded: Recorded) -> None:
    recorded.outputs["calibrated"]["nobody"] = {b"{}": 1}


def let_a_zombie_write(recorded: Recorded) -> None:
    recorded.entries.append(recorded.entries[-2])


@pytest.mark.parametrize(
    "change",
    [
        count_an_outcome_twice_in_the_scores,
        count_an_outcome_twice_in_the_fates,
        answer_what_nobody_asked,
        let_a_zombie_write,
    ],
)
def test_a_double_is_noticed(truth: tuple[Recorded, Settings], change: Change) -> None:
    found = verdict(truth, change)
    assert found.doubled >= 1
    assert found.findings


@pytest.mark.parametrize("label", ["calibrated", "resolved"])
def test_two_answers_that_differ_are_noticed(truth: tuple[Recorded, Settings], label: str) -> None:
    def add_another(recorded: Recorded) -> None:
        name, values = next(iter(recorded.outputs[label].items()))
        (value,) = values
        recorded.outputs[label][name][value.replace(b'"p":', b'"p":1')] = 1

    assert verdict(truth, add_another).differing_answers == 1


def test_one_answer_that_is_not_the_engines_is_noticed(truth: tuple[Recorded, Settings]) -> None:
    def change(recorded: Recorded) -> None:
        (value,) = recorded.outputs["calibrated"]["1-7"]
        recorded.outputs["calibrated"]["1-7"] = {value.replace(b'"version":', b'"version":1'): 1}

    assert verdict(truth, change).differing_answers == 1


def test_an_input_that_was_passed_over_is_noticed(truth: tuple[Recorded, Settings]) -> None:
    """As by a consumer that commits past a gap: the engine is told one record less than the fence counts."""

    def pass_over(recorded: Recorded) -> None:
        last = recorded.inputs[0][-1]
        recorded.inputs[0].append(last._replace(offset=last.offset + 1))

    found = verdict(truth, pass_over)
    assert found.lost == 1
    assert f"offset {len(truth[0].inputs[0])} of forecasts was never applied" in found.findings[0]
