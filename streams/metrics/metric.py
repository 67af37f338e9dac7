"""What is said of a metric that is exported."""

from dataclasses import dataclass
from functools import partial
from typing import Literal


@dataclass(frozen=True)
class Metric:
    """A metric that is exported.

    Attributes
    ----------
    name
        Without the prefix.
    kind
        How Prometheus reads it.
    labels
        Names of its labels, in the order in which samples give their values.
    help
        What it counts or measures.
    remedy
        What an operator does with it.
    series
        Most series that one stream has of it, its challengers' together; 0 where it has no label ``stream``.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str
    remedy: str = ""
    series: int = 0


def _declared(
    kind: Literal["counter", "gauge", "histogram"], of: str, says: str, remedy: str = "", series: int = 0
) -> Metric:
    """Return a metric by its name with its labels, as Prometheus writes them; the rest as `Metric` has it."""
    name, _, labels = of.rstrip("}").partition("{")
    return Metric(name, kind, tuple(labels.split(", ")) if labels else (), says, remedy, series)


counter, gauge, histogram = partial(_declared, "counter"), partial(_declared, "gauge"), partial(_declared, "histogram")
