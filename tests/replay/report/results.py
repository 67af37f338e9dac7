"""Results of small replays for the tests of the report, with everything in them that a page shows."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from replay.result import LARGER, MetricDifference, Result
from tests.replay.history import replayed

#: A name that would become an element, an attribute, a comment or a script. Records may hold it.
HOSTILE = '</title><script>alert(1)</script><img src=//x.test onerror="alert(2)">\'"--><svg/onload=alert(3)>&lt;'
#: Turns what stands behind it around, ends texts, breaks lines. Records may not hold it, names of files may.
UNSEEN = "\u202e\x00\n"


def played(
    directory: Path,
    names: Sequence[str] = ("fraud", "churn"),
    calibrators: Sequence[str] = ("platt", "platt+regret_matching"),
    n: int = 14_000,
    **options: Any,
) -> Result:
    """Replay forecasts that are twice too high, of what goes up and down.

    With features, late outcomes, and few of them for low scores.
    """
    rng = np.random.default_rng(8)
    chance = rng.beta(1.2, 5, n)
    # What happens goes up and down, and the model does not follow: a calibrator that does ranks better than it.
    season = np.where(np.arange(n) // 1500 % 2, 1.8, 0.2)
    y = rng.random(n) < np.minimum(season * chance, 1.0)
    x = rng.uniform(-1, 1, n)
    known = (chance > 0.05) | (rng.random(n) < 0.2)
    took = rng.integers(60_000, 40_000_000, n)
    forecasts, outcomes = [], []
    for i in range(n):
        at = 1_700_000_000_000 + 600_000 * i
        stream = names[i % len(names)]
        p = min(1.0, 2 * float(chance[i]))
        forecasts.append({"event_id": str(i), "stream": stream, "p": p, "x": [float(x[i])], "ts": at})
        if known[i]:
            outcomes.append((at + int(took[i]), {"event_id": str(i), "y": int(y[i]), "ts": at + int(took[i])}))
    late = [each for _, each in sorted(outcomes, key=lambda each: each[0])]
    plans = {name: f'[streams."*"]\ncalibrator = "{name}"\nfeatures = 1\n' for name in calibrators}
    return replayed(directory, forecasts, late, plans, **{"resamples": 200, **options})


def told(pairs: Mapping[tuple[str, str], Mapping[str, int]]) -> list[MetricDifference]:
    """Return differences that say, by metric, -1 for clearly better, 1 for clearly worse, and 0 for neither."""
    found = []
    for (name, against), signs in pairs.items():
        for metric, sign in signs.items():
            value = 0.02 * (-sign if metric in LARGER else sign)
            found.append(MetricDifference(name, against, metric, value, value - 0.01, value + 0.01))
    return found
