"""The payload format COLUMNS: the messages of one batch, column by column.

Little-endian. A payload is a sequence of columns, each

    0 1 column id      1 3 zero      4 4 content, bytes (n)      8 n content

VALUES is always present and first. The other columns are present when at least one message of the batch uses them, in
any order, at most once each. A reader skips unknown column ids. `count` comes from the batch's header.

    VALUES 1       count x u32 length, then the values' bytes, concatenated
    KEYS 2         count x u32 length, 0xFFFFFFFF for a message without a key, then the keys' bytes
    EVENT_TIMES 3  count x i64 milliseconds since 1970, -2**63 for a message without one
    PROPERTIES 4   count x u32 length, then for each message, in its length: repeated u16 key length, key in UTF-8,
                   u32 value length, value in UTF-8
    ORIGIN 8       one record for all messages: where a mirror has copied them from (see `origin`)
    CHUNKS 9       where the parts of the value of the only message are (see `chunks`)
    PULSAR 10      the metadata of the client of Pulsar that has sent the only message in chunks, as it came, without
                   what it says of its chunks: for such clients, which get it back

A producer packs a column with one array and one join; a reader slices one buffer. Received bytes are untrusted: every
contradiction raises InvalidBatch with its reason, before anything larger than the bytes themselves is allocated.
"""

import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import accumulate, pairwise
from struct import Struct
from struct import error as _struct_error
from typing import NamedTuple, overload

from oncelog.core.errors import InvalidArgument, InvalidBatch, MessageTooLarge
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.encryption import Encryption

_HEAD = Struct("<B3xI")
_HEAD_CHECK = Struct("<II")
_U16 = Struct("<H")
_U32 = Struct("<I")
COLUMN_HEADER_BYTES = _HEAD.size
LENGTH_BYTES = 4
#: In the KEYS column: a message without a key.
NONE_LENGTH = 0xFFFFFFFF
_NONE_TIME = -(2**63)
#: of the years 1 to 9999, in UTC, in milliseconds since 1970: what a calendar has
TIME_MS_MIN, TIME_MS_MAX = -62_135_596_800_000, 253_402_300_799_999
_CONTENT_BYTES_MAX = 2**32 - 1
_LITTLE = sys.byteorder == "little"
assert array("I").itemsize == LENGTH_BYTES


class Column(IntEnum):
    VALUES = 1
    KEYS = 2
    EVENT_TIMES = 3
    PROPERTIES = 4
    ORIGIN = 8
    CHUNKS = 9
    PULSAR = 10


class Values(Sequence[memoryview]):
    """The values of one batch: slices of one buffer, made on access.

    data: the concatenated bytes. offsets: count + 1 ascending numbers; value i is data[offsets[i] : offsets[i + 1]].
    """

    __slots__ = ("data", "offsets")

    def __init__(self, data: memoryview, offsets: Sequence[int]) -> None:
        self.data = data
        self.offsets = offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> memoryview: ...
    @overload
    def __getitem__(self, index: slice) -> "Values": ...
    def __getitem__(self, index: int | slice) -> "memoryview | Values":
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                raise ValueError("values can only be sliced without a step")
            return Values(self.data, self.offsets[start : max(start, stop) + 1])
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError("value index out of range")
        return self.data[self.offsets[index] : self.offsets[index + 1]]

    def __iter__(self) -> Iterator[memoryview]:
        data = self.data
        starts = iter(self.offsets)
        start = next(starts)
        for end in starts:
            yield data[start:end]
            start = end

    def to_list(self) -> list[bytes]:
        """All values as bytes objects: one copy, at C speed per value."""
        data, offsets = bytes(self.data[self.offsets[0] : self.offsets[-1]]), self.offsets
        if isinstance(offsets, range):
            width = offsets.step
            return [data[i : i + width] for i in range(0, len(data), width)]
        base = offsets[0]
        return [data[a - base : b - base] for a, b in pairwise(offsets)]


#: Of one message of a client of Kafka: keys and values, None: null, in order. A key may be there more than once.
Headers = tuple[tuple[str, bytes | None], ...]


class Columns(NamedTuple):
    """One decoded payload. A column that is absent is None; all that are there have the batch's count of items."""

    values: Values
    keys: Sequence[bytes | None] | None = None
    event_times_ms: Sequence[int | None] | None = None
    properties: Sequence[Mapping[str, str]] | None = None
    #: of the whole batch
    origin: memoryview | None = None
    #: whether each message's value is null; it is empty here. None: no value is
    nulls: Sequence[bool] | None = None
    #: sequence ids of a unit (see `batch`)
    ids: Sequence[int] | None = None
    #: of the whole batch, whose values are empty here
    encryption: Encryption | None = None
    #: of clients of Kafka; `properties` has those that are text
    headers: Sequence[Headers] | None = None


def pack_values(values: Sequence[Buffer], start: int, *, bytes_max: int, count_hint: int) -> tuple[bytes, int]:
    """Pack values[start:start + n] into a VALUES column and return it with n.

    n >= 1 is the largest number that fits into bytes_max (values and their lengths), at most count_hint. A value larger
    than bytes_max gets a column of its own. Raises InvalidArgument for a value that is not bytes.
    """
    chunk = values[start : start + count_hint]
    try:
        lengths = list(map(len, chunk))
        total = sum(lengths)
        if total + LENGTH_BYTES * len(chunk) > bytes_max and len(chunk) > 1:
            fitting, total = _fitting(lengths, total, bytes_max)
            chunk, lengths = chunk[:fitting], lengths[:fitting]
        content_bytes = total + LENGTH_BYTES * len(chunk)
        if content_bytes > _CONTENT_BYTES_MAX:
            raise MessageTooLarge(
                f"a value of {total} bytes exceeds the limit of a batch", field="value", limit=_CONTENT_BYTES_MAX
            )
        column = b"".join([_HEAD.pack(Column.VALUES, content_bytes), _packed(array("I", lengths)), *chunk])
    except TypeError as error:
        raise InvalidArgument(f"a value must be bytes, bytearray or memoryview: {error}", field="value") from error
    except OverflowError as error:
        raise MessageTooLarge(
            "a value exceeds the limit of a batch", field="value", limit=_CONTENT_BYTES_MAX
        ) from error
    if len(column) != COLUMN_HEADER_BYTES + content_bytes:
        raise InvalidArgument("a memoryview value must be of single bytes; cast it to 'B'", field="value")
    return column, len(chunk)


def _fitting(lengths: Sequence[int], total: int, bytes_max: int) -> tuple[int, int]:
    """How many of the first values fit with their lengths, at least one, and the bytes of those values.

    The number is estimated from the mean size and then corrected in both directions. Nearly all sums are computed in C,
    and for values of similar size the first estimate is right.
    """
    count = len(lengths)
    while count > 1 and total + LENGTH_BYTES * count > bytes_max:
        fewer = max(1, min(count - 1, count * bytes_max // (total + LENGTH_BYTES * count)))
        total -= sum(lengths[fewer:count])
        count = fewer
    while count < len(lengths) and total + lengths[count] + LENGTH_BYTES * (count + 1) <= bytes_max:
        total += lengths[count]
        count += 1
    return count, total


def encode_values(values: Sequence[Buffer]) -> bytes:
    """The VALUES column of a whole batch. Raises InvalidArgument for a value that is not bytes."""
    return pack_values(values, 0, bytes_max=_CONTENT_BYTES_MAX, count_hint=len(values))[0]


def encode_keys(keys: Sequence[bytes | None]) -> bytes:
    """The KEYS column; None for a message without a key."""
    lengths = array("I", (NONE_LENGTH if key is None else len(key) for key in keys))
    return encode_column(Column.KEYS, [_packed(lengths), *(key for key in keys if key is not None)])


def check_event_times(times_ms: Sequence[int | None]) -> None:
    """Raises InvalidArgument for a time of a new message that no calendar has, such as one in another unit, or a bool.
    Stored messages may have one; what is no integer is left to `encode_event_times`."""
    for time_ms in times_ms:
        if time_ms is None:
            continue
        if isinstance(time_ms, bool):
            message = "event_time_ms must be milliseconds since 1970, not a bool"
            raise InvalidArgument(message, field="event_time_ms")
        try:
            known = TIME_MS_MIN <= time_ms <= TIME_MS_MAX
        except TypeError:
            continue
        if not known:
            message = f"event_time_ms must be milliseconds since 1970, in the years 1 to 9999, not {time_ms}"
            raise InvalidArgument(message, field="event_time_ms")


def encode_event_times(times_ms: Sequence[int | None]) -> bytes:
    """The EVENT_TIMES column. Raises InvalidArgument for a time that is not an integer of 64 bits above -2**63."""
    try:
        times = array("q", (_NONE_TIME if time is None else time for time in times_ms))
    except (TypeError, OverflowError) as error:
        raise InvalidArgument(
            f"event_time_ms must be milliseconds since 1970: {error}", field="event_time_ms"
        ) from error
    return encode_column(Column.EVENT_TIMES, [_packed(times)])


def encode_properties(properties: Sequence[Mapping[str, str] | None]) -> bytes:
    """The PROPERTIES column. Raises InvalidArgument for a key or value that is not a string or is too long."""
    sections: list[bytes] = []
    previous, section = None, b""
    for each in properties:
        if each is not previous:  # the messages of a list often share one mapping
            previous, section = each, _properties_section(each) if each else b""
        sections.append(section)
    return encode_column(Column.PROPERTIES, [_packed(array("I", map(len, sections))), *sections])


def encode_origin(content: bytes) -> bytes:
    """The ORIGIN column. content: as `pack_origin` gives it."""
    return encode_column(Column.ORIGIN, [content])


def split_columns(payload: Buffer, count: int) -> dict[int, memoryview]:
    """{column id: its content} of an uncompressed payload of `count` messages, unread. VALUES is always present.

    Raises InvalidBatch with the reason; nothing else.
    """
    data = memoryview(payload).toreadonly()
    found: dict[int, memoryview] = {}
    at = 0
    while at < len(data):
        if len(data) - at < COLUMN_HEADER_BYTES:
            raise InvalidBatch("the payload ends inside a column's header", field="payload")
        identity, content_bytes = _HEAD_CHECK.unpack_from(data, at)
        at += COLUMN_HEADER_BYTES
        if not found and identity != Column.VALUES:
            raise InvalidBatch("the first column is not the values'", field="payload")
        if identity > 255 or identity in found:
            raise InvalidBatch(f"column {identity & 255} is malformed or present twice", field="payload")
        if content_bytes > len(data) - at:
            raise InvalidBatch(
                f"column {identity} claims more bytes than the payload has", field="payload", limit=len(data) - at
            )
        found[identity] = data[at : at + content_bytes]
        at += content_bytes
    if Column.VALUES not in found or count < 1:
        raise InvalidBatch("a payload needs values and a count of at least 1", field="payload")
    return found


def decode_columns(payload: Buffer, count: int) -> Columns:
    """Read an uncompressed payload of `count` messages. Raises InvalidBatch with the reason; nothing else."""
    found = split_columns(payload, count)
    keys, times, properties = (found.get(c) for c in (Column.KEYS, Column.EVENT_TIMES, Column.PROPERTIES))
    return Columns(
        _decode_values(found[Column.VALUES], count),
        None if keys is None else decode_keys(keys, count),
        None if times is None else _decode_times(times, count),
        None if properties is None else decode_properties(properties, count),
        found.get(Column.ORIGIN),
    )


def _packed(numbers: "array[int]") -> bytes:
    if not _LITTLE:
        numbers = array(numbers.typecode, numbers)
        numbers.byteswap()
    return numbers.tobytes()


def _unpacked(data: memoryview, typecode: str) -> "memoryview | array[int]":
    if _LITTLE:
        return data.cast(typecode)  # type: ignore[call-overload,no-any-return]
    numbers = array(typecode, data.tobytes())
    numbers.byteswap()
    return numbers


def column_head(column: int, content_bytes: int) -> bytes:
    """What precedes the content of a column."""
    return _HEAD.pack(column, content_bytes)


def encode_column(column: Column, parts: list[bytes]) -> bytes:
    """A column with this content. Raises MessageTooLarge."""
    content_bytes = sum(map(len, parts))
    if content_bytes > _CONTENT_BYTES_MAX:
        raise MessageTooLarge(
            f"the {column.name.lower()} of one batch are too large for a batch", field=column.name.lower()
        )
    return b"".join([_HEAD.pack(column, content_bytes), *parts])


def _properties_section(properties: Mapping[str, str]) -> bytes:
    out = bytearray()
    for key, value in properties.items():
        try:
            packed_key, packed_value = str.encode(key), str.encode(value)
        except TypeError as error:
            raise _not_a_string(key, value) from error
        except UnicodeEncodeError as error:
            raise InvalidArgument(f"properties must be valid Unicode: {error}", field="properties") from error
        if len(packed_key) > 0xFFFF:
            raise InvalidArgument("a property's key has at most 65535 bytes", field="properties", limit=0xFFFF)
        out += _U16.pack(len(packed_key)) + packed_key + _U32.pack(len(packed_value)) + packed_value
    return bytes(out)


def _not_a_string(key: object, value: object) -> InvalidArgument:
    wrong, what = (value, f"properties[{key!r}]") if isinstance(key, str) else (key, "a key of properties")
    return InvalidArgument(f"{what[:200]} must be a string, not {type(wrong).__name__}", field="properties")


def split_lengths(content: memoryview, count: int, name: str) -> tuple["memoryview | array[int]", memoryview]:
    """Cut a column into its lengths and its bytes: nothing is built from a count that the content does not hold."""
    if count * LENGTH_BYTES > len(content):
        raise InvalidBatch(f"the {name} column is too short for {count} lengths", field="payload", limit=len(content))
    return _unpacked(content[: count * LENGTH_BYTES], "I"), content[count * LENGTH_BYTES :]


def _decode_values(content: memoryview, count: int) -> Values:
    lengths, data = split_lengths(content, count, "values")
    width = lengths[0]
    # All values have the same length, a common case: the offsets are a range, found by one comparison of bytes.
    if width and width * count == len(data) and content[: count * LENGTH_BYTES] == _packed(array("I", [width])) * count:
        return Values(data, range(0, len(data) + 1, width))
    offsets = list(accumulate(lengths, initial=0))
    if offsets[-1] != len(data):
        raise InvalidBatch("the values' lengths do not add up to their bytes", field="payload", limit=len(data))
    return Values(data, offsets)


def decode_keys(content: memoryview, count: int) -> list[bytes | None]:
    """The KEYS column; None for a message without a key. Raises InvalidBatch."""
    lengths, data = split_lengths(content, count, "keys")
    keys: list[bytes | None] = []
    at = 0
    for length in lengths:
        if length == NONE_LENGTH:
            keys.append(None)
            continue
        keys.append(bytes(data[at : at + length]))
        at += length
    if at != len(data):
        raise InvalidBatch("the keys' lengths do not add up to their bytes", field="payload", limit=len(data))
    return keys


def _decode_times(content: memoryview, count: int) -> list[int | None]:
    if len(content) != 8 * count:
        raise InvalidBatch(f"the event times are not {count} numbers of 8 bytes", field="payload", limit=len(content))
    return [None if time == _NONE_TIME else time for time in _unpacked(content, "q")]


def decode_properties(content: memoryview, count: int) -> list[dict[str, str]]:
    """The PROPERTIES column; {} for a message without any. Raises InvalidBatch."""
    lengths, data = split_lengths(content, count, "properties")
    decoded: list[dict[str, str]] = []
    at = 0
    for length in lengths:
        if length > len(data) - at:
            raise InvalidBatch("the properties' lengths exceed their bytes", field="payload", limit=len(data))
        decoded.append(_decode_section(bytes(data[at : at + length])))
        at += length
    if at != len(data):
        raise InvalidBatch("the properties' lengths do not add up to their bytes", field="payload", limit=len(data))
    return decoded


def _decode_section(section: bytes) -> dict[str, str]:
    properties: dict[str, str] = {}
    at = 0
    try:
        while at < len(section):
            (key_bytes,) = _U16.unpack_from(section, at)
            key_end = at + _U16.size + key_bytes
            (value_bytes,) = _U32.unpack_from(section, key_end)
            value_end = key_end + _U32.size + value_bytes
            if value_end > len(section):
                raise InvalidBatch(
                    "a property claims more bytes than the payload has", field="payload", limit=len(section)
                )
            properties[section[at + _U16.size : key_end].decode()] = section[key_end + _U32.size : value_end].decode()
            at = value_end
    except (ValueError, _struct_error) as error:
        raise InvalidBatch(f"the properties of a message are malformed: {error}", field="payload") from error
    return properties
