"""Which part of a partitioned topic a key belongs to: the same function wherever messages are routed. Pure.

The part is the CRC-32 (as of zlib, IEEE 802.3) of the key's bytes modulo the number of parts. It depends on nothing
else, so that each retry, process and language finds the same part. When a topic gets further parts, keys move.
"""

import zlib


def partition_of(key: bytes | bytearray | memoryview, partitions: int) -> int:
    """0 to partitions - 1. partitions: at least 1."""
    return zlib.crc32(key) % partitions
