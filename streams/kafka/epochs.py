"""Where the epoch of a partition's leader ended: how a reader sees that a log was cut behind it (KIP-320, Kafka 2.3).

After an unclean election or a power loss a log may end before what was read of it, and its offsets go to other records.
Each batch says in which epoch of the leader it was written. An epoch that ended before what was read of it was cut.
"""

from aiokafka import errors
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.types import Array, Int16, Int32, Int64, Schema, String
from aiokafka.structs import TopicPartition

from streams.kafka.broker_requests import request, struct

_TEXT = String("utf-8")


_ANSWER = Schema(
    ("throttle_time_ms", Int32),
    (
        "topics",
        Array(
            ("topic", _TEXT),
            (
                "partitions",
                Array(("error_code", Int16), ("partition", Int32), ("leader_epoch", Int32), ("end_offset", Int64)),
            ),
        ),
    ),
)
_ASKED = Schema(
    ("replica_id", Int32),
    (
        "topics",
        Array(
            ("topic", _TEXT),
            ("partitions", Array(("partition", Int32), ("current_leader_epoch", Int32), ("leader_epoch", Int32))),
        ),
    ),
)
#: Request for the end of the epoch of a partition's leader.
_EndOfEpoch = request(struct(23, 3, _ASKED, _ANSWER, flexible=False))


async def end_of(client: AIOKafkaClient, place: TopicPartition, epoch: int) -> int:
    """Return the offset behind the last record of an epoch; -1 if the log is of earlier ones.

    Raises KafkaError if the leader is not there, or does not say.
    """
    leader = client.cluster.leader_for_partition(place)
    if leader in (None, -1):
        raise errors.LeaderNotAvailableError(f"{place.topic}/{place.partition} has no leader")
    # -1: of a reader, who does not know which epoch the leader has now.
    asked = _EndOfEpoch(-1, [(place.topic, [(place.partition, -1, epoch)])])
    ((_, ((code, _, _, end),)),) = (await client.send(leader, asked)).topics
    if code:
        raise errors.for_code(code)(f"{place.topic}/{place.partition}: error {code}")
    return int(end)
