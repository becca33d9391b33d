"""The answers of the members about one range of entry ids, and the decision that follows from them.

    UNDECIDED --each id up to the ledger's end, or each id, has a valid copy--> DECIDED --Qa confirmed each--> CONFIRMED
    any --two valid copies differ · an id neither readable nor certainly missing · too many refusals--> `problem`

Rules
- A member counts once for each id. Bytes with a wrong checksum, and ids that a member cannot read, count as unknown,
  never as missing.
- The ledger ends at the first id without a valid copy that Qw-Qa+1 members explicitly lack. Ids after it are not
  examined, because entries are acknowledged in the order of their ids. A ledger that an operator has given up ends at
  the first id of which no member that is left has a valid copy.
- All members are awaited only for an id that needs all of them.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from oncelog.core.errors import CorruptEntry, InvariantViolated
from oncelog.core.formats.batch import Checksum
from oncelog.core.formats.entry import decode_entry
from oncelog.core.ids import EntryId, Incarnation
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.ledger.quorum import acked, missing_is_certain

#: (storage node, what it answered, or what was requested from it)
MemberAnswers = tuple[tuple[str, str], ...]


class RecoveryProblem(NamedTuple):
    """Why a recovery must fail. members: what each one answered about the entry."""

    reason: str
    entry_id: EntryId
    members: MemberAnswers


@dataclass(slots=True)
class _EntryCopies:
    """The state of one id: the first valid copy, and how many members lack the id or cannot read it."""

    copy: bytes | None = None
    length: int = 0
    negatives: int = 0
    unknowns: int = 0
    #: (member, what it answered)
    answers: list[tuple[str, str]] = field(default_factory=list)


class RecoveryRange:
    """The ids first .. first + count - 1 of one ledger. `count` shrinks to the ledger's end once that is known."""

    def __init__(
        self, metadata: LedgerMetadata, *, first: EntryId, count: int, last_add_confirmed: EntryId, checksum: Checksum
    ) -> None:
        self.first = first
        #: why this recovery must fail; None while there is no problem
        self.problem: RecoveryProblem | None = None
        #: whether every remaining id has a valid copy; no further ids are requested
        self.decided = False
        #: whether the ledger ends with this range (valid once decided)
        self.ends_ledger = False
        self._metadata = metadata
        self._last_add_confirmed = last_add_confirmed
        self._checksum = checksum
        self._slots = [_EntryCopies() for _ in range(count)]
        #: {member: the next id that it has not answered}
        self._progress: dict[Incarnation, EntryId] = dict.fromkeys(metadata.members, first)
        #: {entry id: {member: whether it confirmed}}, the entries to write back
        self._confirmations: dict[EntryId, dict[Incarnation, bool]] = {}

    def _about(self, entry_id: EntryId, reason: str) -> RecoveryProblem:
        return RecoveryProblem(reason, entry_id, tuple(self._slots[entry_id - self.first].answers))

    def waits_for(self) -> MemberAnswers:
        """The members whose answer is awaited, and what was requested from them."""
        if self.decided:
            answered = next(iter(self._confirmations.values()), {})
            return tuple((m, "was asked to store entries") for m in self._metadata.members if m not in answered)
        return tuple((m, f"was asked for entry {at}") for m, at in self._progress.items() if at < self.beyond)

    @property
    def beyond(self) -> EntryId:
        """One above the last id."""
        return EntryId(self.first + len(self._slots))

    @property
    def last(self) -> tuple[EntryId, int] | None:
        """(id, cumulative length) of the last entry of a decided range; None if the range has no entry."""
        return (EntryId(self.beyond - 1), self._slots[-1].length) if self._slots else None

    def awaits(self, member: Incarnation, first: EntryId) -> bool:
        """Whether an answer of `member` for the ids from `first` on is still awaited."""
        return self._progress.get(member) == first and first < self.beyond

    def rest(self, member: Incarnation) -> tuple[EntryId, int] | None:
        """(first, count) of the ids that `member` has not answered; None for none."""
        first = self._progress[member]
        return None if self.decided or first >= self.beyond else (first, self.beyond - first)

    def take(
        self,
        member: Incarnation,
        *,
        found: Mapping[EntryId, bytes],
        missing: Container[EntryId],
        unreadable: Container[EntryId],
    ) -> None:
        """Count one awaited answer. It ends at the first id that it does not name."""
        begin = entry_id = self._progress[member]
        while entry_id < self.beyond:
            slot = self._slots[entry_id - self.first]
            if entry_id in found:
                self._take_copy(slot, member, entry_id, found[entry_id])
            elif entry_id in missing:
                slot.negatives += 1
                slot.answers.append((member, "does not hold it"))
            elif entry_id in unreadable or entry_id == begin:
                slot.answers.append((member, "cannot read it"))
                slot.unknowns += 1  # also if the answer names none of the requested ids: do not request them for ever
            else:
                break
            entry_id = EntryId(entry_id + 1)
        self._progress[member] = entry_id
        if not self.decided and self.problem is None:
            self._decide()

    def _take_copy(self, slot: _EntryCopies, member: Incarnation, entry_id: EntryId, data: bytes) -> None:
        ledger_id, topic_id = self._metadata.ledger_id, self._metadata.topic_id
        try:
            header = decode_entry(
                data, ledger_id=ledger_id, entry_id=entry_id, checksum=self._checksum, topic_id=topic_id
            )
        except CorruptEntry as error:
            slot.unknowns += 1
            slot.answers.append((member, error.message))
            return
        slot.answers.append((member, "holds it"))
        if slot.copy is None:
            slot.copy, slot.length = data, header.length
        elif slot.copy != data:
            self.problem = self._about(entry_id, f"two valid copies of entry {ledger_id}:{entry_id} differ")

    def _decide(self) -> None:
        write_quorum, ack_quorum = self._metadata.write_quorum, self._metadata.ack_quorum
        for offset, slot in enumerate(self._slots):
            if slot.copy is not None:
                continue
            entry_id = EntryId(self.first + offset)
            name = f"{self._metadata.ledger_id}:{entry_id}"
            if self._metadata.given_up_by:
                if slot.negatives + slot.unknowns < write_quorum:
                    return
                del self._slots[offset:]
                self.ends_ledger = True
                break
            if missing_is_certain(slot.negatives, write_quorum=write_quorum, ack_quorum=ack_quorum):
                if entry_id <= self._last_add_confirmed:
                    self.problem = self._about(entry_id, f"entry {name} was acknowledged, but too many members lack it")
                    return
                del self._slots[offset:]
                self.ends_ledger = True
                break
            if slot.negatives + slot.unknowns >= write_quorum:
                self.problem = self._about(
                    entry_id,
                    f"entry {name} is neither readable nor certainly missing: of {write_quorum} members "
                    f"{slot.negatives} lack it and {slot.unknowns} cannot read it",
                )
            return
        self.decided = True
        self._confirmations = {entry_id: {} for entry_id, _ in self.entries()}

    def entries(self) -> tuple[tuple[EntryId, bytes], ...]:
        """The original bytes of each entry above last_add_confirmed, ascending: what is written back once decided."""
        numbered = enumerate(self._slots, self.first)
        return tuple(
            (EntryId(entry_id), slot.copy)
            for entry_id, slot in numbered
            if slot.copy is not None and entry_id > self._last_add_confirmed
        )

    def confirm(self, member: Incarnation, entry_ids: tuple[EntryId, ...], *, ok: bool) -> None:
        """Count one member's response for entries written back. A confirmation is never taken back."""
        for entry_id in entry_ids:
            answers = self._confirmations.get(entry_id)
            if answers is None or member not in self._metadata.members:
                continue
            answers[member] = ok or answers.get(member, False)
            refusals = len(answers) - sum(answers.values())
            if refusals > self._metadata.write_quorum - self._metadata.ack_quorum:
                reason = f"entry {self._metadata.ledger_id}:{entry_id} was refused by {refusals} members"
                self.problem = self._about(entry_id, reason)

    @property
    def confirmed(self) -> bool:
        """Whether the range is decided and Qa members durably hold each of its entries."""
        ack_quorum = self._metadata.ack_quorum
        return self.decided and all(
            acked(sum(answers.values()), ack_quorum) for answers in self._confirmations.values()
        )

    def check_invariants(self) -> None:
        """Raises InvariantViolated if the counts contradict each other."""
        for offset, slot in enumerate(self._slots):
            name = f"{self._metadata.ledger_id}:{self.first + offset}"
            if slot.negatives + slot.unknowns + (slot.copy is not None) > self._metadata.write_quorum:
                raise InvariantViolated(f"a member was counted twice for entry {name}")
            if self.decided and slot.copy is None:
                raise InvariantViolated(f"entry {name} is decided without a copy")
