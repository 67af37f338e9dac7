"""Every setting of a worker, from ``TRUEUP_*`` environment variables."""

import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from state.policy import DEFAULT_CALIBRATOR
from streams.config import stream_config, variables
from streams.config.declared import GROUPS, OUTPUT_FORMATS, Coin, Declared
from streams.config.variables import variables_of
from streams.kafka.security import Access, Security
from streams.records.limits import Limits
from streams.sources import carrying, modes
from streams.sources import config as source_config
from streams.sources.direct import Direct
from streams.sources.fields import FORECAST, OUTCOME
from streams.sources.formats import asks_registry
from streams.sources.modes import Mode
from streams.sources.registry import Registry

#: Bytes of a changelog batch in addition to the largest row: for its key, the fence, and the batch's overhead.
ROW_ROOM = 8192
#: Longest streams file, in bytes.
STREAMS_BYTES = 1 << 20
#: Suffix of a router's application id.
_ROUTER = "-router"
#: The settings that name trueup's own topics.
TOPICS = ("forecasts", "outcomes", "calibrated", "resolved", "dead_letters", "maps")
#: Longest name of a topic, in characters.
TOPIC_CHARACTERS = 249


class SettingsError(ValueError):
    """A setting is unknown, malformed, or contradicts another; the message says what is allowed."""


@dataclass(frozen=True, kw_only=True)
class Settings(Declared):
    """A worker's settings. Each is read from the variable named ``TRUEUP_`` and its name in capitals."""

    def __post_init__(self) -> None:
        # Base64 makes a dead letter a third longer. Its key and value may both be as long as the limit, and the key
        # comes twice: as it is, and in Base64.
        if self.letter_bytes * 4 + 4096 > self.batch_bytes:
            raise SettingsError(
                f"TRUEUP_LETTER_BYTES={self.letter_bytes} is too much for TRUEUP_BATCH_BYTES={self.batch_bytes}: "
                "a batch must hold four times a letter"
            )
        if self.checkpoint_bytes < 2 * self.batch_bytes:
            raise SettingsError(
                f"TRUEUP_CHECKPOINT_BYTES={self.checkpoint_bytes} is less than twice TRUEUP_BATCH_BYTES="
                f"{self.batch_bytes}: raise the first or lower the second"
            )
        self._check_rows()
        try:
            _ = self.modes
        except ValueError as exc:
            raise SettingsError(str(exc)) from exc
        if self.output_format != OUTPUT_FORMATS[0] and self.registry.url is None:
            raise SettingsError(
                f"TRUEUP_OUTPUT_FORMAT={self.output_format} names schemas of a registry: set TRUEUP_REGISTRY_URL"
            )
        self._check_topics()
        for source in self.sources:
            if asks_registry(source.table) and self.registry.url is None:
                raise SettingsError(
                    f"sources.{source.name}: its records name schemas of a registry: set TRUEUP_REGISTRY_URL, or give "
                    "schema_file"
                )
        if self.access.password and not self.access.certfile and not self.on_loopback:
            raise SettingsError(
                f"TRUEUP_METRICS_PASSWORD would go in the clear, as TRUEUP_METRICS_HOST={self.metrics_host} "
                "is not loopback; set TRUEUP_METRICS_CERTFILE"
            )

    def _check_topics(self) -> None:
        """Refuse one topic in two places, and sources that trueup itself writes: it would read its own for ever."""
        if not self.routed:  # a router's are those of its application
            own = (self.changelog, self.journal, self.configurations, self.routes, self.labels)
            taken = dict.fromkeys(own, f"written by TRUEUP_APP_ID={self.app_id}")
            for name in (*TOPICS, "owners"):
                if (topic := getattr(self, name)) in taken:
                    raise SettingsError(f"TRUEUP_{name.upper()}={topic} is {taken[topic]}, too: name another topic")
                if topic is not None:
                    taken[topic] = f"TRUEUP_{name.upper()}"
        for source in self.sources:
            for topic in source.topics:
                if topic in self.written:
                    raise SettingsError(
                        f"sources.{source.name}: trueup itself writes {topic}; name the topic of your own records"
                    )

    def _check_rows(self) -> None:
        """Refuse options with which a row could outgrow a changelog batch: that would stop the worker for good."""
        most = self.batch_bytes - ROW_ROOM
        named = [(f'streams."{pattern}"', policy) for pattern, policy in self.policies.patterns]
        if self.policies.default is not None:
            named.append(("streams that no pattern matches", self.policies.default))
        for where, policy in named:
            for each in (policy, *policy.challengers):
                if each.row_bytes > most:
                    sizes = " or ".join(f"{name} = {size}" for name, size in each.fitting(most).items())
                    raise SettingsError(
                        f"{where}: a row of {each.calibrator} grows to {each.row_bytes} bytes with its options, and "
                        f"TRUEUP_BATCH_BYTES={self.batch_bytes} has room for {max(most, 0)}; "
                        + (f"{sizes} would do, or " if sizes else "")
                        + f"TRUEUP_BATCH_BYTES must be at least {self.batch_bytes - most + each.row_bytes}"
                    )

    def client_options(self) -> dict[str, Any]:
        """Return the options of aiokafka's clients: the addresses of brokers, and who asks."""
        return {"bootstrap_servers": ",".join(self.brokers), **self.security.client_options()}

    @property
    def buffer_bytes(self) -> int:
        """Bytes of fetched records at which fetching stops; input partitions have equal shares."""
        return self.memory_bytes // 12

    @property
    def rocksdb_bytes(self) -> int:
        """Memory of RocksDB: half for blocks, half for write buffers."""
        return self.memory_bytes // 3

    @property
    def streams_bytes(self) -> int:
        """Memory for streams, as objects of the engine; partitions have equal shares."""
        return self.memory_bytes - self.rocksdb_bytes - self.buffer_bytes

    @property
    def enough_bytes(self) -> int:
        """Estimated bytes of changed rows at which a checkpoint is due."""
        return self.checkpoint_bytes // 2

    @property
    def owner(self) -> str:
        """Name of this process, for people."""
        return self.instance_id or f"{socket.gethostname()}/{os.getpid()}"

    @property
    def on_loopback(self) -> bool:
        """Whether the metrics can be reached from this machine only."""
        try:
            return ip_address(self.metrics_host).is_loopback
        except ValueError:
            return self.metrics_host == "localhost"

    @property
    def exposed(self) -> list[str]:
        """What others on the network can read with these settings, and the remedies."""
        said = [self.security.exposed] if self.security.exposed else []
        if not self.on_loopback and self.access.username is None:
            place = f"{self.metrics_host}:{self.metrics_port}"
            said.append(
                f"metrics and pages are open to whoever reaches {place}: let only those who may read them reach it, or "
                "set TRUEUP_METRICS_USERNAME, TRUEUP_METRICS_PASSWORD_FILE and TRUEUP_METRICS_CERTFILE"
            )
        return said

    @property
    def modes(self) -> list[Mode]:
        """How each topic of each source is read."""
        return modes.of(self.sources, *self.inputs)

    @property
    def direct(self) -> Direct | None:
        """The sources that a worker maps itself; None without any."""
        found = [mode.source for mode in self.modes if mode.direct]
        if not found:
            return None
        forecasts, outcomes = (tuple(each for each in found if each.role == role) for role in (FORECAST, OUTCOME))
        return Direct(self.inputs, (forecasts, outcomes), self.registry)

    @property
    def stages(self) -> "tuple[Settings, ...]":
        """The settings of each stage that has state: of the worker, and with intake also of the router."""
        return (self, self.router) if self.has_intake else (self,)

    @property
    def has_intake(self) -> bool:
        """Whether intake reads any source."""
        return not all(mode.direct for mode in self.modes)

    @property
    def state_dir(self) -> Path:
        """Where the state of this application is kept."""
        return self.data_dir / self.app_id

    @property
    def attempt_seconds(self) -> float:
        """Longest wait for one answer of one broker, s. It is a third, so that there is time to ask another broker."""
        return self.request_seconds / 3

    @property
    def routes(self) -> str:
        """Topic of the routes: the event and the stream of each forecast that intake has sent."""
        return prefixed(self.topic_prefix, f"{self.app_id}-routes")

    @property
    def labels(self) -> str:
        """Topic of the labels that intake has read, on their way to the router."""
        return prefixed(self.topic_prefix, f"{self.app_id}-labels")

    @property
    def router(self) -> "Settings":
        """The settings of the router. Its inputs are routes and labels; it has a group and a state of its own."""
        return replace(
            self,
            app_id=f"{self.app_id}{_ROUTER}",
            forecasts=self.routes,
            outcomes=self.labels,
            routed=self.outcomes,
            sources=(),
            taken_in=self._taken_in,
        )

    @property
    def application(self) -> str:
        """The application id as configured, also in a router's settings."""
        return self.app_id.removesuffix(_ROUTER) if self.routed else self.app_id

    @property
    def intake_group(self) -> str:
        """Consumer group of intake."""
        return f"{self.application}-intake"

    @property
    def before(self) -> dict[str, tuple[str, ...]]:
        """The consumer groups of the stages before this one, in order, each with the topics that it reads."""
        if self.routed:
            return {self.intake_group: self.taken_in} if self.taken_in else {}
        if not self._taken_in:
            return {}
        return {self.intake_group: self._taken_in, f"{self.app_id}{_ROUTER}": (self.routes, self.labels)}

    @property
    def _taken_in(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(mode.topic for mode in self.modes if not mode.direct))

    @property
    def changelog(self) -> str:
        """Topic of the state table's changelog; transactional ids are named after it."""
        return prefixed(self.topic_prefix, f"{self.app_id}-state-changelog")

    @property
    def inputs(self) -> tuple[str, str]:
        """Topics of forecasts and of outcomes, in the order of `state.fence.FORECASTS` and `OUTCOMES`."""
        return self.forecasts, self.outcomes

    @property
    def outputs(self) -> tuple[str, str, str]:
        """Topics that only the owner of a partition writes: answers, resolved events, dead letters."""
        return self.calibrated, self.resolved, self.dead_letters

    @property
    def journal(self) -> str:
        """Topic of the order in which records were folded; see `state.journal`."""
        return prefixed(self.topic_prefix, f"{self.app_id}-journal")

    @property
    def configurations(self) -> str:
        """Topic of the configurations in force, for each partition of all stages; see `streams.config.in_force`."""
        return prefixed(self.topic_prefix, f"{self.application}-configurations")

    @property
    def written(self) -> frozenset[str | None]:
        """Topics that only trueup writes, of all stages."""
        of_stages = (topic for of in self.stages for topic in (*of.outputs, of.maps, of.changelog, of.journal))
        return frozenset((self.configurations, self.routes, self.labels, *of_stages))

    def named(self, topic: str) -> str:
        """Return the full name of a topic that a user named, perhaps without the prefix if it is trueup's own."""
        full = prefixed(self.topic_prefix, topic)
        return full if full in self.written.union(self.inputs) else topic

    def unpacks(self, topic: str) -> int | None:
        """Return the most bytes to which a record batch of a topic may unpack; None for topics that workers write."""
        return self.unpacked_bytes if topic in self.inputs else None

    @property
    def limits(self) -> Limits:
        """The limits on records."""
        return Limits(self.record_bytes, self.id_bytes, int(self.ahead_seconds * 1000), self.letter_bytes)

    @classmethod
    def described(cls) -> list[tuple[str, str, str]]:
        """Return the variable, the meaning and the default of every setting, security included."""
        own = [
            (name, each.metadata["meaning"], variables.text(each.default) or "none")
            for name, each in variables_of(cls).items()
        ]
        return own + [(name, meaning, "none") for name, meaning in _grouped().items()]

    @classmethod
    def from_env(cls, environment: Mapping[str, str]) -> "Settings":
        """Read the settings.

        Raises SettingsError if a ``TRUEUP_`` variable is unknown, or its value or the TOML file is not allowed.
        """
        known = (*variables_of(cls), *_grouped(), *_ELSEWHERE)
        for name in environment:
            if name.startswith("TRUEUP_") and name not in known:
                meant = _nearest(name, known)
                raise SettingsError(f"{name} is not a setting of trueup; {meant}'trueup run --help' lists all")
        try:
            values = variables.given(cls, environment)
            values["security"] = variables.read(Security, environment)
            values["registry"] = variables.read(Registry, environment)
            values["access"] = variables.read(Access, environment)
            text = (
                variables.text_of("TRUEUP_STREAMS", values["streams"], STREAMS_BYTES) if values.get("streams") else ""
            )
            coin = (variables.read(Coin, environment).key or "").encode()
        except (ValueError, OSError) as exc:
            raise SettingsError(str(exc)) from exc
        try:
            default = values.get("default_calibrator", DEFAULT_CALIBRATOR)
            table = stream_config.loaded(text)
            values["policies"] = stream_config.policies(table, default, coin)
            values["carry_headers"] = carrying.headers(table.get("carry_headers", carrying.TRACE))
            values["sources"] = source_config.parse(table.get("sources", {}), values["carry_headers"])
        except ValueError as exc:
            raise SettingsError(f"{values['streams']}: {exc}" if text else str(exc)) from exc
        if prefix := values.get("topic_prefix"):
            # An input that a source names belongs to its producers, so it gets no prefix.
            foreign = {topic for source in values["sources"] for topic in source.topics}
            for name in TOPICS:
                topic = values.get(name, getattr(cls, name))
                if topic is not None and not (name in ("forecasts", "outcomes") and topic in foreign):
                    values[name] = prefixed(prefix, topic)
        settings = cls(**values)
        longest = max((*(getattr(settings, name) or "" for name in TOPICS), settings.router.changelog), key=len)
        if len(longest) > TOPIC_CHARACTERS:
            raise SettingsError(
                f"TRUEUP_TOPIC_PREFIX makes {longest}, which is longer than the {TOPIC_CHARACTERS} characters of a "
                "topic in Kafka"
            )
        return settings


def prefixed(prefix: str, topic: str) -> str:
    """Return the name of one of trueup's topics with the prefix, which may be there already."""
    return topic if topic.startswith(prefix) else prefix + topic


def _nearest(name: str, known: Iterable[str]) -> str:
    """Return a question: was the setting with the most similar name meant? Empty if no name is similar."""
    ends = [each.removeprefix("TRUEUP_") for each in known]
    near = get_close_matches(name.removeprefix("TRUEUP_"), ends, n=1)
    return f"did you mean TRUEUP_{near[0]}? " if near else ""


#: Variables of the development broker, and the choice of the engine. Other modules read them before there are settings.
_ELSEWHERE = ("TRUEUP_KAFKA_LIB", "TRUEUP_COMPILED")


def _grouped() -> dict[str, str]:
    """Return the meaning of each variable of `GROUPS`."""
    return {name: meaning for group in GROUPS for name, meaning in variables.meanings(group).items()}
