"""The messages of most batches of Pulsar, checked without building anything of them.

`pulsar` reads every message as readers do, and says what is wrong with one. That takes twice as long, or thirty times
as long if messages have one shape. So it does that only with messages that are not plain, which is no error. Whatever
is plain can be read there (hazard batch-that-counts-wrongly). The metadata of a plain message has in this order, and
nothing else

    perhaps a key of less than 128 bytes
    the size of its value, less than two MiB
    perhaps an event time of at most eight bytes
    the id that follows that of the message in front of it, in as few bytes as possible
"""

from struct import Struct
from struct import error as struct_error

from oncelog.core.formats.repeated_shape import (
    REACH,
    REACH_GROWTH,
    READ_BETWEEN,
    RUN_MIN,
    Counter,
    Shape,
    counted,
    repeats,
)

_SIZE = Struct(">I")
#: What stands in front of each field of the metadata.
_KEY, _VALUE_SIZE, _EVENT_TIME, _ID = 0x12, 0x18, 0x28, 0x40
_TIME_BYTES_MAX = 8


def are_plain(raw: bytes, count: int, first_id: int) -> bool:
    """Whether exactly `count` plain messages fill the bytes, with ids from this one on."""
    at, following, ends, reach = 0, first_id, first_id + count, REACH
    try:
        while following < ends:
            at, read, repeated = _read(raw, at, counted(following, ends, 1), reach)
            if not read:
                return False
            following += read + repeated
            reach = reach * REACH_GROWTH if repeated else REACH
    except (IndexError, struct_error):
        return False
    return at == len(raw)


def _read(raw: bytes, at: int, counter: Counter, reach: int) -> tuple[int, int, int]:
    """Read messages from `at` on, up to the end of the counter, or of a run of up to `reach` messages.

    Returns (where the last one ends, messages that were read, further messages that have the shape of the last one);
    the second is 0 if one is not plain. Raises IndexError, struct.error where the bytes end.
    """
    firsts, seconds, rest = counter
    width, stride, tried, size_of = counter.width, 0, -READ_BETWEEN, _SIZE.unpack_from
    for index, first in enumerate(firsts):
        begins = at
        metadata_ends = at + _SIZE.size + size_of(raw, at)[0]
        size_at = at + 4
        if raw[size_at] == _KEY:
            if raw[size_at + 1] > 127:
                break
            size_at += 2 + raw[size_at + 1]
        if raw[size_at] != _VALUE_SIZE:
            break
        at = size_at + 1
        size = raw[at]
        if size > 127:
            at += 1
            size = size & 127 | raw[at] << 7
            if size > 16383:
                at += 1
                size = size & 16383 | raw[at] << 14
                if size > 2097151:
                    break
        time_at = at = at + 1
        if raw[at] == _EVENT_TIME:
            at += 1
            while raw[at] > 127 and at - time_at < _TIME_BYTES_MAX:
                at += 1
            if raw[at] > 127:
                break
            at += 1
        id_at = at + 1
        if raw[at] != _ID or raw[id_at] != first or (seconds and raw[id_at + 1] != seconds[index]):
            break
        if metadata_ends != id_at + width or (rest and not raw.startswith(rest, id_at + 2)):
            break
        at = metadata_ends + size
        if stride != at - begins:
            stride = at - begins
        elif index - tried >= READ_BETWEEN and len(firsts) - index > RUN_MIN:
            tried = index
            sizes = (*range(begins, begins + 6), *range(size_at, time_at + 1), id_at - 1)
            places = tuple(place - begins for place in (*sizes, *range(id_at + 2, metadata_ends)))
            shape = Shape(stride, places, range(time_at + 1 - begins, id_at - 1 - begins), id_at - begins)
            others = firsts[index + 1 : index + 1 + reach]
            if repeats(raw, begins, shape, others, seconds[index + 1 : index + 1 + reach]):
                return at + stride * len(others), index + 1, len(others)
    else:
        return at, len(firsts), 0
    return at, 0, 0
