"""The record of the configuration in force in a partition, written by a worker, a router or an intake that takes it up.

Answers depend on the streams file and on a few settings, and both change. So a worker writes its configuration, and the
offsets from which it holds, before its first answer. An audit derives every answer under the configuration that was in
force then. A router does the same for routes and labels, and an intake for source partitions.

The topic is compacted and keeps every record: each key is written once, and keys of configurations always have the same
value. Records are ordered by ``claim``, the offset of the worker's claim in the changelog, so a late one is still
recognised as older.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from hashlib import blake2b
from itertools import pairwise
from typing import Any, Final, TypeVar

import orjson

from state.bands import Bands, Points
from state.formats import ARITHMETIC
from state.policies import Policies
from state.policy import Challenger, Policy
from streams.config.settings import Settings
from streams.sources import config as source_config
from streams.sources.modes import Mode

T = TypeVar("T")

VERSION: Final = 1
#: The settings, beside the streams file, that decide answers.
LIMITS: Final = ("record_bytes", "id_bytes", "ahead_seconds", "letter_bytes", "unpacked_bytes")
#: Key prefixes of the records of workers and routers.
WORKER: Final = b"taken-up/"
ROUTER: Final = b"routed/"
_MAPPED: Final = b"mapped/"
_CONFIGURATION: Final = b"configuration/"
#: Key of the record that says what a partition began with. Key prefixes of the first rows, of worker and router.
LOADED: Final = b"loaded"
LOADED_ROW: Final = b"loaded/"
LOADED_ROUTE: Final = b"loaded-route/"
#: All keys of first rows begin with one of these. There are as many first rows as rows in a state.
FIRST_ROWS: Final = (LOADED_ROW, LOADED_ROUTE)


class InForceError(ValueError):
    """The records of configurations cannot be read; the message says which and why."""


class OtherArithmeticError(InForceError):
    """The answers were computed by version `version` of the arithmetic, which is not this build's."""

    def __init__(self, name: str, version: int) -> None:
        super().__init__(
            f"what was answered under configuration {name} has version {version} of the arithmetic, this build has "
            f"{ARITHMETIC}"
        )
        self.version = version


class _Configured:
    """A configuration in force, with its hash."""

    configuration: bytes

    @property
    def digest(self) -> str:
        """Hash of the configuration, 32 hex digits."""
        return digest(self.configuration)


@dataclass(frozen=True)
class InForce(_Configured):
    """The configuration of a worker in a partition, and since when it holds."""

    #: Offset of the worker's claim in the changelog. A later claim has a larger one.
    claim: int
    #: Number of records of both inputs applied before that.
    applied: int
    #: Next offset of forecasts and of outcomes.
    next: tuple[int, int]
    #: Canonical JSON from `described`.
    configuration: bytes
    #: Who took the partition up, and when (ISO 8601); for people.
    owner: str = ""
    at: str = ""


@dataclass(frozen=True)
class Mapped(_Configured):
    """The configuration of an intake for a source partition, and since when it holds."""

    #: The source partition, and its topic's id as the brokers give it.
    topic: str
    topic_id: str
    partition: int
    #: Offset of the first record that it maps.
    since: int
    #: Canonical JSON from `mapping`.
    configuration: bytes
    #: Who took the source partition up, and when (ISO 8601); for people.
    owner: str = ""
    at: str = ""


def digest(configuration: bytes) -> str:
    """Return the hash of a configuration, 32 hex digits."""
    return blake2b(configuration, digest_size=16).hexdigest()


def described(settings: Settings) -> bytes:
    """Return all settings that decide answers, as canonical JSON.

    Defaults are included, because a later version may have others.
    """
    found = _described(settings) | {"arithmetic": ARITHMETIC}
    if settings.direct is not None:
        found["sources"] = _sources(mode for mode in settings.modes if mode.direct)
    return orjson.dumps(found, option=orjson.OPT_SORT_KEYS)


def mapping(settings: Settings) -> bytes:
    """Return all settings that decide how intake maps source records, as canonical JSON."""
    found = _described(settings)
    del found["coin"]  # intake draws nothing
    found["sources"] = _sources(mode for mode in settings.modes if not mode.direct)
    return orjson.dumps(found, option=orjson.OPT_SORT_KEYS)


def _sources(modes: Iterable[Mode]) -> str:
    """Return sources as text. The order of tables and of their keys is kept, because mapped records depend on it."""
    return orjson.dumps(source_config.plain(modes)).decode()


def _described(settings: Settings) -> dict[str, Any]:
    policies = settings.policies
    return {
        "streams": [[pattern, plain(policy)] for pattern, policy in policies.patterns],
        "default": policies.default and plain(policies.default),
        "early_ttl_ms": policies.early_ttl_ms,
        "limits": {name: getattr(settings, name) for name in LIMITS},
        "coin": policies.coin_name,
        "on_error": policies.on_error,
        "carry_headers": settings.carry_headers,
    }


def restored(configuration: bytes, settings: Settings) -> Settings:
    """Return the settings with their configuration replaced by one from `described` or `mapping`.

    Raises OtherArithmeticError if this version's answers differ.
    Raises InForceError if the configuration names something that this version does not know.
    """
    try:
        found = orjson.loads(configuration)
        arithmetic = found.get("arithmetic", ARITHMETIC)
        if arithmetic != ARITHMETIC:
            raise OtherArithmeticError(digest(configuration), arithmetic)
        patterns = [(pattern, _policy(policy)) for pattern, policy in found["streams"]]
        default = found["default"] and _policy(found["default"])
        limits = {name: found["limits"][name] for name in LIMITS}
        headers = tuple(found["carry_headers"])
        policies = Policies(patterns, default, found["early_ttl_ms"], settings.policies.coin, found["on_error"])
        coin = found.get("coin", policies.coin_name)
        sources = source_config.parse(dict(orjson.loads(found.get("sources", "[]"))), headers)
    except InForceError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise InForceError(
            f"configuration {digest(configuration)} cannot be read by this version: {exc!r}. Another build wrote it: "
            "run that one; see docs/how-to/upgrade.md"
        ) from exc
    if coin != policies.coin_name:
        drew, here = f"key {coin}" if coin else "no key", policies.coin_name or "not set"
        raise InForceError(
            f"configuration {digest(configuration)} drew with {drew}, TRUEUP_COIN_KEY here is {here}: give the key "
            "that was in force"
        )
    return replace(under(settings, policies, **limits), sources=sources, carry_headers=headers)


def under(settings: Settings, policies: Policies, **limits: Any) -> Settings:  # noqa: ANN401 - of `LIMITS`
    """Return settings with other policies and limits."""
    # The batch size decides no answer. So it is made large enough for every check.
    return replace(settings, policies=policies, batch_bytes=sys.maxsize, checkpoint_bytes=2 * sys.maxsize, **limits)


def plain(policy: Policy) -> dict[str, Any]:
    """Return every field of a policy, with all options of its calibrators."""
    made = {each.name: getattr(policy, each.name) for each in fields(policy)}
    shadow = [{"calibrator": each.calibrator, "options": _options(each)} for each in policy.challengers]
    return made | {"options": _options(policy), "shadow": shadow}


def _options(policy: Policy) -> Any:  # noqa: ANN401 - of the calibrator
    return orjson.loads(policy.recipe)["options"]


def _policy(made: Mapping[str, Any]) -> Policy:
    """Return the policy that `plain` described in JSON."""
    of: dict[str, Callable[..., Any]] = {"bands": Bands, "points": Points}
    read = {name: of[name](**value) if value and name in of else value for name, value in _tuples(made).items()}
    return Policy(**read | {"shadow": tuple(Challenger(**each) for each in read["shadow"])})


def _tuples(value: Any) -> Any:  # noqa: ANN401 - of JSON
    """Return a JSON value with tuples instead of lists."""
    if isinstance(value, dict):
        return {name: _tuples(each) for name, each in value.items()}
    return tuple([_tuples(each) for each in value]) if isinstance(value, list) else value


# -- records ---------------------------------------------------------------------------------------------------------


def records(now: InForce, room: int, kind: bytes = WORKER) -> list[tuple[bytes, bytes]]:
    """Return the records to append, key and value, in order: first the parts of the configuration, then the record.

    ``room``: largest size of a part, bytes.
    ``kind``: `WORKER` or `ROUTER`.
    """
    said = {"claim": now.claim, "applied": now.applied, "next": now.next}
    return _records(b"%b%020d" % (kind, now.claim), said, now, room)


def mapped_records(now: Mapped, room: int) -> list[tuple[bytes, bytes]]:
    """Return the records of an intake, see `records`."""
    said = {"topic": now.topic, "id": now.topic_id, "partition": now.partition, "since": now.since}
    key = b"%b%b/%d/%020d" % (_MAPPED, now.topic_id.encode(), now.partition, now.since)
    return _records(key, said, now, room)


def _records(key: bytes, said: dict[str, Any], now: InForce | Mapped, room: int) -> list[tuple[bytes, bytes]]:
    whole = now.configuration
    parts = [whole[at : at + room] for at in range(0, len(whole), room)]
    said |= {"version": VERSION, "configuration": now.digest, "parts": len(parts), "owner": now.owner, "at": now.at}
    return [*((_part(now.digest, len(parts), n), part) for n, part in enumerate(parts)), (key, orjson.dumps(said))]


def _part(name: str, count: int, n: int) -> bytes:
    return _CONFIGURATION + f"{name}/{count}/{n}".encode()


def read(found: Iterable[tuple[bytes | None, bytes | None]], kind: bytes = WORKER) -> list[InForce]:
    """Return the configurations in force of a partition, the oldest first.

    Raises InForceError if a record does not come from `records`, or if one is missing.

    ``found``: all records of the topic's partition, key and value, in any order.
    ``kind``: `WORKER` or `ROUTER`.
    """
    said = _read(found, kind, _in_force)
    said.sort(key=lambda each: each.claim)
    for before, after in pairwise(said):
        if after.applied < before.applied:
            raise InForceError(
                f"claim {after.claim} took the partition up after {after.applied} records, claim {before.claim} before "
                f"it after {before.applied}"
            )
    return said


def read_mapped(found: Iterable[tuple[bytes | None, bytes | None]]) -> list[Mapped]:
    """Return the configurations of intakes, in order of offsets; raises as `read`."""
    said = _read(found, _MAPPED, _mapped)
    return sorted(said, key=lambda each: (each.topic, each.topic_id, each.partition, each.since))


def _in_force(said: dict[str, Any], whole: bytes) -> InForce:
    first, second = said["next"]
    return InForce(said["claim"], said["applied"], (first, second), whole, said["owner"], said["at"])


def _mapped(said: dict[str, Any], whole: bytes) -> Mapped:
    return Mapped(said["topic"], said["id"], said["partition"], said["since"], whole, said["owner"], said["at"])


def _read(
    found: Iterable[tuple[bytes | None, bytes | None]], kind: bytes, make: Callable[[dict[str, Any], bytes], T]
) -> list[T]:
    """Return an object for each record of a kind, made by ``make`` from the record and its configuration."""
    kept = {key: value for key, value in found if key is not None and value is not None}
    made = []
    for key, value in kept.items():
        if key.startswith(kind):
            try:
                made.append(make(*_whole(key, value, kept)))
            except (orjson.JSONDecodeError, KeyError, TypeError) as exc:
                raise InForceError(f"record {key!r} cannot be read, or what it names is missing: {exc!r}") from exc
    return made


def _whole(key: bytes, value: bytes, kept: Mapping[bytes, bytes]) -> tuple[dict[str, Any], bytes]:
    """Return the fields of a record, and the configuration to which it refers."""
    said = orjson.loads(value)
    if said["version"] != VERSION:
        raise InForceError(f"record {key.decode()} has version {said['version']}, this program reads {VERSION}")
    name, count = said["configuration"], said["parts"]
    whole = b"".join([kept[_part(name, count, n)] for n in range(count)])
    if digest(whole) != name:
        raise InForceError(f"configuration {name} does not have the hash in its name")
    return said, whole
