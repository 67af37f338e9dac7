"""The demo's flights, exported and replayed: the figures of the whole path beside figures from the definitions."""

from pathlib import Path

import numpy as np
import pytest

from lab import demo, flights, reliability
from replay.configuration import configurations
from replay.run import Request, replay
from replay.sources.files import FileSource
from streams.config.settings import Settings

ROWS = 20_000


def test_exported_flights_are_replayed_to_the_figures_of_the_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    played = flights.load(ROWS)
    monkeypatch.setattr(flights, "load", lambda _: played)  # the model is trained once
    assert demo.export(ROWS, tmp_path) == 0
    assert "trueup replay --forecasts" in capsys.readouterr().out
    source = FileSource(tmp_path / "forecasts.jsonl", tmp_path / "outcomes.jsonl")
    result, pace = replay(Request(source, configurations(Settings.from_env({}), ["platt+regret_matching"], [])), {})
    known = played.known
    (contender,) = result.contenders
    overall = contender.overall
    assert overall is not None
    assert (overall.issued, overall.raw.n) == (ROWS, int(known.sum()))
    assert result.records == ROWS + known.sum()
    assert pace.records_per_s > 0
    definition = reliability.loss(played.p[known], played.y[known])
    assert (overall.raw.ece, overall.raw.brier, overall.raw.log_loss) == pytest.approx(definition, abs=1e-9)
    assert overall.raw.base_rate == pytest.approx(np.mean(played.y[known]))
    # The model knows January alone; three weeks of outcomes are enough to see and to mend some of it.
    assert overall.calibrated.ece < 0.7 * overall.raw.ece
    assert overall.l1 is not None
    assert overall.bound is not None
    assert overall.l1 < overall.bound
    better = next(each for each in result.differences if each.metric == "ece")
    settled = overall.settled
    assert better.value == pytest.approx(settled.calibrated.ece - settled.raw.ece)
    assert settled.resolved + overall.warmup.resolved == overall.raw.n
    # It lasts until twenty labels of forecasts behind the first hundred say that most get one.
    assert int((played.forecast_ms <= played.outcome_ms[known].min()).sum()) == 96
    assert overall.warmup.issued == 293
    assert better.low < better.value < better.high
    assert overall.delays.median_ms == pytest.approx(
        np.median((played.outcome_ms - played.forecast_ms)[known]), abs=60_000
    )
