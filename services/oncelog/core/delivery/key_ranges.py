"""Which consumer of a key_shared subscription a key belongs to.

A key's hash is one of SLOTS. Each consumer has POINTS places on the circle of hashes, which its name decides, and owns
the ranges that end there. So a consumer that comes or goes moves only the keys of its own ranges.
Source: Pulsar's consistent-hashing selector, which also takes 100 places for each consumer.
"""

import zlib
from bisect import bisect_left
from collections.abc import Sequence
from hashlib import blake2b

from oncelog.core.delivery.consumers import ConnectedConsumer
from oncelog.core.delivery.events import StoredEntry
from oncelog.core.errors import InvalidBatch
from oncelog.core.formats.batch import BatchHeader, PayloadFormat, payload_of, peek_batch
from oncelog.core.formats.columns import Column, decode_keys, split_columns
from oncelog.core.formats.entry import body_of
from oncelog.core.formats.payload import expand_columns, open_payload, open_records

SLOTS = 1 << 16
POINTS = 100


def slots_of(entry: StoredEntry) -> list[int | None] | None:
    """The slot of each message of the entry, None for a message without a key; None: no message has a key.

    A payload that cannot be read has no keys: consumers report it when they decode it.
    """
    body = body_of(entry.data)
    header = peek_batch(body)
    try:
        keys = _keys_of(header, payload_of(header, body))
    except InvalidBatch:
        return None
    if keys is None:
        return None
    return [None if key is None else zlib.crc32(key) % SLOTS for key in keys[entry.skip_first :]]


def _keys_of(header: BatchHeader, payload: memoryview) -> Sequence[bytes | None] | None:
    """By what messages are ordered: clients of Pulsar may name something else than the key. Raises InvalidBatch."""
    if header.payload_format == PayloadFormat.PULSAR:
        messages = open_payload(header, payload)
        keys, ordering = messages.keys, messages.ordering_keys
        if keys is None or ordering is None:
            return keys if ordering is None else ordering
        return [key if order is None else order for key, order in zip(keys, ordering, strict=True)]
    if header.payload_format == PayloadFormat.KAFKA:
        return open_records(header, payload).keys
    content = split_columns(expand_columns(header, payload), header.count).get(Column.KEYS)
    return None if content is None else decode_keys(content, header.count)


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
