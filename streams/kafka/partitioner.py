"""Computes the partition of a key as Kafka's default partitioner does."""

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from aiokafka.partitioner import murmur2

_SEED: Final = 0x9747B28C
_M: Final = np.uint32(0x5BD1E995)
#: With fewer keys of the same length than this, keys are hashed one by one.
FEW: Final = 12


def partition(key: bytes, count: int) -> int:
    """Return the partition of a key among ``count`` partitions, as Kafka's default partitioner chooses it."""
    return (_hashed(key) & 0x7FFFFFFF) % count


@lru_cache(maxsize=1 << 16)
def _hashed(key: bytes) -> int:
    # The hash is pure Python and takes 3 us. An outcome has the key of an earlier forecast, so a cache helps.
    return int(murmur2(key))


def hashes(keys: Sequence[bytes]) -> list[int]:
    """Return, for each key, the 31-bit number of which `partition` takes the remainder.

    All keys of one length are hashed at once: with thousands, .1 us each. A few keys are hashed one by one, because an
    array takes as long as a dozen keys.
    """
    found = [0] * len(keys)
    by_length: defaultdict[int, list[int]] = defaultdict(list)
    for i, key in enumerate(keys):
        by_length[len(key)].append(i)
    for length, places in by_length.items():
        if len(places) < FEW:
            hashed = [_hashed(keys[i]) for i in places]
        else:
            data = np.frombuffer(b"".join([keys[i] for i in places]), np.uint8).reshape(len(places), length)
            hashed = _murmur2(data).tolist()
        for i, each in zip(places, hashed, strict=True):
            found[i] = each & 0x7FFFFFFF
    return found


def _murmur2(data: np.ndarray[tuple[int, int], np.dtype[np.uint8]]) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    n, length = data.shape
    whole = length & ~3
    h = np.full(n, _SEED ^ length, np.uint32)
    words = np.ascontiguousarray(data[:, :whole]).view("<u4") * _M
    words ^= words >> np.uint32(24)
    words *= _M
    for i in range(whole // 4):
        h *= _M
        h ^= words[:, i]
    if length > whole:
        for i in range(length - whole):
            h ^= data[:, whole + i].astype(np.uint32) << np.uint32(8 * i)
        h *= _M
    h ^= h >> np.uint32(13)
    h *= _M
    h ^= h >> np.uint32(15)
    return h
