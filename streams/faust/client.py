"""The connection to the brokers, with a bound on the delay that one silent broker causes.

aiokafka waits for any answer as long as for the slowest request, opens one connection at a time, and may ask even a
silent broker for metadata. So a broker that is frozen, not dead, would stop everything for 30 s and more. If no broker
in the last metadata answers, aiokafka does not go back to the bootstrap brokers.

Here an attempt takes a few seconds at most. Then the broker counts as silent: no request waits for a connection to it.
One task asks every second whether the broker is back and which brokers lead now. The log says once that a broker is
silent, and once that it is back.
"""

import asyncio
import logging
import random
from collections import defaultdict
from collections.abc import Iterable
from math import inf
from time import monotonic
from typing import Any, Final

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.conn import AIOKafkaConnection, CloseReason, create_conn
from aiokafka.errors import KafkaError, NodeNotReadyError, RequestTimedOutError
from aiokafka.protocol.api import Request
from aiokafka.protocol.group import JoinGroupRequest, SyncGroupRequest
from aiokafka.protocol.metadata import MetadataRequest

from streams.config.variables import now
from streams.faust.contact import Contact

log = logging.getLogger("trueup")

#: Shortest and longest pause between two probes of a silent broker, s.
FIRST_PROBE, PROBE = 0.1, 1.0
#: Bytes of the size that goes before an answer.
_SIZE: Final = 4
#: Group of the connections for probes.
_PROBES: Final = "probes"
#: Requests that are answered only when all members of the group have joined. That may take a whole rebalance.
_FOR_ALL_MEMBERS: Final = (JoinGroupRequest, SyncGroupRequest)
#: Attributes that a client needs for each connection it opens.
_CONNECTING: Final = (
    "client_id",
    "request_timeout_ms",
    "ssl_context",
    "security_protocol",
    "sasl_mechanism",
    "sasl_plain_username",
    "sasl_plain_password",
    "sasl_kerberos_service_name",
    "sasl_kerberos_domain_name",
    "sasl_oauth_token_provider",
)


class Client(AIOKafkaClient):  # type: ignore[misc]  # aiokafka ships no type hints
    """A client with short attempts, made by `hasten`."""

    #: Notes which brokers answer.
    contact: Contact
    #: How long a request may take if its answer waits for all members of the group, s. All others may take
    #: ``_request_timeout_ms``; after that the broker counts as silent.
    patience: float
    #: Silent brokers, each with the task that probes it.
    silent: dict[int, asyncio.Task[None]]
    #: Brokers that the cluster has replaced, and that have not been reached since.
    replaced: set[int]

    _locks: defaultdict[tuple[int, Any], asyncio.Lock]

    @property
    def _get_conn_lock(self) -> asyncio.Lock:
        """A new lock for each call: `_get_conn` has one for each connection, so that none waits for another."""
        return asyncio.Lock()

    @property
    def _attempt(self) -> float:
        return float(self._request_timeout_ms / 1000)

    async def _get_conn(
        self,
        node_id: int,
        *,
        group: object = ConnectionGroup.DEFAULT,
        no_hint: bool = False,  # noqa: ARG002 - aiokafka's
    ) -> AIOKafkaConnection | None:
        """Return a connection, or None if the broker is silent or cannot be reached now."""
        if (open_one := self._open(node_id, group)) is not None:
            return open_one
        async with self._locks[node_id, group]:
            if node_id in self.silent:
                return None
            if self.cluster.broker_metadata(node_id) is None and (node_id, group) not in self._conns:
                self.force_metadata_update()
                return None
            return await self._connected(node_id, group)

    def _open(self, node_id: int, group: object) -> AIOKafkaConnection | None:
        """Return an open connection. A connection whose token ends soon is closed once it is idle."""
        found = self._conns.get((node_id, group))
        if found is None or not found.connected():
            return None
        until = getattr(found, "until", inf)  # the bootstrap connection has no such time
        if monotonic() >= until and not found._requests:  # noqa: SLF001 - no public way to it
            found.close(reason=CloseReason.IDLE_DROP)
            return None
        return found

    @property
    def _sasl_plain_password(self) -> str | None:
        """The password as its file now holds it; aiokafka would keep the first one."""
        return now(self.__dict__["_sasl_plain_password"])

    async def _connected(self, node_id: int, group: object) -> AIOKafkaConnection | None:
        connection = await self._tried(node_id, group)
        if connection is None:
            self._fell_silent(node_id)
        elif node_id in self.replaced:
            self.replaced.discard(node_id)
            log.warning("broker %s is back", node_id)
        return connection

    async def _tried(self, node_id: int, group: object) -> AIOKafkaConnection | None:
        """Return a connection, or None if none can be opened within an attempt."""
        try:
            async with asyncio.timeout(self._attempt):
                return await self._opened(node_id, group)
        except TimeoutError:
            return None

    async def _opened(self, node_id: int, group: object) -> AIOKafkaConnection | None:
        """Return a connection. A new connection has asked the broker for its versions."""
        if (open_one := self._open(node_id, group)) is not None:
            return open_one
        self.contact.asked()
        connection = await super()._get_conn(node_id, group=group)
        if connection is not None:
            self.contact.answered()
            directly(connection)
            tokens = self._sasl_oauth_token_provider
            connection.until = monotonic() + (inf if tokens is None else tokens.connection_seconds)
        return connection

    async def send(self, node_id: int, request: object, *, group: object = ConnectionGroup.DEFAULT) -> Any:  # noqa: ANN401 - any response
        """Send a request and return the response.

        Raises NodeNotReadyError if the broker is silent or cannot be reached.
        Raises RequestTimedOutError if it does not answer in time.
        Raises KafkaError if the connection breaks.
        """
        connection = await self._get_conn(node_id, group=group)
        if connection is None:
            raise NodeNotReadyError(f"broker {node_id} cannot be reached")
        for_all = isinstance(request, _FOR_ALL_MEMBERS)
        connection._request_timeout = self.patience if for_all else self._attempt  # noqa: SLF001 - the bound of the next request
        if not for_all:
            self.contact.asked()
        try:
            answer = await connection.send(request)
        except TimeoutError as exc:
            connection.close(reason=CloseReason.CONNECTION_TIMEOUT)
            self._fell_silent(node_id)
            raise RequestTimedOutError from exc
        self.contact.answered()
        return answer

    def get_random_node(self) -> int | None:
        """Return a random broker that is not silent, if there is one."""
        nodes = [broker.nodeId for broker in self.cluster.brokers()]
        awake = [node for node in nodes if node not in self.silent] or nodes
        return random.choice(awake) if awake else None  # noqa: S311 - nothing secret

    async def _metadata_update(self, cluster_metadata: Any, topics: Iterable[str]) -> bool:  # noqa: ANN401 - aiokafka's
        """Ask the brokers that are not silent one after another, then the silent ones, then the bootstrap brokers."""
        awake = [broker.nodeId for broker in self.cluster.brokers() if broker.nodeId not in self.silent]
        for node_id in random.sample(awake, len(awake)):
            try:
                metadata = await self.send(node_id, MetadataRequest(list(topics) or None))
            except KafkaError:
                continue
            if metadata.brokers:
                cluster_metadata.update_metadata(metadata)
                return True
        asked = {(broker.host, broker.port) for broker in self.cluster.brokers()}
        if await super()._metadata_update(cluster_metadata, topics):
            return True
        for host, port, _ in self.hosts:
            if (host, port) not in asked and await self._asked_anew(host, port, cluster_metadata, topics):
                return True
        return False

    async def _asked_anew(self, host: str, port: int, cluster_metadata: Any, topics: Iterable[str]) -> bool:  # noqa: ANN401 - aiokafka's
        """Update the metadata from a broker that is not in it; return whether the broker answered."""
        options = {name: getattr(self, f"_{name}") for name in _CONNECTING}
        try:
            connection = await create_conn(host, port, **options)
            try:
                metadata = await connection.send(MetadataRequest(list(topics) or None))
            finally:
                connection.close()
        except (OSError, KafkaError, TimeoutError):
            return False
        if metadata.brokers:
            cluster_metadata.update_metadata(metadata)
        return bool(metadata.brokers)

    def _fell_silent(self, node_id: int) -> None:
        if node_id not in self.silent:
            self.silent[node_id] = asyncio.get_running_loop().create_task(self._look_after(node_id))

    async def _look_after(self, node_id: int) -> None:
        """Probe a silent broker until it answers or the cluster replaces it. Log which of the two happened."""
        began, told, pause = monotonic(), False, FIRST_PROBE
        try:
            while not await self._reached(node_id):
                if self.cluster.broker_metadata(node_id) is None:
                    log.warning("broker %s does not answer, and the cluster goes on without it", node_id)
                    self.replaced.add(node_id)
                    return
                if not told:
                    log.warning("broker %s does not answer", node_id)
                    told = True
                await asyncio.sleep(pause)
                pause = min(2 * pause, PROBE)
                await self.force_metadata_update()
            if told:
                log.warning("broker %s answers again, after %.1f s", node_id, monotonic() - began)
        finally:
            del self.silent[node_id]

    async def _reached(self, node_id: int) -> bool:
        connection = await self._tried(node_id, _PROBES)
        if connection is None:
            return False
        # If it stayed open, it would count as an answer when the broker freezes again.
        connection.close(reason=CloseReason.IDLE_DROP)
        return True

    async def close(self) -> None:
        """Close all connections."""
        for task in list(self.silent.values()):
            task.cancel()
        await super().close()


def directly(connection: AIOKafkaConnection) -> None:
    """Handle a connection's answers as soon as they come. aiokafka's task waits for their size, then for the rest."""
    reader, left = connection._reader, bytearray()  # noqa: SLF001 - no public way to it
    if reader is None or "feed_data" in vars(reader):  # the connection broke during sign-in, or is already set up
        return

    def feed(data: bytes) -> None:
        left.extend(data)
        while len(left) >= _SIZE and len(left) >= (end := _SIZE + int.from_bytes(left[:_SIZE])):
            if connection._reader is not reader:  # noqa: SLF001 - the connection was closed, and nobody waits any more
                return
            answer = bytes(memoryview(left)[_SIZE:end])
            del left[:end]
            connection._handle_frame(answer)  # noqa: SLF001 - as its task does

    reader.feed_data = feed


def hasten(of: AIOKafkaClient | AIOKafkaConsumer, attempt: float, contact: Contact) -> None:
    """Turn a client that is not started, or the client of a consumer, into a `Client`.

    ``attempt``: longest wait for a broker's answer, s.
    """
    client: Any = of._client if isinstance(of, AIOKafkaConsumer) else of  # noqa: SLF001 - no public way to it
    client.__class__, client.contact = Client, contact
    client.patience, client._request_timeout_ms = client._request_timeout_ms / 1000, int(attempt * 1000)  # noqa: SLF001
    client.silent, client.replaced, client._locks = {}, set(), defaultdict(asyncio.Lock)  # noqa: SLF001


def idle_ms(attempt: float, most: int) -> int:
    """Return how long a fetch may wait at a broker, ms, at most ``most``.

    After a whole attempt the broker would count as silent, so a fetch waits for at most half of one.

    ``attempt``: as in `hasten`, s.
    """
    return min(most, int(attempt * 1000 / 2))


def ask_for_topics(consumer: AIOKafkaConsumer) -> None:
    """Ask the brokers for topics whose metadata is missing. When it comes, have the group assign partitions anew.

    A group leader without metadata assigns nothing, and aiokafka asks again only a minute or more later.
    """
    if any(consumer.partitions_for_topic(topic) is None for topic in consumer.subscription()):
        consumer._client.force_metadata_update()  # noqa: SLF001 - no public way to ask


async def stop(consumer: AIOKafkaConsumer) -> None:
    """Stop a consumer, whatever it is waiting for.

    aiokafka cancels its own requests and awaits them. A request that pauses before its next attempt, for example while
    a broker is away, then raises CancelledError out of the consumer before the connections are closed.
    """
    try:
        await consumer.stop()
    except asyncio.CancelledError:
        await consumer._client.close()  # noqa: SLF001 - the remaining work
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise


async def ask(admin: AIOKafkaAdminClient, request: Request, node: int | None = None) -> Any:  # noqa: ANN401 - aiokafka's
    """Send a request that aiokafka has no public way to send, to one broker or to any; return the answer.

    Raises BrokersError if the broker is too old to know the request.
    Raises KafkaError if it cannot be asked.
    """
    return await admin._send_request(request, node)  # noqa: SLF001 - no public way to send one's own
