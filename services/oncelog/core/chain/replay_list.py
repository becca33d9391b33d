"""The ledgers that a replay reads, in order. Ledgers in pages are read page by page.

start(from ledger) -> READY: `next` is the ledger to replay, or None behind the last one
                   -> otherwise a page is being read: ReadRecord -> page_read -> READY
taken              -> the same for the ledger after it
"""

from collections.abc import Callable, Sequence

from oncelog.core.errors import InvariantViolated
from oncelog.core.formats.ledger_page import ListPage, PageLink
from oncelog.core.formats.topic_record import LedgerLink
from oncelog.core.ids import LedgerId, TopicId
from oncelog.core.records.records import PageKey, ReadRecord, RecordRead


class ReplayList:
    """Of one attempt at a takeover."""

    def __init__(
        self,
        emit: Callable[[ReadRecord[PageKey]], None],
        topic_id: TopicId,
        ledgers: Sequence[LedgerLink],
        pages: Sequence[PageLink] = (),
        *,
        newest_first: bool = False,
    ) -> None:
        """ledgers: those outside of pages, the oldest first."""
        self._emit = emit
        self._topic_id = topic_id
        self._ledgers = ledgers
        self._newest_first = newest_first
        #: pages still to be read, the next one last
        self._pages = list(reversed(pages))
        #: ledgers still to be replayed, the next one last
        self._links: list[LedgerLink] = []
        #: whether those outside of pages are among them, or were
        self._tail_taken = False
        self._begin = LedgerId(-1)

    @property
    def last(self) -> LedgerId | None:
        """The last ledger of the chain; None: it has none."""
        return self._ledgers[-1].ledger_id if self._ledgers else None

    def lists(self, ledger_id: LedgerId) -> bool:
        """Whether the ledger is listed outside of pages."""
        return any(link.ledger_id == ledger_id for link in self._ledgers)

    def start(self, begin: LedgerId) -> None:
        """The replay begins in this ledger, or in the first one of the list behind it."""
        self._begin = begin
        while self._pages and self._pages[-1].last < begin:
            self._pages.pop()
        self._go_on()

    def _go_on(self) -> None:
        if self._links:
            return
        if self._pages:
            self._emit(ReadRecord(PageKey(self._topic_id, self._pages[-1].name)))
        elif not self._tail_taken:
            self._tail_taken = True
            self._links = [link for link in reversed(self._ledgers) if link.ledger_id >= self._begin]
            if self._newest_first:
                self._links.reverse()

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
            raise InvariantViolated("no ledger of the chain is left to replay")
        self._links.pop()
        self._go_on()

    def page_read(self, event: RecordRead[PageKey, ListPage]) -> str | None:
        """Take a page. Returns why it cannot be used; None if it can, or if it is not the one that was asked for."""
        name, page = event.key.name, event.value
        if self._links or not self._pages or name != self._pages[-1].name:
            return None
        if page is None:
            return f"page {name} of the topic's list of ledgers has no record"
        link = self._pages.pop()
        listed = [LedgerLink(each.ledger_id, each.base_index) for each in link.listed(page)]
        if (listed[0].ledger_id, listed[-1].ledger_id) != (link.first, link.last):
            return f"page {name} of the topic's list of ledgers is not what its link says"
        self._links = [each for each in reversed(listed) if each.ledger_id >= self._begin]
        self._go_on()
        return None
