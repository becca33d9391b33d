"""Bodies of Kafka's messages, read and written by their tables (`wire.kafka_tables`), in both forms of the protocol.

    plain       texts have a length of two bytes, bytes and lists one of four; -1 is null
    flexible    lengths are varints of the length + 1, 0 is null; each struct ends with tagged fields

A body is a dict {name of a field: value}, lists are lists, structs are dicts; `bytes` and `records` are slices of what
was read, not copies. A message has the fields of its version: a field that is missing when it is written has its
default, and fields of other versions are not written.

Received bytes are untrusted. A length is compared with the bytes that are there before anything is made of it, the
elements of all lists of a message are counted, and bytes behind the last field are an error. How deep a message nests
is what its table says. Tagged fields that are not known are skipped.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any

from oncelog.core.errors import InvalidArgument
from oncelog_doors.connections.received import Buffer
from oncelog_doors.core.shared.varints import varint
from oncelog_doors.wire.kafka_tables import REQUESTS, RESPONSES, Field

Body = dict[str, Any]

TEXT_BYTES_MAX = 32 * 1024
#: Of all lists of one message: an element may take one byte here, and hundreds as an object.
ELEMENTS_MAX = 100_000
_VARINT_BYTES_MAX = 5
_NUMBERS = {
    name: Struct(f">{code}")
    for name, code in (("bool", "?"), ("int8", "b"), ("int16", "h"), ("int32", "i"), ("int64", "q"))
}
_INT16, _INT32 = _NUMBERS["int16"], _NUMBERS["int32"]


class _Malformed(Exception):
    """Of one field. limit: what would be allowed."""

    def __init__(self, sentence: str, limit: int | None = None) -> None:
        super().__init__(sentence)
        self.limit = limit


class _Input:
    """Bytes, and how many of them were read."""

    __slots__ = ("at", "elements", "view")

    def __init__(self, data: Buffer) -> None:
        self.view, self.at, self.elements = memoryview(data), 0, 0

    @property
    def left(self) -> int:
        return len(self.view) - self.at

    def take(self, count: int) -> memoryview:
        if count > self.left:
            raise _Malformed(f"{count} bytes are wanted, and {self.left} are left", self.left)
        self.at += count
        return self.view[self.at - count : self.at]

    def number(self, kind: Struct) -> Any:
        return kind.unpack(self.take(kind.size))[0]

    def varint(self) -> int:
        value = shift = 0
        for byte in self.view[self.at : self.at + _VARINT_BYTES_MAX]:
            self.at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
        raise _Malformed("a varint does not end", _VARINT_BYTES_MAX)


_Reads = Callable[[_Input], Any]
#: It appends to the parts of a message.
_Writes = Callable[[list[Buffer], Any], None]


# --- lengths: None is null --------------------------------------------------------------------------------------------


def _plain_length(kind: Struct) -> Callable[[_Input], int | None]:
    def read(data: _Input) -> int | None:
        length: int = data.number(kind)
        if length < -1:
            raise _Malformed(f"a length is {length}", -1)
        return None if length < 0 else length

    return read


def _compact_length(data: _Input) -> int | None:
    length = data.varint()
    return length - 1 if length else None


def _write_plain_length(kind: Struct) -> Callable[[int | None], bytes]:
    return lambda length: kind.pack(-1 if length is None else length)


def _write_compact_length(length: int | None) -> bytes:
    return varint(0 if length is None else length + 1)


# --- types ------------------------------------------------------------------------------------------------------------


def _read_primitive(name: str, *, nullable: bool, flexible: bool) -> _Reads:
    kind = _NUMBERS.get(name)
    if kind is not None:
        return lambda data: data.number(kind)
    length_of = _compact_length if flexible else _plain_length(_INT16 if name == "string" else _INT32)

    def read(data: _Input) -> Any:
        length = length_of(data)
        if length is None:
            if not nullable:
                raise _Malformed("it is null")
            return None
        if name != "string":
            return data.take(length)
        if length > TEXT_BYTES_MAX:
            raise _Malformed(f"a text has {length} bytes, at most {TEXT_BYTES_MAX} are allowed", TEXT_BYTES_MAX)
        try:
            return str(data.take(length), "utf-8")
        except UnicodeDecodeError as error:
            raise _Malformed("a text is not UTF-8") from error

    return read


def _write_primitive(name: str, *, flexible: bool) -> _Writes:
    kind = _NUMBERS.get(name)
    if kind is not None:
        return lambda out, value: out.append(kind.pack(value))
    length = _write_compact_length if flexible else _write_plain_length(_INT16 if name == "string" else _INT32)

    def write(out: list[Buffer], value: str | Buffer | None) -> None:
        data = value.encode() if isinstance(value, str) else value
        out.append(length(None if data is None else len(data)))
        if data is not None:
            out.append(data)

    return write


def _read_list(one: _Reads, least_bytes: int, *, nullable: bool, flexible: bool) -> _Reads:
    length_of = _compact_length if flexible else _plain_length(_INT32)

    def read(data: _Input) -> list[Any] | None:
        count = length_of(data)
        if count is None:
            if not nullable:
                raise _Malformed("it is null")
            return None
        if count * least_bytes > data.left:
            raise _Malformed(f"{count} elements do not fit in {data.left} bytes", data.left // least_bytes)
        data.elements += count
        if data.elements > ELEMENTS_MAX:
            raise _Malformed(f"a message has more than {ELEMENTS_MAX} elements", ELEMENTS_MAX)
        return [one(data) for _ in range(count)]

    return read


def _write_list(one: _Writes, *, flexible: bool) -> _Writes:
    length = _write_compact_length if flexible else _write_plain_length(_INT32)

    def write(out: list[Buffer], values: Sequence[Any] | None) -> None:
        out.append(length(None if values is None else len(values)))
        for value in values or ():
            one(out, value)

    return write


class _Struct:
    """The fields that one version of a struct has."""

    def __init__(self, fields: tuple[Field, ...], version: int, *, flexible: bool) -> None:
        self._flexible = flexible
        self._plan: list[tuple[str, _Reads, _Writes, Any]] = []
        self._tagged: dict[int, tuple[str, _Reads, _Writes, Any]] = {}
        self.least_bytes = 1 if flexible else 0
        for field in fields:
            if not field.since <= version <= field.until:
                continue
            read, write, least_bytes = _one_of(field, version, flexible=flexible)
            step = (field.name, read, write, _default(field))
            if version >= field.tagged:
                self._tagged[field.tag] = step
            else:
                self._plan.append(step)
                self.least_bytes += least_bytes

    def read(self, data: _Input) -> Body:
        out: Body = {}
        for name, read, _write, _default_value in self._plan:
            try:
                out[name] = read(data)
            except _Malformed as error:
                raise InvalidArgument(f"{name}: {error}", field=name, limit=error.limit) from error
        if self._flexible:
            self._read_tagged(data, out)
        return out

    def _read_tagged(self, data: _Input, out: Body) -> None:
        out.update({name: default for name, _, _, default in self._tagged.values()})
        try:
            for _ in range(data.varint()):
                tag, part = data.varint(), _Input(data.take(data.varint()))
                if tag in self._tagged:
                    name, read, _, _ = self._tagged[tag]
                    part.elements = data.elements
                    out[name] = read(part)
                    data.elements = part.elements
        except _Malformed as error:
            raise InvalidArgument(f"tagged fields: {error}", field="tagged_fields", limit=error.limit) from error

    def write(self, out: list[Buffer], body: Mapping[str, Any]) -> None:
        for name, _read, write, default in self._plan:
            write(out, body.get(name, default))
        if not self._flexible:
            return
        tagged = [(tag, step) for tag, step in sorted(self._tagged.items()) if step[0] in body]
        out.append(varint(len(tagged)))
        for tag, (name, _, write, _) in tagged:
            part: list[Buffer] = []
            write(part, body[name])
            data = b"".join(part)
            out += [varint(tag), varint(len(data)), data]


def _one_of(field: Field, version: int, *, flexible: bool) -> tuple[_Reads, _Writes, int]:
    """How a field is read and written, and the fewest bytes that it takes."""
    nullable = version >= field.nullable
    read: _Reads
    write: _Writes
    if isinstance(field.type, tuple):
        struct = _Struct(field.type, version, flexible=flexible)
        read, write, least_bytes = struct.read, struct.write, struct.least_bytes
    else:
        own_nullable = nullable and not field.array
        read = _read_primitive(field.type, nullable=own_nullable, flexible=flexible)
        write = _write_primitive(field.type, flexible=flexible)
        kind = _NUMBERS.get(field.type) or (_INT16 if field.type == "string" else _INT32)
        least_bytes = 1 if flexible and field.type not in _NUMBERS else kind.size
    if not field.array:
        return read, write, least_bytes
    one = _read_list(read, max(1, least_bytes), nullable=nullable, flexible=flexible)
    return one, _write_list(write, flexible=flexible), 1 if flexible else _INT32.size


def _default(field: Field) -> Any:
    if field.default == "null":
        return None
    if field.array:
        return []
    if isinstance(field.type, tuple):
        return {}
    if field.type == "bool":
        return field.default == "true"
    if field.type in _NUMBERS:
        return int(field.default or "0", 0)
    return field.default if field.type == "string" else b""


@lru_cache(maxsize=1024)
def _struct_of(kind: str, api: str, version: int) -> _Struct:
    message = (REQUESTS if kind == "request" else RESPONSES)[api]
    return _Struct(message.fields, version, flexible=version >= message.flexible)


def _read(struct: _Struct, data: Buffer) -> Body:
    source = _Input(data)
    body = struct.read(source)
    if source.left:
        raise InvalidArgument(f"{source.left} bytes follow the last field", field="size", limit=source.at)
    return body


def _written(struct: _Struct, body: Mapping[str, Any]) -> list[Buffer]:
    out: list[Buffer] = []
    struct.write(out, body)
    return out


def read_request(api: str, version: int, data: Buffer) -> Body:
    """Raises InvalidArgument, which names the field."""
    return _read(_struct_of("request", api, version), data)


def write_response(api: str, version: int, body: Mapping[str, Any]) -> list[Buffer]:
    """The parts, in order: values of `bytes` and `records` are not copied."""
    return _written(_struct_of("response", api, version), body)


def read_response(api: str, version: int, data: Buffer) -> Body:
    """As a client does. Raises InvalidArgument."""
    return _read(_struct_of("response", api, version), data)


def write_request(api: str, version: int, body: Mapping[str, Any]) -> list[Buffer]:
    """As a client does."""
    return _written(_struct_of("request", api, version), body)
