"""The list of ledgers of a topic's log for its readers, with those in pages, which are read when they are needed.

Pages never change, so the few that were used last are kept, for all readers of the topic.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable
from operator import attrgetter

from oncelog.core.chain.ownership import Ownership
from oncelog.core.errors import LogHole
from oncelog.core.formats.ledger_page import ListPage, PagedLedger, PageLink
from oncelog.core.formats.topic_record import LedgerLink, TopicRecord
from oncelog.core.ids import LedgerId
from oncelog.metadata_store.session import paths

#: Pages in memory for each topic: some megabytes.
PAGES_MAX = 4


class LedgerList:
    """Of one topic. It follows the topic record as the owner has it."""

    def __init__(self, ownership: Ownership, read: Callable[[LedgerId], Awaitable[ListPage | None]]) -> None:
        """read: reads a page; None: it has no record. What it raises, every method raises."""
        self._ownership = ownership
        self._read = read
        #: least recently used first
        self._pages: dict[LedgerId, ListPage] = {}

    @property
    def _record(self) -> TopicRecord:
        return self._ownership.record

    @property
    def first(self) -> LedgerLink | None:
        """The oldest ledger; None: there is none."""
        return self._record.first

    async def at_or_behind(self, ledger_id: LedgerId) -> LedgerLink | None:
        """This ledger, or the first one behind it; None: there is none. Raises LogHole."""
        while True:
            record = self._record
            page = next((page for page in record.pages[bisect_left(record.pages, ledger_id, key=_last) :]), None)
            if page is None:
                return next(iter(record.ledgers[bisect_left(record.ledgers, ledger_id, key=_id) :]), None)
            ledgers = await self._ledgers(page)
            if ledgers is not None:
                return _link(ledgers[bisect_left(ledgers, ledger_id, key=_id)])

    async def before(self, ledger_id: LedgerId) -> LedgerLink | None:
        """The last ledger below this one; None: there is none. Raises LogHole."""
        while True:
            record = self._record
            tail = record.ledgers[: bisect_left(record.ledgers, ledger_id, key=_id)]
            pages = record.pages[: bisect_left(record.pages, ledger_id, key=attrgetter("first"))]
            if tail or not pages:
                return tail[-1] if tail else None
            ledgers = await self._ledgers(pages[-1])
            if ledgers is not None:
                return _link(ledgers[bisect_left(ledgers, ledger_id, key=_id) - 1])

    async def with_index(self, number: int) -> LedgerLink | None:
        """The last ledger that begins at or before the message with this index; None: all begin later.

        Raises LogHole.
        """
        while True:
            record = self._record
            tail = record.ledgers[: bisect_right(record.ledgers, number, key=_index)]
            pages = record.pages[: bisect_right(record.pages, number, key=_index)]
            if tail or not pages:
                return tail[-1] if tail else None
            ledgers = await self._ledgers(pages[-1])
            if ledgers is not None:
                return _link(ledgers[bisect_right(ledgers, number, key=_index) - 1])

    async def ended_since(self, time_ms: int) -> LedgerId | None:
        """The first ledger in a page whose last entry was appended at or after a time, as far as the pages tell; None:
        no page has one. Raises LogHole."""
        while True:
            page = next((page for page in self._record.pages if page.ended_ms >= time_ms), None)
            ledgers = None if page is None else await self._ledgers(page)
            if page is None or ledgers is not None:
                return next((each.ledger_id for each in ledgers or () if each.ended_ms >= time_ms), None)

    async def _ledgers(self, link: PageLink) -> tuple[PagedLedger, ...] | None:
        """The ledgers of a page; None: it was trimmed meanwhile. Raises LogHole if the page has no record."""
        page = self._pages.pop(link.name, None)
        if page is None:
            page = await self._read(link.name)
        if page is not None:
            self._pages[link.name] = page
            while len(self._pages) > PAGES_MAX:
                del self._pages[next(iter(self._pages))]
        if link not in self._record.pages:
            return None
        if page is None:
            path = paths.page(self._ownership.topic_id, link.name)
            raise LogHole(
                f"page {link.name} of the topic's list of ledgers has no record. Rebuild it: `oncelog admin backup "
                f"rebuild {path}`",
                ledger_id=link.name,
            )
        return link.listed(page)


def _link(ledger: PagedLedger) -> LedgerLink:
    return LedgerLink(ledger.ledger_id, ledger.base_index)


_id, _last, _index = attrgetter("ledger_id"), attrgetter("last"), attrgetter("base_index")
