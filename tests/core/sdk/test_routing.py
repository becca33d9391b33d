"""Keys and the partitions of a topic: a key always has the same partition, and keys spread evenly."""

from collections import Counter

import pytest

from oncelog.core.sdk.producer.routing import Routing, partition_of


@pytest.mark.parametrize(
    ("key", "partitions", "part"), [(b"", 3, 0), (b"123456789", 10, 2), (b"123456789", 7, 5), (b"N1234", 1, 0)]
)
def test_partition_of_a_key_never_changes(key: bytes, partitions: int, part: int) -> None:
    """Otherwise messages of one key would be in two partitions. The CRC-32 of 123456789 is 3421780262."""
    assert partition_of(key, partitions) == part
    assert partition_of(memoryview(key), partitions) == part


@pytest.mark.parametrize("partitions", [2, 3, 8, 100])
def test_keys_spread_over_all_partitions(partitions: int) -> None:
    """Also keys that differ only in a number."""
    counts = Counter(partition_of(b"customer-%d" % number, partitions) for number in range(partitions * 200))
    assert set(counts) == set(range(partitions))
    assert max(counts.values()) < 2 * 200


@pytest.mark.hazard("resent-to-another-partition")
def test_list_is_split_by_key_then_by_sequence_id() -> None:
    """Messages with an id of the application's own stay in the partitions that the topic had at first, also in a list;
    those of one partition keep their order."""
    routing, key = Routing(partitions=8, numbered=4), b"customer 4"
    assert [partition_of(key, count) for count in (4, 8)] == [3, 7]
    places, lists = routing.split(4, [1, 2, 5, 6], [None, key, None, None])
    assert lists == {1: [0, 2], 3: [1], 2: [3]}
    assert places == [(1, 0), (3, 0), (1, 1), (2, 0)]
    assert routing.fixed(None, key) == 7
    _, together = Routing(partitions=8, numbered=4).split(3, None, [None] * 3)
    assert together == {0: [0, 1, 2]}, "without key and id a list stays together"
