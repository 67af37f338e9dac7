"""Tallies of windows: what is off is found, and atoms raise no alarm. Sums: `test_sums`, errors: `test_pair_scores`."""

import math
import random
import struct

import pytest

from state.forecasts import Normal, Probs
from state.scoring.tallies import LevelTally, TopTally

LEVELS = (0.1, 0.5, 0.9)
NORMAL = Normal(0.0, 1.0)
RAW = tuple(map(NORMAL.ppf, LEVELS))


def test_an_atom_raises_no_alarm() -> None:
    """95 % of the outcomes are 0, as the forecast says: they lie at or below its quantiles, and not below."""
    rng, tally, law = random.Random(5), LevelTally(LEVELS), (0.0, 0.0, 0.0)
    for _ in range(2000):
        tally.observe(law, law, 0.0 if rng.random() < 0.95 else 1.0)
    assert tally.error("raw") == 0.0
    assert tally.log_wealth("raw") < 0.0


@pytest.mark.parametrize("off", [-0.5, 0.5])
def test_quantiles_that_are_too_low_or_too_high_are_found(off: float) -> None:
    rng, tally = random.Random(6), LevelTally(LEVELS)
    for _ in range(500):
        tally.observe(RAW, [value + off for value in RAW], rng.gauss(0.0, 1.0))
    assert tally.log_wealth("raw") < math.log(20) < math.log(1000) < tally.log_wealth("calibrated")


def test_without_events_there_is_no_evidence_and_no_error() -> None:
    for tally in (LevelTally(LEVELS), TopTally()):
        assert tally.log_wealth("raw") == 0.0
        assert math.isnan(tally.error("raw"))
        assert math.isnan(tally.noise("raw"))


@pytest.mark.parametrize("events", [255, 65_536, 2**32, 2**40])
def test_tallies_are_read_again_however_many_events_there_were(events: int) -> None:
    levels, top = LevelTally(LEVELS), TopTally()
    levels.observe(RAW, RAW, 0.0)
    top.observe(Probs((0.75, 0.25)), Probs((0.75, 0.25)), 0)
    for tally in (levels, top):
        tally.sums = [events * each for each in tally.sums]
        payload = tally.encode()
        assert tally.decode(payload, 0) == (tally, len(payload))
        assert tally.n == events


def test_bins_that_there_are_not_are_refused() -> None:
    with pytest.raises(ValueError, match="have cells that there are not"):
        TopTally().decode(struct.pack("<I", 1 << 20), 0)
