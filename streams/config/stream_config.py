"""The TOML file that says what each stream does.

.. code-block:: toml

    closed = false                # true: a stream that no pattern matches is rejected
    early_ttl = "7d"              # how long an outcome waits for its forecast
    on_error = "none"             # or "raw": a forecast that is a dead letter is answered with its raw score, too
    carry_headers = ["traceparent", "tracestate"]   # of records, to go on to what they bring about

    [quota]                       # of all streams that no pattern matches, and of records whose stream is not known
    ids = "200/s"                 # in each partition of each input topic
    dead_letters = "10/s"

    [streams."fraud-*"]           # the first pattern that matches counts
    calibrator = "platt+regret_matching"
    ttl = "90d"                   # how long a forecast waits for its outcome; matures and 30 days more if not set
    matures = "45d"               # the age at which the label of a forecast is taken as known
    silence = 0                   # the label of a forecast that has no outcome when it matures
    unlabelled = "unknown"        # "alike": forecasts without a label are like those with one, as in a random sample
    frozen = true                 # the map stays as it is: what serves learns nothing; not set: it learns
    alarms_since = 2026-11-01T12:00:00Z   # alarms are acknowledged: they count from then on, in stream time
    learn = "maturity"            # when outcomes are learnt: when their forecast matures, or on "arrival"
    revisable = "120d"            # how long a later outcome may replace the label; ttl if not set
    features = ["amount", "age"]  # or a count; the names of x
    segments = ["country", "channel"]    # names of segments; a record gives their values
    pairs = [["country", "channel"]]     # combinations that are segments, too
    segments_required = false     # true: a forecast without a usable value of each name is a dead letter
    entity = "customer.account"   # path of what shares outcomes: of each at most three teach; not set: `entity`
    label_rate = "decision.chance"  # path of the chance of a label, or a number such as 0.02; not set: not known
    weight = "amount"             # path of what a forecast weighs: shown by weight, too; not set: not
    model_version = "model.version"   # path of the model's version: a calibrator each; not set: one for all
    carry_over = true             # a new version begins with the map of the one before; false: with raw scores
    seed = 0
    shards = 4                    # a stream too large for one partition: parts that learn apart, by event id
    options = { grid = 50 }       # of the calibrator
    on_error = "raw"              # as above, of these streams
    bands = { pass = 0, review = 0.02, block = 0.3 }   # lowest calibrated probability of each; by volume: review = "2%"
    hold = "volume"               # as many forecasts in each band as raw scores would be; not set: as calibrated
    cost_miss = 300               # of a positive below a band, and of a forecast in it or above, in one unit
    cost_alert = 8
    points = { base = 600, odds = 50, double = 20 }    # of a scorecard, beside the probability
    interval = 0.9                # p_low and p_high beside the probability: what outcomes leave open
    reasons = true                # why, in words, beside them
    quota = { records = "500/s", ids = "30000/m", dead_letters = "1/s" }  # of each stream; not set: not bounded
    shadow = [                    # challengers: scored on the same events, never served
        "platt+minimax",
        { calibrator = "histogram", options = { bins = 20 } },
    ]

Its ``[sources.NAME]`` tables are read by `streams.sources.config`.
"""

import datetime as dt
import math
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from state.bands import Bands, Points
from state.policies import Policies
from state.policy import DEFAULT_TTL_MS, NOTHING, Challenger, Policy
from state.policy_checks import UNKNOWN
from state.quotas import Quota, Rate
from streams.sources.references import steps

_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TOP = ("closed", "early_ttl", "quota", "on_error", "carry_headers", "streams", "sources")
_STREAM = (
    "calibrator",
    "ttl",
    "matures",
    "silence",
    "unlabelled",
    "learn",
    "revisable",
    "frozen",
    "alarms_since",
    "features",
    "segments",
    "pairs",
    "segments_required",
    "entity",
    "label_rate",
    "weight",
    "model_version",
    "carry_over",
    "seed",
    "options",
    "shadow",
    "shards",
    "quota",
    "on_error",
    "bands",
    "hold",
    "cost_miss",
    "cost_alert",
    "points",
    "interval",
    "reasons",
)
_CHALLENGER = ("calibrator", "options")
_QUOTA = ("records", "ids", "dead_letters")
_POINTS = ("base", "odds", "double")
#: Highest count of a rate.
_MOST = 1_000_000_000


def parse(text: str, default_calibrator: str, coin: bytes = b"") -> Policies:
    """Read the file's text; for the coin see `state.policy.build`.

    Raises ValueError if it is not TOML, or names something that is not a setting, a calibrator or an option.
    """
    return policies(loaded(text), default_calibrator, coin)


def loaded(text: str) -> dict[str, Any]:
    """Parse the file's text; raises ValueError if it is not TOML."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise ValueError(f"the streams file is not TOML: {exc}") from exc
    except RecursionError:
        raise ValueError("the streams file is nested too deeply") from None


def policies(table: Mapping[str, Any], default_calibrator: str, coin: bytes = b"") -> Policies:
    """Make the policies of a parsed file; raises ValueError as `parse` does."""
    _known("the streams file", table, _TOP)
    closed = _typed(table, "closed", bool, default=False)
    streams = _typed(table, "streams", dict, default={})
    early = _duration(table, "early_ttl", DEFAULT_TTL_MS)
    on_error = _typed(table, "on_error", str, default=NOTHING)
    patterns = []
    for pattern, stream in streams.items():
        where = f'streams."{pattern}"'
        if not isinstance(stream, dict):
            raise ValueError(f"{where} must be a table")  # noqa: TRY004 - one kind of error for configuration
        try:
            patterns.append((pattern, _policy({"on_error": on_error, **stream}, default_calibrator)))
        except ValueError as exc:
            raise ValueError(f"{where}: {exc}") from exc
    default = None if closed else Policy(default_calibrator, on_error=on_error)
    return Policies(patterns, default, early, coin, quota(table), on_error)


def duration(value: object) -> int:
    """Return a duration such as ``90s``, ``12h`` or ``30d`` in ms; raises ValueError on anything else."""
    match = re.fullmatch(r"(\d{1,9})(ms|s|m|h|d)", value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{value!r} is not a duration such as 90s, 12h or 30d")
    return int(match[1]) * _UNITS[match[2]]


def _duration(table: Mapping[str, Any], name: str, default: int) -> int:
    try:
        return duration(table[name]) if name in table else default
    except ValueError as exc:
        raise ValueError(f"{name}: {exc}") from exc


def quota(table: Mapping[str, Any]) -> Quota | None:
    """Return the quota of a table that may have one; raises ValueError if it is none."""
    if "quota" not in table:
        return None
    rates = _typed(table, "quota", dict, default={})
    _known("a quota", rates, _QUOTA)
    if not rates:
        raise ValueError(f"quota sets no rate; there are: {', '.join(_QUOTA)}")
    return Quota(**{name: _rate(name, value) for name, value in rates.items()})


def shown(of: Quota | None) -> dict[str, str]:
    """Return the rates that a quota sets, as the file has them."""
    units = {length: unit for unit, length in _UNITS.items()}
    rates = {} if of is None else {name: getattr(of, name) for name in _QUOTA}
    return {name: f"{rate.count}/{units[rate.unit_ms]}" for name, rate in rates.items() if rate is not None}


def _rate(name: str, value: object) -> Rate:
    """Return a rate such as ``500/s``: so many in a unit of time, which may also come at once."""
    match = re.fullmatch(r"(\d{1,10})/([smhd])", value) if isinstance(value, str) else None
    if match is None or not 0 < int(match[1]) <= _MOST:
        raise ValueError(
            f"quota: {name} must be a rate such as 500/s, 30000/m, 20000/h or 1000000/d, at least 1 and at most "
            f"{_MOST}, got {value!r}"
        )
    return Rate(int(match[1]), _UNITS[match[2]])


def _policy(stream: Mapping[str, Any], default_calibrator: str) -> Policy:
    _known("a stream", stream, _STREAM)
    features = stream.get("features", 0)
    if isinstance(features, list):
        if not all(isinstance(name, str) for name in features) or len(set(features)) < len(features):
            raise ValueError("features must be a count or a list of different names")
        features = tuple(features)
    elif type(features) is not int:
        raise ValueError("features must be a count or a list of different names")
    matures = _duration(stream, "matures", 0)
    silence = stream.get("silence")
    if silence is not None and type(silence) not in (int, float):
        raise ValueError(f"silence must be a label, got {silence!r}")
    return Policy(
        calibrator=_typed(stream, "calibrator", str, default=default_calibrator),
        options=_options(stream),
        features=features,
        ttl_ms=_duration(stream, "ttl", matures + DEFAULT_TTL_MS),
        matures_ms=matures,
        silence=None if silence is None else float(silence),
        unlabelled=_typed(stream, "unlabelled", str, default=UNKNOWN),
        learn=_typed(stream, "learn", str, default=""),
        frozen=_typed(stream, "frozen", bool, default=False),
        alarms_since_ms=_moment(stream, "alarms_since"),
        revisable_ms=_duration(stream, "revisable", 0),
        segments=_segments(stream),
        pairs=_pairs(stream),
        segments_required=_typed(stream, "segments_required", bool, default=False),
        seed=_typed(stream, "seed", int, default=0),
        shards=_typed(stream, "shards", int, default=1),
        shadow=tuple(_challenger(each) for each in _typed(stream, "shadow", list, default=[])),
        quota=quota(stream),
        on_error=_typed(stream, "on_error", str, default=NOTHING),
        entity=_path(stream, "entity", "customer.account"),
        label_rate=_label_rate(stream),
        weight=_path(stream, "weight", "amount"),
        model_version=_path(stream, "model_version", "model.version"),
        carry_over=_typed(stream, "carry_over", bool, default=True),
        bands=_bands(stream),
        points=_points(stream),
        interval=_number(stream, "interval", 0.0),
        reasons=_typed(stream, "reasons", bool, default=False),
        cost_miss=_number(stream, "cost_miss", 0.0),
        cost_alert=_number(stream, "cost_alert", 0.0),
    )


def _moment(table: Mapping[str, Any], name: str) -> int:
    """Return a time in ms, 0 if it is not set."""
    value = table.get(name)
    if value is None:
        return 0
    if not isinstance(value, dt.datetime) or value.tzinfo is None or value.timestamp() <= 0:
        raise ValueError(f"{name} must be a time after 1970 with its zone, such as 2026-11-01T12:00:00Z without quotes")
    return int(value.timestamp() * 1000)


def _number(table: Mapping[str, Any], name: str, default: float | None = None) -> float:
    value = table.get(name, default)
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"{name} must be a number, got {value!r}")
    return float(value)


def _bands(stream: Mapping[str, Any]) -> Bands | None:
    hold = _typed(stream, "hold", str, default="")
    if hold not in ("", "volume"):
        raise ValueError(f'hold must be "volume" or not set, got {hold!r}')
    if "bands" not in stream:
        if hold:
            raise ValueError('hold = "volume" needs bands')
        return None
    table = _typed(stream, "bands", dict, default={})
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
        return Bands((lowest, *rest), (0.0, *(_number(rest, name) for name in rest)), hold=bool(hold))
    if len(by_share) < len(rest):
        other = next(name for name in rest if name not in by_share)
        raise ValueError(
            f"bands: {by_share[0]} is a share and {other} a probability: give all above the lowest as one or the other"
        )
    return Bands((lowest, *rest), shares=tuple(_share(name, rest[name]) for name in rest), hold=bool(hold))


def _share(name: str, value: str) -> float:
    match = re.fullmatch(r"(\d{1,3}(?:\.\d{1,12})?)%", value)
    if match is None:
        raise ValueError(f'bands: {name} must be a probability such as 0.02 or a share such as "2%", got {value!r}')
    return float(match[1]) / 100.0


def _points(stream: Mapping[str, Any]) -> Points | None:
    if "points" not in stream:
        return None
    table = _typed(stream, "points", dict, default={})
    _known("points", table, _POINTS)
    if lacking := [name for name in _POINTS if name not in table]:
        raise ValueError(f"points has no {lacking[0]}: write points = {{ base = 600, odds = 50, double = 20 }}")
    return Points(**{name: _number(table, name) for name in _POINTS})


def _path(stream: Mapping[str, Any], name: str, such: str) -> str:
    path: str = _typed(stream, name, str, default="")
    if name in stream and not path:
        raise ValueError(f'{name} must be a path of names such as "{such}", got "": leave it out')
    if path and not all(isinstance(step, str) for step in steps(path)):
        raise ValueError(f'{name} must be a path of names such as "{such}", got {path!r}')
    return path


def _label_rate(stream: Mapping[str, Any]) -> float | str:
    rate = stream.get("label_rate", "")
    if type(rate) not in (str, int, float):
        raise ValueError(f'label_rate must be a number such as 0.02, or a path such as "decision.chance", got {rate!r}')
    if type(rate) is not str:
        return _number(stream, "label_rate")
    if rate[:1].isdigit():
        raise ValueError(f"label_rate = {rate!r} is text, which names a path: write a number without quotes")
    return _path(stream, "label_rate", "decision.chance")


def _segments(stream: Mapping[str, Any]) -> tuple[str, ...]:
    names = _typed(stream, "segments", list, default=[])
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f'segments must be a list of names such as ["country", "channel"], got {names!r}')
    return tuple(names)


def _pairs(stream: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    found = []
    for pair in _typed(stream, "pairs", list, default=[]):
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(name, str) for name in pair):
            raise ValueError(f'a pair is two names such as ["country", "channel"], got {pair!r}')
        found.append((pair[0], pair[1]))
    return tuple(found)


def _challenger(given: object) -> Challenger:
    """Read an entry of ``shadow``: the name of a calibrator, or a table with its options."""
    if isinstance(given, str):
        return Challenger(given, {})
    if not isinstance(given, dict) or "calibrator" not in given:
        raise ValueError(f"a challenger is the name of a calibrator, or a table that has one, got {given!r}")
    _known("a challenger", given, _CHALLENGER)
    return Challenger(_typed(given, "calibrator", str, default=""), _options(given))


def _options(table: Mapping[str, Any]) -> dict[str, Any]:
    options = _typed(table, "options", dict, default={})
    return {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}


def _known(what: str, table: Mapping[str, Any], allowed: tuple[str, ...]) -> None:
    for name in table:
        if name not in allowed:
            raise ValueError(f"{what} has no setting {name!r}; there are: {', '.join(allowed)}")


def _typed(table: Mapping[str, Any], name: str, kind: type, *, default: Any) -> Any:  # noqa: ANN401 - checked here
    value = table.get(name, default)
    if type(value) is not kind:
        raise ValueError(f"{name} must be of type {kind.__name__}, got {value!r}")
    return value
