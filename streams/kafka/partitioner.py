"""The partition of a key, as Kafka's own default partitioner chooses it."""

from functools import lru_cache

from aiokafka.partitioner import murmur2


def partition(key: bytes, count: int) -> int:
    """Return the partition Kafka's own default partitioner gives a key among ``count``."""
    return (_hashed(key) & 0x7FFFFFFF) % count


@lru_cache(maxsize=1 << 16)
def _hashed(key: bytes) -> int:
    # An outcome's key was hashed for its forecast not long before; the hash is pure Python, 3 us.
    return int(murmur2(key))
