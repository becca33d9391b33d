"""Reads all lasting records of a cluster, for a copy of them.

    async for group in RecordWalk(session).records(ledgers): ...

Rules
- The walk is no snapshot: records change while it goes on. A restore joins a copy with what storage nodes have, and a
  record that is deleted meanwhile is left out.
- Topic records are read before the pages of lists: an owner writes a page before the record that names it. The other
  way round a copy would name a page that it lacks, and only the copy places the page's ledgers if they have no heads.
- A walk that fails is no copy: an error of a read ends it.
- Left out is what a restored cluster makes anew or must not have: counters, what processes register, the ends of
  storage nodes' journals, the progress of repair, proofs and verdicts. An old end would make each storage node take its
  own directory for one that went back in time.
- Ledger records, which are most of all, come from the listing that repair keeps (`LedgerListing`), where it is at hand.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence

from oncelog.core.errors import NotFound
from oncelog.core.ids import TopicId
from oncelog.core.ledger.metadata import LedgerMetadata, encode_ledger
from oncelog.metadata_store.copies.copy_file import CopiedRecord
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import StoreSession

READS_PER_S_MAX = 2_000
#: Reads that are sent together.
GROUP_MAX = 64
#: {folder: how many levels of records it has}, in the order in which they are read
_FOLDERS = {
    paths.STORAGE_COOKIES: 1,
    paths.NAMESPACES: 2,
    paths.TOPIC_POLICIES: 1,
    paths.NAMES: 3,
    paths.TOPICS: 1,
    paths.PAGES: 2,
    paths.DELETIONS: 1,
    paths.TOMBSTONES: 1,
}
_SINGLE = (paths.CLUSTER, paths.KEY_DATASET, paths.CLUSTER_POLICIES)

Pause = Callable[[float], Awaitable[None]]


class RecordWalk:
    """One walk. now_s: a monotonic clock."""

    def __init__(self, session: StoreSession, *, now_s: Callable[[], float], pause: Pause = asyncio.sleep) -> None:
        self._session = session
        self._pause = pause
        self._now_s = now_s
        self._began_s = now_s()
        #: requests to ZooKeeper so far
        self.reads = 0

    async def records(self, ledgers: Iterable[LedgerMetadata] | None) -> AsyncIterator[Sequence[CopiedRecord]]:
        """Groups of records. ledgers: all, from a listing; None: they are read, too. Raises StoreUnavailable."""
        yield await self._read(_SINGLE)
        for folder, levels in (_FOLDERS if ledgers is not None else _FOLDERS | {paths.LEDGERS: 1}).items():
            async for group in self._below(folder, levels):
                yield group
        copied: list[CopiedRecord] = []
        for ledger in ledgers or ():
            copied.append(CopiedRecord(paths.ledger(ledger.ledger_id), encode_ledger(ledger)))
            if len(copied) >= GROUP_MAX:
                yield copied
                copied = []
        yield copied

    async def _below(self, folder: str, levels: int) -> AsyncIterator[Sequence[CopiedRecord]]:
        names = await self._children([folder])
        for start in range(0, len(names), GROUP_MAX):
            some = names[start : start + GROUP_MAX]
            found = await self._read(some)
            yield found
            if folder == paths.TOPICS:
                topics = [TopicId(one.path.rpartition("/")[2]) for one in found]
                cursors = await self._children([paths.cursors(topic) for topic in topics])
                for begin in range(0, len(cursors), GROUP_MAX):
                    yield await self._read(cursors[begin : begin + GROUP_MAX])
            elif levels > 1:
                for below in some:
                    async for group in self._below(below, levels - 1):
                        yield group

    async def _read(self, wanted: Sequence[str]) -> list[CopiedRecord]:
        """Those that exist. Their names were synced on this connection, so these reads need no sync."""
        await self._pace(len(wanted))
        nodes = await asyncio.gather(*map(self._session.read_unsynced, wanted))
        return [
            CopiedRecord(path, node.data, node.version, node.created)
            for path, node in zip(wanted, nodes, strict=True)
            if node is not None
        ]

    async def _children(self, folders: Sequence[str]) -> list[str]:
        await self._pace(len(folders))
        found: list[str] = []
        for folder, names in zip(folders, await asyncio.gather(*map(self._names, folders)), strict=True):
            found += [f"{folder}/{name}" for name in names]
        return found

    async def _names(self, folder: str) -> list[str]:
        try:
            return await self._session.children(folder)
        except NotFound:
            return []  # deleted meanwhile, or a folder that an older cluster lacks

    async def _pace(self, reads: int) -> None:
        """At most READS_PER_S_MAX on average: other requests to ZooKeeper are not delayed."""
        ahead_s = self._began_s + self.reads / READS_PER_S_MAX - self._now_s()
        self.reads += reads
        if ahead_s > 0:
            await self._pause(ahead_s)
