"""The player against a real broker."""

import secrets
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.admin import NewTopic
from aiokafka.errors import KafkaError

from lab import player
from lab.player import CopartitionError, PlayerProgress, TimedRecord, play
from streams.config.settings import Settings
from streams.kafka.partitioner import partition
from streams.kafka.topics import admin_client

#: Before any broker's retention of a week: topics of the tests keep it.
FIRST = 1_359_694_800_000


async def topics(kafka: str, *partitions: int) -> list[str]:
    """Make a topic for each number of partitions and return their names."""
    names = [f"player-{secrets.token_hex(4)}" for _ in partitions]
    kept = {"retention.ms": "-1", "max.message.bytes": "1048588"}
    wanted = [NewTopic(name, n, 1, topic_configs=kept) for name, n in zip(names, partitions, strict=True)]
    async with admin_client(Settings(brokers=(kafka,))) as admin:
        await admin.create_topics(wanted)
    return names


async def contents(kafka: str, names: list[str]) -> dict[tuple[str, int], list[tuple[int, bytes, bytes]]]:
    """Return time, key and value of every record, by topic and partition."""
    how = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    async with AIOKafkaConsumer(*names, bootstrap_servers=kafka, **how) as consumer:
        end = await consumer.end_offsets(consumer.assignment())
        held: dict[tuple[str, int], list[tuple[int, bytes, bytes]]] = {(tp.topic, tp.partition): [] for tp in end}
        while any(len(held[tp.topic, tp.partition]) < n for tp, n in end.items()):
            for tp, records in (await consumer.getmany(timeout_ms=1000)).items():
                held[tp.topic, tp.partition] += [(r.timestamp, r.key, r.value) for r in records]
        return held


def stream(forecasts: str, outcomes: str, n: int, size: int = 10) -> Iterator[TimedRecord]:
    """Yield n forecasts, each followed by the outcome of the third before it."""
    for i in range(n):
        yield TimedRecord(FIRST + i, forecasts, b"event-%d" % i, b"f%d" % i + b"." * size)
        if i >= 3:
            yield TimedRecord(FIRST + i, outcomes, b"event-%d" % (i - 3), b"o%d" % (i - 3))


async def played(
    messages: Iterator[TimedRecord], kafka: str, slice_messages: int = player.SLICE
) -> list[PlayerProgress]:
    client = {"bootstrap_servers": kafka}
    return [each async for each in play(messages, client, slice_messages=slice_messages)]


async def test_all_is_sent_in_order_with_its_time_and_both_topics_of_an_event_meet(kafka: str) -> None:
    forecasts, outcomes = names = await topics(kafka, 3, 3)
    steps = await played(stream(forecasts, outcomes, 500), kafka, 64)
    assert steps[-1] == ({forecasts: 500, outcomes: 497}, FIRST + 499)
    assert [each.sent.total() for each in steps] == [*range(64, 997, 64), 997]
    held = await contents(kafka, names)
    expected: dict[tuple[str, int], list[tuple[int, bytes, bytes]]] = {place: [] for place in held}
    for message in stream(forecasts, outcomes, 500):
        place = (message.topic, partition(message.key, 3))
        expected[place].append((message.time_ms, message.key, message.value))
    assert held == expected
    assert all(records for records in held.values())


async def test_slices_larger_than_a_record_batch_keep_their_order(kafka: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(player, "BATCH_BYTES", 2000)

    forecasts, outcomes = names = await topics(kafka, 1, 1)
    await played(stream(forecasts, outcomes, 200, size=100), kafka)
    held = await contents(kafka, names)
    assert [time for time, _, _ in held[forecasts, 0]] == list(range(FIRST, FIRST + 200))
    assert [time for time, _, _ in held[outcomes, 0]] == list(range(FIRST + 3, FIRST + 200))


async def test_nothing_is_sent_before_the_next_slice_is_asked_for(kafka: str) -> None:
    forecasts, outcomes = names = await topics(kafka, 1, 1)
    slices = play(stream(forecasts, outcomes, 10), {"bootstrap_servers": kafka}, slice_messages=5)
    seen = [sum(map(len, (await contents(kafka, names)).values())) async for _ in slices]
    assert seen == [5, 10, 15, 17]


async def test_topics_with_unequal_partitions_are_refused(kafka: str) -> None:
    forecasts, outcomes = names = await topics(kafka, 2, 3)
    with pytest.raises(CopartitionError, match="equally many"):
        await played(stream(forecasts, outcomes, 10), kafka)
    assert not any((await contents(kafka, names)).values())


async def test_a_message_that_is_not_acknowledged_raises(kafka: str) -> None:
    forecasts, outcomes = await topics(kafka, 1, 1)
    with pytest.raises(KafkaError):
        await played(stream(forecasts, outcomes, 10, size=3_000_000), kafka)
