"""What the storage nodes hold: every copy of every entry of the closed ledgers, read from each node directly."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from oncelog.core.ids import EntryId
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.records.registry import Registry
from oncelog.metadata_store.session.zookeeper import ZooKeeperSession
from oncelog.runtime.credentials import PLAIN
from oncelog.verify.copies import compare_copies
from oncelog_spark.audit.copy_reading import CopyReading
from oncelog_spark.audit.ledger_ranges import LedgerSlice
from oncelog_spark.cluster import Members, storage_of
from tests.cluster.cluster_fixture import Cluster
from tests.cluster.until import until


@dataclass(slots=True)
class StoredCopies:
    """entries: {number of sound copies: entries}. findings: of `verify.copies`: damaged, different or scarce copies.

    ledgers: closed ones with entries. short: those of which an entry has fewer copies than the write quorum.
    """

    ledgers: int = 0
    entries: Counter[int] = field(default_factory=Counter)
    short: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    def row(self) -> str:
        """Entries with 3, 2, 1 and 0 copies, for a table."""
        return "".join(f"{self.entries[count]:>10,}" for count in (3, 2, 1, 0))


class CopiesReader:
    """Created by `connected`."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self._ledgers = LedgerStore(session)
        self._registry = Registry(session)

    @classmethod
    @asynccontextmanager
    async def connected(cls, cluster: Cluster) -> AsyncIterator["CopiesReader"]:
        session = await ZooKeeperSession.connect(cluster.serving("zookeeper"))
        try:
            yield cls(session)
        finally:
            await session.close()

    async def read(self) -> StoredCopies:
        """All closed ledgers. A node that does not answer counts as having no copy."""
        live = await self._registry.storage_nodes.live()
        everyone = tuple((node.incarnation, f"{node.host}:{node.port}") for node in live.values())
        found = StoredCopies()
        async with storage_of(PLAIN, everyone) as storage:
            reading = CopyReading(storage, dict(everyone))
            for ledger_id in await self._ledgers.ids():
                stored = await self._ledgers.read(ledger_id)
                if stored is not None and stored.value.state is LedgerState.CLOSED and stored.value.end >= 0:
                    await self._count(stored.value, everyone, reading, found)
        return found

    async def _count(
        self, ledger: LedgerMetadata, everyone: Members, reading: CopyReading, found: StoredCopies
    ) -> None:
        addresses = dict(everyone)
        members = tuple((member, addresses.get(member, "")) for member in ledger.members)
        piece = LedgerSlice(ledger.ledger_id, members, EntryId(0), ledger.end, ledger.ack_quorum)
        copies = await reading.copies_of(piece)
        compared = compare_copies(ledger.ledger_id, piece.first, piece.last, ledger.ack_quorum, copies)
        counted = Counter(
            sum(EntryId(number) in copy.digests for copy in copies.values()) for number in range(ledger.end + 1)
        )
        found.ledgers += 1
        found.entries += counted
        if any(count < ledger.write_quorum for count in counted):
            silent = {member[:8]: copy.silent for member, copy in copies.items() if copy.silent}
            found.short.append(f"ledger {ledger.ledger_id}: {dict(counted)} {silent or ''}")
        found.findings += [str(finding) for finding in compared.findings]


async def until_whole(read: Callable[[], Awaitable[StoredCopies]], deadline_s: float) -> StoredCopies:
    """Read until every entry has all its copies, and no copy is damaged or different; returns what was read then.

    Raises AssertionError with what is missing.
    """
    found = StoredCopies()

    async def whole() -> bool:
        nonlocal found
        found = await read()
        return not found.short and not found.findings

    try:
        await until(whole, deadline_s, every_s=0.5, waiting_for="every entry to have all its copies")
    except AssertionError as error:
        error.add_note(f"{found.short[:20]} {found.findings[:20]}")
        raise
    return found
