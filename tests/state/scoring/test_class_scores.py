"""Scores of classes as sums."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.forecasts import MAX_CLASSES, Classwise
from state.scoring.class_scores import ClassScores
from state.scoring.losses import LOG_CLIP
from state.scoring.scores import Kind, Scores

KINDS: tuple[Kind, ...] = ("raw", "calibrated")
Event = tuple[Classwise, Classwise, int]
PROBS = st.lists(st.floats(0, 1), min_size=3, max_size=3).map(Classwise)
EVENTS = st.lists(st.tuples(PROBS, PROBS, st.integers(0, 2)), max_size=20)


def scored(events: list[Event]) -> ClassScores:
    scores = ClassScores(3)
    for raw, served, y in events:
        scores.observe(raw, served, y)
    return scores


def views(scores: ClassScores) -> list[float]:
    each = [scores.classwise_ece, scores.error, scores.accuracy, scores.brier, scores.log_loss]
    return [*(view(kind) for view in each for kind in KINDS), scores.regret()]


def test_views_match_their_definitions() -> None:
    rng, n = random.Random(5), 400
    events = [
        (Classwise([rng.random() for _ in range(3)]), Classwise([rng.random() for _ in range(3)]), rng.randrange(3))
        for _ in range(n)
    ]
    scores = scored(events)
    for kind, column in (("raw", 0), ("calibrated", 1)):
        pairs: list[tuple[Classwise, int]] = [(event[column], event[2]) for event in events]  # type: ignore[misc]  # 0 or 1
        brier = sum(sum((p[k] - (k == y)) ** 2 for k in range(3)) for p, y in pairs) / n
        log = -sum(math.log(p.normalised()[y]) for p, y in pairs) / n
        hits = sum(max(range(3), key=p.__getitem__) == y for p, y in pairs) / n
        assert scores.brier(kind) == pytest.approx(brier)  # type: ignore[arg-type]  # a literal in a tuple of str
        assert scores.log_loss(kind) == pytest.approx(log)  # type: ignore[arg-type]  # the same
        assert scores.accuracy(kind) == pytest.approx(hits)  # type: ignore[arg-type]  # the same
    assert scores.regret() == pytest.approx(n * (scores.brier("calibrated") - scores.brier("raw")))


@given(EVENTS)
def test_class_is_scored_as_a_probability_of_its_own(events: list[Event]) -> None:
    scores = scored(events)
    for k in range(3):
        alone = Scores()
        for raw, served, y in events:
            alone.observe(raw[k], served[k], float(y == k))
        for kind in KINDS:
            assert scores.ece(kind, k) == pytest.approx(alone.error(kind), abs=1e-12, nan_ok=True)
            assert [each.n for each in scores.bins(kind, k)] == [each.n for each in alone.bins(kind)]


def test_certainty_that_was_wrong_costs_a_finite_loss() -> None:
    scores = scored([(Classwise((1.0, 0.0, 0.0)), Classwise((0.0, 0.0, 0.0)), 1)])
    assert scores.log_loss("raw") == pytest.approx(-math.log(LOG_CLIP))
    assert scores.log_loss("calibrated") == pytest.approx(math.log(3))  # nothing served: each class a third
    assert scores.bins("raw")[-1] == (1.0, 1.0, 0.0)


def test_views_of_no_events_are_nan() -> None:
    assert all(map(math.isnan, views(ClassScores(3))[:10]))
    assert ClassScores(3).n == 0


def test_what_does_not_fit_is_refused() -> None:
    two, three = Classwise((0.5, 0.5)), Classwise((0.5, 0.25, 0.25))
    for raw, served, y in ((two, three, 0), (three, two, 0), (three, three, 3), (three, three, -1)):
        with pytest.raises(ValueError, match="cannot take"):
            ClassScores(3).observe(raw, served, y)
    with pytest.raises(ValueError, match="have no sum"):
        ClassScores(3) + ClassScores(2)
    for classes in (1, MAX_CLASSES + 1):
        with pytest.raises(ValueError, match="2 to 1000 classes"):
            ClassScores(classes)
