"""The partition of a key, by the same function wherever messages are routed. Pure.

The partition is the CRC-32 (as of zlib, IEEE 802.3) of the key's bytes modulo the number of partitions. It depends on
nothing else, so every retry, process and language finds the same partition. When a topic gets more partitions, keys
move.
"""

import zlib


def partition_of(key: bytes | bytearray | memoryview, partitions: int) -> int:
    """The partition, 0 to partitions - 1. partitions: at least 1."""
    return zlib.crc32(key) % partitions
