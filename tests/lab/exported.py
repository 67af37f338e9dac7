"""What a worker exports of the scores of a stream, from the forecasts and outcomes themselves."""

import numpy as np
from numpy.typing import NDArray

from lab.reliability import loss


def scores(stream: str, kind: str, said: NDArray[np.float64], outcomes: NDArray[np.float64]) -> dict[str, float]:
    """Return samples by name and labels, as the text format writes them: mean losses, and sums of the bins."""
    p, y = said.tolist(), outcomes.tolist()
    found = {f'resolved{{stream="{stream}"}}': float(len(y))}
    for name, value in loss(said, outcomes)._asdict().items():
        if name != "ece":
            found[f'{name}{{stream="{stream}",kind="{kind}"}}'] = value
    for i in range(10):
        inside = [n for n, each in enumerate(p) if min(int(each * 10), 9) == i]
        labels = f'{{stream="{stream}",kind="{kind}",bin="{i}"}}'
        if inside:
            found[f"resolved_bin_forecasts{labels}"] = sum(p[n] for n in inside)
            found[f"resolved_bin_outcomes{labels}"] = sum(y[n] for n in inside)
    return found
