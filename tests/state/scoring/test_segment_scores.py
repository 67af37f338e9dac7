"""Scores of a segment: sums that add up, leave no trace of what was taken out, and rank the segments that are off."""

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.scoring.cells import Bin
from state.scoring.recent import LEAST, RECENT
from state.scoring.scores import Scores
from state.scoring.segment_pairs import SegmentPairScores
from state.scoring.segment_scores import BANDS, EDGES, SegmentScores, revise

CHANCE = st.floats(0, 1) | st.sampled_from([0.0, *EDGES, 1.0])
Event = tuple[float, float, float]


def of(events: list[Event]) -> SegmentScores:
    scores = SegmentScores()
    for event in events:
        scores.observe(*event)
    return scores


def drawn(n: int, seed: int, off: float = 0.0) -> SegmentScores:
    """Return the scores of forecasts whose outcomes are drawn by a chance that is higher by ``off``."""
    rng = random.Random(seed)
    return of([(p, p, float(rng.random() < p + off)) for p in (rng.uniform(0.1, 0.6) for _ in range(n))])


@given(st.lists(st.tuples(CHANCE, CHANCE, st.sampled_from([0.0, 1.0])), min_size=1, max_size=30))
def test_means_and_brier_are_those_of_the_stream_scores(events: list[Event]) -> None:
    scores, whole = of(events), Scores()
    for raw, p, y in events:
        whole.observe(raw, p, y)
    assert scores.n == whole.n == len(events)
    assert scores.brier("raw") == pytest.approx(whole.brier("raw"), abs=1e-9)
    assert scores.brier("calibrated") == pytest.approx(whole.brier("calibrated"), abs=1e-9)
    table = np.array(events)
    served, happened = table[:, 1], table[:, 2]
    assert scores.mean("calibrated") == pytest.approx(served.mean(), abs=1e-9)
    assert scores.observed == pytest.approx(happened.mean())
    band = np.searchsorted(EDGES, served, side="right")
    expected = sum(abs((served - happened)[band == b].sum()) for b in range(BANDS)) / len(table)
    assert scores.error("calibrated") == pytest.approx(expected, abs=1e-8)


def test_largest_row_is_the_documented_one() -> None:
    middles = np.convolve([0.0, *EDGES, 1.0], [0.5, 0.5], "valid")
    scores = of([(float(p), float(p), 1.0) for p in middles])
    for window in range(1, 10):
        for _ in range(LEAST):
            scores.observe(0.5, 0.5, 1.0, window)
    assert len(SegmentScores().encode()) == 69
    assert len(scores.encode()) == 69 + 2 * BANDS * 32 + (RECENT + 1) * 28 == 1217


@pytest.mark.parametrize("kind", [SegmentScores, SegmentPairScores])
def test_a_segment_may_have_more_than_2_32_forecasts(kind: type[SegmentScores | SegmentPairScores]) -> None:
    scores = kind()
    scores.issued, scores.known, scores.expired = 2**33, 2**32, 2**34
    again = kind.decode(scores.encode())
    assert (again.issued, again.known, again.expired) == (2**33, 2**32, 2**34)


def test_a_band_of_a_segment_may_have_more_than_2_32_events() -> None:
    scores = SegmentScores()
    scores.count("raw", 3, Bin(2.0**33, 2.0**31, 2.0**32, 2.0**29, 0.0))
    assert SegmentScores.decode(scores.encode()).bands("raw")[3][:4] == (2.0**33, 2.0**31, 2.0**32, 2.0**29)


@given(st.lists(st.tuples(CHANCE, CHANCE, st.sampled_from([0.0, 1.0]), st.sampled_from([0.0, 1.0])), max_size=30))
def test_a_revised_label_leaves_no_trace_of_the_one_before(events: list[tuple[float, float, float, float]]) -> None:
    revised, window = SegmentScores(), 3
    for raw, p, was, _ in events:
        revised.observe(raw, p, was, window)
    for raw, p, was, y in events:
        revise([revised], raw, p, was, y, window)
    expected = SegmentScores()
    for raw, p, _, y in events:
        expected.observe(raw, p, y, window)
    assert revised.encode() == expected.encode()


def test_an_error_ranks_above_chance_however_few_events_chance_had() -> None:
    off = drawn(4000, 1, off=0.08)
    calm = [drawn(n, seed).excess("calibrated") for n in (1, 2, 5, 20, 100, 1000) for seed in range(40)]
    assert off.excess("calibrated") > 0.04
    assert sum(each > 0 for each in calm) <= len(calm) // 10
    assert sorted(calm)[-5] < off.excess("calibrated")


def test_the_evidence_of_an_error_grows_and_that_of_chance_does_not() -> None:
    level = math.log(1000.0)
    assert drawn(4000, 1, off=0.08).log_alarm("calibrated") > level
    assert sum(drawn(500, seed).log_alarm("calibrated") > level for seed in range(200)) == 0


def test_the_interval_of_the_mean_error_covers_it() -> None:
    intervals = [drawn(400, seed, off=0.05).off("calibrated") for seed in range(400)]
    covered = sum(low <= -0.05 <= high for _, low, high in intervals)
    assert 0.91 * 400 <= covered <= 0.98 * 400
    assert math.isnan(SegmentScores().off("raw").low)


def test_the_interval_of_the_mean_error_covers_it_where_one_one_is_expected() -> None:
    held = 0
    for seed in range(400):
        draw = random.Random(seed)
        found = of([(0.004, 0.004, float(draw.random() < 0.004)) for _ in range(250)]).off("calibrated")
        held += found.low <= 0.0 <= found.high
    assert held >= 0.85 * 400  # with the variance that was seen it was .64 of them


def test_auc_is_that_of_the_bands() -> None:
    scores = of([(0.05, 0.5, 0.0), (0.25, 0.5, 1.0), (0.26, 0.5, 0.0)])
    assert scores.auc("raw").value == 0.75
    assert scores.auc("calibrated").value == 0.5
