"""Which consumer of a key_shared subscription a key belongs to.

A key's hash is one of SLOTS. Each consumer has POINTS places on the circle of hashes, which its name decides, and owns
the ranges that end there. So a consumer that comes or goes moves only the keys of its own ranges.
Source: Pulsar's consistent-hashing selector, which also takes 100 places for each consumer.
"""

import zlib
from bisect import bisect_left
from hashlib import blake2b

from oncelog.core.delivery.consumers import ConnectedConsumer
from oncelog.core.delivery.events import StoredEntry
from oncelog.core.errors import InvalidBatch
from oncelog.core.formats.batch import payload_of, peek_batch
from oncelog.core.formats.columns import Column, decode_keys, split_columns
from oncelog.core.formats.compression import expand_columns
from oncelog.core.formats.entry import body_of

SLOTS = 1 << 16
POINTS = 100


def slots_of(entry: StoredEntry) -> list[int | None] | None:
    """The slot of each message of the entry, None for a message without a key; None: no message has a key.

    A payload that cannot be read has no keys: consumers report it when they decode it.
    """
    body = body_of(entry.data)
    header = peek_batch(body)
    try:
        keys = split_columns(expand_columns(header, payload_of(header, body)), header.count).get(Column.KEYS)
        if keys is None:
            return None
        decoded = decode_keys(keys, header.count)
    except InvalidBatch:
        return None
    return [None if key is None else zlib.crc32(key) % SLOTS for key in decoded[entry.skip_first :]]


class KeyRanges:
    """The ranges of the connected consumers."""

    def __init__(self) -> None:
        self._points: list[int] = []
        self._owners: list[ConnectedConsumer] = []

    def assign(self, consumers: list[ConnectedConsumer]) -> None:
        """These are connected now."""
        points = {}
        for consumer in sorted(consumers, key=lambda each: each.name):
            for number in range(POINTS):
                digest = blake2b(f"{consumer.name}/{number}".encode(), digest_size=4).digest()
                points[int.from_bytes(digest) % SLOTS] = consumer
        self._points = sorted(points)
        self._owners = [points[point] for point in self._points]

    def owner(self, slot: int) -> ConnectedConsumer | None:
        """The consumer of a slot; None: none is connected."""
        if not self._points:
            return None
        return self._owners[bisect_left(self._points, slot) % len(self._points)]
