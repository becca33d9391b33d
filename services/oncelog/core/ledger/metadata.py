"""The record of one ledger in ZooKeeper: /oncelog/storage_client/<id>.

OPEN -> IN_RECOVERY -> CLOSED, or OPEN -> CLOSED by the writer. Every step is a versioned compare-and-set. CLOSED is
final: `end` never changes afterwards. The members of an open ledger never change; repair replaces members of a CLOSED
ledger, one at a time:

    join(D) -> (D is filled, and reads everything back from its disk) -> swap(old member) -> mark_verified()

`joining` is in the record before the first byte is copied (hazard copy-erased-before-joining). `whole` says that every
member has read 0..end from its disk; before it is set, no copy is erased (hazard replaced-member-erased-early). `lost`
names entries that are proved lost (hazard lost-too-early). `given_up_by`, `given_up`: an operator has ended the ledger
without the members `given_up`, because too many are lost, or lack records of it, for a recovery (hazard
open-ledger-without-quorum). The ledger ends before the first entry that no other member holds. Of a CLOSED ledger: an
operator has given up the entries that are lost, and those that only the members `given_up` have; a takeover passes over
them. `frozen`: sound copies differ; nothing of the ledger is swapped, erased or reclaimed (hazard differing-copies).
Source: BookKeeper's ledger metadata, without segments.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NamedTuple, Self

from oncelog.core.errors import CorruptEntry, InvariantViolated
from oncelog.core.formats.record_fields import Further, flag, no_fields, number, pairs, parse_json, rest, text, texts
from oncelog.core.ids import NO_ENTRY, EntryId, Incarnation, LedgerId, OwnerEpoch, TopicId
from oncelog.core.records.records import RecordKey

FORMAT = 1
_FIELDS = frozenset(
    ("format", "ledger_id", "topic_id", "state", "members", "write_quorum", "ack_quorum", "digest", "end", "length",
     "joining", "whole", "lost", "frozen", "given_up_by", "gone", "owner_epoch")
)  # fmt: skip


class LedgerState(Enum):
    OPEN = "OPEN"
    IN_RECOVERY = "IN_RECOVERY"
    CLOSED = "CLOSED"


class EntryRange(NamedTuple):
    """Entries first..last, both inclusive."""

    first: EntryId
    last: EntryId


@dataclass(frozen=True, slots=True)
class LedgerKey(RecordKey["LedgerMetadata"]):
    """The record of a ledger."""

    ledger_id: LedgerId


@dataclass(frozen=True, slots=True)
class LedgerMetadata:
    """members: incarnations of the Qw storage nodes. end, length: valid only when CLOSED; -1 and 0 for an empty
    ledger. joining, whole, lost, frozen: only when CLOSED; see above. lost: ascending, not adjacent. owner_epoch: of
    the owner that created it; None: not known, as of older records. further: see `record_fields`."""

    ledger_id: LedgerId
    topic_id: TopicId
    members: tuple[Incarnation, ...]
    ack_quorum: int
    state: LedgerState = LedgerState.OPEN
    end: EntryId = NO_ENTRY
    length: int = 0
    digest: str = "crc32c"
    joining: Incarnation | None = None
    verified: bool = False
    lost: tuple[EntryRange, ...] = ()
    frozen: bool = False
    given_up_by: str = ""
    given_up: tuple[Incarnation, ...] = ()
    owner_epoch: OwnerEpoch | None = None
    further: Further = field(default_factory=no_fields, hash=False)

    @property
    def write_quorum(self) -> int:
        return len(self.members)

    def names(self, node: Incarnation) -> bool:
        """Whether the node has, or shall get, a copy."""
        return node in self.members or node == self.joining

    def in_recovery(self) -> Self:
        if self.state is LedgerState.CLOSED:
            raise InvariantViolated(f"ledger {self.ledger_id} is CLOSED and cannot go back to IN_RECOVERY")
        return replace(self, state=LedgerState.IN_RECOVERY)

    def closed(self, *, end: EntryId, length: int) -> Self:
        if self.state is LedgerState.CLOSED:
            raise InvariantViolated(f"ledger {self.ledger_id} is CLOSED already")
        return replace(self, state=LedgerState.CLOSED, end=end, length=length)

    def give_up(self, members: Sequence[Incarnation], *, by: str) -> Self:
        """End this ledger without these members, at what the others hold. by: the operator; not empty."""
        if not by:
            raise InvariantViolated(f"ledger {self.ledger_id} is given up by nobody")
        given_up = tuple(member for member in self.members if member in members or member in self.given_up)
        return replace(self.in_recovery(), given_up_by=by, given_up=given_up)

    def give_up_entries(self, members: Sequence[Incarnation], *, by: str) -> Self:
        """Go on without the entries of this CLOSED ledger that are lost, or that only these members have."""
        self._require_closed("entries to give up")
        if not by or not (members or self.lost):
            raise InvariantViolated(f"nothing of ledger {self.ledger_id} is given up, or the operator is not named")
        given_up = tuple(member for member in self.members if member in members or member in self.given_up)
        return replace(self, given_up_by=by, given_up=given_up)

    @property
    def lost_for_sure(self) -> tuple[EntryRange, ...]:
        """Lost entries that a complete copy lacks. Not while the last entry is one of them and no operator has given
        them up: then nothing but this record says that they existed (hazard lost-end-is-forgotten)."""
        return () if self.lost and self.lost[-1].last == self.end and not self.given_up_by else self.lost

    @property
    def complete_count(self) -> int:
        """How many entries a copy has that lacks only lost ones."""
        return self.end + 1 - sum(last - first + 1 for first, last in self.lost)

    @property
    def survivors(self) -> tuple[Incarnation, ...]:
        """The members that a recovery asks."""
        return tuple(member for member in self.members if member not in self.given_up)

    # --- repair: each is one compare-and-set of the caller ------------------------------------------------------------

    def join(self, node: Incarnation) -> Self:
        """`node` is being filled."""
        self._require_closed(f"{node} to join")
        if node in self.members:
            raise InvariantViolated(f"{node} is a member of ledger {self.ledger_id} already")
        return replace(self, joining=node)

    def drop_joining(self) -> Self:
        """Give up filling the joining node."""
        return replace(self, joining=None)

    def swap(self, old: Incarnation) -> Self:
        """The joining node, which holds everything, replaces the member `old`."""
        self._require_closed(f"the swap of {old}")
        if self.joining is None or old not in self.members:
            raise InvariantViolated(f"ledger {self.ledger_id}: {old} cannot be swapped for {self.joining}")
        members = tuple(self.joining if member == old else member for member in self.members)
        return replace(self, members=members, joining=None, verified=False)

    def mark_verified(self) -> Self:
        """Every member has read 0..end from its disk."""
        self._require_closed("whole")
        return replace(self, verified=True)

    def mark_damaged(self) -> Self:
        """A member has lost entries: no copy may be erased until the ledger is whole again."""
        return replace(self, verified=False)

    def mark_lost(self, ranges: Sequence[EntryRange]) -> Self:
        """These ranges, ascending and not adjacent, are proved lost; they replace the former ones."""
        self._require_closed("lost entries")
        return replace(self, lost=tuple(ranges), verified=False)

    def freeze(self) -> Self:
        """Sound copies differ."""
        self._require_closed("frozen")
        return replace(self, frozen=True)

    def _require_closed(self, what: str) -> None:
        if self.state is not LedgerState.CLOSED:
            raise InvariantViolated(f"ledger {self.ledger_id} is {self.state.value}, not CLOSED: no {what}")


def encode_ledger(metadata: LedgerMetadata) -> bytes:
    fields: dict[str, Any] = {
        **metadata.further,
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
        "joining": metadata.joining,
        "whole": metadata.verified,
        "lost": [list(each) for each in metadata.lost],
        "frozen": metadata.frozen,
        "given_up_by": metadata.given_up_by,
        "gone": list(metadata.given_up),
    }
    if metadata.owner_epoch is not None:
        fields["owner_epoch"] = metadata.owner_epoch
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
            joining=None if fields.get("joining") is None else Incarnation(text(fields, "joining")),
            verified=flag({"whole": False} | fields, "whole"),
            lost=tuple(
                EntryRange(EntryId(first), EntryId(last)) for first, last in pairs({"lost": []} | fields, "lost")
            ),
            frozen=flag({"frozen": False} | fields, "frozen"),
            given_up_by=text({"given_up_by": ""} | fields, "given_up_by"),
            given_up=tuple(map(Incarnation, texts({"gone": []} | fields, "gone"))),
            owner_epoch=OwnerEpoch(number(fields, "owner_epoch")) if "owner_epoch" in fields else None,
            further=rest(fields, _FIELDS),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptEntry(f"cannot read a ledger record: {error!r}") from error
