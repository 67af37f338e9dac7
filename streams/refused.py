"""A record batch that is not unpacked: one record stands for all of its own, and becomes one dead letter."""

from collections.abc import Sequence
from typing import Final

import orjson

from state.events import Event, Rejected

#: The dead letter's reason: the record batch expands beyond TRUEUP_UNPACKED_BYTES, or cannot be unpacked.
REASON: Final = "batch"


class Refused(bytes):
    """The value of the record that stands for a batch: JSON that says which offsets it had, and why it is refused."""

    @classmethod
    def of(cls, first: int, last: int, packed_bytes: int, why: str) -> "Refused":
        """Describe a batch by its offsets, inclusive, by its size and by what is wrong with it."""
        return cls(orjson.dumps({"offsets": [first, last], "packed_bytes": packed_bytes, "refused": why}))


def named(events: list[Event]) -> Sequence[Event]:
    """Give events that stand for refused batches their reason, in place: decoders find only that they name no event."""
    for i, event in enumerate(events):
        if type(event) is Rejected and type(event.value) is Refused:
            events[i] = event._replace(reason=REASON)
    return events
