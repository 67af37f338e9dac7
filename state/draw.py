"""The keyed draw: random numbers that a replay can repeat.

A randomised calibrator has no random generator. Its number is a hash of the seed, the calibrator's name and the event.
So an event draws the same number in any order, on any worker, after any crash.
"""

from hashlib import blake2b
from typing import Final

#: Bits of a draw, an integer: the most that a float holds exactly.
BITS: Final = 53
_DROP: Final = 64 - BITS
_SEED_LIMIT: Final = 1 << 64


class Draw:
    """Uniform integers keyed by event.

    Raises ValueError if the seed is out of range.

    ``name``: name of the calibrator that draws; two calibrators that see the same event draw independently.
    ``seed``: from 0 to 2**64 - 1.

    Notes
    -----
    BLAKE2b (RFC 7693), 8-byte digest, over seed (u64) · length of the name (u32) · name · event key, little-endian;
    the draw is the digest's upper 53 bits. Python's `hash` changes from process to process and must not be used.
    The length keeps ``("ab", b"c")`` and ``("a", b"bc")`` apart.
    """

    __slots__ = ("_prefix",)

    def __init__(self, name: str = "", seed: int = 0) -> None:
        if not 0 <= seed < _SEED_LIMIT:
            raise ValueError(f"seed must be between 0 and 2**64 - 1, got {seed}")
        encoded = name.encode()
        head = seed.to_bytes(8, "little") + len(encoded).to_bytes(4, "little")
        self._prefix = blake2b(head + encoded, digest_size=8)

    def __call__(self, key: bytes) -> int:
        """Return the draw of an event: an integer from 0 to 2**53 - 1."""
        hasher = self._prefix.copy()
        hasher.update(key)
        return int.from_bytes(hasher.digest(), "little") >> _DROP
