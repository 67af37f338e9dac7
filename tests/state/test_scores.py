"""Scores as sums."""

import itertools
import math
import random
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.losses import NAMES, named
from state.scores import BANDS, LOG_CLIP, Kind, Scores

Event = tuple[float, float, float]
UNIT = st.floats(0, 1)
EVENTS = st.lists(st.tuples(UNIT, UNIT, st.sampled_from([0.0, 1.0]) | UNIT), max_size=30)
KINDS: tuple[Kind, ...] = ("raw", "calibrated")


def scored(events: list[Event]) -> Scores:
    scores = Scores.zero()
    for raw, p, y in events:
        scores.observe(raw, p, y)
    return scores


def views(scores: Scores) -> list[float]:
    simple = (scores.ece, scores.noise, scores.smooth_ece, scores.brier, scores.log_loss)
    return [
        *(view(kind) for view in simple for kind in KINDS),
        *(part for kind in KINDS for part in scores.murphy(kind)),
        *(scores.loss("misclassification", kind) for kind in KINDS),
        *(scores.regret(name) for name in NAMES),
    ]


@given(EVENTS, EVENTS)
def test_parts_add_up_to_the_whole(first: list[Event], rest: list[Event]) -> None:
    whole, parts = scored(first + rest), scored(first) + scored(rest)
    assert parts.n == whole.n
    # A root in the noise makes 1e-8 of a rounding error of 1e-16.
    assert views(parts) == pytest.approx(views(whole), abs=1e-6, nan_ok=True)
    assert views(whole - scored(first)) == pytest.approx(views(scored(rest)), abs=1e-6, nan_ok=True)


@given(EVENTS)
def test_zero_changes_nothing(events: list[Event]) -> None:
    scores = scored(events)
    assert scores + Scores.zero() == scores
    assert (scores - scores) == Scores.zero()


@given(EVENTS)
def test_decoded_scores_go_on_bit_for_bit(events: list[Event]) -> None:
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
    for column, kind in enumerate(KINDS):
        pairs = [(event[column], event[2]) for event in events]
        brier = sum((p - y) ** 2 for p, y in pairs) / 400
        log = -sum(math.log(p if y else 1 - p) for p, y in pairs) / 400
        ece = sum(abs(sum(p - y for p, y in pairs if int(p * 10) == k)) for k in range(10)) / 400
        assert scores.brier(kind) == pytest.approx(brier)
        assert scores.log_loss(kind) == pytest.approx(log)
        assert scores.ece(kind) == pytest.approx(ece)
    for name in NAMES:
        loss = named(name)
        expected = [sum(loss(event[column], event[2]) for event in events) for column in (0, 1)]
        assert [400 * scores.loss(name, kind) for kind in KINDS] == pytest.approx(expected)
        assert scores.regret(name) == pytest.approx(expected[1] - expected[0])


@given(EVENTS.filter(bool))
def test_murphys_parts_are_exactly_the_brier_score(events: list[Event]) -> None:
    scores = scored(events)
    for column, kind in enumerate(KINDS):
        parts = scores.murphy(kind)
        whole = parts.reliability - parts.resolution + parts.uncertainty + parts.variance - 2.0 * parts.covariance
        brier = sum((event[column] - event[2]) ** 2 for event in events) / len(events)
        assert whole == pytest.approx(brier, abs=1e-12)
        assert min(parts.reliability, parts.resolution, parts.uncertainty, parts.variance) >= -1e-12


def test_murphys_parts_by_hand() -> None:
    # Two bins of two: .1, .15 with outcomes 0, 0 and .8, .85 with 1, 0; mean outcomes 0, 1/2 and over all 1/4.
    scores = scored([(p, p, y) for p, y in ((0.1, 0.0), (0.15, 0.0), (0.8, 1.0), (0.85, 0.0))])
    expected = ((0.125**2 + 0.325**2) / 2, 1 / 16, 3 / 16, 0.025**2, -0.0125 / 2)
    assert scores.murphy("raw") == pytest.approx(expected)


@given(EVENTS.filter(bool))
def test_smooth_ece_is_the_error_under_hats(events: list[Event]) -> None:
    scores = scored(events)
    for column, kind in enumerate(KINDS):
        error = 0.0
        for k in range(11):
            error += abs(sum(max(0.0, 1.0 - abs(10.0 * e[column] - k)) * (e[column] - e[2]) for e in events))
        assert scores.smooth_ece(kind) == pytest.approx(error / len(events), abs=1e-12)


def test_smooth_ece_by_hand() -> None:
    # .25 lies half under the hat of .2, half under that of .3; .3 wholly under its own: -.375 and -.375 + .3.
    assert scored([(0.25, 0.5, 1.0), (0.3, 0.5, 0.0)]).smooth_ece("raw") == pytest.approx((0.375 + 0.075) / 2)


@given(EVENTS.filter(bool), UNIT)
def test_smooth_ece_moves_by_at_most_21_nths_of_a_forecasts_move(events: list[Event], p: float) -> None:
    (was, served, y), *rest = events
    before, after = scored(events), scored([(p, served, y), *rest])
    moved = abs(after.smooth_ece("raw") - before.smooth_ece("raw"))
    assert moved <= 21 * abs(p - was) / len(events) + 1e-12


def test_smooth_ece_does_not_jump_at_an_edge_where_ece_does() -> None:
    below = 0.3 - 1e-12
    events = [(below if t % 2 else 0.3, 0.5, float(t % 2)) for t in range(100)]
    assert scored(events).ece("raw") == pytest.approx(0.5)
    assert scored(events).smooth_ece("raw") == pytest.approx(0.2)


def test_noise_is_the_mean_ece_of_calibrated_forecasts() -> None:
    # Given the forecasts, an outcome moves the mean ECE of the 50 runs by at most 1/(50 * 2000), so by McDiarmid it is
    # within .0086 of its expectation but for once in a million; the normal approximation errs by less than .001.
    rng = random.Random(11)
    runs = [scored([(p := rng.random(), p, float(rng.random() < p)) for _ in range(2000)]) for _ in range(50)]
    assert sum(run.ece("raw") for run in runs) / 50 == pytest.approx(
        sum(run.noise("raw") for run in runs) / 50, abs=0.0086 + 0.001
    )


def test_half_is_labelled_one() -> None:
    below = math.nextafter(0.5, 0.0)
    assert [scored([(p, p, 1.0)]).loss("misclassification", "raw") for p in (below, 0.5)] == [1.0, 0.0]


@given(UNIT)
def test_bands_divide_the_first_bin(p: float) -> None:
    scores = scored([(p, p, 1.0)])
    assert sum(each.n for each in scores.bands("raw")) == scores.bins("raw")[0].n == (p < 0.1)
    edges = itertools.pairwise((0.0, *BANDS, 0.1))
    for (left, right), each in zip(edges, scores.bands("raw"), strict=True):
        assert each.n == (left <= p < right)


def test_bands_are_equal_steps_of_log_odds() -> None:
    odds = [math.log(edge / (1 - edge)) for edge in (*BANDS, 0.1)]
    assert BANDS[0] == pytest.approx(1e-4)
    steps = [right - left for left, right in itertools.pairwise(odds)]
    assert steps == pytest.approx([steps[0]] * 9)


def test_relative_error_sees_what_ece_does_not() -> None:
    # 1 in 1,000 happens; the forecast says 3 in 1,000.
    scores = scored([(0.003, 0.001, float(t % 1000 == 0)) for t in range(10_000)])
    assert scores.ece("raw") == pytest.approx(0.002)
    assert scores.relative_error("raw") == pytest.approx(2.0)
    assert scores.relative_error("calibrated") == pytest.approx(0.0, abs=1e-9)
    assert math.isnan(scored([(0.01, 0.5, 0.0)]).relative_error("raw"))


def test_expected_is_summed_beside_what_was_drawn() -> None:
    scores = Scores()
    scores.observe(0.5, 0.2, 1.0, 0.28)
    for kind, e in zip(KINDS, (0.5, 0.28), strict=True):
        assert [(each.e, each.ee) for each in scores.bins(kind) if each.n] == [(e, e * e)]


@pytest.mark.parametrize("view", [Scores.loss, lambda scores, name, _: scores.regret(name)])
def test_a_loss_that_is_not_proper_is_refused(view: Callable[[Scores, str, Kind], float]) -> None:
    with pytest.raises(ValueError, match=r"not proper.*Theorem 2"):
        view(scored([(0.5, 0.5, 1.0)]), "absolute", "raw")


def test_certainty_falls_into_the_last_bin_and_costs_a_finite_loss() -> None:
    scores = scored([(1.0, 0.0, 0.0), (0.0, 1.0, 0.0)])
    assert [each.n for each in scores.bins("raw")] == [1, *[0] * 8, 1]
    assert scores.log_loss("raw") == pytest.approx(-math.log(LOG_CLIP) / 2, rel=1e-6)


def test_views_of_no_events_are_nan() -> None:
    assert all(math.isnan(view) for view in views(Scores.zero())[:-3])
    assert views(Scores.zero())[-3:] == [0.0, 0.0, 0.0]
    assert Scores.zero().n == 0


def test_layout_is_the_documented_one() -> None:
    scores = Scores()
    scores.observe(0.25, 0.01, 1.0, 0.02)
    cells = (1.0, 0.25, 1.0, 0.0625, 0.25, 1.0, 0.01, 1.0, 0.01 * 0.01, 0.01, 0.02, 0.02 * 0.02)
    # Raw .25 is in cell 9 + 2; calibrated .01 in the band from .0100 (e^-4.54) or below: the seventh from the edges.
    band = sum(edge <= 0.01 for edge in BANDS)
    assert scores.encode() == struct.pack(
        "<Q15d", 1 << 11 | 1 << (19 + band), *cells, 1.0, -math.log(0.25), -math.log(0.01)
    )


def test_bytes_are_bounded() -> None:
    everywhere = [0.0, *BANDS, *(k / 10 for k in range(1, 10))]
    assert len(scored([(p, p, 1.0) for p in everywhere]).encode()) == 1856


@pytest.mark.parametrize("cut", [lambda b: b[:-1], lambda b: b + b"\0", lambda _: b"", lambda b: b"\xff" * 8 + b[8:]])
def test_damaged_scores_are_refused(cut: Callable[[bytes], bytes]) -> None:
    with pytest.raises(ValueError, match="scores of"):
        Scores.decode(cut(scored([(0.5, 0.5, 1.0)]).encode()))
