"""The walk of all lasting records: what it copies, what it leaves out, and how fast it reads."""

import asyncio

import pytest

from oncelog.core.errors import StoreUnavailable
from oncelog.core.ids import Incarnation, LedgerId, TopicId
from oncelog.core.ledger.metadata import encode_ledger
from oncelog.core.node.starts import JournalEnd, StorageEnd
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.metadata_store.copies.copy_file import CopiedRecord
from oncelog.metadata_store.copies.record_walk import READS_PER_S_MAX, RecordWalk
from oncelog.metadata_store.records.registry import Registry, StorageCookie
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import StoreSession
from tests.contract.storage_client.ledger_world import A, B, C, ledger
from tests.contract.stores.memory_store import MemorySession, MemoryTree
from tests.contract.stores.store_backends import Backend, new_cluster

pytestmark = pytest.mark.asyncio

TOPIC, OTHER = TopicId("a" * 32), TopicId("b" * 32)
NODE = Incarnation("b" * 32)
LASTING = (
    paths.CLUSTER_POLICIES,
    paths.KEY_DATASET,
    paths.topic_policies(TOPIC),
    f"{paths.tenant_names('public')}/default/orders",
    paths.topic(TOPIC),
    paths.cursors(TOPIC),
    paths.cursor(TOPIC, "dedup/ä"),
    paths.cursor(TOPIC, "acks"),
    paths.pages(TOPIC),
    paths.page(TOPIC, LedgerId(7)),
    paths.deletion(TOPIC),
    paths.tombstone(TOPIC),
)
LEFT_OUT = (f"{paths.IDS}/ledger", paths.REPAIR, paths.proof(TOPIC), paths.verdict(TOPIC))


async def walked(session: StoreSession) -> list[CopiedRecord]:
    walk = RecordWalk(session, now_s=asyncio.get_running_loop().time)
    return [record async for group in walk.records([ledger(7, (A, B, C))]) for record in group]


async def test_the_walk_copies_each_lasting_record_and_nothing_else(backend: Backend) -> None:
    """Counters and journal ends of a copy would make a restored cluster give ids twice, or take sound directories for
    old ones."""
    session = await new_cluster(backend)
    for path in (*LASTING, *LEFT_OUT):
        await session.create(path, path.encode())
    registry = Registry(session)
    await registry.write_cookie(StorageCookie(NODE, "host", 1), version=ABSENT_VERSION)
    await registry.write_end(NODE, StorageEnd(1, "s", JournalEnd(1, 2)), version=ABSENT_VERSION)
    await session.create(f"{paths.OWNERS}/{'c' * 32}", b"{}", ephemeral=True)
    records = await walked(session)
    containers = {paths.cursors(TOPIC), paths.pages(TOPIC)}
    made_with_the_cluster = {
        paths.CLUSTER,
        paths.tenant_policies("public"),
        f"{paths.NAMESPACES}/public/default",
        paths.tenant_names("public"),
        f"{paths.NAMES}/public/default",
        paths.pages(TOPIC),
    }
    expected = {*LASTING, *made_with_the_cluster, f"{paths.STORAGE_COOKIES}/{NODE}", paths.ledger(LedgerId(7))}
    assert sorted(one.path for one in records) == sorted(expected - {paths.cursors(TOPIC)})
    values = {one.path: one for one in records}
    assert all(values[path].value == path.encode() for path in LASTING if path not in containers)
    assert values[paths.ledger(LedgerId(7))].value == encode_ledger(ledger(7, (A, B, C)))
    await session.write(paths.CLUSTER_POLICIES, b"2", version=0)
    changed = {one.path: one for one in await walked(session)}[paths.CLUSTER_POLICIES]
    stored = await session.read(paths.CLUSTER_POLICIES)
    assert stored is not None
    assert (changed.value, changed.version, changed.created) == (b"2", 1, stored.created)


async def test_a_copy_has_each_page_that_its_topic_records_name() -> None:
    """An owner moves the front of a list into a page while the walk goes on, after any group of records: it writes the
    page first, then the record."""
    record_named_a_page = set[bool]()
    page, topic = paths.page(TOPIC, LedgerId(7)), paths.topic(TOPIC)
    for moved_after in range(len(paths.FOLDERS) + 5):
        session = MemorySession(MemoryTree(), root="/oncelog")
        await new_cluster_in(session)
        await session.create(topic, b"names no page")
        for topic_id in (TOPIC, OTHER):
            await session.create(paths.pages(topic_id), b"")
        await session.create(paths.page(OTHER, LedgerId(3)), b"")
        records: dict[str, bytes] = {}
        groups = 0
        async for group in RecordWalk(session, now_s=asyncio.get_running_loop().time).records([]):
            records |= {one.path: one.value for one in group}
            if groups == moved_after:
                await session.create(page, b"")
                await session.write(topic, b"names page 7", version=0)
            groups += 1
        named = records[topic] != b"names no page"
        assert page in records or not named
        record_named_a_page.add(named)
    assert record_named_a_page == {True, False}


async def test_a_walk_reads_at_most_so_much_a_second() -> None:
    """So that a copy of 100,000 records does not delay the takeovers of a busy ZooKeeper."""
    session = MemorySession(MemoryTree(), root="/oncelog")
    await new_cluster_in(session)
    for number in range(5_000):
        await session.create(paths.tombstone(TopicId(f"{number:032x}")), b"{}")
    now_s, pauses = 0.0, []

    async def pause(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds
        pauses.append(seconds)

    walk = RecordWalk(session, now_s=lambda: now_s, pause=pause)
    count = sum([len(group) async for group in walk.records([])])
    assert count == 5_000
    assert walk.reads > 5_000
    assert walk.reads / READS_PER_S_MAX - 0.1 < now_s < walk.reads / READS_PER_S_MAX + 0.1
    assert max(pauses) < 0.1, "it pauses often and shortly, and never stops ZooKeeper's session for long"


async def new_cluster_in(session: MemorySession) -> None:
    await session.ensure_path("")
    for folder in paths.FOLDERS:
        await session.create(folder, b"")


async def test_a_record_that_is_deleted_meanwhile_is_left_out_and_an_error_ends_the_walk() -> None:
    """A half walk is no copy; a deleted topic is no reason to have none."""
    session = Interrupted(MemoryTree(), root="/oncelog")
    await new_cluster_in(session)
    for path in (paths.topic(TOPIC), paths.cursors(TOPIC), paths.cursor(TOPIC, "acks")):
        await session.create(path, b"{}")
    session.gone = paths.topic(TOPIC)
    assert paths.topic(TOPIC) not in [one.path for one in await walked(session)]
    session.gone, session.failing = None, paths.cursor(TOPIC, "acks")
    with pytest.raises(StoreUnavailable):
        await walked(session)


class Interrupted(MemorySession):
    """gone: deleted when it is read. failing: cannot be read."""

    gone: str | None = None
    failing: str | None = None

    async def read_unsynced(self, path: str, *, timeout_ms: int | None = None):  # type: ignore[no-untyped-def]
        if path == self.failing:
            raise StoreUnavailable("no server")
        return None if path == self.gone else await super().read_unsynced(path, timeout_ms=timeout_ms)
