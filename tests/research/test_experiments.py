"""The experiments: named alike everywhere, run end to end, and measured as defined."""

import math
from pathlib import Path

import numpy as np
import pytest

from research import calibrators, datasets
from research.experiments import measure, run, streams
from research.experiments.play import Stream, oppose, play
from research.experiments.registry import REGISTRY
from state.calibrators import REGISTRY as PRODUCT
from state.calibrators import make
from state.calibrators.platt import Platt
from state.policy import DEFAULT_CALIBRATOR


def test_experiments_have_the_names_that_they_are_found_by() -> None:
    assert [each.name for each in REGISTRY.values()] == list(REGISTRY)


def test_a_calibrator_of_a_paper_takes_the_place_of_none_of_trueup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PRODUCT, "beta", Platt)
    with pytest.raises(ValueError, match="state/calibrators has 'beta', too"):
        calibrators.register()
    assert PRODUCT["beta"] is Platt


def test_an_unknown_experiment_is_refused_with_the_names_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        run.main(["--only", "nothing"])
    assert refused.value.code == 2
    assert "kuleshov-ermon" in capsys.readouterr().err


def test_outcomes_are_learnt_when_they_come_and_in_the_order_of_their_coming() -> None:
    n = 60
    p, y = np.full(n, 0.5), (np.arange(n) % 2).astype(np.float64)
    y[7] = math.nan
    late = Stream("late", p, y, np.arange(n), np.arange(n) + 11, 10)
    served = play(make("identity"), late)
    assert (served == p).all()
    alone, delayed = make("minimax", name="s"), make("minimax", name="s")
    answers = play(delayed, late)
    tickets: list[bytes] = []
    for t in range(n):
        if t >= 11 and t - 11 != 7:
            alone.update(tickets[t - 11], y[t - 11])
        answer = alone.predict(0.5, (), b"%d" % t)
        tickets.append(answer.ticket)
        assert answers[t] == answer.draw


def test_opponent_answers_the_expected_forecast() -> None:
    p, y = oppose(make("identity"), np.array([0.2, 0.8, 0.5]))
    assert p.tolist() == [0.2, 0.8, 0.5]
    assert y.tolist() == [1.0, 0.0, 1.0]


def test_measures_are_those_of_their_definitions() -> None:
    p, y = np.array([0.25, 0.25, 0.75, 0.75]), np.array([0.0, 1.0, 1.0, 1.0])
    assert measure.l1(p, y) == pytest.approx((0.5 + 0.5) / 4)
    path = measure.l2_path(p, y)
    assert path[-1] == pytest.approx((0.5**2 / 2 + 0.5**2 / 2) / 4)
    assert measure.slope(np.array([1.0, 10.0, 100.0]), np.array([2.0, 20.0, 200.0])) == pytest.approx(1.0)


def test_data_that_is_not_there_is_said_and_skipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing() -> None:
        raise FileNotFoundError("bank is not installed: make data")

    monkeypatch.setattr(datasets, "bank", missing)
    streams.stream.cache_clear()
    assert streams.run("bank", 0, "platt") == "bank is not installed: make data"
    nothing = ["no data"] * len(streams._runs())
    section = streams.EXPERIMENT.tell([*nothing, *([0.01] * len(streams.SPECS))], tmp_path)
    assert section.skipped == ["no data"]
    assert section.findings == [
        f"held: `{DEFAULT_CALIBRATOR}`: ℓ1 0.0100 ≤ 0.05 against the opponent of 20,000 (1 of 1)"
    ]


@pytest.mark.parametrize(
    ("load", "rows", "columns", "rate"), [(datasets.bank, 45_211, 15, 0.117), (datasets.elec2, 45_312, 6, 0.4245)]
)
def test_real_streams_are_read_whole(load: datasets.Loader, rows: int, columns: int, rate: float) -> None:
    try:
        x, y = load()
    except FileNotFoundError as exc:
        pytest.skip(str(exc))
    assert x.shape == (rows, columns)
    assert set(y.tolist()) == {0.0, 1.0}
    assert y.mean() == pytest.approx(rate, abs=5e-4)
    assert np.isfinite(x).all()


def test_real_numbers_are_read_whole() -> None:
    try:
        (ensemble, rain), demand = datasets.rain(), datasets.demand()
    except FileNotFoundError as exc:
        pytest.skip(str(exc))
    assert ensemble.shape == (4971, 11)
    assert (rain == 0).mean() == pytest.approx(0.26, abs=0.01)
    assert demand.shape == (17_520,)
