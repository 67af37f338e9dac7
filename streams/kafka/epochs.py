"""Where the epoch of a partition's leader ended: how a reader sees that a log was cut behind it (KIP-320, Kafka 2.3).

After an unclean election or a power loss a log may end before what was read of it, and its offsets go to other records.
Each batch says in which epoch of the leader it was written. An epoch that ended before what was read of it was cut.
"""

from typing import Any

from aiokafka import errors
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Int16, Int32, Int64, Schema, String
from aiokafka.structs import TopicPartition

_TEXT = String("utf-8")


class _End(Response):  # type: ignore[misc]  # aiokafka ships no type hints
    API_KEY = 23
    API_VERSION = 3
    SCHEMA = Schema(
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


class _AskEnd(RequestStruct):  # type: ignore[misc]
    API_KEY = 23
    API_VERSION = 3
    RESPONSE_TYPE = _End
    SCHEMA = Schema(
        ("replica_id", Int32),
        (
            "topics",
            Array(
                ("topic", _TEXT),
                ("partitions", Array(("partition", Int32), ("current_leader_epoch", Int32), ("leader_epoch", Int32))),
            ),
        ),
    )


class EndOfEpoch(Request[_AskEnd]):  # type: ignore[misc]
    """Request for the end of the epoch of a partition's leader."""

    API_KEY = 23

    def __init__(self, place: TopicPartition, epoch: int) -> None:
        self._place, self._epoch = place, epoch

    def build(self, request_struct_class: Any) -> Any:  # noqa: ANN401 - aiokafka's
        """Return the request: of a reader, who does not know which epoch the leader has now."""
        return request_struct_class(-1, [(self._place.topic, [(self._place.partition, -1, self._epoch)])])


async def end_of(client: AIOKafkaClient, place: TopicPartition, epoch: int) -> int:
    """Return the offset behind the last record of an epoch; -1 if the log is of earlier ones.

    Raises
    ------
    KafkaError
        If the leader is not there, or does not say.
    """
    leader = client.cluster.leader_for_partition(place)
    if leader in (None, -1):
        raise errors.LeaderNotAvailableError(f"{place.topic}/{place.partition} has no leader")
    ((_, ((code, _, _, end),)),) = (await client.send(leader, EndOfEpoch(place, epoch))).topics
    if code:
        raise errors.for_code(code)(f"{place.topic}/{place.partition}: error {code}")
    return int(end)
