"""The registry of calibrators by name. It also makes them from their specifications."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from state.calibrators.base import Calibrator
from state.calibrators.calibrated_regression import CalibratedRegression
from state.calibrators.certified import Certified
from state.calibrators.composition import Composition
from state.calibrators.histogram import Histogram
from state.calibrators.identity import Identity
from state.calibrators.minimax import Minimax
from state.calibrators.multiclass import CLASSES, EACH, Multiclass
from state.calibrators.options import Option
from state.calibrators.platt import Platt
from state.calibrators.prudent import Prudent
from state.calibrators.quantile import Quantile
from state.calibrators.regret_matching import RegretMatching
from state.calibrators.twospeed import TwoSpeed

#: Calibrators of one probability: alone or in a composition.
REGISTRY: dict[str, type[Any]] = {  # Any: each class has its own options as keywords
    each.name: each
    for each in (
        CalibratedRegression,
        Certified,
        Histogram,
        Identity,
        Minimax,
        Platt,
        Prudent,
        RegretMatching,
        TwoSpeed,
    )
}
#: The most parts of a composition. Each part adds to the ticket of every event.
PARTS = 4
#: Calibrators of other kinds of forecast, which cannot be composed. ``kind`` names the record's field.
VECTORS: dict[str, type[Multiclass | Quantile]] = {each.name: each for each in (Multiclass, Quantile)}


@lru_cache(maxsize=256)
def kind(spec: str) -> str:
    """Return what a calibrator serves: ``p``, ``probs`` or ``quantiles``; ValueError if it is unknown.

    It takes forecasts of the same kind. A calibrator of quantiles takes any law of `state.forecasts`.
    """
    if spec in VECTORS:
        return VECTORS[spec].kind
    _parts(spec)
    return "p"


def grouped(spec: str, options: Mapping[str, object]) -> bool:
    """Whether a calibrator with these options, or a part of it, uses the segments of a forecast."""
    return bool(_made_by(spec, 0, options)("").grouped)


def check(spec: str, options: Mapping[str, object]) -> None:
    """Raise ValueError, saying what is allowed, unless `make` would accept these.

    ``spec``: a name, or names in the order in which they answer: ``front+back``.
    ``options``: by name. At least one part must have each; for ``multiclass``, itself or the calibrator of each class.
    """
    _check(spec, options)
    _made_by(spec, 0, options)("")  # refuses values that are wrong only together, such as an empty range


def _check(spec: str, options: Mapping[str, object]) -> None:
    allowed = options_of(spec, options)
    for name, value in options.items():
        option = allowed.get(name)
        if option is None:
            raise ValueError(f"{spec} has no option {name!r}; {_say(allowed)}")
        if not option.takes(value):
            raise ValueError(f"{name} must be {option.allowed} ({option.meaning}), got {value!r}")


def make(spec: str, *, name: str = "", seed: int = 0, **options: object) -> Any:  # noqa: ANN401 - its kind depends on the name
    """Return a new calibrator: a `Calibrator`, or one of `VECTORS`.

    Raises ValueError if a name, option or value is not allowed; the message says what is.

    ``spec``: a name, or names in the order in which they answer: ``front+back``.
    ``name``: the stream. With ``seed`` it keys the draws.
    ``seed``: from 0 to 2**64 - 1.
    ``options``: each is given to every part that has an option of that name.

    Examples
    --------
    >>> make("platt+histogram", name="fraud", bins=50).predict(0.5).p
    0.5
    >>> from state.forecasts import Normal
    >>> make("quantile", levels=(0.1, 0.5, 0.9)).predict(Normal(0.0, 1.0)).p.levels
    (0.1, 0.5, 0.9)
    """
    return maker(spec, seed=seed, **options)(name)


def maker(spec: str, *, seed: int = 0, **options: object) -> Callable[[str], Any]:
    """Return a function that makes calibrators as `make` does, given a name. Options are checked once."""
    _check(spec, options)
    return _made_by(spec, seed, options)


def _made_by(spec: str, seed: int, options: Mapping[str, object]) -> Callable[[str], Any]:
    if spec == Multiclass.name:
        own = _own(Multiclass.options, options)
        each, classes = _composed(own.get("each", EACH), seed, options), own.get("classes", CLASSES)
        # Each class has its own key: equal draws would couple the classes.
        return lambda name: Multiclass([each(f"{name}\0class {k}") for k in range(classes)])
    if spec in VECTORS:
        vector: Any = VECTORS[spec]  # made in the same way as those of one probability
        settled = _own(vector.options, options)
        return lambda name: vector(name=name, seed=seed, **settled)
    return _composed(spec, seed, options)


def _composed(spec: str, seed: int, options: Mapping[str, object]) -> Callable[[str], Calibrator]:
    back, *fronts = [_single(part, seed, options) for part in reversed(_parts(spec))]

    def make(name: str) -> Calibrator:
        made = back(name)
        for front in fronts:
            # Each part has its own key: a back that shares its draws with a randomised front would lose its guarantee.
            name += "\0front"
            made = Composition(front(name), made)
        return made

    return make


def _single(part: str, seed: int, options: Mapping[str, object]) -> Callable[[str], Calibrator]:
    calibrator: Any = REGISTRY[part]
    own = _own(calibrator.options, options)
    if not calibrator.keyed:
        return lambda _: calibrator(**own)
    return lambda name: calibrator(name=name, seed=seed, **own)


def _own(allowed: Mapping[str, Option], options: Mapping[str, object]) -> dict[str, Any]:
    """Return the options that are allowed here; check() proved their types."""
    return {
        option: tuple(value) if isinstance(value, list) else value
        for option, value in options.items()
        if option in allowed
    }


def _parts(spec: str) -> list[str]:
    parts = spec.split("+")
    if len(parts) > PARTS or not all(part in REGISTRY for part in parts):
        names = ", ".join(sorted(REGISTRY))
        raise ValueError(
            f"unknown calibrator {spec!r}; allowed: one of {names}, or up to {PARTS} of them as front+back; "
            f"of other forecasts, which stand alone: {', '.join(sorted(VECTORS))}"
        )
    return parts


def options_of(spec: str, options: Mapping[str, object]) -> dict[str, Option]:
    """Return a calibrator's options by name, given the values of some; ValueError if the calibrator is unknown."""
    if spec not in VECTORS:
        return {name: option for part in _parts(spec) for name, option in REGISTRY[part].options.items()}
    own = VECTORS[spec].options
    each = options.get("each", EACH)
    if spec == Multiclass.name and isinstance(each, str):
        _parts(each)  # the calibrator of each class is one for a probability
        return own | options_of(each, {})
    return own


def _say(allowed: Mapping[str, Option]) -> str:
    if not allowed:
        return "it has none"
    return "allowed: " + ", ".join(f"{name} ({each.allowed})" for name, each in allowed.items())
