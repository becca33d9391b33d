"""The ledgers of the log that a takeover replays, in order. Ledgers in pages are read page by page.

start(from ledger) -> READY: `next` is the ledger to replay, or None behind the last one
                   -> otherwise a page is being read: ReadLedgerPage -> page_read -> READY
taken              -> the same for the ledger after it
"""

from oncelog.core.errors import InvariantViolated, LedgerUnavailable, LogHole
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.entry import peek_header
from oncelog.core.formats.topic_record import LedgerLink, TopicRecord
from oncelog.core.ids import BEFORE_ALL, LedgerId, Position
from oncelog.core.publishing.dedup_state import DedupState
from oncelog.core.topic_events.effects import ReadLedgerPage, Step, TakeoverFailed
from oncelog.core.topic_events.events import EntriesUnavailable, LedgerPageRead


class ReplayList:
    """Of one attempt at a takeover."""

    def __init__(self, step: Step, record: TopicRecord) -> None:
        self._step = step
        self._record = record
        #: pages still to be read, the next one last
        self._pages = list(reversed(record.pages))
        #: ledgers still to be replayed, the next one last; None: those outside of pages are not among them yet
        self._links: list[LedgerLink] = []
        self._tail_taken = False
        self._begin = LedgerId(-1)

    def start(self, begin: LedgerId) -> None:
        """The replay begins in this ledger, or in the first one of the log behind it."""
        self._begin = begin
        while self._pages and self._pages[-1].last < begin:
            self._pages.pop()
        self._go_on()

    def _go_on(self) -> None:
        if self._links:
            return
        if self._pages:
            self._step.emit(ReadLedgerPage(self._pages[-1].name))
        elif not self._tail_taken:
            self._tail_taken = True
            self._links = [link for link in reversed(self._record.ledgers) if link.ledger_id >= self._begin]

    @property
    def ready(self) -> bool:
        return bool(self._links) or self._tail_taken

    @property
    def next(self) -> LedgerLink | None:
        """The ledger to replay, once `ready`; None: all are replayed."""
        return self._links[-1] if self._links else None

    def taken(self) -> None:
        """The next ledger is being replayed."""
        if not self._links:
            raise InvariantViolated("no ledger of the log is left to replay")
        self._links.pop()
        self._go_on()

    def page_read(self, event: LedgerPageRead) -> str | None:
        """Take a page. Returns why it cannot be used; None if it can, or if it is not the one that was asked for."""
        if self._links or not self._pages or event.name != self._pages[-1].name:
            return None
        if event.page is None:
            return f"page {event.name} of the topic's list of ledgers has no record"
        link = self._pages.pop()
        listed = [LedgerLink(each.ledger_id, each.base_index) for each in link.listed(event.page)]
        if (listed[0].ledger_id, listed[-1].ledger_id) != (link.first, link.last):
            return f"page {event.name} of the topic's list of ledgers is not what its link says"
        self._links = [each for each in reversed(listed) if each.ledger_id >= self._begin]
        self._go_on()
        return None


def cannot_begin(
    fold: DedupState, deleted_below: LedgerId, first: LedgerLink | None, away: EntriesUnavailable | None
) -> TakeoverFailed | None:
    """Why the replay cannot go on from the fold of a snapshot with this ledger; None: it can.

    away: the entries of a newer snapshot that no node has.
    """
    position = fold.position
    # A ledger that all kept snapshots cover as a whole may have been deleted: no replay begins in it.
    covered = deleted_below > position.ledger_id and first is not None and first.base_index == fold.next_index
    if position != BEFORE_ALL and not covered and (first is None or first.ledger_id != position.ledger_id):
        reason = f"the snapshot ends at {position}, and the topic's list does not hold that ledger any more"
        return TakeoverFailed(reason)
    if position != BEFORE_ALL or first is None or first.base_index == 0:
        return None
    reason = f"no snapshot can be read, and the log begins with message {first.base_index}, not with the first"
    if away is None:
        return TakeoverFailed(reason)
    members = tuple((member, "is waited for") for member in away.waiting_for)
    return TakeoverFailed(f"{reason}; {away.reason}", LedgerUnavailable.code, away.ledger_id, away.first, members)


def fold_next(fold: DedupState, following: Position, data: Buffer) -> None:
    """Fold one entry, if it is the next one. Control entries do not move the index, so the index cannot show a hole."""
    header = peek_header(data)
    if header.position != following:
        raise LogHole(f"{following} was to follow, the bytes say {header.position}")
    fold.fold(header, data)
