"""Kafka's codecs: their names in settings and topics, and their numbers in a record batch."""

from typing import Final

from aiokafka import codec

#: The key is the name in ``compression.type``; the value is the number in the attributes of a record batch.
NUMBERS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def lacking() -> list[str]:
    """Return the codecs that this environment cannot read, because the package cramjam is missing."""
    found = {"gzip": codec.has_gzip, "snappy": codec.has_snappy, "lz4": codec.has_lz4, "zstd": codec.has_zstd}
    return [name for name, has in found.items() if not has()]
