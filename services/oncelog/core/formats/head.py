"""The head of a ledger: its entry 0, a control entry that says to which topic, chain and members the ledger belongs.

From heads alone the lists of ledgers of a cluster can be rebuilt when ZooKeeper's data is lost. The entry's own header
has the topic id, the owner's epoch and the index of the next message. The kind tells the chain: HEAD_LOG,
HEAD_SNAPSHOTS or HEAD_ACKS. The body is JSON:

    {"format": 1, "name", "members": [...], "ack_quorum", "era", "owner", "floor", "former": [ledger, entry] | null}

Rules
- A head is written in front of the first entry of a ledger, in the same frame, never alone.
- `former` is the position of the chain's fold when the ledger was linked: the last entry before this ledger that is of
  the chain, wherever that is. What lies between it and this ledger was given up or never acknowledged. Snapshots have
  none, because each of their ledgers begins with a base.
- A fold takes a head as nothing: its position does not move.
"""

import json
from dataclasses import dataclass
from sys import intern
from typing import Any

from oncelog.core.errors import CorruptEntry
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.entry import EntryKind
from oncelog.core.formats.record_fields import number, numbers, parse_json, text, texts
from oncelog.core.ids import EntryId, Incarnation, LedgerId, Position

FORMAT = 1
#: One kind for each chain.
HEAD_KINDS = frozenset({EntryKind.HEAD_LOG, EntryKind.HEAD_SNAPSHOTS, EntryKind.HEAD_ACKS})


@dataclass(frozen=True, slots=True)
class LedgerHead:
    """name: of the topic, when the ledger was opened. ack_quorum: acknowledgements that an entry of the ledger needs.
    era: the number. floor: ledgers of the chain with lower ids were trimmed. former: see above."""

    name: str
    members: tuple[Incarnation, ...]
    ack_quorum: int
    era: int
    owner: Incarnation
    floor: LedgerId = LedgerId(0)
    former: Position | None = None


def encode_head(head: LedgerHead) -> bytes:
    """The body of the entry."""
    fields = {
        "format": FORMAT,
        "name": head.name,
        "members": list(head.members),
        "ack_quorum": head.ack_quorum,
        "era": head.era,
        "owner": head.owner,
        "floor": head.floor,
        "former": None if head.former is None else list(head.former),
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_head(body: Buffer) -> LedgerHead:
    """Raises CorruptEntry unless the bytes are the body of a head. Fields of later versions are passed over.

    A rebuild holds the heads of all ledgers of all nodes, so equal strings are kept once.
    """
    try:
        fields: dict[str, Any] = parse_json(bytes(body))
        if number(fields, "format") != FORMAT:
            raise CorruptEntry(f"head of format {fields['format']}: this version reads format {FORMAT}")
        former = None
        if fields["former"] is not None:
            ledger_id, entry_id = numbers(fields, "former")
            former = Position(LedgerId(ledger_id), EntryId(entry_id))
        return LedgerHead(
            intern(text(fields, "name")),
            tuple(Incarnation(intern(member)) for member in texts(fields, "members")),
            number(fields, "ack_quorum"),
            number(fields, "era"),
            Incarnation(intern(text(fields, "owner"))),
            LedgerId(number(fields, "floor")),
            former,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptEntry(f"the head of a ledger cannot be read: {error!r}") from error
