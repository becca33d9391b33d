"""Pages of the lists of ledgers, below a folder for each topic (`core.formats.ledger_page`).

`TopicStore.write` creates a page, in the transaction that links it.
"""

import asyncio
from collections.abc import Sequence

from oncelog.core.errors import NotFound
from oncelog.core.formats.ledger_page import ListPage, decode_page, encode_page
from oncelog.core.formats.topic_record import LedgerLink, TopicRecord
from oncelog.core.ids import LedgerId, TopicId
from oncelog.metadata_store.records.json_records import decoded
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import CreateStep, Step, StoreSession

#: Pages read at once; each has some hundred kilobytes.
READS_MAX = 16


class PageStore:
    def __init__(self, session: StoreSession) -> None:
        self._session = session

    async def creation(self, topic_id: TopicId, page: ListPage) -> list[Step]:
        """What a transaction needs to create the page. Raises StoreUnavailable."""
        folders = (paths.PAGES, paths.pages(topic_id))
        steps: list[Step] = [CreateStep(folder) for folder in folders if await self._session.read(folder) is None]
        return [*steps, CreateStep(paths.page(topic_id, page.name), encode_page(page))]

    async def read(self, topic_id: TopicId, name: LedgerId) -> ListPage | None:
        """The page after a sync; None: it was deleted, or never created. Raises StoreUnavailable, CorruptEntry."""
        path = paths.page(topic_id, name)
        node = await self._session.read(path)
        return None if node is None else decoded("a page of ledgers", node.data, decode_page, path=path)

    async def names(self, topic_id: TopicId) -> list[LedgerId]:
        """The names of all pages of a topic, ascending, also of those that are not linked any more.

        Raises StoreUnavailable.
        """
        try:
            return sorted(LedgerId(int(name)) for name in await self._session.children(paths.pages(topic_id)))
        except NotFound:
            return []

    async def read_all(self, topic_id: TopicId, names: Sequence[LedgerId]) -> dict[LedgerId, ListPage]:
        """{name: page} of those of the named pages that exist. Raises StoreUnavailable, CorruptEntry."""
        found: dict[LedgerId, ListPage] = {}
        for start in range(0, len(names), READS_MAX):
            some = names[start : start + READS_MAX]
            pages = await asyncio.gather(*(self.read(topic_id, name) for name in some))
            found |= {page.name: page for page in pages if page is not None}
        return found

    async def links(
        self, record: TopicRecord, *, after: LedgerId = LedgerId(-1), count_max: int | None = None
    ) -> list[LedgerLink]:
        """The first `count_max` ledgers of the log above `after`, with those in pages. A page that was trimmed
        meanwhile is left out. Raises StoreUnavailable, CorruptEntry."""
        found: list[LedgerLink] = []
        linked = [link for link in record.pages if link.last > after]
        for start in range(0, len(linked), READS_MAX):
            if count_max is not None and len(found) >= count_max:
                break
            some = linked[start : start + READS_MAX]
            pages = await self.read_all(record.topic_id, [link.name for link in some])
            paged = [each for link in some if link.name in pages for each in link.listed(pages[link.name])]
            found += [LedgerLink(each.ledger_id, each.base_index) for each in paged if each.ledger_id > after]
        else:
            found += [link for link in record.ledgers if link.ledger_id > after]
        return found if count_max is None else found[:count_max]

    async def delete(self, topic_id: TopicId, name: LedgerId) -> None:
        """Retries until it is gone. Raises StoreUnavailable."""
        path = paths.page(topic_id, name)
        while (node := await self._session.read(path)) is not None:
            await self._session.delete(path, version=node.version)

    async def delete_folder(self, topic_id: TopicId) -> None:
        """Delete the folder of a topic that has no page any more. Raises StoreUnavailable."""
        folder = paths.pages(topic_id)
        while (node := await self._session.read(folder)) is not None:
            await self._session.delete(folder, version=node.version)
