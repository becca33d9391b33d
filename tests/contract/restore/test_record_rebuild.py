"""One record in ZooKeeper that cannot be read is written anew, from storage nodes and the records around it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.core.era import Era
from oncelog.core.errors import Conflict, InvalidArgument, NotFound, OncelogError, ServiceUnavailable
from oncelog.core.formats.note import Note, NoteOrder
from oncelog.core.formats.topic_record import DEDUP_CURSOR
from oncelog.core.ids import EntryId, Incarnation, LedgerId, Position
from oncelog.core.node.starts import REBUILT
from oncelog.core.records.id_claim import BLOCK_MAX, CounterRecord, encode_counter
from oncelog.core.records.status import WriteStatus
from oncelog.metadata.restore.one_record import EPOCHS_MARGIN, IDS_MARGIN
from oncelog.metadata.restore.performer import RestoreSources
from oncelog.metadata.restore.progress import RestoreState
from oncelog.metadata.restore.record_rebuild import RebuiltRecord, RecordRebuild
from oncelog.metadata_store.records.policies import Policies, encode_policies
from oncelog.metadata_store.records.registry import encode_cookie
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import StoreSession, Znode
from oncelog.rpc.channel import Channel
from oncelog.runtime.credentials import PLAIN
from oncelog.runtime.observing.audit_log import AuditLog
from oncelog.runtime.observing.events import EventRing
from oncelog.storage_client.note_calls import put_notes
from tests.contract.restore.restoring_world import NAME, TOPIC, RestoringWorld, cookie_of, restoring_world
from tests.contract.storage_client import ledger_world
from tests.contract.stores.memory_store import MemorySession

pytestmark = [pytest.mark.asyncio, pytest.mark.hazard("unreadable-record")]
ERA = Era(2, "1" * 32)
NAMESPACE = paths.NAMESPACES + "/public/default"
TOPIC_PATH, NAME_PATH = paths.topic(TOPIC), f"{paths.NAMES}/{NAME}"
CURSOR_PATH = paths.cursor(TOPIC, DEDUP_CURSOR)
GARBAGE = b"\x00garbage"


class Rebuilding:
    """A cluster in era 2 with one topic: ledger 4 is closed at 4:3, ledger 9 is open."""

    def __init__(self, world: RestoringWorld) -> None:
        self.world = world
        self.tree = world.session().below("/era-2")

    async def rebuild(
        self, path: str, *, dry_run: bool = False, accept: bool = False, session: StoreSession | None = None
    ) -> RebuiltRecord:
        sources = RestoreSources(session or self.world.session(), AuditLog(EventRing("metadata")))
        return await RecordRebuild(sources).rebuild(path, dry_run=dry_run, accept=accept, by="ann")

    async def refusal(self, path: str, kind: type[OncelogError] = Conflict, *, accept: bool = False) -> str:
        with pytest.raises(kind) as raised:
            await self.rebuild(path, accept=accept)
        return raised.value.message

    async def damage(self, path: str) -> int:
        """Somebody writes garbage. Returns the version."""
        written = await self.tree.write(path, GARBAGE, version=(await self.node(path)).version)
        assert written.status is WriteStatus.OK
        return written.version

    async def remove(self, path: str) -> None:
        assert await self.tree.delete(path, version=(await self.node(path)).version) is WriteStatus.OK

    async def node(self, path: str) -> Znode:
        found = await self.tree.read(path)
        assert found is not None
        return found

    def record(self, path: str) -> dict[str, object]:
        return self.world.record(f"/era-2{path}")


@asynccontextmanager
async def rebuilding(tmp_path: Path) -> AsyncIterator[Rebuilding]:
    async with restoring_world(tmp_path) as world:
        await world.note_cluster()
        await world.write(4, 3, to=world.nodes)
        await world.write(9, 2, former=Position(LedgerId(4), EntryId(3)), to=world.nodes[:2])
        assert (await world.restore()).state is RestoreState.DONE
        yield Rebuilding(world)


async def test_topic_goes_on_in_a_higher_epoch(tmp_path: Path) -> None:
    """With all its ledgers. A dry run writes nothing, and a record that can be read is left as it is."""
    async with rebuilding(tmp_path) as one:
        before = one.record(TOPIC_PATH)
        version = await one.damage(TOPIC_PATH)
        tried = await one.rebuild(TOPIC_PATH, dry_run=True)
        assert not tried.written
        assert await one.node(TOPIC_PATH) == (await one.node(TOPIC_PATH))._replace(data=GARBAGE, version=version)
        done = await one.rebuild(TOPIC_PATH)
        assert (done.written, done.reviews, done.unreadable) == (True, (), ())
        after = one.record(TOPIC_PATH)
        assert {**after, "owner_epoch": 0} == {**before, "owner_epoch": 0}
        assert after["owner_epoch"] == done.owner_epoch == ERA.first_epoch + EPOCHS_MARGIN
        assert (await one.node(TOPIC_PATH)).version == version + 1, "a former owner's compare-and-set fails"
        assert "can be read" in await one.refusal(TOPIC_PATH)


async def test_missing_topic_is_created_with_its_closed_ledgers(tmp_path: Path) -> None:
    """The record of its last ledger is left to a rebuild of its own: an owner may be writing there."""
    async with rebuilding(tmp_path) as one:
        for path in (CURSOR_PATH, paths.cursors(TOPIC), TOPIC_PATH, paths.ledger(LedgerId(4))):
            if await one.tree.read(path) is not None:
                await one.remove(path)
        await one.damage(paths.ledger(LedgerId(9)))
        done = await one.rebuild(TOPIC_PATH)
        assert list(done.records) == [paths.ledger(LedgerId(4)), TOPIC_PATH]
        assert done.unreadable == (paths.ledger(LedgerId(9)),)
        assert one.record(TOPIC_PATH)["ledgers"] == [[4, 0], [9, 0]]
        assert await one.tree.read(paths.cursors(TOPIC)) is not None
        closed = one.record(paths.ledger(LedgerId(4)))
        assert (closed["state"], closed["end"]) == ("CLOSED", 3)
        assert closed["length"], "it is in the header of the last entry"


async def test_ledger_and_cursor_are_rebuilt_by_their_topic(tmp_path: Path) -> None:
    """Of the last ledger, and of a cursor, the topic is taken from its owner in the same transaction."""
    async with rebuilding(tmp_path) as one:
        closed, last = paths.ledger(LedgerId(4)), paths.ledger(LedgerId(9))
        before = one.record(closed), one.record(last)
        await one.damage(closed)
        assert not (await one.rebuild(closed)).owner_epoch
        assert one.record(TOPIC_PATH)["owner_epoch"] == ERA.first_epoch
        await one.damage(last)
        done = await one.rebuild(last)
        assert done.owner_epoch == one.record(TOPIC_PATH)["owner_epoch"] == ERA.first_epoch + EPOCHS_MARGIN
        assert (one.record(closed), one.record(last)) == before
        await one.damage(CURSOR_PATH)
        await one.rebuild(CURSOR_PATH)
        assert one.record(CURSOR_PATH)["owner_epoch"] == one.record(TOPIC_PATH)["owner_epoch"]
        await one.damage(last)
        await one.damage(TOPIC_PATH)
        assert f"{TOPIC_PATH}, cannot be read either: rebuild it first" in await one.refusal(last)


async def test_noted_record_is_the_newest_note(tmp_path: Path) -> None:
    """A right that was revoked stays so. A name without a note is in the heads of its topic."""
    async with rebuilding(tmp_path) as one:
        for path in (NAMESPACE, NAME_PATH):
            await one.damage(path)
        await one.rebuild(NAMESPACE)
        assert one.record(NAMESPACE)["permissions"] == {"ann": ["produce"]}
        await one.rebuild(NAME_PATH)
        assert one.record(NAME_PATH)["topic_id"] == TOPIC
        await one.remove(NAME_PATH)
        await one.rebuild(NAME_PATH)
        assert one.record(NAME_PATH)["topic_id"] == TOPIC
        other = f"{paths.NAMES}/public/default/nobody"
        assert "no storage node has a note of" in await one.refusal(other, NotFound)


@pytest.mark.hazard("damaged-record-is-noted")
@pytest.mark.hazard("revoked-right-returns")
async def test_record_that_is_not_noted_yet_in_its_era_is_that_of_the_restore(tmp_path: Path) -> None:
    """The restore has closed the rights a moment ago, and has retired the nodes that are lost. Notes of the former era
    say neither."""
    async with restoring_world(tmp_path) as world:
        await world.note_cluster()
        await world.write(4, 3, to=world.nodes)
        lost = world.members[1:]
        async with world.stopped(world.nodes[1:]):
            restored = await world.restore(given=world.nodes[:1], absent=lost, accepted=("all",))
            assert (restored.state, restored.rights_closed) == (RestoreState.DONE, True)
            one, cookie = Rebuilding(world), paths.storage_cookie(lost[0])
            for path in (NAMESPACE, cookie):
                before = one.record(path)
                await one.damage(path)
                await one.rebuild(path)
                assert one.record(path) == before
        assert one.record(NAMESPACE)["closed_permissions"] == {"ann": ["produce"]}
        assert one.record(cookie)["retired"] is True


@pytest.mark.hazard("note-of-a-former-era")
async def test_note_of_a_former_era_deletes_no_topic(tmp_path: Path) -> None:
    """One node has noted it before it learned of this era."""
    async with rebuilding(tmp_path) as one:
        late, path = one.world.nodes[0], paths.tombstone(TOPIC)
        async with Channel(late.address, credentials=replace(PLAIN, era=ERA)) as channel:
            await put_notes(channel, late.incarnation, [Note(path, NoteOrder(1, 9, False, 0), b"")])
        assert "no storage node has noted" in await one.refusal(path, NotFound)
        await one.damage(TOPIC_PATH)
        assert (await one.rebuild(TOPIC_PATH)).written


async def test_note_of_another_cluster_at_a_noted_address_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rights, of a namespace with the same name, are newer by their order."""
    async with rebuilding(tmp_path) as one:
        monkeypatch.setattr(ledger_world, "CLUSTER", "d" * 32)
        async with ledger_world.nodes(tmp_path / "other", 1) as (other,):
            former = replace(cookie_of(other), incarnation=Incarnation("f" * 32), retired=True)
            await one.world.note(paths.storage_cookie(former.incarnation), encode_cookie(former), era=ERA)
            theirs = encode_policies(Policies(permissions={"mallory": ("produce",)}))
            await one.world.note(NAMESPACE, theirs, version=9, to=[other])
            await one.damage(NAMESPACE)
            await one.rebuild(NAMESPACE)
        assert one.record(NAMESPACE)["permissions"] == {"ann": ["produce"]}


async def test_damaged_note_is_never_written(tmp_path: Path) -> None:
    """Garbage was noted as the newest state. An older note is written if an operator accepts that; without one it is
    refused. A note of a newer format is left to the version that reads it."""
    async with rebuilding(tmp_path) as one:
        world = one.world
        await world.note(NAMESPACE, GARBAGE, era=ERA, to=world.nodes[:2])
        await world.note(paths.CLUSTER_POLICIES, GARBAGE, era=ERA)
        await one.damage(NAMESPACE)
        assert "its newest note is damaged" in await one.refusal(NAMESPACE)
        await one.rebuild(NAMESPACE, accept=True)
        assert one.record(NAMESPACE)["permissions"] == {"ann": ["produce"]}
        assert "its notes are damaged" in await one.refusal(paths.CLUSTER_POLICIES, NotFound, accept=True)
        await world.note(paths.CLUSTER_POLICIES, b'{"format":2}', era=ERA, version=1)
        assert "only the version that wrote the note" in await one.refusal(paths.CLUSTER_POLICIES)


async def test_counter_goes_on_above_all_ids(tmp_path: Path) -> None:
    """Ids of producers are in no inventory: each write of their counter has claimed one block at most."""
    async with rebuilding(tmp_path) as one:
        ledgers, producers = f"{paths.IDS}/ledger", f"{paths.IDS}/producer"
        await one.tree.create(paths.ledger(LedgerId(ERA.first_id + 77)), b"of a topic without any entry")
        await one.damage(ledgers)
        await one.rebuild(ledgers)
        assert one.record(ledgers)["next"] == ERA.first_id + 77 + IDS_MARGIN
        assert "can be read" in await one.refusal(ledgers)
        for wrong in (ERA.first_id + 77, 2**62):
            record = CounterRecord(wrong, Incarnation("0" * 32), "n")
            await one.tree.write(ledgers, encode_counter(record), version=(await one.node(ledgers)).version)
            assert f"its number, {wrong}, is " in (await one.rebuild(ledgers)).fault
        version = await one.damage(producers)
        await one.rebuild(producers)
        assert one.record(producers)["next"] == ERA.first_id + (version + 1) * BLOCK_MAX
        await one.remove(producers)
        assert "nothing says which ids were given" in await one.refusal(producers)


@pytest.mark.hazard("ids-hide-an-older-zookeeper")
async def test_lost_record_of_a_nodes_starts_says_that_they_are_unknown(tmp_path: Path) -> None:
    """Only if all other nodes serve: an older ZooKeeper lacks the record, too, and those refuse it."""
    async with rebuilding(tmp_path) as one:
        nodes = one.world.nodes
        path = paths.storage_end(nodes[0].incarnation)
        nodes[0].joined = nodes[1].joined = False
        refusal = await one.refusal(path, accept=True)
        assert (
            f"storage nodes {nodes[1].incarnation} do not serve, so nothing shows that ZooKeeper is not older"
            in refusal
        )
        nodes[1].joined = True
        assert (await one.rebuild(path)).fault == "it is missing"
        assert one.record(path)["start_id"] == REBUILT
        assert "can be read" in await one.refusal(path)
        version = await one.damage(path)
        await one.rebuild(path)
        assert ((await one.node(path)).version, one.record(path)["start_id"]) == (version + 1, REBUILT)
        assert "has joined this cluster" in await one.refusal(paths.storage_end(Incarnation("a" * 32)), NotFound)


async def test_too_few_storage_nodes_prove_nothing(tmp_path: Path) -> None:
    """With an ack quorum of 2, one of three may be missing."""
    async with rebuilding(tmp_path) as one:
        await one.damage(TOPIC_PATH)
        async with one.world.stopped(one.world.nodes[1:]):
            assert "1 of 3 storage nodes" in await one.refusal(TOPIC_PATH, ServiceUnavailable)
    async with rebuilding(tmp_path / "again") as one:
        await one.damage(TOPIC_PATH)
        async with one.world.stopped(one.world.nodes[2:]):
            await one.rebuild(TOPIC_PATH)
        assert one.record(TOPIC_PATH)["ledgers"] == [[4, 0], [9, 0]]


class Racing(MemorySession):
    """Another one writes each record before this session does."""

    async def write(self, path: str, data: bytes, *, version: int, timeout_ms: int | None = None):  # type: ignore[no-untyped-def]
        await super().write(path, b"{}", version=version)
        return await super().write(path, data, version=version)


async def test_other_writers_and_other_paths_are_left_alone(tmp_path: Path) -> None:
    """What another one wrote meanwhile stays, a deleted topic stays deleted, and no other record is written."""
    async with rebuilding(tmp_path) as one:
        await one.damage(TOPIC_PATH)
        racing = Racing(one.world.tree, root="/oncelog")
        with pytest.raises(Conflict, match="was written meanwhile"):
            await one.rebuild(TOPIC_PATH, session=racing)
        assert (await one.node(TOPIC_PATH)).data == b"{}"
        for path in ("/cluster", "/owners/x", "/tombstones/xyz", "/topics/../cluster", "/topics/xyz", "/" * 2_000):
            await one.refusal(path, InvalidArgument)
        await one.tree.create(paths.tombstone(TOPIC), b"")
        assert "was deleted" in await one.refusal(TOPIC_PATH)


async def test_what_cannot_be_proved_is_accepted_or_refused(tmp_path: Path) -> None:
    """A ledger of the chain is gone, and no floor says that it was trimmed."""
    async with restoring_world(tmp_path) as world:
        await world.note_cluster()
        await world.write(9, 2, former=Position(LedgerId(4), EntryId(3)), to=world.nodes)
        assert (await world.restore(accepted=("all",))).state is RestoreState.DONE
        one = Rebuilding(world)
        await one.damage(TOPIC_PATH)
        assert "a ledger of the chain is missing" in await one.refusal(TOPIC_PATH)
        done = await one.rebuild(TOPIC_PATH, accept=True)
        assert done.written
        assert done.reviews
        assert one.record(TOPIC_PATH)["given_up_behind"], "its owner gives up what may be lost"
