"""Bands and points: definition, order, the volume that is kept, what is counted, and what an answer says for ever."""

from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state import banding, kinds
from state.banding import RATE, Thresholds
from state.bands import Bands, Points
from state.events import Calibrated, Forecast, Outcome
from state.odds import cut_log_odds
from state.policies import Policies
from state.policy import Policy
from state.scoring.band_counts import ISSUED, KNOWN, ONES, BandCounts, worth
from tests.state.histories import STEADY, Worker

FIXED = Bands(("pass", "review", "block"), (0.0, 0.02, 0.3))
SHARES = Bands(("", "review", "block"), shares=(0.2, 0.05))
HELD = replace(FIXED, hold=True)
CARD = Points(600, 50, 20)
CHANCES = st.floats(0.0, 1.0) | st.sampled_from([0.0, 5e-324, 0.02, 0.3, 1.0])

# -- definition and order ----------------------------------------------------------------------------------------------


@given(CHANCES)
def test_the_band_is_the_highest_that_begins_at_the_probability_or_below(p: float) -> None:
    assert FIXED.place(p) == sum(p >= low for low in (0.02, 0.3))


@given(st.lists(CHANCES, min_size=2, max_size=2), st.lists(st.tuples(CHANCES, CHANCES), max_size=30))
def test_forecasts_of_one_moment_are_in_order(pair: list[float], before: list[tuple[float, float]]) -> None:
    low, high = sorted(pair)
    for bands in (SHARES, HELD):
        thresholds = Thresholds.of(bands)
        for raw, p in before:
            thresholds.place(bands, raw, p)
        one, other = (Thresholds.decode(thresholds.encode()).place(bands, 0.5, p)[1] for p in (low, high))
        assert one <= other
    assert FIXED.place(low) <= FIXED.place(high)
    assert CARD.of(low) >= CARD.of(high)
    assert Points(600, 50, -20).of(low) <= Points(600, 50, -20).of(high)


def test_points_are_those_of_the_scorecard() -> None:
    """Siddiqi's example: 600 points at 50 to 1, 20 to double; factor 28.8539 and offset 487.123."""
    assert [CARD.of(1 / (1 + odds)) for odds in (50, 100, 25, 1)] == [600, 620, 580, 487]
    for z in range(-8, 8):
        p = 1 / (1 + 2.0**z)
        assert CARD.of(p) == round(487.123 + 28.8539 * z * 0.693147)


# -- volumes -----------------------------------------------------------------------------------------------------------


def _flood(rng: Random, n: int) -> list[tuple[float, float]]:
    """Return raw forecasts and answers whose scale jumps, with ties, exact zeros and ones."""
    made = []
    for t in range(n):
        raw = rng.choice((rng.random(), 0.25, 0.0, 1.0))
        made.append((raw, raw ** (1 + 9 * (t // 500 % 2))))
    return made


@pytest.mark.parametrize("bands", [SHARES, HELD], ids=["shares", "hold"])
def test_the_number_in_a_band_is_what_was_wanted_but_for_how_far_the_threshold_moved(bands: Bands) -> None:
    thresholds, wanted, got = Thresholds.of(bands), [0.0, 0.0], [0, 0]
    began: list[float] = thresholds.at[:]
    for t, (raw, p) in enumerate(_flood(Random(5), 6000)):
        if t == 20 / 0.05:  # from then on the step is the last one
            began, wanted, got = thresholds.at[:], [0.0, 0.0], [0, 0]
        before, now = thresholds.place(bands, raw, p)
        for k in range(2):
            got[k] += now > k
            wanted[k] += bands.shares[k] if bands.shares else before > k
    for k in range(2):
        assert got[k] - wanted[k] == pytest.approx((thresholds.at[k] - began[k]) / RATE, abs=1e-6)


@STEADY
@given(st.lists(st.tuples(st.sampled_from([0.0, 1e-9, 0.5, 1.0]), st.integers(1, 3000)), max_size=8))
def test_no_sequence_brings_a_thousand_more_or_less(runs: list[tuple[float, int]]) -> None:
    thresholds, off = Thresholds.of(SHARES), [0.0, 0.0]
    for p, n in runs:
        for _ in range(n):
            now = thresholds.place(SHARES, p, p)[1]
            off = [each + (now > k) - SHARES.shares[k] for k, each in enumerate(off)]
    assert max(map(abs, off)) < 1000


def test_a_held_volume_serves_the_configured_bands_while_raw_scores_are_served() -> None:
    thresholds, rng = Thresholds.of(HELD), Random(3)
    for _ in range(500):
        p = rng.random()
        assert thresholds.place(HELD, p, p) == (FIXED.place(p),) * 2
    assert thresholds.at == [cut_log_odds(0.02), cut_log_odds(0.3)]


def test_a_change_of_calibration_brings_twenty_more_for_each_unit_of_log_odds() -> None:
    thresholds, rng, more = Thresholds.of(HELD), Random(3), 0
    for t in range(20_000):
        raw = rng.betavariate(1, 20)
        p = raw if t < 10_000 else raw * 2.7183 / (1 + raw * 1.7183)  # log-odds one higher
        before, now = thresholds.place(HELD, raw, p)
        more += (now > 0) - (before > 0)
    assert 15 < more < 25


def test_thresholds_of_partitions_are_joined_between_them() -> None:
    joined = Thresholds([0.0, 2.0], 100) + Thresholds([1.0, 4.0], 300)
    assert (joined.at, joined.n) == ([0.75, 3.5], 400)
    assert (Thresholds([1.0], 0) + Thresholds([2.0], 0)).at == [1.0]


# -- counts ------------------------------------------------------------------------------------------------------------


def test_a_band_is_worth_what_its_labels_say() -> None:
    found = worth(known=[90, 8, 2], ones=[1, 2, 1], band=1, costs=(100.0, 3.0))
    assert (found.precision, found.recall, found.false_alarms, found.cost) == (0.25, 0.75, 3.0, 100.0 + 30.0)
    assert worth([0, 0], [0, 0], 1, None) == (None, None, None, None)


def _counted(shares: list[float], rates: list[float], rng: Random, n: int = 2000) -> BandCounts:
    counts = BandCounts(2)
    for day, (share, rate) in enumerate(zip(shares, rates, strict=True), 1):
        for _ in range(n):
            counts.issue(0, int(rng.random() < share), day)
            counts.resolve(0, 0, 1, int(rng.random() < rate), day)
    counts.issue(0, 0, len(shares) + 1)
    return counts


def test_a_share_moves_only_beyond_chance_and_without_evidence() -> None:
    rng = Random(11)
    level, rate = [0.02] * 10, [0.01] * 11
    assert _counted([*level, 0.06], rate, rng).moved(1, 1) == pytest.approx(3.0, rel=0.3)
    assert _counted([*level, 0.005], rate, rng, 6000).moved(1, 1) < 0.5
    assert _counted([*level, 0.06], [*rate[:-1], 0.04], rng).moved(1, 1) == 1.0, "the outcomes went with it"
    assert _counted([*level, 0.06], rate, rng).moved(1, 0) == 1.0, "of the lowest band the others say it"
    assert _counted([0.01, 0.05] * 5 + [0.06], rate, rng).moved(1, 1) == 1.0, "such days were there before"
    assert _counted([*level[:5], 0.06], rate[:6], rng).moved(1, 1) == 1.0, "too few days"
    assert {_counted([0.02] * 11, rate, rng).moved(1, 1) for _ in range(30)} == {1.0}


# -- the engine --------------------------------------------------------------------------------------------------------


class Fed:
    """A worker of one stream, and what it answers."""

    def __init__(self, policy: Policy) -> None:
        self.worker, self.offsets = Worker(Policies([("s", policy)])), [0, 0]

    def forecast(self, event_id: str, p: float, ts: int = 1000, **more: Any) -> Calibrated:
        self.offsets[0] += 1
        event = Forecast(self.offsets[0], b"s", event_id, "s", p, (), ts, **more)
        (answer,) = self.worker.fold(event).outputs
        assert isinstance(answer, Calibrated)
        return answer

    def outcome(self, event_id: str, y: float, ts: int = 2000) -> None:
        self.offsets[1] += 1
        self.worker.fold(Outcome(self.offsets[1], b"s", event_id, y, ts))

    def counts(self, policy: Policy, layout: bytes = kinds.WHOLE[0], slot: int = kinds.WHOLE[1]) -> BandCounts:
        assert policy.bands is not None
        return kinds.BAND_COUNTS.decode(
            self.worker.table[kinds.BAND_COUNTS.key("s", policy.bands.layout, layout, slot)]
        )


def test_an_answer_has_its_band_and_points_and_keeps_them_when_it_is_sent_again() -> None:
    fed = Fed(Policy("identity", bands=FIXED, points=CARD))
    first = [fed.forecast(f"e{n}", p) for n, p in enumerate((0.0, 0.02, 0.5))]
    assert [(each.band, each.points) for each in first] == [("pass", 1085), ("review", CARD.of(0.02)), ("block", 487)]
    # Another configuration, and thresholds that have moved: what was said is said again.
    fed.worker = Worker(Policies([("s", Policy("identity", bands=SHARES))]), fed.worker.table)
    assert [fed.forecast(f"e{n}", p) for n, p in enumerate((0.0, 0.02, 0.5))] == first
    moved = [fed.forecast(f"f{n}", 0.2) for n in range(200)]
    assert {each.band for each in moved} == {"", "review", "block"}
    assert [fed.forecast(f"f{n}", 0.2) for n in range(200)] == moved
    assert all(each.points is None for each in moved)


def test_labels_count_in_the_bands_of_their_answer() -> None:
    policy = Policy("identity", bands=FIXED, segments=("country",), unlabelled="alike")
    fed = Fed(policy)
    for n in range(6):
        fed.forecast(f"e{n}", (0.0, 0.02, 0.5)[n % 3], segments=(("DE", "FR")[n % 2],))
    for n in range(4):
        fed.outcome(f"e{n}", float(n % 3 > 0))
    fed.outcome("e2", 0.0, 3000)
    fed.outcome("e2", 0.0, 4000)
    counts = fed.counts(policy)
    for kind in (0, 1):
        assert [counts.of(kind, what) for what in (ISSUED, KNOWN, ONES)] == [[2, 2, 2], [2, 1, 1], [0, 1, 0]]
    by_segment = [fed.counts(policy, policy.layout, slot) for slot in (2, 3)]
    assert [each.of(1, ISSUED) for each in by_segment] == [[1, 1, 1]] * 2
    assert (by_segment[0] + by_segment[1]).sums == counts.sums
    assert not by_segment[0]._days


def test_bands_of_labels_that_somebody_chose_are_worth_what_they_are_among_all_forecasts() -> None:
    # Above .4 every forecast is labelled, below one in ten; one in four comes true above and one in twenty below.
    policy = Policy("identity", bands=FIXED, label_rate="chance")
    fed, rng, true = Fed(policy), Random(5), [[0, 0] for _ in range(2)]
    for n in range(6000):
        high, y = n % 3 == 0, 0.0
        y = float(rng.random() < (0.25 if high else 0.05))
        true[high][int(y)] += 1
        fed.forecast(f"e{n}", 0.45 if high else 0.28, chance=1.0 if high else 0.1)
        if high or rng.random() < 0.1:
            fed.outcome(f"e{n}", 1.0 - y if n % 7 else y)
            fed.outcome(f"e{n}", y, 3000)
    counts = fed.counts(policy)
    known, ones = counts.of(1, KNOWN), counts.of(1, ONES)
    assert known[2] == sum(true[1])
    assert known[1] == pytest.approx(sum(true[0]), rel=0.1)
    every = true[0][1] + true[1][1]
    found = worth(known, ones, 2, (100.0, 1.0))
    assert found.precision == true[1][1] / sum(true[1])
    assert found.recall == pytest.approx(true[1][1] / every, rel=0.1), "of the labels alone it would be .96"
    assert found.cost == pytest.approx(100 * true[0][1] + sum(true[1]), rel=0.2)


def test_without_bands_there_are_points_alone() -> None:
    fed = Fed(Policy("identity", points=CARD))
    answers = [fed.forecast("e", 0.5), fed.forecast("e", 0.5), fed.forecast("f", 0.5)]
    fed.outcome("e", 1.0)
    assert {(each.band, each.points) for each in answers} == {("", 487)}
    assert not fed.worker.table.of(kinds.BAND_COUNTS.letter)


def test_a_share_of_the_answers_of_a_default_calibrator_is_kept() -> None:
    fed, rng, bands = Fed(Policy(bands=SHARES)), Random(8), list[str]()
    for n in range(2000):
        p = rng.betavariate(1, 3)
        bands.append(fed.forecast(f"e{n}", p, 1000 + n).band)
        fed.outcome(f"e{n}", float(rng.random() < p / 4), 1000 + n)
    last = bands[1000:]
    assert sum(each != "" for each in last) / len(last) == pytest.approx(0.2, abs=0.02)
    assert last.count("block") / len(last) == pytest.approx(0.05, abs=0.02)


# -- configuration -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bands", "points", "interval", "model_version"])
@pytest.mark.parametrize("calibrator", ["quantile", "multiclass"])
def test_only_probabilities_have_bands_points_intervals_and_versions(name: str, calibrator: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: only of one probability, and {calibrator} serves"):
        Policy(calibrator, **{name: {"bands": FIXED, "points": CARD, "interval": 0.9, "model_version": "v"}[name]})  # type: ignore[arg-type]  # by its name


def test_other_bands_have_other_counts() -> None:
    others = [FIXED, HELD, SHARES, replace(FIXED, lows=(0.0, 0.02, 0.4)), replace(FIXED, names=("a", "b", "c"))]
    assert len({each.layout for each in others}) == len(others)
    assert all(one.layout == other.layout for one, other in pairwise([FIXED, replace(FIXED)]))
    assert banding.FIRST > RATE
