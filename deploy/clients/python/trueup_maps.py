"""The calibrated probability at decision time: follows trueup's topic of maps, and applies the newest map of a stream.

This file needs no other file: copy it. Applying a map needs only the standard library. Following the topic needs
aiokafka or confluent-kafka.

    maps = Maps()
    follow(maps, "maps", bootstrap_servers="kafka-1:9092")   # in a thread of its own
    answer = maps.answer("fraud-cards", 0.31, {"country": "DE"})
    answer.p, answer.reason                                   # the raw score, and why, where there is no map

What `Maps.answer` returns is within .001, in log-odds, of the ``p`` in ``calibrated`` that the same configuration and
version answered. Within a stream and segments it keeps the order of raw scores wherever trueup does.
"""

import asyncio
import json
import logging
import math
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

log = logging.getLogger("trueup_maps")

#: The format of records that this file reads.
FORMAT = 1
#: Key of the record that says that a worker is alive. No stream has this name.
ALIVE = b"\0alive"
#: The most combinations of segment values that are cached.
KNOWN = 4096
#: Longest value of a segment, bytes.
LONGEST = 64
#: Pause before the topic is read again after an error, s.
PAUSE = 1.0

NO_SEGMENTS: Mapping[str, str] = {}


class Answer(NamedTuple):
    """What to decide by."""

    #: The calibrated probability; or the raw score if ``reason`` says why.
    p: float
    #: Empty, or ``loading`` (the topic was not yet read to its end), ``unknown`` (no map of this stream, or of this
    #: partition), ``none`` (its calibrator has no map), ``stale`` (no worker has confirmed the map for too long),
    #: ``score`` (the score is not a number from 0 to 1).
    reason: str = ""
    #: Outcomes learnt by the map's calibrator, and the hash of its configuration; as in ``calibrated``.
    version: int = -1
    config: str = ""


class StreamMap:
    """The map of one stream on one partition. `said` is the whole record."""

    def __init__(self, said: Mapping[str, Any]) -> None:
        self.said = said
        self.partition: int = said["partition"]
        self.applied: int = said["applied"]
        self.claim: int = said["claim"]
        self.version: int = said["version"]
        self.config: str = said["config"]
        self.at: float = said["at"] / 1000.0
        self.stages = [_Table(each) if "x" in each else _Segments(each) for each in said.get("stages", ())]

    def __call__(self, p: float, segments: Mapping[str, str] = NO_SEGMENTS) -> float:
        """Return what is served for a score in [0, 1]."""
        for stage in self.stages:
            p = stage(p, segments)
        return p


class Maps:
    """The newest map of every stream. One thread adds records; any number of threads may ask.

    ``max_age``: how long ago a worker may have confirmed a map, s. Workers confirm every ``TRUEUP_MAPS_SECONDS``.
    ``clock``: returns the time, s since 1970. It should agree with the workers' clocks.
    """

    def __init__(self, max_age: float = 300.0, clock: Callable[[], float] = time.time) -> None:
        self._max_age = max_age
        self._clock = clock
        #: By stream: its maps, that with the most outcomes first. Values are replaced, never changed.
        self._maps: dict[str, tuple[StreamMap, ...]] = {}
        #: By partition: the claim of its worker, and when that worker last said that it is alive.
        self._alive: dict[int, tuple[int, float]] = {}
        #: Number of records that could not be read, such as those of a later format.
        self.unreadable = 0
        self._loaded = threading.Event()

    # -- asking ----------------------------------------------------------------------------------------------------

    def answer(
        self, stream: str, p: float, segments: Mapping[str, str] | None = None, partition: int | None = None
    ) -> Answer:
        """Return the calibrated probability for a raw score, or the raw score with a reason. Raises nothing.

        ``segments``: the event's values, as its forecast would carry them.
        ``partition``: that of the event's key in ``forecasts``; None: use the map with the most outcomes.
        """
        try:
            usable = 0.0 <= p <= 1.0
        except TypeError:
            usable = False
        if not usable:
            return Answer(p, "score")
        found = self._maps.get(stream)
        if partition is not None and found:
            found = tuple([each for each in found if each.partition == partition])
        if not found:
            return Answer(p, "unknown" if self._loaded.is_set() else "loading")
        newest = found[0]
        if not newest.stages:
            return Answer(p, "none", newest.version, newest.config)
        claim, at = self._alive.get(newest.partition, (-1, 0.0))
        # A worker writes all maps before it says that it is alive, so a map of an earlier worker was not confirmed.
        if newest.claim < claim or self._clock() - max(at if newest.claim == claim else 0.0, newest.at) > self._max_age:
            return Answer(p, "stale", newest.version, newest.config)
        return Answer(newest(p, segments or NO_SEGMENTS), "", newest.version, newest.config)

    def streams(self) -> dict[str, tuple[StreamMap, ...]]:
        """Return the maps of every stream, that with the most outcomes first."""
        return dict(self._maps)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the topic is read to the end that it had; return whether it was."""
        return self._loaded.wait(timeout)

    # -- taking records --------------------------------------------------------------------------------------------

    def take(self, partition: int, key: bytes | None, value: bytes | None) -> None:
        """Take a record of the topic. A record that is older than the held map, or unreadable, changes nothing."""
        try:
            if key == ALIVE:
                self._confirm(partition, json.loads(value or b""))
            elif key is not None:
                self._take(partition, key.decode(), value)
        except (ValueError, TypeError, LookupError, ArithmeticError):
            self.unreadable += 1

    def loaded(self) -> None:
        """Note that the topic was read to the end that it had when reading began."""
        self._loaded.set()

    def _confirm(self, partition: int, said: Mapping[str, Any]) -> None:
        claim, at = int(said["claim"]), said["at"] / 1000.0
        if (claim, at) > self._alive.get(partition, (-1, 0.0)):
            self._alive[partition] = claim, at

    def _take(self, partition: int, stream: str, value: bytes | None) -> None:
        held = self._maps.get(stream, ())
        others = [each for each in held if each.partition != partition]
        if value is None:  # the worker no longer writes maps of this stream
            if others:
                self._maps[stream] = tuple(others)
            else:
                self._maps.pop(stream, None)
            return
        said = json.loads(value)
        if said["format"] != FORMAT:
            raise ValueError(f"format {said['format']}")
        newest = StreamMap({**said, "partition": partition})
        newest(0.5)  # now, rather than when somebody asks
        if any(each.applied > newest.applied for each in held if each.partition == partition):
            return  # written late, by a worker that had lost the partition
        self._maps[stream] = tuple(sorted([newest, *others], key=lambda each: -each.version))


class _Table:
    """Points of a function, joined by straight lines: in log-odds, but in probabilities next to 0 and 1."""

    __slots__ = ("_offset", "_slope", "_straight", "_x", "_y")

    def __init__(self, said: Mapping[str, Any]) -> None:
        x, y = [float(each) for each in said["x"]], [float(each) for each in said["y"]]
        if len(x) != len(y) or len(x) < 2 or x[0] != 0.0 or x[-1] != 1.0 or sorted(set(x)) != x:
            raise ValueError("a table has points from 0 to 1")
        self._x, self._y = x, y
        self._slope, self._offset, self._straight = [0.0] * len(x), [0.0] * len(x), [False] * len(x)
        for i in range(len(x) - 1):
            if {x[i], x[i + 1], y[i], y[i + 1]} & {0.0, 1.0}:
                self._straight[i] = True
                self._slope[i] = (y[i + 1] - y[i]) / (x[i + 1] - x[i])
                continue
            low, high = _log_odds(x[i]), _log_odds(x[i + 1])
            if low < high and y[i] != y[i + 1]:
                self._slope[i] = (_log_odds(y[i + 1]) - _log_odds(y[i])) / (high - low)
                self._offset[i] = _log_odds(y[i]) - self._slope[i] * low

    def __call__(self, p: float, _: Mapping[str, str]) -> float:
        x = self._x
        i = bisect_right(x, p) - 1
        left = self._y[i]
        slope = self._slope[i]
        if slope == 0.0 or x[i] == p:
            return left
        if self._straight[i]:
            found = left + slope * (p - x[i])
        else:
            found = 1.0 / (1.0 + math.exp(-self._offset[i] - slope * math.log(p / (1.0 - p))))
        right = self._y[i + 1]
        if slope > 0.0:  # rounding must not change the order
            return min(max(found, left), right)
        return max(min(found, left), right)


class _Segments:
    """What an event's segments add to an answer; docs/how-to/maps.md has the formula."""

    def __init__(self, said: Mapping[str, Any]) -> None:
        self._weight, self._share = float(said["weight"]), float(said["share"])
        self._low, self._step, self._knots = float(said["low"]), float(said["step"]), int(said["knots"])
        self._flat, self._reach, self._clip = float(said["flat"]), float(said["reach"]), float(said["clip"])
        self._rows = {int(slot): [float(each) for each in row] for slot, row in said["rows"].items()}
        self._names: list[str] = said["names"]
        self._limit, self._other = int(said["slots"]["limit"]), int(said["slots"]["other"])
        missing = int(said["slots"]["missing"])
        self._values = [
            {"": missing, **{value: missing + n for n, value in enumerate(values, 1)}} for values in said["values"]
        ]
        self._pairs = [(int(one), int(other)) for one, other in said["pairs"]]
        self._combinations = [
            {(int(one), int(other)): n for n, (one, other) in enumerate(both, self._other + 1)}
            for both in said["combinations"]
        ]
        self._most = -_log_odds(self._clip)
        self._known: dict[tuple[str, ...], tuple[float, list[float]]] = {}

    def __call__(self, p: float, segments: Mapping[str, str]) -> float:
        values = tuple([segments.get(name, "") for name in self._names])
        try:
            found = self._known.get(values)
        except TypeError:  # a value that cannot be a key
            found = None
        passing, lasting = found or self._line(values)
        clipped = min(max(p, self._clip), 1.0 - self._clip)
        v = math.log(clipped / (1.0 - clipped)) + self._share * passing
        at = (v - self._low) / self._step
        at = min(max(at, 0.0), self._knots - 1.0)
        i = min(int(at), self._knots - 2)
        v += lasting[i] + (at - i) * (lasting[i + 1] - lasting[i])
        v = min(max(v, -self._most), self._most)
        return self._weight * p + (1.0 - self._weight) / (1.0 + math.exp(-v))

    def _line(self, given: tuple[Any, ...]) -> tuple[float, list[float]]:
        """Return the short-lived correction, and the lasting one at every knot."""
        values = tuple([value if _usable(value) else "" for value in given])
        rows = [self._rows[slot] for slot in self._slots(values) if slot in self._rows]
        passing = min(max(sum([row[0] for row in rows]), -self._reach), self._reach)
        sums = [sum([row[1 + j] for row in rows]) for j in range(self._knots)]
        if any(sums[j + 1] - sums[j] < (self._flat - 1.0) * self._step for j in range(self._knots - 1)):
            sums = self._ordered(sums)
        if len(self._known) >= KNOWN:
            self._known = {}
        if values == given:
            self._known[values] = passing, sums
        return passing, sums

    def _ordered(self, sums: list[float]) -> list[float]:
        """Return the mean of the least function above the sums that never falls too steeply, and the greatest below."""
        rise = (1.0 - self._flat) * self._step
        steep = [each + j * rise for j, each in enumerate(sums)]
        above = [max(steep[: j + 1]) for j in range(len(steep))]
        below = [min(steep[j:]) for j in range(len(steep))]
        return [0.5 * (above[j] + below[j]) - j * rise for j in range(len(steep))]

    def _slots(self, values: tuple[str, ...]) -> list[int]:
        """Return the slots of an event with these values. Slots that it would be the first to take are left out."""
        within = [self._slot(slots, value) for slots, value in zip(self._values, values, strict=True)]
        for (one, other), crossed in zip(self._pairs, self._combinations, strict=True):
            within.append(self._slot(crossed, (within[one], within[other])))
        return [k * self._limit + slot for k, slot in enumerate(within) if slot is not None]

    def _slot(self, slots: Mapping[Any, int], value: Any) -> int | None:  # noqa: ANN401 - text, or two slots
        return slots.get(value, self._other if len(slots) + 1 >= self._limit else None)


def _usable(value: object) -> bool:
    return isinstance(value, str) and value.isprintable() and len(value.encode()) <= LONGEST


def _log_odds(p: float) -> float:
    p = min(max(p, 1e-12), 1.0 - 1e-12)
    return math.log(p / (1.0 - p))


# -- following the topic -------------------------------------------------------------------------------------------


def follow(maps: Maps, topic: str, **options: Any) -> threading.Event:  # noqa: ANN401 - the client's own
    """Follow the topic in a daemon thread, by aiokafka or else by confluent-kafka; set what it returns to end it.

    ``options``: those of aiokafka's consumer, such as ``bootstrap_servers="kafka-1:9092"``; or those of
    confluent-kafka, with ``_`` for ``.``, ``bootstrap_servers`` among them.
    """
    stop = threading.Event()
    try:
        import aiokafka  # noqa: F401, PLC0415 - what is there
    except ModuleNotFoundError:
        target: Callable[[], None] = lambda: follow_confluent(maps, topic, stop, **options)  # noqa: E731
    else:
        target = lambda: asyncio.run(follow_aiokafka(maps, topic, stop, **options))  # noqa: E731
    threading.Thread(target=target, name="trueup-maps", daemon=True).start()
    return stop


async def follow_aiokafka(maps: Maps, topic: str, stop: threading.Event, **options: Any) -> None:  # noqa: ANN401
    """Read the topic from its first record until ``stop`` is set. After an error, begin again."""
    from aiokafka import AIOKafkaConsumer  # noqa: PLC0415 - only who follows needs it
    from aiokafka.errors import KafkaError  # noqa: PLC0415

    while not stop.is_set():
        # Without a group it gets all partitions.
        consumer = AIOKafkaConsumer(topic, **{**options, "group_id": None, "auto_offset_reset": "earliest"})
        try:
            await consumer.start()
            ends = await consumer.end_offsets(consumer.assignment())
            if not ends:
                raise OSError(f"there is no topic {topic}")
            while not stop.is_set():
                if ends and all([await consumer.position(each) >= end for each, end in ends.items()]):
                    ends = {}
                    maps.loaded()
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    for record in records:
                        maps.take(record.partition, record.key, record.value)
        except (KafkaError, OSError) as exc:
            log.warning("maps cannot be read from %s: %s (pip install 'aiokafka[all]' has every codec)", topic, exc)
            await asyncio.sleep(PAUSE)
        finally:
            await consumer.stop()


def follow_confluent(maps: Maps, topic: str, stop: threading.Event, **options: Any) -> None:  # noqa: ANN401
    """Read the topic from its first record until ``stop`` is set. confluent-kafka goes on after errors by itself."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition  # noqa: PLC0415

    named = {name.replace("_", "."): value for name, value in options.items()}
    consumer = Consumer({"group.id": "trueup-maps", **named, "enable.auto.commit": False, "enable.partition.eof": True})
    numbers: set[int] = set()
    try:
        while not stop.is_set() and not numbers:
            with suppress(KafkaException):
                numbers = set(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
            if not numbers:
                stop.wait(PAUSE)
        consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in numbers])
        while not stop.is_set():
            record = consumer.poll(0.2)
            if record is None:
                continue
            if record.error() is None:
                maps.take(record.partition(), record.key(), record.value())
            elif record.error().code() == KafkaError._PARTITION_EOF and numbers:  # noqa: SLF001 - its only name
                numbers.discard(record.partition())
                if not numbers:
                    maps.loaded()
    finally:
        consumer.close()
