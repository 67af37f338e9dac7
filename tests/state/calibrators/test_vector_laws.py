"""Laws of the calibrators whose forecast is not one probability: those of the others, with forecasts of their kind."""

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.calibrators import VECTORS, Recalibrator, make
from state.forecasts import Classwise, ForecastValue, Law, Normal, Probs, Quantiles, decode, encode
from tests.state.calibrators.test_laws import (
    decoded_goes_on_identically,
    issue,
    learn,
    order_of_outcomes_does_not_matter,
    predict_changes_nothing,
    same_events_give_the_same_bytes,
)

CLASSES = 3
SPECS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in VECTORS),
    ("multiclass", {"each": "minimax"}),
    ("multiclass", {"each": "platt+regret_matching"}),
    ("multiclass", {"each": "identity"}),
    ("quantile", {"link": "identity", "rate": 1.0}),
    ("quantile", {"levels": (0.001, 0.999), "low": 0.0, "high": 1.0}),
    ("quantile by segment", {}),
    ("multiclass by segment", {"each": "prudent"}),
]
Stream = Any  # a list of forecast, features, outcome; the laws of one probability are typed for their own

WEIGHTS = st.lists(st.sampled_from([0.0, 5e-324, 1.0]) | st.floats(0, 1), min_size=CLASSES, max_size=CLASSES)
VALUES = st.lists(st.sampled_from([0.0, 0.0, 1.0, -1e100, 1e100]) | st.floats(-10, 10), min_size=3, max_size=3)
LAWS: st.SearchStrategy[Law] = st.builds(Normal, st.floats(-10, 10), st.floats(1e-6, 1e6)) | VALUES.map(
    lambda values: Quantiles((0.05, 0.5, 0.9), tuple(sorted(values)))
)
OUTCOMES = st.sampled_from([0.0, 1.0, -1e300, 1e300]) | st.floats(-20, 20)
STREAMS: dict[str, st.SearchStrategy[Stream]] = {
    "probs": st.lists(
        st.tuples(
            WEIGHTS.map(lambda weights: Classwise(weights).normalised()),
            st.just(()),
            st.integers(0, CLASSES - 1).map(float),
        ),
        min_size=1,
        max_size=25,
    ),
    "quantiles": st.lists(st.tuples(LAWS, st.just(()), OUTCOMES), min_size=1, max_size=25),
}
SIMPLE: dict[str, ForecastValue] = {"probs": Probs((0.5, 0.25, 0.25)), "quantiles": Normal(0.0, 1.0)}


class BySegment:
    """A calibrator whose events have segments, by their keys."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def predict(self, forecast: Any, x: Sequence[float] = (), key: bytes = b"") -> Any:
        slot = sum(key) % 5
        return self._inner.predict(forecast, x, key, (slot, 64 + slot % 2))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def fresh(spec: str, **options: Any) -> Any:
    """Make what a name, or a name and ``by segment``, says."""
    spec, _, segments = spec.partition(" ")
    made = make(spec, name="stream", seed=3, **options)
    return BySegment(made) if segments else made


def kind_of(spec: str) -> str:
    return VECTORS[spec.partition(" ")[0]].kind


def serves_what_can_be_stored(make_one: Callable[[], Recalibrator], stream: Stream) -> None:
    for answer in learn(make_one(), stream):
        served: Any
        for served in answer[:2]:
            assert decode(encode(served)) == served
            numbers = served.values if isinstance(served, Quantiles) else served
            assert all(map(math.isfinite, numbers))


def finite_everywhere(make_one: Callable[[], Recalibrator], stream: Stream) -> None:
    calibrator = make_one()
    assert calibrator.error() is None
    assert calibrator.bound() is None
    learn(calibrator, stream)
    assert calibrator.learnt == len(stream)
    for measured in (calibrator.error(), calibrator.bound(), calibrator.bound(10)):
        assert measured is None or (math.isfinite(measured) and 0.0 <= measured <= 1.0)


def refuses_what_is_out_of_range(make_one: Callable[[], Recalibrator], stream: Stream) -> None:
    calibrator = make_one()
    learn(calibrator, stream)
    before = calibrator.encode()
    ticket = issue(calibrator, stream)[0].ticket
    for y in (math.nan, math.inf, -math.inf):
        with pytest.raises(ValueError, match="must be"):
            calibrator.update(ticket, y)
    for payload in (b"", before + b"\0", before[:-1]):
        with pytest.raises(ValueError, match="state of"):
            make_one().decode(payload)
    assert calibrator.encode() == before


LAWS_OF_ALL: list[Callable[[Any, Any], None]] = [
    serves_what_can_be_stored,
    finite_everywhere,
    refuses_what_is_out_of_range,
    predict_changes_nothing,
    decoded_goes_on_identically,
    same_events_give_the_same_bytes,
    order_of_outcomes_does_not_matter,
]


@pytest.mark.parametrize("spec", VECTORS)
def test_made_calibrator_has_the_name_it_was_made_by(spec: str) -> None:
    assert make(spec).name == spec


@pytest.mark.parametrize("law", LAWS_OF_ALL)
@pytest.mark.parametrize(("spec", "options"), SPECS)
def test_law(spec: str, options: dict[str, Any], law: Callable[[Any, Any], None]) -> None:
    @given(STREAMS[kind_of(spec)])
    def holds(stream: Stream) -> None:
        law(lambda: fresh(spec, **options), stream)

    holds()


@pytest.mark.parametrize(("spec", "options"), SPECS)
def test_size_is_bounded(spec: str, options: dict[str, Any]) -> None:
    rng, calibrator = random.Random(11), fresh(spec, **options)
    for t in range(1500):
        ticket = calibrator.predict(SIMPLE[kind_of(spec)], (), b"%d" % t).ticket
        assert len(ticket) < 250
        calibrator.update(ticket, float(rng.randrange(CLASSES)))
    assert len(calibrator.encode()) < 24_000 * CLASSES
