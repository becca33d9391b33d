"""The replay of a chain at a takeover: its last ledger is ended, and then its entries are folded.

    RECOVERING  the last ledger is fenced, recovered and closed; without a ledger there is nothing to do. A check of
                the owner's own chain does not recover it (`begin_at`)
    FENCED      waits for the fold, whose position says where the replay begins
    REPLAYING   ledger by ledger, as `ReplayList` lists them: its record is read, unless it was recovered here, and the
                entries behind that position are folded in order
    DONE        the end of the list is reached, or the fold needs no further ledger
    any --a record or an entry is missing or cannot be read--> FAILED: the takeover fails, and names it

Of a chain whose ledgers are alternatives, as those with snapshots are, the newest one that can be read suffices:

    RECOVERING --the recovery fails, or the takeover stops waiting for it--> FENCED
    REPLAYING  --a record or an entry is missing, cannot be read, or no live node has it--> the ledger before it

Rules
- No order between the chains of a topic is needed: an index is confirmed before it is delivered, so no entry of the ack
  log names a message that the log does not have (hazard deposed-owner-acks).
- An unreadable entry stops the takeover. Without it, stored messages would be called new; or acknowledged messages
  would be delivered again, and numbers and generations that were told to clients would be given out twice.
- What an operator has given up of a ledger is passed over: `given_up` says it, unless an entry behind it does, and the
  new owner writes it into the chain before anything else (hazard index-given-twice).
- Entries that no live storage node has are requested again until a node gives them; `unavailable` names them meanwhile.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Container
from dataclasses import dataclass
from enum import Enum

from oncelog.core.chain.replay_list import ReplayList
from oncelog.core.errors import CorruptEntry, EntriesLost, InvalidBatch, InvariantViolated, LogHole, UnreadableEntry
from oncelog.core.format_errors import UnknownFormat
from oncelog.core.formats.batch import Buffer, Checksum
from oncelog.core.formats.entry import EntryHeader, EntryKind, GivenUp, body_of, decode_given_up
from oncelog.core.formats.ledger_page import ListPage
from oncelog.core.formats.topic_record import LedgerLink
from oncelog.core.ids import BEFORE_ALL, EntryId, Incarnation, LedgerId, Position
from oncelog.core.ledger.metadata import LedgerKey, LedgerMetadata, LedgerState
from oncelog.core.ledger.recovery import (
    FenceMember,
    LedgerRecordEffect,
    LedgerRecordEvent,
    LedgerRecovered,
    LedgerRecovery,
    MemberErased,
    MemberFenced,
    RecoveryAdd,
    RecoveryAdded,
    RecoveryEffect,
    RecoveryFailed,
    RecoveryRead,
    RecoveryReadAnswered,
)
from oncelog.core.ledger.recovery_range import MemberAnswers
from oncelog.core.records.records import PageKey, ReadRecord, RecordRead

# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EntriesRead:
    """Consecutive entries of a CLOSED ledger, in order, whole or cut behind the id deltas (as requested)."""

    ledger_id: LedgerId
    entries: list[tuple[EntryId, Buffer]]


@dataclass(frozen=True, slots=True)
class EntryUnreadable:
    """No member will give this entry; `reason` and `members` name the answer of each. code: of the error. last: of the
    entries in a row that are lost."""

    ledger_id: LedgerId
    entry_id: EntryId
    reason: str
    members: MemberAnswers = ()
    code: str = UnreadableEntry.code
    last: EntryId | None = None


@dataclass(frozen=True, slots=True)
class EntriesUnavailable:
    """No member gives the entries first..last now. waiting_for: the members that may give them later."""

    ledger_id: LedgerId
    first: EntryId
    last: EntryId
    reason: str
    waiting_for: tuple[str, ...]


ReplayEvent = (
    EntriesRead | EntriesUnavailable | EntryUnreadable | LedgerRecordEvent | MemberErased | MemberFenced
    | RecoveryReadAnswered | RecoveryAdded
)  # fmt: skip


# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadEntries:
    """Read first..last of a CLOSED ledger from any member, in order. headers_only: payloads may be cut off."""

    metadata: LedgerMetadata
    first: EntryId
    last: EntryId
    headers_only: bool


ReplayEffect = ReadEntries | ReadRecord[PageKey] | LedgerRecordEffect | FenceMember | RecoveryRead | RecoveryAdd


# --- the machine ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TakeoverFailed:
    """Why a takeover failed: something that must exist does not, or cannot be read.

    code: of the error. ledger_id, entry_id: where, as far as known. members: (storage node, what it answered about
    that entry).
    """

    reason: str
    code: str = LogHole.code
    ledger_id: LedgerId | None = None
    entry_id: EntryId | None = None
    members: MemberAnswers = ()


class ChainFold(ABC):
    """What the entries of a chain mean."""

    #: follows the name of a ledger, an entry or a position in a failure
    of_chain = ""
    #: payloads are not needed
    headers_only = False
    #: the newest ledger that can be read suffices
    alternatives = False
    #: a restore has given up what missing storage nodes had: a snapshot may be newer than what is left of the chain,
    #: and ledgers may be missing in it
    restored = False
    #: the cursor lists no snapshots
    no_snapshots = False
    #: lower ledgers of the chain were trimmed
    deleted_below = LedgerId(0)

    @property
    def position(self) -> Position:
        """Of the last entry that was folded. The replay begins behind it."""
        return BEFORE_ALL

    def cannot_begin(self, first: LedgerLink | None) -> TakeoverFailed | None:
        """Why the replay cannot begin with this ledger, the first one that is listed; None: it can."""
        if self.position == BEFORE_ALL or (first is not None and first.ledger_id == self.position.ledger_id):
            return None
        if self.restored:
            return None  # what is not listed was lost with those nodes
        where = f"{self.position}{self.of_chain}, and the topic's list does not hold that ledger any more"
        return TakeoverFailed(f"the snapshot ends at {where}")

    def begin_ledger(self, link: LedgerLink) -> str | None:
        """The next entry is the first one of this ledger. Returns why it cannot be; None: it can."""
        return None

    @abstractmethod
    def fold(self, metadata: LedgerMetadata, following: EntryId, data: Buffer) -> EntryHeader:
        """Fold the next entry, which must be `following`. Raises CorruptEntry, LogHole and InvalidBatch."""

    def pass_over(self, last: Position) -> None:
        """The entries up to `last` are lost and were given up."""
        raise InvariantViolated(f"nothing of this chain is passed over, but {last} is")

    def end_ledger(self) -> bool:
        """The ledger is read, as far as it can be. Returns whether no further one is needed."""
        return False


class ReplayState(Enum):
    RECOVERING = "recover"
    FENCED = "fenced"
    REPLAYING = "replay"
    DONE = "done"
    FAILED = "failed"


def _nothing() -> None:
    pass


class ChainReplay:
    """One attempt for one chain, a part of a takeover."""

    def __init__(
        self,
        emit: Callable[[ReplayEffect], None],
        ledgers: ReplayList,
        fold: ChainFold,
        checksum: Checksum,
        *,
        fenced: Callable[[], None],
        replayed: Callable[[], None],
        failed: Callable[[TakeoverFailed], None],
        begins: Callable[[], None] = _nothing,
    ) -> None:
        """fenced: called once when the last ledger is closed. begins: called once when the first ledger to replay is
        known and fits. replayed: called once at the end. failed: called instead of any of these."""
        self._emit = emit
        self._list = ledgers
        self._fold = fold
        self._checksum = checksum
        self._fenced, self._begins, self._replayed, self._failed = fenced, begins, replayed, failed
        self.state = ReplayState.RECOVERING
        self.replayed_entries = 0
        self.replayed_bytes = 0
        #: {ledger: what was given up of it}, unless an entry behind it says so
        self.given_up: dict[LedgerId, GivenUp] = {}
        #: the entries that no live storage node has; of alternatives, also after they were passed over
        self.unavailable: EntriesUnavailable | None = None
        #: the recovery of the last ledger, while it goes on
        self.recovery: LedgerRecovery | None = None
        #: the last ledger, as it was recovered
        self.end: LedgerMetadata | None = None
        self._begun = False
        #: the ledger being read, and its next entry
        self._reading: tuple[LedgerMetadata, EntryId] | None = None

    def lacks(self, ledger_id: LedgerId) -> bool:
        """Whether a ledger behind its oldest one is in no list, although it was not trimmed."""
        return ledger_id >= self._fold.deleted_below and not self.owns(ledger_id)

    def owns(self, ledger_id: LedgerId) -> bool:
        """Whether the chain lists the ledger outside of pages."""
        return self._list.lists(ledger_id)

    @property
    def is_fenced(self) -> bool:
        return self.state is not ReplayState.RECOVERING

    def handle(self, event: ReplayEvent) -> None:
        """Take one completion. Completions of another ledger or step are late and are ignored."""
        if self.state in (ReplayState.DONE, ReplayState.FAILED):
            return
        match event:
            case EntriesRead() | EntriesUnavailable() | EntryUnreadable():
                if self._reading is not None and event.ledger_id == self._reading[0].ledger_id:
                    self._read_answered(event, *self._reading)
            case RecordRead() if self.recovery is None:
                self._ledger_read(event)
            case _:
                if self.recovery is not None:
                    self._recovery_step(self.recovery.handle(event))

    def stop(self) -> None:
        """The takeover has failed."""
        self.state = ReplayState.FAILED
        self.recovery = self._reading = None

    def _fail(self, failure: TakeoverFailed | str) -> None:
        self.stop()
        self._failed(TakeoverFailed(failure) if isinstance(failure, str) else failure)

    # --- recover ------------------------------------------------------------------------------------------------------

    def start(
        self, record: RecordRead[LedgerKey, LedgerMetadata] | None = None, *, record_requested: bool = False
    ) -> None:
        """Recover the last ledger. record_requested: its record was requested before; record: the response, if that has
        arrived."""
        last = self._list.last
        if last is None:
            self._now_fenced()
            return
        self.recovery = LedgerRecovery(last, checksum=self._checksum)
        effects = self.recovery.start()
        if record_requested:
            effects = self.recovery.handle(record) if record is not None else []
        self._recovery_step(effects)

    def begin_at(self, end: LedgerMetadata | None) -> None:
        """Instead of `start`, at the owner that writes the chain: nothing is fenced, and the last ledger is read up to
        this end, which the owner has confirmed. end: as of a CLOSED ledger; None: the last ledger is passed over."""
        self.end = end
        self._now_fenced()

    def _recovery_step(self, effects: list[RecoveryEffect]) -> None:
        for effect in effects:
            if isinstance(effect, LedgerRecovered):
                self.recovery, self.end = None, effect.metadata
                self._now_fenced()
            elif not isinstance(effect, RecoveryFailed):
                self._emit(effect)
            elif self._fold.alternatives:
                self.pass_over_last()
            else:
                code = LogHole.code if effect.entry_id is None else UnreadableEntry.code
                self._fail(TakeoverFailed(effect.reason, code, effect.ledger_id, effect.entry_id, effect.members))

    def pass_over_last(self) -> None:
        """Of alternatives: go on without the last ledger, which is not recovered."""
        self.recovery = None
        self._now_fenced()

    def _now_fenced(self) -> None:
        self.state = ReplayState.FENCED
        self._fenced()

    def look(self) -> None:
        """The members have been silent for long: look at the record of the last ledger again."""
        if self.recovery is not None:
            self._recovery_step(self.recovery.look())

    # --- replay -------------------------------------------------------------------------------------------------------

    def replay(self) -> None:
        """Fold the entries behind the fold's position."""
        self.state = ReplayState.REPLAYING
        self._list.start(self._fold.position.ledger_id)
        if self._fold.alternatives and self.end is None and self._list.next is not None:
            self._list.taken()  # the last ledger is not recovered
        self._begin()

    def page_read(self, event: RecordRead[PageKey, ListPage]) -> None:
        """Take a page of the list."""
        if self.state is not ReplayState.REPLAYING:
            return
        reason = self._list.page_read(event)
        if reason is not None:
            self._fail(reason)
        elif not self._begun:
            self._begin()
        elif self._reading is None:
            self._next_ledger()

    def _begin(self) -> None:
        """Go on once the first ledger is known."""
        if not self._list.ready:
            return
        self._begun = True
        failure = self._fold.cannot_begin(self._list.next)
        if failure is not None:
            self._fail(failure)
            return
        self._begins()
        if self.state is ReplayState.REPLAYING:
            self._next_ledger()

    def _next_ledger(self) -> None:
        following = self._list.next
        if not self._list.ready:
            return
        if following is None:
            self._end()
        elif self.end is not None and self.end.ledger_id == following.ledger_id:
            self._replay_ledger(self.end, following)
        else:
            self._emit(ReadRecord(LedgerKey(following.ledger_id)))

    def _end(self) -> None:
        self.state = ReplayState.DONE
        self._replayed()

    def _ledger_read(self, event: RecordRead[LedgerKey, LedgerMetadata]) -> None:
        following = self._list.next
        if self._reading is not None or following is None or event.key.ledger_id != following.ledger_id:
            return
        if event.value is not None:
            self._replay_ledger(event.value, following)
        else:
            where = f"ledger {following.ledger_id}{self._fold.of_chain}"
            self._cannot_go_on(TakeoverFailed(f"{where} is in the topic's list and has no record"))

    def _replay_ledger(self, metadata: LedgerMetadata, link: LedgerLink) -> None:
        ledger_id, position, of_chain = metadata.ledger_id, self._fold.position, self._fold.of_chain
        if metadata.state is not LedgerState.CLOSED:
            reason = f"ledger {ledger_id}{of_chain} is {metadata.state.value} behind a recovered one"
            self._cannot_go_on(TakeoverFailed(reason))
            return
        first = EntryId(position.entry_id + 1 if position.ledger_id == ledger_id else 0)
        misfit = self._fold.begin_ledger(link) if first == 0 else None
        if misfit is not None:
            self._fail(misfit)
            return
        self._list.taken()
        if metadata.given_up_by:
            self.given_up[ledger_id] = GivenUp(ledger_id, EntryId(metadata.end + 1), metadata.given_up_by)
        if first > metadata.end + 1 and not (metadata.given_up_by or self._fold.restored):
            self._fail(f"the snapshot ends at {position}{of_chain}, beyond the end {metadata.end} of that ledger")
        elif first > metadata.end:
            self._next_ledger()
        else:
            self._read(metadata, first)

    def _read(self, metadata: LedgerMetadata, first: EntryId) -> None:
        self._reading = (metadata, first)
        self._emit(ReadEntries(metadata, first, metadata.end, self._fold.headers_only))

    def _read_answered(
        self, event: EntriesRead | EntriesUnavailable | EntryUnreadable, metadata: LedgerMetadata, following: EntryId
    ) -> None:
        match event:
            case EntriesRead():
                if event.entries and event.entries[0][0] == following:
                    self._entries_read(event, metadata, following)
            case EntriesUnavailable():
                self.unavailable = event
                if self._fold.alternatives:
                    self._end_ledger()
                else:
                    self._read(metadata, following)  # no busy loop: the shell has waited for them before this event
            case EntryUnreadable():
                self._unreadable(event, metadata, following)

    def _entries_read(self, event: EntriesRead, metadata: LedgerMetadata, following: EntryId) -> None:
        fold = self._fold
        if not fold.alternatives:
            self.unavailable = None
        for _, data in event.entries:
            try:
                header = fold.fold(metadata, following, data)
                if header.kind == EntryKind.GIVEN_UP:
                    self.given_up.pop(decode_given_up(body_of(data)).ledger_id, None)
            except (CorruptEntry, LogHole, InvalidBatch, UnknownFormat) as error:
                where = f"entry {metadata.ledger_id}:{following}{fold.of_chain}"
                reason = f"{where} cannot be replayed: {error.message}"
                self._cannot_go_on(TakeoverFailed(reason, error.code, metadata.ledger_id, following))
                return
            self.replayed_entries += 1
            self.replayed_bytes += header.body_bytes
            following = EntryId(following + 1)
        if following <= metadata.end:
            self._reading = (metadata, following)
        else:
            self._end_ledger()

    def _end_ledger(self) -> None:
        self._reading = None
        if self._fold.end_ledger():
            self._end()
        else:
            self._next_ledger()

    def _cannot_go_on(self, failure: TakeoverFailed) -> None:
        """The next ledger or entry cannot be read. Of alternatives, what was complete before it counts."""
        if not self._fold.alternatives:
            self._fail(failure)
        elif self._reading is not None:
            self._end_ledger()
        else:
            self._list.taken()
            self._next_ledger()

    def _unreadable(self, event: EntryUnreadable, metadata: LedgerMetadata, following: EntryId) -> None:
        given_up = bool(metadata.given_up_by) and not self._fold.alternatives
        if given_up and event.code == EntriesLost.code and event.entry_id == following:
            self._pass_over(metadata, following, event.entry_id if event.last is None else event.last)
            return
        reason = f"entry {event.ledger_id}:{event.entry_id}{self._fold.of_chain} cannot be read: {event.reason}"
        self._cannot_go_on(TakeoverFailed(reason, event.code, event.ledger_id, event.entry_id, event.members))

    def _pass_over(self, metadata: LedgerMetadata, first: EntryId, last: EntryId) -> None:
        """Replay the chain without these entries, which are lost and were given up."""
        self.unavailable = None
        known = self.given_up[metadata.ledger_id]
        self.given_up[metadata.ledger_id] = known._replace(first_entry=min(first, known.first_entry))
        last = min(last, metadata.end)
        self._fold.pass_over(Position(metadata.ledger_id, last))
        if last < metadata.end:
            self._read(metadata, EntryId(last + 1))
        else:
            self._end_ledger()

    # --- what it waits for --------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether the last ledger is being recovered, or entries are read."""
        return self.recovery is not None or self._reading is not None

    def cannot_end(self, able: Container[Incarnation]) -> bool:
        """Whether too few members of the ledger being recovered can answer, of which only `able` ones do."""
        return self.recovery is not None and self.recovery.cannot_end(able)

    def waits_for(self) -> tuple[LedgerId, EntryId | None, MemberAnswers] | None:
        """(ledger, entry if known, members that have not answered); None while no member is asked."""
        if self.recovery is not None:
            members = self.recovery.waits_for()
            return (self.recovery.ledger_id, None, members) if members else None
        if self._reading is None:
            return None
        metadata, at = self._reading
        return metadata.ledger_id, at, tuple((m, f"may be asked for entry {at}") for m in metadata.members)
