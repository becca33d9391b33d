"""Making and keeping copies: storage nodes over real sockets, ZooKeeper in memory."""

import io
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from oncelog.core.era import FIRST_ERA, Era
from oncelog.core.errors import NotFound, ServiceUnavailable
from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.metadata import EntryRange
from oncelog.core.process_version import PROCESS_VERSION
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.log_storage.directory.metadata_copies import FOLDER
from oncelog.metadata.cluster.cluster_level import ClusterLevel
from oncelog.metadata.repair.repair import Repair
from oncelog.metadata.repair.repairer import PlacesTopics
from oncelog.metadata.restore.record_copies import (
    PIN_INTERVAL_MS,
    RECENT_MS,
    SETTLED_MS,
    TARGET_COPIES_MAX,
    CopySettings,
    RecordCopies,
)
from oncelog.metadata_store.copies.copy_file import RecordCopy, read_copy
from oncelog.metadata_store.copies.copy_folder import SUFFIX, created_of, era_of_copy
from oncelog.metadata_store.copies.copy_keys import CopyKey
from oncelog.metadata_store.records.cluster_store import ClusterState, ClusterStore
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.records.registry import LiveStorageNode, Registry, StorageCookie
from oncelog.metadata_store.session import paths
from tests.contract.storage_client.ledger_world import Node, ledger, nodes
from tests.contract.stores.memory_store import MemorySession, MemoryTree

pytestmark = pytest.mark.asyncio

HOUR_MS = 3_600_000
TWO = Era(2, "1" * 32)
KEY = CopyKey(b"k" * 32)

#: The level to which a program of the next version raises the cluster.
NEXT = PROCESS_VERSION + 1


class Kept:
    """Copies of one replica, with storage nodes and a clock."""

    def __init__(self, session: MemorySession, members: Sequence[Node], repair: Repair, settings: CopySettings) -> None:
        self.session = session
        self.nodes = members
        self.now_ms = 1_764_200_000_000
        self.watch = repair.watch
        self._calls = repair.calls
        self._settings = settings
        self.copies = self.replica()

    def replica(self, *, era: Era = FIRST_ERA) -> RecordCopies:
        settings = self._settings
        return RecordCopies(self.session, self.watch, self._calls, settings, era=era, now_ms=lambda: self.now_ms)

    async def restored(self, state: ClusterState = ClusterState.SERVING) -> None:
        """Another era is claimed, or committed."""
        store = ClusterStore(self.session)
        found = await store.find()
        assert found is not None
        await store.write(replace(found.value, era=TWO, state=state), version=found.version)

    async def read(self, name: str, *keys: CopyKey) -> RecordCopy:
        data, offset = b"", 0
        while True:
            part = await self.copies.read(name, offset, 1_000)
            data, offset = data + part.data, offset + len(part.data)
            if offset >= part.size:
                return read_copy(io.BytesIO(data), keys)

    async def names(self) -> list[str]:
        return [one.name for one in (await self.copies.list()).copies]


@asynccontextmanager
async def keeping(
    tmp_path: Path, count: int = 3, *, version: int = PROCESS_VERSION, **settings: object
) -> AsyncIterator[Kept]:
    session = MemorySession(MemoryTree(), root="/oncelog")
    store = ClusterStore(session)
    record = await store.establish()
    async with nodes(tmp_path / "nodes", count) as members:
        registry = Registry(session)
        for node in members:
            host, _, port = node.address.rpartition(":")
            live = LiveStorageNode(node.incarnation, host, int(port), 1 << 30, version=version)
            await registry.register_storage_node(live).establish()
            cookie = StorageCookie(node.incarnation, host, int(port))
            await registry.write_cookie(cookie, version=ABSENT_VERSION)
        await store.write(replace(record, ack_quorum=1), version=0)
        await LedgerStore(session).write(ledger(7, [Incarnation("a" * 32)]), version=ABSENT_VERSION)
        repair = Repair.over(session, cast("PlacesTopics", None), owners=list)
        try:
            yield Kept(session, members, repair, CopySettings(**settings))  # type: ignore[arg-type]
        finally:
            await repair.close()


async def test_a_copy_is_on_one_node_more_than_may_be_lost(tmp_path: Path) -> None:
    """It has the records that there are, and is read from any of its nodes, part by part."""
    async with keeping(tmp_path) as kept:
        made = await kept.copies.create()
        assert len(set(made.kept.nodes)) == 2
        assert created_of(made.kept.name) == kept.now_ms // 1000 * 1000
        copy = await kept.read(made.kept.name)
        assert {paths.CLUSTER, paths.ledger(ledger(7, []).ledger_id)} <= copy.records.keys()
        assert copy.manifest == made.manifest
        assert made.key_id == ""
        listing = await kept.copies.list()
        assert [(one.name, set(one.nodes)) for one in listing.copies] == [(made.kept.name, set(made.kept.nodes))]
        holder = next(node for node in kept.nodes if node.incarnation == made.kept.nodes[0])
        await holder.stop()
        assert await kept.names() == [made.kept.name]
        assert (await kept.copies.list()).unanswered == [made.kept.nodes[0]]
        assert (await kept.read(made.kept.name)).manifest == made.manifest
        await holder.start()
        with pytest.raises(NotFound, match="list the copies"):
            await kept.copies.read("2026-11-27t06-00-00z-era1-00000000")


async def test_a_copy_that_too_few_nodes_take_is_a_failure(tmp_path: Path) -> None:
    """A node that is away or full is passed over; the error says why. What was stored can be used."""
    async with keeping(tmp_path) as kept:
        kept.nodes[0].copies_room = 0
        for _ in range(3):
            assert kept.nodes[0].incarnation not in (await kept.copies.create()).kept.nodes
        kept.nodes[1].copies_room = 0
        with pytest.raises(ServiceUnavailable, match=r"stored on 1 of 2 storage nodes: .*nearly full"):
            await kept.copies.create()
        assert (kept.copies.counts.made, kept.copies.counts.failed) == (3, 1)
        assert len(await kept.names()) == 4


async def test_with_a_key_the_copy_is_encrypted_and_a_new_key_needs_no_restart(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"{CopyKey(b'o' * 32).secret.hex()}\n")
    async with keeping(tmp_path, 1, key_file=keys) as kept:
        assert (await kept.copies.create()).key_id == CopyKey(b"o" * 32).key_id
        keys.write_text(f"{KEY.secret.hex()}\n{CopyKey(b'o' * 32).secret.hex()}\n")
        made = await kept.copies.create()
        assert made.key_id == KEY.key_id
        assert (await kept.read(made.kept.name, KEY)).header.authenticated
        keys.unlink()
        with pytest.raises(ServiceUnavailable, match=str(keys)):
            await kept.copies.create()
        assert len(await kept.names()) == 2, "it is not stored in clear instead"


async def test_the_target_directory_gets_each_copy_and_keeps_two_weeks(tmp_path: Path) -> None:
    target = tmp_path / "target"
    async with keeping(tmp_path, 1, target=target) as kept:
        made = await kept.copies.create()
        (file,) = target.iterdir()
        assert file.name == made.kept.name + SUFFIX
        assert file.stat().st_mode & 0o077 == 0
        with file.open("rb") as source:
            assert read_copy(source).manifest == made.manifest
        (target / f"of-somebody-else{SUFFIX}").write_text("")
        for number in range(TARGET_COPIES_MAX + 4):
            (target / f"2025-01-01t{number // 60:02}-{number % 60:02}-00z-era1-00000000{SUFFIX}").write_text("")
        kept.now_ms += HOUR_MS
        await kept.copies.create()
        names = sorted(path.name for path in target.iterdir())
        assert len(names) == TARGET_COPIES_MAX + 1
        assert file.name in names
        assert f"of-somebody-else{SUFFIX}" in names
    blocked = tmp_path / "file"
    blocked.write_text("")
    async with keeping(tmp_path / "other", 1, target=blocked / "below") as kept:
        with pytest.raises(ServiceUnavailable, match="cannot write the copy to"):
            await kept.copies.create()


async def test_one_copy_an_hour_and_one_a_day_is_pinned(tmp_path: Path) -> None:
    """Also after the elected replica has changed: what the nodes have counts. A clock that was wrong stops nothing."""
    async with keeping(tmp_path, 2) as kept:
        assert kept.copies.age_s() is None
        for _ in range(3):
            await kept.copies.look()
        assert len(await kept.names()) == 1
        kept.now_ms += HOUR_MS
        await kept.copies.look()
        pinned = [one.pinned for one in (await kept.copies.list()).copies]
        assert pinned == [False, True]
        kept.copies.counts.elected = True
        assert kept.copies.age_s() == 0
        assert kept.copies.counts.newest_bytes > 0
        kept.now_ms += PIN_INTERVAL_MS
        await kept.copies.look()
        assert [one.pinned for one in (await kept.copies.list()).copies] == [True, False, True]
        kept.now_ms -= 30 * PIN_INTERVAL_MS
        await kept.copies.look()
        assert len(await kept.names()) == 4


async def test_a_new_era_gets_a_copy_at_once(tmp_path: Path) -> None:
    """The newest one is of the records that a restore has replaced. What is wrong with them is in no other copy."""
    async with keeping(tmp_path, 2) as kept:
        await kept.copies.look()
        await kept.restored()
        kept.copies = kept.replica(era=TWO)
        for _ in range(2):
            kept.now_ms += 1_000
            await kept.copies.look()
        assert [era_of_copy(name) for name in await kept.names()] == [2, 1]


@pytest.mark.hazard("revoked-right-returns")
@pytest.mark.parametrize("state", [ClusterState.RESTORING, ClusterState.SERVING])
async def test_a_service_of_a_former_era_makes_no_copy(tmp_path: Path, state: ClusterState) -> None:
    """One performs the restore, and others have not noticed it yet. Nothing is written to the target, either."""
    async with keeping(tmp_path, 2, target=tmp_path / "backups") as kept:
        await kept.restored(state)
        for make in (kept.copies.look, kept.copies.create):
            with pytest.raises(ServiceUnavailable, match="era 1, and ZooKeeper is in era 2"):
                await make()
        assert await kept.names() == []
        assert not (tmp_path / "backups").exists()


async def test_a_thousand_operations_do_not_push_out_the_copies_of_a_day(tmp_path: Path) -> None:
    async with keeping(tmp_path, 1) as kept:
        for _ in range(5):
            await kept.copies.before("a test")
        assert len(await kept.names()) == 1
        kept.now_ms += RECENT_MS
        await kept.copies.before("a test")
        assert len(await kept.names()) == 2
        kept.now_ms += RECENT_MS
        kept.nodes[0].copies_room = 0
        await kept.copies.before("a test that goes on without a copy")
        assert (len(await kept.names()), kept.copies.counts.failed) == (2, 1)
        with pytest.raises(ServiceUnavailable):
            await kept.copies.pin_before_finalize()
        kept.nodes[0].copies_room = 1 << 20
        await kept.copies.pin_before_finalize()
        assert next(iter((await kept.copies.list()).copies)).pinned
        assert len(list((kept.nodes[0].path / FOLDER).glob("*.pinned"))) == 1


async def test_a_cluster_without_storage_nodes_has_no_copy_and_no_failure(tmp_path: Path) -> None:
    """As at its first start, before they have joined."""
    async with keeping(tmp_path, 0) as kept:
        await kept.copies.look()
        await kept.copies.pin_before_finalize()
        assert (kept.copies.counts.made, kept.copies.counts.failed) == (0, 0)
        with pytest.raises(ServiceUnavailable, match="no storage node is registered"):
            await kept.copies.create()


@pytest.mark.hazard("copy-before-the-mark")
async def test_ledgers_that_are_begun_while_the_level_is_raised_are_in_a_copy(tmp_path: Path) -> None:
    """What the new level is for may be missing in them, so that nothing else places them. One is begun before the level
    is raised, and one by an owner that has not seen it yet; the hourly copy is of just before."""
    async with keeping(tmp_path, version=NEXT) as kept:
        store, ledgers = ClusterStore(kept.session), LedgerStore(kept.session)
        registry = Registry(kept.session)
        await kept.copies.look()
        before = await kept.names()
        level = ClusterLevel(
            store, registry, conclude=kept.copies.pin_after_finalize, prepare=begun(ledgers, 8), target=NEXT
        )
        report = await level.finalize()
        assert report.level.stored == NEXT
        (after,) = set(await kept.names()) - {*before}
        assert paths.ledger(LedgerId(8)) in (await kept.read(after)).records
        kept.now_ms += 1_000
        await kept.copies.look()
        await begun(ledgers, 9)()
        kept.now_ms += SETTLED_MS
        await kept.copies.look()
        (settled,) = set(await kept.names()) - {*before, after}
        assert {paths.ledger(LedgerId(n)) for n in (8, 9)} <= (await kept.read(settled)).records.keys()
        kept.now_ms += SETTLED_MS
        await kept.copies.look()
        assert len(await kept.names()) == 3, "it is made once"


@pytest.mark.hazard("copy-before-the-mark")
async def test_finalize_is_not_done_before_the_copy_behind_it(tmp_path: Path) -> None:
    """It is repeated, and the copy is made then."""
    async with keeping(tmp_path, version=NEXT) as kept:
        store = ClusterStore(kept.session)
        level = ClusterLevel(store, Registry(kept.session), conclude=kept.copies.pin_after_finalize, target=NEXT)
        for node in kept.nodes:
            node.copies_room = 0
        with pytest.raises(ServiceUnavailable, match="the level is raised, and no copy has the ledgers"):
            await level.finalize()
        for node in kept.nodes:
            node.copies_room = 1 << 20
        assert (await level.finalize()).level.stored == NEXT
        assert [one.pinned for one in (await kept.copies.list()).copies] == [True]


def begun(ledgers: LedgerStore, ledger_id: int) -> Callable[[], Awaitable[None]]:
    """An owner begins a ledger."""

    async def begin() -> None:
        await ledgers.write(ledger(ledger_id, [Incarnation("a" * 32)]), version=ABSENT_VERSION)

    return begin


@pytest.mark.hazard("loss-that-only-zookeeper-knows")
async def test_records_are_copied_when_entries_are_proved_lost_or_given_up(tmp_path: Path) -> None:
    """By the elected replica, also if another one was elected when it happened; and only once for each loss."""
    async with keeping(tmp_path) as kept:
        ledgers = LedgerStore(kept.session)
        await kept.copies.look()
        whole = ledger(8, [Incarnation("a" * 32)]).closed(end=EntryId(1), length=9)
        lost = replace(whole, lost=(EntryRange(EntryId(1), EntryId(1)),), verified=False)
        await ledgers.write(lost, version=ABSENT_VERSION)
        await kept.watch.refresh()
        kept.now_ms += RECENT_MS - 1
        await kept.copies.look()
        assert len(await kept.names()) == 1, "not more often than that"
        for count, record in enumerate((None, replace(lost, given_up_by="ann")), 2):
            if record is not None:
                await ledgers.write(record, version=0)
            for _ in range(3):
                kept.now_ms += RECENT_MS
                await kept.watch.refresh()
                await kept.copies.look()
            names = await kept.names()
            assert len(names) == count
            assert paths.ledger(whole.ledger_id) in (await kept.read(names[0])).records
        kept.copies = kept.replica()
        await kept.copies.look()
        assert len(await kept.names()) == 4, "this replica does not know what the other one has copied"
        await kept.copies.after_loss()
        assert len(await kept.names()) == 5
        for node in kept.nodes:
            node.copies_room = 0
        await kept.copies.after_loss()
        assert kept.copies.counts.failed == 1
