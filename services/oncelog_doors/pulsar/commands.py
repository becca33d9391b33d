"""Commands by name and by number, and what the values of one may be.

A command has the name of its body in `pulsar_commands.proto`. Its type is the number of that field, as in Pulsar.
No client library sends a command that breaks a limit here. Such a command ends the connection.
"""

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from oncelog.core.errors import InvalidArgument
from oncelog_doors.wire.pulsar_commands_pb2 import Command

TEXT_BYTES_MAX = 32 * 1024
#: Of each list in a command: key ranges, properties.
ITEMS_MAX = 1000
#: Of an acknowledgement, or to be delivered again. Clients of Java send 1,998 at a time, and what they have kept while
#: they were not connected.
MESSAGE_IDS_MAX = 50_000
#: Each has a bit for 64 messages of a batch.
ACK_SET_WORDS_MAX = 16_384

_ITEMS_MAX = {"ack_set": ACK_SET_WORDS_MAX, "message_ids": MESSAGE_IDS_MAX}

_BODIES = Command.DESCRIPTOR.oneofs_by_name["body"].fields
#: {name of a command: its type}
TYPES = {field.name: field.number for field in _BODIES}
#: {type: name of the command}
NAMES = {field.number: field.name for field in _BODIES}
#: Their values are numbers alone, and they are the most frequent ones.
_BOUNDED = {"flow", "ping", "pong", "send"}


def command(**body: Message) -> Command:
    """A command with its one body: `command(pong=Pong())`."""
    (name,) = body
    return Command(type=TYPES[name], **body)  # type: ignore[arg-type]


def parse_command(data: bytes) -> tuple[str, Command]:
    """The name of a command, and the command. Raises InvalidArgument, whose details name the field and the limit."""
    try:
        parsed = Command.FromString(data)
    except DecodeError as error:
        raise InvalidArgument(f"a command of {len(data)} bytes cannot be read: {error}", field="command") from error
    if not parsed.HasField("type"):
        raise InvalidArgument("a command has no type", field="type")
    name = NAMES.get(parsed.type)
    body: str | None = parsed.WhichOneof("body")
    if name is None:
        raise InvalidArgument(f"a command has the unknown type {parsed.type}", field="type")
    if body != name:
        raise InvalidArgument(f"a command has the type of {name}, and the body of {body or 'none'}", field="type")
    if not parsed.IsInitialized():
        missing = ", ".join(parsed.FindInitializationErrors())  # type: ignore[attr-defined]  # not in the stubs
        raise InvalidArgument(f"{name} has not all of its fields: {missing}", field=missing)
    if name not in _BOUNDED:
        _check_values(getattr(parsed, name), name)
    return name, parsed


def _check_values(message: Message, path: str) -> None:
    """Raises InvalidArgument for a text that is too long, or a list of too many items."""
    for field, value in message.ListFields():
        place = f"{path}.{field.name}"
        if field.is_repeated:
            limit = _ITEMS_MAX.get(field.name, ITEMS_MAX)
            if len(value) > limit:
                raise InvalidArgument(f"{place} has {len(value)} items, at most {limit}", field=place, limit=limit)
            if field.type == FieldDescriptor.TYPE_STRING:
                for text in value:
                    _check_text(text, place)
            elif field.message_type is not None:
                for item in value:
                    _check_values(item, place)
        elif field.message_type is not None:
            _check_values(value, place)
        elif field.type == FieldDescriptor.TYPE_STRING:
            _check_text(value, place)


def _check_text(text: str, place: str) -> None:
    if len(text) > TEXT_BYTES_MAX or len(text.encode()) > TEXT_BYTES_MAX:
        raise InvalidArgument(f"{place} has more than {TEXT_BYTES_MAX} bytes", field=place, limit=TEXT_BYTES_MAX)
