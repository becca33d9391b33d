"""The blocks of a bitmap of indexes, as a snapshot stores them: 65,536 indexes each, in one of three forms.

    ARRAY    the offsets of at most 4,096 indexes in the block, ascending, 2 bytes each
    BITSET   8,192 bytes, one bit for each index of the block, the lowest first
    RANGES   the offset of the first index of each range 2, and its length minus one 2; ascending, not adjacent

These are the containers of Roaring bitmaps, and `pyroaring` reads and writes them in its portable format, so both
directions copy bytes and visit no index. What is read is validated first: the library trusts its input.
Source: the Roaring format specification (RoaringFormatSpec), which no longer changes.
"""

from collections.abc import Iterable
from enum import IntEnum
from itertools import groupby, pairwise
from struct import Struct, unpack, unpack_from
from typing import NamedTuple

from pyroaring import BitMap64

from oncelog.core.errors import CorruptEntry

BLOCK_BITS = 16
BLOCK_INDEXES = 1 << BLOCK_BITS
BITSET_BYTES = BLOCK_INDEXES // 8
ARRAY_INDEXES_MAX = 4096
RANGE_BYTES = 4

_NO_RANGES_COOKIE = 12346
_RANGES_COOKIE = 12347
#: A bitmap with ranges has a table of offsets only from this many containers on.
_OFFSETS_MIN = 4
_COUNT, _WORD, _HALF, _KEY = Struct("<Q"), Struct("<I"), Struct("<H"), Struct("<HH")


class BlockForm(IntEnum):
    ARRAY = 0
    BITSET = 1
    RANGES = 2


class Block(NamedTuple):
    """The indexes number * 65,536 + offset. count: of the indexes, 1 or more."""

    number: int
    form: BlockForm
    count: int  # type: ignore[assignment]  # hides tuple.count, which has no use here
    data: bytes


def blocks_of(bitmap: BitMap64) -> list[Block]:
    """The blocks with indexes, ascending, each in its smallest form."""
    bitmap = bitmap.copy()
    bitmap.run_optimize()
    data = bitmap.serialize()
    (parts,) = _COUNT.unpack_from(data)
    at = _COUNT.size
    found: list[Block] = []
    for _ in range(parts):
        (high,) = _WORD.unpack_from(data, at)
        at = _read_part(data, at + _WORD.size, high << BLOCK_BITS, found)
    return found


def _read_part(data: bytes, at: int, first_block: int, found: list[Block]) -> int:
    """Read the 32-bit bitmap at `at`; returns where it ends."""
    (cookie,) = _WORD.unpack_from(data, at)
    at += _WORD.size
    with_ranges = b""
    if cookie & 0xFFFF == _RANGES_COOKIE:
        size = (cookie >> 16) + 1
        with_ranges = data[at : at + (size + 7) // 8]
        at += len(with_ranges)
    else:
        (size,) = _WORD.unpack_from(data, at)
        at += _WORD.size
    keys = list(_KEY.iter_unpack(data[at : at + _KEY.size * size]))
    at += _KEY.size * size
    if not with_ranges or size >= _OFFSETS_MIN:
        at += _WORD.size * size
    for i, (key, count_minus_one) in enumerate(keys):
        if with_ranges and with_ranges[i // 8] >> i % 8 & 1:
            form = BlockForm.RANGES
            (ranges,) = _HALF.unpack_from(data, at)
            at += _HALF.size
            size = RANGE_BYTES * ranges
        elif count_minus_one >= ARRAY_INDEXES_MAX:
            form, size = BlockForm.BITSET, BITSET_BYTES
        else:
            form, size = BlockForm.ARRAY, 2 * (count_minus_one + 1)
        found.append(Block(first_block + key, form, count_minus_one + 1, data[at : at + size]))
        at += size
    return at


def bitmap_of(blocks: Iterable[Block]) -> BitMap64:
    """The inverse of `blocks_of`, of valid blocks in ascending order."""
    parts: list[bytes] = []
    for high, group in groupby(blocks, key=lambda block: block.number >> BLOCK_BITS):
        parts.append(_WORD.pack(high) + _part(list(group)))
    return BitMap64.deserialize(_COUNT.pack(len(parts)) + b"".join(parts)) if parts else BitMap64()


def _part(blocks: list[Block]) -> bytes:
    size = len(blocks)
    flags = bytearray((size + 7) // 8)
    for i, block in enumerate(blocks):
        if block.form is BlockForm.RANGES:
            flags[i // 8] |= 1 << i % 8
    if any(flags):
        head = _WORD.pack(_RANGES_COOKIE | size - 1 << 16) + flags
    else:
        head = _WORD.pack(_NO_RANGES_COOKIE) + _WORD.pack(size)
    keys = b"".join(_KEY.pack(block.number & 0xFFFF, block.count - 1) for block in blocks)
    containers = [
        _HALF.pack(len(block.data) // RANGE_BYTES) + block.data if block.form is BlockForm.RANGES else block.data
        for block in blocks
    ]
    offsets = bytearray()
    if not any(flags) or size >= _OFFSETS_MIN:
        at = len(head) + len(keys) + _WORD.size * size
        for container in containers:
            offsets += _WORD.pack(at)
            at += len(container)
    return bytes(head) + keys + bytes(offsets) + b"".join(containers)


def check_block(block: Block) -> None:
    """Raises CorruptEntry unless the data has the form and the count."""
    valid = {BlockForm.ARRAY: _array_valid, BlockForm.BITSET: _bitset_valid, BlockForm.RANGES: _ranges_valid}
    if not valid[block.form](block.data, block.count):
        raise CorruptEntry(
            f"block {block.number} of acknowledgements is not {block.count} indexes as {block.form.name}"
        )


def _array_valid(data: bytes, count: int) -> bool:
    if not 1 <= count <= ARRAY_INDEXES_MAX or len(data) != 2 * count:
        return False
    return all(before < after for before, after in pairwise(unpack(f"<{count}H", data)))


def _bitset_valid(data: bytes, count: int) -> bool:
    if count <= ARRAY_INDEXES_MAX or len(data) != BITSET_BYTES:
        return False
    return int.from_bytes(data, "little").bit_count() == count


def _ranges_valid(data: bytes, count: int) -> bool:
    if not data or len(data) % RANGE_BYTES:
        return False
    following, found = 0, 0
    for at in range(0, len(data), RANGE_BYTES):
        first, more = unpack_from("<HH", data, at)
        if first < following:
            return False
        # One index at least lies between two ranges.
        following, found = first + more + 2, found + more + 1
    return following <= BLOCK_INDEXES + 1 and found == count
