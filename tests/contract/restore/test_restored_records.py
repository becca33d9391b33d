"""Which records a restore writes, from what was rebuilt and what was noted."""

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.era import FIRST_ERA, Era
from oncelog.core.errors import InvalidArgument
from oncelog.core.formats.head import LedgerHead
from oncelog.core.formats.note import VALUE_BYTES_MAX, Note, NoteOrder
from oncelog.core.formats.topic_record import TopicRecord
from oncelog.core.ids import Incarnation, LedgerId, TopicId
from oncelog.core.ledger.member_status import CopyState
from oncelog.core.names import parse_namespace
from oncelog.core.rebuild.restore_events import Knowledge
from oncelog.core.rebuild.result import (
    CopiedRecords,
    NotedName,
    NotedRecords,
    Rebuilt,
    RebuiltTopic,
    Review,
    ReviewReason,
)
from oncelog.core.rebuild.sources import Chain, HeldLedger, Inventory
from oncelog.core.records.status import WriteStatus
from oncelog.metadata.restore.lost_records import review_lost
from oncelog.metadata.restore.new_tree import NewTree, new_tree
from oncelog.metadata.restore.noted_records import (
    NewestRecords,
    copied_records,
    knowledge_of,
    notes_of_copy,
    usable_copies,
)
from oncelog.metadata.restore.progress import RestoreProgress, decode_progress, encode_progress
from oncelog.metadata.restore.rights import closed, revoked
from oncelog.metadata.restore.tree_writer import BYTES_MAX, STEPS_MAX, batches
from oncelog.metadata_store.copies.copy_file import CopiedRecord, CopyHeader, CopyManifest, RecordCopy
from oncelog.metadata_store.records.cluster_store import ClusterRecord, ClusterStore, Rights, encode_cluster
from oncelog.metadata_store.records.policies import CLOSING_BYTES_MAX, Policies, decode_policies, encode_policies
from oncelog.metadata_store.records.policy_store import PolicyStore
from oncelog.metadata_store.records.registry import Decommission, StorageCookie, encode_cookie
from oncelog.metadata_store.records.topic_store import NameRecord, encode_name
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import CreateStep, Step
from oncelog.metadata_store.session.zookeeper import DATA_BYTES_MAX
from tests.contract.stores.memory_store import MemorySession, MemoryTree

ERA = Era(3, "1" * 32)
ONE, TWO = TopicId("a" * 32), TopicId("b" * 32)
A, B = Incarnation("a" * 32), Incarnation("b" * 32)


def note(path: str, value: bytes = b"", *, created: int = 1, deleted: bool = False, version: int = 0) -> Note:
    return Note(path, NoteOrder(1, created, deleted, version), value)


def newest_of(*notes: Note) -> NewestRecords:
    newest = NewestRecords()
    newest.add(notes)
    return newest


def tree_of(newest: NewestRecords, *topics: TopicRecord, rights: Rights = Rights.OPEN) -> NewTree:
    rebuilt = Rebuilt(
        {each.topic_id: RebuiltTopic(each) for each in topics}, {each.name: each.topic_id for each in topics}, (), 7
    )
    return new_tree(rebuilt, newest, era=ERA, retired=(), rights=rights, by="ann")


def name_path(name: str) -> str:
    return f"{paths.NAMES}/{name}"


def test_debt_of_a_storage_node_is_counted_anew() -> None:
    """With an old debt of 0, the node that has replaced it would be ready at once."""
    cookie = StorageCookie(A, "h", 1, retired=True, replaced_by=B, debt=0)
    path = paths.storage_cookie(A)
    for retired in ((), (A,)):
        newest = newest_of(note(path, encode_cookie(cookie)))
        tree = new_tree(Rebuilt({}, {}, (), 7), newest, era=ERA, retired=retired, rights=Rights.OPEN, by="ann")
        assert tree.records[path] == encode_cookie(replace(cookie, debt=None))


@pytest.mark.hazard("late-note")
def test_newest_note_of_a_path_decides_whatever_the_order_of_arrival() -> None:
    """A topic was deleted and made again; the copy that a walk made before is older."""
    path = name_path("public/default/orders")
    notes = [
        note(path, encode_name(NameRecord(ONE)), created=1, version=4),
        note(path, created=1, deleted=True, version=5),
        note(path, encode_name(NameRecord(TWO)), created=9),
    ]
    for some in (notes, notes[::-1], [*notes[1:], notes[0]]):
        assert newest_of(*some).noted() == NotedRecords({"public/default/orders": NotedName(TWO)}, frozenset())
    assert newest_of(*notes[:2]).noted() == NotedRecords()


@pytest.mark.hazard("damaged-record-is-noted")
def test_newest_note_that_can_be_read_decides_whatever_the_order_of_arrival() -> None:
    """Also that of a copy. One that was written anew behind the garbage is the newest. A newer format is no garbage."""
    path = name_path("public/default/orders")
    good = note(path, encode_name(NameRecord(ONE)), version=4)
    garbage = note(path, b"garbage", version=5)
    again = note(path, encode_name(NameRecord(TWO)), version=6)
    for some in ((good, garbage), (garbage, good)):
        newest = newest_of(*some)
        assert (newest.value(path), list(newest.damaged), newest.lost) == (good.value, [path], {})
    for more in ((good, garbage, again), (again, garbage, good)):
        newest = newest_of(*more)
        assert (newest.value(path), newest.damaged) == (again.value, {})
    newer = note(path, b'{"format":2}', version=6)
    newest = newest_of(good, garbage, newer)
    assert (newest.value(path), newest.damaged) == (newer.value, {})
    assert [each.name for each in review_lost(newest, (), CopiedRecords(), ERA)] == [path]


@pytest.mark.hazard("damaged-record-is-noted")
def test_partitions_of_a_lost_name_are_those_of_heads_without_deleted_topics() -> None:
    """The topic's id is that of a copy, so that its policies stay."""
    name = "public/default/orders"
    heads = [(ONE, 1), (TWO, 7)]
    held = {
        LedgerId(number): HeldLedger(
            LedgerId(number), Chain(topic_id, LedgerPurpose.LOG), CopyState.HELD,
            head=LedgerHead(f"{name}-partition-{number}", (A,), 1, 1, A, LedgerId(0), None),
        )
        for topic_id, number in heads
    }  # fmt: skip
    newest = newest_of(note(name_path(name), b"garbage"), note(paths.tombstone(TWO)))
    whole = TopicId("c" * 32)
    copied = CopiedRecords({whole: TopicRecord(whole, name)})
    (review,) = review_lost(newest, [Inventory(A, "c" * 32, ERA, held)], copied, ERA)
    assert f"it has 2 partitions, because {name}-partition-1 is the highest" in review.message
    assert newest.noted().names == {name: NotedName(whole, partitioned=True)}
    assert newest.names() == {name: NameRecord(whole, 2)}


@pytest.mark.hazard("late-note")
def test_copy_of_a_deleted_record_does_not_bring_it_back() -> None:
    """The copy was made an hour before the deletion; the note of the deletion is newer."""
    path = f"{paths.NAMESPACES}/shop"
    header = CopyHeader("c" * 32, Era(1, ""), 8, 0)
    copied = RecordCopy(header, CopyManifest(1, 1, {}), {path: CopiedRecord(path, b"", 0, -1)})
    newest = newest_of(note(path, deleted=True))
    newest.add(notes_of_copy(copied))
    assert newest.value(path) is None
    assert path not in tree_of(newest).records


def test_topic_gets_its_namespace_also_without_a_note_of_it() -> None:
    """The restore names the namespace, because its policies are lost."""
    tree = tree_of(newest_of(), TopicRecord(ONE, "shop/eu/orders"))
    assert tree.namespaces == ["public/default", "shop/eu"]
    assert decode_policies(tree.records[f"{paths.NAMESPACES}/shop/eu"]) == Policies()
    assert json.loads(tree.records[name_path("shop/eu/orders")])["topic_id"] == ONE
    levels = tree.by_depth()
    seen: set[str] = {""}
    for level in levels:
        assert {path.rpartition("/")[0] for path in level} <= seen
        seen |= level.keys()


def test_partitioned_topic_is_as_it_was_noted_and_its_deletion_goes_on() -> None:
    """The one that was being deleted has its name as a tombstone: its partitions must go before the name is free."""
    growing = NameRecord(ONE, 4, former_partitions=(2,))
    tree = tree_of(
        newest_of(
            note(name_path("public/default/grown"), encode_name(growing)),
            note(name_path("public/default/gone"), encode_name(NameRecord(TWO, 3, deleted=True))),
            note(paths.tombstone(TWO)),
            note(paths.topic_policies(TWO), encode_policies(Policies())),
        )
    )
    assert tree.records[name_path("public/default/grown")] == encode_name(growing)
    assert json.loads(tree.records[paths.topic(ONE)])["owner"] is None
    assert paths.topic(TWO) not in tree.records
    assert paths.topic_policies(TWO) not in tree.records
    assert json.loads(tree.records[paths.deletion(TWO)])["partitions"] == 3
    assert paths.tombstone(TWO) in tree.records


@pytest.mark.hazard("revoked-right-returns")
def test_closed_rights_are_effective_nowhere() -> None:
    """Also those that were closed by the restore before, and were never confirmed."""
    path = f"{paths.NAMESPACES}/public/default"
    given = Policies(message_ttl_s=7, permissions={"ann": ("produce",)})
    noted = newest_of(note(path, encode_policies(given)))
    once = decode_policies(tree_of(noted, rights=Rights.CLOSED).records[path])
    again = newest_of(note(path, encode_policies(once)))
    twice = decode_policies(tree_of(again, rights=Rights.CLOSED).records[path])
    for each in (once, twice):
        assert each.permissions == {}
        assert each.message_ttl_s == 7
        assert each.further["closed_permissions"] == {"ann": ["produce"]}
    assert decode_policies(tree_of(noted).records[path]) == given


def test_notes_name_the_nodes_and_the_lowest_ack_quorum() -> None:
    """A removed node does not count, and neither does a retired one once it is emptied; one whose cookie cannot be read
    does."""
    cookies = [
        StorageCookie(A, "n1", 6652),
        StorageCookie(B, "n2", 6652, retired=True),
        StorageCookie(Incarnation("c" * 32), "n3", 6652, retired=True, emptied=True),
        StorageCookie(Incarnation("d" * 32), "n4", 6652, retired=True, decommission=Decommission.DONE),
    ]
    notes = [note(f"{paths.STORAGE_COOKIES}/{each.incarnation}", encode_cookie(each)) for each in cookies]
    notes.append(note(f"{paths.STORAGE_COOKIES}/{'e' * 32}", b"?"))
    records = {quorum: encode_cluster(ClusterRecord("c" * 32, ack_quorum=quorum)) for quorum in (3, 2)}
    notes += [note(paths.CLUSTER, record, version=quorum) for quorum, record in records.items()]
    counts = dict(zip(map(Incarnation, ("c" * 32, "d" * 32, "e" * 32)), (False, False, True), strict=True))
    assert knowledge_of(notes) == Knowledge({A: True, B: True} | counts, 2, 1, frozenset((B,)))


def test_record_of_a_copy_that_cannot_be_read_is_told_and_left_out() -> None:
    """One bad record must not stop the restore of all others."""
    unreadable: dict[str, str] = {}
    assert copied_records({paths.topic(ONE): b"?"}, unreadable).topics == {}
    assert list(unreadable) == [paths.topic(ONE)]


def test_transactions_stay_within_the_limits_of_zookeeper() -> None:
    """By number and by bytes; a record is never split."""
    small: list[Step] = [CreateStep(f"/{number}") for number in range(STEPS_MAX * 2 + 1)]
    assert [len(each) for each in batches(small)] == [STEPS_MAX, STEPS_MAX, 1]
    large: list[Step] = [CreateStep(f"/{number}", bytes(BYTES_MAX // 2)) for number in range(5)]
    assert [len(each) for each in batches(large)] == [1] * 5
    assert batches([]) == []


def test_progress_of_a_restore_fits_into_a_record_whatever_its_review_lists() -> None:
    """The longest names. A larger record would end the metadata service that restores, each time."""
    part = "n" * 255
    name = f"{part}/{part}/{part}"
    review = Review(
        ONE, f"{paths.NAMES}/{name}", ReviewReason.DAMAGED, f"it has 3 partitions, because {name}-partition-2"
    )
    warning = f"{paths.NAMES}/{name} was damaged, and an older state of it is taken"
    progress = RestoreProgress(message="decide", reviews=[review] * 1_000, warnings=[warning] * 1_000)
    encoded = encode_progress(progress)
    assert len(encoded) < DATA_BYTES_MAX
    shown = decode_progress(encoded)
    assert (shown.message, shown.reviews[0], shown.warnings[0]) == ("decide", review, warning)


@pytest.mark.hazard("copy-of-an-attempt")
def test_of_several_attempts_of_one_restore_the_last_one_counts_and_then_what_the_cluster_wrote() -> None:
    """Clocks of metadata services differ, so times decide nothing between them. Era 3 was never committed."""
    served = (CopiedRecord(paths.CLUSTER, b"", 9, 5),)
    made = {
        "first": (2, 3_000, (CopiedRecord("/topics/a", b"first", 1),)),
        "last": (2, 2_000, (CopiedRecord("/topics/a", b"last", 4),)),
        "hourly": (2, 1_000, served),
        "before": (1, 4_000, served),
        "uncommitted": (3, 5_000, (CopiedRecord("/topics/a", b"", 7),)),
    }
    copies = {
        name: RecordCopy(
            CopyHeader("c" * 32, Era(era, "1" * 32 if era > 1 else ""), 8, created_ms),
            CopyManifest(0, 0, {}),
            {record.path: record for record in records},
        )
        for name, (era, created_ms, records) in made.items()
    }
    used, unused = usable_copies(copies, {FIRST_ERA, Era(2, "1" * 32)})
    assert used == [copies[name] for name in ("before", "last", "hourly")]
    assert unused.keys() == {"first", "uncommitted"}


def test_name_keeps_fields_of_a_newer_version() -> None:
    """A record that a restore writes anew says all that its note said."""
    name = "public/default/orders"
    value = encode_name(NameRecord(ONE, further={"x_future": 7}))
    tree = tree_of(newest_of(note(name_path(name), value)), TopicRecord(ONE, name))
    assert json.loads(tree.records[name_path(name)])["x_future"] == 7


@pytest.mark.hazard("revoked-right-returns")
def test_partitioned_topic_that_was_deleted_does_not_return_with_an_old_disk() -> None:
    """The disk alone has a note of the name, from before the deletion. The tombstone stays for ever."""
    name = "public/default/orders"
    old = note(name_path(name), encode_name(NameRecord(ONE, partitions=4)))
    tree = tree_of(newest_of(old, note(f"{paths.TOMBSTONES}/{ONE}", created=9)))
    assert name_path(name) not in tree.records
    assert paths.topic(ONE) not in tree.records


@pytest.mark.asyncio
@pytest.mark.hazard("no-room-to-close")
async def test_policies_have_room_for_the_field_that_closes_their_rights() -> None:
    """A grant without room is refused, a revocation never is, and what was stored can be closed."""
    session = MemorySession(MemoryTree(), root="/oncelog")
    await ClusterStore(session).establish()
    policies, namespace = PolicyStore(session), parse_namespace("public/default")

    def granted(role: str) -> Callable[[Policies], Policies]:
        return lambda before: replace(before, permissions={**before.permissions, role: ("produce",)})

    async def size() -> int:
        return len(encode_policies((await policies.read(namespace)).value))

    await policies.change(namespace, granted("a" * (VALUE_BYTES_MAX - 300)))

    async def fits(role: str) -> bool:
        with contextlib.suppress(InvalidArgument):
            return bool(await policies.change(namespace, granted(role)))
        return False

    length = 1
    while await fits("b" * length):
        length += 1
    with pytest.raises(InvalidArgument, match=f"the limit is {VALUE_BYTES_MAX - CLOSING_BYTES_MAX}: revoke grants"):
        await policies.change(namespace, granted("b" * length))
    stored = (await policies.read(namespace)).value
    assert await size() > VALUE_BYTES_MAX - 2 * CLOSING_BYTES_MAX
    assert 0 < len(encode_policies(closed(stored))) - await size() <= CLOSING_BYTES_MAX
    room = VALUE_BYTES_MAX - len(encode_policies(granted("")(closed(stored))))
    full = granted("c" * room)(closed(stored))
    version = (await policies.read(namespace)).version
    assert (await policies.write(namespace, full, version=version)).status is WriteStatus.OK
    assert await size() == VALUE_BYTES_MAX
    await policies.change(namespace, lambda one: revoked(one, "b"))
    assert VALUE_BYTES_MAX - CLOSING_BYTES_MAX < await size() < VALUE_BYTES_MAX
