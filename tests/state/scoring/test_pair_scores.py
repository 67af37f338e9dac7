"""Scores of segments and challengers of classes and numbers: sums, and the figures that fuller scores have, too."""

import math
import random

import pytest

from state import rows
from state.forecasts import Classwise, Normal, Probs, Quantiles
from state.frames import CorruptFrame, seal
from state.scoring.class_scores import ClassScores
from state.scoring.comparison import Comparison
from state.scoring.history import KINDS
from state.scoring.pair_scores import PairScores, SegmentPairScores, compare, observe, of_challenger, of_segment
from state.scoring.quantile_scores import QuantileScores
from state.scoring.segment_scores import SegmentScores

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
        y = 0.0 if u < top - lean else 1.0 if u < 0.9 else 2.0
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


@pytest.mark.parametrize("make", [classes, numbers])
def test_scores_of_parts_add_up_to_those_of_the_whole(make: type) -> None:
    events: list[Event] = make(300, 1)
    whole, one, other = of(events), of(events[:100]), of(events[100:])
    assert (one + other).tally == whole.tally
    assert (one + other).sums == pytest.approx(whole.sums)
    assert (whole - other).tally == one.tally
    assert (whole - other).sums == pytest.approx(one.sums)
    assert PairScores() + whole == whole == whole + PairScores() == whole - PairScores()
    assert whole - whole == PairScores()


def test_a_revised_class_leaves_no_trace() -> None:
    events = classes(50, 2)
    scores = of(events)
    raw, served, y = events[7]
    scores.observe(raw, served, y, -1)
    scores.observe(raw, served, 2.0)
    assert scores.encode() == of([*events[:7], (raw, served, 2.0), *events[8:]]).encode()


@pytest.mark.parametrize("make", [classes, numbers])
def test_taking_out_every_event_leaves_nothing(make: type) -> None:
    events: list[Event] = make(40, 3)
    scores = of(events)
    for raw, served, y in events:
        scores.observe(raw, served, y, -1)
    assert scores == PairScores()
    assert scores.encode() == b"\0"


def test_figures_of_classes_are_those_of_the_streams_scores() -> None:
    events, whole = classes(400, 4), ClassScores(3)
    scores = of(events)
    for raw, served, y in events:
        whole.observe(raw, served, int(y))  # type: ignore[arg-type]  # classes
    for kind in KINDS:
        assert scores.error(kind) == pytest.approx(whole.top_label_ece(kind))
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


@pytest.mark.parametrize("scores", [of(classes(30, 10)), of(numbers(30, 10)), PairScores()])
def test_bytes_are_read_as_they_were_written(scores: PairScores) -> None:
    assert PairScores.decode(scores.encode()) == scores
    segment = SegmentPairScores.decode(bytes(20) + scores.encode())
    assert segment.encode() == bytes(20) + scores.encode()
    assert rows.decode_comparison(rows.encode_comparison(scores)) == scores
    assert rows.decode_segment(rows.encode_segment(segment)) == segment


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


@pytest.mark.parametrize("payload", [b"", b"\3", b"\1", of(numbers(3, 13)).encode()[:-1], b"\2\0\0", b"\0\0"])
def test_damaged_bytes_are_refused(payload: bytes) -> None:
    with pytest.raises(CorruptFrame):
        rows.decode_comparison(seal(ord("H"), rows.PAIRS_VERSION, payload))


def test_several_segments_take_an_event_at_once() -> None:
    together, alone = [SegmentPairScores(), SegmentPairScores()], SegmentPairScores()
    raw, served, y = classes(1, 14)[0]
    observe(together, raw, served, y)
    alone.observe(raw, served, y)
    assert together == [alone, alone]


def test_what_is_kept_follows_the_kind_of_forecast() -> None:
    assert [type(of_segment(kind)) for kind in range(3)] == [SegmentScores, SegmentPairScores, SegmentPairScores]
    assert [type(of_challenger(kind)) for kind in range(3)] == [Comparison, PairScores, PairScores]
    plain, pair = Comparison(), PairScores()
    compare(plain, 0.25, 0.5, 1.0, 0.375)
    compare(pair, *classes(1, 15)[0])
    assert (plain.n, pair.n) == (1, 1)
    compare(plain, 0.25, 0.5, 1.0, 0.375, -1)
    assert plain == Comparison()
