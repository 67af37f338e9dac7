"""Checks, before a worker starts, what the brokers allow its user to do.

Without this check a missing grant is noticed late, and it is unclear: as a topic that "does not exist", as a group that
never forms, or as a send that fails after everything was restored. Brokers tell which operations the user may do with a
topic and with a group.
"""

import shlex
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple

from aiokafka import errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.admin import DescribeGroupsRequest_v3, DescribeGroupsResponse_v3

from streams.config.settings import Settings
from streams.faust.client import ask
from streams.kafka import metadata
from streams.kafka.broker_requests import request

#: Kafka's numbers for the operations that a worker needs. The brokers' answer has one bit for each.
OPERATIONS: Final = {"Read": 3, "Write": 4, "Describe": 8, "DescribeConfigs": 10}
#: The answer of a broker that does not tell the operations.
_UNKNOWN: Final = -(1 << 31)

#: The operations allowed on one topic, group or id; None if the broker did not tell.
Allowed = frozenset[str] | None
#: Types of coordinators, with the protocol's numbers.
_TRANSACTION: Final = 1


class Grant(NamedTuple):
    """What a worker's user must be allowed to do with one topic, one group, or ids with one prefix."""

    #: ``topic``, ``group`` or ``transactional-id``, as ``kafka-acls.sh`` names them.
    kind: str
    #: Name of the topic or group; for transactional ids, their prefix.
    name: str
    #: Operations as Kafka names them. Read and Write include Describe.
    operations: tuple[str, ...]

    @property
    def prefixed(self) -> bool:
        """Whether the name is a prefix. A worker has a transactional id for each partition."""
        return self.kind == "transactional-id"


def needed(settings: Settings) -> list[Grant]:
    """Return all grants that a worker or a router needs, and no others."""
    written: tuple[str, ...] = (settings.routed, settings.dead_letters) if settings.routed else ()
    outputs = () if settings.routed else settings.outputs
    if settings.maps and outputs:
        written = (settings.maps,)
    handed = dict.fromkeys(name for names in settings.before.values() for name in names)
    return [
        *(Grant("topic", name, ("Read", "DescribeConfigs")) for name in settings.inputs),
        # Outputs from before a crash are read again.
        *(Grant("topic", name, ("Read", "Write", "DescribeConfigs")) for name in outputs),
        *(Grant("topic", name, ("Write", "DescribeConfigs")) for name in written),
        Grant("topic", settings.journal, ("Write", "DescribeConfigs")),
        # Configurations from before a crash are read again.
        Grant("topic", settings.configurations, ("Read", "Write", "DescribeConfigs")),
        Grant("topic", settings.changelog, ("Read", "Write", "DescribeConfigs")),
        Grant("topic", settings.owners, ("Read", "Write", "DescribeConfigs")),
        Grant("group", settings.app_id, ("Read",)),
        Grant("transactional-id", settings.changelog.removesuffix("state-changelog"), ("Write",)),
        # At its first start, a stage asks how far the stages before it are (`streams.kafka.backlog`).
        *(Grant("topic", name, ("Describe",)) for name in handed),
        *(Grant("group", name, ("Describe",)) for name in settings.before),
    ]


def of_intake(settings: Settings) -> list[Grant]:
    """Return all grants that intake needs; none if it reads no source."""
    sources = dict.fromkeys(mode.topic for mode in settings.modes if not mode.direct)
    if not sources:
        return []
    written = [settings.forecasts, settings.routes, settings.labels, settings.dead_letters]
    if settings.policies.answering:
        written.append(settings.calibrated)
    return [
        *(Grant("topic", name, ("Read",)) for name in sources),
        *(Grant("topic", name, ("Write",)) for name in written),
        Grant("topic", settings.configurations, ("Read", "Write")),  # reads what is left out: `trueup state skip`
        Grant("topic", settings.owners, ("Read", "Write")),
        Grant("group", settings.intake_group, ("Read",)),
    ]


class _GroupRequest(DescribeGroupsRequest_v3):  # type: ignore[misc]  # aiokafka ships no types
    RESPONSE_TYPE = DescribeGroupsResponse_v3  # aiokafka reads the answer as if it were version 2


#: Asks what this user may do with consumer groups.
_Groups = request(_GroupRequest)


def commands(settings: Settings, principal: str) -> list[str]:
    """Return a ``kafka-acls.sh`` command for each grant of each stage; its login comes from ``admin.properties``."""
    grants = [grant for stage in settings.stages for grant in needed(stage)] + of_intake(settings)
    return [
        shlex.join(
            [
                *("kafka-acls.sh", "--bootstrap-server", settings.brokers[0], "--command-config", "admin.properties"),
                *("--add", "--allow-principal", principal),
                *(word for operation in grant.operations for word in ("--operation", operation)),
                *(f"--{grant.kind}", grant.name),
                *(("--resource-pattern-type", "prefixed") if grant.prefixed else ()),
            ]
        )
        for grant in dict.fromkeys(grants)
    ]


async def of_topics(admin: AIOKafkaAdminClient, names: Iterable[str]) -> dict[str, Allowed]:
    """Return which operations are allowed on each topic. Topics that do not exist are left out.

    A topic that this user may not even see has an empty set. The brokers do not tell whether it exists.
    """
    return {
        each.name: frozenset() if each.error else _allowed(each.operations)
        for each in await metadata.of(partial(ask, admin), names)
        if each.error in (0, errors.TopicAuthorizationFailedError.errno)
    }


async def lacking(admin: AIOKafkaAdminClient, settings: Settings, topics: Mapping[str, Allowed]) -> list[str]:
    """Return a sentence for each missing grant. Grants about which the brokers tell nothing are not reported.

    ``topics`` is the result of `of_topics`.
    """
    sentences = []
    for grant in needed(settings):
        if grant.kind == "topic":
            allowed = topics.get(grant.name)
        elif grant.kind == "group":
            allowed = await _of_group(admin, grant.name)
        else:
            allowed = await _of_transactions(admin, grant.name)
        missing = [operation for operation in grant.operations if allowed is not None and operation not in allowed]
        if missing:
            named = f"{grant.kind}s that start with {grant.name}" if grant.prefixed else f"{grant.kind} {grant.name}"
            sentences.append(f"this user lacks {', '.join(missing)} on {named}: 'trueup topics acls' says how to grant")
    return sentences


async def _of_group(admin: AIOKafkaAdminClient, name: str) -> Allowed:
    """Return which operations are allowed on a consumer group. The group need not exist yet."""
    try:
        asked = _Groups([name], True)  # noqa: FBT003 - the fields of the schema, in their order
        response = await ask(admin, asked, await admin.find_coordinator(name))
    except errors.GroupAuthorizationFailedError:
        return frozenset()
    except errors.KafkaError:  # there is no coordinator yet
        return None
    code, *_, bits = response.groups[0]
    return frozenset() if code == errors.GroupAuthorizationFailedError.errno else _allowed(bits)


async def _of_transactions(admin: AIOKafkaAdminClient, prefix: str) -> Allowed:
    """Return an empty set if there is no grant on these transactional ids, otherwise None: brokers tell no more."""
    try:
        await admin.find_coordinator(f"{prefix}state", _TRANSACTION)
    except errors.TransactionalIdAuthorizationFailed:
        return frozenset()
    except errors.KafkaError:  # there is no coordinator yet
        return None
    return None


def _allowed(bits: int) -> Allowed:
    if bits == _UNKNOWN:
        return None
    return frozenset(name for name, number in OPERATIONS.items() if bits >> number & 1)
