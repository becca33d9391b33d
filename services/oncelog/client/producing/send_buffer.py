"""Messages that are not packed yet: those that arrive while the producer cannot send become one batch."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from oncelog.client.values.results import SendResult
from oncelog.core.errors import InvalidArgument, OncelogError
from oncelog.core.formats.batch import SPARSE_IDS_MAX, Buffer
from oncelog.core.formats.columns import encode_event_times, encode_keys, encode_properties, pack_values
from oncelog.core.sdk.producer.sequence_ids import BatchIds, pack_sequence_ids

#: Upper bound of what one message adds to its batch beside its own bytes: a header, its lengths, its id delta.
MESSAGE_OVERHEAD_BYTES = 96

Properties = Mapping[str, str]
ResultT = TypeVar("ResultT")
#: Called once, with a result or with an error.
SendCallback = Callable[[SendResult | None, OncelogError | None], None]
SendReceiver = asyncio.Future[SendResult] | SendCallback


class Extras(NamedTuple):
    """The optional fields of a message."""

    key: bytes | None
    event_time_ms: int | None
    properties: Properties | None

    @property
    def size_bytes(self) -> int:
        properties = sum(len(k) + len(v) + 6 for k, v in self.properties.items()) * 4 if self.properties else 0
        return 48 + (len(self.key) if self.key is not None else 0) + properties


_NO_EXTRAS = Extras(None, None, None)


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """One batch ready to be sent, and who gets the result of each message. ids: as given, None: they are automatic."""

    payload: bytes
    count: int
    packed_ids: BatchIds | None
    ids: Sequence[int] | None
    receivers: list[SendReceiver]


class Packer:
    """Cuts sequences of messages into batches of at most `bytes_max`; remembers how many messages usually fit."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._count_hint = 4096

    def pack(self, values: Sequence[Buffer], start: int, end: int) -> tuple[bytes, int]:
        """Return (one VALUES column from values[start:end], how many values it holds). Raises InvalidArgument,
        MessageTooLarge."""
        hint = min(end - start, self._count_hint)
        column, count = pack_values(values, start, bytes_max=self.bytes_max, count_hint=hint)
        if count < hint:
            # Values beyond the limit were measured in vain: keep the hint close above the number that fits.
            self._count_hint = min(SPARSE_IDS_MAX, max(64, count + count // 8))
        elif hint == self._count_hint:
            self._count_hint = min(SPARSE_IDS_MAX, hint * 2)
        return column, count


def pack_extras(extras: Sequence[Extras]) -> bytes:
    """The optional columns that at least one of these messages uses."""
    columns = []
    if any(each.key is not None for each in extras):
        columns.append(encode_keys([each.key for each in extras]))
    if any(each.event_time_ms is not None for each in extras):
        columns.append(encode_event_times([each.event_time_ms for each in extras]))
    if any(each.properties for each in extras):
        columns.append(encode_properties([each.properties for each in extras]))
    return b"".join(columns)


class SendBuffer:
    """The gathered messages: values, ids and receivers in parallel lists."""

    def __init__(self, packer: Packer, *, contiguous: bool) -> None:
        self.size_bytes = 0
        self._contiguous = contiguous
        self._packer = packer
        self._values: list[Buffer] = []
        self._receivers: list[SendReceiver] = []
        #: parallel to the values, or empty when ids are automatic
        self._ids: list[int] = []
        #: {index of the value: its extras}
        self._extras: dict[int, Extras] = {}

    def __len__(self) -> int:
        return len(self._values)

    def add_options(self, sequence_id: int | None, extras: Extras | None) -> None:
        """Those of the message that is added next."""
        if extras is not None:
            self._extras[len(self._values)] = extras
            self.size_bytes += extras.size_bytes
        if sequence_id is not None:
            self._ids.append(sequence_id)

    def add(self, value: bytes, receiver: SendReceiver) -> None:
        self._values.append(value)
        self._receivers.append(receiver)
        self.size_bytes += len(value) + MESSAGE_OVERHEAD_BYTES

    def take_all(self) -> list[PackedBatch]:
        """Everything as batches, in order. An id that does not ascend starts a new batch; so does a gap in the ids of a
        contiguous producer."""
        values, receivers, ids, extras = self._values, self._receivers, self._ids, self._extras
        self._values, self._receivers, self._ids, self._extras = [], [], [], {}
        self.size_bytes = 0
        packed = []
        start, end = 0, 0 if ids else len(values)
        while start < len(values):
            if start == end:
                end = self._batch_end(ids, start)
            payload, count = self._packer.pack(values, start, end)
            if extras:
                payload += pack_extras([extras.get(i, _NO_EXTRAS) for i in range(start, start + count)])
            given = ids[start : start + count] if ids else None
            packed_ids = None if given is None else pack_sequence_ids(given)
            packed.append(PackedBatch(payload, count, packed_ids, given, receivers[start : start + count]))
            start += count
        return packed

    def fail_all(self, error: OncelogError) -> None:
        """Fail all messages. None of them was sent, so none is stored."""
        receivers = self._receivers
        self._values, self._receivers, self._ids, self._extras = [], [], [], {}
        for receiver in receivers:
            fail(receiver, error.of_send(stored=False))
        self.size_bytes = 0

    def _batch_end(self, ids: Sequence[int], start: int) -> int:
        """The index after the longest sequence of ids from `start` that one batch can hold."""
        end = start + 1
        while end < len(ids) and (ids[end] == ids[end - 1] + 1 or (ids[end] > ids[end - 1] and not self._contiguous)):
            end += 1
        return end


def fail(receiver: SendReceiver, error: OncelogError) -> None:
    if isinstance(receiver, asyncio.Future):
        if not receiver.done():
            receiver.set_exception(error)
        return
    call(receiver, None, error)


def check_callback(callback: object) -> None:
    """None: there is none. Raises InvalidArgument."""
    if callback is not None and not callable(callback):
        message = f"on_result must be a function, not {type(callback).__name__}"
        raise InvalidArgument(message, field="on_result").of_send(stored=False)


def call(
    callback: Callable[[ResultT | None, OncelogError | None], None], result: ResultT | None, error: OncelogError | None
) -> None:
    """Call an application's callback. What it raises goes to the event loop's exception handler, as asyncio does for
    callbacks of futures; so does a CancelledError, which nobody asked for. The other messages get their results."""
    try:
        callback(result, error)
    except (Exception, asyncio.CancelledError) as raised:  # noqa: BLE001  # the application's
        _report(callback, raised)


def _report(callback: Callable[..., None], error: BaseException) -> None:
    asyncio.get_running_loop().call_exception_handler(
        {"message": f"the callback {callback!r} of a message failed", "exception": error}
    )
