"""Messages that were given but not packed yet: what arrives while the producer cannot send becomes one batch."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from oncelog.client.results import SendResult
from oncelog.core.errors import OncelogError
from oncelog.core.formats.batch import SPARSE_IDS_MAX, Buffer
from oncelog.core.formats.columns import encode_event_times, encode_keys, encode_properties, pack_values
from oncelog.core.producer.sequence_ids import BatchIds, pack_sequence_ids

#: What one message may add to the size of its batch beside its bytes: a header of its own, its lengths, its id delta.
MESSAGE_OVERHEAD_BYTES = 96

Properties = Mapping[str, str]


class Extras(NamedTuple):
    """What few messages have."""

    key: bytes | None
    event_time_ms: int | None
    properties: Properties | None

    @property
    def size_bytes(self) -> int:
        properties = sum(len(k) + len(v) + 6 for k, v in self.properties.items()) * 4 if self.properties else 0
        return 48 + (len(self.key) if self.key is not None else 0) + properties


_NO_EXTRAS = Extras(None, None, None)


@dataclass(frozen=True, slots=True)
class Packed:
    """One batch to be: its columns, and whom to tell. ids: as given, None when they are automatic."""

    payload: bytes
    count: int
    packed_ids: BatchIds | None
    ids: Sequence[int] | None
    futures: "list[asyncio.Future[SendResult]]"


class Packer:
    """Cuts sequences of messages into batches of at most `bytes_max`; remembers how many usually fit."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._count_hint = 4096

    def pack(self, values: Sequence[Buffer], start: int, end: int) -> tuple[bytes, int]:
        """One VALUES column from values[start:end], and how many it took. Raises InvalidArgument, MessageTooLarge."""
        hint = min(end - start, self._count_hint)
        column, count = pack_values(values, start, bytes_max=self.bytes_max, count_hint=hint)
        if count < hint:
            # What is sliced and not taken is measured in vain: stay close above what fits.
            self._count_hint = min(SPARSE_IDS_MAX, max(64, count + count // 8))
        elif hint == self._count_hint:
            self._count_hint = min(SPARSE_IDS_MAX, hint * 2)
        return column, count


def pack_extras(extras: Sequence[Extras]) -> bytes:
    """The columns that at least one of these messages uses."""
    columns = []
    if any(each.key is not None for each in extras):
        columns.append(encode_keys([each.key for each in extras]))
    if any(each.event_time_ms is not None for each in extras):
        columns.append(encode_event_times([each.event_time_ms for each in extras]))
    if any(each.properties for each in extras):
        columns.append(encode_properties([each.properties for each in extras]))
    return b"".join(columns)


class SendBuffer:
    """Values, ids and futures, side by side."""

    def __init__(self, packer: Packer, *, contiguous: bool) -> None:
        self.size_bytes = 0
        self._contiguous = contiguous
        self._packer = packer
        self._values: list[Buffer] = []
        self._futures: list[asyncio.Future[SendResult]] = []
        #: parallel to the values, or empty when ids are automatic
        self._ids: list[int] = []
        #: {index of the value: its extras}
        self._extras: dict[int, Extras] = {}

    def __len__(self) -> int:
        return len(self._values)

    def add(
        self, value: bytes, sequence_id: int | None, extras: Extras | None, future: "asyncio.Future[SendResult]"
    ) -> None:
        if extras is not None:
            self._extras[len(self._values)] = extras
            self.size_bytes += extras.size_bytes
        if sequence_id is not None:
            self._ids.append(sequence_id)
        self._values.append(value)
        self._futures.append(future)
        self.size_bytes += len(value) + MESSAGE_OVERHEAD_BYTES

    def take_all(self) -> list[Packed]:
        """Everything as batches, in order. Ids that do not ascend (of a contiguous producer: leave a gap) begin one."""
        values, futures, ids, extras = self._values, self._futures, self._ids, self._extras
        self._values, self._futures, self._ids, self._extras = [], [], [], {}
        self.size_bytes = 0
        packed = []
        start, end = 0, 0 if ids else len(values)
        while start < len(values):
            if start == end:
                end = self._run_end(ids, start)
            payload, count = self._packer.pack(values, start, end)
            if extras:
                payload += pack_extras([extras.get(i, _NO_EXTRAS) for i in range(start, start + count)])
            given = ids[start : start + count] if ids else None
            packed_ids = None if given is None else pack_sequence_ids(given)
            packed.append(Packed(payload, count, packed_ids, given, futures[start : start + count]))
            start += count
        return packed

    def fail_all(self, error: OncelogError) -> None:
        """None of them was handed over, so none of them is stored."""
        for future in self._futures:
            if not future.done():
                future.set_exception(error.of_send(stored=False))
        self._values, self._futures, self._ids, self._extras = [], [], [], {}
        self.size_bytes = 0

    def _run_end(self, ids: Sequence[int], start: int) -> int:
        """Index behind the longest run of ids, from `start`, that one batch can hold."""
        end = start + 1
        while end < len(ids) and (ids[end] == ids[end - 1] + 1 or (ids[end] > ids[end - 1] and not self._contiguous)):
            end += 1
        return end
