"""The body of a PRODUCERS_AGED entry: time that has passed for the producers of a topic, and what follows from it.

Layout, little-endian: passed ms 8, renewed 4, expired 4, role bytes 2, lifetimes 1; then for each renewed producer its
id 8, generation 4 and lifetime ms 8; then the ids of the expired ones, 8 each; then, if lifetimes is 1, those of
assigned and of chosen names, 8 each, in ms; then the role in UTF-8.
"""

from struct import Struct
from typing import NamedTuple

from oncelog.core.errors import CorruptEntry
from oncelog.core.formats.batch import Buffer
from oncelog.core.ids import Generation, ProducerId

_HEAD = Struct("<QIIHB")
_RENEWAL = Struct("<QIQ")
_ID = Struct("<Q")
_LIFETIMES = Struct("<QQ")


class Renewal(NamedTuple):
    """A producer lives on as if it had sent a message now. lifetime_ms: how long; 0: as before."""

    producer_id: ProducerId
    generation: Generation
    lifetime_ms: int = 0


class NameLifetimes(NamedTuple):
    """How long producers without a lease live, in ms, by the kind of their names; 0: for ever."""

    assigned_ms: int
    chosen_ms: int


class ProducersAged(NamedTuple):
    """First the time passes, then the lifetimes change, then producers are renewed, then others expire.

    passed_ms: at least so much real time has passed since the entry of this kind before. by: the role that has deleted
    the expired ones; empty: their time was over. lifetimes: those that hold from here on; None: as before.
    """

    passed_ms: int
    renewed: tuple[Renewal, ...] = ()
    expired: tuple[ProducerId, ...] = ()
    by: str = ""
    lifetimes: NameLifetimes | None = None


def encode_aged(aged: ProducersAged) -> bytes:
    by = aged.by.encode()
    return b"".join(
        (
            _HEAD.pack(aged.passed_ms, len(aged.renewed), len(aged.expired), len(by), aged.lifetimes is not None),
            *(_RENEWAL.pack(*renewal) for renewal in aged.renewed),
            *(_ID.pack(pid) for pid in aged.expired),
            b"" if aged.lifetimes is None else _LIFETIMES.pack(*aged.lifetimes),
            by,
        )
    )


def decode_aged(body: Buffer) -> ProducersAged:
    """Raises CorruptEntry when the body is none."""
    if len(body) < _HEAD.size:
        raise CorruptEntry("a ProducersAged body is too short")
    passed_ms, renewed_count, expired_count, by_bytes, changes = _HEAD.unpack_from(body)
    expired_at = _HEAD.size + renewed_count * _RENEWAL.size
    lifetimes_at = expired_at + expired_count * _ID.size
    by_at = lifetimes_at + (_LIFETIMES.size if changes else 0)
    if len(body) != by_at + by_bytes or changes > 1:
        raise CorruptEntry("a ProducersAged body contradicts its counts")
    data = bytes(body)
    renewed = (
        Renewal(ProducerId(pid), Generation(generation), lifetime_ms)
        for pid, generation, lifetime_ms in _RENEWAL.iter_unpack(data[_HEAD.size : expired_at])
    )
    expired = (ProducerId(pid) for (pid,) in _ID.iter_unpack(data[expired_at:lifetimes_at]))
    lifetimes = NameLifetimes(*_LIFETIMES.unpack_from(data, lifetimes_at)) if changes else None
    try:
        return ProducersAged(passed_ms, tuple(renewed), tuple(expired), data[by_at:].decode(), lifetimes)
    except UnicodeDecodeError as error:
        raise CorruptEntry("the role in a ProducersAged body is not UTF-8") from error
