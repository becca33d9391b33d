"""The bytes of one producer: its record in a snapshot, and its row while it is idle.

Record: producer id 8, generation 4, mode 1, growths 1, name bytes 2, persisted 8, recent floor 8, last activity ms 8,
instance id 16 (zeros: none), role bytes 2, packed batches bytes 2, name, role, packed batches (see `recent_batches`;
ids of batches with holes stay in their entries). If it has a history, the mode has 0x40, and history bytes 2 and the
history follow (see `generation_history`). If the log counts time, the mode has 0x80, and 16 more bytes follow at the
end: lifetime ms 8 and active at ms 8. A row is a record without the name. The record of a producer that has expired
since the snapshot before has mode 0, and neither a name nor anything that follows it.
"""

from struct import Struct
from struct import error as struct_error
from sys import intern
from typing import NamedTuple

from oncelog.core.errors import CorruptEntry
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.entry import SequenceMode, instance_from_bytes, instance_to_bytes
from oncelog.core.ids import InstanceId, ProducerId
from oncelog.core.publishing.generation_history import read_history
from oncelog.core.publishing.producer_state import ProducerState
from oncelog.core.publishing.recent_batches import RecentBatches, check_packed

_HEAD = Struct("<QIBBHqqq16sHH")
HEAD_BYTES = _HEAD.size
_PRODUCER_ID = Struct("<Q")
_INSTANCE = slice(40, 56)
#: role bytes, packed batches bytes
_TAIL_SIZES = Struct("<HH")
_TAIL_SIZES_AT = 56
_MODES = frozenset(SequenceMode)
_AGES = Struct("<QQ")
#: In the byte of the mode, which is at this place: the ages follow; a history follows.
_WITH_AGES, _WITH_HISTORY, _MODE_AT = 0x80, 0x40, 12
_FLAGS = _WITH_AGES | _WITH_HISTORY
_HISTORY_BYTES = Struct("<H")


class ProducerRow(NamedTuple):
    """One producer of a snapshot. row empty: it has expired since the snapshot before."""

    producer_id: ProducerId
    name: str
    row: bytes


class Ages(NamedTuple):
    """As in ProducerState."""

    lifetime_ms: int
    active_at_ms: int


NO_AGES = Ages(0, 0)


def encode_row(p: ProducerState) -> bytes:
    role = p.role.encode()
    recent_batches = p.recent_batches.packed()
    ages = Ages(p.lifetime_ms, p.active_at_ms)
    mode = p.mode | (0 if ages == NO_AGES else _WITH_AGES) | (_WITH_HISTORY if p.history else 0)
    head = _HEAD.pack(
        p.producer_id, p.generation, mode, p.growths, len(p.name.encode()), p.persisted, p.recent_floor,
        p.last_activity_ms, instance_to_bytes(p.instance_id), len(role), len(recent_batches),
    )  # fmt: skip
    history = _HISTORY_BYTES.pack(len(p.history)) + p.history if p.history else b""
    return head + role + recent_batches + history + (b"" if ages == NO_AGES else _AGES.pack(*ages))


def decode_row(name: str, row: bytes) -> ProducerState:
    pid, generation, mode, growths, _, persisted, floor, activity, _, role_bytes, size = _HEAD.unpack_from(row)
    batches_at = _HEAD.size + role_bytes
    return ProducerState(
        name,
        pid,
        generation,
        SequenceMode(mode & ~_FLAGS),
        persisted,
        RecentBatches.unpack(row[batches_at : batches_at + size]),
        floor,
        activity,
        instance_from_bytes(row[_INSTANCE]),
        # Interned, because the rows of all producers share a few roles.
        intern(row[_HEAD.size : batches_at].decode()),
        growths,
        *ages_of(row),
        _history_of(row, mode, batches_at + size),
    )


def ages_of(row: bytes) -> Ages:
    return Ages(*_AGES.unpack_from(row, len(row) - _AGES.size)) if row[_MODE_AT] & _WITH_AGES else NO_AGES


def _history_of(row: bytes, mode: int, at: int) -> bytes:
    """at: where it begins, if there is one."""
    if not mode & _WITH_HISTORY:
        return b""
    begin = at + _HISTORY_BYTES.size
    return bytes(row[begin : begin + _HISTORY_BYTES.unpack_from(row, at)[0]])


def record_of_expired(pid: ProducerId) -> bytes:
    return _HEAD.pack(pid, 0, 0, 0, 0, -1, -1, 0, bytes(16), 0, 0)


def record_of(name: str, row: bytes) -> bytes:
    """The record of a snapshot."""
    return b"".join((row[: _HEAD.size], name.encode(), row[_HEAD.size :]))


def encode_record(p: ProducerState) -> bytes:
    return record_of(p.name, encode_row(p))


def read_record(body: Buffer, at: int) -> tuple[ProducerRow, int]:
    """The producer whose record begins at `at`, and where the next record begins. Raises CorruptEntry unless the bytes
    are a record; its row can be decoded then."""
    try:
        pid, _, mode, _, name_bytes, _, _, _, _, role_bytes, batches_bytes = _HEAD.unpack_from(body, at)
        name_at = at + _HEAD.size
        role_at = name_at + name_bytes
        batches_at = role_at + role_bytes
        end_of_batches = batches_at + batches_bytes
        end_of_history = end_of_batches
        if mode & _WITH_HISTORY:
            end_of_history += _HISTORY_BYTES.size + _HISTORY_BYTES.unpack_from(body, end_of_batches)[0]
        end = end_of_history + (_AGES.size if mode & _WITH_AGES else 0)
        if not mode and end == name_at:
            return ProducerRow(pid, "", b""), end
        if end > len(body) or mode & ~_FLAGS not in _MODES:
            raise CorruptEntry(f"the record of producer {pid} cannot be read")
        check_packed(bytes(body[batches_at:end_of_batches]))
        read_history(bytes(body[end_of_batches + _HISTORY_BYTES.size : end_of_history]))
        if role_bytes:
            str(body[role_at:batches_at], "utf-8")
        name, row = str(body[name_at:role_at], "utf-8"), b"".join((body[at:name_at], body[role_at:end]))
        return ProducerRow(pid, name, row), end
    except (struct_error, ValueError) as error:
        raise CorruptEntry(f"the record of a producer cannot be read: {error}") from error


def id_of(row: bytes) -> ProducerId:
    return ProducerId(_PRODUCER_ID.unpack_from(row)[0])


def instance_of(row: bytes) -> InstanceId:
    return instance_from_bytes(row[_INSTANCE])


def batches_bytes_of(row: bytes) -> int:
    """Bytes of the packed recent batches; 0: there are none."""
    size: int = _TAIL_SIZES.unpack_from(row, _TAIL_SIZES_AT)[1]
    return size if size > 1 else 0
