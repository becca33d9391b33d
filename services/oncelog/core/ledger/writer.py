"""The writer of one open ledger: numbers entries, counts responses, and moves last_add_confirmed.

    OPEN --seal--> SEALED (no new entries, waits for the last responses) --close--> CLOSING --CAS OK--> CLOSED
    OPEN | SEALED --fewer members than Qa--> CLOSING at last_add_confirmed
    any --FENCED, or the CAS finds another state--> LOST: the topic record must be read first

Rules
- An entry is acknowledged when Qa members have confirmed that it is durable, and every entry before it is acknowledged.
- A member that fails is absent for the rest of the ledger: nothing is sent to it again, and its copies stay incomplete.
  So one slow or dead member delays no write, and the ensemble of an open ledger never changes.
- When CLOSING or LOST, nothing more is acknowledged: the record alone decides what the ledger holds.
Source: BookKeeper's LedgerHandle, without its ensemble changes.
"""

from collections import deque
from dataclasses import dataclass
from enum import Enum

from oncelog.core.errors import InvariantViolated
from oncelog.core.formats.batch import Buffer, Checksum
from oncelog.core.formats.entry import EntryHeader, EntryKind, encode_header
from oncelog.core.ids import NO_ENTRY, EntryId, Incarnation, LedgerId, OwnerEpoch
from oncelog.core.ledger.metadata import LedgerMetadata


@dataclass(frozen=True, slots=True)
class Add:
    """One encoded entry to send to the members: header bytes and body, kept apart so that the body is copied once."""

    entry_id: EntryId
    header: EntryHeader
    parts: tuple[Buffer, Buffer]


class WriterState(Enum):
    OPEN = "open"
    SEALED = "sealed"
    CLOSING = "closing"
    CLOSED = "closed"
    LOST = "lost"


class LedgerWriter:
    """One ledger and its only writer. Its methods take the time and the members' responses; it performs no I/O."""

    def __init__(self, metadata: LedgerMetadata, *, owner_epoch: OwnerEpoch, checksum: Checksum) -> None:
        self.metadata = metadata
        self.state = WriterState.OPEN
        self.last_add_confirmed: EntryId = NO_ENTRY
        self.owner_epoch = owner_epoch
        #: members that still get entries, in the order of the record
        self.present: list[Incarnation] = list(metadata.members)
        #: cumulative body bytes up to last_add_confirmed
        self.length_confirmed = 0
        #: [bit set of members that confirmed, cumulative length, appended at ms] of each entry above last_add_confirmed
        self._pending: deque[list[int]] = deque()
        self._length = 0
        self._checksum = checksum

    @property
    def ledger_id(self) -> LedgerId:
        return self.metadata.ledger_id

    @property
    def next_entry(self) -> EntryId:
        return EntryId(self.last_add_confirmed + 1 + len(self._pending))

    @property
    def length(self) -> int:
        """Body bytes appended to this ledger."""
        return self._length

    @property
    def idle(self) -> bool:
        return not self._pending

    @property
    def oldest_pending_ms(self) -> int | None:
        """When the oldest unacknowledged entry was appended."""
        return self._pending[0][2] if self._pending else None

    def append(
        self, kind: EntryKind, body: Buffer, *, base_index: int, skip_first: int, count: int, now_ms: int
    ) -> Add:
        """Number and encode one entry. count: new messages in it; 0 for control entries."""
        if self.state is not WriterState.OPEN:
            raise InvariantViolated(f"cannot append to ledger {self.ledger_id}: it is {self.state.value}")
        entry_id = self.next_entry
        self._length += len(body)
        header = EntryHeader(
            kind, self.ledger_id, entry_id, self.last_add_confirmed, self._length, self.owner_epoch, now_ms,
            base_index, skip_first, count, len(body), self.metadata.topic_id,
        )  # fmt: skip
        self._pending.append([0, self._length, now_ms])
        return Add(entry_id, header, (encode_header(header, body, self._checksum), body))

    def added(self, member: Incarnation, entry_ids: list[EntryId]) -> bool:
        """A member holds these entries durably. Returns whether last_add_confirmed moved."""
        if self.state not in (WriterState.OPEN, WriterState.SEALED) or member not in self.present:
            return False
        bit = 1 << self.metadata.members.index(member)
        base = self.last_add_confirmed + 1
        pending = self._pending
        for entry_id in entry_ids:
            if 0 <= entry_id - base < len(pending):
                pending[entry_id - base][0] |= bit
        moved = False
        while pending and self._acked(pending[0][0]):
            self.length_confirmed = pending.popleft()[1]
            self.last_add_confirmed = EntryId(self.last_add_confirmed + 1)
            moved = True
        return moved

    def _acked(self, answers: int) -> bool:
        return answers.bit_count() >= self.metadata.ack_quorum

    def member_lost(self, member: Incarnation) -> bool:
        """A member failed and is absent from now on. Returns whether the ledger can still reach its ack quorum."""
        if member in self.present:
            self.present.remove(member)
        return self.reachable

    @property
    def reachable(self) -> bool:
        """Whether enough members are present for the ack quorum."""
        return len(self.present) >= self.metadata.ack_quorum

    def laggards(self, *, now_ms: int, timeout_ms: int) -> list[Incarnation]:
        """Present members that have not confirmed the oldest entry for so long. If it seems to be appended in the
        future, the clock went back, and the time begins now."""
        if not self._pending:
            return []
        oldest = self._pending[0]
        oldest[2] = min(oldest[2], now_ms)
        if now_ms - oldest[2] < timeout_ms:
            return []
        answers = self._pending[0][0]
        return [m for m in self.present if not answers >> self.metadata.members.index(m) & 1]

    def seal(self) -> None:
        """Accept no more entries. The planned roll waits for the last response."""
        if self.state is WriterState.OPEN:
            self.state = WriterState.SEALED

    def close(self) -> LedgerMetadata:
        """Stop acknowledging for ever. Returns the CLOSED record, to be written by compare-and-set from OPEN."""
        if self.state not in (WriterState.OPEN, WriterState.SEALED):
            raise InvariantViolated(f"cannot close ledger {self.ledger_id}: it is {self.state.value}")
        self.state = WriterState.CLOSING
        return self.metadata.closed(end=self.last_add_confirmed, length=self.length_confirmed)

    def closed(self) -> None:
        self.state = WriterState.CLOSED

    def lose(self) -> None:
        self.state = WriterState.LOST

    def check_invariants(self) -> None:
        if self.state in (WriterState.OPEN, WriterState.SEALED) and self._pending and self._acked(self._pending[0][0]):
            raise InvariantViolated(f"ledger {self.ledger_id}: the next entry has its ack quorum, but is not confirmed")
        if self.length_confirmed > self._length:
            raise InvariantViolated(f"ledger {self.ledger_id}: the confirmed length exceeds the appended length")
