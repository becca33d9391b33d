"""A digest of rows that is independent of their order: it proves that a replayed batch has the same rows.

Spark may cut the replay of a micro-batch into other partitions, and may give rows of one partition in another order.
So the digest of a set of rows is the sum, modulo 2**64, of a 64-bit hash of each row. Digests of partitions add up to
the digest of the batch. The hash covers value, key, event time (milliseconds), properties and destination.

The hash of a row combines two CRCs and the length of each field, mixed by splitmix64. It detects rows that are missing,
added or changed by mistake. It does not protect against rows that were chosen to collide.
"""

import json
import zlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from crc32c import crc32c

if TYPE_CHECKING:
    from oncelog_spark.sink.rows import Rows

DIGEST_MODULUS = 2**64
#: One salt for each optional field, so that a key never has the hash of properties.
_KEY, _TIME, _PROPERTIES = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_TOPIC, _PARTITION = 0x27D4EB2F165667C5, 0x85EBCA77C2B2AE63
Hashes = np.ndarray[Any, Any]


def rows_digest(rows: "Rows") -> int:
    """0 to 2**64 - 1; 0 for no rows."""
    count = len(rows)
    if not count:
        return 0
    hashes = _hashes(rows.values)
    further = np.zeros(count, dtype=np.uint64)
    if rows.keys is not None:
        keys = [each.encode() if isinstance(each, str) else each for each in rows.keys]
        further += _where_present(keys, _KEY)
    if rows.event_times_ms is not None:
        times = [None if each is None else each.to_bytes(8, "little", signed=True) for each in rows.event_times_ms]
        further += _where_present(times, _TIME)
    if rows.properties is not None:
        texts = [json.dumps(sorted(each.items())).encode() if each else None for each in rows.properties]
        further += _where_present(texts, _PROPERTIES)
    if rows.topics is not None:
        further += _where_present([each.encode() for each in rows.topics], _TOPIC)
    if rows.partitions is not None:
        numbers = [None if each is None else each.to_bytes(8, "little") for each in rows.partitions]
        further += _where_present(numbers, _PARTITION)
    return int(_mixed(hashes + further).sum(dtype=np.uint64))


def sum_of(digests: Iterable[int]) -> int:
    """The digest of all rows together."""
    return sum(digests) % DIGEST_MODULUS


def _where_present(fields: Sequence[bytes | None], salt: int) -> Hashes:
    """0 for an absent field: an absent column equals a column without values."""
    present = np.fromiter((each is not None for each in fields), bool, len(fields))
    hashes = _mixed(_hashes([each or b"" for each in fields]) + np.array([salt], dtype=np.uint64))
    return np.where(present, hashes, np.zeros(1, dtype=np.uint64))


def _hashes(fields: Sequence[Any]) -> Hashes:
    count = len(fields)
    low = np.fromiter(map(crc32c, fields), np.uint64, count)
    high = np.fromiter(map(zlib.crc32, fields), np.uint64, count)
    lengths = np.fromiter(map(len, fields), np.uint64, count)
    return _mixed((high << np.uint64(32) | low) + _mixed(lengths))


def _mixed(numbers: Hashes) -> Hashes:
    """splitmix64 of each number; arrays wrap around without a warning."""
    mixed = numbers + np.array([_KEY], dtype=np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.array([0xBF58476D1CE4E5B9], dtype=np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.array([0x94D049BB133111EB], dtype=np.uint64)
    found: Hashes = mixed ^ (mixed >> np.uint64(31))
    return found
