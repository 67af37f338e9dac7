"""Stand-ins: records in place of a batch that is not unpacked, or of records that an operator skipped."""

from collections.abc import Sequence
from typing import ClassVar, Final, Self

import orjson

from state.events import Event, Rejected

#: The dead letter's reason: the record batch expands beyond TRUEUP_UNPACKED_BYTES, or cannot be unpacked or read.
REASON: Final = "batch"
#: The dead letter's reason: an operator said so, see `streams.records.skips`.
SKIPPED: Final = "skipped"


class Refused(bytes):
    """The value of a stand-in: JSON with the offsets that it stands for, and the reason."""

    reason: ClassVar[str] = REASON

    @classmethod
    def of(cls, first: int, last: int, packed_bytes: int, why: str) -> Self:
        """Describe a batch: its offsets (inclusive), its size, and what is wrong with it."""
        return cls(orjson.dumps({"offsets": [first, last], "packed_bytes": packed_bytes, "refused": why}))


class Skipped(Refused):
    """The same for records that an operator skipped."""

    reason = SKIPPED


def named(events: list[Event]) -> Sequence[Event]:
    """Give events of stand-ins their reason, in place: decoders only find that they name no event."""
    for i, event in enumerate(events):
        if type(event) is Rejected and isinstance(event.value, Refused):
            events[i] = event._replace(reason=event.value.reason)
    return events
