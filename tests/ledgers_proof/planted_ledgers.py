"""Plants a long list of ledgers before the ledgers that a topic has: pages, the topic record, and ledger records.

Ledger n + 1 holds message n. Its record says that it is CLOSED with one entry; only some have this entry on the storage
node, because a million entries would be read by nobody.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from crc32c import crc32c

from oncelog.core.formats.batch import encode_batch
from oncelog.core.formats.columns import encode_values
from oncelog.core.formats.entry import EntryKind
from oncelog.core.formats.ledger_page import ListPage, PagedLedger, encode_page
from oncelog.core.formats.topic_record import FORMAT_WITH_HEADS, LedgerLink
from oncelog.core.ids import NOT_DEDUPLICATED, EntryId, Generation, LedgerId, OwnerEpoch, TopicId
from oncelog.core.ledger.metadata import LedgerMetadata, encode_ledger
from oncelog.core.ledger.writer import LedgerWriter
from oncelog.core.records.status import WriteStatus
from oncelog.core.retention.paging import PageSettings
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import CreateStep, StoreSession
from tests.contract.owner.owner_world import OwnerWorld

BYTES = 100
BEGAN_MS = 1_700_000_000_000
RECORDS_AT_ONCE = 500
WRITES_AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class PlantedLedgers:
    """count: of ledgers. stored: the messages whose entries exist."""

    world: OwnerWorld
    session: StoreSession
    topic_id: TopicId
    count: int
    stored: Sequence[int]

    def _record(self, number: int) -> LedgerMetadata:
        return LedgerMetadata(LedgerId(number + 1), self.topic_id, (self.world.node.incarnation,), 1)

    async def plant(self, tell: Callable[[str], None]) -> None:
        await self._store_entries()
        await self._create_records(tell)
        await self._list()

    async def _store_entries(self) -> None:
        member, links = self.world.node.incarnation, self.world.parts.links
        body = encode_batch(
            encode_values([b"planted"]), producer_id=NOT_DEDUPLICATED, generation=Generation(0), first=0, last=0,
            count=1, publish_time_ms=0, checksum=crc32c,
        )  # fmt: skip
        for number in self.stored:
            writer = LedgerWriter(self._record(number), owner_epoch=OwnerEpoch(1), checksum=crc32c)
            time_ms = BEGAN_MS + number
            add = writer.append(EntryKind.MESSAGES, body, base_index=number, skip_first=0, count=1, now_ms=time_ms)
            ledger_id = LedgerId(number + 1)
            await links.fence(member, ledger_id)
            added = await links.recovery_add(member, ledger_id, ((EntryId(0), b"".join(map(bytes, add.parts))),))
            assert getattr(added, "ok", False), added

    async def _create_records(self, tell: Callable[[str], None]) -> None:
        turn = asyncio.Semaphore(WRITES_AT_ONCE)

        async def create(first: int) -> None:
            numbers = range(first, min(first + RECORDS_AT_ONCE, self.count))
            closed = [self._record(number).closed(end=EntryId(0), length=BYTES) for number in numbers]
            steps = [CreateStep(paths.ledger(each.ledger_id), encode_ledger(each)) for each in closed]
            async with turn:
                while await self.session.transact(steps, timeout_ms=60_000) is not WriteStatus.OK:
                    if await self.session.read(steps[-1].path, timeout_ms=60_000) is not None:
                        break  # only the answer was lost
                if first % 100_000 == 0:
                    tell(f"  records of {first:,} ledgers are planted")

        async with asyncio.TaskGroup() as tasks:
            for first in range(0, self.count, RECORDS_AT_ONCE):
                tasks.create_task(create(first))

    async def _list(self) -> None:
        """As an owner would have written it over time."""
        size = PageSettings().ledgers
        topics = TopicStore(self.session)
        stored = await topics.read(self.topic_id)
        assert stored is not None
        await self.session.ensure_path(paths.pages(self.topic_id))
        pages = []
        for first in range(0, self.count - size // 4, size):
            numbers = range(first, min(first + size, self.count - size // 4))
            page = ListPage(tuple(PagedLedger(LedgerId(n + 1), n, BYTES, BEGAN_MS + n) for n in numbers))
            created = await self.session.create(paths.page(self.topic_id, page.name), encode_page(page))
            assert created is WriteStatus.OK
            pages.append(page.link)
        tail = [LedgerLink(LedgerId(n + 1), n) for n in range(self.count - size // 4, self.count)]
        first_real, *others = stored.value.ledgers
        links = (*tail, first_real._replace(base_index=self.count), *others)
        record = replace(stored.value, ledgers=links, pages=tuple(pages), format=FORMAT_WITH_HEADS)
        assert (await topics.write(record, version=stored.version)).status is WriteStatus.OK
