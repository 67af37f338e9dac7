"""Producer ids from the transaction coordinator, without transactions.

A transactional id has one producer id. Every request for it raises its epoch. For each partition, brokers keep the
highest epoch with which a producer id has appended, and refuse appends with a lower one, inside and outside
transactions (KIP-98).

aiokafka uses version 0 of the request, which cannot name the epoch that the caller holds. Version 3 can (KIP-360). So a
worker finds out that another one has taken over, and does not take the partition back.
"""

from typing import NamedTuple

from aiokafka import errors
from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType
from aiokafka.protocol.types import Int16, Int32, Int64, Schema

from streams.kafka.broker_requests import TAGS, TEXT, BrokersError, insisted, request, struct

#: No transaction is ever begun, so none can time out. The brokers require a number below their own maximum.
TRANSACTION_MS = 10_000
#: An error code of newer brokers that aiokafka does not know.
PRODUCER_FENCED = 90


class ProducerIdentity(NamedTuple):
    """A producer id and its epoch; both are -1 before the first request."""

    producer_id: int
    epoch: int


NOBODY = ProducerIdentity(-1, -1)


_ASKED = Schema(
    ("transactional_id", TEXT),
    ("transaction_timeout_ms", Int32),
    ("producer_id", Int64),
    ("producer_epoch", Int16),
    TAGS,
)
_ANSWER = Schema(
    ("throttle_time_ms", Int32), ("error_code", Int16), ("producer_id", Int64), ("producer_epoch", Int16), TAGS
)
#: Request for the next epoch of a transactional id, refused if the caller's epoch is not the newest.
InitProducerId = request(struct(22, 3, _ASKED, _ANSWER))


async def take(client: AIOKafkaClient, transactional_id: str, held: ProducerIdentity = NOBODY) -> ProducerIdentity:
    """Return the transactional id's producer id with a new epoch, trying until a coordinator answers.

    Raises ProducerFenced if somebody else has raised the epoch.
    Raises BrokersError if an ACL is missing, or the brokers are too old.
    Raises KafkaError if the brokers refuse for another reason that trying again does not change.

    ``transactional_id``: any name. A new epoch fences off all earlier users of the name.
    ``held``: the id and epoch that the caller holds. The epoch is raised only if nobody else has raised it since.
    """
    try:
        return await insisted(lambda: _ask(client, transactional_id, held), client)
    except errors.TransactionalIdAuthorizationFailed as exc:
        raise BrokersError(
            f"the brokers deny the transactional id {transactional_id}, by which workers fence one another off: "
            f"allow Write and Describe on TransactionalId {transactional_id.rpartition('-')[0]}-, pattern prefixed"
        ) from exc


async def _ask(client: AIOKafkaClient, transactional_id: str, held: ProducerIdentity) -> ProducerIdentity:
    coordinator = await client.coordinator_lookup(CoordinationType.TRANSACTION, transactional_id)
    asked = InitProducerId(transactional_id, TRANSACTION_MS, *held, {})
    response = await client.send(coordinator, asked, group=ConnectionGroup.COORDINATION)
    code = response.error_code
    if code == errors.InvalidProducerEpoch.errno:
        raise errors.ProducerFenced
    if code:
        raise errors.for_code(code)(f"{transactional_id}: error {code}")
    return ProducerIdentity(response.producer_id, response.producer_epoch)
