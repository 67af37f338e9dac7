"""The calibrators' bench: when a payment is learnt, with which label, and what a Platt map of every night serves."""

from dataclasses import replace

import numpy as np
import pytest

from lab import fraud
from lab.fraud import START_MS, Fraud, Reports, Shape
from state import calibrators
from state.scoring.ages import DAY_MS
from tests.bench.fraud import corrected
from tests.bench.matured import nightly, play, schedule

SHAPE = Shape(rows=3000, rate=0.05, inflation=5, missed=0.1, alarms=0.1)


def few(reports: list[tuple[int, int, float]]) -> Fraud:
    """Return three payments of days 0, 1 and 2, and reports of row, label and day."""
    row, y, day = np.array(reports).T
    made = fraud.make(Shape(rows=3))
    return replace(
        made,
        forecast_ms=START_MS + np.arange(3) * DAY_MS,
        reports=Reports(row.astype(int), y.astype(int), (START_MS + day * DAY_MS).astype(np.int64), row.astype(int)),
    )


def test_a_payment_is_learnt_when_it_matures_and_revised_when_something_else_is_said() -> None:
    stream = few([(0, 1, 2), (1, 1, 3), (1, 0, 4), (2, 1, 13), (0, 1, 14), (0, 0, 15)])
    events = schedule(stream, 10)
    told = list(zip(events.kind, events.row, events.y, strict=True))
    assert told == [(1, 0, 0), (1, 1, 0), (1, 2, 0), (0, 0, 1), (0, 1, 0), (0, 2, 0), (2, 2, 1), (2, 0, 0)]
    assert len(schedule(stream, 10, until_ms=START_MS + 5 * DAY_MS).kind) == 3


def test_silence_and_zeros_that_are_said_give_the_same_schedule() -> None:
    silent, said = (schedule(fraud.make(each), 45) for each in (SHAPE, replace(SHAPE, zeros="explicit")))
    assert (silent.kind, silent.row, silent.y) == (said.kind, said.row, said.y)
    assert (np.array(silent.at) == 0).sum() > (np.array(said.at) == 0).sum()


def test_corrections_lead_a_counting_calibrator_to_the_corrected_labels() -> None:
    stream = fraud.make(SHAPE)
    revised, right = (
        play(calibrators.make("histogram"), each, schedule(each, 45)) for each in (stream, corrected(stream))
    )
    assert revised.state == right.state
    assert not np.array_equal(revised.p, right.p)


def test_nothing_is_served_but_the_raw_scores_before_the_first_payment_matures() -> None:
    stream = fraud.make(SHAPE)
    events = schedule(stream, 45)
    match, rival = play(calibrators.make("platt"), stream, events), nightly(stream, events)
    young = stream.days < 45
    np.testing.assert_allclose(match.p[young], stream.raw[young])
    np.testing.assert_array_equal(rival[young], stream.raw[young])


def test_the_map_of_every_night_is_near_the_truth() -> None:
    stream = fraud.make(replace(SHAPE, rows=20_000, drift=0.0))
    rival = nightly(stream, schedule(stream, 45))
    late = stream.days > 100
    assert rival[late].mean() == pytest.approx(stream.truth[late].mean(), rel=0.1)
    before, after = (np.log(p[late] / (1 - p[late])) for p in (stream.raw, rival))
    slope = np.polyfit(before, after, 1)[0]
    assert slope == pytest.approx(1 / 1.2, rel=0.1)
