"""What became of ids that may be stored, from the recent batches of their producer and from its mode."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from oncelog.core.formats.entry import SequenceMode
from oncelog.core.formats.epoched_ids import epoch_of, last_of
from oncelog.core.formats.outcome import ResultKind, ResultRange
from oncelog.core.ids import Position, SequenceId
from oncelog.core.publishing.recent_batches import RecentBatch, ids_of_batch


@dataclass(frozen=True, slots=True)
class NeedIds:
    """The check needs ids of a batch with holes, which only its entry holds: read it, `learn_deltas`, check again."""

    position: Position


def locate(
    ids: Sequence[int], recent_batches: Sequence[RecentBatch], *, floor: SequenceId, mode: SequenceMode
) -> tuple[ResultRange, ...] | NeedIds:
    """Find each id (ascending) in the recent batches (ascending). Ids that were never stored are stale.

    Ids at or below `floor` are older than the recent batches: exact duplicates for a contiguous producer, not verified
    for a monotonic one. Those of an epoched one are of one epoch.
    """
    ranges: list[ResultRange] = []
    i = bisect_right(ids, floor)
    if i:
        mark = recent_batches[-1].last if recent_batches else floor
        ranges.append(ResultRange(_kind_of_older(ids[0], mode, mark), i, None, 0))
    while i < len(ids):
        at = bisect_left(recent_batches, ids[i], key=lambda recent: recent.last)
        begin = bisect_left(ids, recent_batches[at].first, i) if at < len(recent_batches) else len(ids)
        if begin > i:
            ranges.append(_stale_range(begin - i))
        else:
            begin = bisect_right(ids, recent_batches[at].last, i)
            found = _ranges_in(ids[i:begin], recent_batches[at])
            if isinstance(found, NeedIds):
                return found
            ranges += found
        i = begin
    return _merged(ranges)


def _kind_of_older(oldest: int, mode: SequenceMode, mark: SequenceId) -> ResultKind:
    """Of ids that are older than the recent batches. mark: the highest id."""
    match mode:
        case SequenceMode.MONOTONIC:
            return ResultKind.BELOW_MARK
        case SequenceMode.CONTIGUOUS:
            return ResultKind.DUPLICATE
        case SequenceMode.EPOCHED:
            epoch = epoch_of(mark)
            stored = epoch_of(oldest) == epoch and mark != last_of(epoch)
            return ResultKind.DUPLICATE if stored else ResultKind.STALE_SEQUENCE


def _stale_range(count: int) -> ResultRange:
    return ResultRange(ResultKind.STALE_SEQUENCE, count, None, 0)


def _merged(ranges: list[ResultRange]) -> tuple[ResultRange, ...]:
    """Join adjacent stale ranges."""
    merged: list[ResultRange] = []
    for range_ in ranges:
        if merged and merged[-1].kind is range_.kind is ResultKind.STALE_SEQUENCE:
            merged[-1] = _stale_range(merged[-1].count + range_.count)
        else:
            merged.append(range_)
    return tuple(merged)


def _ranges_in(ids: Sequence[int], recent: RecentBatch) -> list[ResultRange] | NeedIds:
    """The results of ids within the batch's span; ids in its holes are stale. Which ids a unit has is not known."""
    if recent.unit:
        return [ResultRange(ResultKind.BELOW_MARK, len(ids), None, 0)]
    if recent.dense:
        if isinstance(ids, range):
            return _ranges_of(range(ids[0] - recent.first, ids[-1] - recent.first + 1), recent)
        return _ranges_of([i - recent.first for i in ids], recent)
    if recent.deltas is None:
        return NeedIds(recent.position)
    stored = ids_of_batch(recent)
    if len(ids) > recent.count:
        # Bounded also for a hostile count: only the ids of the stored batch are looked up.
        positions = [(bisect_left(ids, each), index) for index, each in enumerate(stored)]
        found = [(at, index) for at, index in positions if at < len(ids) and ids[at] == stored[index]]
        return _ranges_between(len(ids), found, recent)
    indexes = [bisect_left(stored, i) for i in ids]
    found = [(at, index) for at, index in enumerate(indexes) if index < len(stored) and stored[index] == ids[at]]
    return _ranges_of(indexes, recent) if len(found) == len(ids) else _ranges_between(len(ids), found, recent)


def _ranges_between(count: int, found: Sequence[tuple[int, int]], recent: RecentBatch) -> list[ResultRange]:
    """Results of `count` ids. found: (index among the ids, index in the batch) of those that are in the batch."""
    ranges: list[ResultRange] = []
    done = 0
    for at, index in found:
        if at > done:
            ranges.append(_stale_range(at - done))
        last = ranges[-1] if ranges else None
        if last is not None and last.kind is ResultKind.DUPLICATE and last.offset + last.count == recent.offset + index:
            ranges[-1] = last._replace(count=last.count + 1)
        else:
            ranges.append(ResultRange(ResultKind.DUPLICATE, 1, recent.position, recent.offset + index))
        done = at + 1
    if done < count:
        ranges.append(_stale_range(count - done))
    return ranges


def _ranges_of(indexes: Sequence[int], recent: RecentBatch) -> list[ResultRange]:
    """One range for each sequence of consecutive indexes; every id is in the batch."""
    if indexes[-1] - indexes[0] == len(indexes) - 1:
        return [ResultRange(ResultKind.DUPLICATE, len(indexes), recent.position, recent.offset + indexes[0])]
    return _ranges_between(len(indexes), list(enumerate(indexes)), recent)
