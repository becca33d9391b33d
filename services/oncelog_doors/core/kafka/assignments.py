"""The partitions in an assignment, as consumers of Kafka write it (ConsumerProtocolAssignment, all versions).

    [version: 2 bytes][count][name of a topic, [count][partition: 4 bytes]...]...[user data]

Numbers are big-endian, counts have 4 bytes, lengths of names 2. What follows the topics is the assignor's own.
"""

from collections.abc import Mapping
from struct import Struct

from oncelog.core.errors import InvalidArgument

_INT16, _INT32 = Struct(">h"), Struct(">i")
#: The only protocol type whose assignments name partitions.
CONSUMER = "consumer"


def partitions_in(data: bytes) -> Mapping[str, tuple[int, ...]]:
    """{name of a topic: its partitions}. Empty bytes are an assignment of nothing. Raises InvalidArgument."""
    if not data:
        return {}
    found: dict[str, tuple[int, ...]] = {}
    left = memoryview(data)[_INT16.size :]
    try:
        count, left = _number(_INT32, left)
        for _ in range(count):
            size, left = _number(_INT16, left)
            name, left = _cut(left, size)
            size, left = _number(_INT32, left)
            numbers, left = _cut(left, size * _INT32.size)
            topic = str(name, "utf-8")
            found[topic] = found.get(topic, ()) + tuple(each for (each,) in _INT32.iter_unpack(numbers))
    except ValueError as error:
        message = f"an assignment of {len(data)} bytes cannot be read: {error}"
        raise InvalidArgument(message, field="assignment") from error
    return found


def _number(kind: Struct, data: memoryview) -> tuple[int, memoryview]:
    found, left = _cut(data, kind.size)
    return kind.unpack(found)[0], left


def _cut(data: memoryview, size: int) -> tuple[memoryview, memoryview]:
    """The next bytes, and what follows them. Raises ValueError."""
    if not 0 <= size <= len(data):
        raise ValueError(f"{size} bytes are wanted, and {len(data)} are left")
    return data[:size], data[size:]
