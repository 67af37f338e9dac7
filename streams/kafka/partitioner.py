"""Compute the partition of a key as Kafka's default partitioner does."""

from functools import lru_cache

from aiokafka.partitioner import murmur2


def partition(key: bytes, count: int) -> int:
    """Return the partition of a key among ``count`` partitions, as Kafka's default partitioner chooses it."""
    return (_hashed(key) & 0x7FFFFFFF) % count


@lru_cache(maxsize=1 << 16)
def _hashed(key: bytes) -> int:
    # An outcome has the key of an earlier forecast. The hash is pure Python and takes 3 us, so it is cached.
    return int(murmur2(key))
