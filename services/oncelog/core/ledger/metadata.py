"""The record of one ledger in ZooKeeper: /oncelog/ledgers/<id>.

OPEN -> IN_RECOVERY -> CLOSED, or OPEN -> CLOSED by the writer. Every step is a versioned compare-and-set. CLOSED is
final: `end` never changes afterwards. Members are static: the ensemble of an open ledger does not change.
Source: BookKeeper's ledger metadata, without segments.
"""

import json
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from oncelog.core.errors import CorruptEntry, InvariantViolated
from oncelog.core.formats.record_fields import number, parse_json, text, texts
from oncelog.core.ids import NO_ENTRY, EntryId, Incarnation, LedgerId, TopicId

FORMAT = 1


class LedgerState(Enum):
    OPEN = "OPEN"
    IN_RECOVERY = "IN_RECOVERY"
    CLOSED = "CLOSED"


@dataclass(frozen=True, slots=True)
class LedgerMetadata:
    """members: incarnations of the Qw storage nodes. end, length: valid only when CLOSED; -1 and 0 for an empty
    ledger."""

    ledger_id: LedgerId
    topic_id: TopicId
    members: tuple[Incarnation, ...]
    ack_quorum: int
    state: LedgerState = LedgerState.OPEN
    end: EntryId = NO_ENTRY
    length: int = 0
    digest: str = "crc32c"

    @property
    def write_quorum(self) -> int:
        return len(self.members)

    def in_recovery(self) -> "LedgerMetadata":
        if self.state is LedgerState.CLOSED:
            raise InvariantViolated(f"ledger {self.ledger_id} is CLOSED and cannot go back to IN_RECOVERY")
        return replace(self, state=LedgerState.IN_RECOVERY)

    def closed(self, *, end: EntryId, length: int) -> "LedgerMetadata":
        if self.state is LedgerState.CLOSED:
            raise InvariantViolated(f"ledger {self.ledger_id} is CLOSED already")
        return replace(self, state=LedgerState.CLOSED, end=end, length=length)


def encode_ledger(metadata: LedgerMetadata) -> bytes:
    fields: dict[str, Any] = {
        "format": FORMAT,
        "ledger_id": metadata.ledger_id,
        "topic_id": metadata.topic_id,
        "state": metadata.state.value,
        "members": list(metadata.members),
        "write_quorum": metadata.write_quorum,
        "ack_quorum": metadata.ack_quorum,
        "digest": metadata.digest,
        "end": metadata.end,
        "length": metadata.length,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_ledger(data: bytes) -> LedgerMetadata:
    """Raises CorruptEntry unless the bytes are a ledger record."""
    try:
        fields = parse_json(data)
        if fields["format"] != FORMAT:
            raise CorruptEntry(f"ledger record has format {fields['format']}; this version reads format {FORMAT}")
        return LedgerMetadata(
            ledger_id=LedgerId(number(fields, "ledger_id")),
            topic_id=TopicId(text(fields, "topic_id")),
            members=tuple(map(Incarnation, texts(fields, "members"))),
            ack_quorum=number(fields, "ack_quorum"),
            state=LedgerState(fields["state"]),
            end=EntryId(number(fields, "end")),
            length=number(fields, "length"),
            digest=text(fields, "digest"),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptEntry(f"cannot read a ledger record: {error!r}") from error
