"""The records of most record batches of Kafka, checked without building anything of them.

`kafka` reads every record as readers do, and says what is wrong with one. That takes twice as long, or thirty times as
long if records have one shape. So it does that only with records that are not plain, which is no error. Whatever is
plain can be read there (hazard record-batch-that-lies). A plain record has

    no headers; a key of less than 64 bytes, or none; a value of less than a MiB, or none
    a timestamp less than 17 minutes before or behind that of its batch
    the offset delta that it must have, in as few bytes as possible
"""

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

#: Of the timestamp of a batch, before or behind 1970: no delta of three bytes takes a record beyond 64 bits.
_TIME_MAX = 2**62
#: As a size: there is no key, or no value.
_NULL = 1
#: An offset delta of n is written as 2 * n.
_STEP = 2


def are_plain(raw: bytes, count: int, base_timestamp: int) -> bool:
    """Whether exactly `count` plain records fill the bytes. base_timestamp: of their batch."""
    if not -_TIME_MAX < base_timestamp < _TIME_MAX:
        return False
    at, index, reach = 0, 0, REACH
    try:
        while index < count:
            at, read, repeated = _read(raw, at, counted(_STEP * index, _STEP * count, _STEP), reach)
            if not read:
                return False
            index += read + repeated
            reach = reach * REACH_GROWTH if repeated else REACH
    except IndexError:
        return False
    return at == len(raw)


def _read(raw: bytes, at: int, counter: Counter, reach: int) -> tuple[int, int, int]:
    """Read records from `at` on, up to the end of the counter, or of a run of up to `reach` records.

    Returns (where the last one ends, records that were read, further records that have the shape of the last one); the
    second is 0 if one is not plain. Raises IndexError where the bytes end.
    """
    firsts, seconds, rest = counter
    width, stride, tried = counter.width, 0, -READ_BETWEEN
    for index, first in enumerate(firsts):
        begins = at
        number = raw[at]
        if number > 127:
            at += 1
            number = number & 127 | raw[at] << 7
            if number > 16383:
                at += 1
                number = number & 16383 | raw[at] << 14
                if number > 2097151:
                    break
        if number & 1:
            break
        ends = at + 1 + (number >> 1)
        time_at = at = at + 2  # the attributes of the record are in front, and have no meaning
        if raw[at] > 127:
            at += 1 if raw[at + 1] < 128 else 2
            if raw[at] > 127:
                break
        delta_at = at = at + 1
        if raw[at] != first or (seconds and raw[at + 1] != seconds[index]):
            break
        if rest and not raw.startswith(rest, at + 2):
            break
        key_at = at = at + width
        number = raw[at]
        if number == _NULL:
            at += 1
        elif number & 1 or number > 127:
            break
        else:
            at += 1 + (number >> 1)
        value_at = at
        number = raw[at]
        if number > 127:
            at += 1
            number = number & 127 | raw[at] << 7
            if number > 16383:
                at += 1
                number = number & 16383 | raw[at] << 14
                if number > 2097151:
                    break
        at = value_from = at + 1
        if number != _NULL:
            if number & 1:
                break
            at += number >> 1
        if raw[at] or at + 1 != ends:  # it has headers, or its size lies
            break
        at = ends
        if stride != ends - begins:
            stride = ends - begins
        elif index - tried >= READ_BETWEEN and len(firsts) - index > RUN_MIN:
            tried = index
            sizes = (*range(begins, time_at - 1), *range(delta_at + 2, key_at), key_at, *range(value_at, value_from))
            places = tuple(place - begins for place in (*sizes, ends - 1))
            shape = Shape(stride, places, range(time_at - begins, delta_at - begins), delta_at - begins)
            others = firsts[index + 1 : index + 1 + reach]
            if repeats(raw, begins, shape, others, seconds[index + 1 : index + 1 + reach]):
                return ends + stride * len(others), index + 1, len(others)
    else:
        return at, len(firsts), 0
    return at, 0, 0
