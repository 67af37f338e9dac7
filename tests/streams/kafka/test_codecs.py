"""What codecs packed: unpacked whole, or refused."""

import gzip
import struct

import cramjam
import pytest
from aiokafka.codec import snappy_encode
from hypothesis import given
from hypothesis import strategies as st

from streams.kafka.codecs import NUMBERS, ExpandsError, unpacked

LIMIT = 100_000
BOMB = bytes(LIMIT + 1)

packed = {
    "gzip": gzip.compress,
    "snappy": snappy_encode,
    "snappy in one block": lambda data: bytes(cramjam.snappy.compress_raw(data)),
    "lz4": lambda data: bytes(cramjam.lz4.compress(data)),
    "zstd": lambda data: bytes(cramjam.zstd.compress(data)),
}


@pytest.mark.parametrize("name", packed)
def test_no_more_than_the_bound_is_unpacked(name: str) -> None:
    codec = NUMBERS[name.split(maxsplit=1)[0]]
    assert unpacked(codec, packed[name](BOMB[:LIMIT]), LIMIT) == BOMB[:LIMIT]
    with pytest.raises(ExpandsError, match="expands beyond"):
        unpacked(codec, packed[name](BOMB), LIMIT)


@pytest.mark.parametrize("name", ["gzip", "lz4", "zstd"])
def test_frames_that_follow_each_other_count_together(name: str) -> None:
    half = packed[name](bytes(LIMIT // 2))
    assert unpacked(NUMBERS[name], half * 2, LIMIT) == bytes(LIMIT)
    with pytest.raises(ExpandsError, match="expands beyond"):
        unpacked(NUMBERS[name], half * 3, LIMIT)


def test_blocks_of_snappy_count_together_and_none_is_without_length() -> None:
    head, half = snappy_encode(b"")[:16], packed["snappy in one block"](bytes(LIMIT // 2))
    block = struct.pack(">i", len(half)) + half
    assert unpacked(2, head + block * 2, LIMIT) == bytes(LIMIT)
    for data in (head + block * 3, head + struct.pack(">i", 0), head + struct.pack(">i", 5) + b"abc", head + b"ab"):
        with pytest.raises(ExpandsError):
            unpacked(2, data, LIMIT)


def test_gzip_may_be_padded_and_is_refused_in_words_where_it_is_damaged() -> None:
    data = gzip.compress(b"abc")
    room = unpacked(1, data + bytes(9), LIMIT, 2)
    room[:2] = b"__"
    assert bytes(room) == b"__abc"
    assert bytes(unpacked(1, b"", LIMIT)) == b""
    for spoilt, why in ((data[:-3], "ended before"), (data + b"junk", "Not a gzipped"), (data[:-8] + bytes(8), "CRC")):
        with pytest.raises(ExpandsError, match=f"gzip that cannot be unpacked: .*{why}"):
            unpacked(1, spoilt, LIMIT)
    with pytest.raises(ExpandsError, match="expands beyond 2 bytes"):
        unpacked(1, data + bytes(9), 2)


@given(st.binary(max_size=300), st.sampled_from(sorted(packed)), st.integers(0, 70), st.integers(0, 300))
def test_room_is_left_in_front(data: bytes, name: str, before: int, limit: int) -> None:
    codec = NUMBERS[name.split(maxsplit=1)[0]]
    if len(data) > limit:
        with pytest.raises(ExpandsError):
            unpacked(codec, packed[name](data), limit, before)
        return
    room = unpacked(codec, packed[name](data), limit, before)
    assert len(room) == before + len(data)
    assert room[before:] == data
    room[:before] = bytes(before)
