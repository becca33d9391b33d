"""A read of consecutive entries of one ledger: which member is asked next, and what its answers give. Pure.

    ask a member --entries--> the next page, from the same member
                 --it lacks, cannot read or spoils the next entry--> it has refused that entry: ask another member
                 --silent, absent, replaced, ERASED--> it has not refused: ask another member
    no member is left to ask --> the caller's policy

Rules
- One member is asked for as long as it gives the entries.
- ERASED is never a refusal: it proves nothing about the entry (hazard answer-of-a-former-member).
- Whole entries are verified here, whatever the node verified. With headers_only the node verifies the stored record,
  and the ids are compared here.
"""

from collections.abc import Sequence
from typing import NamedTuple

from oncelog.core.errors import CorruptEntry
from oncelog.core.formats.batch import Buffer, Checksum
from oncelog.core.formats.entry import EntryHeader, decode_entry, peek_header, require_topic
from oncelog.core.ids import EntryId, Incarnation, LedgerId, TopicId
from oncelog.core.ledger.member_status import ReadStatus

HAS_ERASED = "has erased its copy"

Page = list[tuple[EntryHeader, memoryview]]


class ReceivedRead(NamedTuple):
    """One frame of a member's answer to a read: entries[i] is entry entry_ids[i].

    missing_ids: certainly not stored. unreadable_ids: stored, but unreadable. last_entry, last_add_confirmed: -1: none.
    entries: slices of the received frame.
    """

    status: ReadStatus
    entry_ids: list[EntryId]
    missing_ids: list[EntryId]
    unreadable_ids: list[EntryId]
    last_entry: EntryId
    last_add_confirmed: EntryId
    entries: list[memoryview]


class Refusal(NamedTuple):
    """damage: the member's copy is damaged, and not merely short."""

    why: str
    damage: bool


class EntryReading:
    """The position of one read, and what each member answered about the entry at that position."""

    def __init__(
        self,
        ledger_id: LedgerId,
        members: Sequence[Incarnation],
        first: EntryId,
        last: EntryId,
        *,
        checksum: Checksum,
        topic_id: TopicId | None = None,
        headers_only: bool = False,
        again: bool = True,
    ) -> None:
        """topic_id: of the entries; None: of any topic. again: whether a member that has failed is asked for later
        entries."""
        self.ledger_id = ledger_id
        self.members = members
        self.following = first
        self.last = last
        self.headers_only = headers_only
        #: {member: why it has refused the entry `following`}
        self.refusals: dict[Incarnation, Refusal] = {}
        #: {member: why it gave no answer}
        self.silent: dict[Incarnation, str] = {}
        #: whether a member's answer that it lacks an entry means damage
        self.missing_is_damage = False
        self._checksum = checksum
        self._topic_id = topic_id
        self._again = again
        #: asked first: the member that sent the last entries
        self.preferred = next(iter(members), None)

    @property
    def finished(self) -> bool:
        return self.following > self.last

    def askable(self) -> list[Incarnation]:
        """The members that have not failed for this entry: first the one that sent the last entries, then in turn."""
        at = self.members.index(self.preferred) if self.preferred in self.members else 0
        return [member for member in (*self.members[at:], *self.members[:at]) if not self.has_failed(member)]

    def has_failed(self, member: Incarnation) -> bool:
        return member in self.refusals or member in self.silent

    def failed(self, member: Incarnation, why: str) -> None:
        """The member gave no answer."""
        self.silent[member] = why

    def ended(self, member: Incarnation, asked_from: EntryId) -> None:
        """A call that began with the entry `asked_from` is over."""
        if self.following == asked_from:
            self.silent[member] = "no answer"

    def answered(self, member: Incarnation, answer: ReceivedRead) -> Page:
        """The entries from `following` on, up to the first that the member does not give."""
        if answer.status is not ReadStatus.OK:
            # Perhaps another incarnation at its address, perhaps too busy: this says nothing about the entry.
            self.silent[member] = HAS_ERASED if answer.status is ReadStatus.ERASED else answer.status.name
            return []
        page = self.take(member, answer)
        if page:
            self.preferred = member
            if self._again:
                self._forget(member)
        return page

    def take(self, member: Incarnation, answer: ReceivedRead) -> Page:
        """The same for an answer with entries. A refusal of the next entry is noted."""
        held = dict(zip(answer.entry_ids, answer.entries, strict=True))
        missing, unreadable = set(answer.missing_ids), set(answer.unreadable_ids)
        page: Page = []
        while not self.finished:
            entry_id = self.following
            data = held.get(entry_id)
            if data is None:
                if entry_id in missing and self.missing_is_damage:
                    # hazard verified-copy-is-missing
                    self.refusals[member] = Refusal("does not hold it, and had read it back before", True)
                elif entry_id in missing:
                    self.refusals[member] = Refusal("does not hold it", False)
                elif entry_id in unreadable:
                    self.refusals[member] = Refusal("cannot read it", True)
                break
            try:
                page.append((self.verified(data, entry_id), data))
            except CorruptEntry as error:
                self.refusals[member] = Refusal(error.message, True)
                break
            self.following = EntryId(entry_id + 1)
        return page

    def _forget(self, member: Incarnation) -> None:
        """What members answered for earlier entries says nothing about this one."""
        own = self.refusals.get(member)
        self.silent.clear()
        self.refusals.clear()
        if own is not None:
            self.refusals[member] = own

    def verified(self, data: Buffer, entry_id: EntryId) -> EntryHeader:
        """Raises CorruptEntry."""
        if not self.headers_only:
            return decode_entry(
                data, ledger_id=self.ledger_id, entry_id=entry_id, checksum=self._checksum, topic_id=self._topic_id
            )
        header = peek_header(data)
        require_topic(header, self._topic_id)
        if (header.ledger_id, header.entry_id) != (self.ledger_id, entry_id):
            raise CorruptEntry(f"the bytes are entry {header.ledger_id}:{header.entry_id}")
        return header

    def description(self) -> str:
        """The next entry, and what each member said about it."""
        said = self.silent | {member: refusal.why for member, refusal in self.refusals.items()}
        answers = "; ".join(f"{member}: {said.get(member, 'not asked')}" for member in self.members)
        return f"{self.ledger_id}:{self.following} ({answers})"
