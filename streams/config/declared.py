"""The settings of a worker as they are declared: the meaning, the default and the parser of each."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import nan
from pathlib import Path

from state.engine import BATCH_LIMIT
from state.policies import Policies
from state.policy import DEFAULT_CALIBRATOR, Policy
from state.witnesses import SLACK
from streams.config import stream_config, variables
from streams.config.variables import setting
from streams.kafka import codecs
from streams.kafka.security import Access, Security
from streams.records.limits import Limits
from streams.sources import carrying
from streams.sources.modes import Source
from streams.sources.registry import Registry

#: The most addresses of brokers.
BROKERS = 100
#: Formats of outputs.
OUTPUT_FORMATS = ("json", "avro")
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def _text(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    return value.strip()


def _name(value: str) -> str:
    """Return a topic's name if it is short enough for the suffixes that Faust appends."""
    name = _text(value)
    if not re.fullmatch(r"[a-zA-Z0-9._-]{1,200}", name) or name in (".", ".."):
        raise ValueError("must be 1 to 200 of the characters a-z, A-Z, 0-9, '.', '_' and '-'")
    return name


def _prefix(value: str) -> str:
    if not re.fullmatch(r"[a-zA-Z0-9._-]{0,100}", value):
        raise ValueError("must be at most 100 of the characters a-z, A-Z, 0-9, '.', '_' and '-'")
    return value


def _host(value: str) -> str:
    try:
        _text(value).encode("idna")  # as it is looked up
    except UnicodeError as exc:
        raise ValueError("has a host whose name cannot be looked up: a part of it is empty or too long") from exc
    return value.strip()


def _number(low: int, high: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        number = int(value) if value.strip().isdecimal() else low - 1
        if not low <= number <= high:
            raise ValueError(f"must be a whole number between {low} and {high}")
        return number

    return parse


def _seconds(low: float, high: float) -> Callable[[str], float]:
    def parse(value: str) -> float:
        try:
            number = float(value)
        except ValueError:
            number = nan  # refused below, with the allowed values
        if not low <= number <= high:
            raise ValueError(f"must be between {low:g} and {high:g} seconds")
        return number

    return parse


def _brokers(value: str) -> tuple[str, ...]:
    brokers = tuple(part.strip() for part in value.split(","))
    if len(brokers) > BROKERS:
        raise ValueError(f"must be at most {BROKERS}: a few are enough to find the others")
    for broker in brokers:
        host, colon, port = broker.rpartition(":")
        if "/" in broker or "@" in broker or not (host and colon and port.isdecimal()):
            raise ValueError("must be host:port, or several separated by commas, without a scheme or a password")
        if not 0 < int(port) < 65536:
            raise ValueError(f"{broker} has no port between 1 and 65535")
        _host(host)
    return brokers


def _calibrator(value: str) -> str:
    return Policy(_text(value)).calibrator


def _one_of(value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ValueError(f"must be one of {', '.join(allowed)}")
    return value


@dataclass(frozen=True)
class Coin:
    """The secret that keys the draws. All workers of a group need the same one."""

    key: str | None = variables.variable(
        "COIN_KEY",
        "Secret that keys the draws, 16 to 64 bytes: without it, event ids reveal them",
        in_file="this secret",
    )

    def __post_init__(self) -> None:
        if self.key and not 16 <= len(self.key.encode()) <= 64:
            raise ValueError("TRUEUP_COIN_KEY must have 16 to 64 bytes")


#: Variables that are fields of other classes, in the order of the reference page.
GROUPS = (Security, Access, Coin, Registry)


@dataclass(frozen=True, kw_only=True)
class Declared:
    """The fields of `streams.config.settings.Settings`, which checks them and derives names from them."""

    brokers: tuple[str, ...] = setting("Kafka brokers, host:port,...", _brokers, ("127.0.0.1:9092",))
    app_id: str = setting("Consumer group, and first part of the changelog's name", _name, "trueup")
    instance_id: str | None = setting(
        "Name of this worker in its group: restarted under it within the session, it keeps its partitions", _text, None
    )
    data_dir: Path = setting(
        "Where the state is kept, in a directory named after TRUEUP_APP_ID; each worker needs its own",
        Path,
        Path("trueup-data"),
    )
    streams: Path | None = setting("TOML file that configures streams", Path, None)
    default_calibrator: str = setting(
        "Calibrator of streams the TOML file does not name", _calibrator, DEFAULT_CALIBRATOR
    )
    topic_prefix: str = setting(
        "What the names of all of trueup's own topics begin with; topics of sources are named as they are", _prefix, ""
    )
    forecasts: str = setting("Topic of forecasts", _name, "forecasts")
    outcomes: str = setting("Topic of outcomes", _name, "outcomes")
    calibrated: str = setting("Topic of calibrated predictions", _name, "calibrated")
    resolved: str = setting("Topic of forecasts joined with outcomes", _name, "resolved")
    dead_letters: str = setting("Topic of records that cannot be used", _name, "dead-letters")
    owners: str = setting(
        "Topic that says which application writes which topics; TRUEUP_TOPIC_PREFIX does not count, as all share it",
        _name,
        "trueup-owners",
    )
    output_format: str = setting(
        "Format of calibrated and resolved: json, or, with schemas in the registry, avro",
        lambda value: _one_of(value, OUTPUT_FORMATS),
        OUTPUT_FORMATS[0],
    )
    output_register: str = setting(
        "Whether the schemas are registered at the start; no: they must be there",
        lambda value: _one_of(value, ("yes", "no")),
        "yes",
    )
    maps: str | None = setting(
        "Topic of maps from raw to served probabilities, which decision services follow; without it none are written",
        _name,
        None,
    )
    maps_seconds: float = setting(
        "Least time between two maps of a stream, s; a stream has one if it has metrics of its own",
        _seconds(0.1, 3600),
        10.0,
    )
    metrics_host: str = setting("Address /metrics, /healthz and /readyz listen on", _host, "127.0.0.1")
    metrics_port: int = setting("Port of /metrics, /healthz and /readyz; 0: a free one", _number(0, 65_535), 9464)
    metrics_streams: int = setting(
        "Streams with metrics of their own, the TOML file's first; raise Prometheus's sample_limit with it",
        _number(1, 10_000),
        200,
    )
    record_bytes: int = setting("Longest input value, bytes", _number(64, 800_000), Limits().record_bytes)
    id_bytes: int = setting("Longest event id and stream name, bytes", _number(8, 255), Limits().id_bytes)
    ahead_seconds: float = setting(
        "How far an event's ts may lie ahead of its Kafka timestamp, and that ahead of the brokers' clock, s",
        _seconds(0, 1e9),
        300.0,
    )
    letter_bytes: int = setting("How much of a dead letter's value is kept", _number(0, 600_000), 16_384)
    batch_records: int = setting("Most records folded and committed at once", _number(1, BATCH_LIMIT), BATCH_LIMIT)
    batch_bytes: int = setting(
        "Largest record batch produced; keep below the broker's message.max.bytes", _number(10_000, 8_000_000), 900_000
    )
    compression: str = setting(
        "Codec of outputs and changelog: none, gzip, snappy, lz4 or zstd; inputs may have any",
        lambda value: _one_of(value, tuple(codecs.NUMBERS)),
        "zstd",
    )
    unpacked_bytes: int = setting(
        "Most bytes a compressed batch of the inputs may expand to; a larger one is one dead letter",
        _number(1 << 20, 1 << 30),
        32 << 20,
    )
    patience_seconds: float = setting(
        "How long one input waits for the other, where that is behind, s", _seconds(0, 3600), 10.0
    )
    quiet_seconds: float = setting(
        "On inputs that fall quiet, how far stream time stays behind the clock, s; 0: it waits for the next record",
        _seconds(0, 86_400),
        SLACK / 1000,
    )
    latency_ms: float = setting(
        "How long a record may wait for others that are answered with it, ms; 0: not at all", _seconds(0, 1000), 5.0
    )
    buffer_records: int = setting(
        "Records of one topic-partition held while the other topic catches up", _number(1000, 1_000_000), 20_000
    )
    commit_seconds: float = setting("How often input offsets are committed, s", _seconds(0.05, 60), 1.0)
    checkpoint_seconds: float = setting(
        "How often the rows that changed are written, s; what was folded since is folded again after a crash",
        _seconds(0, 60),
        2.0,
    )
    checkpoint_bytes: int = setting(
        "Most bytes of rows that are written at once, as one record batch of the changelog, before compression; the "
        "changelog's max.message.bytes must be larger, and some providers allow 8 MB or 20 MB",
        _number(20_000, 100_000_000),
        19_000_000,
    )
    standbys: int = setting(
        "How many other workers keep a copy of a partition's state; each takes as much disk again", _number(0, 3), 0
    )
    session_seconds: float = setting("Silence after which a worker's partitions move, s", _seconds(1, 300), 15.0)
    request_seconds: float = setting("Longest wait for an acknowledgement, s", _seconds(0.5, 300), 15.0)
    memory_bytes: int = setting(
        "Most memory of all that a worker keeps and buffers, for all partitions: 7/12 for streams, 4/12 for RocksDB, "
        "1/12 for fetched records; the process itself and what is under way take some 200 MB more",
        _number(1 << 20, 1 << 40),
        640 << 20,
    )
    log_level: str = setting(
        "What is logged: DEBUG, INFO, WARNING or ERROR", lambda value: _one_of(value.upper(), LOG_LEVELS), "INFO"
    )
    data_loss: str = setting(
        "When inputs were deleted before they were read: 'stop' or 'continue'",
        lambda value: _one_of(value, ("stop", "continue")),
        "stop",
    )
    security: Security = field(default_factory=Security)
    access: Access = field(default_factory=Access)
    policies: Policies = field(default_factory=lambda: stream_config.policies({}, DEFAULT_CALIBRATOR))
    sources: tuple[Source, ...] = ()
    #: Headers that are copied from forecasts to answers, for forecasts that no source maps.
    carry_headers: tuple[str, ...] = carrying.TRACE
    #: Topic to which a router sends outcomes; empty unless these are a router's settings.
    routed: str = ""
    #: Only in a router's settings: topics that intake reads.
    taken_in: tuple[str, ...] = ()
    registry: Registry = field(default_factory=Registry)
    #: Ids of the outputs' schemas by their topics' labels, once known; empty: outputs are plain JSON.
    schema_ids: Mapping[str, int] = field(default_factory=dict)
