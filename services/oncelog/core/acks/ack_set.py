"""Which messages a subscription has acknowledged: `mark_delete`, and a compressed bitmap of indexes above it.

Rules
- Every index below `mark_delete` is acknowledged, and `mark_delete` itself is not. Each change restores this.
- The bitmap holds the acknowledged indexes above `mark_delete`, in blocks of 65,536 indexes as Roaring bitmaps have
  them. Only a cumulative step of `mark_delete` takes indexes out of it, so a block that changed is complete in itself:
  a snapshot writes the blocks of `dirty`, and drops those below `mark_delete`.
- Counts of ranges and bytes are kept per block, so both are known at any time without looking at the bitmap.

Ten million messages with every second one acknowledged take 1.3 MB.
Source: Lemire and others, "Roaring Bitmaps: Implementation of an Optimized Software Library", 2018.
"""

from collections.abc import Iterable

from pyroaring import BitMap64

from oncelog.core.acks.changes import IndexRange
from oncelog.core.acks.index_ranges import count_between
from oncelog.core.acks.roaring_blocks import (
    BITSET_BYTES,
    BLOCK_BITS,
    BLOCK_INDEXES,
    RANGE_BYTES,
    Block,
    bitmap_of,
    blocks_of,
)
from oncelog.core.errors import InvariantViolated

_IN_BLOCK = BLOCK_INDEXES - 1
#: Tag, subscription, number, form, count and size of a block in a snapshot.
_BLOCK_HEADER_BYTES = 16
#: From this many ranges on, they are merged as one bitmap instead of one by one.
_MERGED_RANGES_MIN = 16


def _bytes_of(ranges: int) -> int:
    """The most that a block with so many ranges takes in a snapshot."""
    return _BLOCK_HEADER_BYTES + min(BITSET_BYTES, RANGE_BYTES * ranges)


class AckSet:
    """The acknowledged indexes of one subscription."""

    __slots__ = ("_acked", "_ranges", "dirty", "mark_delete", "range_count", "replaced", "state_bytes")

    def __init__(self, mark_delete: int = 0) -> None:
        #: the lowest index that is not acknowledged
        self.mark_delete = mark_delete
        #: acknowledged ranges above mark_delete
        self.range_count = 0
        #: an upper bound of the bytes that the blocks take in a snapshot
        self.state_bytes = 0
        #: blocks with indexes added since the last snapshot; those below mark_delete may be left out
        self.dirty: set[int] = set()
        #: whether no snapshot contains this set yet, so that it replaces the blocks of the snapshots before
        self.replaced = True
        self._acked = BitMap64()
        #: {block: its acknowledged ranges, cut at its ends}
        self._ranges: dict[int, int] = {}

    @classmethod
    def of_blocks(cls, mark_delete: int, blocks: Iterable[Block]) -> "AckSet":
        """The set with these blocks of a snapshot, which may hold indexes below mark_delete."""
        acks = cls(mark_delete)
        acks.replaced = False
        kept = sorted(block for block in blocks if block.number >= mark_delete >> BLOCK_BITS)
        acks._acked = bitmap_of(kept)
        acks._acked.remove_range(0, mark_delete)
        for block in kept:
            start = block.number << BLOCK_BITS
            acks._set_ranges(block.number, acks._ranges_in(start, start + _IN_BLOCK))
        acks.range_count = sum(acks._ranges.values()) - acks._crossings(list(acks._ranges))
        if mark_delete in acks._acked:
            acks._advance(acks.next_unacked(mark_delete))
        return acks

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AckSet):
            return NotImplemented
        return self.mark_delete == other.mark_delete and self._acked == other._acked

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"AckSet(mark_delete={self.mark_delete}, acked_count={self.acked_count}, range_count={self.range_count})"

    # --- reading ------------------------------------------------------------------------------------------------------

    def contains(self, index: int) -> bool:
        return index < self.mark_delete or index in self._acked

    def next_unacked(self, start: int) -> int:
        """The lowest index from `start` on that is not acknowledged."""
        low = max(start, self.mark_delete)
        acked = self._acked
        if low not in acked:
            return low
        # Block by block: in pyroaring 1.2, BitMap64.contains_range is wrong for a range that ends in an absent block.
        end = (low | _IN_BLOCK) + 1
        while acked.contains_range(low, end):
            low, end = end, end + BLOCK_INDEXES
        if low not in acked:
            return low
        # The block contains `low` and lacks an index before `end`: [low, high) is not contained.
        step, high = 1, low + 2
        while high < end and acked.contains_range(low, high):
            low = high - 1
            step *= 2
            high = low + 1 + step
        high = min(high, end)
        while high - low > 1:
            middle = (low + high) // 2
            if acked.contains_range(low, middle + 1):
                low = middle
            else:
                high = middle
        return high

    def next_acked(self, start: int) -> int | None:
        """The lowest acknowledged index from `start` on that is above mark_delete, or None."""
        return next(self._acked.iter_equal_or_larger(start), None)

    def acked_between(self, first: int, below: int) -> int:
        """How many of the indexes first .. below - 1 are acknowledged."""
        settled = max(0, min(below, self.mark_delete) - first)
        return settled + count_between(self._acked, first, below)

    def unacked_ranges(self, start: int, below: int, max_ranges: int) -> list[IndexRange]:
        """The unacknowledged ranges in start .. below - 1, the lowest `max_ranges` of them."""
        found: list[IndexRange] = []
        first = self.next_unacked(start)
        while first < below and len(found) < max_ranges:
            end = self.next_acked(first)
            if end is None or end >= below:
                found.append(IndexRange(first, below - 1))
                break
            found.append(IndexRange(first, end - 1))
            first = self.next_unacked(end)
        return found

    def after_unacked(self, count: int, below: int, *, but: BitMap64 | None = None) -> int:
        """The index after the lowest `count` unacknowledged ones; `below` if there are fewer before it.

        but: unacknowledged indexes that count as acknowledged."""
        but = BitMap64() if but is None else but
        low, high = self.mark_delete, max(self.mark_delete, below)
        while low < high:
            middle = (low + high) // 2
            acked = self._acked.rank(middle - 1) + but.rank(middle - 1) if middle else 0
            if middle - self.mark_delete - acked < count:
                low = middle + 1
            else:
                high = middle
        return low

    def unacked(self, indexes: BitMap64) -> BitMap64:
        """The members of a set that are not acknowledged."""
        left = indexes - self._acked
        left.remove_range(0, self.mark_delete)
        return left

    @property
    def end(self) -> int:
        """Above every acknowledged index."""
        return self._acked.max() + 1 if self._acked else self.mark_delete

    def ranges(self) -> list[IndexRange]:
        """All acknowledged ranges above mark_delete, ascending."""
        found: list[IndexRange] = []
        first = self.next_acked(self.mark_delete)
        while first is not None:
            end = self.next_unacked(first)
            found.append(IndexRange(first, end - 1))
            first = self.next_acked(end)
        return found

    def blocks(self, *, changed: bool) -> list[Block]:
        """The blocks for a snapshot: all, or those that gained indexes since the last one."""
        if not changed:
            return blocks_of(self._acked)
        part = BitMap64()
        for block in sorted(self.dirty & self._ranges.keys()):
            start = block << BLOCK_BITS
            part.add_range(start, start + BLOCK_INDEXES)
        return blocks_of(part & self._acked)

    @property
    def acked_count(self) -> int:
        """Acknowledged indexes above mark_delete."""
        return len(self._acked)

    @property
    def hole_count(self) -> int:
        """Indexes that are not acknowledged, below an acknowledged one."""
        return self._acked.max() + 1 - self.mark_delete - len(self._acked) if self._acked else 0

    # --- adding -------------------------------------------------------------------------------------------------------

    def add(self, ranges: Iterable[IndexRange]) -> None:
        """Acknowledge ranges."""
        above: list[IndexRange] = []
        for each in ranges:
            if each.first > self.mark_delete:
                above.append(each)
            else:
                self.add_below(each.last + 1)
        if any(first <= self.mark_delete for first, _ in above):
            self.add(above)  # the ranges were not ascending, and the mark has passed one of them
        elif len(above) >= max(_MERGED_RANGES_MIN, len(self._ranges) // 16):
            self._merge(above)
        else:
            for first, last in above:
                self._insert(first, last)
        if self.mark_delete in self._acked:
            self._advance(self.next_unacked(self.mark_delete))

    def add_below(self, below: int) -> None:
        """Acknowledge every index below `below`."""
        if below > self.mark_delete:
            self._advance(self.next_unacked(below))

    def _advance(self, mark_delete: int) -> None:
        """Raise mark_delete to an unacknowledged index, and drop what is below."""
        former, self.mark_delete = self.mark_delete, mark_delete
        ranges = self._ranges
        if not ranges:
            return
        self.range_count -= self._ranges_in(former, mark_delete - 1)
        block = mark_delete >> BLOCK_BITS
        passed = range(former >> BLOCK_BITS, block)
        for each in [each for each in ranges if each < block] if len(passed) > len(ranges) else passed:
            self._set_ranges(each, 0)
        if block in ranges:
            gone = self._ranges_in(max(former, block << BLOCK_BITS), mark_delete - 1)
            self._set_ranges(block, ranges[block] - gone)
        self._acked.remove_range(former, mark_delete)

    def _insert(self, first: int, last: int) -> None:
        """Add a range above mark_delete."""
        acked = self._acked
        block = first >> BLOCK_BITS
        if block != last >> BLOCK_BITS or acked.range_cardinality(first, last + 1):
            self._merge([IndexRange(first, last)])
            return
        before, after = first - 1 in acked, last + 1 in acked
        self.range_count += 1 - before - after
        joined = (before and bool(first & _IN_BLOCK)) + (after and last & _IN_BLOCK != _IN_BLOCK)
        self._set_ranges(block, self._ranges.get(block, 0) + 1 - joined)
        self.dirty.add(block)
        acked.add_range(first, last + 1)

    def _merge(self, ranges: list[IndexRange]) -> None:
        """Add ranges above mark_delete, and count the ranges of the changed blocks again."""
        added = BitMap64([first for first, last in ranges if first == last])
        blocks: dict[int, None] = {}
        whole: set[int] = set()
        for first, last in ranges:
            if first < last:
                added.add_range(first, last + 1)
            start, end = first >> BLOCK_BITS, last >> BLOCK_BITS
            if start == end:
                blocks[start] = None
            else:
                blocks.update(dict.fromkeys(range(start, end + 1)))
                whole.update(range(start + 1, end))
        edges = list(dict.fromkeys(edge for block in blocks for edge in (block, block + 1)))
        self.range_count -= sum(self._ranges.get(block, 0) for block in blocks) - self._crossings(edges)
        self._acked |= added
        for block in blocks:
            start = block << BLOCK_BITS
            self._set_ranges(block, 1 if block in whole else self._ranges_in(start, start + _IN_BLOCK))
        self.range_count += sum(self._ranges[block] for block in blocks) - self._crossings(edges)
        self.dirty.update(blocks)

    def _crossings(self, blocks: list[int]) -> int:
        """How many of these blocks begin inside of an acknowledged range."""
        acked = self._acked
        return sum((start := block << BLOCK_BITS) in acked and start - 1 in acked for block in blocks if block)

    def _ranges_in(self, first: int, last: int) -> int:
        """The acknowledged ranges in first..last, cut at both ends."""
        acked = self._acked
        if last - first > BLOCK_INDEXES:
            first, last = max(first, acked.min()), min(last, acked.max())
        # The small bitmap is on the left, because Roaring walks through the left one.
        part = BitMap64(range(first, last + 1)) & acked
        count = len(part)
        return count if count < 2 else count - part.intersection_cardinality(part.shift(1))

    def _set_ranges(self, block: int, count: int) -> None:
        before = self._ranges.get(block, 0)
        if before:
            self.state_bytes -= _bytes_of(before)
        if count:
            self.state_bytes += _bytes_of(count)
            self._ranges[block] = count
        else:
            self._ranges.pop(block, None)

    def without(self, ranges: Iterable[IndexRange]) -> "AckSet":
        """The same set, these ranges not acknowledged. No snapshot contains it yet."""
        taken = list(ranges)
        mark_delete = min([self.mark_delete, *(first for first, _ in taken)])
        left = self._acked.copy()
        left.add_range(mark_delete, self.mark_delete)
        for first, last in taken:
            left.remove_range(first, last + 1)
        acks = AckSet.of_blocks(mark_delete, blocks_of(left))
        acks.replaced = True
        return acks

    def check_invariants(self) -> None:
        acked = self._acked
        if acked and acked.min() <= self.mark_delete:
            raise InvariantViolated(f"index {acked.min()} is kept although mark_delete is {self.mark_delete}")
        ranges = self.ranges()
        if self.range_count != len(ranges):
            raise InvariantViolated(f"{len(ranges)} ranges are counted as {self.range_count}")
        blocks: dict[int, int] = {}
        for first, last in ranges:
            for block in range(first >> BLOCK_BITS, (last >> BLOCK_BITS) + 1):
                blocks[block] = blocks.get(block, 0) + 1
        if blocks != self._ranges or sum(map(_bytes_of, blocks.values())) != self.state_bytes:
            wrong = [block for block in blocks.keys() | self._ranges if blocks.get(block) != self._ranges.get(block)]
            raise InvariantViolated(f"the ranges of blocks {sorted(wrong)[:9]} or their bytes are counted wrong")
