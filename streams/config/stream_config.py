"""The TOML file that says what each stream does. Each key is declared once: an example, its meaning, its reader.

Its ``[sources.NAME]`` tables are read by `streams.sources.config`.
"""

import datetime as dt
import math
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any, Final, NamedTuple

from state.bands import Bands, Points
from state.policies import Policies
from state.policy import DEFAULT_TTL_MS, NOTHING, Challenger, Policy
from streams.sources.references import steps
from streams.sources.specs import known

_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
Table = Mapping[str, Any]


class Key(NamedTuple):
    """A key of a table of the file."""

    #: A value in TOML, with its meaning.
    example: str
    meaning: str
    #: Reads the value under a name from a table; raises ValueError if it is not allowed.
    read: Callable[[Table, str], Any]
    #: Name of its field in `Policy`, if that differs.
    field: str = ""


def parse(text: str, default_calibrator: str, coin: bytes = b"") -> Policies:
    """Read the file's text; for ``coin`` see `state.policy.build`.

    Raises ValueError if it is not TOML, or names something that is not a setting, a calibrator or an option.
    """
    return policies(loaded(text), default_calibrator, coin)


def loaded(text: str) -> dict[str, Any]:
    """Parse the file's text; raises ValueError if it is not TOML."""
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))  # Notepad writes this at the beginning of a file
    except tomllib.TOMLDecodeError as exc:
        raise ValueError(f"the streams file is not TOML: {exc}") from exc
    except RecursionError:
        raise ValueError("the streams file is nested too deeply") from None


def policies(table: Table, default_calibrator: str, coin: bytes = b"") -> Policies:
    """Make the policies of a parsed file; raises ValueError as `parse` does."""
    found: dict[str, Any] = {"closed": False, "early_ttl": DEFAULT_TTL_MS, "on_error": NOTHING, "streams": {}}
    found |= _read("the streams file", table, TOP)
    on_error, patterns = found["on_error"], []
    for pattern, stream in found["streams"].items():
        where = f'streams."{pattern}"'
        if not isinstance(stream, dict):
            raise ValueError(f"{where} must be a table")  # noqa: TRY004 - one kind of error for configuration
        try:
            patterns.append((pattern, _policy({"on_error": on_error, **stream}, default_calibrator)))
        except ValueError as exc:
            raise ValueError(f"{where}: {exc}") from exc
    default = None if found["closed"] else Policy(default_calibrator, on_error=on_error)
    return Policies(patterns, default, found["early_ttl"], coin, on_error)


def example() -> str:
    """Return a file with every key and its meaning."""
    tables = {"": TOP, '[streams."fraud-*"]           # the first pattern that matches counts\n': STREAM}
    return "\n".join(head + "".join(_shown(name, key) for name, key in of.items()) for head, of in tables.items())


def duration(value: object) -> int:
    """Return a duration such as ``90s``, ``12h`` or ``30d`` in ms; raises ValueError on anything else."""
    match = re.fullmatch(r"(\d{1,9})(ms|s|m|h|d)", value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{value!r} is not a duration such as 90s, 12h or 30d")
    return int(match[1]) * _UNITS[match[2]]


def _shown(name: str, key: Key) -> str:
    """Return the lines of a key in the example; empty if the example does not show it."""
    first, *rest = f"{name} = {key.example}".split("\n")
    meaning = f"  # {key.meaning}" if key.meaning else ""
    return "".join(f"{line}\n" for line in (f"{first:<28}{meaning}".rstrip(), *rest)) if key.example else ""


def _policy(stream: Table, default_calibrator: str) -> Policy:
    read = _read("a stream", stream, STREAM)
    read.pop("hold", None)  # the key is part of the bands
    found = {STREAM[name].field or name: value for name, value in read.items()}
    found.setdefault("calibrator", default_calibrator)
    found.setdefault("ttl_ms", found.get("matures_ms", 0) + DEFAULT_TTL_MS)
    return Policy(**found)


# -- how values are read -----------------------------------------------------------------------------------------------


def _read(what: str, table: Table, keys: Mapping[str, Key]) -> dict[str, Any]:
    """Return the values of a table by key, in the order of the keys."""
    known(table, keys, f"{what} ")
    return {name: key.read(table, name) for name, key in keys.items() if name in table}


def _typed(kind: type, table: Table, name: str) -> Any:  # noqa: ANN401 - of the kind
    value = table[name]
    if type(value) is not kind:
        raise ValueError(f"{name} must be of type {kind.__name__}, got {value!r}")
    return value


_text, _flag, _whole, _table = (partial(_typed, kind) for kind in (str, bool, int, dict))


def _later(table: Table, name: str) -> Any:  # noqa: ANN401 - not looked at
    """Return a value unread: another module reads it."""
    return table[name]


def _duration(table: Table, name: str) -> int:
    try:
        return duration(table[name])
    except ValueError as exc:
        raise ValueError(f"{name}: {exc}") from exc


def _number(table: Table, name: str) -> float:
    value = table[name]
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"{name} must be a number, got {value!r}")
    return float(value)


def _moment(table: Table, name: str) -> int:
    """Return a time in ms."""
    value = table[name]
    if not isinstance(value, dt.datetime) or value.tzinfo is None or value.timestamp() <= 0:
        raise ValueError(
            f"{name} must be a time after 1970 with its zone, such as {STREAM[name].example} without quotes"
        )
    return int(value.timestamp() * 1000)


def _silence(table: Table, name: str) -> float:
    if type(table[name]) not in (int, float):
        raise ValueError(f"silence must be a label, got {table[name]!r}")
    return float(table[name])


def _features(table: Table, name: str) -> int | tuple[str, ...]:
    features = table[name]
    if type(features) is int:
        return features
    named = isinstance(features, list) and all(isinstance(each, str) for each in features)
    if not named or len(set(features)) < len(features):
        raise ValueError("features must be a count or a list of different names")
    return tuple(features)


def _hold(table: Table, name: str) -> bool:
    hold = table.get(name, "")
    if hold not in ("", "volume"):
        raise ValueError(f'hold must be "volume" or not set, got {hold!r}')
    if hold and "bands" not in table:
        raise ValueError('hold = "volume" needs bands')
    return bool(hold)


def _bands(stream: Table, name: str) -> Bands:
    table, hold = _table(stream, name), _hold(stream, "hold")
    rest = dict(table)
    lowest = next(iter(rest), "")
    if lowest and (rest[lowest] == "100%" or (type(rest[lowest]) in (int, float) and rest[lowest] == 0)):
        del rest[lowest]
    else:
        lowest = ""
    if "" in table:
        raise ValueError("bands: a band has no name")
    by_share = [name for name, value in rest.items() if isinstance(value, str)]
    if not by_share:
        return Bands((lowest, *rest), (0.0, *(_number(rest, name) for name in rest)), hold=hold)
    if len(by_share) < len(rest):
        other = next(name for name in rest if name not in by_share)
        raise ValueError(
            f"bands: {by_share[0]} is a share and {other} a probability: give all above the lowest as one or the other"
        )
    return Bands((lowest, *rest), shares=tuple(_share(name, rest[name]) for name in rest), hold=hold)


def _share(name: str, value: str) -> float:
    match = re.fullmatch(r"(\d{1,3}(?:\.\d{1,12})?)%", value)
    if match is None:
        raise ValueError(f'bands: {name} must be a probability such as 0.02 or a share such as "2%", got {value!r}')
    return float(match[1]) / 100.0


def _points(stream: Table, name: str) -> Points:
    table, names = _table(stream, name), [each.name for each in fields(Points)]
    known(table, names, "points ")
    if lacking := [each for each in names if each not in table]:
        raise ValueError(f"points has no {lacking[0]}: write points = {STREAM[name].example}")
    return Points(**{each: _number(table, each) for each in table})


def _path(stream: Table, name: str) -> str:
    path: str = _text(stream, name)
    if not path:
        raise ValueError(f'{name} must be a path of names such as {STREAM[name].example}, got "": leave it out')
    if not all(isinstance(step, str) for step in steps(path)):
        raise ValueError(f"{name} must be a path of names such as {STREAM[name].example}, got {path!r}")
    return path


def _label_rate(stream: Table, name: str) -> float | str:
    rate = stream[name]
    if type(rate) not in (str, int, float):
        raise ValueError(f'label_rate must be a number such as 0.02, or a path such as "decision.chance", got {rate!r}')
    if type(rate) is not str:
        return _number(stream, name)
    if rate[:1].isdigit():
        raise ValueError(f"label_rate = {rate!r} is text, which names a path: write a number without quotes")
    return _path(stream, name)


def _segments(stream: Table, name: str) -> tuple[str, ...]:
    names = _typed(list, stream, name)
    if not all(isinstance(each, str) for each in names):
        raise ValueError(f"segments must be a list of names such as {STREAM[name].example}, got {names!r}")
    return tuple(names)


def _pairs(stream: Table, name: str) -> tuple[tuple[str, str], ...]:
    pairs = _typed(list, stream, name)
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(each, str) for each in pair):
            raise ValueError(f'a pair is two names such as ["country", "channel"], got {pair!r}')
    return tuple((one, other) for one, other in pairs)


def _shadow(stream: Table, name: str) -> tuple[Challenger, ...]:
    return tuple(_challenger(each) for each in _typed(list, stream, name))


def _challenger(given: object) -> Challenger:
    """Read an entry of ``shadow``: the name of a calibrator, or a table with its options."""
    if isinstance(given, str):
        return Challenger(given, {})
    if not isinstance(given, dict) or "calibrator" not in given:
        raise ValueError(f"a challenger is the name of a calibrator, or a table that has one, got {given!r}")
    known(given, Challenger._fields, "a challenger ")
    return Challenger(_text(given, "calibrator"), _options({"options": {}, **given}, "options"))


def _options(table: Table, name: str) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in _table(table, name).items()}


# -- the keys ----------------------------------------------------------------------------------------------------------

#: Keys of the file itself.
TOP: Final = {
    "closed": Key("false", "true: a stream that no pattern matches is rejected", _flag),
    "early_ttl": Key('"7d"', "how long an outcome waits for its forecast", _duration),
    "on_error": Key('"none"', 'or "raw": a forecast that is a dead letter is answered with its raw score, too', _text),
    "carry_headers": Key('["traceparent", "tracestate"]', "of records, to go on to what they bring about", _later),
    "streams": Key("", "", _table),
    "sources": Key("", "", _later),
}
_SHADOW: Final = """[
    "platt+minimax",
    { calibrator = "histogram", options = { bins = 20 } },
]"""
#: Keys of a ``[streams.PATTERN]`` table.
STREAM: Final = {
    "calibrator": Key('"platt+regret_matching"', "", _text),
    "ttl": Key('"90d"', "how long a forecast waits for its outcome; else matures and 30 days", _duration, "ttl_ms"),
    "matures": Key('"45d"', "the age at which the label of a forecast is taken as known", _duration, "matures_ms"),
    "silence": Key("0", "the label of a forecast that has no outcome when it matures", _silence),
    "unlabelled": Key('"unknown"', '"alike": those without a label are like those with one, as in a sample', _text),
    "learn": Key('"maturity"', 'when outcomes are learnt: when their forecast matures, or on "arrival"', _text),
    "revisable": Key('"120d"', "how long another outcome may replace the label; else ttl", _duration, "revisable_ms"),
    "frozen": Key("true", "the map stays as it is: what serves learns nothing; not set: it learns", _flag),
    "alarms_since": Key(
        "2026-11-01T12:00:00Z", "alarms are acknowledged: they count from then on", _moment, "alarms_since_ms"
    ),
    "features": Key('["amount", "age"]', "or a count; the names of x", _features),
    "segments": Key('["country", "channel"]', "names of segments; a record gives their values", _segments),
    "pairs": Key('[["country", "channel"]]', "combinations that are segments, too", _pairs),
    "segments_required": Key("false", "true: a forecast without a value of each name is a dead letter", _flag),
    "entity": Key('"customer.account"', "path of what shares outcomes: at most three of each teach", _path),
    "label_rate": Key('"decision.chance"', "path of the chance of a label, or a number such as 0.02", _label_rate),
    "weight": Key('"amount"', "path of what a forecast weighs: shown by weight, too; not set: not", _path),
    "model_version": Key('"model.version"', "path of the model's version: a calibrator each; else one for all", _path),
    "carry_over": Key("true", "a new version begins with the map of the one before; false: with raw scores", _flag),
    "seed": Key("0", "of the draws", _whole),
    "options": Key("{ grid = 50 }", "of the calibrator", _options),
    "shadow": Key(_SHADOW, "challengers: scored on the same events, never served", _shadow),
    "shards": Key("4", "a stream too large for one partition: parts that learn apart, by event id", _whole),
    "on_error": Key('"raw"', "as above, of these streams", _text),
    "bands": Key("{ pass = 0, review = 0.02, block = 0.3 }", 'lowest probability; by volume: review = "2%"', _bands),
    "hold": Key('"volume"', "as many forecasts in each band as raw scores would be; not set: as calibrated", _hold),
    "cost_miss": Key("300", "of a positive below a band, and of a forecast in it or above, in one unit", _number),
    "cost_alert": Key("8", "", _number),
    "points": Key("{ base = 600, odds = 50, double = 20 }", "of a scorecard, beside the probability", _points),
    "interval": Key("0.9", "p_low and p_high beside the probability: what outcomes leave open", _number),
    "reasons": Key("true", "why, in words, beside them", _flag),
}
