"""Fields of records: reads and checks the parts of a forecast, or raises `Unusable` with the reason."""

from functools import lru_cache
from typing import Any, Final

from state import forecasts
from state.forecasts import PROBS, Normal, Probs, Quantiles
from state.policy import Policy
from state.scoring.weighted import LARGEST as HEAVIEST
from state.segments import usable
from streams.sources.references import steps

_steps: Final = lru_cache(maxsize=1024)(steps)
#: The kinds of forecast, by the record's field that holds them.
ALTERNATIVES: Final = ("p", "probs", "quantiles", "normal")
#: Rounding error of a sum of a few numbers whose true sum is 1: 16 units in the last place.
_ROUNDING: Final = 2.0**-48


class Unusable(Exception):  # noqa: N818 - not an error of the program
    """A record cannot be used. ``args``: the reason, and the readable part of the record, if there is one."""


def at(record: dict[str, Any], path: str, field: str) -> Any:  # noqa: ANN401 - whatever stands there
    """Return the value at a path of a record, or otherwise in the field of trueup's own form; None if there is none."""
    found: Any = record if path else None
    if path.isidentifier():  # one step, like most paths
        found = record.get(path)
    else:
        for step in _steps(path) if path else ():
            found = found.get(step) if type(found) is dict else None
    return record.get(field) if found is None else found


def read_weights(record: dict[str, Any], policy: Policy) -> tuple[float, float]:
    """Return a forecast's weight and its chance of a label; 1 for what the stream does not have."""
    weight: Any = 1.0
    chance: Any = policy.label_rate or 1.0
    if policy.weight:
        weight = at(record, policy.weight, "weight")
        if (type(weight) is not float and type(weight) is not int) or not 0 <= weight <= HEAVIEST:
            raise Unusable("weight")
    if type(chance) is str:
        chance = at(record, chance, "label_rate")
        if (type(chance) is not float and type(chance) is not int) or not 0 < chance <= 1:
            raise Unusable("label_rate")
    return float(weight), float(chance)


def only_kind(record: dict[str, Any], *allowed: str) -> str:
    """Return the one kind of forecast in a record; raise unless the stream takes it."""
    kinds = [kind for kind in ALTERNATIVES if record.get(kind) is not None]
    if len(kinds) != 1:
        raise Unusable("forecast")
    if kinds[0] not in allowed:
        raise Unusable("unsupported")
    return kinds[0]


def read_distribution(record: dict[str, Any], policy: Policy) -> forecasts.ForecastValue:
    """Return a forecast that is more than one probability."""
    kind = only_kind(record, "probs") if policy.kind == PROBS else only_kind(record, "quantiles", "normal")
    return read_forecast(record[kind], kind, policy.classes)


def read_forecast(given: Any, kind: str, classes: int | None) -> forecasts.ForecastValue:  # noqa: ANN401 - whatever stands there
    """Return a forecast of a kind. If ``classes`` is given, it must have so many classes."""
    try:
        if kind == "probs":
            values = _numbers(given)
            if classes is not None and len(values) != classes:
                raise ValueError(f"there must be {classes} classes, got {len(values)}")
            return Probs([rounded(value, kind) for value in values])
        if kind == "quantiles":
            return Quantiles(_numbers(given["levels"]), _numbers(given["values"]))
        if kind == "normal":
            return Normal(*_numbers((given["mean"], given["std"])))
        return rounded(given, kind)
    except (ValueError, TypeError, KeyError):
        raise Unusable(kind) from None


def rounded(p: Any, reason: str) -> float:  # noqa: ANN401 - whatever stands there
    """Return a probability. If rounding put it slightly outside [0, 1], it becomes 0 or 1."""
    if (type(p) is float or type(p) is int) and -_ROUNDING <= p <= 1 + _ROUNDING:
        return min(1.0, max(0.0, float(p)))
    raise Unusable(reason)


def _numbers(given: object) -> tuple[float, ...]:
    """Return a list of numbers as floats; TypeError if it is not a list of numbers."""
    if not isinstance(given, list | tuple) or not all(type(one) is float or type(one) is int for one in given):
        raise TypeError("must be a list of numbers")
    return tuple(map(float, given))


def read_features(x: object, policy: Policy) -> tuple[float, ...]:
    """Return the features in the policy's order, each in [-1, 1]."""
    values: Any = x
    if isinstance(policy.features, tuple):
        values = [x.get(name) for name in policy.features] if type(x) is dict else None
    if type(values) is not list or len(values) != policy.n_features:
        raise Unusable("features")
    for value in values:
        if (type(value) is not float and type(value) is not int) or not -1 <= value <= 1:
            raise Unusable("features")
    return tuple(map(float, values))


def read_segments(given: object, policy: Policy) -> tuple[str, ...]:
    """Return the values of the policy's segments in order; empty text for each without a usable value."""
    found: dict[str, Any] = given if type(given) is dict else {}
    given_values = [found.get(name) for name in policy.segments]
    values = [value if usable(value) else "" for value in given_values]
    if policy.segments_required and "" in values:
        raise Unusable("segments")
    return tuple(values)
