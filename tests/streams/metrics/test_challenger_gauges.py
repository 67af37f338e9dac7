"""What a worker exports of challengers."""

import random

import pytest

from lab.scrape import ScrapedSamples
from state import kinds
from state.policies import Policies
from state.policy import Challenger, Policy
from state.scoring.comparison import LOSSES, Comparison
from streams.metrics.gauges import Gauges
from streams.metrics.snapshot import PartitionSnapshot
from tests.exposed import exposed
from tests.holding import holding

POLICY = Policy(shadow=(Challenger("platt", {}),))
CONFIG = POLICY.challengers[0].config
PLACE = ("s", POLICY.config, CONFIG)
LABELS = {"stream": "s", "calibrator": "platt", "config": CONFIG}


def compared(n: int, seed: int = 1) -> Comparison:
    rng, comparison = random.Random(seed), Comparison()
    for _ in range(n):
        p = rng.random()
        comparison.observe(p, (p + 1) / 2, float(rng.random() < p), p)
    return comparison


def gauges() -> Gauges:
    return Gauges(10, "0", lambda: (), Policies(default=POLICY))


def reading(told: Gauges) -> ScrapedSamples:
    return ScrapedSamples(exposed(told))


def held(**comparisons: Comparison) -> PartitionSnapshot:
    row = kinds.COMPARISON.encode
    return holding({kinds.COMPARISON.key(stream, *PLACE[1:]): row(each) for stream, each in comparisons.items()})


def shows(read: ScrapedSamples, whole: Comparison, labels: dict[str, str]) -> None:
    assert read.value("shadow_events", labels) == whole.n
    for loss in LOSSES:
        mean, error = whole.difference(loss)
        assert read.value("shadow_difference", labels | {"loss": loss}) == pytest.approx(mean)
        assert read.value("shadow_difference_error", labels | {"loss": loss}) == pytest.approx(error)


def test_both_sides_are_shown_over_all_partitions() -> None:
    told, one, other = gauges(), compared(300), compared(200, seed=2)
    told.assigned(0, held(s=one))
    told.assigned(1, held(s=other))
    shows(reading(told), one + other, LABELS)
    told.revoked(0)
    shows(reading(told), other, LABELS)


def test_comparison_of_no_events_has_a_count_and_no_figures() -> None:
    told = gauges()
    told.assigned(0, held(s=Comparison()))
    text = exposed(told)
    assert f'trueup_shadow_events{{stream="s",calibrator="platt",config="{CONFIG}"}} 0.0' in text
    assert "trueup_shadow_difference{" not in text
