"""Scores as sums."""

import math
import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.scores import LOG_CLIP, Kind, Scores

UNIT = st.floats(0, 1)
EVENTS = st.lists(st.tuples(UNIT, UNIT, st.sampled_from([0.0, 1.0]) | UNIT), max_size=30)
KINDS: tuple[Kind, ...] = ("raw", "calibrated")


def scored(events: list[tuple[float, float, float]]) -> Scores:
    scores = Scores.zero()
    for raw, p, y in events:
        scores.observe(raw, p, y)
    return scores


def views(scores: Scores) -> list[float]:
    return [
        *(view(kind) for view in (scores.ece, scores.brier, scores.log_loss) for kind in KINDS),
        scores.regret_brier(),
        scores.regret_log(),
    ]


@given(EVENTS, EVENTS)
def test_parts_add_up_to_the_whole(
    first: list[tuple[float, float, float]], rest: list[tuple[float, float, float]]
) -> None:
    whole, parts = scored(first + rest), scored(first) + scored(rest)
    assert parts.n == whole.n
    assert views(parts) == pytest.approx(views(whole), abs=1e-9, nan_ok=True)
    assert views(whole - scored(first)) == pytest.approx(views(scored(rest)), abs=1e-9, nan_ok=True)


@given(EVENTS)
def test_zero_changes_nothing(events: list[tuple[float, float, float]]) -> None:
    scores = scored(events)
    assert scores + Scores.zero() == scores
    assert (scores - scores) == Scores.zero()


@given(EVENTS)
def test_decoded_scores_go_on_bit_for_bit(events: list[tuple[float, float, float]]) -> None:
    scores = scored(events)
    again = Scores.decode(scores.encode())
    assert again == scores
    scores.observe(0.3, 0.7, 1)
    again.observe(0.3, 0.7, 1)
    assert again.encode() == scores.encode()


def test_counts_of_binary_outcomes_are_exact_in_any_order() -> None:
    events = [(random.Random(t).random(), 0.1, float(t % 3 == 0)) for t in range(500)]
    forward, backward = scored(events), scored(events[::-1])
    assert [(b.n, b.y) for b in forward.bins("raw")] == [(b.n, b.y) for b in backward.bins("raw")]


def test_views_match_their_definitions() -> None:
    rng = random.Random(5)
    events = [(rng.random(), rng.random(), float(rng.random() < 0.3)) for _ in range(400)]
    scores = scored(events)
    for kind, column in (("raw", 0), ("calibrated", 1)):
        pairs = [(event[column], event[2]) for event in events]
        brier = sum((p - y) ** 2 for p, y in pairs) / 400
        log = -sum(math.log(p if y else 1 - p) for p, y in pairs) / 400
        ece = sum(abs(sum(p - y for p, y in pairs if int(p * 10) == k)) for k in range(10)) / 400
        assert scores.brier(kind) == pytest.approx(brier)  # type: ignore[arg-type]  # a literal in a tuple of str
        assert scores.log_loss(kind) == pytest.approx(log)  # type: ignore[arg-type]  # the same
        assert scores.ece(kind) == pytest.approx(ece)  # type: ignore[arg-type]  # the same
    assert scores.regret_brier() == pytest.approx(400 * (scores.brier("calibrated") - scores.brier("raw")))
    assert scores.regret_log() == pytest.approx(400 * (scores.log_loss("calibrated") - scores.log_loss("raw")))


def test_certainty_falls_into_the_last_bin_and_costs_a_finite_loss() -> None:
    scores = scored([(1.0, 0.0, 0.0), (0.0, 1.0, 0.0)])
    assert [each.n for each in scores.bins("raw")] == [1, *[0] * 8, 1]
    assert scores.log_loss("raw") == pytest.approx(-math.log(LOG_CLIP) / 2, rel=1e-6)


def test_views_of_no_events_are_nan() -> None:
    assert all(math.isnan(view) for view in views(Scores.zero())[:6])
    assert Scores.zero().n == 0


def test_layout_is_the_documented_one() -> None:
    values = struct.unpack("<104d", scored([(0.25, 0.5, 1.0)]).encode())
    assert values[10:15] == (1.0, 0.25, 1.0, 0.0625, 0.25)
    assert values[75:80] == (1.0, 0.5, 1.0, 0.25, 0.5)
    assert values[100:] == (1.0, -math.log(0.25), -math.log(0.5), 1.0)


def test_cut_scores_are_refused() -> None:
    with pytest.raises(ValueError, match="832 bytes"):
        Scores.decode(Scores.zero().encode()[:-1])
