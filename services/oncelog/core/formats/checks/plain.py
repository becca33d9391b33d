"""Records of Kafka and messages of Pulsar as most clients write them, checked without building anything of them.

`kafka` and `pulsar` read each of them as readers do, and say what is wrong with one. That takes three times as long, so
owners and gateways do it only with those that are not plain, which is no error. Whatever is plain can be read there
(hazards record-batch-that-lies, batch-that-counts-wrongly).
"""

from struct import Struct
from struct import error as struct_error

#: Of the timestamp of a record batch, before or behind 1970: no delta of three bytes takes a record beyond 64 bits.
_TIME_MAX = 2**62
#: A size of Kafka that says that there is no key, or no value.
_NULL = 1
_SIZE = Struct(">I")
#: What stands in front of each field of the metadata of a message of Pulsar.
_KEY, _VALUE_SIZE, _EVENT_TIME, _ID = 0x12, 0x18, 0x28, 0x40
_TIME_BYTES_MAX = 8


def are_plain_records(raw: bytes, count: int, base_timestamp: int) -> bool:
    """Whether exactly `count` plain records of Kafka fill the bytes. base_timestamp: of their batch.

    A plain record has no headers, a key of less than 64 bytes or none, a value of less than a MiB or none, a timestamp
    less than 17 minutes before or behind that of its batch, and its offset delta in as few bytes as possible.
    """
    if not -_TIME_MAX < base_timestamp < _TIME_MAX:
        return False
    at = 0
    try:
        for index in range(count):
            size = raw[at]
            if size > 127:
                at += 1
                size = size & 127 | raw[at] << 7
                if size > 16383:
                    at += 1
                    size = size & 16383 | raw[at] << 14
                    if size > 2097151:
                        return False
            if size & 1:
                return False
            ends = at + 1 + (size >> 1)
            at += 2  # the attributes of the record are in front, and have no meaning
            if raw[at] > 127:
                at += 1 if raw[at + 1] < 128 else 2
                if raw[at] > 127:
                    return False
            at += 1
            if index < 64:
                if raw[at] != index << 1:
                    return False
                at += 1
            elif raw[at] != (index << 1 & 127 | 128):
                return False
            elif index < 8192:
                if raw[at + 1] != index >> 6:
                    return False
                at += 2
            else:
                if raw[at + 1] != (index >> 6 & 127 | 128) or raw[at + 2] != index >> 13:
                    return False
                at += 3
            size = raw[at]
            if size == _NULL:
                at += 1
            elif size & 1 or size > 127:
                return False
            else:
                at += 1 + (size >> 1)
            size = raw[at]
            if size > 127:
                at += 1
                size = size & 127 | raw[at] << 7
                if size > 16383:
                    at += 1
                    size = size & 16383 | raw[at] << 14
                    if size > 2097151:
                        return False
            at += 1
            if size != _NULL:
                if size & 1:
                    return False
                at += size >> 1
            if raw[at] or at + 1 != ends:  # it has headers, or its size lies
                return False
            at = ends
    except IndexError:
        return False
    return at == len(raw)


def are_plain_messages(raw: bytes, count: int, first_id: int) -> bool:
    """Whether exactly `count` plain messages of Pulsar fill the bytes, with ids from this one on, below 2**63.

    The metadata of a plain message has, in this order and nothing else: perhaps a key of less than 128 bytes; the size
    of the value, less than two MiB; perhaps an event time of at most eight bytes; and the id.
    """
    at, size_of = 0, _SIZE.unpack_from
    continued, rest = _behind_first_byte(first_id)
    try:
        for number in range(first_id, first_id + count):
            if not number & 127:
                continued, rest = _behind_first_byte(number)
            ends = at + 4 + size_of(raw, at)[0]
            at += 4
            if raw[at] == _KEY:
                if raw[at + 1] > 127:
                    return False
                at += 2 + raw[at + 1]
            if raw[at] != _VALUE_SIZE:
                return False
            at += 1
            size = raw[at]
            if size > 127:
                at += 1
                size = size & 127 | raw[at] << 7
                if size > 16383:
                    at += 1
                    size = size & 16383 | raw[at] << 14
                    if size > 2097151:
                        return False
            at += 1
            if raw[at] == _EVENT_TIME:
                time_ends = at + _TIME_BYTES_MAX
                at += 1
                while raw[at] > 127:
                    at += 1
                    if at > time_ends:
                        return False
                at += 1
            if raw[at] != _ID or raw[at + 1] != (number & 127 | continued) or not raw.startswith(rest, at + 2):
                return False
            if at + 2 + len(rest) != ends:
                return False
            at = ends + size
    except (IndexError, struct_error):
        return False
    return at == len(raw)


def _behind_first_byte(number: int) -> tuple[int, bytes]:
    """Of a number of variable length: (the bit that says that bytes follow, those bytes)."""
    if number < 128:
        return 0, b""
    rest = bytearray()
    number >>= 7
    while number > 127:
        rest.append(number & 127 | 128)
        number >>= 7
    return 128, bytes((*rest, number))
