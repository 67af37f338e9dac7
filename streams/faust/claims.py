"""How commands write a changelog: under claims, as workers do.

A command may be paused in the middle of its work, because a laptop sleeps or a container is paused. Meanwhile somebody
runs it again elsewhere, and workers serve what the second run wrote. When the first run wakes, brokers must refuse its
writes. So a command claims each partition, and only then looks at what is left to write.
"""

from collections.abc import Iterable
from typing import Final

from aiokafka.client import AIOKafkaClient

from state.fence import FENCE
from streams.config.settings import Settings
from streams.faust.batches import HEAD_BYTES
from streams.faust.changelog import Changelog, FencedError, TooLargeError
from streams.faust.contact import Contact
from streams.faust.producing import BatchProducer
from streams.kafka.broker_requests import BrokersError
from streams.kafka.topics import TopicsError

#: The fence of a partition while its rows are being written: no worker accepts it.
UNFINISHED: Final = b"a trueup command has not finished writing this state"
#: The most bytes of a record beside key and value.
_RECORD_BYTES: Final = 32


class Claims:
    """The changelog of a group, as a command writes it.

    ``command``: name of the command; claims name it as their owner, for people.
    """

    def __init__(self, settings: Settings, client: AIOKafkaClient, command: str) -> None:
        producer = BatchProducer(settings, Contact(settings.brokers), lambda: client)
        self._settings, self._command = settings, command
        self._changelog = Changelog(lambda: settings.changelog, lambda: producer, command)

    async def claim(self, partitions: Iterable[int]) -> None:
        """Claim partitions. From now on brokers refuse all other writers.

        Raises TopicsError if another process claimed one at the same moment, or the user may not claim. Raises
        KafkaError or TimeoutError if the brokers do not answer.
        """
        for each in partitions:
            try:
                await self._changelog.claim(each)
            except FencedError:
                raise self._fenced(each) from None
            except BrokersError as exc:
                raise TopicsError(str(exc)) from exc
            self._changelog.activate(each)

    async def begin(self, partition: int) -> None:
        """Give a partition a fence that no worker accepts; raises as `append`."""
        await self.append(partition, [(FENCE.key(), UNFINISHED)])

    async def append(self, partition: int, rows: Iterable[tuple[bytes, bytes | None]]) -> int:
        """Append rows (None deletes) in as few batches as possible, each acknowledged before the next.

        Raises TopicsError if a row does not fit a batch, or another process has claimed the partition since. Raises
        KafkaError or TimeoutError if the brokers do not acknowledge. Returns the number of rows.
        """
        room, count = self._settings.batch_bytes - HEAD_BYTES, 0
        part, size = dict[bytes, bytes | None](), 0
        for key, row in rows:
            more = len(key) + len(row or b"") + _RECORD_BYTES
            if part and (size + more > room or key in part):
                count, part, size = count + await self._append(partition, part), {}, 0
            part[key] = row
            size += more
        return count + await self._append(partition, part)

    async def _append(self, partition: int, rows: dict[bytes, bytes | None]) -> int:
        if rows:
            try:
                await self._changelog.append({partition: rows})
            except FencedError:
                raise self._fenced(partition) from None
            except TooLargeError:
                largest = max(len(row or b"") for row in rows.values())
                raise TopicsError(f"a row of {largest} bytes does not fit TRUEUP_BATCH_BYTES") from None
        return len(rows)

    def _fenced(self, partition: int) -> TopicsError:
        return TopicsError(
            f"a worker, or another run of '{self._command}', took up partition {partition} of "
            f"{self._settings.changelog} meanwhile, and the brokers refuse what comes from here. If that run goes on, "
            "leave it to it; else try again",
            lasting=False,
        )
