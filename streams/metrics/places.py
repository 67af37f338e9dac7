"""Where the description of a stream has the values of a metric, and with which labels.

A place is a path of steps through objects and lists:

=====================  ===============================================================================================
``name``               the value of this name
``{label}``            each value of an object, with its name as label; ``{label=a|b}``: those of these names.
                       ``{kind}`` is ``{kind=raw|calibrated}``
``[label, label:a.b]`` the items of a list, labelled by the fields of these names, or by what stands at ``a.b``;
                       ``[label; 5]``: the first five; ``[label=text]``: those with this label
``label=text``         a label that is always the same
=====================  ===============================================================================================

What is not there, null or NaN has no value. A list counts by its length, an object as 1.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, reduce
from operator import getitem
from typing import Any, NamedTuple

from state.scoring.windows import KINDS

Labels = Mapping[str, str]


class Step(NamedTuple):
    """A step of a place."""

    #: Names of the labels that it gives.
    labels: tuple[str, ...]
    #: Returns what it finds in a value, with these labels.
    find: Callable[[Any], Iterable[tuple[Any, Labels]]]


@cache
def steps(place: str) -> tuple[Step, ...]:
    """Return the steps of a place."""
    return tuple(map(_step, place.split("/")))


def labels(place: str) -> tuple[str, ...]:
    """Return the names of the labels that values at a place have."""
    return tuple(label for step in steps(place) for label in step.labels)


def values(found: Any, along: tuple[Step, ...]) -> Iterator[tuple[float, Labels]]:  # noqa: ANN401 - of JSON
    """Yield the values behind some steps, with their labels."""
    if along:
        for inner, own in along[0].find(found):
            for value, more in values(inner, along[1:]):
                yield value, {**own, **more}
    elif found is not None:
        value = 1.0 if isinstance(found, Mapping) else float(len(found) if isinstance(found, list) else found)
        if not math.isnan(value):
            yield value, {}


def _step(text: str) -> Step:
    if text.startswith("["):
        return _items(text[1:-1])
    label, equal, among = text.strip("{}").partition("=")
    if text.startswith("{"):
        names = among.split("|") if among else KINDS if label == "kind" else None
        return Step((label,), lambda found: [(found[name], {label: name}) for name in names or found if name in found])
    if equal:
        return Step((label,), lambda found: [(found, {label: among})])
    return Step((), lambda found: [(found[text], {})] if text in found else [])


def _items(text: str) -> Step:
    """Return the step of a list, see the module."""
    fields, _, most = text.partition("; ")
    read: list[tuple[str, list[str], str]] = []
    for field in fields.split(", "):
        named, _, wanted = field.partition("=")
        label, _, inner = named.partition(":")
        read.append((label, (inner or label).split("."), wanted))

    def items(found: Any) -> Iterator[tuple[Any, Labels]]:  # noqa: ANN401 - of JSON
        for item in found[: int(most) if most else None]:
            own = {label: _text(reduce(getitem, inner, item)) for label, inner, _ in read}
            if all(wanted in ("", own[label]) for label, _, wanted in read):
                yield item, own

    return Step(tuple(label for label, *_ in read), items)


def _text(found: Any) -> str:  # noqa: ANN401 - of JSON
    return f"{found:g}" if isinstance(found, float) else str(found)
