"""Opened batches of records: unpacked, refused, or with some records left out."""

import struct
from collections.abc import Iterator, Mapping
from typing import Final

from aiokafka.record.default_records import DefaultRecord, DefaultRecordBatch

from streams.kafka.codecs import ExpandsError, unpacked
from streams.records.refused import Refused, Skipped

#: Position of the attributes in a batch.
_ATTRIBUTES: Final = 21
#: Position of the first record in a batch, bytes.
HEAD_BYTES: Final = 61
_CODEC: Final = 0x07
_LOG_TIME: Final = 0x08


class UnpackedBatch:
    """A batch whose records came compressed; the buffer holds it unpacked."""

    def __init__(self, batch: DefaultRecordBatch, room: memoryview) -> None:
        self.base_offset, self.next_offset = batch.base_offset, batch.next_offset
        self.producer_id, self.is_transactional = batch.producer_id, batch.is_transactional
        self.is_control_batch = batch.is_control_batch
        struct.pack_into(">h", room, _ATTRIBUTES, batch.attributes & ~_CODEC)
        self._batch = DefaultRecordBatch(room)

    def validate_crc(self) -> bool:
        """Whether the batch is undamaged; this was checked before."""
        return True

    def __iter__(self) -> Iterator[DefaultRecord]:
        """Yield the records."""
        return iter(self._batch)

    def __next__(self) -> DefaultRecord:
        """Return the next record. aiokafka calls this for the record of a control batch."""
        return next(self._batch)


class RefusedBatch:
    """A batch of one record, which stands for a batch that was not unpacked."""

    is_control_batch = False

    def __init__(self, batch: DefaultRecordBatch, size: int, why: str, kind: type[Refused] = Refused) -> None:
        self.base_offset, self.next_offset = batch.base_offset, batch.next_offset
        self.producer_id, self.is_transactional = batch.producer_id, batch.is_transactional
        in_log_time = bool(batch.attributes & _LOG_TIME)
        timestamp = batch.max_timestamp if in_log_time else batch.first_timestamp
        self._size, self._kind, self._stamp = size, kind, (timestamp, int(in_log_time))
        self._record = self.stands(self.base_offset, why)

    def stands(self, first: int, why: str) -> DefaultRecord:
        """Return the record that stands for the rest of a batch from an offset on."""
        last = self.next_offset - 1
        return DefaultRecord(last, *self._stamp, None, self._kind.of(first, last, self._size, why), [])

    def validate_crc(self) -> bool:
        """Whether the batch is undamaged; this was checked before."""
        return True

    def __iter__(self) -> Iterator[DefaultRecord]:
        """Yield the record."""
        yield self._record


Opened = UnpackedBatch | RefusedBatch


def opened(batch: DefaultRecordBatch, data: memoryview, limit: int) -> Opened:
    """Unpack a batch into new memory with room for its head in front, so that no record is copied."""
    try:
        room = unpacked(batch.compression_type, data[HEAD_BYTES:], limit, before=HEAD_BYTES)
    except ExpandsError as exc:
        return RefusedBatch(batch, len(data), str(exc))
    room[:HEAD_BYTES] = data[:HEAD_BYTES]
    return UnpackedBatch(batch, room)


class SkippingBatch(RefusedBatch):
    """A batch some of whose records are left out; all of them, if it is damaged."""

    def __init__(
        self,
        batch: DefaultRecordBatch,
        opened: DefaultRecordBatch | Opened,
        data: memoryview,
        skipped: Mapping[int, str],
    ) -> None:
        super().__init__(batch, len(data), next(iter(skipped.values())), Skipped)
        self._opened = opened
        self._skipped = skipped

    def __iter__(self) -> Iterator[DefaultRecord]:
        """Yield the records; a stand-in takes the place of each record that is left out."""
        if self._opened.validate_crc():
            yield from map(self._kept, self._opened)
        else:
            yield self._record

    def _kept(self, record: DefaultRecord) -> DefaultRecord:
        why = self._skipped.get(record.offset)
        if why is None or isinstance(record.value, Refused):
            return record
        stands = Skipped.of(record.offset, record.offset, len(record.value or b""), why)
        return DefaultRecord(record.offset, record.timestamp, record.timestamp_type, None, stands, [])
