"""What a record may be, at most."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What a record may be, at most.

    Attributes
    ----------
    record_bytes
        Longest value, bytes.
    id_bytes
        Longest event id and stream name, bytes in UTF-8; at most 255, for the state's rows.
    ahead_ms
        How far ``ts`` may lie ahead of the Kafka timestamp, ms. One record from a clock that runs wild would
        otherwise move stream time forward and expire every row.
    letter_bytes
        How much of a dead letter's value is kept.
    """

    record_bytes: int = 65_536
    id_bytes: int = 128
    ahead_ms: int = 24 * 3600 * 1000
    letter_bytes: int = 16_384
