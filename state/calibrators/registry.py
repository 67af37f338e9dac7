"""Every calibrator by name, and how a specification becomes one."""

from collections.abc import Mapping
from typing import Any

from state.calibrators.approachability import Approachability
from state.calibrators.approachability_regret import ApproachabilityRegret
from state.calibrators.base import Calibrator
from state.calibrators.calibrated_regression import CalibratedRegression
from state.calibrators.composition import Composition
from state.calibrators.exponential_weights import ExponentialWeights
from state.calibrators.identity import Identity
from state.calibrators.minimax import Minimax
from state.calibrators.options import Option
from state.calibrators.platt import Platt
from state.calibrators.regret_matching import RegretMatching
from state.calibrators.ridge import Ridge

#: Names that stand alone and on either side of ``+``.
REGISTRY: dict[str, type[Any]] = {  # Any: classes keep their own options as keywords
    each.name: each
    for each in (
        Approachability,
        ApproachabilityRegret,
        CalibratedRegression,
        ExponentialWeights,
        Identity,
        Minimax,
        Platt,
        RegretMatching,
        Ridge,
    )
}


def check(spec: str, options: Mapping[str, object]) -> None:
    """Raise ValueError, saying what is allowed, unless `make` would accept these.

    Parameters
    ----------
    spec
        A name, or ``front+back``.
    options
        By name; in a composition an option must be one of at least one part.
    """
    allowed = _allowed(_parts(spec))
    for name, value in options.items():
        option = allowed.get(name)
        if option is None:
            raise ValueError(f"{spec} has no option {name!r}; {_say(allowed)}")
        if not option.takes(value):
            raise ValueError(f"{name} must be {option.allowed} ({option.meaning}), got {value!r}")


def make(spec: str, *, name: str = "", seed: int = 0, **options: object) -> Calibrator:
    """Return a new calibrator.

    Parameters
    ----------
    spec
        A name, or ``front+back``.
    name
        Key of this calibrator (the stream), which with ``seed`` keys its draws.
    seed
        From 0 to 2**64 - 1.
    options
        Go to every part that has an option of that name.

    Raises
    ------
    ValueError
        If a name, option or value is not allowed; the message says what is.

    Examples
    --------
    >>> make("platt+minimax", name="fraud", grid=50).name
    'platt+minimax'
    """
    check(spec, options)
    *front, back = _parts(spec)
    made = _single(back, name, seed, options)
    for part in front:
        # Another key: a back that shares its coin with a randomised front would lose its guarantee.
        made = Composition(_single(part, f"{name}\0front", seed, options), made)
    return made


def _single(part: str, name: str, seed: int, options: Mapping[str, object]) -> Calibrator:
    calibrator = REGISTRY[part]
    own = {
        option: tuple(value) if isinstance(value, list) else value
        for option, value in options.items()
        if option in calibrator.options
    }
    made: Calibrator = calibrator(name=name, seed=seed, **own)
    return made


def _parts(spec: str) -> list[str]:
    parts = spec.split("+")
    if len(parts) > 2 or not all(part in REGISTRY for part in parts):
        names = ", ".join(sorted(REGISTRY))
        raise ValueError(f"unknown calibrator {spec!r}; allowed: one of {names}, or two of them as front+back")
    return parts


def _allowed(parts: list[str]) -> dict[str, Option]:
    return {name: option for part in parts for name, option in REGISTRY[part].options.items()}


def _say(allowed: Mapping[str, Option]) -> str:
    if not allowed:
        return "it has none"
    return "allowed: " + ", ".join(f"{name} ({each.allowed})" for name, each in allowed.items())
