"""The ack chain at a takeover: its last ledger is ended beside the log's, and its entries are folded.

    RECOVERING  the last ledger is fenced, recovered and closed; without a ledger there is nothing to do
    FENCED      waits for the snapshot, which names a position in this chain
    REPLAYING   the entries behind that position are folded, ledger by ledger
    DONE        the end of the chain is reached
    any --a record or an entry is missing or cannot be read--> FAILED: the takeover fails, and names it

Rules
- No order between the log and the ack chain is needed: an index is confirmed before it is delivered, so no entry of the
  ack chain names a message that the log does not have (hazard 53).
- An unreadable entry stops the takeover. Without it, acknowledged messages would be delivered again, and numbers and
  generations that were told to clients would be given out twice.
- What an operator has given up of a ledger is passed over: what it acknowledged may be delivered again. All numbers,
  generations and seek epochs jump, and the chain says so (GivenUp) before anything else is appended (hazard 72).
- Entries that no live storage node has are requested again until a node gives them.
"""

from collections.abc import Callable, Container
from enum import Enum

from oncelog.core.acks.ack_state import SubscriptionsState
from oncelog.core.errors import CorruptEntry, EntriesLost, LogHole, UnreadableEntry
from oncelog.core.formats.batch import Checksum
from oncelog.core.formats.entry import EntryKind, GivenUp, body_of, decode_entry, decode_given_up
from oncelog.core.formats.topic_record import TopicRecord
from oncelog.core.ids import BEFORE_ALL, EntryId, Incarnation, LedgerId, Position
from oncelog.core.ledger.metadata import LedgerKey, LedgerMetadata, LedgerState
from oncelog.core.ledger.recovery import (
    LedgerRecordEvent,
    LedgerRecovered,
    LedgerRecovery,
    MemberErased,
    MemberFenced,
    RecoveryAdded,
    RecoveryEffect,
    RecoveryFailed,
    RecoveryReadAnswered,
)
from oncelog.core.ledger.recovery_range import MemberAnswers
from oncelog.core.records.records import ReadRecord, RecordRead
from oncelog.core.topic_events.effects import ReadEntries, Step, TakeoverFailed
from oncelog.core.topic_events.events import EntriesRead, EntriesUnavailable, EntryUnreadable

AckReplayEvent = (
    LedgerRecordEvent | MemberErased | MemberFenced | RecoveryReadAnswered | RecoveryAdded | EntriesRead
    | EntriesUnavailable | EntryUnreadable
)  # fmt: skip


class AckReplayState(Enum):
    RECOVERING = "recover"
    FENCED = "fenced"
    REPLAYING = "replay"
    DONE = "done"
    FAILED = "failed"


class AckReplay:
    """One attempt, a part of a takeover."""

    def __init__(
        self,
        step: Step,
        record: TopicRecord,
        checksum: Checksum,
        *,
        fenced: Callable[[], None],
        replayed: Callable[[], None],
        failed: Callable[[TakeoverFailed], None],
    ) -> None:
        """fenced, replayed: called once each, when that is so. failed: called instead."""
        self._step = step
        self._checksum = checksum
        self._fenced, self._replayed, self._failed = fenced, replayed, failed
        self._list = record.acks
        self._deleted_below = record.acks_deleted_below
        self.state = AckReplayState.RECOVERING
        self.fold = SubscriptionsState()
        self.replayed_bytes = 0
        #: {ledger: what was given up of it}, unless an entry behind it says so
        self.given_up: dict[LedgerId, GivenUp] = {}
        #: the entries that no live storage node has
        self.unavailable: EntriesUnavailable | None = None
        self._recovery: LedgerRecovery | None = None
        #: the last ledger, as it was recovered
        self.end: LedgerMetadata | None = None
        #: ledgers still to be replayed, the next one last
        self._ledgers: list[LedgerId] = []
        #: the ledger being read, and its next entry
        self._reading: tuple[LedgerMetadata, EntryId] | None = None

    def owns(self, ledger_id: LedgerId) -> bool:
        """Whether the ledger is one of the ack chain."""
        return ledger_id in self._list

    @property
    def is_fenced(self) -> bool:
        return self.state is not AckReplayState.RECOVERING

    # --- recover ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Recover the last ledger."""
        if not self._list:
            self._now_fenced()
            return
        self._recovery = LedgerRecovery(self._list[-1], checksum=self._checksum)
        self._recovery_step(self._recovery.start())

    def _recovery_step(self, effects: list[RecoveryEffect]) -> None:
        for effect in effects:
            if isinstance(effect, LedgerRecovered):
                self._recovery, self.end = None, effect.metadata
                self._now_fenced()
            elif isinstance(effect, RecoveryFailed):
                self._recovery = None
                code = LogHole.code if effect.entry_id is None else UnreadableEntry.code
                self._fail(TakeoverFailed(effect.reason, code, effect.ledger_id, effect.entry_id, effect.members))
            else:
                self._step.emit(effect)

    def _now_fenced(self) -> None:
        self.state = AckReplayState.FENCED
        self._fenced()

    def look(self) -> None:
        """The members have been silent for long: look at the record of the last ledger again."""
        if self._recovery is not None:
            self._recovery_step(self._recovery.look())

    def _fail(self, failure: TakeoverFailed) -> None:
        self.state = AckReplayState.FAILED
        self._recovery = self._reading = None
        self._failed(failure)

    def handle(self, event: AckReplayEvent) -> None:
        """Take one completion of a ledger of this chain. Completions of another ledger or step are ignored."""
        if self.state in (AckReplayState.DONE, AckReplayState.FAILED):
            return
        match event:
            case EntriesRead():
                self._entries_read(event)
            case EntriesUnavailable():
                self._entries_unavailable(event)
            case EntryUnreadable():
                self._unreadable(event)
            case RecordRead() if self._recovery is None:
                self._ledger_read(event)
            case _:
                if self._recovery is not None:
                    self._recovery_step(self._recovery.handle(event))

    # --- replay -------------------------------------------------------------------------------------------------------

    def replay(self, fold: SubscriptionsState) -> None:
        """Fold the entries behind `fold.position`, which a snapshot ends with."""
        self.state = AckReplayState.REPLAYING
        self.fold = fold
        position = fold.position
        following = [ledger_id for ledger_id in self._list if ledger_id >= position.ledger_id]
        if position != BEFORE_ALL and not (following and following[0] == position.ledger_id):
            reason = f"the snapshot ends at {position} of the ack chain, and the topic's list does not hold that ledger"
            self._fail(TakeoverFailed(f"{reason} any more"))
        elif position == BEFORE_ALL and self._deleted_below:
            reason = "no snapshot of the subscriptions can be read, and the ack chain does not begin with its first"
            self._fail(TakeoverFailed(f"{reason} ledger: ledgers below {self._deleted_below} were deleted"))
        else:
            self._ledgers = following[::-1]
            self._next_ledger()

    def _next_ledger(self) -> None:
        if not self._ledgers:
            self.state = AckReplayState.DONE
            for _ in self.given_up:
                self.fold.gave_up()
            self._replayed()
        elif self.end is not None and self.end.ledger_id == self._ledgers[-1]:
            self._replay_ledger(self.end)
        else:
            self._step.emit(ReadRecord(LedgerKey(self._ledgers[-1])))

    def _ledger_read(self, event: RecordRead[LedgerKey, LedgerMetadata]) -> None:
        ledger_id = event.key.ledger_id
        if self._reading is not None or not self._ledgers or ledger_id != self._ledgers[-1]:
            return
        if event.value is None:
            self._fail(TakeoverFailed(f"ledger {ledger_id} is in the topic's ack chain and has no record"))
        else:
            self._replay_ledger(event.value)

    def _replay_ledger(self, metadata: LedgerMetadata) -> None:
        if metadata.state is not LedgerState.CLOSED:
            reason = f"ledger {metadata.ledger_id} of the ack chain is {metadata.state.value} behind a recovered one"
            self._fail(TakeoverFailed(reason))
            return
        position = self.fold.position
        first = EntryId(position.entry_id + 1 if position.ledger_id == metadata.ledger_id else 0)
        self._ledgers.pop()
        if metadata.given_up_by:
            at_end = GivenUp(metadata.ledger_id, EntryId(metadata.end + 1), metadata.given_up_by)
            self.given_up[metadata.ledger_id] = at_end
        if first > metadata.end + 1 and not metadata.given_up_by:
            reason = f"the snapshot ends at {position} of the ack chain, beyond the end {metadata.end} of that ledger"
            self._fail(TakeoverFailed(reason))
        elif first > metadata.end:
            self._next_ledger()
        else:
            self._reading = (metadata, first)
            self._read(metadata, first)

    def _read(self, metadata: LedgerMetadata, first: EntryId) -> None:
        self._step.emit(ReadEntries(metadata, first, metadata.end, headers_only=False))

    def _entries_read(self, event: EntriesRead) -> None:
        if self._reading is None or event.ledger_id != self._reading[0].ledger_id or not event.entries:
            return
        metadata, following = self._reading
        if event.entries[0][0] != following:
            return
        self.unavailable = None
        for _, data in event.entries:
            ledger_id, topic_id = metadata.ledger_id, metadata.topic_id
            try:
                header = decode_entry(
                    data, ledger_id=ledger_id, entry_id=following, checksum=self._checksum, topic_id=topic_id
                )
                self.fold.fold(header, body_of(data))
            except (CorruptEntry, LogHole) as error:
                reason = f"entry {ledger_id}:{following} of the ack chain cannot be replayed: {error.message}"
                self._fail(TakeoverFailed(reason, error.code, ledger_id, following))
                return
            if header.kind == EntryKind.GIVEN_UP:
                self.given_up.pop(decode_given_up(body_of(data)).ledger_id, None)
            self.replayed_bytes += header.body_bytes
            following = EntryId(following + 1)
        self._go_on(metadata, following)

    def _go_on(self, metadata: LedgerMetadata, following: EntryId) -> None:
        if following <= metadata.end:
            self._reading = (metadata, following)
        else:
            self._reading = None
            self._next_ledger()

    def _entries_unavailable(self, event: EntriesUnavailable) -> None:
        """Read them again. The shell has waited for them before this event, so this is no busy loop."""
        if self._reading is not None and event.ledger_id == self._reading[0].ledger_id:
            self.unavailable = event
            self._read(*self._reading)

    def _unreadable(self, event: EntryUnreadable) -> None:
        if self._reading is None or event.ledger_id != self._reading[0].ledger_id:
            return
        metadata, following = self._reading
        if event.code == EntriesLost.code and metadata.given_up_by and event.entry_id == following:
            self._pass_over(metadata, following, event.entry_id if event.last is None else event.last)
            return
        reason = f"entry {event.ledger_id}:{event.entry_id} of the ack chain cannot be read: {event.reason}"
        self._fail(TakeoverFailed(reason, event.code, event.ledger_id, event.entry_id, event.members))

    def _pass_over(self, metadata: LedgerMetadata, first: EntryId, last: EntryId) -> None:
        """Replay the chain without these entries, which are lost and were given up."""
        self.unavailable = None
        known = self.given_up[metadata.ledger_id]
        self.given_up[metadata.ledger_id] = known._replace(first_entry=min(first, known.first_entry))
        last = min(last, metadata.end)
        self.fold.pass_over(Position(metadata.ledger_id, last))
        self._go_on(metadata, EntryId(last + 1))
        if self._reading is not None:
            self._read(*self._reading)

    # --- what it waits for --------------------------------------------------------------------------------------------

    def cannot_end(self, able: Container[Incarnation]) -> bool:
        """Whether too few members of the ledger being recovered can answer, of which only `able` ones do."""
        return self._recovery is not None and self._recovery.cannot_end(able)

    def waits_for(self) -> tuple[LedgerId, EntryId | None, MemberAnswers] | None:
        """(ledger, entry if known, members that have not answered); None while no member is asked."""
        if self._recovery is not None:
            members = self._recovery.waits_for()
            return (self._recovery.ledger_id, None, members) if members else None
        if self._reading is None:
            return None
        metadata, at = self._reading
        return metadata.ledger_id, at, tuple((m, f"may be asked for entry {at}") for m in metadata.members)
