"""Checks what the TOML file says about a field."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from streams.sources import transforms
from streams.sources.refusal import PASSED, Unfit, short
from streams.sources.transforms import Transform

#: A part of the file that has not been checked yet.
Spec = Any
#: Keys that every field may have, for the place of its value.
_PLACE: Final = ("path", "constant", "default")


def references(path: Spec) -> list[str]:
    """Return paths as a list; raises ValueError. For each record, the first path with a value counts."""
    given = path if isinstance(path, list) else [path]
    if not given or not all(isinstance(each, str) and each for each in given):
        raise ValueError(f"a path is text such as a.b[0].c, or a list of them, got {path!r}")
    return given


def table(spec: Spec, *allowed: str) -> dict[str, Spec]:
    """Return the specification of a field as a table: a text or a list of texts is its path."""
    if not isinstance(spec, dict):
        return {"path": spec}
    table = only(spec, *_PLACE, *allowed)
    if not {"path", "constant", "each"} & table.keys():
        raise ValueError(f"say where it stands: path or constant is missing in {short(spec)}")
    return table


def only(spec: Spec, *allowed: str) -> dict[str, Spec]:
    """Return a table whose settings are all allowed; raises ValueError."""
    if not isinstance(spec, dict):
        raise ValueError(f"is a table of {', '.join(allowed)}, got {short(spec)}")  # noqa: TRY004 - as above
    known(spec, allowed)
    return spec


def known(table: Iterable[str], allowed: Iterable[str], what: str = "") -> None:
    """Raise ValueError if a table has a setting that is not allowed. ``what``: name of the table, then a space."""
    for name in table:
        if name not in allowed:
            raise ValueError(f"{what}has no setting {name!r}; there are: {', '.join(allowed)}")


def checked(transform: Transform, value: Spec) -> Spec:
    """Return a value in the file that stands for one in a record; raises ValueError if it is not allowed."""
    if type(value) is int and abs(value) > 2**53:
        raise ValueError(f"{value} is too large to be exact")
    try:
        transform(value)
    except Unfit as exc:
        if exc.args[0] != PASSED:
            raise ValueError(exc.args[1]) from None
    return value


def scale(table: Mapping[str, Spec]) -> str | tuple[float, float]:
    """Return the scale of a score: its name, or the values for 0 and for 1; raises ValueError."""
    given = table.get("scale", "probability")
    named = (*transforms.SCALES, transforms.LOG_ODDS)
    if isinstance(given, str):
        if given not in named:
            raise ValueError(f"scale is one of {', '.join(named)}, or a range such as [0, 1000], got {given!r}")
        return given
    return pair(given)


def pair(given: Spec) -> tuple[float, float]:
    """Return the ends of a range; raises ValueError."""
    numbers = given if isinstance(given, list) else []
    if len(numbers) != 2 or any(type(one) not in (int, float) or abs(one) > 1e100 for one in numbers):
        raise ValueError(f"a range is two numbers such as [0, 1000], got {given!r}")
    if numbers[0] == numbers[1]:
        raise ValueError(f"a range has two ends, got {given!r}")
    return float(numbers[0]), float(numbers[1])
