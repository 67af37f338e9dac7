"""The certificate beside the distance to calibration itself, found by trying every way to group a few events."""

import math
import random
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.scoring.cells import EDGES, FINE
from state.scoring.certificate import certificate
from state.scoring.ranking import Ranking
from state.scoring.scores import Kind, Scores

Event = tuple[float, float]

P = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.1, 0.2, 0.21, 0.25, 0.5, 0.8, 0.9, 1.0]))
LABEL = st.sampled_from([0.0, 1.0])
EVENTS = st.lists(st.tuples(P, LABEL), min_size=1, max_size=60)


def scored(events: Sequence[Event]) -> Scores:
    scores = Scores()
    for p, y in events:
        scores.observe(p, p, float(y))
    return scores


def certified(scores: Scores, kind: Kind = "raw") -> float:
    return certificate(scores.ranking(kind))


def groupings(events: Sequence[Event]) -> Iterator[list[list[Event]]]:
    if not events:
        yield []
        return
    first, *rest = events
    for grouping in groupings(rest):
        yield [[first], *grouping]
        for i, group in enumerate(grouping):
            yield [*grouping[:i], [first, *group], *grouping[i + 1 :]]


def cost(group: Sequence[Event]) -> float:
    share = sum(y for _, y in group) / len(group)
    return sum(abs(p - share) for p, _ in group)


def distance(events: Sequence[Event]) -> float:
    """Return the distance to calibration: the least over all forecasts that are calibrated, so over all groupings."""
    return min(sum(map(cost, grouping)) for grouping in groupings(events)) / len(events)


@given(st.lists(st.tuples(P, LABEL), min_size=1, max_size=7))
def test_certificate_is_never_below_the_distance_to_calibration(events: list[Event]) -> None:
    assert certified(scored(events)) >= distance(events) - 1e-12


@given(EVENTS)
def test_certificate_is_never_below_the_bias_nor_above_what_no_moves_would_cost(events: list[Event]) -> None:
    found = certified(scored(events))
    assert found >= abs(sum(p - y for p, y in events)) / len(events) - 1e-12
    ranking, edges = scored(events).ranking("raw"), (0.0, *EDGES, 1.0)
    width = stay = 0.0
    for c, (zeros, ones) in enumerate(zip(ranking.zeros, ranking.ones, strict=True)):
        width += (zeros + ones) * (edges[c + 1] - edges[c]) / 2
        stay += abs(ones - (zeros + ones) * (edges[c + 1] + edges[c]) / 2)
    used = sum(map(bool, map(sum, zip(ranking.zeros, ranking.ones, strict=True))))
    assert found * len(events) <= width + stay + used  # moves are rounded to whole events


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rate", [0.01, 0.2, 0.6, 0.97])
def test_honest_forecasts_are_certified_and_an_offset_is_found(rate: float, seed: int) -> None:
    rng = random.Random(seed)
    honest = [min(max(rng.gauss(rate, rate * (1 - rate) / 3), 0.0), 1.0) for _ in range(20_000)]
    events = [(p, int(rng.random() < p)) for p in honest]
    assert certified(scored(events)) < 0.02
    off = scored([(min(p + 0.1, 1.0), y) for p, y in events])
    least = sum(min(p + 0.1, 1.0) - y for p, y in events) / len(events)
    assert least <= certified(off) < least + 0.02


def test_errors_that_alternate_are_moved_and_not_paid() -> None:
    """Two neighbouring cells wrong by .1 in opposite directions are 1/50 apart, so the plan costs far less than .1."""
    scores = scored([(0.40, int(i < 500)) for i in range(1000)] + [(0.42, int(i < 320)) for i in range(1000)])
    assert certified(scores) < 0.03


def test_an_opponent_who_makes_ten_bins_wrong_by_half_cannot_make_the_distance_large() -> None:
    """Served just below one half before a one and just above before a zero: ECE .5, and calibrated at one half."""
    events = [(0.499, 1) if i % 2 else (0.501, 0) for i in range(2000)]
    assert scored(events).error("raw") == pytest.approx(0.5, abs=0.002)
    assert certified(scored(events)) < 0.03


def test_no_events_have_no_certificate() -> None:
    assert math.isnan(certificate(Ranking([0] * FINE, [0] * FINE)))
