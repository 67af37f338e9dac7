"""What a stream is served at present for a few raw scores, as samples."""

from collections.abc import Iterator, Mapping
from typing import Final

from state import kinds
from state.forecasts import PROBABILITY
from state.policy import Policy
from state.served import Served
from streams.metrics.metric import Sample
from streams.metrics.rows import StateRows, covered, serving

#: The raw probabilities, evenly apart in log-odds, as nearly as round ones are.
RAW: Final = (0.001, 0.01, 0.03, 0.1, 0.3, 0.6, 0.9)


def answering(found: StateRows, stream: str, policy: Policy) -> Mapping[tuple[int, str], Served]:
    """Return what answers, by partition and configuration: where labels are too few, as if nothing had been learnt."""
    uncovered = {n for n, each in covered(found, stream, policy).items() if each.uncovered}
    return {
        place: Served.fresh(served.recipe, stream) if place[0] in uncovered else served
        for place, served in sorted(found.of(kinds.CALIBRATOR, stream).items())
    }


def samples(found: StateRows, stream: str, policy: Policy | None) -> Iterator[Sample]:
    """Yield the mean served score of the partitions for each of `RAW`, features at 0; none of classes or numbers."""
    if policy is None or policy.kind != PROBABILITY:
        return
    x = (0.0,) * policy.n_features
    present = serving(found, stream, policy) or ()
    maps = [each.calibrator for (_, config), each in answering(found, stream, policy).items() if config in present]
    for raw in RAW if maps else ():
        yield "served_score", (stream, f"{raw:g}"), sum(each.predict(raw, x, b"map").p for each in maps) / len(maps)
