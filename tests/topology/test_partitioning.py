"""Keys go to the partitions that Java's producer gives them."""

from __future__ import annotations

import random

import pytest
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

from tidemill.topology.partitioning import murmur2, partition_of_key

JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", JAVA, ids=bytes.decode)
def test_the_hash_is_javas(key: bytes) -> None:
    assert murmur2(key) == JAVA[key] & 0xFFFFFFFF


def test_the_hash_of_any_bytes_is_that_of_another_client() -> None:
    drawn = random.Random(1)
    for length in [*range(20), 255, 1000]:
        key = drawn.randbytes(length)
        assert murmur2(key) == murmur2_of_kafka_python(key) & 0xFFFFFFFF


def test_negative_hashes_lose_their_sign_and_not_their_absolute_value() -> None:
    assert partition_of_key(b"21", 7) == (-973932308 & 0x7FFFFFFF) % 7
