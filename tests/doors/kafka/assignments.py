"""Assignments and subscriptions as consumers of Kafka write them."""

from collections.abc import Mapping, Sequence
from struct import pack


def assignment(partitions: Mapping[str, Sequence[int]]) -> bytes:
    """{topic: partitions}."""
    topics = b"".join(
        pack(">h", len(name)) + name.encode() + pack(f">i{len(each)}i", len(each), *each)
        for name, each in partitions.items()
    )
    return pack(">hi", 1, len(partitions)) + topics + pack(">i", -1)


def subscription(*topics: str) -> bytes:
    """What a member says that it wants."""
    names = b"".join(pack(">h", len(name)) + name.encode() for name in topics)
    return pack(">hi", 1, len(topics)) + names + pack(">ii", -1, 0)
