"""Laws every calibrator keeps, and proof that a broken one breaks them."""

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.calibrators import REGISTRY, VECTORS, Answer, Calibrator, Recalibrator, kind, make
from state.calibrators.carried import CarriedOver
from state.calibrators.group_regret import GroupRegret
from state.forecasts import Classwise, ForecastValue, Law, Normal, Probs, Quantiles, decode, encode

SPECS = [
    *REGISTRY,
    "platt+minimax",
    "minimax+regret_matching",
    "platt+calibrated_regression",
    "platt+histogram+minimax",
    "prudent+certified",
    "prudent+certified by segment",
    "prudent by segment",
    "group_regret by segment",
    "prudent+certified carried",
    "platt+minimax carried",
]
#: Calibrators of classes and of numbers, with their options.
OF_VECTORS: dict[str, dict[str, Any]] = {
    **{name: {} for name in VECTORS},
    "multiclass, each minimax": {"each": "minimax"},
    "multiclass, each a composition": {"each": "platt+regret_matching"},
    "multiclass, each identity": {"each": "identity"},
    "multiclass by segment": {"each": "prudent"},
    "quantile, even steps": {"link": "identity", "rate": 1.0},
    "quantile, a range": {"levels": (0.001, 0.999), "low": 0.0, "high": 1.0},
    "quantile by segment": {},
}
FEATURES, CLASSES = 2, 3
Stream = list[tuple[Any, Any, float]]  # forecast, features, outcome


def events(*parts: st.SearchStrategy[Any], most: int) -> st.SearchStrategy[Stream]:
    return st.lists(st.tuples(*parts), min_size=1, max_size=most)


FORECASTS = st.sampled_from([0.0, 5e-324, 1e-9, 0.02, 0.5, 1 - 1e-16, 1.0]) | st.floats(0, 1)
WEIGHTS = st.lists(st.sampled_from([0.0, 5e-324, 1.0]) | st.floats(0, 1), min_size=CLASSES, max_size=CLASSES)
VALUES = st.lists(st.sampled_from([0.0, 0.0, 1.0, -1e100, 1e100]) | st.floats(-10, 10), min_size=3, max_size=3)
RULES: st.SearchStrategy[Law] = st.builds(Normal, st.floats(-10, 10), st.floats(1e-6, 1e6)) | VALUES.map(
    lambda values: Quantiles((0.05, 0.5, 0.9), tuple(sorted(values)))
)
STREAMS: dict[str, st.SearchStrategy[Stream]] = {
    "p": events(FORECASTS, st.tuples(*[st.floats(-1, 1)] * FEATURES), st.sampled_from([0.0, 1.0]), most=40),
    "probs": events(
        WEIGHTS.map(lambda weights: Classwise(weights).normalised()),
        st.just(()),
        st.integers(0, CLASSES - 1).map(float),
        most=25,
    ),
    "quantiles": events(RULES, st.just(()), st.sampled_from([0.0, 1.0, -1e300, 1e300]) | st.floats(-20, 20), most=25),
}
SIMPLE: dict[str, ForecastValue] = {"probs": Probs((0.5, 0.25, 0.25)), "quantiles": Normal(0.0, 1.0)}


class BySegment:
    """A calibrator whose events have segments, by their forecasts or keys."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def predict(self, p: Any, x: Sequence[float] = (), key: bytes = b"", *_: tuple[int, ...]) -> Answer[Any]:
        slot = sum(key) % 5 if not isinstance(p, float) else 0 if math.isnan(p) else int(7 * abs(p)) % 5
        answer: Answer[Any] = self._inner.predict(p, x, key, (slot, 64 + slot % 2))
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def kind_of(spec: str) -> str:
    return kind(spec.replace(",", "").partition(" ")[0]) if spec in OF_VECTORS else "p"


def fresh(spec: str, seed: int = 3) -> Any:
    """Make what a name, a composition, or either and ``by segment``, says."""
    options = dict(OF_VECTORS.get(spec, {}))
    spec, _, more = spec.partition(" ")
    if more == "carried":
        begun = CarriedOver(fresh(spec, seed))
        begun.carry(0.7, -1.5, 100)
        return begun
    if spec == "group_regret":
        return BySegment(GroupRegret(seed=seed))
    if any("features" in REGISTRY[part].options for part in spec.split("+") if part in REGISTRY):
        options["features"] = FEATURES
    made = make(spec.removesuffix(","), name="stream", seed=seed, **options)
    return BySegment(made) if more == "by segment" else made


def issue(calibrator: Recalibrator, stream: Stream, start: int = 0) -> list[Answer[float]]:
    return [calibrator.predict(p, x, b"event-%d" % t) for t, (p, x, _) in enumerate(stream, start)]


def learn(calibrator: Recalibrator, stream: Stream) -> list[Answer[float]]:
    """Predict and resolve one event after the other."""
    answers = []
    for t, (p, x, y) in enumerate(stream):
        answers.append(calibrator.predict(p, x, b"event-%d" % t))
        calibrator.update(answers[-1].ticket, y)
    return answers


def finite_everywhere(make_one: Callable[[], Calibrator], stream: Stream) -> None:
    calibrator = make_one()
    assert calibrator.error() is None
    assert calibrator.bound() is None
    for answer in learn(calibrator, stream):
        served: Any
        for served in answer[:2]:
            if isinstance(served, float):
                assert 0.0 <= served <= 1.0
            else:
                assert decode(encode(served)) == served
                assert all(map(math.isfinite, served.values if isinstance(served, Quantiles) else served))
    assert calibrator.learnt == len(stream)
    for measured in (calibrator.error(), calibrator.bound(), calibrator.bound(10)):
        assert measured is None or (math.isfinite(measured) and 0.0 <= measured <= 1.0)


def predict_changes_nothing(make_one: Callable[[], Calibrator], stream: Stream) -> None:
    calibrator = make_one()
    learn(calibrator, stream)
    before = calibrator.encode()
    assert issue(calibrator, stream) == issue(calibrator, stream)
    assert calibrator.encode() == before


def decoded_goes_on_identically(make_one: Callable[[], Calibrator], stream: Stream) -> None:
    calibrator, again = make_one(), make_one()
    learn(calibrator, stream)
    again.decode(calibrator.encode())
    assert again.encode() == calibrator.encode()
    assert again.learnt == calibrator.learnt
    assert (again.error(), again.bound(3)) == (calibrator.error(), calibrator.bound(3))
    assert learn(again, stream) == learn(calibrator, stream)
    assert again.encode() == calibrator.encode()


def same_events_give_the_same_bytes(make_one: Callable[[], Calibrator], stream: Stream) -> None:
    first, second = make_one(), make_one()
    assert learn(first, stream) == learn(second, stream)
    assert first.encode() == second.encode()


def order_of_outcomes_does_not_matter(make_one: Callable[[], Calibrator], stream: Stream) -> None:
    forward, backward = make_one(), make_one()
    if not forward.order_free:
        return
    tickets = [answer.ticket for answer in issue(forward, stream)]
    assert [answer.ticket for answer in issue(backward, stream)] == tickets
    # A second round is issued on a state that has moved, so that tickets differ from what would be played today.
    for calibrator in (forward, backward):
        learn(calibrator, stream)
    tickets += [answer.ticket for answer in issue(forward, stream, len(stream))]
    resolved = [(ticket, stream[t % len(stream)][2]) for t, ticket in enumerate(tickets)]
    for ticket, y in resolved:
        forward.update(ticket, y)
    for ticket, y in reversed(resolved):
        backward.update(ticket, y)
    assert issue(forward, stream) == issue(backward, stream)
    assert forward.encode() == backward.encode()


def revised_labels_count_as_if_they_had_come_first(make_one: Callable[[], Calibrator], stream: Stream) -> None:
    revised, right = make_one(), make_one()
    if not revised.order_free:
        return
    tickets = [answer.ticket for answer in issue(revised, stream)]
    for (_, _, y), ticket in zip(stream, tickets, strict=True):
        revised.update(ticket, 1.0 - y)
        right.update(ticket, y)
    for (_, _, y), ticket in zip(reversed(stream), reversed(tickets), strict=True):
        revised.revise(ticket, 1.0 - y, y)
    assert revised.encode() == right.encode()
    assert issue(revised, stream) == issue(right, stream)


def revised_and_revised_back_serves_probabilities(make_one: Callable[[], Calibrator], stream: Stream) -> None:
    calibrator = make_one()
    answers = learn(calibrator, stream)
    for was in (1.0, 0.0):
        for (_, _, y), answer in zip(stream, answers, strict=True):
            before, after = (y, 1.0 - y) if was else (1.0 - y, y)
            calibrator.revise(answer.ticket, before, after)
            assert 0.0 <= calibrator.predict(0.3).p <= 1.0
            again = make_one()
            again.decode(calibrator.encode())
            assert again.predict(0.3) == calibrator.predict(0.3), "a restart changes no answer"
    assert calibrator.learnt == len(stream)
    assert again.encode() == calibrator.encode()


def refuses_what_is_out_of_range(make_one: Callable[[], Calibrator], stream: Stream) -> None:
    calibrator = make_one()
    learn(calibrator, stream)
    before = calibrator.encode()
    ticket = issue(calibrator, stream)[0].ticket
    probability = isinstance(stream[0][0], float)
    for p in (-0.1, 1.1, math.nan) if probability else ():
        with pytest.raises(ValueError, match="must be"):
            calibrator.predict(p)
    for y in (-0.1, 1.1, math.nan) if probability else (math.nan, math.inf, -math.inf):
        with pytest.raises(ValueError, match="must be"):
            calibrator.update(ticket, y)
        with pytest.raises(ValueError, match="must be"):
            calibrator.revise(ticket, 1.0, y)
    for payload in (b"", before + b"\0", before[:-1]):
        with pytest.raises(ValueError, match="state of"):
            make_one().decode(payload)
    assert calibrator.encode() == before


LAWS = [
    finite_everywhere,
    predict_changes_nothing,
    decoded_goes_on_identically,
    same_events_give_the_same_bytes,
    order_of_outcomes_does_not_matter,
    revised_labels_count_as_if_they_had_come_first,
    revised_and_revised_back_serves_probabilities,
    refuses_what_is_out_of_range,
]


#: Laws whose revisions are of outcomes 0 and 1.
BINARY = (revised_labels_count_as_if_they_had_come_first, revised_and_revised_back_serves_probabilities)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("spec", [*SPECS, *OF_VECTORS])
def test_law(spec: str, law: Callable[[Callable[[], Calibrator], Stream], None]) -> None:
    if spec in OF_VECTORS and law in BINARY:
        return

    @given(STREAMS[kind_of(spec)])
    def holds(stream: Stream) -> None:
        law(lambda: fresh(spec), stream)

    holds()


@pytest.mark.parametrize("spec", OF_VECTORS)
def test_size_is_bounded(spec: str) -> None:
    rng, calibrator = random.Random(11), fresh(spec)
    for t in range(1500):
        ticket = calibrator.predict(SIMPLE[kind_of(spec)], (), b"%d" % t).ticket
        assert len(ticket) < 250
        calibrator.update(ticket, float(rng.randrange(CLASSES)))
    assert len(calibrator.encode()) < 24_000 * CLASSES


@pytest.mark.parametrize("spec", [spec for spec in SPECS if not fresh(spec).order_free])
def test_one_revision_in_a_hundred_moves_what_is_served_little(spec: str) -> None:
    """Against a calibrator that had the right labels from the beginning; 6,000 events, outcomes 50 events late."""
    rng = random.Random(5)
    stream = [(rng.random(), (0.0, 0.0), 0.0) for _ in range(6000)]
    stream = [(p, x, float(rng.random() < 0.2 + 0.5 * p)) for p, x, _ in stream]
    revised, right = fresh(spec), fresh(spec)
    tickets: list[bytes] = []
    wrong = {t: 1.0 - y for t, (_, _, y) in enumerate(stream) if rng.random() < 0.01}
    for t, (p, x, y) in enumerate(stream):
        tickets.append(revised.predict(p, x, b"%d" % t).ticket)
        right.update(right.predict(p, x, b"%d" % t).ticket, y)
        if t >= 50:
            revised.update(tickets[t - 50], wrong.get(t - 50, stream[t - 50][2]))
        if t >= 500 and t - 500 in wrong:
            revised.revise(tickets[t - 500], wrong[t - 500], stream[t - 500][2])
    points = [k / 20 for k in range(1, 20)]
    off = [abs(revised.predict(p, (0.0, 0.0)).p - right.predict(p, (0.0, 0.0)).p) for p in points]
    # Alone behind forecasts that are far off, it serves now one and now another of the places that have been right.
    assert sum(off) / len(off) < (0.1 if spec == "certified" else 0.05)
