"""Keys hashed together go where each would go alone, which is where Kafka's default partitioner puts them."""

from aiokafka.partitioner import murmur2
from hypothesis import given
from hypothesis import strategies as st

from streams.kafka.partitioner import FEW, hashes, partition


@given(st.lists(st.binary(max_size=40)), st.integers(1, 100))
def test_keys_together_go_where_each_goes_alone(keys: list[bytes], count: int) -> None:
    assert [each % count for each in hashes(keys)] == [partition(key, count) for key in keys]
    assert hashes(keys) == [murmur2(key) & 0x7FFFFFFF for key in keys]
    assert hashes(keys * FEW) == hashes(keys) * FEW, "many at once, as a few one by one"


def test_partitions_are_those_of_the_java_client() -> None:
    """Hashes of its own tests (Apache Kafka 4.3, UtilsTest.testMurmur2), without their sign."""
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"abc": 479470107}
    assert hashes([*known] * FEW) == [each & 0x7FFFFFFF for each in known.values()] * FEW
