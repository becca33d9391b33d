"""Frames: how commands lie on a connection.

    [size][command size][command]                                         most commands
    [size][command size][command][0x0e02 size BrokerEntry]?[entry]        SEND from clients, MESSAGE to them
    entry = [0x0e01][CRC32C][metadata size][metadata][payload]

Numbers have four bytes, the marks two, big-endian. A size counts what comes behind it; the checksum is over what comes
behind it. An entry is stored and delivered as the client wrote it: no byte of it is built again.

A client may send an entry without the mark and the checksum, as Pulsar allows. It gets both when its frame is read, so
everything behind the door checks it as all others; what happened to it on its way to the door is not known.

A reader knows after eight bytes whether a frame is too large, and does not read it then. An error ends the
connection: the reader no longer knows where the next frame begins, or the peer is no client of Pulsar.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct

from crc32c import crc32c
from google.protobuf.message import DecodeError

from oncelog.core.errors import InvalidArgument
from oncelog_doors.connections.received import Buffer, ReceivedBytes
from oncelog_doors.pulsar.commands import parse_command
from oncelog_doors.wire.pulsar_commands_pb2 import Command
from oncelog_doors.wire.pulsar_values_pb2 import BrokerEntry

ENTRY_MARK = 0x0E01
BROKER_ENTRY_MARK = 0x0E02
_SIZES = Struct(">II")
_SIZE = Struct(">I")
_MARK = Struct(">H")
_MARK_AND_SIZE = Struct(">HI")
_ENTRY = Struct(">HII")
ENTRY_HEADER_BYTES = _ENTRY.size


@dataclass(frozen=True, slots=True)
class FrameLimits:
    """frame_bytes_max: what `size` may be. command_bytes_max: of a command without an entry. entries: may come."""

    frame_bytes_max: int
    command_bytes_max: int
    entries: bool = True


#: Of a peer that is not authenticated.
BEFORE_CONNECT = FrameLimits(64 * 1024, 64 * 1024, entries=False)
#: Of a command in front of an entry: it holds a few numbers.
ENTRY_COMMAND_BYTES_MAX = 1024
_FRAME_OVERHEAD_BYTES = 64 * 1024
_COMMAND_BYTES_MAX = 1024 * 1024


def limits_after_connect(message_bytes_max: int) -> FrameLimits:
    """message_bytes_max: what CONNECTED says."""
    return FrameLimits(message_bytes_max + _FRAME_OVERHEAD_BYTES, _COMMAND_BYTES_MAX)


@dataclass(frozen=True, slots=True)
class Frame:
    """name: of the command. entry: from 0x0e01 on; None for a command without one. The client's checksum is not
    verified."""

    name: str
    command: Command
    entry: bytes | None = None
    broker_entry: BrokerEntry | None = None


class FrameReader:
    """The frames of one direction of a connection."""

    def __init__(self, limits: FrameLimits = BEFORE_CONNECT, *, with_entry: str = "send") -> None:
        """with_entry: the command that has one; `message` in the other direction."""
        #: may be raised between two frames
        self.limits = limits
        self._with_entry = with_entry
        self._bytes = ReceivedBytes()

    def feed(self, data: Buffer) -> None:
        """Append what was received."""
        self._bytes.feed(data)

    @property
    def unread(self) -> int:
        """Bytes that were received and belong to no frame that was returned."""
        return len(self._bytes)

    def read(self) -> Frame | None:
        """The next frame; None until all of it was received. Raises InvalidArgument: the connection must end then."""
        if self.unread < _SIZES.size:
            if self.unread >= _SIZE.size:
                self._check_frame(self._bytes.peek(_SIZE)[0])
            return None
        size, command_bytes = self._bytes.peek(_SIZES)
        self._check_frame(size)
        entry_bytes = size - _SIZE.size - command_bytes
        self._check_command(command_bytes, entry_bytes)
        if self.unread < size + _SIZE.size:
            return None
        self._bytes.drop(_SIZES.size)
        data = self._bytes.take(command_bytes)
        rest = self._bytes.take(entry_bytes)
        return self._frame(data, rest)

    def _check_frame(self, size: int) -> None:
        limit = self.limits.frame_bytes_max
        if size > limit:
            raise InvalidArgument(f"a frame has {size} bytes, at most {limit} are allowed", field="size", limit=limit)
        if size <= _SIZE.size:
            raise InvalidArgument(f"a frame of {size} bytes has no command", field="size", limit=_SIZE.size + 1)

    def _check_command(self, command_bytes: int, entry_bytes: int) -> None:
        if entry_bytes < 0 or not command_bytes:
            message = f"a command of {command_bytes} bytes does not fit its frame"
            raise InvalidArgument(message, field="command_size", limit=command_bytes + entry_bytes)
        if entry_bytes and not self.limits.entries:
            raise InvalidArgument("an entry came before CONNECT", field="size", limit=command_bytes + _SIZE.size)
        limit = ENTRY_COMMAND_BYTES_MAX if entry_bytes else self.limits.command_bytes_max
        if command_bytes > limit:
            message = f"a command has {command_bytes} bytes, at most {limit} are allowed"
            raise InvalidArgument(message, field="command_size", limit=limit)

    def _frame(self, data: bytes, rest: bytes) -> Frame:
        name, command = parse_command(data)
        if name != self._with_entry:
            if rest:
                raise InvalidArgument(f"{len(rest)} bytes follow {name}, which has no entry", field="size")
            return Frame(name, command)
        broker_entry = None
        if self._with_entry == "message":
            broker_entry, rest = _split_broker_entry(rest)
        elif len(rest) >= _SIZE.size and _MARK.unpack_from(rest)[0] != ENTRY_MARK:
            rest = _with_checksum(rest, name)
        _check_entry(rest, name)
        return Frame(name, command, rest, broker_entry)


def _split_broker_entry(data: bytes) -> tuple[BrokerEntry | None, bytes]:
    if len(data) < _MARK_AND_SIZE.size or _MARK.unpack_from(data)[0] != BROKER_ENTRY_MARK:
        return None, data
    _mark, size = _MARK_AND_SIZE.unpack_from(data)
    end = _MARK_AND_SIZE.size + size
    if end > len(data):
        raise InvalidArgument(f"the {size} bytes in front of an entry are cut off", field="broker_entry_size")
    try:
        return BrokerEntry.FromString(data[_MARK_AND_SIZE.size : end]), data[end:]
    except DecodeError as error:
        raise InvalidArgument("what stands in front of an entry cannot be read", field="broker_entry") from error


def _with_checksum(unmarked: bytes, name: str) -> bytes:
    """An entry that begins with the size of its metadata."""
    [metadata_bytes] = _SIZE.unpack_from(unmarked)
    if metadata_bytes > len(unmarked) - _SIZE.size:
        message = (
            f"{name} has an entry of {len(unmarked)} bytes without a checksum, and metadata of {metadata_bytes} in it"
        )
        raise InvalidArgument(message, field="metadata_size", limit=len(unmarked) - _SIZE.size)
    return _MARK_AND_SIZE.pack(ENTRY_MARK, crc32c(unmarked)) + unmarked


def _check_entry(entry: bytes, name: str) -> None:
    if len(entry) < _ENTRY.size:
        raise InvalidArgument(f"{name} has an entry of {len(entry)} bytes", field="size", limit=_ENTRY.size)
    mark, _checksum, metadata_bytes = _ENTRY.unpack_from(entry)
    if mark != ENTRY_MARK:
        raise InvalidArgument(f"{name} has no checksum: {mark:#06x} is not {ENTRY_MARK:#06x}", field="checksum")
    if metadata_bytes > len(entry) - _ENTRY.size:
        message = f"{name} has an entry of {len(entry)} bytes, and metadata of {metadata_bytes} in it"
        raise InvalidArgument(message, field="metadata_size", limit=len(entry) - _ENTRY.size)


def build_entry(metadata: Buffer, payload: Buffer) -> bytes:
    """An entry that is made here."""
    return _with_checksum(b"".join((_SIZE.pack(len(metadata)), metadata, payload)), "")


def frame_of(command: Command) -> bytes:
    """A command without an entry. Raises EncodeError if a field that clients need is missing."""
    data = command.SerializeToString()
    return _SIZES.pack(len(data) + _SIZE.size, len(data)) + data


def frame_with_entry(command: Command, entry: Buffer, broker_entry: BrokerEntry | None = None) -> Sequence[Buffer]:
    """The parts of a frame, in order: the entry is not copied."""
    data = command.SerializeToString()
    front = b""
    if broker_entry is not None:
        fields = broker_entry.SerializeToString()
        front = _MARK_AND_SIZE.pack(BROKER_ENTRY_MARK, len(fields)) + fields
    size = _SIZE.size + len(data) + len(front) + len(entry)
    return _SIZES.pack(size, len(data)) + data + front, entry
