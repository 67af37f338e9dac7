"""The streams that nobody tuned on: what can be said of them without their data."""

import numpy as np
import pytest

from research.benchmark.regimes import REGIMES, make
from research.benchmark.tables import CHOSE
from research.benchmark.unseen import CHOOSE, UNSEEN


def test_half_of_the_streams_choose_and_half_judge() -> None:
    assert set(UNSEEN) >= CHOOSE
    assert len(UNSEEN) == 2 * len(CHOOSE)


@pytest.mark.parametrize("name", REGIMES)
def test_made_stream_is_the_same_again_and_tells_no_label_before_its_score(name: str) -> None:
    stream, again = UNSEEN[name](), make(name, CHOSE)
    assert np.array_equal(stream.p, again.p)
    assert np.array_equal(stream.y, again.y)
    assert ((stream.p > 0) & (stream.p < 1)).all()
    assert (np.diff(stream.forecast_ms) >= 0).all()
    told = stream.report_ms >= 0
    assert (stream.report_ms > stream.forecast_ms)[told].all()
    assert told.all() or (stream.matures_ms > 0 and (stream.y[told] == 1).all())
