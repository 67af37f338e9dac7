"""Scores of segments and challengers of classes and numbers: sums, and the figures that fuller scores have, too."""

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from state.forecasts import Classwise, Normal, Probs, Quantiles
from state.scoring.class_scores import ClassScores
from state.scoring.pair_scores import PairScores
from state.scoring.quantile_scores import QuantileScores
from state.scoring.recent import LEAST, RECENT, RecentLevels
from state.scoring.segment_pairs import (
    MOST,
    TOGETHER,
    SegmentPairScores,
    kept,
    observe_segments,
    revise_segments,
)
from state.scoring.windows import KINDS

LEVELS = (0.1, 0.5, 0.9)
Event = tuple[Probs | Normal, Classwise | Quantiles, float]


def classes(n: int, seed: int, lean: float = 0.0) -> list[Event]:
    """Return events of three classes; the likeliest one comes less often than was served, by ``lean``."""
    rng = random.Random(seed)
    made: list[Event] = []
    for _ in range(n):
        top = rng.uniform(0.5, 0.8)
        served = Classwise((top, (1.0 - top) * 0.6, (1.0 - top) * 0.4))
        u = rng.random()
        y = 0.0 if u < top - lean else 1.0 if u < 0.6 + 0.4 * top else 2.0
        made.append((Probs((0.6, 0.3, 0.1)), served, y))
    return made


def numbers(n: int, seed: int, shift: float = 0.0) -> list[Event]:
    """Return events whose outcomes lie higher than what was served, by ``shift`` deviations."""
    rng = random.Random(seed)
    law = Normal(0.0, 1.0)
    served = Quantiles(LEVELS, tuple(map(law.ppf, LEVELS)))
    return [(Normal(0.5, 2.0), served, rng.gauss(shift, 1.0)) for _ in range(n)]


def of(events: list[Event]) -> PairScores:
    scores = PairScores()
    for raw, served, y in events:
        scores.observe(raw, served, y)
    return scores


def test_figures_of_classes_are_those_of_the_streams_scores() -> None:
    events, whole = classes(400, 4), ClassScores(3)
    scores = of(events)
    for raw, served, y in events:
        whole.observe(raw, served, int(y))  # type: ignore[arg-type]  # classes
    for kind in KINDS:
        assert scores.error(kind) == pytest.approx(whole.error(kind))
        assert scores.accuracy(kind) == pytest.approx(whole.accuracy(kind))
        assert scores.loss("brier", kind) == pytest.approx(whole.brier(kind))
        assert scores.loss("log", kind) == pytest.approx(whole.log_loss(kind))
    for loss in ("brier", "log"):
        assert scores.difference(loss) == pytest.approx(whole.difference(loss))


def test_figures_of_numbers_are_those_of_the_streams_scores() -> None:
    events, whole = numbers(400, 5), QuantileScores(LEVELS)
    scores = of(events)
    for raw, served, y in events:
        whole.observe(raw, served, y)  # type: ignore[arg-type]  # numbers
    for kind in KINDS:
        assert scores.error(kind) == pytest.approx(whole.error(kind))
        assert scores.loss("pinball", kind) == pytest.approx(sum(whole.pinball(kind)) / len(LEVELS))
    assert scores.difference("pinball") == pytest.approx(whole.difference())
    assert math.isnan(scores.accuracy("raw"))


def test_what_is_off_is_found_with_its_level_and_an_interval_that_leaves_out_zero() -> None:
    off = of(numbers(2000, 6, shift=1.0)).off("calibrated")
    assert off.level == 0.5, "half the mass lies a deviation higher: the median is most off"
    assert off.by.value == pytest.approx(0.5 - 0.1587, abs=0.03)
    assert 0.0 < off.by.low < off.by.value < off.by.high
    lean = of(classes(2000, 7, lean=0.2)).off("calibrated")
    assert lean.level is None
    assert lean.by.value == pytest.approx(0.2, abs=0.04)
    assert lean.by.low > 0.1


def test_evidence_grows_only_where_forecasts_are_off() -> None:
    assert of(numbers(2000, 8)).log_alarm("calibrated") < math.log(1000) < of(numbers(2000, 8, 0.5)).log_alarm("raw")
    calm, broken = of(classes(2000, 9)), of(classes(2000, 9, lean=0.15))
    assert calm.log_alarm("calibrated") < math.log(1000) < broken.log_alarm("calibrated")
    assert calm.excess("calibrated") == 0.0 < broken.excess("calibrated")


def test_an_atom_that_covers_more_than_its_level_is_not_off() -> None:
    scores, rain = PairScores(), Quantiles((0.25, 0.5), (0.0, 0.0))
    for y in (0.0, 0.0, 0.0, 3.0):
        scores.observe(rain, rain, y)
    assert scores.error("calibrated") == 0.0
    assert scores.off("calibrated").by.value == 0.0


def test_rows_have_the_sizes_that_the_notes_say() -> None:
    everywhere = PairScores()
    for i in range(20):
        p = (i % 10 + 0.5) / 10.0
        everywhere.observe(Probs((p, 1.0 - p)), Classwise((p, 0.0)), 0.0)
        everywhere.observe(Probs((p, 1.0 - p)), Classwise((1.0 - p, 0.0)), 0.0)
    assert len(everywhere.encode()) <= 533
    wide = tuple((i + 1) / 257.0 for i in range(256))
    for m, most in ((7, 151), (256, 4135)):
        scores = PairScores()
        scores.observe(Normal(0.0, 1.0), Quantiles(wide[:m], wide[:m]), 0.5)
        assert len(scores.encode()) <= most


def test_scores_that_have_no_sum_are_refused() -> None:
    one, other = of(classes(3, 11)), of(numbers(3, 11))
    with pytest.raises(ValueError, match="have no sum"):
        one + other
    narrow = PairScores()
    narrow.observe(Normal(0.0, 1.0), Quantiles((0.1, 0.9), (-1.0, 1.0)), 0.0)
    with pytest.raises(ValueError, match="have no sum"):
        other + narrow
    with pytest.raises(ValueError, match="cannot take"):
        other.observe(Normal(0.0, 1.0), Quantiles((0.1, 0.9), (-1.0, 1.0)), 0.0)
    with pytest.raises(ValueError, match="cannot take"):
        one.observe(*numbers(1, 12)[0])


def in_windows(events: list[Event], each: int = 300) -> SegmentPairScores:
    """Return the scores of a segment that has so many events in each 5,000 of the stream."""
    scores = SegmentPairScores()
    for t, (raw, served, y) in enumerate(events):
        observe_segments([scores], raw, served, y, t * TOGETHER // each)
    return scores


@pytest.mark.parametrize("make", [classes, numbers])
def test_revised_labels_leave_no_trace_in_recent_windows(make: type) -> None:
    events: list[Event] = make(1500, 16)
    others = [y for _, _, y in make(1500, 17)]
    revised = in_windows(events)
    for t, ((raw, served, was), y) in enumerate(zip(events, others, strict=True)):
        revise_segments([revised], raw, served, was, y, t * TOGETHER // 300)
    expected = in_windows([(raw, served, y) for (raw, served, _), y in zip(events, others, strict=True)])
    assert revised.recent is not None
    assert expected.recent is not None
    assert revised.recent.encode() == expected.recent.encode()
    assert len(expected.recent.stretches()) == 5
    again = SegmentPairScores.decode(expected.encode())
    assert again == expected
    assert again.recent is not None
    assert again.recent.log_alarm() == expected.recent.log_alarm()


@pytest.mark.parametrize(("make", "mark"), [(classes, 2), (numbers, 1)])
def test_what_went_wrong_lately_is_found_and_what_was_mended_is_not(make: Callable[..., Any], mark: int) -> None:
    calm, broken = make(6000, 18), make(600, 19, 0.3)
    level = math.log(64_000)
    for events, off in (([*calm, *broken], True), ([*broken, *calm], False), (calm, False)):
        recent = in_windows(events).recent
        assert recent is not None
        evidence, stretch = recent.log_alarm()
        assert (evidence >= level) == off
        assert stretch is not None
        assert not off or (stretch.windows, stretch.mark) == (2, mark)


def test_of_many_classes_windows_keep_the_likeliest_and_of_many_levels_some() -> None:
    scores, p = SegmentPairScores(), [0.5 / MOST] * MOST
    observe_segments([scores], Probs((0.5, *p)), Classwise((0.5, *p)), 0.0, 0)
    assert scores.recent is not None
    assert scores.recent.marks == 1
    wide = tuple((i + 1) / 257.0 for i in range(256))
    assert len(kept(wide)) == MOST
    assert (kept(wide)[0], kept(wide)[-1], kept(LEVELS)) == (wide[0], wide[-1], LEVELS)
    many = SegmentPairScores()
    observe_segments([many], Normal(0.0, 1.0), Quantiles(wide, wide), 0.3, 0)
    assert isinstance(many.recent, RecentLevels)
    assert many.recent.levels == kept(wide)
    assert [many.recent.stretches(k)[0].y for k in range(MOST)] == [float(q > 0.3) for q in kept(wide)]


def test_rows_of_segments_have_the_sizes_that_the_notes_say() -> None:
    def recent(served: Classwise | Quantiles, raw: Any) -> int:
        scores = SegmentPairScores()
        for window in range(RECENT + 3):
            for _ in range(LEAST):
                observe_segments([scores], raw, served, 0.0, window * TOGETHER)
        return len(scores.encode()) - 44 - len(PairScores.encode(scores))

    wide = tuple((i + 1) / 257.0 for i in range(256))
    sizes = [recent(Classwise([1.0 / k] * k), Probs([1.0 / k] * k)) for k in (3, 8)]
    assert [44 + 693 + size for size in sizes] == [1535, 2435]
    sizes = [recent(Quantiles(wide[:m], wide[:m]), Normal(0.0, 1.0)) for m in (7, 256)]
    assert [44 + most + size for most, size in zip((348, 10308), sizes, strict=True)] == [974, 11006]
