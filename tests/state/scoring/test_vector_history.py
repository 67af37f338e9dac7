"""Windows and alarms of classes and numbers: what swings is found, what is calibrated is not, labels may change."""

import math
import random
from collections import deque
from collections.abc import Callable

import pytest

from state.forecasts import Classwise, Normal, Probs, Quantiles
from state.scoring import vector_history, windows
from state.scoring.alarm import ALPHA
from state.scoring.class_scores import ClassScores
from state.scoring.vector_history import LOOK, VectorHistory
from state.scoring.windows import KINDS

LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
NORMAL = Normal(0.0, 1.0)
PERFECT = tuple(map(NORMAL.ppf, LEVELS))
FIRES = -math.log(ALPHA)


def moved(by: float) -> Quantiles:
    return Quantiles(LEVELS, tuple(value + by for value in PERFECT))


def numbers() -> VectorHistory:
    return VectorHistory.of(moved(0.0))


def played(history: VectorHistory, n: int, by: Callable[[int], float], seed: int = 1) -> VectorHistory:
    """Observe outcomes of a standard normal law; what is served at time t is moved by ``by(t)``."""
    rng = random.Random(seed)
    for t in range(n):
        history.observe(NORMAL, moved(by(t)), rng.gauss(0.0, 1.0), b"%d" % t)
    return history


def chances(rng: random.Random) -> Probs:
    drawn = [rng.random() ** 2 for _ in range(4)]
    return Probs([each / sum(drawn) for each in drawn])


def classes(n: int, served: Callable[[Probs], Classwise], seed: int = 1) -> VectorHistory:
    """Observe classes that occur with the chances of the raw forecast."""
    rng = random.Random(seed)
    history = VectorHistory(ClassScores(4))
    for t in range(n):
        raw = chances(rng)
        history.observe(raw, served(raw), float(rng.choices(range(4), raw)[0]), b"%d" % t)
    return history


def sharpened(raw: Probs) -> Probs:
    powers = [p**1.5 for p in raw]
    return Probs([p / sum(powers) for p in powers])


def test_calibrated_numbers_and_classes_raise_no_alarm() -> None:
    for seed in range(5):
        for history in (played(numbers(), 2600, lambda _: 0.0, seed), classes(1100, lambda raw: raw, seed)):
            for kind in KINDS:
                assert history.log_alarm(kind) < math.log(100)
                assert history.log_recent(kind) < 0.0


@pytest.mark.parametrize(("every", "calm"), [(100, 0), (250, 0), (1000, 0), (500, 10_000)])
def test_levels_that_swing_and_are_right_in_all_raise_both_alarms_within_5000_outcomes(every: int, calm: int) -> None:
    history, after = played(numbers(), calm, lambda _: 0.0), 2000
    recent = -math.inf
    rng = random.Random(2)
    for t in range(after):
        history.observe(NORMAL, moved(1.5 if t // every % 2 else -1.5), rng.gauss(0.0, 1.0), b"%d" % t)
        if t % 50 == 0:
            recent = max(recent, history.log_recent("calibrated"))
    assert abs(history.total.coverage("calibrated")[3].upto - 0.5) < 0.04  # type: ignore[union-attr]  # of numbers
    assert history.log_alarm("calibrated") >= FIRES
    assert recent >= FIRES
    assert history.log_alarm("raw") < FIRES


def test_levels_that_swing_under_delay_raise_the_alarm_within_5000_outcomes() -> None:
    """Steps of a fixed size, 500 outcomes late: windows cover from none to all while the life's error looks small."""
    history, rng = numbers(), random.Random(3)
    level, waiting = 0.5, deque[tuple[Quantiles, float]]()
    found = None
    for t in range(15_000):
        law = Quantiles(LEVELS, tuple(value + NORMAL.ppf(min(max(level, 1e-6), 1.0 - 1e-6)) for value in PERFECT))
        waiting.append((law, rng.gauss(0.0, 1.0)))
        if len(waiting) > 500:
            served, y = waiting.popleft()
            history.observe(NORMAL, served, y, b"%d" % t)
            level += 0.01 * (0.5 - (y < served.values[3]))
            if found is None and history.n % LOOK == 0 and history.log_alarm("calibrated") >= FIRES:
                found = history.n
    worst = history.worst("calibrated")
    assert worst is not None
    assert worst.scores.error("calibrated") > 0.4
    assert abs(history.total.coverage("calibrated")[3].upto - 0.5) < 0.05  # type: ignore[union-attr]  # of numbers
    assert found is not None
    assert found <= 5000


def test_classes_that_are_too_sure_raise_the_alarm_and_the_models_do_not() -> None:
    history = classes(4000, sharpened)
    assert history.log_alarm("raw") < FIRES < history.log_alarm("calibrated")
    assert history.log_recent("calibrated") >= FIRES


def test_two_rare_classes_that_are_exchanged_raise_the_alarm() -> None:
    """Their probabilities are seldom the highest, so the likeliest class says nothing of them."""
    history, rng = VectorHistory(ClassScores(4)), random.Random(4)
    raw, served = Probs((0.6, 0.3, 0.08, 0.02)), Probs((0.6, 0.3, 0.02, 0.08))
    for t in range(3000):
        history.observe(raw, served, float(rng.choices(range(4), raw)[0]), b"%d" % t)
    last = windows.last([history])
    assert last is not None
    assert last.error("calibrated") == last.error("raw")
    assert history.log_alarm("raw") < FIRES < history.log_alarm("calibrated")


def test_of_partitions_with_other_levels_those_with_most_events_are_shown() -> None:
    other = VectorHistory.of(Quantiles((0.25, 0.75), (0.0, 1.0)))
    other.observe(NORMAL, Quantiles((0.25, 0.75), (0.0, 1.0)), 0.5, b"e")
    most = played(numbers(), 3, lambda _: 0.0)
    assert vector_history.alike([other, most]) == [most]


def test_the_highest_probability_tells_right_answers_from_wrong_ones() -> None:
    found = [classes(1300, sharpened, seed) for seed in (1, 2)]
    raw, served = (vector_history.auc(found, kind) for kind in KINDS)
    assert 0.55 < raw.value < 0.75
    assert served.value == pytest.approx(raw.value, abs=0.01)
    assert 0.005 < raw.error < 0.03
    assert math.isnan(vector_history.auc([played(numbers(), 600, lambda _: 0.0)], "raw").value)


def test_the_difference_of_losses_has_the_error_of_independent_events() -> None:
    history = played(numbers(), 2000, lambda _: 1.0)
    difference = history.total.difference()  # type: ignore[call-arg]  # of numbers
    assert difference.mean > 5 * difference.error > 0.0
    better = classes(2000, sharpened).total
    assert isinstance(better, ClassScores)
    assert better.difference("log").mean == pytest.approx(better.log_loss("calibrated") - better.log_loss("raw"))
    assert better.difference("brier").mean == pytest.approx(better.brier("calibrated") - better.brier("raw"))
    assert better.difference("log").mean > 2 * better.difference("log").error > 0.0


def test_crps_of_perfect_forecasts_is_that_of_the_law() -> None:
    """It is 1/√π of a standard normal law; nineteen levels come within four per cent."""
    levels = tuple(k / 20 for k in range(1, 20))
    law = Quantiles(levels, tuple(map(NORMAL.ppf, levels)))
    history, rng = VectorHistory.of(law), random.Random(10)
    for t in range(5000):
        history.observe(NORMAL, law, rng.gauss(0.0, 1.0), b"%d" % t)
    assert history.total.crps("raw") == pytest.approx(1.0 / math.sqrt(math.pi), rel=0.04)  # type: ignore[union-attr]  # of numbers
