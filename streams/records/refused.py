"""Stand-ins: records in place of a batch that is not unpacked, or in place of records that an operator skipped."""

from collections.abc import Sequence
from typing import ClassVar, Self

import orjson

from state.events import Event, Rejected


class Refused(bytes):
    """The value of a stand-in: JSON with the offsets that it stands for, and the reason."""

    #: The dead letter's reason, see `streams.records.decoding.REASONS`.
    reason: ClassVar[str] = "batch"

    @classmethod
    def of(cls, first: int, last: int, packed_bytes: int, why: str) -> Self:
        """Describe a batch: its offsets (inclusive), its size, and what is wrong with it."""
        return cls(orjson.dumps({"offsets": [first, last], "packed_bytes": packed_bytes, "refused": why}))


class Skipped(Refused):
    """A stand-in for records that an operator skipped."""

    reason = "skipped"


def named(events: list[Event]) -> Sequence[Event]:
    """Give events of stand-ins their reason, in place. Decoders only find that they name no event."""
    for i, event in enumerate(events):
        if type(event) is Rejected and isinstance(event.value, Refused):
            events[i] = event._replace(reason=event.value.reason)
    return events
