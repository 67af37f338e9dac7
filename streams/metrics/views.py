"""The samples of a stream: for each metric, the value at its place in the stream's description.

Figures are exported as sums where possible. The state holds the sums, so they survive restarts and move with their
partition. Ratios of workers cannot be averaged, because errors of opposite sign would then not cancel. The recording
rules in ``deploy/prometheus`` first add the sums, then divide. A figure that they can compute is not exported.
"""

from collections.abc import Iterator
from typing import Final

from state.policy import Policy
from streams.metrics.catalogue import CATALOGUE
from streams.metrics.description import describe, guarantee, saturated
from streams.metrics.metric import Sample
from streams.metrics.places import steps, values
from streams.metrics.rows import StateRows

#: The metrics whose values are in a description.
SHOWN: Final = [metric for metric in CATALOGUE.values() if metric.at]


def samples(found: StateRows, stream: str, policy: Policy | None) -> Iterator[Sample]:
    """Yield the samples of a stream; ``policy`` is how it is configured now."""
    described = describe(found, stream, policy, whole=False)
    scored = [described, *described.get("vectors", {}).values()][-1]  # the stream may have had probabilities before
    if scored["partitions"]:
        described["scored"] = scored
        described["probabilities" if scored is described else "classes_or_numbers"] = scored
    if calibrators := described["calibrators"]:
        learnt = sum(each["version"] for each in calibrators)
        described["learning"] = guarantee(calibrators) | {"saturated": saturated(calibrators), "learnt": learnt}
    for metric in SHOWN:
        for value, labels in values(described, steps(metric.at)):
            yield metric.name, (stream, *[labels[each] for each in metric.labels[1:]]), value
