"""Topics, topic owners and storage nodes over REST."""

import json

import pytest

from oncelog.core.errors import Conflict, TopicNotFound
from oncelog.core.ids import Incarnation, TopicId
from oncelog.core.names import KAFKA_GROUPS, parse_topic
from oncelog.metadata_store.records.registry import LiveOwner, LiveStorageNode, Registry, StorageCookie
from oncelog.metadata_store.records.repair_store import RepairProgress, RepairStore
from oncelog.rpc.codecs.metadata_codec import TOPICS
from oncelog.wire import metadata_pb2, owner_pb2
from tests.cluster.metadata.metadata_world import CLUSTER_ID, DEADLINE_S
from tests.cluster.until import until
from tests.contract.rest.admin.admin_world import FLIGHTS, serving

pytestmark = pytest.mark.asyncio

NAMESPACE = "/admin/v2/persistent/public/default"
LOOKUP = "/lookup/v2/topic/persistent/public/default/flights"


async def test_topic_is_created_once_listed_and_shown() -> None:
    """Creating a topic does not call an owner."""
    async with serving() as admin:
        assert await admin.get(NAMESPACE) == []
        await admin.refused("GET", FLIGHTS, 404, "topic_not_found")
        await admin.change("PUT", FLIGHTS)
        await admin.refused("PUT", FLIGHTS, 409, "conflict")
        assert await admin.get(NAMESPACE) == ["public/default/flights"]
        shown = await admin.get(FLIGHTS)
        assert len(shown.pop("topic_id")) == 32
        expected = {"topic": "public/default/flights", "partitions": 0, "owner": None, "owner_epoch": 0}
        assert shown == {**expected, "ledger_count": 0}
        await admin.refused("PUT", "/admin/v2/persistent/public/none/x", 404, "namespace_not_found")
        await admin.refused("GET", "/admin/v2/persistent/public/none", 404, "namespace_not_found")
        await admin.refused("PUT", f"{NAMESPACE}/x-partition-0", 412, "invalid_name")


async def test_topics_of_the_doors_are_listed_only_on_request() -> None:
    """They can be shown and deleted: a namespace is deleted when it has no topics."""
    async with serving() as admin:
        for name in ("flights", KAFKA_GROUPS):
            await admin.change("PUT", f"{NAMESPACE}/{name}")
        assert await admin.get(NAMESPACE) == ["public/default/flights"]
        every = [f"public/default/{name}" for name in (KAFKA_GROUPS, "flights")]
        assert await admin.get(NAMESPACE, params={"doors": "true"}) == every
        assert (await admin.get(f"{NAMESPACE}/{KAFKA_GROUPS}"))["topic"] == every[0]


@pytest.mark.hazard("unreadable-record")
async def test_damaged_name_record_hides_no_other_topic() -> None:
    """Its topic is listed, too, and the path of its record."""
    async with serving() as admin:
        for name in ("flights", "orders", "trains"):
            await admin.change("PUT", f"{NAMESPACE}/{name}")
        session, path = admin.replica.session, "/names/public/default/orders"
        node = await session.read(path)
        assert node is not None
        await session.write(path, b"garbage", version=node.version)
        assert await admin.get(NAMESPACE) == [f"public/default/{name}" for name in ("flights", "orders", "trains")]
        assert await admin.get(NAMESPACE, params={"unreadable": "true"}) == [path]
        assert await admin.get(f"{NAMESPACE}/partitioned") == []
        told = await admin.refused("GET", f"{NAMESPACE}/orders", 500, "corrupt_entry")
        assert told["detail"].startswith(f"{path}: ")
        asked = metadata_pb2.TopicsRequest(namespace="public/default")
        answer = await admin.replica.channel.call(TOPICS, asked, timeout_ms=30_000)
        assert [each.topic for each in answer.topics] == await admin.get(NAMESPACE)


async def test_stats_come_from_the_owner() -> None:
    """With the owner that reported them."""
    async with serving() as admin:
        owner = await admin.owner()
        answer = await admin.replica.look_up()
        owner.states.append(
            owner_pb2.TopicState(
                topic="public/default/flights",
                topic_id=answer.topic_id,
                owner_epoch=1,
                phase="serving",
                stats_json=json.dumps({"message_count": 7}),
                internal_stats_json=json.dumps({"producers": []}),
            )
        )
        common = {
            "topic": "public/default/flights",
            "topic_id": answer.topic_id,
            "phase": "serving",
            "owner": owner.incarnation,
            "owner_address": owner.address,
            "owner_epoch": 1,
        }
        assert await admin.get(f"{FLIGHTS}/stats") == {**common, "message_count": 7}
        assert await admin.get(f"{FLIGHTS}/internalStats") == {**common, "producers": []}


async def test_stats_of_a_topic_without_an_owner_are_unowned() -> None:
    """The request does not place the topic: never placed, its owner gone, or not taken over yet."""
    async with serving() as admin:
        reports = [f"{FLIGHTS}/stats", f"{FLIGHTS}/internalStats"]
        for report in reports:
            await admin.refused("GET", report, 404, "topic_not_found")
        await admin.change("PUT", FLIGHTS)
        never = [await admin.get(report) for report in reports]
        assert {(stats["phase"], stats["owner"], stats["owner_epoch"]) for stats in never} == {("unowned", None, 0)}
        owner = await admin.owner()
        await admin.replica.look_up()
        early = [await admin.get(report) for report in reports]
        assert {(one["phase"], one["owner"], one["owner_epoch"]) for one in early} == {
            ("unowned", owner.incarnation, 1)
        }
        await owner.die()
        await until(lambda: admin.replica.coordination.owners.is_lost(owner.incarnation), DEADLINE_S)
        assert {(await admin.get(report))["phase"] for report in reports} == {"unowned"}
        assert (await admin.get(FLIGHTS))["owner_epoch"] == 1


async def test_looking_at_a_topic_asks_its_owner_and_never_places_it() -> None:
    """Without an owner the answer says so, and the topic's record stays as it is. The owner that has it is asked."""
    async with serving() as admin:
        await admin.change("PUT", FLIGHTS)
        calls, topic, asked = admin.replica.coordination.topic_calls, parse_topic("flights"), list[str]()

        async def ask(owner: LiveOwner, topic_id: TopicId) -> str:
            asked.append(topic_id)
            return owner.incarnation

        owner = await admin.owner()
        with pytest.raises(Conflict, match="no owner serves topic public/default/flights now"):
            await calls.of_owner(topic, ask, placed=False)
        nothing: dict[str, object] = {"ledger_count": 0, "older": None, "ledgers": []}
        assert await admin.get(f"{FLIGHTS}/ledgers") == nothing
        for look in ("subscriptionStats", "subscription/s/ackState", "subscription/s/place?position=earliest"):
            await admin.refused("GET", f"{FLIGHTS}/{look}", 409, "conflict")
        record = await admin.world.record()
        assert (record.owner, record.owner_epoch, asked) == (None, 0, [])
        placed = await admin.replica.look_up()
        assert await calls.of_owner(topic, ask, placed=False) == owner.incarnation
        assert asked == [placed.topic_id]
        await owner.die()
        await until(lambda: admin.replica.coordination.owners.is_lost(owner.incarnation), DEADLINE_S)
        with pytest.raises(Conflict, match="no owner serves"):
            await calls.of_owner(topic, ask, placed=False)
        with pytest.raises(TopicNotFound):
            await calls.of_owner(parse_topic("unknown"), ask, placed=False)
        assert (await admin.world.record()).owner_epoch == 1


async def test_stats_from_an_unresponsive_owner_are_a_retriable_error() -> None:
    """The owner has a session and is not suspected, so the topic is not "unowned"."""
    async with serving() as admin:
        owner = await admin.world.owner()
        await admin.replica.sees(owner)
        await admin.replica.look_up()
        await owner.stop_listening()
        response = await admin.http.get(f"{FLIGHTS}/stats")
        assert response.status_code == 503
        assert response.headers["retry-after"] == "1"
        assert f"the topic's owner at {owner.address} does not answer, and only it has" in response.json()["detail"]


async def test_unload_moves_the_topic() -> None:
    """The owner closes the topic first."""
    async with serving() as admin:
        await admin.refused("PUT", f"{FLIGHTS}/unload", 404, "topic_not_found")
        await admin.change("PUT", FLIGHTS)
        await admin.change("PUT", f"{FLIGHTS}/unload")
        owners = {owner.incarnation: owner for owner in (await admin.owner(),)}
        other = await admin.world.owner(admin.replica)
        owners[other.incarnation] = other
        await admin.replica.sees(*owners.values())
        while True:
            before = await admin.replica.look_up()
            await admin.change("PUT", f"{FLIGHTS}/unload")
            if unloaded := owners[Incarnation(before.owner_incarnation)].unloaded:
                break
            # On a busy machine the owner may not be reached in time; the topic moves all the same.
        assert unloaded == [before.topic_id]
        after = await admin.get(FLIGHTS)
        assert after["owner_epoch"] == before.owner_epoch + 1
        assert after["owner"] != before.owner_incarnation


async def test_look_up_places_a_topic_and_creates_it_only_on_request() -> None:
    """The same response as over gRPC."""
    async with serving() as admin:
        owner = await admin.owner()
        await admin.refused("GET", LOOKUP, 404, "topic_not_found")
        found = await admin.get(LOOKUP, params={"create": "true"})
        assert found == {
            "cluster_id": CLUSTER_ID,
            "topic": "public/default/flights",
            "topic_id": (await admin.world.record()).topic_id,
            "partitions": 0,
            "owner_address": owner.address,
            "owner_incarnation": owner.incarnation,
            "owner_epoch": 1,
        }
        assert await admin.get(LOOKUP) == found
        await admin.refused("GET", f"{LOOKUP}?create=perhaps", 422, "invalid_argument")


async def test_stats_of_a_partitioned_topic_need_a_partition() -> None:
    """The partitioned topic itself has neither statistics nor an owner."""
    async with serving() as admin:
        await admin.world.topics.create(parse_topic("split"), partitions=2)
        split = f"{NAMESPACE}/split"
        assert (await admin.get(split))["partitions"] == 2
        await admin.refused("GET", f"{split}/stats", 422, "invalid_argument")
        await admin.refused("PUT", f"{split}/unload", 422, "invalid_argument")


async def test_owners_are_listed_with_their_state() -> None:
    """An operator must see which owners are usable."""
    async with serving() as admin:
        await admin.refused("GET", "/admin/v2/brokers/health", 503, "service_unavailable")
        assert await admin.get("/admin/v2/brokers") == []
        owner = await admin.owner()
        expected = {"incarnation": owner.incarnation, "address": owner.address, "since_ms": 0}
        assert await admin.get("/admin/v2/brokers") == [{**expected, "state": "live", "connected": True}]
        await admin.refused("GET", "/admin/v2/brokers/health", 503, "service_unavailable")
        registry = Registry(admin.replica.session)
        full = LiveStorageNode(Incarnation("2" * 32), "10.0.0.2", 6660, 0, read_only=True)
        await registry.register_storage_node(full).establish()
        await admin.refused("GET", "/admin/v2/brokers/health", 503, "service_unavailable")
        node = LiveStorageNode(Incarnation("1" * 32), "10.0.0.1", 6660, 99)
        await registry.register_storage_node(node).establish()
        healthy = {"status": "ok", "usable_owners": 1, "writable_storage_nodes": 1}
        unknown = dict.fromkeys(f"{kind}_ledgers" for kind in ("under_replicated", "unavailable", "lost", "frozen"))
        assert await admin.get("/admin/v2/brokers/health") == {**healthy, **unknown}
        progress = RepairStore(admin.replica.session)
        for status, counts in (
            ("under-replicated", (3, 0, 0, 0)),
            ("unavailable", (3, 1, 0, 0)),
            ("lost", (3, 1, 2, 0)),
        ):
            under, unavailable, lost, frozen = counts
            await progress.write(
                RepairProgress(under_replicated=under, unavailable=unavailable, lost=lost, frozen=frozen)
            )
            shown = dict(zip(unknown, counts, strict=True))
            assert await admin.get("/admin/v2/brokers/health") == {**healthy, **shown, "status": status}
        await owner.streams[admin.replica].write(owner.hello(draining=True))
        await until(lambda: not admin.replica.coordination.owners.usable, DEADLINE_S)
        assert (await admin.get("/admin/v2/brokers"))[0]["state"] == "draining"
        await owner.die()
        await until(lambda: admin.replica.coordination.owners.is_lost(owner.incarnation), DEADLINE_S)
        assert (await admin.get("/admin/v2/brokers"))[0]["state"] == "suspected"
        await admin.refused("GET", "/admin/v2/brokers/health", 503, "service_unavailable")


async def test_storage_nodes_are_listed_live_and_absent() -> None:
    """An absent node is shown as absent, not left out. A retired one never returns: it is listed only with `all`."""
    async with serving() as admin:
        registry = Registry(admin.replica.session)
        here, gone, retired = (Incarnation(digit * 32) for digit in "123")
        await registry.register_storage_node(LiveStorageNode(here, "10.0.0.1", 6660, 99)).establish()
        await registry.write_cookie(StorageCookie(gone, "10.0.0.2", 6660), version=-1)
        await registry.write_cookie(StorageCookie(retired, "10.0.0.2", 6660, retired=True), version=-1)
        writable = {"read_only": False, "read_only_set": False}
        node = {"incarnation": here, "address": "10.0.0.1:6660", "live": True, "retired": False, "free_bytes": 99}
        away = {"incarnation": gone, "address": "10.0.0.2:6660", "live": False, "retired": False, "free_bytes": None}
        former = {**away, "incarnation": retired, "retired": True}
        listed = [{**node, **writable}, {**away, **writable}]
        assert await admin.get("/admin/v2/storage-nodes") == listed
        assert await admin.get("/admin/v2/storage-nodes?all=true") == [*listed, {**former, **writable}]
        for each in (listed[0], {**former, **writable}):
            assert await admin.get(f"/admin/v2/storage-nodes/{each['incarnation']}") == each
        await admin.refused("GET", f"/admin/v2/storage-nodes/{'4' * 32}", 404, "not_found")


async def test_storage_node_is_set_read_only_and_cleared_whether_live_or_not() -> None:
    """The mark is in the node's cookie, so it also applies to an absent node, and survives a restart."""
    async with serving() as admin:
        registry = Registry(admin.replica.session)
        node = Incarnation("1" * 32)
        await registry.write_cookie(StorageCookie(node, "10.0.0.1", 6660), version=-1)
        path = f"/admin/v2/storage-nodes/{node}/read-only"
        for _ in range(2):
            await admin.change("PUT", path)
            [shown] = await admin.get("/admin/v2/storage-nodes")
            assert (shown["read_only"], shown["read_only_set"], shown["live"]) == (True, True, False)
        assert (await registry.cookies())[node].read_only
        await admin.change("DELETE", path)
        await registry.register_storage_node(LiveStorageNode(node, "10.0.0.1", 6660, 99, read_only=True)).establish()
        [shown] = await admin.get("/admin/v2/storage-nodes")
        assert (shown["read_only"], shown["read_only_set"], shown["live"]) == (True, False, True)


async def test_read_only_is_set_although_a_write_is_lost() -> None:
    """A success means that the mark is set: an operator who removes a node relies on it."""
    async with serving() as admin:
        registry, node = Registry(admin.replica.session), Incarnation("1" * 32)
        await registry.write_cookie(StorageCookie(node, "10.0.0.1", 6660), version=-1)
        for method, lose in (
            ("PUT", admin.replica.session.faults.lose_next_request),
            ("DELETE", admin.replica.session.faults.lose_next_reply),
        ):
            lose()
            await admin.change(method, f"/admin/v2/storage-nodes/{node}/read-only")
            assert (await registry.cookies())[node].read_only is (method == "PUT")


async def test_read_only_is_refused_for_an_unknown_node() -> None:
    """Nothing is written for a mistyped incarnation."""
    async with serving() as admin:
        for method in ("PUT", "DELETE"):
            await admin.refused(method, f"/admin/v2/storage-nodes/{'2' * 32}/read-only", 404, "not_found")
            await admin.refused(method, "/admin/v2/storage-nodes/nobody/read-only", 422, "invalid_argument")
