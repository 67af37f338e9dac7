"""Places: where a metric's values are in the description of a stream, and which labels they have.

A place is a path of steps through objects and lists:

- ``name``: the value of this name;
- ``{label; 3}``: each value of an object, at most three, with its name as label; ``{label=a|b}``: those of these names;
  ``{kind}`` is ``{kind=raw|calibrated}``;
- ``[label, label:a.b; 5]``: the first five items of a list, labelled by their fields with these names, or by the value
  at ``a.b``; ``[label=text]``: the item with this label;
- ``label=text``: a label that is always the same.

A missing value, null and NaN give no sample. A list counts by its length, an object as 1.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial, reduce
from math import isnan, prod
from operator import getitem
from typing import Any, NamedTuple

from state.scoring.windows import KINDS

Labels = Mapping[str, str]


class PlaceStep(NamedTuple):
    """A step of a place."""

    #: Names of the labels that it gives; and the most values that it finds.
    labels: tuple[str, ...]
    most: int
    #: Returns what it finds in a value, with the labels of each.
    find: Callable[[Any], Iterable[tuple[Any, Labels]]]


@cache
def steps(place: str) -> tuple[PlaceStep, ...]:
    """Return the steps of a place."""
    return tuple(map(_step, place.split("/")))


def labels(place: str) -> tuple[str, ...]:
    """Return the names of the labels that values at a place have."""
    return tuple(label for step in steps(place) for label in step.labels)


def series(place: str) -> int:
    """Return the most values that a place can have."""
    return prod(step.most for step in steps(place))


def values(found: Any, along: tuple[PlaceStep, ...]) -> Iterator[tuple[float, Labels]]:  # noqa: ANN401 - of JSON
    """Yield the values at the end of some steps, with their labels.

    Examples
    --------
    >>> found = {"bands": [{"band": "low", "raw": {"n": 3}}, {"band": "high", "raw": None}]}
    >>> list(values(found, steps("bands/[band; 8]/{kind}/n")))
    [(3.0, {'band': 'low', 'kind': 'raw'})]
    """
    if found is None:
        return
    if along:
        for inner, own in along[0].find(found):
            for value, more in values(inner, along[1:]):
                yield value, {**own, **more}
        return
    value = 1.0 if type(found) is dict else float(len(found) if type(found) is list else found)
    if not isnan(value):
        yield value, {}


def _step(text: str) -> PlaceStep:
    if text.startswith("["):
        return _items(*text[1:-1].split("; "))
    if text.startswith("{"):
        named, _, most = text[1:-1].partition("; ")
        label, _, among = named.partition("=")
        names = tuple(among.split("|")) if among else KINDS if label == "kind" else ()
        return PlaceStep((label,), len(names) or int(most), partial(_named, label, names))
    label, equal, always = text.partition("=")
    if equal:
        return PlaceStep((label,), 1, lambda found: [(found, {label: always})])
    return PlaceStep((), 1, lambda found: [(found[text], {})] if text in found else [])


def _named(label: str, names: tuple[str, ...], found: Any) -> Iterator[tuple[Any, Labels]]:  # noqa: ANN401 - of JSON
    yield from ((found[name], {label: name}) for name in names or found if name in found)


def _items(fields: str, most: str = "") -> PlaceStep:
    """Return the step of a list, see the module."""
    read: list[tuple[str, list[str], str]] = []
    for field in fields.split(", "):
        named, _, wanted = field.partition("=")
        label, _, inner = named.partition(":")
        read.append((label, (inner or label).split("."), wanted))

    def items(found: Any) -> Iterator[tuple[Any, Labels]]:  # noqa: ANN401 - of JSON
        for item in found[: int(most)] if most else found:
            own = {label: _text(reduce(getitem, inner, item)) for label, inner, _ in read}
            if all(wanted in ("", own[label]) for label, _, wanted in read):
                yield item, own

    return PlaceStep(tuple(label for label, *_ in read), int(most or 1), items)


def _text(found: Any) -> str:  # noqa: ANN401 - of JSON
    return f"{found:g}" if isinstance(found, float) else str(found)
