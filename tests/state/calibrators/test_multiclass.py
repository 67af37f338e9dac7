"""One class against the rest."""

import math
import random
from collections.abc import Callable

import pytest

from state.calibrators import make
from state.calibrators.multiclass import Multiclass
from state.forecasts import Classwise, Probs
from state.scoring.class_scores import ClassScores

T = 6000


def softmax(z: list[float]) -> Probs:
    weights = [math.exp(a - max(z)) for a in z]
    return Classwise([w / max(1.0, sum(weights)) for w in weights]).normalised()


def biased(rng: random.Random) -> tuple[Probs, int]:
    """Return a forecast with its log-odds doubled and too much of class 0, and the class that came."""
    z = [rng.gauss(0, 1.5) for _ in range(3)]
    y = rng.choices(range(3), softmax(z))[0]
    return softmax([2 * a + 1.5 * (k == 0) for k, a in enumerate(z)]), y


def favourite(expected: Classwise) -> int:
    """Return the class that is expected most: an opponent of those who share out what is left."""
    return expected.index(max(expected))


@pytest.mark.parametrize(("opponent", "most"), [(None, 0.15), (favourite, 0.25)])
def test_classwise_error_is_lower_unnormalised(opponent: Callable[[Classwise], int] | None, most: float) -> None:
    calibrator, rng = make("multiclass"), random.Random(2)
    served, normalised = ClassScores(3), ClassScores(3)
    for t in range(T):
        raw, y = biased(rng)
        answer = calibrator.predict(raw, key=b"%d" % t)
        y = y if opponent is None else opponent(answer.p)
        calibrator.update(answer.ticket, y)
        served.observe(raw, answer.draw, y)
        normalised.observe(raw, answer.draw.normalised(), y)
    assert served.classwise_ece("calibrated") < normalised.classwise_ece("calibrated")
    assert served.classwise_ece("calibrated") < most * served.classwise_ece("raw")
    assert served.regret() < 0


def test_error_stays_under_the_bound_against_an_opponent() -> None:
    """The opponent names the class that is expected least: no deterministic method is calibrated then."""
    calibrator = make("multiclass", classes=3)
    for t in range(T):
        expected, _, ticket = calibrator.predict(Probs((0.5, 0.3, 0.2)), key=b"%d" % t)
        calibrator.update(ticket, expected.index(min(expected)))
    error, bound = calibrator.error(), calibrator.bound()
    assert error is not None
    assert bound is not None
    assert error < bound < 0.5


def test_each_class_is_its_calibrator_alone() -> None:
    calibrator = make("multiclass", classes=2, each="minimax", grid=7, name="s", seed=3)
    alone = [make("minimax", grid=7, name=f"s\0class {k}", seed=3) for k in range(2)]
    for t in range(300):
        answer = calibrator.predict(Probs((0.25, 0.75)), key=b"%d" % t)
        for k, p in enumerate((0.25, 0.75)):
            one = alone[k].predict(p, key=b"%d" % t)
            assert (answer.p[k], answer.draw[k]) == one[:2]
            alone[k].update(one.ticket, float(k == t % 2))
        calibrator.update(answer.ticket, t % 2)
    assert b"".join(each.encode() for each in alone) in calibrator.encode()
    assert calibrator.error() == pytest.approx(sum(each.error() or 0.0 for each in alone) / 2)


@pytest.mark.parametrize("y", [-1, 3, 0.5, math.nan, math.inf])
def test_class_that_does_not_exist_teaches_nothing(y: float) -> None:
    calibrator = make("multiclass", classes=3)
    before = calibrator.encode()
    ticket = calibrator.predict(Probs((0.5, 0.3, 0.2))).ticket
    with pytest.raises(ValueError, match="must be one of 0 to 2"):
        calibrator.update(ticket, y)
    assert calibrator.encode() == before


def test_other_number_of_classes_is_refused() -> None:
    with pytest.raises(ValueError, match="must be of 3 classes, got 2"):
        make("multiclass").predict(Probs((0.5, 0.5)))
    with pytest.raises(ValueError, match="does not fit"):
        make("multiclass", classes=4).decode(make("multiclass", classes=3).encode())
    with pytest.raises(ValueError, match="at least 2"):
        Multiclass([make("platt")])
