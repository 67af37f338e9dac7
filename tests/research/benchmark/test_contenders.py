"""Nobody who takes part in the benchmark learns a label before it is known."""

import numpy as np
import pytest

from research.benchmark import summary
from research.benchmark.__main__ import ALL
from research.benchmark.contenders import RAW
from research.benchmark.judge import judge
from research.benchmark.streams import DAY_MS, Dated


def made(matures_days: int = 0) -> Dated:
    """4,000 scores of sixty days, three times too high, with labels up to twenty days late; some never come."""
    rng = np.random.default_rng(7)
    n = 4000
    p = rng.beta(1, 4, n)
    forecast_ms = np.sort(rng.integers(0, 60 * DAY_MS, n))
    y = (rng.random(n) < p / 3).astype(np.float64)
    report_ms = forecast_ms + rng.integers(1, 20 * DAY_MS, n)
    if matures_days:
        report_ms = np.where(y == 1, report_ms, -1)
    else:
        y[::50] = np.nan
        report_ms[::50] = -1
    segments = {"channel": rng.choice(["web", "shop"], n)}
    return Dated("made", "", p, y, forecast_ms, report_ms, matures_days * DAY_MS, rng.integers(0, 900, n), segments)


def test_raw_is_nothing_beside_itself_and_who_knows_is_better() -> None:
    stream = made()
    found = judge(stream, {"truth": stream.p / 3, RAW: stream.p})
    assert found[RAW].log_loss == found[RAW].brier == (0.0, 0.0, 0.0)
    for relative in (found["truth"].log_loss, found["truth"].brier):
        assert relative.low < relative.value < relative.high < 0
    assert found["truth"].ece < found[RAW].ece


def test_intervals_count_rows_of_one_entity_as_one_fact() -> None:
    stream = made()
    known = np.flatnonzero(~np.isnan(stream.y))
    copies = np.repeat(known, 10)
    many = stream._replace(
        p=stream.p[copies],
        y=stream.y[copies],
        forecast_ms=stream.forecast_ms[copies],
        report_ms=stream.report_ms[copies],
        entity=stream.entity[copies],
    )

    def width(of: Dated) -> float:
        found = judge(of, {RAW: of.p, "truth": of.p / 3})["truth"].log_loss
        return found.high - found.low

    assert width(many) == pytest.approx(width(stream), rel=0.05)


def test_the_default_stands_beside_raw_and_the_best_rival() -> None:
    stream = made()
    truth = stream.p / 3

    def row(ours: float) -> summary.Row:
        served = {RAW: stream.p, summary.OURS: truth**ours, "right": truth, "worse": stream.p / 2}
        return summary.row(stream, served, judge(stream, served))

    good, bad = row(1.0), row(0.25)
    assert good.best == bad.best == "right"
    assert good.beside_best.log_loss == (0.0, 0.0, 0.0)
    assert (good.harmed, good.behind, bad.harmed, bad.behind) == (False, False, True, True)
    assert summary.counted([good, bad]) == (
        "Worse than raw beyond 2 errors: made; by day: made. More than 0.5% behind the best rival: made; beyond 2 "
        "errors: made. With segments not behind MCGrad: 0 of 0."
    )
    of = {name: counts for name, *counts in summary.standings([good, bad]).rows}
    assert (of["trueup"][:3], of["right"][:3]) == (["1", "1", "1"], ["2", "0", "0"])
    assert of["worse"][:2] == ["0", "2"], "behind the one that is right"


@pytest.mark.parametrize(
    ("name", "rows", "rate"),
    [("COMPAS", 6207, 0.16), ("employment", 277_677, 0.50), ("COMPAS, violence", 4516, 0.04), ("deaths", 6253, 0.03)],
)
def test_real_streams_are_read_whole_and_in_order(name: str, rows: int, rate: float) -> None:
    try:
        stream = ALL[name]()
    except FileNotFoundError as exc:
        pytest.skip(str(exc))
    assert len(stream.p) == rows
    assert stream.y.mean() == pytest.approx(rate, abs=0.005)
    assert (np.diff(stream.forecast_ms) >= 0).all()
    told = stream.report_ms >= 0
    assert (stream.report_ms[told] > stream.forecast_ms[told]).all()
    assert (stream.known_ms >= stream.report_ms).all()
