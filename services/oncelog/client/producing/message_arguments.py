"""Checks and packs what an application gives for each message: values, keys, event times and properties."""

from collections.abc import Mapping, Sequence

from oncelog.client.producing.send_buffer import Extras, Properties, pack_extras
from oncelog.client.values.arguments import check_type
from oncelog.core.errors import InvalidArgument
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.columns import check_event_times, encode_event_times, encode_properties

Key = bytes | str


def plain_bytes(value: object, *, field: str, kinds: str = "bytes") -> bytes:
    """A copy that the caller can no longer change. kinds: what is accepted, for the error. Raises InvalidArgument."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise InvalidArgument(f"{field} must be {kinds}, not {type(value).__name__}", field=field)
    return bytes(value)


def check_lengths(values: Sequence[Buffer], *columns: Sequence[object] | None) -> None:
    """Raises InvalidArgument unless each column has one item for each value."""
    if type(values) is not list and (not hasattr(values, "__len__") or isinstance(values, str | bytes | Mapping)):
        raise InvalidArgument(f"values must be a list of bytes, not {type(values).__name__}", field="values")
    names = ("sequence_ids", "keys", "event_times_ms", "properties")
    for name, column in zip(names, columns, strict=True):
        if column is None:
            continue
        if not hasattr(column, "__len__") or isinstance(column, str | bytes | Mapping):
            raise InvalidArgument(f"{name} must be a list, not {type(column).__name__}", field=name)
        if len(column) != len(values):
            message = f"{name} has {len(column)} items for {len(values)} values: give one item for each value"
            raise InvalidArgument(message, field=name, limit=len(values))


def plain_key(key: Key | None) -> bytes | None:
    if key is None or type(key) is bytes:
        return key
    try:
        return key.encode() if isinstance(key, str) else plain_bytes(key, field="key", kinds="bytes or str")
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"key must be bytes or a str that UTF-8 can encode: {error}", field="key") from error


def checked_extras(key: Key | None, event_time_ms: int | None, properties: Properties | None) -> Extras:
    """Check the optional fields now, so that a wrong message fails alone and not with its batch."""
    if event_time_ms is not None:
        check_event_times([event_time_ms])
        encode_event_times([event_time_ms])
    if properties:
        check_type("properties", properties, Mapping, "a mapping of text to text")
        encode_properties([properties])
    return Extras(plain_key(key), event_time_ms, properties)


def pack_columns(
    count: int,
    batch: slice,
    keys: Sequence[Key | None] | None,
    event_times_ms: Sequence[int | None] | None,
    properties: Sequence[Properties | None] | None,
) -> bytes:
    """The optional columns of one batch of a list. Times that no calendar has are taken: lists also hold copies of
    stored messages, by mirrors for example."""
    nothing = (None,) * count
    columns = zip(
        nothing if keys is None else keys[batch],
        nothing if event_times_ms is None else event_times_ms[batch],
        nothing if properties is None else properties[batch],
        strict=True,
    )
    return pack_extras([Extras(plain_key(key), time_ms, own) for key, time_ms, own in columns])
