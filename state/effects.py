"""The effects of a batch: changed rows, outputs and counts."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from state import kinds
from state.events import Output
from state.fence import FATES
from state.kind import kind_of
from state.ledger import LedgerRow

#: Bytes of rows that are packed before other tasks may run. It takes about half a millisecond.
SLICE: Final = 64_000
#: Assumed size of a ledger row before the first checkpoint, bytes.
LEDGER_BYTES: Final = 200


@dataclass(slots=True)
class Changes:
    """Rows that changed since the last checkpoint. Most of them are packed later, in slices.

    A packed row holds the value at the checkpoint. So a caller packs the row (`make`) before it changes the value.
    """

    #: Rows to write, by key; None deletes. They are written all at once, or not at all.
    rows: dict[bytes, bytes | None] = field(default_factory=dict)
    #: The packed rows that describe a stream (they are in ``rows``, too), by stream and key.
    of_streams: dict[str, Mapping[bytes, bytes]] = field(default_factory=dict)
    #: Values of ledger rows that are not packed yet, by key; None deletes.
    ledger: dict[bytes, LedgerRow | None] = field(default_factory=dict)
    #: Values of streams' rows that are not packed yet, by stream and key; None deletes.
    streams: dict[str, dict[bytes, Any]] = field(default_factory=dict)
    #: Number and bytes of the packed rows, of the ledger and of streams.
    sizes: list[int] = field(default_factory=lambda: [0, 0, 0, 0])

    def has(self, key: bytes) -> bool:
        """Whether a row is among these. A ledger row is packed if necessary; a stream's rows must be packed before."""
        if key in self.ledger and key not in self.rows:
            value = self.ledger[key]
            self.rows[key] = None if value is None else kinds.LEDGER.seal(value.encode())
        return key in self.rows

    def make(self, stream: str) -> int:
        """Pack the remaining rows of a stream; return their bytes."""
        values = self.streams.pop(stream, None)
        return 0 if values is None else self._made(stream, values)

    def _made(self, stream: str, values: dict[bytes, Any]) -> int:
        made, packed = 0, dict[bytes, bytes]()
        for key, value in values.items():
            if value is None:
                self.rows[key] = None
                continue
            row = kind_of(key).encode(value)
            self.rows[key] = packed[key] = row
            made += len(row)
        if packed:
            self.of_streams[stream] = packed
        self.sizes[2] += len(packed)
        self.sizes[3] += made
        return made

    def slices(self) -> Iterator[None]:
        """Pack all remaining rows, and yield after every `SLICE` of them."""
        made = 0
        while self.streams:
            # The last stream first: its values are in the processor's cache. To find the first takes longer.
            made += self._made(*self.streams.popitem())
            if made >= SLICE:
                made = 0
                yield
        left, size = iter(self.ledger.items()), 0
        while part := list(islice(left, SLICE // LEDGER_BYTES)):
            size += self._pack(part)
            yield
        self.sizes[:2] = len(self.ledger), size
        self.ledger = {}

    def _pack(self, part: list[tuple[bytes, LedgerRow | None]]) -> int:
        """Pack some ledger rows; return their bytes."""
        rows, size = self.rows, 0
        for key, value in part:
            if value is None:
                rows[key] = None
            else:
                row = rows[key] = kinds.LEDGER.seal(value.encode())
                size += len(row)
        return size


@dataclass(slots=True)
class Effects(Changes):
    """The effects of a batch. They include changed rows only if `state.engine.Partition.fold` made a checkpoint."""

    #: Records to produce, in order. Set only for a whole batch: parts of a batch return their own.
    outputs: list[Output] = field(default_factory=list)
    #: How many records and rows met each of `state.fence.FATES` in this batch.
    fates: list[int] = field(default_factory=lambda: [0] * len(FATES))
    #: Milliseconds from forecast to outcome, for each event resolved in this batch by an outcome.
    delays: list[int] = field(default_factory=list)
    #: Due times (stream time, ms) of forecasts and outcomes that expired without a partner, and of forecasts that
    #: silence labelled.
    lapsed: list[int] = field(default_factory=list)
    #: Topic and reason of every dead letter.
    rejected: list[tuple[int, str]] = field(default_factory=list)
    #: How many events of each stream got their first outcome after silence had labelled them.
    overdue: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    #: By stream: whether raw scores are served from now on, if that changed after a warm-up. See `state.coverage`.
    withheld: dict[str, bool] = field(default_factory=dict)
    #: Number of forecasts as old as their stream's ttl: the row of an earlier copy would be gone.
    belated: int = 0
    #: Number of outcomes that contradict another of the same time and number. It is unknown which of them is right.
    contradicting: int = 0
    #: How many events of each stream taught nothing, because their entity had taught or their label stands for few
    #: forecasts.
    untaught: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    #: How many records of each topic their source skips.
    passed: list[int] = field(default_factory=lambda: [0, 0])
    #: How many forecasts of each stream were answered, duplicates included, and how many of its events resolved.
    answered: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    resolved: dict[str, int] = field(default_factory=lambda: defaultdict(int))
