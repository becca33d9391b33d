"""Which records a restore takes from notes, after a process of a former era has noted something at one storage node."""

from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.core.era import Era
from oncelog.core.formats.note import Note, NoteOrder
from oncelog.core.formats.topic_record import DEDUP_CURSOR, CursorRecord, TopicRecord, encode_cursor, encode_topic
from oncelog.core.ids import Incarnation, OwnerEpoch, TopicId
from oncelog.core.rebuild.restore_events import Knowledge
from oncelog.core.rebuild.result import NotedName
from oncelog.metadata.restore.noted_records import knowledge_of, newest_of, records_of
from oncelog.metadata.restore.progress import RestoreState
from oncelog.metadata_store.copies.copy_file import CopiedRecord, CopyHeader, CopyManifest, RecordCopy
from oncelog.metadata_store.notes.noting_session import deletion_of
from oncelog.metadata_store.records.policies import Policies, encode_policies
from oncelog.metadata_store.records.registry import StorageCookie, encode_cookie
from oncelog.metadata_store.records.topic_store import NameRecord, encode_name
from oncelog.metadata_store.session import paths
from tests.contract.restore.restoring_world import RESTORE_ID, TOPIC, cookie_of, restoring_world
from tests.contract.stores.memory_store import MemoryTree

LIVING, DELETED, NEVER = TopicId("a" * 32), TopicId("b" * 32), TopicId("c" * 32)
NODE = Incarnation("d" * 32)
NAME = f"{paths.NAMES}/public/default/orders"
NAMESPACE = f"{paths.NAMESPACES}/public/default"
COOKIE = StorageCookie(NODE, "h", 6652)
GRANTED = encode_policies(Policies(permissions={"ann": ("produce",)}))
LEFT_OUT = TopicRecord(NEVER, "orders")
#: what the restore of era 3 has written
RECORDS = {
    NAME: encode_name(NameRecord(LIVING)),
    NAMESPACE: encode_policies(Policies()),
    paths.tombstone(DELETED): b"",
    paths.storage_cookie(NODE): encode_cookie(COOKIE),
}


def copy_of(era: int, *, created: int, without: str = "") -> RecordCopy:
    """created: -1: the restore's own copy, and not a walk of the cluster that serves."""
    kept = {path: CopiedRecord(path, value, 4, created) for path, value in RECORDS.items() if path != without}
    return RecordCopy(
        CopyHeader("c" * 32, Era(era, f"{era:032x}" if era > 1 else ""), 8, 0), CopyManifest(0, 0, {}), kept
    )


def topics_copied(era: int, topics: dict[TopicId, bytes]) -> RecordCopy:
    """With a cursor of the one that is left out."""
    cursor = encode_cursor(CursorRecord(OwnerEpoch(1)))
    records = {paths.topic(each): value for each, value in topics.items()}
    records |= {paths.cursor(each, DEDUP_CURSOR): cursor for each in topics if each == NEVER}
    kept = {path: CopiedRecord(path, value, 4, 5) for path, value in records.items()}
    return RecordCopy(copy_of(era, created=5).header, CopyManifest(0, 0, {}), kept)


def noted(path: str, value: bytes = b"", *, era: int = 2) -> Note:
    """Of a transaction that is later than all before."""
    return Note(path, NoteOrder(era, 900, False, 7), value)


def deleted(path: str, *, era: int = 2) -> Note:
    return deletion_of(noted(path, era=era).order, path)


OWN = copy_of(3, created=-1)


@pytest.mark.hazard("note-of-a-former-era")
@pytest.mark.parametrize("copies", [[OWN], [copy_of(3, created=5)], [copy_of(2, created=-1), OWN]])
def test_topic_that_a_process_of_a_former_era_has_deleted_lives(copies: list[RecordCopy]) -> None:
    """Also if the node has since got a note that this ZooKeeper has no such tombstone."""
    for tombstone in (noted(paths.tombstone(LIVING)), deleted(paths.tombstone(LIVING))):
        newest = newest_of(copies, [tombstone, deleted(NAME)])
        assert newest.noted().names == {"public/default/orders": NotedName(LIVING)}
        assert newest.tombstones == [DELETED]


@pytest.mark.hazard("note-of-a-former-era")
@pytest.mark.parametrize("path", [NAMESPACE, paths.storage_cookie(NODE)])
def test_record_that_a_process_of_a_former_era_has_changed_or_deleted_is_as_this_era_has_it(path: str) -> None:
    """Its rights, policies, and whether a storage node is there."""
    emptied = replace(COOKIE, retired=True, emptied=True)
    changed = noted(path, GRANTED if path == NAMESPACE else encode_cookie(emptied))
    for note in (changed, deleted(path)):
        assert newest_of([OWN], [note]).value(path) == RECORDS[path]


@pytest.mark.hazard("note-of-a-former-era")
@pytest.mark.parametrize(
    "path", [f"{paths.NAMES}/public/default/more", f"{paths.NAMESPACES}/shop/eu", paths.topic_policies(LIVING)]
)
def test_record_that_a_process_of_a_former_era_has_made_is_not_there(path: str) -> None:
    value = encode_name(NameRecord(NEVER)) if path.startswith(paths.NAMES) else GRANTED
    assert newest_of([OWN], [noted(path, value)]).value(path) is None
    assert newest_of([OWN], [noted(path, value, era=3)]).value(path) == value


@pytest.mark.hazard("note-of-a-former-era")
def test_node_that_a_process_of_a_former_era_has_retired_counts() -> None:
    """It has taken entries in this era. One that joined in the former era only was never asked to."""
    emptied = encode_cookie(replace(COOKIE, retired=True, emptied=True))
    other = noted(paths.storage_cookie(Incarnation("e" * 32)), encode_cookie(COOKIE))
    former, now = (noted(paths.storage_cookie(NODE), emptied, era=era) for era in (2, 3))
    assert knowledge_of([former, other], [OWN]) == Knowledge({NODE: True}, era=3)
    assert knowledge_of([now], [OWN]) == Knowledge({NODE: False}, era=3, replaced=frozenset())


def test_what_was_deleted_in_this_era_stays_deleted() -> None:
    """Also if the copy was made before, and other nodes have older notes."""
    notes = [noted(NAME, RECORDS[NAME]), deleted(NAME, era=3), noted(paths.tombstone(LIVING), era=3)]
    newest = newest_of([OWN], notes)
    assert newest.noted().names == {}
    assert newest.tombstones == [LIVING, DELETED]


def test_copy_of_a_former_era_decides_nothing_about_its_own_notes() -> None:
    """The era that serves has no copy yet: its restore would not have committed without one, so it is unreadable."""
    newest = newest_of([copy_of(2, created=-1)], [noted(paths.tombstone(LIVING), era=2)])
    assert newest.tombstones == [LIVING, DELETED]


def test_state_of_a_former_era_stands_in_for_a_damaged_copy_of_the_record() -> None:
    """The restore says that it is an older one."""
    damaged = RecordCopy(OWN.header, OWN.manifest, {**OWN.records, NAMESPACE: CopiedRecord(NAMESPACE, b"?", 4)})
    newest = newest_of([damaged], [noted(NAMESPACE, GRANTED)])
    assert newest.value(NAMESPACE) == GRANTED
    assert list(newest.damaged) == [NAMESPACE]


@pytest.mark.hazard("left-out-ledger-returns")
def test_each_topic_of_an_era_is_in_its_copies() -> None:
    """One that only an older copy has was left out or deleted. If a record of a topic cannot be read, the copy proves
    nothing of the others."""
    older = topics_copied(2, {LIVING: encode_topic(TopicRecord(LIVING, "orders")), NEVER: encode_topic(LEFT_OUT)})
    newer = topics_copied(3, {LIVING: encode_topic(TopicRecord(LIVING, "orders"))})
    assert records_of([older]).complete_below == Era(2, "").first_id
    found = records_of([older, newer])
    assert (list(found.topics), found.cursors, found.complete_below) == ([LIVING], {}, Era(3, "").first_id)
    unreadable: dict[str, str] = {}
    found = records_of([older, topics_copied(3, {LIVING: b"?"})], unreadable)
    assert (found.complete_below, list(unreadable)) == (0, [paths.topic(LIVING)])
    assert records_of([topics_copied(1, {})]).complete_below == 0


@pytest.mark.asyncio
@pytest.mark.hazard("note-of-a-former-era")
async def test_restore_leaves_no_topic_out_that_a_process_of_a_former_era_has_deleted(tmp_path: Path) -> None:
    """Nor does it count a storage node as emptied. The first restore did without one node, which notes both before it
    joins the new era."""
    async with restoring_world(tmp_path, 4) as world:
        *asked, late = world.nodes
        await world.note_cluster()
        await world.write(4, 3, to=world.nodes)
        async with world.stopped([late]):
            assert (await world.restore()).state is RestoreState.DONE
        emptied = replace(cookie_of(asked[0]), retired=True, emptied=True)
        await world.note(paths.storage_cookie(emptied.incarnation), encode_cookie(emptied), version=1, to=[late])
        await world.note(paths.tombstone(TOPIC), b"", to=[late])
        await world.note(NAME, b"", deleted=True, version=1, to=[late])
        for node in world.nodes:
            await node.runner.join_era(Era(2, RESTORE_ID))
        world.tree = MemoryTree()
        async with world.stopped(asked[:1]):  # the late node may lack entries, too
            few = await world.restore(restore_id="2" * 32)
        assert (few.state, "2 of 4 storage nodes" in few.message) == (RestoreState.REFUSED, True), few.message
        second = await world.restore(restore_id="2" * 32)
        assert (second.state, second.topics, second.deleted_topics) == (RestoreState.DONE, 1, 0), second.message
        root = f"/era-{second.era}"
        assert world.record(f"{root}{NAME}")["topic_id"] == TOPIC
        assert not world.record(f"{root}{paths.storage_cookie(emptied.incarnation)}").get("emptied")
