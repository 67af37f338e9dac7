"""Writes the maps of a worker's streams to their topic, without delaying the worker.

A thread with its own producer reads the rows that the gauges hold, as checkpoints wrote them. Errors are counted and
logged, and the next look tries again. No batch waits for this.

The version of a map is the number of records that its partition had applied at the last checkpoint. A worker that takes
a partition up writes no older version. A worker that has lost the partition may write an older map late; readers
recognise it by its version.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from itertools import islice
from time import monotonic, time
from typing import Any, Final, NamedTuple

from state import kinds, maps
from state.policy import Policy
from state.segments import Dictionary
from state.served import Served
from streams.config.settings import Settings
from streams.kafka.writer import writer
from streams.metrics.metric import Sample
from streams.metrics.snapshot import PartitionSnapshot
from streams.records.maps import ALIVE, MapHead, encode_alive, encode_map, encode_none

log = logging.getLogger("trueup")

#: Shortest pause after a look, as a multiple of the look's time. So maps take at most a tenth of a core.
REST: Final = 9.0
#: Shortest time between two log lines about failures, s.
SAY_SECONDS: Final = 60.0
#: Longest wait for the thread when the worker stops, s.
STOP_SECONDS: Final = 5.0
#: Bytes of a record batch that the map cannot use: key and overhead.
ROOM: Final = 1024
#: The most maps in flight. They are held in memory.
FLYING: Final = 100
#: Why there is no map although the calibrator could have one.
TOO_LARGE: Final = "it is larger than TRUEUP_BATCH_BYTES"
DAMAGED: Final = "it could not be made: the worker's log says why"


class Due(NamedTuple):
    """A record to write."""

    #: Partition and name of the stream.
    partition: int
    stream: str
    #: The map; None if the stream no longer has a map on this partition.
    value: bytes | None
    #: Hash of the row from which the map was made, and the claim at that time.
    source: tuple[bytes, int]


class Maps:
    """Decides which maps to write. It does no I/O."""

    def __init__(self, settings: Settings) -> None:
        self._policies = settings.policies
        self._most = settings.batch_bytes - ROOM
        #: The last acknowledged record, by partition and stream.
        self._written: dict[tuple[int, str], tuple[bytes, int]] = {}

    def due(
        self, partition: int, held: PartitionSnapshot, claim: int, applied: int, stream_time: int, at: int
    ) -> Iterator[Due]:
        """Yield the maps of a partition to write: those whose calibrator or worker has changed.

        ``held``: rows, as checkpoints wrote them.
        ``claim``: offset of this worker's claim in the changelog.
        ``applied, stream_time``: from the fence that was written with the rows, or from the next fence.
        ``at``: the time, ms since 1970.
        """
        streams = held.streams()
        for stream in streams:
            policy = self._policies.of(stream)
            row = None if policy is None else held.row(kinds.CALIBRATOR, stream, policy.config)
            if policy is None or row is None:
                continue
            why = maps.why_not(policy)
            made_of = policy.config.encode() if why or _withheld(stream, policy, held) else row
            source = blake2b(made_of, digest_size=16).digest(), claim
            if self._written.get((partition, stream)) != source:
                place = MapHead(stream, partition, claim, applied, stream_time, at)
                value = encode_none(place, policy, why) if why else self._map(place, policy, row, held)
                yield Due(partition, stream, value, source)
        for n, stream in list(self._written):
            if n == partition and stream not in streams:
                yield Due(partition, stream, None, (b"", claim))

    def _map(self, place: MapHead, policy: Policy, row: bytes, held: PartitionSnapshot) -> bytes:
        """Return the map of a stream, or a record of why it has none: one stream must not stop the others."""
        try:
            value = _made(place, policy, row, held)
        except Exception:
            log.exception("no map of %s can be made", place.stream)
            return encode_none(place, policy, DAMAGED)
        return value if len(value) <= self._most else encode_none(place, policy, TOO_LARGE)

    def written(self, due: Due) -> None:
        """Note that a record was acknowledged."""
        if due.value is None:
            self._written.pop((due.partition, due.stream), None)
        else:
            self._written[due.partition, due.stream] = due.source

    def keep(self, partitions: Mapping[int, object]) -> None:
        """Forget all other partitions, because this worker has lost them."""
        for place in [place for place in self._written if place[0] not in partitions]:
            del self._written[place]


def _withheld(stream: str, policy: Policy, held: PartitionSnapshot) -> bool:
    """Whether a stream is answered with raw scores at present, in spite of what was learnt."""
    row = held.row(kinds.COVERAGE, stream) if policy.guarded else None
    return row is not None and kinds.COVERAGE.decode(row).uncovered


def _made(place: MapHead, policy: Policy, row: bytes, held: PartitionSnapshot) -> bytes:
    stream = place.stream
    scores = held.row(kinds.SCORES, stream)
    named = held.row(kinds.NAMES, stream, policy.layout) if policy.segments else None
    names = Dictionary(policy.segments, policy.pairs) if named is None else kinds.NAMES.decode(named)
    history = None if scores is None else kinds.history(scores, held.row(kinds.WINDOWS, stream))
    withheld = _withheld(stream, policy, held)
    learnt = Served.fresh(policy.recipe, stream) if withheld else kinds.CALIBRATOR.decode(row, stream)
    return encode_map(place, policy, learnt, history, names)


class Publisher:
    """Writes changed maps every ``TRUEUP_MAPS_SECONDS`` until it is stopped.

    ``held``: returns the rows of each partition, `streams.metrics.gauges.Gauges.held`.
    ``claims``: returns the claim of each served partition in the changelog.
    """

    def __init__(
        self,
        settings: Settings,
        held: Callable[[], Mapping[int, PartitionSnapshot]],
        claims: Callable[[], Mapping[int, int]],
    ) -> None:
        self._settings = settings
        self._held = held
        self._claims = claims
        self._maps = Maps(settings)
        self._producer: Any = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="maps", daemon=True)
        self._said = float("-inf")
        #: Number of maps written, and number of failures.
        self.written = self.failures = 0
        #: When all maps were last up to date, or when the thread started, s of a monotonic clock.
        self.complete = monotonic()

    def samples(self) -> Iterator[Sample]:
        """Yield the gauges and counters; see the catalogue."""
        yield "written_maps", (), self.written
        yield "map_failures", (), self.failures
        yield "maps_age_seconds", (), monotonic() - self.complete

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the records in flight, without waiting for a silent broker."""
        self._stopping.set()
        self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        asyncio.run(self._go())

    async def _go(self) -> None:
        while not self._stopping.is_set():
            began = monotonic()
            try:
                await self.look()
            except Exception as exc:  # noqa: BLE001 - no error of maps stops the worker
                self._failed(str(exc) or type(exc).__name__)
                await self._close()
            took = monotonic() - began
            rest = max(self._settings.maps_seconds - took, REST * took)
            await asyncio.to_thread(self._stopping.wait, rest)
        await self._close()

    async def look(self) -> None:
        """Write the changed maps. Then write for each partition a record that its maps are up to date.

        Raises KafkaError or TimeoutError if a record is not acknowledged; the next look writes it again.
        """
        began = monotonic()
        claims, complete = self._claims(), True
        self._maps.keep(claims)
        for partition, claim in claims.items():
            held, at = self._held().get(partition), int(time() * 1000)
            if held is None:  # the partition is just being taken up, or is lost
                complete = False
                continue
            applied, stream_time = held.written.applied, held.written.stream_time
            due = self._maps.due(partition, held, claim, applied, stream_time, at)
            while await self._write(islice(due, FLYING)):
                pass
            if self._stopping.is_set():
                return
            if self._claims().get(partition) == claim:
                alive = await self._send(partition, ALIVE, encode_alive(partition, claim, applied, at))
                async with asyncio.timeout(self._settings.request_seconds):
                    await alive
        if complete:
            self.complete = began

    async def _write(self, several: Iterator[Due]) -> int:
        """Write records until the worker stops; return their number. Raises the first error."""
        sent: list[tuple[Due, asyncio.Future[Any]]] = []
        try:
            for due in several:
                if self._stopping.is_set():
                    break
                sent.append((due, await self._send(due.partition, due.stream.encode(), due.value)))
                await asyncio.sleep(0)  # releases the interpreter's lock, so that the worker's thread goes first
        finally:
            async with asyncio.timeout(self._settings.request_seconds):
                ends = await asyncio.gather(*[each for _, each in sent], return_exceptions=True)
            for (due, _), end in zip(sent, ends, strict=True):
                if not isinstance(end, BaseException):
                    self._maps.written(due)
                    self.written += 1
        for end in ends:
            if isinstance(end, BaseException):
                raise end
        return len(sent)

    async def _send(self, partition: int, key: bytes, value: bytes | None) -> "asyncio.Future[Any]":
        settings = self._settings
        if self._producer is None:
            producer = writer(
                settings,
                request_timeout_ms=int(settings.request_seconds * 1000),
                compression_type=None if settings.compression == "none" else settings.compression,
            )
            try:
                await producer.start()
            except BaseException:
                await producer.stop()
                raise
            self._producer = producer
        acknowledged: asyncio.Future[Any] = await self._producer.send(
            settings.maps, value, key=key, partition=partition
        )
        return acknowledged

    async def _close(self) -> None:
        """Close the producer. The next record makes a new one."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(Exception):
                async with asyncio.timeout(STOP_SECONDS):
                    await producer.stop()

    def _failed(self, why: str) -> None:
        self.failures += 1
        if monotonic() - self._said >= SAY_SECONDS:
            self._said = monotonic()
            log.warning("maps cannot be written to %s, which is tried again: %s", self._settings.maps, why)
