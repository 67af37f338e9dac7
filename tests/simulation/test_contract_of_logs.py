"""What the model of Kafka promises of logs; see `test_contract`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiokafka import AIOKafkaConsumer, errors
from aiokafka.admin import RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.structs import TopicPartition

from streams.kafka import producer_ids
from streams.kafka.metadata import end_of_epoch
from tests.simulation.conftest import Play
from tests.simulation.test_contract import STAMP, administered, append, batch


@asynccontextmanager
async def reader(client: AIOKafkaClient, place: TopicPartition) -> AsyncIterator[AIOKafkaConsumer]:
    bootstrap = [f"{host}:{port}" for host, port, _ in client.hosts]
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False) as consumer:
        consumer.assign([place])
        yield consumer


def test_what_is_deleted_is_out_of_range_and_the_rest_stays_where_it_was(play: Play) -> None:
    async def scene(client: AIOKafkaClient, topic: str, name: str) -> None:
        held, place = await producer_ids.take(client, name), TopicPartition(topic, 0)
        await append(client, topic, batch(held, 0, b"a", b"b", b"c"))
        await append(client, topic, batch(held, 3, b"d"))
        async with administered(client) as admin, reader(client, place) as consumer:
            for before, begins in ((2, 2), (1, 2), (3, 3)):  # also amid a batch; and nothing comes back
                assert await admin.delete_records({place: RecordsToDelete(before)}) == {place: begins}
                assert await consumer.beginning_offsets([place]) == {place: begins}
            assert await consumer.end_offsets([place]) == {place: 4}
            with pytest.raises(errors.OffsetOutOfRangeError):
                await admin.delete_records({place: RecordsToDelete(5)})
            leader = client.cluster.leader_for_partition(place)
            fetches = [FetchRequest(10, 1, 1000, 1, [(topic, [(0, offset, 1000)])]) for offset in (2, 3)]
            codes = [(await client.send(leader, each)).topics[0][1][0][1] for each in fetches]
            assert codes == [errors.OffsetOutOfRangeError.errno, 0]
            consumer.seek(place, 3)
            assert (await consumer.getone(place)).value == b"d"
            assert await admin.delete_records({place: RecordsToDelete(-1)}) == {place: 4}  # all
            assert await append(client, topic, batch(held, 4, b"e")) == 4
            assert (await consumer.getone(place)).offset == 4

    play(scene)


def test_a_time_stands_for_the_first_record_that_is_not_older(play: Play) -> None:
    async def scene(client: AIOKafkaClient, topic: str, name: str) -> None:
        held, place = await producer_ids.take(client, name), TopicPartition(topic, 0)
        await append(client, topic, batch(held, 0, b"a", b"b", b"c", stamps=(STAMP + 10, STAMP + 30, STAMP + 20)))
        await append(client, topic, batch(held, 3, b"d", stamps=(STAMP + 20,)))
        await append(client, topic, batch(held, 4, b"e", stamps=(STAMP + 40,)))
        found = {}
        async with reader(client, place) as consumer:
            for after in (0, 10, 11, 20, 30, 31, 40, 41):
                ((_, stands),) = (await consumer.offsets_for_times({place: STAMP + after})).items()
                found[after] = stands and (stands.offset, stands.timestamp - STAMP)
        assert found == {
            0: (0, 10),
            10: (0, 10),
            11: (1, 30),
            20: (1, 30),
            30: (1, 30),
            31: (4, 40),
            40: (4, 40),
            41: None,
        }

    play(scene)


def test_an_epoch_of_a_leader_ends_where_the_log_does_until_there_is_another(play: Play) -> None:
    async def scene(client: AIOKafkaClient, topic: str, name: str) -> None:
        held, place = await producer_ids.take(client, name), TopicPartition(topic, 0)
        await append(client, topic, batch(held, 0, b"a", b"b"))
        assert await end_of_epoch(client, place, 0) == 2
        await append(client, topic, batch(held, 2, b"c"))
        assert await end_of_epoch(client, place, 0) == 3

    play(scene)


async def compacted(client: AIOKafkaClient, topic: str) -> None:
    """Have the cleaner compact a topic, but for its last segment: a new one begins with each later time."""
    async with administered(client) as admin:
        at_once = {"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0"}
        broker = ConfigResource(ConfigResourceType.BROKER, "1", {"log.cleaner.backoff.ms": "200"})
        answers = await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, at_once), broker])
        assert [said[0] for answer in answers for said in answer.resources if said[0]] == []


def test_a_cleaner_keeps_the_newest_record_of_each_key_at_its_offset(play: Play) -> None:
    async def scene(client: AIOKafkaClient, topic: str, name: str) -> None:
        held, place = await producer_ids.take(client, name), TopicPartition(topic, 0)
        await compacted(client, topic)
        async with reader(client, place) as consumer:

            async def left(since: int, end: int) -> list[int]:
                consumer.seek(place, since)
                found = [since - 1]
                while found[-1] < end - 1:
                    found.append((await consumer.getone(place)).offset)
                return found[1:]

            async def until(offsets: list[int]) -> None:
                while await left(0, offsets[-1] + 1) != offsets:  # noqa: ASYNC110 - nothing says when
                    await asyncio.sleep(0.05)

            for n, key in enumerate((b"a", b"b", b"a", b"c", b"b")):
                await append(client, topic, batch(held, n, b"%d" % n, key=key, stamps=[STAMP + n * 1000]))
            await until([1, 2, 3, 4])  # what stands in the last segment counts for no other
            await append(client, topic, batch(held, 5, b"5", key=b"c", stamps=[STAMP + 5000]))
            await until([2, 3, 4, 5])
            assert await left(1, 6) == [2, 3, 4, 5]
            assert await consumer.beginning_offsets([place]) == {place: 0}
            assert await consumer.end_offsets([place]) == {place: 6}

    play(scene)
