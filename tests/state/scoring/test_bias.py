"""Bias along features."""

import math
import random

import pytest

from state.calibrators import make
from state.scoring.bias import Bias
from state.scoring.windows import KINDS


def observed(n: int, d: int = 3, seed: int = 1) -> Bias:
    rng, bias = random.Random(seed), Bias()
    for _ in range(n):
        bias.observe([rng.uniform(-1, 1) for _ in range(d)], rng.random(), rng.random(), float(rng.random() < 0.5))
    return bias


def test_bias_is_the_correlation_of_a_feature_with_the_error() -> None:
    rng, bias = random.Random(2), Bias()
    events = [((rng.uniform(-1, 1), 0.0), rng.random(), rng.random(), float(t % 2)) for t in range(50)]
    for x, raw, p, y in events:
        bias.observe(x, raw, p, y)
    squares = math.sqrt(50 * sum(x[0] ** 2 for x, *_ in events))
    assert bias.along("raw") == pytest.approx([sum(x[0] * (raw - y) for x, raw, _, y in events) / squares, 0.0])
    assert bias.along("calibrated") == pytest.approx([sum(x[0] * (p - y) for x, _, p, y in events) / squares, 0.0])


def test_parts_add_up() -> None:
    both = observed(20) + observed(30, seed=2)
    again = observed(20)
    rng = random.Random(2)
    for _ in range(30):
        again.observe([rng.uniform(-1, 1) for _ in range(3)], rng.random(), rng.random(), float(rng.random() < 0.5))
    for kind in KINDS:
        assert both.along(kind) == pytest.approx(again.along(kind))
    assert observed(5) + Bias() == Bias() + observed(5) == observed(5)
    with pytest.raises(ValueError, match="cannot be added"):
        observed(2, d=2) + observed(2, d=3)


def test_events_taken_out_leave_nothing() -> None:
    bias, rng = observed(20), random.Random(3)
    events = [([rng.uniform(-1, 1) for _ in range(3)], rng.random(), rng.random(), float(t % 2)) for t in range(10)]
    for event in events:
        bias.observe(*event)
    for event in reversed(events):
        bias.observe(*event, sign=-1)
    assert bias == observed(20)
    bias.observe((0.5, 0.5), 0.5, 0.5, 1.0, sign=-1)  # of features that are no longer these
    assert bias == observed(20)


@pytest.mark.parametrize("d", [0, 1, 64])
def test_decoded_bias_is_the_same(d: int) -> None:
    bias = observed(10, d)
    assert Bias.decode(bias.encode()) == bias
    assert len(bias.encode()) == (2 + 8 * (1 + 4 * d) if d else 2)
    for payload in (b"", bias.encode() + b"\0"):
        with pytest.raises(ValueError, match="bias of"):
            Bias.decode(payload)


def test_other_features_begin_anew() -> None:
    bias = observed(10, d=2)
    bias.observe((1.0,), 0.5, 0.5, 1.0)
    assert bias.along("raw") == [-0.5]


@pytest.mark.parametrize(
    "spec", ["calibrated_regression", "calibrated_regression+minimax", "platt+calibrated_regression"]
)
def test_features_are_read_from_the_ticket_wherever_they_are_in_it(spec: str) -> None:
    calibrator = make(spec, features=2)
    assert calibrator.keeps_features
    read = calibrator.features_in
    assert read is not None
    assert tuple(read(calibrator.predict(0.3, (0.25, -1.0), b"e").ticket)) == (0.25, -1.0)


@pytest.mark.parametrize("spec", ["platt+minimax", "identity"])
def test_calibrators_that_take_no_features_have_none(spec: str) -> None:
    assert not make(spec).keeps_features
