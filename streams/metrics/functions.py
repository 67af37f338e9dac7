"""Biases that a calibrator bounds, each with its bound: along features, and along functions of the answer."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import orjson

from state.calibrators.base import BiasAlong
from state.served import Served

#: The most functions of a stream that have series: those whose bias is nearest to its bound.
SERIES: Final = 5

#: One partition's calibrator: its outcomes learnt and its biases.
Part = tuple[int, Sequence[BiasAlong]]


def part(served: Served) -> Part:
    """Return a calibrator's biases, with the features' names; an empty list if it bounds none."""
    named = orjson.loads(served.recipe).get("features", ())
    return served.calibrator.learnt, served.calibrator.biases(named)


def describe(parts: Iterable[Part]) -> list[dict[str, Any]]:
    """Return the biases of a stream's partitions together, as shares of the outcomes; the nearest to its bound first.

    Sums of f (p - y) add up over partitions, and so do their bounds.
    """
    sums: dict[str, list[float]] = {}
    for learnt, found in parts:
        for each in found:
            total = sums.setdefault(each.name, [0.0, 0.0, 0.0])
            total[0] += learnt
            total[1] += each.bias
            total[2] += each.bound
    described = [
        {"name": name, "bias": bias / learnt, "bound": bound / learnt} for name, (learnt, bias, bound) in sums.items()
    ]
    return sorted(described, key=lambda each: -abs(each["bias"]) / each["bound"])
