"""The bench of the recent alarm computes what the engine computes."""

import numpy as np
import pytest

from state.scoring.recent import Recent, RecentLevels
from tests.bench.segment_alarm import evidence, windows


@pytest.mark.parametrize("levels", [False, True])
def test_evidence_is_that_of_recent_windows(levels: bool) -> None:  # noqa: FBT001 - of the cases
    rng, n = np.random.default_rng(5), 3000
    of_stream = np.sort(rng.integers(0, 16, n))
    p = np.tile((0.125, 0.5, 0.75), (n, 1))
    y = (rng.random((n, 3)) < np.where(np.arange(n)[:, None] < 2000, p, 0.6)).astype(float)
    upto = np.maximum(y, rng.random((n, 3)) < 0.25) if levels else None
    recent: Recent = RecentLevels((0.125, 0.5, 0.75)) if levels else Recent(3)
    found = evidence(p, y, windows(of_stream), -50.0, upto)
    for t in range(n):
        rest = [*p[t], *np.square(p[t])] if upto is None else [*upto[t]]
        recent.add([1.0, *y[t], *rest], int(of_stream[t]))
        if t % 50 == 0:
            assert found[t] == pytest.approx(recent.log_alarm()[0], abs=1e-6)
