"""The brokers of a campaign: one, or several that replicate everything; and what they say of themselves."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, NodeNotReadyError, for_code
from aiokafka.protocol.admin import AlterPartitionReassignmentsRequest
from aiokafka.structs import TopicPartition

from lab.broker import Broker, Seat, cluster_id
from lab.jvm import free_port
from tests.e2e.world import wait_for

#: Longest wait until the brokers answer, and until all replicas are in sync, s.
PATIENCE = 180.0
#: Of the JVM of each of several brokers.
HEAP = "256m"
#: Of the same. Code that is compiled once and simply costs a third less CPU until the broker answers.
JAVA = ("-XX:TieredStopAtLevel=1",)
#: What brokers that replicate have instead of ``server.properties``: writes need two in sync; leaders return to the
#: broker they prefer, so that they are spread again soon after a broker was away. Another controller takes over as much
#: sooner as a broker is given up sooner (3 s in place of 9): both follow on one another where the controller freezes.
REPLICATED = """
default.replication.factor=3
min.insync.replicas=2
offsets.topic.replication.factor=3
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
unclean.leader.election.enable=false
controller.quorum.fetch.timeout.ms=1000
controller.quorum.election.timeout.ms=500
leader.imbalance.check.interval.seconds=10
num.network.threads=2
num.io.threads=4
log.cleaner.threads=1
"""
#: Where a topic's configuration was set for the topic itself, in the brokers' numbers.
OF_THE_TOPIC = 1

T = TypeVar("T")


class Place(NamedTuple):
    """Where a partition is: its leader, its replicas in the order of preference, and those in sync, by node."""

    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class Cluster:
    """Brokers that are started, stopped and struck together; a context.

    ``directory``: holds a directory for each broker.
    ``fronts``: for each broker the ports of its proxies, see `Broker`.
    """

    def __init__(self, directory: Path, fronts: Sequence[Sequence[int]]) -> None:
        controllers: list[int] = []
        while len(controllers) < len(fronts):
            controllers.append(free_port(*controllers))
        identity, several = cluster_id(), len(fronts) > 1
        #: By number; node ``n`` is ``brokers[n - 1]``.
        self.brokers = [
            Broker(
                directory / f"broker-{node}",
                heap=HEAP if several else "512m",
                properties=REPLICATED if several else "",
                fronts=ports,
                seat=Seat(identity, node, tuple(controllers)),
                java=JAVA if several else (),
            )
            for node, ports in enumerate(fronts, 1)
        ]
        #: Addresses of all.
        self.bootstrap = ",".join(broker.bootstrap for broker in self.brokers)
        #: Copies that a topic must have: as many as there are brokers.
        self.replication = len(self.brokers)

    def __enter__(self) -> Self:
        """Start."""
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Kill all: the last of several could not leave in good order, as no controller would answer it."""
        for broker in self.brokers:
            broker.kill()

    def start(self) -> None:
        """Start the brokers that are down, at the same time; return when all answer."""
        down = [broker for broker in self.brokers if not broker.alive]
        for broker in down:
            broker.launch()
        for broker in down:
            broker.wait()

    def broker(self, node: int) -> Broker:
        """Return a broker by its number."""
        return self.brokers[node - 1]

    def heal(self) -> None:
        """Return when every broker runs and every replica of every topic is in sync."""
        self.start()
        wait_for("all replicas to be in sync", self._whole, PATIENCE)

    def _whole(self) -> bool:
        async def look(admin: AIOKafkaAdminClient) -> bool:
            topics = await admin.describe_topics()
            partitions = [partition for topic in topics for partition in topic["partitions"]]
            return all(each["leader"] >= 0 and len(each["isr"]) == len(each["replicas"]) for each in partitions)

        if len(self.brokers) == 1:
            return True
        try:
            return asyncio.run(self._with_admin(look))
        except (KafkaError, TimeoutError, AssertionError):
            return False

    def places(self, topic: str) -> dict[int, Place]:
        """Return where the partitions of a topic are."""

        async def look(admin: AIOKafkaAdminClient) -> dict[int, Place]:
            (described,) = await admin.describe_topics([topic])
            return {
                each["partition"]: Place(each["leader"], tuple(each["replicas"]), tuple(each["isr"]))
                for each in described["partitions"]
            }

        return self.ask(look)

    def coordinator(self, group: str) -> int:
        """Return the node that coordinates a group."""

        async def look(admin: AIOKafkaAdminClient) -> int:
            return int(await admin.find_coordinator(group))

        return self.ask(look)

    def controller(self) -> int:
        """Return the node that leads the quorum of controllers, as the brokers have written it down."""
        newest = (-1, -1)
        for broker in self.brokers:
            state = broker.directory / "data" / "__cluster_metadata-0" / "quorum-state"
            with suppress(OSError, json.JSONDecodeError):
                said = json.loads(state.read_text())
                newest = max(newest, (int(said["leaderEpoch"]), int(said["leaderId"])))
        assert newest[1] > 0, "no controller leads"
        return newest[1]

    def configure(self, topic: str, **configs: str | None) -> None:
        """Change configurations of a topic, dots written as underscores; None takes one back. The others stay."""

        async def change(admin: AIOKafkaAdminClient) -> None:
            resource = ConfigResource(ConfigResourceType.TOPIC, topic)
            (response,) = await admin.describe_configs([resource])
            kept = {entry[0]: entry[1] for entry in response.resources[0][-1] if entry[3] == OF_THE_TOPIC}
            wanted: Mapping[str, str | None] = kept | {name.replace("_", "."): each for name, each in configs.items()}
            resource.configs = {name: each for name, each in wanted.items() if each is not None}
            (response,) = await admin.alter_configs([resource])
            for code, message, *_ in response.resources:
                if code:
                    raise for_code(code)(message)

        self.ask(change)

    def reassign(self, topic: str, replicas: Mapping[int, Sequence[int]]) -> None:
        """Move partitions of a topic to other replicas, and return when they are there and in sync."""

        async def move(admin: AIOKafkaAdminClient) -> None:
            partitions: Any = [(number, list(nodes), {}) for number, nodes in replicas.items()]
            response = await admin._send_request(  # no public way to ask
                AlterPartitionReassignmentsRequest(30_000, [(topic, partitions, {})], {})
            )
            codes = [response.error_code, *(each[1] for _, found, *_ in response.responses for each in found)]
            if any(codes):
                raise for_code(max(codes))(f"cannot move {topic}")

        def moved() -> bool:
            places = self.places(topic)
            return all(
                places[number].replicas == tuple(nodes) and set(places[number].in_sync) == set(nodes)
                for number, nodes in replicas.items()
            )

        self.ask(move)
        wait_for(f"{topic} to move", moved, PATIENCE)

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """Delete a topic's records below an offset of each partition, as retention does."""

        async def delete(admin: AIOKafkaAdminClient) -> None:
            await admin.delete_records(
                {TopicPartition(topic, number): RecordsToDelete(offset) for number, offset in before.items()}
            )

        self.ask(delete)

    def ask(self, question: Callable[[AIOKafkaAdminClient], Awaitable[T]]) -> T:
        """Return what brokers say, trying again while they have other things to do."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return asyncio.run(self._with_admin(question))
            except (KafkaError, TimeoutError, AssertionError):  # aiokafka asserts that it knows a broker
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)

    async def _with_admin(self, question: Callable[[AIOKafkaAdminClient], Awaitable[T]]) -> T:
        admin: Any = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap, request_timeout_ms=5000)
        try:
            await admin.start()
            nodes = {node.nodeId for node in admin._client.cluster.brokers()}
            if not nodes:
                raise NodeNotReadyError("no broker is known")
            return await asyncio.wait_for(question(admin), 20)
        finally:
            await admin.close()
