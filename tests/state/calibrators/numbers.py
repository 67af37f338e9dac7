"""Numbers for tests of `quantile`: laws and outcomes, what is served of them, and its loss."""

from collections import deque
from collections.abc import Sequence
from typing import Final

from state.calibrators.quantile import LEVELS, Quantile
from state.forecasts import Law, Normal, Quantiles

#: Law, slots of its segments, outcome.
Event = tuple[Law, tuple[int, ...], float]
Served = Sequence[Sequence[float]]

NORMAL: Final = Normal(0.0, 1.0)
RAIN: Final = Quantiles((0.2, 0.4, 0.6, 0.8), (0.0, 0.0, 1.0, 3.0))
SKEWED: Final = Quantiles((0.1, 0.25, 0.5, 0.75, 0.9), (0.0, 1.0, 3.0, 7.0, 15.0))


def serve(
    calibrator: Quantile, events: Sequence[Event], late: int = 0, *, segments: bool = True
) -> list[tuple[float, ...]]:
    """Return what is served of each event, where so many outcomes are outstanding."""
    waiting, served = deque[tuple[bytes, float]](), []
    for t, (law, slots, y) in enumerate(events):
        answer, _, ticket = calibrator.predict(law, (), b"%d" % t, slots if segments else ())
        served.append(answer.values)
        waiting.append((ticket, y))
        if len(waiting) > late:
            calibrator.update(*waiting.popleft())
    return served


def pinball(values: Sequence[float], y: float) -> float:
    return sum(max(p * (y - q), (p - 1.0) * (y - q)) for p, q in zip(LEVELS, values, strict=True))


def loss(events: Sequence[Event], served: Served, since: int = 0) -> float:
    """Return the pinball loss of what was served, in all."""
    return sum(pinball(values, y) for values, (_, _, y) in list(zip(served, events, strict=True))[since:])


def loss_of(law: Law, events: Sequence[Event]) -> float:
    """Return the loss of one law's quantiles."""
    values = tuple(map(law.ppf, LEVELS))
    return sum(pinball(values, y) for _, _, y in events)


def off(events: Sequence[Event], served: Served) -> float:
    """Return how far the level most off is from what it covers."""
    pairs = [(values, y) for values, (_, _, y) in zip(served, events, strict=True)]
    covered = [sum(y <= values[j] for values, y in pairs) / len(pairs) for j in range(len(LEVELS))]
    return max(abs(each - p) for each, p in zip(covered, LEVELS, strict=True))
