"""The declaration of an exported metric, and its samples."""

from dataclasses import dataclass
from functools import partial
from typing import Literal

from streams.metrics.places import labels, series

#: A metric's name without its prefix, the values of its labels in the catalogue's order, and its value.
Sample = tuple[str, tuple[str, ...], float]


@dataclass(frozen=True)
class Metric:
    """A metric that is exported."""

    #: Its name, without the prefix.
    name: str
    #: Its type in Prometheus.
    kind: Literal["counter", "gauge", "histogram"]
    #: Names of its labels, in the order in which samples give their values.
    labels: tuple[str, ...]
    #: What it counts or measures.
    help: str
    #: What an operator does with it.
    remedy: str = ""
    #: Place of its values in the description of a stream, see `streams.metrics.places`; empty: it is counted.
    at: str = ""

    @property
    def series(self) -> int:
        """The most series of one stream, those of its challengers included; 0 without a label ``stream``."""
        return series(self.at) if self.at else int("stream" in self.labels)


def _declared(kind: Literal["counter", "gauge", "histogram"], of: str, says: str, remedy: str = "") -> Metric:
    """Return a metric. ``of``: its name with its labels, as Prometheus writes them; the rest as in `Metric`."""
    name, _, own = of.rstrip("}").partition("{")
    return Metric(name, kind, tuple(own.split(", ")) if own else (), says, remedy)


counter, gauge, histogram = partial(_declared, "counter"), partial(_declared, "gauge"), partial(_declared, "histogram")


def shown(name: str, at: str, says: str, remedy: str = "") -> Metric:
    """Return a gauge by stream whose values are in the stream's description. The place gives its labels."""
    return Metric(name, "gauge", ("stream", *labels(at)), says, remedy, at)
