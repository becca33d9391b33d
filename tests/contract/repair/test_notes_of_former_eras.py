"""Which records a restore takes from notes, after a process of a former era has noted something at one storage node."""

from dataclasses import replace

import pytest

from oncelog.core.era import Era
from oncelog.core.formats.note import Note, NoteOrder
from oncelog.core.ids import Incarnation, TopicId
from oncelog.core.rebuild.result import NotedName
from oncelog.metadata.restoring.noted_records import newest_of
from oncelog.metadata_store.copies.copy_file import CopiedRecord, CopyHeader, CopyManifest, RecordCopy
from oncelog.metadata_store.notes.noting_session import deletion_of
from oncelog.metadata_store.records.policies import Policies, encode_policies
from oncelog.metadata_store.records.registry import StorageCookie, encode_cookie
from oncelog.metadata_store.records.topic_store import NameRecord, encode_name
from oncelog.metadata_store.session import paths

LIVING, DELETED, NEVER = TopicId("a" * 32), TopicId("b" * 32), TopicId("c" * 32)
NODE = Incarnation("d" * 32)
NAME = f"{paths.NAMES}/public/default/orders"
NAMESPACE = f"{paths.NAMESPACES}/public/default"
COOKIE = StorageCookie(NODE, "h", 6652)
GRANTED = encode_policies(Policies(permissions={"ann": ("produce",)}))
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
    return RecordCopy(CopyHeader("c" * 32, Era(era, f"{era:032x}"), 8, 0), CopyManifest(0, 0, {}), kept)


def noted(path: str, value: bytes = b"", *, era: int = 2) -> Note:
    """Of a transaction that is later than all before."""
    return Note(path, NoteOrder(era, 900, False, 7), value)


def deleted(path: str, *, era: int = 2) -> Note:
    return deletion_of(noted(path, era=era).order, path)


OWN = copy_of(3, created=-1)


@pytest.mark.hazard("note-of-a-former-era")
@pytest.mark.parametrize("copies", [[OWN], [copy_of(3, created=5)], [copy_of(2, created=-1), OWN]])
def test_topic_that_a_process_of_a_former_era_has_deleted_lives(copies: list[RecordCopy]) -> None:
    """Also after a storage node was told that this ZooKeeper has no such tombstone."""
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
