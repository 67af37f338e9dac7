"""What a record may be, at most."""

from dataclasses import dataclass
from typing import Final

#: Latest time of a record, ms: the end of the year 9999. A later due time would not fit its field.
LATEST: Final = 253_402_300_799_999
#: A time further than this from its Kafka timestamp is probably in another unit, ms: twenty years.
FAR_OFF: Final = 20 * 31_556_952_000
#: Highest revision number of an outcome: it is stored in 32 bits.
LAST_REVISION: Final = 2**32 - 1
#: Separates an event's id and scope in the engine's name of the event; no id and no scope has it.
SCOPED: Final = "\n"
#: Longest name of an event, id and scope together, in bytes: rows hold its length in one byte.
LONGEST_NAME: Final = 255


@dataclass(frozen=True)
class Limits:
    """What a record may be, at most."""

    #: Longest value, bytes.
    record_bytes: int = 65_536
    #: Longest event id and longest stream name, in UTF-8 bytes; at most 255, because of the state's rows.
    id_bytes: int = 128
    #: How far ``ts`` may be ahead of the Kafka timestamp, ms. `streams.kafka.topics` makes the brokers refuse Kafka
    #: timestamps that are further ahead of their clock. Otherwise records from a clock that runs ahead would move
    #: stream time forward and expire rows.
    ahead_ms: int = 300_000
    #: The most bytes of a dead letter's value that are kept.
    letter_bytes: int = 16_384
