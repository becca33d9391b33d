"""The topics that a member is subscribed to, as consumers of Kafka write them (ConsumerProtocolSubscription).

    [version: 2 bytes][count][name of a topic]...    what follows is of no interest here

Numbers are big-endian, counts have 4 bytes, lengths of names 2.
"""

from struct import Struct, error

from oncelog.core.errors import InvalidArgument

_INT16, _INT32 = Struct(">h"), Struct(">i")


def topics_in(data: bytes) -> frozenset[str]:
    """Empty bytes are a subscription to nothing. Raises InvalidArgument."""
    if not data:
        return frozenset()
    at, found = _INT16.size, set()
    try:
        [count] = _INT32.unpack_from(data, at)
        at += _INT32.size
        for _ in range(count):
            [size] = _INT16.unpack_from(data, at)
            at += _INT16.size
            name = data[at : at + size]
            if not 0 <= size == len(name):
                raise ValueError(f"a name of {size} bytes, and {len(name)} are left")
            found.add(name.decode())
            at += size
    except (error, ValueError) as reason:
        message = f"a subscription of {len(data)} bytes cannot be read: {reason}"
        raise InvalidArgument(message, field="metadata") from reason
    return frozenset(found)
