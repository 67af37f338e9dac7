"""Makes the topics as trueup needs them, and checks them before a worker starts."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResourceType
from aiokafka.errors import KafkaConnectionError, KafkaError, TopicAlreadyExistsError, for_code

from streams.config.settings import Settings
from streams.faust import offsets
from streams.faust.client import ask
from streams.kafka import connectivity, metadata, owners, permissions
from streams.kafka.broker_requests import BrokersError
from streams.kafka.owners import listed

#: Bytes of a record batch beyond its records.
BATCH_OVERHEAD = 4096
#: Longest wait for the leaders of new topics, s.
LEADER_SECONDS = 30.0
#: Setting that limits how far a record's timestamp may be ahead of the broker's clock, ms. Brokers before 3.6 lack it.
AHEAD = "message.timestamp.after.max.ms"
#: How long the changelog keeps deletions, ms. A disk that was away for at most half of that can still be updated.
DELETE_RETENTION_MS = 7 * 86_400_000


class TopicsError(RuntimeError):
    """The topics are not as trueup needs them, or could not be made; the message says what to change.

    ``lasting`` is False if the brokers could not be reached, so that trying again may help.
    """

    def __init__(self, message: str, *, lasting: bool = True) -> None:
        super().__init__(message)
        self.lasting = lasting


@dataclass(frozen=True)
class Topic:
    """Requirements on a topic."""

    name: str
    #: Whether its cleanup policy is compaction; otherwise it is deletion.
    compacted: bool
    #: Largest record batch that the topic must accept; 0 for inputs, which producers write.
    batch_bytes: int
    #: The setting that causes the requirement.
    setting: str = "TRUEUP_BATCH_BYTES"
    #: Largest value of its setting `AHEAD`, ms; None for topics that workers write.
    ahead_ms: int | None = None


def wanted(settings: Settings) -> list[Topic]:
    """Return the topics of a worker or of a router, inputs first."""
    batch, rows = settings.batch_bytes + BATCH_OVERHEAD, settings.checkpoint_bytes + BATCH_OVERHEAD
    ahead = settings.limits.ahead_ms
    inputs: list[str] = [*settings.inputs]
    outputs: list[str] = [*settings.outputs]
    if settings.routed:
        inputs, outputs = [*inputs, settings.routed], [settings.dead_letters]
    size = batch if settings.routed else 0
    maps = [Topic(settings.maps, compacted=True, batch_bytes=batch)] if settings.maps and not settings.routed else []
    return [
        *(Topic(name, compacted=False, batch_bytes=size, ahead_ms=ahead) for name in inputs),
        *(Topic(name, compacted=False, batch_bytes=batch) for name in outputs),
        Topic(settings.changelog, compacted=True, batch_bytes=rows, setting="TRUEUP_CHECKPOINT_BYTES"),
        Topic(settings.journal, compacted=False, batch_bytes=batch),
        Topic(settings.configurations, compacted=True, batch_bytes=batch),
        *maps,
    ]


def shared(settings: Settings) -> Topic:
    """Return the topic that all applications of the cluster share. It has one partition."""
    return Topic(settings.owners, compacted=True, batch_bytes=0)


async def create(
    settings: Settings,
    *,
    partitions: int = 4,
    replication: int = 1,
    retention_ms: int | None = None,
    dry_run: bool = False,
) -> list[str]:
    """Make the topics that do not exist; return their names.

    Raises TopicsError if the brokers refuse.

    ``partitions``: for every new topic except the shared one. Existing topics keep theirs; `check` reports differences.
    ``replication``: replicas of every topic. With three or more, writes need two in sync.
    ``retention_ms``: how long inputs and outputs are kept, ms; None: the brokers' default. It must exceed the longest
      time that a worker may be down. Replay reads only what is kept.
    """
    async with admin_client(settings) as admin:
        existing = set(await admin.list_topics())
        missing = [topic for topic in (*wanted(settings), shared(settings)) if topic.name not in existing]
        if dry_run:
            return [topic.name for topic in missing]
        requests = []
        for topic in missing:
            configs = {"cleanup.policy": "compact" if topic.compacted else "delete"}
            if topic.batch_bytes:
                configs["max.message.bytes"] = str(max(topic.batch_bytes, 1_048_588))
            if topic.ahead_ms is not None:
                configs[AHEAD] = str(topic.ahead_ms)
            if replication >= 3:
                configs["min.insync.replicas"] = "2"
            if topic.compacted:
                configs["delete.retention.ms"] = str(DELETE_RETENTION_MS)
            if retention_ms is not None and not topic.compacted:
                configs["retention.ms"] = str(retention_ms)
            width = 1 if topic.name == settings.owners else partitions
            requests.append(NewTopic(topic.name, width, replication, topic_configs=configs))
        return await _made(admin, requests, settings.owners) if requests else []


async def make(settings: Settings, asked: list[NewTopic]) -> None:
    """Make topics; raises as `create`."""
    async with admin_client(settings) as admin:
        await _made(admin, asked)


async def _made(admin: AIOKafkaAdminClient, asked: list[NewTopic], shared: str = "") -> list[str]:
    """Make topics; return the names of those made. Another application may have made ``shared``."""
    made = []
    response = await admin.create_topics(asked)
    for name, code, *message in response.topic_errors:
        if not code:
            made.append(name)
        elif name != shared or code != TopicAlreadyExistsError.errno:
            raise TopicsError(f"cannot make topic {name}: {for_code(code).__name__} {message or ''}")
    await _led(admin, made)
    return made


async def _led(admin: AIOKafkaAdminClient, names: list[str]) -> None:
    """Wait until every partition has a leader. Before that, sends fail and consumers wait."""
    async with asyncio.timeout(LEADER_SECONDS):
        while True:
            described = await admin.describe_topics(names)
            partitions = [partition for topic in described for partition in topic["partitions"]]
            if partitions and all(partition["leader"] >= 0 for partition in partitions):
                return
            await asyncio.sleep(0.05)


async def check(
    settings: Settings,
    *,
    as_worker: bool = True,
    partitions: int | None = None,
    replication: int | None = None,
    retention_ms: int | None = None,
) -> list[str]:
    """Return what is wrong with the topics, one sentence each; empty if all is well.

    ``as_worker``: whether to check a worker's permissions, which a user who makes topics may lack, and the owner of
    the topics.
    ``partitions``: how many partitions each topic should have; None: as many as the others.
    ``replication, retention_ms``: arguments of `create`; None if it was not called.
    """
    async with admin_client(settings) as admin:
        topics = [*wanted(settings), shared(settings)]
        handed = [name for names in settings.before.values() for name in names]
        allowed = await permissions.of_topics(admin, [*(topic.name for topic in topics), *handed])
        problems = list[str]()
        absent = [topic.name for topic in topics if topic.name not in allowed]
        if absent:
            problems.append(f"{listed(absent)} {_do(absent, 'does', 'do')} not exist: run 'trueup topics create'")
        # A router may read routes and labels again: what it sends twice counts once.
        if settings.changelog in absent and not settings.routed and await _has_served(admin, settings.app_id):
            problems.append(
                f"group {settings.app_id} has served, and its state was in {settings.changelog}: what 'trueup topics "
                "create' makes is empty, and workers answer all that the inputs keep again, and learn from it alone. "
                "First see 'Backup and disaster recovery' in docs/how-to/operate.md, and keep the workers' disks"
            )
        if as_worker:
            problems += await permissions.lacking(admin, settings, allowed)
            problems += await _sessions(admin, settings)
        present = [topic for topic in topics if allowed.get(topic.name, frozenset()) != frozenset()]
        if not present:
            return problems
        found = {
            described["topic"]: described["partitions"]
            for described in await admin.describe_topics([topic.name for topic in present])
        }
        counts = {topic.name: len(found[topic.name]) for topic in present if topic.name != settings.owners}
        inputs = counts.get(settings.forecasts)
        problems += [
            f"{listed(names)} {_do(names, 'has', 'have')} {count} partitions, {settings.forecasts} has {inputs}: "
            "all must have as many, for an event's records to meet. Delete what is new and make it again; 'trueup "
            "state rescale' moves a state to another number"
            for count, names in _others(counts, inputs)
        ]
        problems += [
            f"{_left(names, count, 'partitions', partitions)}: the number of a topic in use cannot be changed, "
            "because keys would be in other partitions than before; 'trueup state rescale' moves the state to topics "
            "that have so many"
            for count, names in _others(counts, partitions)
        ]
        copies = {name: min(len(one["replicas"]) for one in found[name]) for name in counts}
        problems += [
            f"{_left(names, count, 'replicas', replication)}: kafka-reassign-partitions.sh changes that"
            for count, names in _others(copies, replication)
        ]
        for topic in present:
            granted = allowed[topic.name]
            if granted is None or "DescribeConfigs" in granted:
                configs = await configs_of(admin, topic.name)
                problems.extend(_problems(topic, configs))
                problems.extend(_otherwise_kept(topic, configs, retention_ms))
        if as_worker:
            problems += await owners.problems(settings, allowed.get(settings.owners, frozenset()))
        return problems


async def _has_served(admin: AIOKafkaAdminClient, group: str) -> bool:
    """Return whether a group has committed offsets; False if no coordinator answers, as for an unknown group."""
    with suppress(KafkaError):
        return bool(await offsets.committed(admin, group, seconds=5.0))
    return False


def _others(counts: Mapping[str, int], wanted: int | None) -> list[tuple[int, list[str]]]:
    """Return each partition count that is not the wanted one, with the names of its topics."""
    other: dict[int, list[str]] = {}
    for name, count in counts.items():
        if wanted is not None and count != wanted:
            other.setdefault(count, []).append(name)
    return sorted(other.items())


def _left(names: list[str], count: int, what: str, asked: int | None) -> str:
    have, were = _do(names, "has", "have"), _do(names, "was", "were")
    return f"{listed(names)} {have} {count} {what} and {were} left so, {asked} were asked for"


def _do(names: list[str], one: str, several: str) -> str:
    return one if len(names) == 1 else several


def _otherwise_kept(topic: Topic, configs: Mapping[str, str], asked_ms: int | None) -> list[str]:
    kept = configs.get("retention.ms", "unknown")
    if asked_ms is None or topic.compacted or kept == str(asked_ms):
        return []
    said = f"topic {topic.name} has retention.ms={kept} and was left so, {asked_ms} was asked for"
    return [f"{said}: kafka-configs.sh changes that"]


async def lacking(settings: Settings) -> list[str]:
    """Return the missing topics that intake reads or writes, one sentence each."""
    written = settings.forecasts, settings.routes, settings.labels, settings.dead_letters
    ours = (*written, settings.configurations, settings.owners)
    async with admin_client(settings) as admin:
        existing = set(await admin.list_topics())
        problems = await _sessions(admin, settings)
    problems += [f"topic {name} does not exist: run 'trueup topics create'" for name in ours if name not in existing]
    return problems + _missing_sources(settings, existing)


async def kept_ms(settings: Settings, name: str) -> int:
    """Return how long a topic keeps records, ms; -1: for ever."""
    async with admin_client(settings) as admin:
        configs = await configs_of(admin, name)
    return int(configs["retention.ms"]) if "delete" in configs["cleanup.policy"] else -1


async def missing_sources(settings: Settings) -> list[str]:
    """Return the missing topics that intake reads, one sentence each. `create` does not make them."""
    if all(mode.direct for mode in settings.modes):
        return []
    async with admin_client(settings) as admin:
        return _missing_sources(settings, set(await admin.list_topics()))


def _missing_sources(settings: Settings, existing: set[str]) -> list[str]:
    sources = {mode.topic: mode.source.name for mode in settings.modes if not mode.direct}
    return [
        f"source topic {topic} of sources.{name} does not exist, or this user may not see it: those who write to it "
        "make it, not 'trueup topics create'"
        for topic, name in sources.items()
        if topic not in existing
    ]


async def partitions(settings: Settings, name: str) -> int | None:
    """Return how many partitions a topic has, or None if it does not exist.

    Raises TopicsError if the brokers cannot be reached.
    """
    async with admin_client(settings) as admin:
        if name not in await admin.list_topics():
            return None
        (described,) = await admin.describe_topics([name])
        return len(described["partitions"])


async def configs(settings: Settings, names: list[str]) -> dict[str, dict[str, str]]:
    """Return the configurations of the topics that this user may describe.

    Raises TopicsError if the brokers cannot be reached.
    """
    found = {}
    async with admin_client(settings) as admin:
        for name in names:
            with suppress(TopicsError):
                found[name] = await configs_of(admin, name)
    return found


def _problems(topic: Topic, configs: Mapping[str, str]) -> list[str]:
    problems = []
    policy = configs.get("cleanup.policy", "")
    if topic.compacted and policy != "compact":
        problems.append(
            f"topic {topic.name} has cleanup.policy={policy}, it must be compact: deletion would lose state"
        )
    if not topic.compacted and "compact" in policy:
        problems.append(f"topic {topic.name} has cleanup.policy={policy}, it must be delete: compaction loses records")
    largest = int(configs.get("max.message.bytes", "1048588"))
    if largest < topic.batch_bytes:
        problems.append(
            f"topic {topic.name} has max.message.bytes={largest}, it must be at least {topic.batch_bytes}: "
            f"kafka-configs.sh changes that, or lower {topic.setting}"
        )
    if topic.ahead_ms is not None and configs.get("message.timestamp.type") != "LogAppendTime":
        ahead = configs.get(AHEAD, "unknown")
        if not ahead.isdigit() or int(ahead) > topic.ahead_ms:
            problems.append(
                f"topic {topic.name} has {AHEAD}={ahead}, it must be at most {topic.ahead_ms} (TRUEUP_AHEAD_SECONDS): "
                "records from a clock that runs ahead would let rows expire early"
            )
    return problems


async def _sessions(admin: AIOKafkaAdminClient, settings: Settings) -> list[str]:
    """Return why brokers would refuse a member's session timeout; empty if they accept it or do not tell this user."""
    asked, low, high = 1000 * settings.session_seconds, "group.min.session.timeout.ms", "group.max.session.timeout.ms"
    broker = str(min(each["node_id"] for each in (await admin.describe_cluster())["brokers"]))
    try:
        configs = await configs_of(admin, broker, ConfigResourceType.BROKER)
        least, most = int(configs[low]), int(configs[high])
    except (TopicsError, KeyError, ValueError):
        return []
    if least <= asked <= most:
        return []
    allowed = f"{least / 1000:g} to {most / 1000:g} s, by their {low} and {high}"
    return [f"TRUEUP_SESSION_SECONDS={settings.session_seconds:g} is not what the brokers allow: {allowed}"]


async def configs_of(
    admin: AIOKafkaAdminClient, name: str, kind: ConfigResourceType = ConfigResourceType.TOPIC
) -> dict[str, str]:
    """Return the configuration of a topic or a broker; raises TopicsError if this user may not describe it."""
    node = int(name) if kind is ConfigResourceType.BROKER else None
    found = await metadata.configuration(partial(ask, admin, node=node), name, kind)
    if found.error:
        why = found.message or for_code(found.error).__name__
        raise TopicsError(f"cannot read the configuration of {kind.name.lower()} {name}: {why}")
    return found.values


@asynccontextmanager
async def admin_client(settings: Settings) -> AsyncIterator[AIOKafkaAdminClient]:
    """Connect to the cluster for the duration of the context.

    Raises TopicsError if the brokers cannot be reached, or are too old.
    """
    try:
        options = settings.client_options()
    except ValueError as exc:  # a file is missing or damaged
        raise TopicsError(str(exc)) from exc
    client = AIOKafkaAdminClient(request_timeout_ms=int(settings.request_seconds * 1000), **options)
    try:
        await client.start()
        yield client
    except KafkaConnectionError as exc:
        reason = await connectivity.reasons(settings)
        raise TopicsError(reason.said, lasting=reason.lasting) from exc
    except BrokersError as exc:
        raise TopicsError(str(exc)) from exc
    finally:
        await client.close()
