"""Look-ups over real gRPC: topics are created, placed and assigned to owners. Invalid requests have named errors."""

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from oncelog.core.errors import (
    CorruptEntry,
    DeadlineExceeded,
    InvalidArgument,
    InvalidName,
    NamespaceNotFound,
    PermissionDenied,
    TopicNotFound,
    WrongCluster,
)
from oncelog.core.formats.ledger_page import ListPage, PagedLedger
from oncelog.core.formats.topic_record import DEDUP_CURSOR, FORMAT_WITH_HEADS, CursorLink, CursorRecord, LedgerLink
from oncelog.core.ids import EntryId, Incarnation, LedgerId, OwnerEpoch
from oncelog.core.ledger.metadata import EntryRange, LedgerMetadata
from oncelog.core.names import parse_namespace, parse_topic
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.metadata_store.records.cursor_store import CursorStore
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.records.policies import Policies
from oncelog.metadata_store.records.policy_store import PolicyStore
from oncelog.metadata_store.records.registry import LiveStorageNode, Registry
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import WriteStep
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.metadata_codec import LEDGERS, LOOKUP, OWNER_STREAM, TOPICS
from oncelog.rpc.server import Server
from oncelog.runtime.credentials import Credentials
from oncelog.wire import metadata_pb2 as pb
from oncelog_spark.cluster import ClusterConnection, ledgers_of
from tests.cluster.metadata.metadata_world import CLUSTER_ID, DEADLINE_S, TIMEOUT_MS, World
from tests.cluster.until import until
from tests.contract.process.security_world import secured, token

pytestmark = pytest.mark.asyncio


async def test_first_look_up_creates_and_assigns_the_topic() -> None:
    """A new topic needs no preparation."""
    async with World.running() as world:
        replica = await world.replica()
        owner = await world.owner(replica)
        await replica.sees(owner)
        answer = await replica.look_up()
        assert (answer.cluster_id, answer.owner_epoch, answer.partitions) == (CLUSTER_ID, 1, 0)
        assert (answer.owner_address, answer.owner_incarnation) == (owner.address, owner.incarnation)
        assert (await world.record()).owner == owner.incarnation
        await until(lambda: owner.assigned, DEADLINE_S)
        assert owner.assigned == [(answer.topic_id, 1)]
        assert await replica.look_up("public/default/flights") == answer


async def test_look_ups_at_the_same_time_share_one_placement() -> None:
    """A thousand clients that reconnect together must not move a topic a thousand times."""
    async with World.running() as world:
        replica = await world.replica()
        owner = await world.owner(replica)
        await replica.sees(owner)
        answers = await asyncio.gather(*(replica.look_up() for _ in range(50)))
        assert {answer.owner_epoch for answer in answers} == {1}
        await until(lambda: owner.assigned, DEADLINE_S)  # its stream may be behind the answers
        assert owner.assigned == [(answers[0].topic_id, 1)]


async def test_look_up_waits_for_the_first_owner() -> None:
    """A starting cluster must answer its first client as soon as it can, not with an error."""
    async with World.running() as world:
        replica = await world.replica()
        asking = asyncio.ensure_future(replica.look_up())
        owner = await world.owner(replica)
        assert (await asking).owner_incarnation == owner.incarnation


async def test_look_up_without_an_owner_ends_at_its_deadline() -> None:
    """The caller's deadline applies."""
    async with World.running() as world:
        replica = await world.replica()
        request = pb.LookupRequest(topic="flights", create_if_missing=True)
        with pytest.raises(DeadlineExceeded):
            await replica.channel.call(LOOKUP, request, timeout_ms=50)


async def test_owner_without_a_stream_here_is_called() -> None:
    """The owner may not have a stream to the replica that places the topic yet."""
    async with World.running() as world:
        replica = await world.replica()
        owner = await world.owner()
        await replica.sees(owner)
        answer = await replica.look_up()
        await until(lambda: owner.called, DEADLINE_S)
        assert (owner.called, owner.assigned) == ([(answer.topic_id, 1)], [])


async def test_repeated_look_up_resends_the_assignment() -> None:
    """An assignment can be lost with its stream, and nothing else would repeat it."""
    async with World.running() as world:
        replica = await world.replica()
        owner = await world.owner(replica)
        await replica.sees(owner)
        await replica.look_up()

        async def told_twice() -> bool:
            await replica.look_up(epoch=1)
            return len(owner.assigned) > 1

        await until(told_twice, DEADLINE_S)
        assert set(owner.assigned) == {((await world.record()).topic_id, 1)}


async def test_other_replica_sends_the_assignment_once() -> None:
    """The replica that placed the topic may have died before it sent the assignment."""
    async with World.running() as world:
        first, second = await world.replica(), await world.replica()
        owner = await world.owner(second)
        await first.sees(owner)
        await second.sees(owner)
        await first.look_up()
        await second.look_up()
        await second.look_up()
        await until(lambda: owner.assigned and owner.called, DEADLINE_S)
        assert len(owner.assigned) == 1


async def test_missing_topic_is_created_on_request_only() -> None:
    """Not if the client does not request it, and not if the namespace disables it."""
    async with World.running() as world:
        replica = await world.replica()
        owner = await world.owner(replica)
        await replica.sees(owner)
        with pytest.raises(TopicNotFound, match="create it"):
            await replica.look_up(create=False)
        default = parse_namespace("default")
        await PolicyStore(replica.session).change(default, lambda p: replace(p, auto_create_topics=False))
        with pytest.raises(TopicNotFound, match="its namespace disables"):
            await replica.look_up()
        await world.topics.create(parse_topic("flights"))
        assert (await replica.look_up()).owner_epoch == 1
        with pytest.raises(NamespaceNotFound, match="acme/orders"):
            await replica.look_up("acme/orders/new")


@pytest.mark.parametrize("name", ["", "a/b", "a/b/c/d", "x" * 1000, "bad\x00name", "spaces here", "../../x", "a//b"])
async def test_bad_topic_name_is_refused(name: str) -> None:
    """It must not reach ZooKeeper."""
    async with World.running() as world:
        replica = await world.replica()
        with pytest.raises(InvalidName) as caught:
            await replica.look_up(name)
        assert caught.value.details["field"] in {"topic", "namespace", "tenant"}


async def test_look_up_of_a_partitioned_topic_returns_its_partition_count() -> None:
    """It has no owner itself; a partition above the topic's count is not created on use."""
    async with World.running() as world:
        replica = await world.replica()
        owner = await world.owner(replica)
        await replica.sees(owner)
        await world.topics.create(parse_topic("split"), partitions=3)
        answer = await replica.look_up("split")
        assert (answer.partitions, answer.owner_address) == (3, "")
        with pytest.raises(TopicNotFound, match="partition 7"):
            await replica.look_up("split-partition-7")
        assert (await replica.look_up("split-partition-2")).owner_incarnation == owner.incarnation


async def test_partitions_are_created_on_use_even_if_topics_are_not() -> None:
    """A single partition cannot be created explicitly, so the partitioned topic would be useless otherwise."""
    async with World.running() as world:
        replica = await world.replica()
        owner = await world.owner(replica)
        await replica.sees(owner)
        default = parse_namespace("default")
        await PolicyStore(replica.session).change(default, lambda p: replace(p, auto_create_topics=False))
        await world.topics.create(parse_topic("split"), partitions=3)
        assert (await replica.look_up("split-partition-2")).owner_incarnation == owner.incarnation
        for name in ("split-partition-3", "other-partition-0", "other"):
            with pytest.raises(TopicNotFound):
                await replica.look_up(name)


async def test_corrupt_record_affects_its_own_topic_only() -> None:
    """Nothing can be decided without the record, so the error is reported."""
    async with World.running() as world:
        replica = await world.replica()
        owner = await world.owner(replica)
        await replica.sees(owner)
        topic_id = (await replica.look_up()).topic_id
        good = await replica.session.read(f"{paths.TOPICS}/{topic_id}")
        assert good is not None
        world.tree.apply(WriteStep(f"/oncelog{paths.TOPICS}/{topic_id}", b"{}", good.version))
        with pytest.raises(CorruptEntry):
            await replica.look_up()
        assert (await replica.look_up("other")).owner_epoch == 1
        world.tree.apply(WriteStep(f"/oncelog{paths.TOPICS}/{topic_id}", good.data, good.version + 1))
        assert (await replica.look_up()).owner_epoch == 1


async def test_lost_reply_to_a_placement_places_once() -> None:
    """The write is found to have been applied, and is not repeated."""
    async with World.running() as world:
        replica = await world.replica()
        owner = await world.owner(replica)
        await replica.sees(owner)
        await world.topics.create(parse_topic("flights"))
        replica.session.faults.lose_next_reply()
        assert (await replica.look_up()).owner_epoch == 1
        await until(lambda: owner.assigned, DEADLINE_S)


async def test_look_up_waits_while_the_store_is_unavailable() -> None:
    """The look-up is answered when the connection is restored."""
    async with World.running() as world:
        replica = await world.replica()
        owner = await world.owner(replica)
        await replica.sees(owner)
        replica.session.faults.suspend()
        asking = asyncio.ensure_future(replica.look_up())
        replica.session.faults.resume()
        assert (await asking).owner_epoch == 1


@pytest.mark.parametrize(
    ("hello", "error"),
    [
        (pb.OwnerHello(cluster_id="other", incarnation="a" * 32, address="127.0.0.1:1"), WrongCluster),
        (pb.OwnerHello(cluster_id=CLUSTER_ID, incarnation="me", address="127.0.0.1:1"), InvalidArgument),
        (pb.OwnerHello(cluster_id=CLUSTER_ID, incarnation="a" * 32, address="nowhere"), InvalidArgument),
    ],
)
async def test_stream_of_another_cluster_is_refused(hello: pb.OwnerHello, error: type[Exception]) -> None:
    """An owner of another cluster would get topics that it cannot find."""
    async with World.running() as world:
        replica = await world.replica()
        stream = replica.channel.stream(OWNER_STREAM)
        await stream.write(hello)
        with pytest.raises(error):
            await anext(aiter(stream))


async def test_ledgers_are_returned_in_order_with_their_members() -> None:
    """Readers of closed ledgers connect to the storage nodes directly."""
    async with World.running() as world:
        replica = await world.replica()
        owner = await world.owner(replica)
        await replica.sees(owner)
        await replica.look_up()
        here, gone = Incarnation("1" * 32), Incarnation("2" * 32)
        node = LiveStorageNode(here, "10.0.0.1", 6660, 10**12)
        await Registry(replica.session).register_storage_node(node).establish()
        record = await world.record()
        ledgers = LedgerStore(replica.session)
        first = LedgerMetadata(LedgerId(3), record.topic_id, (here, gone), 1).closed(end=EntryId(9), length=900)
        await ledgers.write(first, version=ABSENT_VERSION)
        await ledgers.write(LedgerMetadata(LedgerId(8), record.topic_id, (here, gone), 1), version=ABSENT_VERSION)
        linked = record.with_ledger(LedgerLink(LedgerId(3), 0)).with_ledger(LedgerLink(LedgerId(8), 100))
        await world.topics.write(linked, version=1)
        answer = await replica.channel.call(LEDGERS, pb.LedgersRequest(topic="flights"), timeout_ms=TIMEOUT_MS)
        assert [
            (one.ledger_id, one.state, one.first_base_index, one.end, one.length_bytes) for one in answer.ledgers
        ] == [(3, pb.LEDGER_STATE_CLOSED, 0, 9, 900), (8, pb.LEDGER_STATE_OPEN, 100, -1, 0)]
        assert [(one.incarnation, one.address) for one in answer.ledgers[0].members] == [
            (here, "10.0.0.1:6660"),
            (gone, ""),
        ]
        await ledgers.write(LedgerMetadata(LedgerId(9), record.topic_id, (here,), 1), version=ABSENT_VERSION)
        cursor = CursorRecord(OwnerEpoch(1), (CursorLink(LedgerId(9), None),))
        await CursorStore(replica.session).write(record.topic_id, DEDUP_CURSOR, cursor, version=ABSENT_VERSION)
        asked = pb.LedgersRequest(topic="flights", with_snapshots=True)
        whole = await replica.channel.call(LEDGERS, asked, timeout_ms=TIMEOUT_MS)
        assert (list(whole.ledgers), list(answer.snapshot_ledgers)) == (list(answer.ledgers), [])
        assert [(one.ledger_id, one.members[0].address) for one in whole.snapshot_ledgers] == [(9, "10.0.0.1:6660")]
        await ledgers.write(LedgerMetadata(LedgerId(12), record.topic_id, (here,), 1), version=ABSENT_VERSION)
        stored = await replica.coordination.topics.read(record.topic_id)
        assert stored is not None
        acks = replace(stored.value, acks=(LedgerId(12),), acks_deleted_below=LedgerId(11), format=FORMAT_WITH_HEADS)
        await replica.coordination.topics.write(acks, version=stored.version)
        asked = pb.LedgersRequest(topic="flights", with_acks=True)
        whole = await replica.channel.call(LEDGERS, asked, timeout_ms=TIMEOUT_MS)
        assert ([one.ledger_id for one in whole.ack_ledgers], whole.acks_deleted_below) == ([12], 11)
        with pytest.raises(TopicNotFound):
            await replica.channel.call(LEDGERS, pb.LedgersRequest(topic="none"), timeout_ms=TIMEOUT_MS)


@pytest.mark.hazard("oversized-ledger-list")
async def test_long_list_of_ledgers_comes_in_several_answers() -> None:
    """With the ledgers in pages. One answer with a hundred thousand ledgers would be too large for a message."""
    async with World.running() as world:
        replica = await world.replica()
        created = await world.topics.create(parse_topic("flights"))
        stored, member = await world.topics.read(created.name.value.topic_id), Incarnation("1" * 32)
        assert stored is not None
        record, version = stored.value, stored.version
        for number in range(1, 9):
            record = record.with_ledger(LedgerLink(LedgerId(number), 10 * number))
            metadata = LedgerMetadata(LedgerId(number), record.topic_id, (member,), 1)
            await LedgerStore(replica.session).write(metadata.closed(end=EntryId(0), length=1), version=ABSENT_VERSION)
        pages = [
            ListPage(tuple(PagedLedger(LedgerId(n), 10 * n, 1, 1) for n in names)) for names in ((1, 2, 3), (4, 5))
        ]
        for page in pages:
            record = record.with_page(page.link)
            version = (await world.topics.write(record, version=version, page=page)).version

        class Cluster:
            calls = 0

            async def ask_metadata(self, method: Any, request: Any) -> Any:
                self.calls += 1
                return await replica.channel.call(method, request, timeout_ms=TIMEOUT_MS)

        for at_once, calls in ((1, 8), (2, 4), (3, 3), (7, 2), (8, 1), (100, 1)):
            cluster = Cluster()
            answer = await ledgers_of(cast("ClusterConnection", cluster), "flights", at_once=at_once)
            assert [(each.ledger_id, each.first_base_index) for each in answer.ledgers] == [
                (number, 10 * number) for number in range(1, 9)
            ]
            assert (answer.topic_id, cluster.calls) == (record.topic_id, calls)
        cut = record.without(LedgerId(2), pages[0].link_behind(LedgerId(2)))
        await world.topics.write(cut, version=version)
        answer = await ledgers_of(cast("ClusterConnection", Cluster()), "flights", at_once=2)
        assert [each.ledger_id for each in answer.ledgers] == [3, 4, 5, 6, 7, 8]


@pytest.mark.hazard("answer-of-a-former-member")
async def test_ledgers_that_a_client_names_are_read_anew() -> None:
    """This service keeps copies of closed records. A client that names a ledger has met a former member."""
    async with World.running() as world:
        replica = await world.replica()
        created = await world.topics.create(parse_topic("flights"))
        old, new = Incarnation("1" * 32), Incarnation("2" * 32)
        stored, ledgers = await world.topics.read(created.name.value.topic_id), LedgerStore(replica.session)
        assert stored is not None
        record = stored.value
        closed = LedgerMetadata(LedgerId(3), record.topic_id, (old,), 1).closed(end=EntryId(9), length=900)
        await ledgers.write(closed, version=ABSENT_VERSION)
        await ledgers.write(LedgerMetadata(LedgerId(8), record.topic_id, (old,), 1), version=ABSENT_VERSION)
        linked = record.with_ledger(LedgerLink(LedgerId(3), 0)).with_ledger(LedgerLink(LedgerId(8), 100))
        await world.topics.write(linked, version=stored.version)

        async def members(*named: int) -> list[tuple[int, str]]:
            request = pb.LedgersRequest(topic="flights", ledger_ids=named)
            answer = await replica.channel.call(LEDGERS, request, timeout_ms=TIMEOUT_MS)
            return [(one.ledger_id, one.members[0].incarnation) for one in answer.ledgers]

        assert await members() == [(3, old), (8, old)]
        lost = closed.join(new).swap(old).mark_lost([EntryRange(EntryId(1), EntryId(2))])
        await ledgers.write(lost.give_up_entries((new,), by="ann"), version=0)
        assert await members() == [(3, old), (8, old)], "the copy"
        assert await members(3, 77) == [(3, new)]
        assert await members() == [(3, new), (8, old)]
        request = pb.LedgersRequest(topic="flights", ledger_ids=[3])
        [shown] = (await replica.channel.call(LEDGERS, request, timeout_ms=TIMEOUT_MS)).ledgers
        assert [(one.first, one.last) for one in shown.lost] == [(1, 2)]
        assert (shown.given_up_by, list(shown.gone)) == ("ann", [new])


async def test_topics_of_a_namespace_are_listed_without_partitions() -> None:
    """A client that selects topics by a pattern then requests the partitions of each."""
    async with World.running() as world:
        replica = await world.replica()
        for name, partitions in (("flights", 0), ("parts", 2)):
            await world.topics.create(parse_topic(name), partitions=partitions)
        await world.topics.create(parse_topic("parts-partition-1"))
        answer = await replica.channel.call(TOPICS, pb.TopicsRequest(namespace="public/default"), timeout_ms=TIMEOUT_MS)
        listed = [(one.topic, one.partitions) for one in answer.topics]
        assert listed == [("public/default/flights", 0), ("public/default/parts", 2)]
        with pytest.raises(NamespaceNotFound):
            await replica.channel.call(TOPICS, pb.TopicsRequest(namespace="public/none"), timeout_ms=TIMEOUT_MS)


async def test_ledgers_need_the_right_to_consume_and_topics_any_right(tmp_path: Path) -> None:
    """The ledgers are the location of the messages; the names are visible with any right in the namespace."""
    async with World.running() as world:
        replica = await world.replica()
        await world.topics.create(parse_topic("flights"))
        grants: dict[str, tuple[str, ...]] = {"importer": ("produce",), "auditor": ("consume",)}
        await PolicyStore(replica.session).change(parse_namespace("default"), lambda _: Policies(permissions=grants))
        server = Server(secured(tmp_path))
        replica.coordination.serve(server)
        port = await server.start()
        ledgers, topics = pb.LedgersRequest(topic="flights"), pb.TopicsRequest(namespace="public/default")
        try:
            for role, reads, lists in (
                ("auditor", True, True),
                ("importer", False, True),
                ("stranger", False, False),
                ("root", True, True),
            ):
                credentials = Credentials.of(tls=False, token=token(role))
                async with Channel(f"127.0.0.1:{port}", credentials=credentials) as channel:
                    reading = channel.call(LEDGERS, ledgers, timeout_ms=TIMEOUT_MS)
                    assert await allowed(reading) is reads, role
                    listing = channel.call(TOPICS, topics, timeout_ms=TIMEOUT_MS)
                    assert await allowed(listing) is lists, role
        finally:
            await server.stop(grace_ms=0)


async def allowed(call: Awaitable[object]) -> bool:
    try:
        await call
    except PermissionDenied:
        return False
    return True
