"""The recent batches of one producer, stored in few bytes.

The recent batches of a producer are kept in one of two forms:

    open     56 bytes a batch, plus the id deltas of batches with holes: while the producer stores batches
    packed   about 16 bytes a batch, as in a snapshot, without id deltas: when it is idle, and after a takeover

Reading never changes the form, so memory never grows without being counted. The next append opens a packed form.

Packed: count of batches 1, then varints for each batch: ids between the previous batch and this one, last - first,
holes, offset, ledger - ledger of the previous batch, entry (in the same ledger: entries between the two batches). If
128 is added to the count, three more follow for each batch: generation (0: checksum and time are not remembered),
checksum, publish time - publish time of the previous batch that has one, zigzag.
Of a unit (see `core.formats.batch`), last - first + count stands in place of the holes: other batches have fewer.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple, overload

from oncelog.core.errors import CorruptEntry, InvariantViolated
from oncelog.core.formats.batch import BatchHeader, Buffer, decode_ids
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.formats.epoched_ids import epoch_of, last_of
from oncelog.core.formats.outcome import ResultKind, ResultRange
from oncelog.core.ids import NOT_DEDUPLICATED, EntryId, Generation, LedgerId, Position, SequenceId

#: Stored batches remembered per producer. The SDK keeps at most as many in flight, so a resend is always answered
#: exactly.
RECENT_BATCHES_MAX = 64
#: Longer id deltas are not kept in memory once they are durable; the entry is read when they are needed.
RECENT_DELTAS_BYTES_MAX = 8192
#: Approximate memory of the objects of one open or packed producer, besides their bytes.
_OPEN_BYTES = 200
_PACKED_BYTES = 80
_DELTAS_BYTES = 130
_RECORD = Struct("<qqIIqqIIq")
_LAST = Struct("<q")
_NUMBERS = 6
_NUMBERS_WITH_CONTENT = 9
#: Added to the count of a packed form with checksums.
_WITH_CONTENT = 128
_CONTINUED = bytes(range(128, 256))
#: In place of the offset in a record. A unit has no offset, and that of another batch is below its count.
_OF_A_UNIT = 2**32 - 1


class RecentBatch(NamedTuple):
    """One stored batch of a producer, without its skipped messages.

    deltas: the ids as `encode_deltas` gives them, relative to `first`; b"" when dense, None when only the entry has
    them. offset: batch_index of `first` in its entry. generation, publish_time_ms, checksum: of its header, to
    recognize other content under the same ids; generation 0: not remembered. unit: stored as a whole, so that its ids
    are not known, nor does the count say anything about them.
    """

    first: SequenceId
    last: SequenceId
    count: int  # type: ignore[assignment]  # hides tuple.count, which has no use here
    position: Position
    offset: int
    deltas: bytes | None
    generation: int = 0
    publish_time_ms: int = 0
    checksum: int = 0
    unit: bool = False

    @property
    def dense(self) -> bool:
        return self.count == self.last - self.first + 1 and not self.unit

    def without_long_deltas(self) -> "RecentBatch":
        long = self.deltas is not None and len(self.deltas) > RECENT_DELTAS_BYTES_MAX
        return self._replace(deltas=None) if long else self


def ids_of_batch(batch: RecentBatch) -> Sequence[int]:
    """The ids of a batch whose deltas are remembered."""
    if batch.deltas is None or batch.unit:
        raise InvariantViolated(f"the ids of the batch at {batch.position} are not remembered")
    shape = BatchHeader(
        NOT_DEDUPLICATED, Generation(0), batch.first, batch.last, batch.count, 0, 0, 1, len(batch.deltas), 0, 0
    )
    return decode_ids(shape, batch.deltas)


class RecentBatches(Sequence[RecentBatch]):
    """The recent batches of one producer, ascending by id and position. counted: bytes counted by the budget."""

    __slots__ = ("_data", "_deltas", "counted")

    def __init__(self, batches: Iterable[RecentBatch] = ()) -> None:
        #: bytearray: records; bytes: packed
        self._data: bytearray | bytes = b""
        #: {last id: deltas} of open batches with holes, or None
        self._deltas: dict[int, bytes] | None = None
        self.counted = 0
        for batch in batches:
            self.append(batch)

    @classmethod
    def unpack(cls, packed: Buffer) -> "RecentBatches":
        """NO_BATCHES if there are none. Raises CorruptEntry unless the bytes are what `packed` gives."""
        data = bytes(packed)
        check_packed(data)
        if data == b"\0":
            return NO_BATCHES
        batches = cls()
        batches._data = data
        return batches

    def packed(self) -> bytes:
        """At least one byte."""
        if isinstance(self._data, bytes):
            return self._data or b"\0"
        return _pack(self)

    # --- reading ------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        data = self._data
        if isinstance(data, bytearray):
            return len(data) // _RECORD.size
        return data[0] & ~_WITH_CONTENT if data else 0

    def __iter__(self) -> Iterator[RecentBatch]:
        if isinstance(self._data, bytes):
            yield from _unpack(self._data)
            return
        deltas = self._deltas or {}
        for first, last, count, offset, ledger, entry, *content in _RECORD.iter_unpack(bytes(self._data)):
            unit = offset == _OF_A_UNIT
            known = unit or count == last - first + 1
            place = Position(LedgerId(ledger), EntryId(entry))
            checksum, generation, time_ms = content
            yield RecentBatch(
                first,
                last,
                count,
                place,
                0 if unit else offset,
                b"" if known else deltas.get(last),
                generation,
                time_ms,
                checksum,
                unit,
            )

    def spans(self) -> Iterator[tuple[SequenceId, SequenceId]]:
        """The first and the last id of each batch."""
        if isinstance(self._data, bytes):
            return ((batch.first, batch.last) for batch in _unpack(self._data))
        return ((first, last) for first, last, *_ in _RECORD.iter_unpack(bytes(self._data)))

    @overload
    def __getitem__(self, index: int) -> RecentBatch: ...
    @overload
    def __getitem__(self, index: slice) -> list[RecentBatch]: ...
    def __getitem__(self, index: int | slice) -> RecentBatch | list[RecentBatch]:
        return list(self)[index]

    def last_of(self, index: int) -> SequenceId:
        """The last id of the batch at `index`."""
        if isinstance(self._data, bytearray):
            return SequenceId(_LAST.unpack_from(self._data, index * _RECORD.size + _LAST.size)[0])
        return self[index].last

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"RecentBatches({list(self)!r})"

    @property
    def is_open(self) -> bool:
        return isinstance(self._data, bytearray)

    @property
    def bytes(self) -> int:
        """Approximate memory in bytes; 0 when there are no batches."""
        size = len(self._data)
        if not size:
            return 0
        if isinstance(self._data, bytes):
            return size + _PACKED_BYTES
        deltas = self._deltas
        return size + _OPEN_BYTES + (sum(map(len, deltas.values())) + _DELTAS_BYTES * len(deltas) if deltas else 0)

    # --- changing -----------------------------------------------------------------------------------------------------

    def append(self, batch: RecentBatch) -> None:
        data = self._data
        if isinstance(data, bytes):
            data = self._open()
        data += _packed_record(batch)
        if batch.deltas or self._deltas is not None:
            self._set_deltas(batch)

    def replace(self, index: int, batch: RecentBatch) -> None:
        """Replace the batch at `index`, which has the same ids."""
        at = index * _RECORD.size
        self._open()[at : at + _RECORD.size] = _packed_record(batch)
        self._set_deltas(batch)

    def drop_first(self, count: int) -> None:
        """Forget the oldest `count`."""
        if count >= len(self):
            self._data, self._deltas = b"", None
            return
        data = self._open()
        if self._deltas:
            for index in range(count):
                self._deltas.pop(self.last_of(index), None)
        del data[: count * _RECORD.size]

    def pack(self) -> None:
        """Change to the packed form. It drops the deltas of batches with holes; their entries have them."""
        if isinstance(self._data, bytearray):
            self._data, self._deltas = _pack(self) if self._data else b"", None

    def _open(self) -> bytearray:
        if isinstance(self._data, bytes):
            batches = list(self)
            self._data = bytearray()
            for batch in batches:
                self.append(batch)
        return self._data

    def _set_deltas(self, batch: RecentBatch) -> None:
        if batch.deltas:
            if self._deltas is None:
                self._deltas = {}
            self._deltas[batch.last] = batch.deltas
        elif self._deltas is not None:
            self._deltas.pop(batch.last, None)


#: Shared by all producers without recent batches, and never changed: an object of its own would be an eighth of what
#: an idle producer takes.
NO_BATCHES = RecentBatches()


def _packed_record(batch: RecentBatch) -> bytes:
    first, last, count, position, offset, _, generation, publish_time_ms, checksum, unit = batch
    place = _OF_A_UNIT if unit else offset
    return _RECORD.pack(first, last, count, place, *position, checksum, generation, publish_time_ms)


def check_packed(data: bytes) -> None:
    """Raises CorruptEntry unless the bytes are what `RecentBatches.packed` gives."""
    if data == b"\0":
        return
    count, numbers = _shape_of(data) if data else (0, 0)
    if not count or len(data[1:].translate(None, _CONTINUED)) != count * numbers or data[-1] > 127:
        raise CorruptEntry("the packed batches of a producer contradict their count")


def _shape_of(packed: bytes) -> tuple[int, int]:
    """(count of batches, numbers of each)."""
    with_content = packed[0] & _WITH_CONTENT
    return packed[0] & ~_WITH_CONTENT, _NUMBERS_WITH_CONTENT if with_content else _NUMBERS


def _pack(batches: Sequence[RecentBatch]) -> bytes:
    numbers: list[int] = []
    before, ledger, entry, time_ms = -1, 0, -1, 0
    count = 0
    given = list(batches)
    with_content = any(batch.generation for batch in given)
    for batch in given:
        place = batch.position
        within, span = place.ledger_id == ledger, batch.last - batch.first
        numbers += (
            batch.first - before - 1, span, span + batch.count if batch.unit else span + 1 - batch.count, batch.offset,
            place.ledger_id - ledger, place.entry_id - entry - 1 if within else place.entry_id,
        )  # fmt: skip
        before, ledger, entry = batch.last, place.ledger_id, place.entry_id
        count += 1
        if with_content and batch.generation:
            later = batch.publish_time_ms - time_ms
            numbers += (batch.generation, batch.checksum, later * 2 if later >= 0 else -later * 2 - 1)
            time_ms = batch.publish_time_ms
        elif with_content:
            numbers += (0, 0, 0)
    if numbers and min(numbers) < 0:
        raise InvariantViolated("the recent batches of a producer do not ascend")
    out = bytearray((count + _WITH_CONTENT * with_content,))
    for number in numbers:
        rest = number
        while rest > 127:
            out.append(rest & 127 | 128)
            rest >>= 7
        out.append(rest)
    return bytes(out)


def _unpack(packed: bytes) -> Iterator[RecentBatch]:
    numbers: list[int] = []
    value = shift = 0
    for byte in packed[1:]:
        if byte > 127:
            value |= (byte & 127) << shift
            shift += 7
        else:
            numbers.append(value | byte << shift)
            value = shift = 0
    before, ledger, entry, time_ms = -1, 0, -1, 0
    _, size = _shape_of(packed) if packed else (0, _NUMBERS)
    for at in range(0, len(numbers), size):
        gap, span, holes, offset, ledgers, entries, *content = numbers[at : at + size]
        entry = entries if ledgers else entry + 1 + entries
        ledger += ledgers
        first = before + 1 + gap
        before = first + span
        place = Position(LedgerId(ledger), EntryId(entry))
        unit = holes > span
        count, deltas = (holes - span, b"") if unit else (span + 1 - holes, None if holes else b"")
        recent = RecentBatch(SequenceId(first), SequenceId(before), count, place, offset, deltas, unit=unit)
        if content and content[0]:
            generation, checksum, later = content
            time_ms += -(later + 1 >> 1) if later & 1 else later >> 1
            recent = recent._replace(generation=generation, publish_time_ms=time_ms, checksum=checksum)
        yield recent


# --- what became of ids that may be stored ---------------------------------------------------------------------------


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
