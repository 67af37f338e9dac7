"""A model of Kafka: logs that refuse stale epochs, a group coordinator, and connections that lose requests.

It stands where `aiokafka.client.create_conn` opens a connection. So all of aiokafka, Faust and the product above it is
real: a request is the object that would be encoded, an answer the one that would be decoded. The record batches in them
are bytes. What the model promises is tested on it and on a real broker (`test_contract.py`).

There is one broker. It has no transactions.
"""

import asyncio
import random
import struct
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from aiokafka import errors
from aiokafka.conn import CloseReason
from aiokafka.record.default_records import DefaultRecordBatch

from tests.simulation.loop import PROCESS, Loop, Process

#: The versions of requests that it speaks, by their number.
VERSIONS: Final = {
    0: (3, 3),
    1: (4, 4),
    2: (2, 2),
    3: (0, 10),
    8: (2, 2),
    9: (1, 1),
    10: (1, 1),
    11: (2, 2),
    12: (0, 0),
    13: (0, 0),
    14: (0, 0),
    22: (0, 4),
    32: (0, 0),
}
_HEAD: Final = struct.Struct(">qiibIhiqqqhii")
#: How many batches of a producer a log knows again.
KNOWN: Final = 5
#: Error codes.
OK, RANGE, UNKNOWN_TOPIC, GENERATION, UNKNOWN_MEMBER, REBALANCING = (
    0,
    errors.OffsetOutOfRangeError.errno,
    errors.UnknownTopicOrPartitionError.errno,
    errors.IllegalGenerationError.errno,
    errors.UnknownMemberIdError.errno,
    errors.RebalanceInProgressError.errno,
)
SEQUENCE, STALE = errors.OutOfOrderSequenceNumber.errno, errors.InvalidProducerEpoch.errno

Reply = Callable[..., None]
Place = tuple[str, int]


class Record(NamedTuple):
    """A record as it stands in a log, and who appended it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Any
    by: str
    at: int


@dataclass
class Batch:
    """A record batch in a log: its bytes, who appended it, and its number among all appends of the cluster."""

    first: int
    end: int
    data: bytes
    by: str
    at: int


@dataclass
class Log:
    """A partition of a topic.

    Attributes
    ----------
    newest
        Of each producer id the newest epoch, the next sequence, and the first sequence and offset of its last batches.
    """

    batches: list[Batch] = field(default_factory=list)
    #: With those that compaction has left out.
    all: list[Batch] = field(default_factory=list)
    begin: int = 0
    newest: dict[int, tuple[int, int, deque[tuple[int, int]]]] = field(default_factory=dict)
    waiting: list[Callable[[], None]] = field(default_factory=list)

    @property
    def end(self) -> int:
        """Offset of the next record."""
        return self.batches[-1].end if self.batches else self.begin

    def append(self, data: bytes, by: str, at: int) -> tuple[int, int]:
        """Append a batch, and return an error code and the offset of its first record."""
        *_, last, _, _, producer, epoch, sequence, _ = _HEAD.unpack_from(data)
        count = last + 1
        if producer >= 0:
            known, following, batches = self.newest.get(producer, (-1, 0, deque[tuple[int, int]](maxlen=KNOWN)))
            if epoch < known:
                return STALE, -1
            if epoch == known:
                for first, offset in batches:
                    if first == sequence:
                        return OK, offset
                if sequence != following:
                    return SEQUENCE, -1
            elif known >= 0 and sequence:
                return SEQUENCE, -1
            else:
                batches = deque(maxlen=KNOWN)
            batches.append((sequence, self.end))
            self.newest[producer] = epoch, (sequence + count) % 2**31, batches
        offset = self.end
        self.batches.append(Batch(offset, offset + count, struct.pack(">q", offset) + data[8:], by, at))
        self.all.append(self.batches[-1])
        for wake in self.waiting:
            wake()
        self.waiting.clear()
        return OK, offset

    def read(self, offset: int, size: int) -> bytes:
        """Return the batches from an offset on, up to some bytes, but at least one."""
        low, high = 0, len(self.batches)
        while low < high:
            middle = (low + high) // 2
            if self.batches[middle].end > offset:
                high = middle
            else:
                low = middle + 1
        taken: list[bytes] = []
        for batch in self.batches[low:]:
            size -= len(batch.data)
            if taken and size < 0:
                break
            taken.append(batch.data)
        return b"".join(taken)

    def records(self, *, whole: bool = False) -> Iterable[Record]:
        """Yield every record; ``whole``: also what compaction has left out."""
        for batch in self.all if whole else self.batches:
            for each in DefaultRecordBatch(bytearray(batch.data)):
                yield Record(each.offset, each.timestamp, each.key, each.value, each.headers, batch.by, batch.at)

    def compact(self) -> None:
        """Leave out batches of which a later record has each key, and empty ones; a cleaner keeps offsets."""
        latest: dict[bytes | None, int] = {}
        for record in self.records():
            latest[record.key] = record.offset
        kept = set(latest.values())
        self.batches = [
            each for each in self.batches[:-1] if any(n in kept for n in range(each.first, each.end))
        ] + self.batches[-1:]


@dataclass
class Member:
    """A member of the group; ``joining`` and ``syncing`` answer its request when it is time."""

    session: float
    rebalance: float
    protocols: list[tuple[str, bytes]]
    joining: Reply | None = None
    syncing: Reply | None = None
    assignment: bytes = b""
    timer: asyncio.TimerHandle | None = None


class Group:
    """A consumer group, as its coordinator keeps it: joins, generations, sessions, committed offsets."""

    def __init__(self, loop: Loop, log: Callable[[str], None]) -> None:
        self._loop, self._log = loop, log
        self.members: dict[str, Member] = {}
        self.state, self.generation, self.leader, self._ids = "empty", 0, "", 0
        self.offsets: dict[Place, int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def join(self, request: Any, reply: Reply) -> None:
        """Take a member in; it is answered when all have come."""
        name, again = request.member_id, request.member_id in self.members
        if name and not again:
            reply(0, UNKNOWN_MEMBER, -1, "", "", name, [])
            return
        if not name:
            self._ids += 1
            name = f"member-{self._ids}"
        protocols = [(each[0], each[1]) for each in request.group_protocols]
        member = self.members.get(name)
        if member is None:
            member = self.members[name] = Member(
                request.session_timeout / 1000, request.rebalance_timeout / 1000, protocols
            )
        same, member.protocols = member.protocols == protocols, protocols
        if again and same and (self.state == "completing" or (self.state == "stable" and name != self.leader)):
            self._joined(name, reply)
            self._alive(name)
            return
        member.joining = reply
        if member.timer is not None:
            member.timer.cancel()
        if self.state != "preparing":
            self._prepare()
        self._complete()

    def sync(self, request: Any, reply: Reply) -> None:
        """Take the leader's assignments, and hand each member its own."""
        member, code = self._known(request)
        if code or member is None:
            reply(code, b"")
        elif self.state == "preparing":
            reply(REBALANCING, b"")
        elif self.state == "stable":
            self._alive(request.member_id)
            reply(OK, member.assignment)
        else:
            member.syncing = reply
            if request.member_id == self.leader:
                shares = dict(request.group_assignment)
                self.state = "stable"
                self._log(f"group: generation {self.generation} is stable")
                for name, each in self.members.items():
                    each.assignment = shares.get(name, b"")
                    self._alive(name)
                    syncing, each.syncing = each.syncing, None
                    if syncing:
                        syncing(OK, each.assignment)

    def heartbeat(self, request: Any, reply: Reply) -> None:
        """Note that a member is alive, and say whether it is to join again."""
        _, code = self._known(request)
        if not code:
            self._alive(request.member_id)
            code = REBALANCING if self.state == "preparing" else OK
        reply(code)

    def leave(self, request: Any, reply: Reply) -> None:
        """Let a member go."""
        known = request.member_id in self.members
        reply(OK if known else UNKNOWN_MEMBER)
        if known:
            self._gone(request.member_id, "left")

    def commit(self, request: Any, reply: Reply) -> None:
        """Note committed offsets of a member of the present generation."""
        names = {
            "generation_id": request.consumer_group_generation_id,
            "member_id": request.consumer_id,
        }
        _, code = self._known(type("Asked", (), names))
        if not code and self.state == "completing":
            code = REBALANCING
        if not code:
            self._alive(request.consumer_id)
            for topic, partitions in request.topics:
                self.offsets |= {(topic, n): offset for n, offset, _ in partitions}
        reply([(topic, [(n, code) for n, *_ in partitions]) for topic, partitions in request.topics])

    def _known(self, request: Any) -> tuple[Member | None, int]:
        member = self.members.get(request.member_id)
        if member is None:
            return None, UNKNOWN_MEMBER
        return member, OK if request.generation_id == self.generation else GENERATION

    def _alive(self, name: str) -> None:
        member = self.members[name]
        if member.timer is not None:
            member.timer.cancel()
        member.timer = self._loop.call_later(member.session, self._gone, name, "was not heard of")

    def _gone(self, name: str, why: str) -> None:
        member = self.members.pop(name, None)
        if member is None:
            return
        if member.timer is not None:
            member.timer.cancel()
        self._log(f"group: {name} {why}")
        if self.state in ("stable", "completing"):
            self._prepare()
        self._complete()

    def _prepare(self) -> None:
        """Begin a rebalance: all members are to join again."""
        self.state = "preparing"
        for member in self.members.values():
            syncing, member.syncing = member.syncing, None
            if syncing:
                syncing(REBALANCING, b"")
        if self._timer is not None:
            self._timer.cancel()
        longest = max([each.rebalance for each in self.members.values()], default=0.0)
        self._timer = self._loop.call_later(longest, partial(self._complete, late=True))

    def _complete(self, *, late: bool = False) -> None:
        """Begin the next generation if all members have joined, or time is over for those who have not."""
        if self.state != "preparing":
            return
        missing = [name for name, each in self.members.items() if each.joining is None]
        if missing and not late:
            return
        for name in missing:
            member = self.members.pop(name)
            if member.timer is not None:
                member.timer.cancel()
            self._log(f"group: {name} did not join in time")
        if self._timer is not None:
            self._timer.cancel()
        self.generation += 1
        if not self.members:
            self.state = "empty"
            return
        self.state = "completing"
        if self.leader not in self.members:
            self.leader = next(iter(self.members))
        self._log(f"group: generation {self.generation} has {', '.join(self.members)}")
        for name, each in self.members.items():
            joining, each.joining = each.joining, None
            self._alive(name)
            if joining is not None:
                self._joined(name, joining)

    def _joined(self, name: str, reply: Reply) -> None:
        protocol = self.members[name].protocols[0][0]
        everybody = [(each, member.protocols[0][1]) for each, member in self.members.items()]
        reply(0, OK, self.generation, protocol, self.leader, name, everybody if name == self.leader else [])


class Kafka:
    """The broker.

    Parameters
    ----------
    topics
        Number of partitions by name.
    log
        Takes a line of the history.

    Attributes
    ----------
    logs
        By topic and partition.
    """

    def __init__(self, loop: Loop, topics: dict[str, int], log: Callable[[str], None] = lambda _: None) -> None:
        self._loop, self._log = loop, log
        self.topics = topics
        self.logs = {(topic, n): Log() for topic, width in topics.items() for n in range(width)}
        self.groups: defaultdict[str, Group] = defaultdict(lambda: Group(loop, log))
        #: Producer id, epoch, and the epoch before where that was named.
        self.producers: dict[str, tuple[int, int, int]] = {}
        self._ids, self.appends = 1000, 0
        self.delete_retention_ms = 86_400_000

    def handle(self, request: Any, reply: Reply, by: str) -> None:
        """Apply a request; the answer's fields go to ``reply``, now or later."""
        group: Group | None = None
        for name in ("group", "consumer_group"):
            if name in request.SCHEMA.names:
                group = self.groups[request.get_item(name)]
        made = _HANDLERS[request.API_KEY]
        if made.__qualname__.startswith("Group"):
            made(group, request, reply)
        else:
            made(self, request, reply, by)

    def _produce(self, request: Any, reply: Reply, by: str) -> None:
        said = []
        for topic, partitions in request.topics:
            codes = []
            for n, data in partitions:
                log = self.logs.get((topic, n))
                before = log.end if log else 0
                self.appends += 1
                code, offset = (UNKNOWN_TOPIC, -1) if log is None else log.append(bytes(data), by, self.appends)
                new = log is not None and log.end > before
                self._log(
                    f"{by}: append {topic}/{n} at {offset}" + (f": error {code}" if code else "" if new else " again")
                )
                codes.append((n, code, offset, -1))
            said.append((topic, codes))
        reply(said, 0)

    def _fetched(self, request: Any) -> tuple[list[Any], bool]:
        """Return what a fetch brings, and whether that is anything."""
        found, some = list[Any](), False
        for topic, partitions in request.topics:
            each = list[Any]()
            for n, offset, size in partitions:
                log = self.logs.get((topic, n))
                if log is None:
                    each.append((n, UNKNOWN_TOPIC, -1, -1, [], b""))
                elif not log.begin <= offset <= log.end:
                    each.append((n, RANGE, log.end, log.end, [], b""))
                else:
                    each.append((n, OK, log.end, log.end, [], log.read(offset, size)))
                some = some or bool(each[-1][1] or each[-1][-1])
            found.append((topic, each))
        return found, some

    def _fetch(self, request: Any, reply: Reply, by: str) -> None:  # noqa: ARG002 - aiokafka's
        done: list[bool] = []
        timer: list[asyncio.TimerHandle] = []

        def answer(*, late: bool = False) -> None:
            if done:
                return
            found, some = self._fetched(request)
            if not (some or late):
                for topic, partitions in request.topics:
                    for n, *_ in partitions:
                        self.logs[topic, n].waiting.append(wake)
                return
            done.append(True)
            if timer:
                timer[0].cancel()
            reply(0, found)

        def wake() -> None:
            self._loop.call_soon(answer, context=Context())

        answer()
        if not done:
            timer.append(
                self._loop.call_later(request.max_wait_time / 1000, partial(answer, late=True), context=Context())
            )

    def _offsets(self, request: Any, reply: Reply, by: str) -> None:  # noqa: ARG002 - aiokafka's
        found = []
        for topic, partitions in request.topics:
            each = list[Any]()
            for n, timestamp in partitions:
                log = self.logs.get((topic, n))
                offset = -1 if log is None else log.begin if timestamp == -2 else log.end
                each.append((n, OK if log else UNKNOWN_TOPIC, -1, offset))
            found.append((topic, each))
        reply(0, found)

    def _metadata(self, request: Any, reply: Reply, by: str) -> None:  # noqa: ARG002 - aiokafka's
        broker = (1, "kafka", 9092, None)
        if request.API_VERSION == 10:
            topics: list[Any] = [
                (
                    OK,
                    name,
                    1,
                    1 + sorted(self.topics).index(name),
                    False,
                    [(OK, n, 1, 0, [1], [1], [], {}) for n in range(self.topics[name])],
                    0,
                    {},
                )
                for _, _, name, _ in request.topics
            ]
            reply(0, [(*broker, {})], "cluster", 1, topics, 0, {})
            return
        names = self.topics if request.topics is None else request.topics
        reply(
            0,
            [broker],
            "cluster",
            1,
            [
                (OK, name, False, [(OK, n, 1, [1], [1], []) for n in range(self.topics[name])])
                if name in self.topics
                else (UNKNOWN_TOPIC, name, False, [])
                for name in names
            ],
        )

    def _committed(self, request: Any, reply: Reply, by: str) -> None:  # noqa: ARG002 - aiokafka's
        offsets = self.groups[request.consumer_group].offsets
        reply(
            [
                (topic, [(n, offsets.get((topic, n), -1), "", OK) for n in partitions])
                for topic, partitions in request.topics
            ]
        )

    def _coordinator(self, request: Any, reply: Reply, by: str) -> None:  # noqa: ARG002 - aiokafka's
        reply(0, OK, "", 1, "kafka", 9092)

    def _identify(self, request: Any, reply: Reply, by: str) -> None:
        name, rest = request.transactional_id, [{}] if request.API_VERSION else list[Any]()
        if not name:
            self._ids += 1
            reply(0, OK, self._ids, 0, *rest)
            return
        if name not in self.producers:
            self._ids += 1
            self.producers[name] = self._ids, -1, -1
        producer, epoch, before = self.producers[name]
        held = (request.producer_id, request.producer_epoch) if request.API_VERSION else (-1, -1)
        if held == (producer, before) and before >= 0:  # the same request again, its answer was lost
            reply(0, OK, producer, epoch, *rest)
        elif held not in ((-1, -1), (producer, epoch)):
            self._log(f"{by}: {name} is fenced at epoch {held[1]}")
            reply(0, STALE, -1, -1, *rest)
        else:
            self.producers[name] = producer, epoch + 1, epoch if held != (-1, -1) else -1
            self._log(f"{by}: {name} has epoch {epoch + 1}")
            reply(0, OK, producer, epoch + 1, *rest)

    def _configs(self, request: Any, reply: Reply, by: str) -> None:  # noqa: ARG002 - aiokafka's
        said = {"delete.retention.ms": str(self.delete_retention_ms), "cleanup.policy": "compact"}
        entries = [(name, value, False, False, False) for name, value in said.items()]
        reply(0, [(OK, "", kind, name, entries) for kind, name, _ in request.resources])


_HANDLERS: Final[dict[int, Any]] = {
    0: Kafka._produce,
    1: Kafka._fetch,
    2: Kafka._offsets,
    3: Kafka._metadata,
    8: Group.commit,
    9: Kafka._committed,
    10: Kafka._coordinator,
    11: Group.join,
    12: Group.heartbeat,
    13: Group.leave,
    14: Group.sync,
    22: Kafka._identify,
    32: Kafka._configs,
}


class Network:
    """Carries requests and answers, each in its time; what it loses is drawn from the seed.

    Attributes
    ----------
    troubled
        How often a request meets trouble, from 0 to 1, until `calm`.
    troubles
        How many did.
    cut
        Names of processes of which nothing gets through.
    met
        Called with the name of a process that is about to send an append, and with True when it was applied.
    """

    def __init__(self, loop: Loop, kafka: Kafka, seed: str, log: Callable[[str], None]) -> None:
        self.loop, self.kafka, self.log = loop, kafka, log
        self.rng = random.Random(seed)
        self.troubled, self.troubles = 0.0, 0
        self.cut: set[str] = set()
        self.met: Callable[[str, bool], None] = lambda *_: None

    async def connect(self, host: str, port: int, **options: Any) -> "Connection":  # noqa: ARG002 - as `create_conn`
        """Open a connection."""
        await asyncio.sleep(self.delay())
        return Connection(self, PROCESS.get(), options["request_timeout_ms"] / 1000, options.get("on_close"))

    def delay(self) -> float:
        """Return how long something is on its way, s."""
        return 0.0005 + 0.004 * self.rng.random() ** 3

    def trouble(self) -> str:
        """Return what happens to a request: mostly nothing."""
        if not self.troubled or self.rng.random() >= self.troubled:
            return ""
        self.troubles += 1
        return self.rng.choice(("lost", "applied", "late", "late"))


class Connection:
    """A connection of a process: its requests are applied one after another, and answered in their order."""

    def __init__(
        self, network: Network, process: Process | None, timeout: float, on_close: Callable[..., None] | None
    ) -> None:
        self._network, self._process, self._on_close = network, process, on_close
        self._request_timeout = timeout
        self._open = True
        self._pending: list[asyncio.Future[Any]] = []
        self._queue: deque[tuple[Any, asyncio.Future[Any], str]] = deque()
        self._busy = False

    def connected(self) -> bool:
        """Whether it is open."""
        return self._open

    def close(self, reason: object = None, exc: object = None) -> asyncio.Future[None]:  # noqa: ARG002 - as aiokafka's
        """Close it; nobody is answered any more. Returns what is done when it is closed."""
        closed = self._network.loop.create_future()
        closed.set_result(None)
        if not self._open:
            return closed
        self._open = False
        for waiting in self._pending:
            if not waiting.done():
                waiting.set_exception(errors.KafkaConnectionError("the connection was closed"))
        self._pending.clear()
        if self._on_close is not None:
            self._on_close(self, reason)
        return closed

    def send(self, request: Any, expect_response: bool = True) -> Any:  # noqa: ARG002, FBT001, FBT002 - as aiokafka's
        """Send a request; what is returned is to be awaited."""
        if not self._open:
            raise errors.KafkaConnectionError("the connection is closed")
        network, prepared = self._network, request.prepare(VERSIONS)
        answered = network.loop.create_future()
        self._pending.append(answered)
        trouble = network.trouble()
        if trouble:
            network.log(f"{self._process.name if self._process else ''}: {type(request).__name__} is {trouble}")
        if prepared.API_KEY == 0:
            network.met(self._process.name if self._process else "", False)  # noqa: FBT003 - see there
        # It goes out in the name of the process: one that stands still from now on sends it when it goes on.
        network.loop.call_soon(self._depart, prepared, answered, trouble)
        return asyncio.wait_for(answered, self._request_timeout)

    def _depart(self, request: Any, answered: asyncio.Future[Any], trouble: str) -> None:
        network = self._network
        if self._process is None or self._process.name not in network.cut:
            network.loop.call_later(network.delay(), self._arrived, request, answered, trouble, context=Context())

    def _arrived(self, request: Any, answered: asyncio.Future[Any], trouble: str) -> None:
        if trouble == "lost":
            self._break()
            return
        self._queue.append((request, answered, trouble))
        if not self._busy:
            self._next()

    def _next(self) -> None:
        if not self._queue:
            return
        request, answered, trouble = self._queue.popleft()
        self._busy = True
        name, identity = (self._process.name, self._process.identity) if self._process else ("", "")
        self._network.kafka.handle(request, partial(self._said, request, answered, trouble), identity)
        if request.API_KEY == 0:
            self._network.met(name, True)  # noqa: FBT003 - see there

    def _said(self, request: Any, answered: asyncio.Future[Any], trouble: str, *fields: Any) -> None:
        network = self._network
        delay = network.delay()
        if trouble == "late":
            delay += network.rng.random() * 4
        response = request.RESPONSE_TYPE(*fields)
        if trouble == "applied":
            network.loop.call_later(delay, self._break, context=Context())
        else:
            network.loop.call_later(delay, self._answer, answered, response, context=Context())
        self._busy = False
        network.loop.call_soon(self._next, context=Context())

    def _answer(self, answered: asyncio.Future[Any], response: Any) -> None:
        if self._process is not None and self._process.name in self._network.cut:
            return
        if self._open and not answered.done():
            self._pending.remove(answered)
            answered.set_result(response)

    def _break(self) -> None:
        """Close it in its process's name, as when a reset arrives."""
        context = Context()
        context.run(PROCESS.set, self._process)
        self._network.loop.call_soon(self.close, CloseReason.CONNECTION_BROKEN, context=context)
