"""Forecasts of classes and of numbers through the engine: asked, answered, joined, scored, and answered again."""

import random
from bisect import bisect_right

import pytest

from state import calibrators, forecasts, kinds
from state.events import Calibrated, Forecast, Outcome, Rejected, Resolved
from state.fence import FORECASTS, OUTCOMES
from state.forecasts import Normal, Probs
from state.policies import Policies
from state.policy import Policy
from state.scoring import vector_history
from state.scoring.class_scores import ClassScores
from state.scoring.distribution import CELLS, EDGES
from state.scoring.quantile_scores import QuantileScores
from tests.holding import shown
from tests.state.histories import Worker, fates

pytestmark = pytest.mark.usefixtures("no_warm_up")

LEVELS = (0.1, 0.5, 0.9)
NUMBERS = Policy("quantile", {"levels": LEVELS})
CLASSES = Policy("multiclass", {"classes": 3, "each": "platt+minimax"})
POLICIES = Policies([("numbers", NUMBERS), ("classes", CLASSES)], Policy("identity"))
RAW: dict[str, forecasts.ForecastValue] = {"numbers": Normal(0.0, 1.0), "classes": Probs((0.2, 0.3, 0.5)), "s": 0.5}
FIT = {"numbers": -3.25, "classes": 2.0, "s": 1.0}
UNFIT = [("classes", 3.0), ("classes", 0.5), ("classes", -1.0), ("s", 2.0), ("s", -3.25)]


def forecast(offset: int, event_id: str, stream: str) -> Forecast:
    return Forecast(offset, b"k", event_id, stream, RAW[stream], (), 1000 + offset)


def outcome(offset: int, event_id: str, y: float) -> Outcome:
    return Outcome(offset, b"k", event_id, y, 1010 + offset, b"value of %d" % offset)


@pytest.mark.parametrize("stream", ["numbers", "classes"])
def test_a_forecast_is_answered_joined_and_scored_by_its_kind(stream: str) -> None:
    worker = Worker(POLICIES)
    (answer,) = worker.fold(forecast(0, "e", stream)).outputs
    assert isinstance(answer, Calibrated)
    assert (answer.raw, answer.stream) == (RAW[stream], stream)
    effects = worker.fold(outcome(0, "e", FIT[stream]))
    (joined,) = effects.outputs
    assert isinstance(joined, Resolved)
    assert (joined.raw, joined.p, joined.y) == (RAW[stream], answer.p, FIT[stream])
    policy = POLICIES.of(stream)
    assert policy is not None
    key = kinds.VECTORS.key(stream, policy.config)
    assert shown(effects, POLICIES, kinds.VECTORS) == {(stream, policy.config): effects.rows[key]}
    assert not shown(effects, POLICIES, kinds.SCORES)
    scores = kinds.VECTORS.decode(worker.table[key]).total
    assert isinstance(scores, QuantileScores if stream == "numbers" else ClassScores)
    assert scores.n == 1
    assert worker.table.served(stream, POLICIES).calibrator.learnt == 1


def test_the_distribution_of_forecasts_is_that_of_the_highest_probability_and_numbers_have_none() -> None:
    worker = Worker(POLICIES)
    effects = worker.fold(*(forecast(i, s, s) for i, s in enumerate(("numbers", "classes", "s"))))
    assert shown(effects, POLICIES, kinds.DISTRIBUTION).keys() == {("classes",), ("s",)}
    for stream in ("classes", "s"):
        counted = kinds.DISTRIBUTION.decode(worker.table[kinds.DISTRIBUTION.key(stream)]).recent
        assert counted == [int(cell == bisect_right(EDGES, 0.5)) for cell in range(CELLS)]


@pytest.mark.parametrize(("stream", "y"), UNFIT)
def test_an_outcome_its_forecast_cannot_have_is_a_dead_letter_and_the_event_waits_on(stream: str, y: float) -> None:
    worker = Worker(POLICIES)
    worker.fold(forecast(0, "e", stream))
    effects = worker.fold(outcome(0, "e", y))
    assert effects.outputs == [Rejected(0, b"k", b"value of 0", OUTCOMES, "label")]
    assert effects.rejected == [(OUTCOMES, "label")]
    assert fates(worker.table.fence) == {"forecasts_issued": 1, "outcomes_dead": 1}
    assert len(worker.fold(outcome(1, "e", FIT[stream])).outputs) == 1
    assert worker.table.fence.pending == 0


@pytest.mark.parametrize(("stream", "y"), UNFIT)
def test_a_parked_outcome_its_forecast_cannot_have_is_a_dead_letter_in_the_forecasts_place(
    stream: str, y: float
) -> None:
    worker = Worker(POLICIES)
    assert not worker.fold(outcome(0, "e", y)).outputs
    effects = worker.fold(forecast(5, "e", stream))
    answer, letter = effects.outputs
    assert isinstance(answer, Calibrated)
    assert isinstance(letter, Rejected)
    assert (letter.topic, letter.offset, letter.reason) == (FORECASTS, 5, "parked_label")
    assert fates(worker.table.fence) == {"forecasts_issued": 1, "outcomes_early": 1, "early_unusable": 1}
    assert (worker.table.fence.early, worker.table.fence.pending) == (0, 1)
    assert len(worker.fold(outcome(1, "e", FIT[stream])).outputs) == 1
    assert fates(worker.table.fence)["outcomes_resolved"] == 1


def test_learning_through_the_engine_is_learning_from_the_calibrator() -> None:
    worker = Worker(POLICIES)
    alone = calibrators.make("quantile", name="numbers", levels=LEVELS)
    rng = random.Random(4)
    for t in range(500):
        y = rng.gauss(1.0, 2.0)
        served = alone.predict(RAW["numbers"], (), b"e%d" % t)
        (answer,) = worker.fold(forecast(t, f"e{t}", "numbers")).outputs
        assert isinstance(answer, Calibrated)
        assert answer.p == served.p
        worker.fold(outcome(t, f"e{t}", y))
        alone.update(served.ticket, y)
    assert worker.table.served("numbers", POLICIES).calibrator.encode() == alone.encode()
    scores = kinds.VECTORS.decode(worker.table[kinds.VECTORS.key("numbers", NUMBERS.config)]).total
    assert isinstance(scores, QuantileScores)
    assert scores.error("calibrated") < scores.error("raw") / 2


@pytest.mark.parametrize("stream", ["numbers", "classes"])
def test_a_revised_label_is_counted_in_the_window_of_its_event(stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_history, "WINDOW", 10)
    first, last = (0.0, 1.0) if stream == "classes" else (-3.25, 1.5)
    policy = POLICIES.of(stream)
    assert policy is not None
    rows_of = []
    for label in (first, last):
        worker = Worker(POLICIES)
        worker.fold(*(forecast(t, f"e{t}", stream) for t in range(25)))  # before any is learnt, so all are served alike
        worker.fold(*(outcome(t, f"e{t}", label if t == 3 else FIT[stream]) for t in range(25)))
        worker.fold(outcome(25, "e3", last))
        rows_of.append(kinds.VECTORS.decode(worker.table[kinds.VECTORS.key(stream, policy.config)]))
    revised, right = rows_of
    assert revised.windows == 2
    assert revised._past == right._past
    assert revised._closed == right._closed
    assert revised._past[0] != revised._past[1]
