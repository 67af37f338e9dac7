"""What the model of Kafka promises, on the model and on a real broker: so the one cannot drift from the other.

Each scene is a coroutine that knows a client and the names of topics. It uses what the product uses: aiokafka's
requests, the product's own appends and epochs.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from itertools import repeat
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, errors
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType
from aiokafka.protocol.admin import DescribeGroupsRequest
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.group import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from aiokafka.structs import TopicPartition

from streams.config.settings import Settings
from streams.faust.appends import Appender
from streams.faust.claims import Claims
from streams.faust.producing import RecordBatch
from streams.kafka import producer_ids, provenance
from streams.kafka.producer_ids import ProducerIdentity
from streams.kafka.topics import TopicsError
from tests.simulation.conftest import Play

#: The error of a broker that names a new member and asks it to join under that name (KIP-394).
MEMBER_ID_REQUIRED = 79
#: Errors of a coordinator that is just coming to be.
LOADING = (14, 15, 16)


#: What the records of a batch are stamped by, ms, unless something else is asked for.
STAMP = 1_700_000_000_000


def batch(
    held: ProducerIdentity, sequence: int, *values: bytes, key: bytes = b"key", stamps: Iterable[int] = repeat(STAMP)
) -> bytes:
    made = RecordBatch(10_000, 0)
    made.extend([(key, value, stamp, []) for value, stamp in zip(values, stamps, strict=False)])
    return made.sealed(*held, sequence)


async def append(client: AIOKafkaClient, topic: str, data: bytes, partition: int = 0) -> int:
    place = TopicPartition(topic, partition)
    return (await Appender(lambda: client).append({place: data}))[place]


async def ask(client: AIOKafkaClient, name: str, request: Any) -> Any:
    """Ask the coordinator of a group, by a connection of its own: a join is answered when all have come."""
    while True:
        try:
            node = await client.coordinator_lookup(CoordinationType.GROUP, name)
        except errors.KafkaError as exc:
            if not exc.retriable:
                raise
            await asyncio.sleep(0.1)
            continue
        answer = await client.send(node, request, group=(ConnectionGroup.COORDINATION, uuid.uuid4()))
        if getattr(answer, "error_code", 0) not in LOADING:
            return answer
        await asyncio.sleep(0.1)


def test_offsets_go_on_in_each_partition_and_records_keep_their_order(play: Play) -> None:
    async def scene(client: AIOKafkaClient, topic: str, name: str) -> None:
        held = await producer_ids.take(client, name)
        assert await append(client, topic, batch(held, 0, b"a", b"b")) == 0
        assert await append(client, topic, batch(held, 2, b"c")) == 2
        assert await append(client, topic, batch(held, 0, b"d"), 1) == 0
        bootstrap = [f"{host}:{port}" for host, port, _ in client.hosts]
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False)
        await consumer.start()
        try:
            first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
            consumer.assign([first, second])
            assert await consumer.end_offsets([first, second]) == {first: 3, second: 1}
            assert await consumer.beginning_offsets([first]) == {first: 0}
            read = [await consumer.getone(first) for _ in range(3)]
            assert [(each.offset, each.value, each.timestamp) for each in read] == [
                (n, value, STAMP) for n, value in enumerate((b"a", b"b", b"c"))
            ]
            waiting = asyncio.create_task(consumer.getone(second))
            assert (await waiting).value == b"d"
            later = asyncio.create_task(consumer.getone(second))
            await append(client, topic, batch(held, 1, b"e"), 1)
            assert (await later).value == b"e"
        finally:
            await consumer.stop()

    play(scene)


def test_an_older_epoch_appends_until_a_newer_one_has_and_is_refused_then(play: Play) -> None:
    async def scene(client: AIOKafkaClient, topic: str, name: str) -> None:
        old = await producer_ids.take(client, name)
        await append(client, topic, batch(old, 0, b"a"))
        new = await producer_ids.take(client, name)
        assert new == (old.producer_id, old.epoch + 1)
        assert await append(client, topic, batch(old, 1, b"b")) == 1  # the log learns of an epoch by what it appends
        assert await append(client, topic, batch(new, 0, b"c")) == 2
        with pytest.raises(errors.ProducerFenced):
            await append(client, topic, batch(old, 2, b"d"))
        assert await append(client, topic, batch(old, 0, b"e"), 1) == 0  # of each partition by itself
        assert await append(client, topic, batch(new, 1, b"f")) == 3

    play(scene)


def test_a_batch_that_was_appended_and_is_sent_again_is_there_once(play: Play) -> None:
    async def scene(client: AIOKafkaClient, topic: str, name: str) -> None:
        held = await producer_ids.take(client, name)
        sent = [batch(held, n, str(n).encode()) for n in range(6)]
        assert [await append(client, topic, each) for each in sent] == [*range(6)]
        assert [await append(client, topic, each) for each in sent[1:]] == [*range(1, 6)]  # the last five are known
        assert await append(client, topic, batch(held, 6, b"more")) == 6

    play(scene)


@pytest.mark.parametrize("sequence", [0, 3])
def test_numbers_that_do_not_go_on_are_refused(play: Play, sequence: int) -> None:
    async def scene(client: AIOKafkaClient, topic: str, name: str) -> None:
        held = await producer_ids.take(client, name)
        for n in range(2):
            await append(client, topic, batch(held, n, b"a"))
        if not sequence:  # a new epoch begins with 0
            held = await producer_ids.take(client, name)
        with pytest.raises(errors.OutOfOrderSequenceNumber):
            await append(client, topic, batch(held, sequence or 1, b"b"))

    play(scene)


def test_who_holds_the_newest_epoch_raises_it_and_nobody_else_by_an_older_one(play: Play) -> None:
    async def scene(client: AIOKafkaClient, _: str, name: str) -> None:
        first = await producer_ids.take(client, name)
        second = await producer_ids.take(client, name, first)
        assert second.epoch == first.epoch + 1
        assert await producer_ids.take(client, name, first) == second  # the same request again: its answer was lost
        third = await producer_ids.take(client, name)
        assert third.epoch == second.epoch + 1
        for stale in (first, second):
            with pytest.raises(errors.ProducerFenced):
                await producer_ids.take(client, name, stale)

    play(scene)


def test_what_lies_beyond_the_end_is_out_of_range(play: Play) -> None:
    async def scene(client: AIOKafkaClient, topic: str, name: str) -> None:
        await append(client, topic, batch(await producer_ids.take(client, name), 0, b"a"))
        leader = client.cluster.leader_for_partition(TopicPartition(topic, 0))
        codes = []
        for offset in (1, 2):
            request = FetchRequest(10, 1, 1000, 1, [(topic, [(0, offset, 1000)])])
            codes.append((await client.send(leader, request)).topics[0][1][0][1])
        assert codes == [0, errors.OffsetOutOfRangeError.errno]

    play(scene)


def test_a_topic_is_described_by_an_id_of_its_own(play: Play) -> None:
    async def scene(client: AIOKafkaClient, topic: str, _: str) -> None:
        described = await provenance.describe(client, "app", topic)
        found = await provenance.identity(client, topic)
        assert found == described.topic
        assert (found.name, found.partitions) == (topic, 2)
        assert found.id != "0" * 32
        assert described.retention_ms == provenance.DEFAULT_RETENTION_MS

    play(scene)


@asynccontextmanager
async def administered(client: AIOKafkaClient) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=[f"{host}:{port}" for host, port, _ in client.hosts])
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def renew(client: AIOKafkaClient, topic: str) -> None:
    """Delete a topic, and make it anew."""
    async with administered(client) as admin:
        await admin.delete_topics([topic])
        while True:
            (_, code, *_), *_ = (await admin.create_topics([NewTopic(topic, 2, 1)])).topic_errors
            if code != errors.TopicAlreadyExistsError.errno:
                break
            await asyncio.sleep(0.1)
    assert not code


def test_a_topic_that_is_made_anew_has_another_id_and_knows_no_epoch_of_before(play: Play) -> None:
    async def scene(client: AIOKafkaClient, topic: str, name: str) -> None:
        old = await producer_ids.take(client, name)
        await append(client, topic, batch(old, 0, b"a"))
        new = await producer_ids.take(client, name)
        await append(client, topic, batch(new, 0, b"b"))
        before = await provenance.identity(client, topic)
        await renew(client, topic)
        async with asyncio.timeout(30):
            while (now := await provenance.identity(client, topic)).partitions != 2 or now.id == before.id:  # noqa: ASYNC110 - nothing says when
                await asyncio.sleep(0.1)
        assert await append(client, topic, batch(old, 1, b"c")) == 0
        assert await append(client, topic, batch(new, 1, b"d"), 1) == 0
        assert (await producer_ids.take(client, name)).epoch == new.epoch + 1
        assert await append(client, topic, batch(new, 2, b"e"), 1) == 1
        with pytest.raises(errors.OutOfOrderSequenceNumber):
            await append(client, topic, batch(new, 1, b"f"))
        assert await append(client, topic, batch(new, 0, b"g")) == 1
        with pytest.raises(errors.ProducerFenced):
            await append(client, topic, batch(old, 2, b"h"))

    play(scene)


async def join(client: AIOKafkaClient, group: str, member: str = "", said: bytes = b"") -> Any:
    def request(name: str) -> JoinGroupRequest:
        return JoinGroupRequest(group, 10_000, 10_000, name, None, "consumer", [("any", said)])

    answer = await ask(client, group, request(member))
    if answer.error_code == MEMBER_ID_REQUIRED:
        answer = await ask(client, group, request(answer.member_id))
    return answer


async def heartbeat(client: AIOKafkaClient, group: str, generation: int, member: str) -> int:
    answer = await ask(client, group, HeartbeatRequest(group, generation, member))
    return int(answer.error_code)


def test_a_group_shares_out_by_generations_and_knows_who_is_behind(play: Play) -> None:
    async def scene(client: AIOKafkaClient, topic: str, group: str) -> None:
        first = await join(client, group)
        one, generation = first.member_id, first.generation_id
        assert (first.error_code, first.leader_id, [each[0] for each in first.members]) == (0, one, [one])
        shares = await ask(client, group, SyncGroupRequest(group, generation, one, None, [(one, b"all")]))
        assert (shares.error_code, shares.member_assignment) == (0, b"all")
        assert await heartbeat(client, group, generation, one) == 0
        assert await heartbeat(client, group, generation, "nobody") == errors.UnknownMemberIdError.errno
        assert (await join(client, group, "nobody")).error_code == errors.UnknownMemberIdError.errno

        joining = asyncio.create_task(join(client, group))
        while (code := await heartbeat(client, group, generation, one)) == 0:  # noqa: ASYNC110 - nothing says when
            await asyncio.sleep(0.05)
        assert code == errors.RebalanceInProgressError.errno
        again = await join(client, group, one)
        other = await joining
        two = other.member_id
        assert again.generation_id == other.generation_id == generation + 1
        assert again.leader_id == other.leader_id == one
        assert {each[0] for each in again.members} == {one, two}
        assert not other.members
        syncing = asyncio.create_task(ask(client, group, SyncGroupRequest(group, generation + 1, two, None, [])))
        stale = await ask(client, group, SyncGroupRequest(group, generation, one, None, []))
        assert stale.error_code == errors.IllegalGenerationError.errno
        request = SyncGroupRequest(group, generation + 1, one, None, [(one, b"a"), (two, b"b")])
        assert (await ask(client, group, request)).member_assignment == b"a"
        assert (await syncing).member_assignment == b"b"

        for at, code in ((generation, errors.IllegalGenerationError.errno), (generation + 1, 0)):
            commit = OffsetCommitRequest(group, at, two, -1, [(topic, [(0, 7, "noted")])])
            assert (await ask(client, group, commit)).topics[0][1][0][1] == code
        committed = await ask(client, group, OffsetFetchRequest(group, [(topic, [0, 1])]))
        assert [each[:3] for each in committed.topics[0][1]] == [(0, 7, "noted"), (1, -1, "")]
        every = await ask(client, group, OffsetFetchRequest(group, None))
        assert [(name, [each[:3] for each in found]) for name, found in every.topics] == [(topic, [(0, 7, "noted")])]

        # Who joins again and says nothing new is told the generation that there is.
        assert (await join(client, group, two)).generation_id == generation + 1
        assert (await ask(client, group, LeaveGroupRequest(group, two))).error_code == 0
        assert await heartbeat(client, group, generation + 1, one) == errors.RebalanceInProgressError.errno
        assert (await join(client, group, one)).generation_id == generation + 2

    play(scene)


def test_nobody_commits_for_a_group_that_has_members(play: Play) -> None:
    async def scene(client: AIOKafkaClient, topic: str, group: str) -> None:
        async def described() -> tuple[str, int]:
            (found,) = (await ask(client, group, DescribeGroupsRequest([group]))).groups
            return found[2], len(found[5])

        async def committed(offset: int) -> int:
            commit = OffsetCommitRequest(group, -1, "", -1, [(topic, [(0, offset, "")])])
            while (code := (await ask(client, group, commit)).topics[0][1][0][1]) in LOADING:  # noqa: ASYNC110 - nothing says when
                await asyncio.sleep(0.1)
            return int(code)

        assert await committed(3) == 0
        assert await described() == ("Empty", 0)
        member = (await join(client, group)).member_id
        assert await described() == ("CompletingRebalance", 1)
        assert await committed(4) == errors.UnknownMemberIdError.errno
        assert (await ask(client, group, LeaveGroupRequest(group, member))).error_code == 0
        assert (await ask(client, group, OffsetFetchRequest(group, [(topic, [0])]))).topics[0][1][0][1] == 3

    play(scene)


async def told(client: AIOKafkaClient, group: str, topic: str) -> list[tuple[int, list[Any]]]:
    """Ask what a group has committed until its coordinator says it, and return each error with the topics named."""
    answers: list[tuple[int, list[Any]]] = []
    while not answers or answers[-1][0]:
        try:
            node = await client.coordinator_lookup(CoordinationType.GROUP, group)
            asked = OffsetFetchRequest(group, [(topic, [0])])
            answer = await client.send(node, asked, group=(ConnectionGroup.COORDINATION, uuid.uuid4()))
        except errors.KafkaError:
            await asyncio.sleep(0.05)
        else:
            answers.append((answer.error_code, [(name, [each[:2] for each in found]) for name, found in answer.topics]))
    return answers


def test_a_coordinator_that_cannot_say_what_is_committed_says_so_and_nothing_else(play: Play) -> None:
    async def scene(client: AIOKafkaClient, topic: str, group: str) -> None:
        commit = OffsetCommitRequest(group, -1, "", -1, [(topic, [(0, 7, "")])])
        while (await ask(client, group, commit)).topics[0][1][0][1]:  # noqa: ASYNC110 - nothing says when
            await asyncio.sleep(0.1)
        said = [each for _ in range(40) for each in await told(client, group, topic)]
        assert [
            each for each in said if each != (0, [(topic, [(0, 7)])]) and not (each[0] in LOADING and not each[1])
        ] == []

    play(scene)


def test_a_command_that_stood_still_writes_nothing_behind_the_claim_of_another(play: Play) -> None:
    async def scene(client: AIOKafkaClient, topic: str, _: str) -> None:
        settings = Settings(app_id=topic.removesuffix("-state-changelog"), compression="none")
        first, second = (Claims(settings, client, "trueup state rescale") for _ in range(2))
        await first.claim([0, 1])
        assert await first.append(0, [(b"a", b"1"), (b"b", None)]) == 2
        await second.claim([0])
        with pytest.raises(TopicsError, match="another run of 'trueup state rescale', took up partition 0"):
            await first.append(0, [(b"c", b"2")])
        large = [(b"%d" % n, bytes(settings.batch_bytes // 2)) for n in range(3)]
        assert await second.append(0, large) == 3  # in several batches
        assert await first.append(1, [(b"d", b"3")]) == 1

    play(scene)
