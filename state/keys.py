"""Keys of the state table: one letter for the kind of row, then what identifies it.

A partition has its own store, so a key never names the partition. The letters sort the kinds apart, which lets
the score rows of all streams be read as one range.
"""

from typing import Final

FENCE: Final = b"F"
LEDGER: Final = b"L"
CALIBRATOR: Final = b"C"
SCORES: Final = b"S"
WINDOWS: Final = b"W"
VECTORS: Final = b"V"
EXPIRY: Final = b"Q"
#: How old outcomes of a stream are when they come.
AGES: Final = b"A"
#: Which of a stream's forecasts have a label (`state.coverage`).
COVERAGE: Final = b"J"
#: How the raw forecasts of a stream are distributed, lately and before.
DISTRIBUTION: Final = b"D"
#: Records far ahead of stream time (`state.witnesses`).
WITNESSES: Final = b"T"
#: Numbers of the values of a stream's segments (`state.segments.Dictionary`).
NAMES: Final = b"N"
#: Scores of a segment of a stream.
SEGMENT: Final = b"G"
#: A challenger beside a champion.
COMPARISON: Final = b"H"
#: What entities of a stream have taught lately (`state.entities`).
ENTITIES: Final = b"Y"
#: What a stream may still send, and by itself how late it is in each topic (`state.quotas`).
QUOTA: Final = b"B"
#: What was folded since the last checkpoint (`state.journal`): written by the worker, never read by the engine.
JOURNAL: Final = b"Z"
#: The worker that writes the partition (`state.claim`): written by the table, not by the engine, which never reads it.
CLAIM: Final = b"O"
#: The topics that the partition's records came from (`state.inputs`): written by the table, never read by the engine.
INPUTS: Final = b"I"
#: How many partitions these topics had (`state.inputs`): written and read as `INPUTS`.
WIDTHS: Final = b"P"
#: The state of other partitions that a partition's rows were made of (`state.rescale`); the engine never reads it.
MOVED: Final = b"M"

#: Kinds of rows that belong to a stream, and where its name begins in their
OF_STREAM: Final = {
    CALIBRATOR: 5,
    SCORES: 1,
    WINDOWS: 1,
    VECTORS: 5,
    COMPARISON: 9,
    AGES: 1,
    COVERAGE: 1,
    DISTRIBUTION: 1,
    NAMES: 5,
    SEGMENT: 7,
    ENTITIES: 7,
}


def ledger(event_id: str) -> bytes:
    """Key of an event's ledger row."""
    return LEDGER + event_id.encode()


def calibrator(stream: str, config: str) -> bytes:
    """Key of the calibrator that serves ``stream`` under the configuration hash ``config`` (8 hex digits)."""
    return CALIBRATOR + bytes.fromhex(config) + stream.encode()


def scores(stream: str) -> bytes:
    """Key of a stream's score sums."""
    return SCORES + stream.encode()


def windows(stream: str) -> bytes:
    """Key of a stream's closed windows."""
    return WINDOWS + stream.encode()


def ages(stream: str) -> bytes:
    """Key of the ages of a stream's outcomes."""
    return AGES + stream.encode()


def coverage(stream: str) -> bytes:
    """Key of which of a stream's forecasts have a label."""
    return COVERAGE + stream.encode()


def distribution(stream: str) -> bytes:
    """Key of the distribution of a stream's raw forecasts."""
    return DISTRIBUTION + stream.encode()


def quota(stream: str) -> bytes:
    """Key of the buckets of a stream's quota; of an empty name those that streams share which no pattern names."""
    return QUOTA + (stream.encode() or b"\0")


def vectors(stream: str, config: str) -> bytes:
    """Key of the scores of a stream whose forecasts are more than one probability, under a configuration."""
    return VECTORS + bytes.fromhex(config) + stream.encode()


def of_vectors(key: bytes) -> tuple[str, str]:
    """Return configuration and stream of a key that `vectors` made; keys of calibrators are built alike."""
    return key[1:5].hex(), key[5:].decode()


def comparison(stream: str, champion: str, challenger: str) -> bytes:
    """Key of what a stream's challenger and champion made of the same events; both by configuration."""
    return COMPARISON + bytes.fromhex(challenger) + bytes.fromhex(champion) + stream.encode()


def of_comparison(key: bytes) -> tuple[str, str, str]:
    """Return stream, champion and challenger of a key that `comparison` made."""
    return key[9:].decode(), key[5:9].hex(), key[1:5].hex()


def expiry(role: int, ttl_ms: int, chunk: int) -> bytes:
    """Key of one chunk of the queue of a role (`state.fence.EXPIRY` and so on) and a time to live."""
    return EXPIRY + bytes((role,)) + ttl_ms.to_bytes(8, "big") + chunk.to_bytes(8, "big")


def names(stream: str, layout: bytes) -> bytes:
    """Key of the slots of a stream's segments, whose names have the hash ``layout`` (4 bytes)."""
    return NAMES + layout + stream.encode()


def segment(stream: str, scored: bytes, slot: int) -> bytes:
    """Key of the scores of one slot of a stream's segments; ``scored`` is `state.policy.Policy.scored` (4 bytes)."""
    return SEGMENT + scored + slot.to_bytes(2, "big") + stream.encode()


def entities(stream: str, config: str, row: int) -> bytes:
    """Key of one row of what entities have taught the calibrator of a stream and configuration."""
    return ENTITIES + bytes.fromhex(config) + row.to_bytes(2, "big") + stream.encode()


def of_names(key: bytes) -> tuple[str, bytes]:
    """Return what `names` made a key of: the stream and the layout."""
    return key[5:].decode(), key[1:5]


def of_segment(key: bytes) -> tuple[str, bytes, int]:
    """Return what `segment` made a key of: the stream, the hash and the slot."""
    return key[7:].decode(), key[1:5], int.from_bytes(key[5:7], "big")
