"""The last generations of a producer: when each was granted, to which role, and from where.

It is folded from the grants of the log, so it survives takeovers. A grant says from where it was asked for only if
every process of the cluster could read that when it was written. Generations before that are not in the history.

Packed, the oldest first: generation 4, at ms 8, lease 1, role bytes 2, address bytes 1; then role and address in UTF-8.
"""

from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from oncelog.core.errors import CorruptEntry
from oncelog.core.ids import Generation

#: Of one producer: generations, and bytes. The newest generation is always kept.
HISTORY_MAX = 16
HISTORY_BYTES_MAX = 1024
_HEAD = Struct("<IQBHB")


class GenerationRecord(NamedTuple):
    """at_ms: of the entry, by the clock of its owner. role: empty without authentication. address: host:port of the
    client; empty: unknown."""

    generation: Generation
    at_ms: int
    leased: bool
    role: str
    address: str


def with_generation(history: bytes, record: GenerationRecord) -> bytes:
    """The packed history with one more generation, and without those that exceed a limit."""
    role, address = record.role.encode(), record.address.encode()
    own = _HEAD.pack(record.generation, record.at_ms, record.leased, len(role), len(address)) + role + address
    kept = _pieces(history)
    while kept and (len(kept) >= HISTORY_MAX or sum(map(len, kept)) + len(own) > HISTORY_BYTES_MAX):
        del kept[0]
    return b"".join((*kept, own))


def read_history(history: bytes) -> list[GenerationRecord]:
    """The oldest first. Raises CorruptEntry."""
    found: list[GenerationRecord] = []
    for piece in _pieces(history):
        generation, at_ms, leased, role_bytes, _ = _HEAD.unpack_from(piece)
        address_at = _HEAD.size + role_bytes
        role, address = str(piece[_HEAD.size : address_at], "utf-8"), str(piece[address_at:], "utf-8")
        found.append(GenerationRecord(generation, at_ms, bool(leased), role, address))
    return found


def _pieces(history: bytes) -> list[bytes]:
    """Raises CorruptEntry."""
    pieces: list[bytes] = []
    at = 0
    try:
        while at < len(history):
            *_, role_bytes, address_bytes = _HEAD.unpack_from(history, at)
            end = at + _HEAD.size + role_bytes + address_bytes
            if end > len(history):
                raise CorruptEntry("the history of a producer is cut")
            pieces.append(history[at:end])
            at = end
    except struct_error as error:
        raise CorruptEntry(f"the history of a producer cannot be read: {error}") from error
    return pieces
