"""Mutations: what chance makes of a seed, biased to what breaks decoders."""

import random
from collections.abc import Sequence
from typing import Final

#: Numbers at the edges of fields, little-endian.
EDGES: Final = (
    b"\0",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\xff\xff",
    b"\xff\xff\xff\xff",
    b"\xff" * 8,
    b"\0" * 8,
    b"\0\0\0\0\0\0\xf0\x7f",  # infinity
    b"\0\0\0\0\0\0\xf8\x7f",  # NaN
    b"[" * 3000,
    b"9" * 5000,
    b'"',
    b"null",
    b"1e999",
    b"-0.0",
)


def mutated(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    """Return one of the seeds after one to four mutations."""
    data = bytearray(rng.choice(seeds))
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(6):
            case 0:
                del data[at:]
            case 1:
                del data[at : at + rng.randint(1, 8)]
            case 2:
                data[at:at] = rng.choice(EDGES)
            case 3:
                edge = rng.choice(EDGES)
                data[at : at + len(edge)] = edge
            case 4 if data:
                data[at - 1] ^= 1 << rng.randrange(8)
            case _:
                other = rng.choice(seeds)
                data[at:] = other[rng.randrange(len(other) + 1) :]
    return bytes(data)
