"""A model of Kafka: logs that refuse stale epochs, a group coordinator, and connections that lose requests.

It stands where `aiokafka.client.create_conn` opens a connection. So all of aiokafka, Faust and the product above it is
real: a request is the object that would be encoded, an answer the one that would be decoded. The record batches in them
are bytes. What the model promises is tested on it and on a real broker (`test_contract.py`).

There is one broker. It has no transactions. A topic that is deleted is at once there anew. While leaders of partitions
move, it answers as one that leads no more.
"""

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import Any, Final
from uuid import UUID

from aiokafka import errors

from tests.simulation.group import Group, Place, Reply
from tests.simulation.log import OK, STALE, Log
from tests.simulation.loop import Loop

#: The versions of requests that it speaks, by their number.
VERSIONS: Final = {
    0: (3, 3),
    1: (4, 4),
    2: (2, 2),
    3: (0, 10),
    8: (2, 2),
    9: (1, 2),
    10: (1, 1),
    11: (2, 2),
    12: (0, 0),
    13: (0, 0),
    14: (0, 0),
    15: (0, 2),
    19: (3, 3),
    20: (3, 3),
    21: (0, 0),
    22: (0, 4),
    23: (3, 3),
    32: (0, 0),
    33: (0, 0),
}
#: Error codes.
RANGE, UNKNOWN_TOPIC, NOT_LEADER, NOT_COORDINATOR, LOADING, REPLICAS = (
    errors.OffsetOutOfRangeError.errno,
    errors.UnknownTopicOrPartitionError.errno,
    errors.NotLeaderForPartitionError.errno,
    errors.NotCoordinatorForGroupError.errno,
    errors.GroupLoadInProgressError.errno,
    errors.NotEnoughReplicasAfterAppendError.errno,
)
#: How often an append is there although a broker that leads no more has answered it.
STANDS: Final = 0.3
#: How often a leader that has just been elected lacks the end of the log for a moment.
LACKS: Final = 0.1
#: How often the coordinator of a group has just moved, or still loads it, when it is asked what the group has
#: committed.
AWAY: Final = 0.1


class Kafka:
    """The broker.

    ``topics``: number of partitions by name.
    ``log``: takes a line of the history.
    """

    def __init__(
        self, loop: Loop, topics: dict[str, int], log: Callable[[str], None] = lambda _: None, seed: str = ""
    ) -> None:
        self._loop, self._log = loop, log
        self._rng = random.Random(seed)
        #: Partitions whose leaders move.
        self.moving = set[Place]()
        self.topics = topics
        #: By topic and partition.
        self.logs = {(topic, n): Log() for topic, width in topics.items() for n in range(width)}
        self.groups: defaultdict[str, Group] = defaultdict(lambda: Group(loop, log, lambda: self.appends))
        #: Producer id, epoch, and the epoch before where that was named.
        self.producers: dict[str, tuple[int, int, int]] = {}
        self._ids = 1000
        #: When each append was, s.
        self.times = list[float]()
        self._renewed = Counter[str]()
        self.delete_retention_ms = 86_400_000

    @property
    def appends(self) -> int:
        """How many appends there were."""
        return len(self.times)

    def append(self, place: Place, data: bytes, by: str) -> tuple[int, int]:
        """Append a batch; see `Log.append`."""
        self.times.append(self._loop.now)
        log = self.logs.get(place)
        return (UNKNOWN_TOPIC, -1) if log is None else log.append(data, by, self.appends)

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

    def topic_id(self, name: str) -> UUID:
        """Return the id of a topic."""
        return UUID(int=((1 + self._renewed[name]) << 64) + 1 + sorted(self.topics).index(name))

    def renew(self, name: str) -> None:
        """Delete a topic, and make it anew."""
        self._renewed[name] += 1
        self.logs |= {(name, n): Log() for n in range(self.topics[name])}

    def _produce(self, request: Any, reply: Reply, by: str) -> None:
        said = []
        for topic, partitions in request.topics:
            codes = []
            for n, data in partitions:
                log, moves = self.logs.get((topic, n)), (topic, n) in self.moving
                before = log.end if log else 0
                if moves and self._rng.random() >= STANDS:
                    codes.append((n, NOT_LEADER, -1, -1))
                    continue
                code, offset = self.append((topic, n), bytes(data), by)
                if moves and code == OK:
                    code = REPLICAS
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
                moves = (topic, n) in self.moving
                lacks = log is not None and moves and offset == log.end and self._rng.random() < LACKS
                if log is None or (moves and not lacks):
                    each.append((n, NOT_LEADER if log else UNKNOWN_TOPIC, -1, -1, [], b""))
                elif lacks or not log.begin <= offset <= log.end:
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
                log, at, offset = self.logs.get((topic, n)), -1, -1
                if log is not None and timestamp < 0:
                    offset = log.begin if timestamp == -2 else log.end
                elif log is not None:
                    stands = next((record for record in log.records() if record.timestamp >= timestamp), None)
                    at, offset = (stands.timestamp, stands.offset) if stands else (-1, -1)
                code = UNKNOWN_TOPIC if log is None else NOT_LEADER if (topic, n) in self.moving else OK
                each.append((n, code, at, offset))
            found.append((topic, each))
        reply(0, found)

    def _ended(self, request: Any, reply: Reply, by: str) -> None:  # noqa: ARG002 - aiokafka's
        found = [
            (topic, [(NOT_LEADER if (topic, n) in self.moving else OK, n, *self.logs[topic, n].end_of(epoch))])
            for topic, partitions in request.topics
            for n, _, epoch in partitions
        ]
        reply(0, found)

    def _trimmed(self, request: Any, reply: Reply, by: str) -> None:  # noqa: ARG002 - aiokafka's
        found = []
        for topic, partitions in request.topics:
            for n, offset in partitions:
                log = self.logs[topic, n]
                beyond = offset > log.end
                if not beyond:
                    log.trim(log.end if offset == -1 else offset)
                found.append((topic, [(n, -1 if beyond else log.begin, RANGE if beyond else OK)]))
        reply(0, found)

    def _metadata(self, request: Any, reply: Reply, by: str) -> None:  # noqa: ARG002 - aiokafka's
        broker = (1, "kafka", 9092, None)
        if request.API_VERSION == 10:
            topics: list[Any] = [
                (
                    OK,
                    name,
                    *divmod(self.topic_id(name).int, 1 << 64),
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

    def _committed(self, request: Any, reply: Reply, by: str) -> None:
        if request.API_VERSION > 1 and self._rng.random() < AWAY:
            code = self._rng.choice((NOT_COORDINATOR, LOADING))
            self._log(f"{by}: the coordinator of {request.consumer_group} cannot say: error {code}")
            reply([], code)
            return
        offsets = self.groups[request.consumer_group].offsets
        asked = defaultdict[str, list[int]](list)
        for topic, n in offsets:
            asked[topic].append(n)
        topics = [
            (topic, [(n, *offsets.get((topic, n), (-1, "")), OK) for n in partitions])
            for topic, partitions in (asked.items() if request.topics is None else request.topics)
        ]
        reply(topics, *([OK] if request.API_VERSION > 1 else []))

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

    def _described(self, request: Any, reply: Reply, by: str) -> None:  # noqa: ARG002 - aiokafka's
        groups = []
        for name in request.groups:
            state, members = self.groups[name].described()
            groups.append((OK, name, state, "consumer" if members else "", "", members))
        reply(*([0] if request.API_VERSION else []), groups)

    def _configs(self, request: Any, reply: Reply, by: str) -> None:  # noqa: ARG002 - aiokafka's
        said = {"delete.retention.ms": str(self.delete_retention_ms), "cleanup.policy": "compact"}
        entries = [(name, value, False, False, False) for name, value in said.items()]
        reply(0, [(OK, "", kind, name, entries) for kind, name, _ in request.resources])

    def _altered(self, request: Any, reply: Reply, by: str) -> None:  # noqa: ARG002 - aiokafka's
        for _, name, entries in request.resources:
            if ("cleanup.policy", "compact") in entries:
                self._clean(name)
        reply(0, [(OK, "", kind, name) for kind, name, _ in request.resources])

    def _clean(self, topic: str) -> None:
        """Compact a topic from now on, now and then."""
        for n in range(self.topics[topic]):
            self.logs[topic, n].compact()
        self._loop.call_later(1.0, self._clean, topic, context=Context())

    def _deleted(self, request: Any, reply: Reply, by: str) -> None:  # noqa: ARG002 - aiokafka's
        for name in request.topics:
            self.renew(name)
        reply(0, [(name, OK) for name in request.topics])

    def _created(self, request: Any, reply: Reply, by: str) -> None:  # noqa: ARG002 - aiokafka's
        reply(0, [(name, OK, None) for name, *_ in request.create_topic_requests])


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
    15: Kafka._described,
    19: Kafka._created,
    20: Kafka._deleted,
    21: Kafka._trimmed,
    22: Kafka._identify,
    23: Kafka._ended,
    32: Kafka._configs,
    33: Kafka._altered,
}
