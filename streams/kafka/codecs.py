"""Kafka's codecs: their names in settings and topics, and their numbers in a record batch."""

from typing import Final

#: The key is the name in ``compression.type``; the value is the number in the attributes of a record batch.
NUMBERS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
