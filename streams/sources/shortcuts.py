"""Shortcuts for fields that are, in most records, in the wanted form: under one name, and of the field's own type.

Such a value is taken without the two calls of a reader, which take a third of a mapping's time. The mapping reads any
other value.
"""

from collections.abc import Mapping
from typing import Any, Final

from streams.records.limits import LATEST
from streams.sources import specs, transforms
from streams.sources.references import plain
from streams.sources.specs import Spec

#: Kinds of values: none; text; finite number; number on a scale; time in ms; text that stands for a label.
NOTHING: Final = 0
TEXT: Final = 1
NUMBER: Final = 2
SCALED: Final = 3
MS: Final = 4
LABEL: Final = 5
_KINDS: Final = {
    "event_id": TEXT,
    "scope": TEXT,
    "stream": TEXT,
    "model_version": TEXT,
    "p": NUMBER,
    "ts": MS,
    "y": NUMBER,
    "revision": NUMBER,
}
_LARGEST: Final = 1.7976931348623157e308
#: Name of the field in the record, its kind, the scale's begin and width, and labels by text.
Shortcut = tuple[str, int, float, float, Mapping[str, Any]]
NONE: Final[Shortcut] = ("", NOTHING, 0.0, 1.0, {})


def shortcut(field: str, spec: Spec) -> Shortcut:
    """Return the shortcut of a field, whose specification has been checked."""
    table = spec if isinstance(spec, dict) else {"path": spec}
    kind = _KINDS.get(field, NOTHING)
    references = specs.references(table["path"]) if "path" in table else []
    name = plain(references[0]) if len(references) == 1 else None
    if kind == NOTHING or name is None:
        return NONE
    if field == "ts" and table.get("unit", "ms") != "ms":
        return NONE
    if field == "y" and "labels" in table:
        known = {said: label for said, label in table["labels"].items() if label != transforms.SKIP}
        return name, LABEL, 0.0, 1.0, known
    if field == "p" and table.get("scale", "probability") != "probability":
        scale = specs.scale(table)
        if scale == transforms.LOG_ODDS:
            return NONE
        low, high = transforms.SCALES[scale] if isinstance(scale, str) else scale
        return name, SCALED, float(low), float(high - low), {}
    return name, kind, 0.0, 1.0, {}


def taken(found: Any, kind: int, low: float, width: float, labels: Mapping[str, Any]) -> Any:  # noqa: ANN401 - of the field
    """Return the field's value if it has the wanted form, otherwise None. The caller checks texts."""
    if kind == LABEL:
        return labels.get(found) if type(found) is str else None
    if kind == MS:
        return found if type(found) is int and 0 <= found <= LATEST else None
    if kind == SCALED:
        return float((found - low) / width) if type(found) is float or type(found) is int else None
    return found if type(found) is int or (type(found) is float and -_LARGEST <= found <= _LARGEST) else None
