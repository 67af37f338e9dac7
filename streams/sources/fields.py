"""The fields of a mapping: those of each kind of record, and their readers."""

from collections.abc import Callable, Mapping
from typing import Any, Final
from zoneinfo import ZoneInfoNotFoundError

from streams.sources import specs, transforms
from streams.sources.references import Envelope, Read, reader, text, uses_key
from streams.sources.refusal import Unfit, short
from streams.sources.shortcuts import Shortcut, shortcut
from streams.sources.specs import Spec
from streams.sources.transforms import Transform

#: A field's name, its reader, and a shortcut that works for most records.
Field = tuple[str, Read, Shortcut]

FORECAST, OUTCOME = "forecast", "outcome"
#: Fields that a source of each role may have. It must have the first ones.
FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    FORECAST: (
        "event_id",
        "scope",
        "stream",
        "p",
        "probs",
        "quantiles",
        "normal",
        "ts",
        "x",
        "segments",
        "entity",
        "label_rate",
        "weight",
        "model_version",
    ),
    OUTCOME: ("event_id", "scope", "y", "stream", "ts", "revision"),
}
_REQUIRED: Final = {FORECAST: ("event_id", "stream"), OUTCOME: ("event_id", "y")}
#: Settings, for sources of forecasts, that name what is copied to the answers.
CARRIED: Final = ("carry", "carry_headers")
#: The kinds of forecast. A source gives exactly one of them.
_KINDS: Final = ("p", "probs", "quantiles", "normal")
#: Second since 1970 at which revision numbers of a precedence begin (2020-01-01). Bits of the seconds. Highest value
#: of a precedence.
PRECEDENCE_SECONDS: Final = 1_577_836_800
PRECEDENCE_BITS: Final = 29
MOST_PRECEDENCE: Final = 7


class Compiler:
    """Compiles the fields of one source."""

    def __init__(self) -> None:
        #: Whether a compiled reference reads the key or a part of it.
        self.uses_key = False

    def fields(self, role: str, table: Mapping[str, Spec]) -> list[Field]:
        """Return for each field of a source its name, its reader, and a shortcut.

        Raises ValueError if a field is missing, does not belong to the role, or is malformed.
        """
        for name in _REQUIRED[role]:
            if name not in table:
                raise ValueError(f'{name} is missing: say where it stands, such as {name} = "a.b"')
        if role == FORECAST and len([kind for kind in _KINDS if kind in table]) != 1:
            raise ValueError(f"give one of {', '.join(_KINDS)}")
        found = []
        for name, spec in table.items():
            try:
                found.append((name, self._field(name, spec), shortcut(name, spec)))
            except ValueError as exc:
                raise ValueError(f"{name}: {exc}") from exc
        return found

    def _field(self, name: str, spec: Spec) -> Read:
        made: Mapping[str, Callable[[str, Spec], Read]] = {
            "p": self._score,
            "probs": self._probs,
            "quantiles": self._quantiles,
            "normal": self._normal,
            "ts": self._time,
            "x": self._features,
            "segments": self._segments,
            "y": self._label,
            "model_version": lambda _, spec: self._plain(spec, text),
        }
        if name in made:
            return made[name](name, spec)
        of = transforms.numbers if name in ("revision", "label_rate", "weight") else transforms.texts
        return self._plain(spec, of(name, name))

    def _plain(self, spec: Spec, transform: Transform) -> Read:
        return self._value(specs.table(spec), transform)

    def _score(self, name: str, spec: Spec) -> Read:
        table = specs.table(spec, "scale")
        return self._value(table, transforms.probabilities(specs.scale(table), "probability", name))

    def _probs(self, name: str, spec: Spec) -> Read:
        table = specs.table(spec, "scale", "each")
        scaled = transforms.probabilities(specs.scale(table), "probs", name)
        return self._list(name, table, scaled)

    def _list(self, name: str, table: Mapping[str, Spec], transform: Transform) -> Read:
        """Return a reader of a list, from one path to a list, or from several paths to single values."""
        if "each" in table:
            each = table["each"]
            if "path" in table or not isinstance(each, list) or not each:
                raise ValueError("each is a list of paths, in the place of path")
            reads = [self._value(specs.table(one), transform) for one in each]
            return lambda record, envelope: [read(record, envelope) for read in reads]

        def transformed(found: Any) -> list[Any]:  # noqa: ANN401 - whatever stands there
            if not isinstance(found, list | tuple):
                raise Unfit(name, f"{name} is {short(found)}, which is not a list")
            return [None if one is None else transform(one) for one in found]

        return self._value(table, transformed)

    def _quantiles(self, name: str, spec: Spec) -> Read:
        table = specs.only(spec, "levels", "values")
        number = transforms.numbers(name, name)
        reads = {}
        for part in ("levels", "values"):
            given = table.get(part)
            if isinstance(given, list) and given and all(type(one) in (int, float) for one in given):
                given = {"constant": given}
            elif isinstance(given, list):
                given = {"each": given}
            reads[part] = self._list(name, specs.table(given, "each"), number)
        return _parts(reads)

    def _normal(self, name: str, spec: Spec) -> Read:
        table = specs.only(spec, "mean", "std")
        number = transforms.numbers(name, name)
        return _parts({part: self._value(specs.table(table.get(part)), number) for part in ("mean", "std")})

    def _time(self, name: str, spec: Spec) -> Read:
        table = specs.table(spec, "unit", "format", "zone")
        unit, form, zone = table.get("unit"), table.get("format"), table.get("zone", "UTC")
        if unit is not None and unit not in transforms.UNITS:
            raise ValueError(f"unit is one of {', '.join(transforms.UNITS)}, got {unit!r}")
        if form is not None and not (isinstance(form, str) and "%" in form):
            raise ValueError(f"format is as strptime reads it, such as %d.%m.%Y %H:%M, got {form!r}")
        try:
            transform = transforms.times(unit, form, zone, name)
        except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
            raise ValueError(f"zone {zone!r} is not known: write one such as UTC or Europe/Berlin") from None
        missing = Unfit("timestamp", f'{name} is missing; [..., "@timestamp"] goes on to that of Kafka')
        return self._value(table, transform, missing=missing)

    def _label(self, name: str, spec: Spec) -> Read:
        table = specs.table(spec, "labels")
        given = table.get("labels")
        if given is None:
            return self._value(table, transforms.labels(None, name))
        if not isinstance(given, dict) or not given:
            raise ValueError('labels is a table such as { fraud = 1, legit = 0, pending = "skip" }')
        for said, label in given.items():
            if label != transforms.SKIP and not (type(label) in (int, float) and abs(label) <= 2**53):
                raise ValueError(f'labels: {said} stands for a number or for "skip", got {label!r}')
        known = {said: None if label == transforms.SKIP else label for said, label in given.items()}
        transform = transforms.labels(known, name)
        return self._value(table, transform, absent="null")  # a missing value may have a label, too

    def _features(self, name: str, spec: Spec) -> Read:
        if not isinstance(spec, dict) or "path" in spec:
            return self._value(specs.table(spec), _as_given)
        number = transforms.numbers("features", name)
        reads: list[tuple[str, Read]] = []
        several: list[tuple[list[tuple[str, str]], Read]] = []
        for feature, given in spec.items():
            table = specs.table(given, "range", "categories")
            where = f"{name}.{feature}"
            if "categories" in table:
                names = table["categories"]
                if "range" in table or not isinstance(names, list) or not all(type(one) is str for one in names):
                    raise ValueError(f"{feature}: categories is a list of texts, without a range")
                read = self._value(table, transforms.texts("features", where))
                several.append(([(one, f"{feature}={one}") for one in names], read))
            elif "range" in table:
                reads.append((feature, self._value(table, transforms.ranged(*specs.pair(table["range"]), where))))
            else:
                reads.append((feature, self._value(table, number)))

        def features(record: Any, envelope: Envelope) -> dict[str, float]:  # noqa: ANN401 - whatever stands there
            found = {feature: read(record, envelope) for feature, read in reads}
            for names, read in several:
                category = read(record, envelope)
                for one, feature in names:
                    found[feature] = 1.0 if one == category else 0.0
            return found

        return features

    def _segments(self, name: str, spec: Spec) -> Read:
        if not isinstance(spec, dict) or not spec:
            raise ValueError('is a table such as { country = "billing.country" }')
        reads = [
            (segment, self._value(specs.table(given), transforms.texts(name, f"{name}.{segment}")))
            for segment, given in spec.items()
        ]

        def segments(record: Any, envelope: Envelope) -> dict[str, str]:  # noqa: ANN401 - whatever stands there
            found = {}
            for segment, read in reads:
                value = read(record, envelope)
                if value is not None:
                    found[segment] = value
            return found

        return segments

    def _value(
        self, table: Mapping[str, Spec], transform: Transform, absent: Spec = None, missing: Unfit | None = None
    ) -> Read:
        """Return a reader of a value. If missing: ``absent`` or the default, else raises ``missing``, else None."""
        if "constant" in table:
            if "path" in table:
                raise ValueError("give a path or a constant, not both")
            constant = specs.checked(transform, table["constant"])
            return lambda *_: transform(constant)
        if "default" in table:
            absent = specs.checked(transform, table["default"])

        def instead() -> Any:  # noqa: ANN401 - any value of the field
            if absent is not None:
                return transform(absent)
            if missing is not None:
                raise Unfit(*missing.args)
            return None

        found = self.reference(table.get("path"))

        def read(record: Any, envelope: Envelope) -> Any:  # noqa: ANN401 - whatever stands there
            value = found(record, envelope)
            return instead() if value is None else transform(value)

        return read

    def value(self, spec: Spec) -> Read:
        """Return a reader of a value without conversion. Raises ValueError if the place is malformed."""
        return self._value(specs.table(spec), lambda found: found)

    def reference(self, path: Spec) -> Read:
        """Return a reader of the first of some references that has a value. Raises ValueError if one is malformed."""
        references = specs.references(path)
        self.uses_key |= any(map(uses_key, references))
        reads = [reader(each) for each in references]
        if len(reads) == 1:
            return reads[0]

        def first(record: Any, envelope: Envelope) -> Any:  # noqa: ANN401 - whatever stands there
            for read in reads:
                found = read(record, envelope)
                if found is not None:
                    return found
            return None

        return first


def _as_given(found: Any) -> Any:  # noqa: ANN401 - whatever stands there
    """Return features that need no conversion: a list of numbers, or an object of numbers."""
    number = transforms.numbers("features", "x")
    if isinstance(found, dict):
        return {str(name): None if one is None else number(one) for name, one in found.items()}
    if isinstance(found, list | tuple):
        return [None if one is None else number(one) for one in found]
    raise Unfit("features", f"x is {short(found)}, which is neither a list nor an object")


def _parts(reads: Mapping[str, Read]) -> Read:
    def parts(record: Any, envelope: Envelope) -> dict[str, Any]:  # noqa: ANN401 - whatever stands there
        return {part: read(record, envelope) for part, read in reads.items()}

    return parts
