"""Tenants, partitioned topics and deletions over REST."""

import pytest

from oncelog.core.names import KAFKA_GROUPS, PARTITIONS_MAX, parse_topic
from oncelog.metadata_store.records.deletion_store import DeletionStore
from oncelog.metadata_store.session import paths
from oncelog.wire import owner_pb2
from tests.contract.rest.admin.admin_world import FLIGHTS, serving

pytestmark = pytest.mark.asyncio

NAMESPACE = "/admin/v2/persistent/public/default"
ACME = "/admin/v2/tenants/acme"
SPLIT = f"{NAMESPACE}/split"


async def test_tenant_is_shown_and_deleted_if_empty() -> None:
    """A namespace needs its tenant; the tenant public always exists."""
    async with serving() as admin:
        await admin.refused("GET", ACME, 404, "not_found")
        await admin.refused("DELETE", ACME, 404, "not_found")
        await admin.refused("PUT", "/admin/v2/namespaces/acme/orders", 404, "not_found")
        await admin.change("PUT", ACME)
        await admin.change("PUT", "/admin/v2/namespaces/acme/orders")
        assert await admin.get(ACME) == {"tenant": "acme", "namespaces": ["acme/orders"]}
        problem = await admin.refused("DELETE", ACME, 409, "conflict")
        assert "delete its namespaces first" in problem["detail"]
        await admin.change("DELETE", "/admin/v2/namespaces/acme/orders")
        await admin.change("DELETE", ACME)
        assert await admin.get("/admin/v2/tenants") == ["public"]
        await admin.refused("DELETE", "/admin/v2/tenants/public", 409, "conflict")
        await admin.change("PUT", ACME)


async def test_recreated_topic_is_a_different_topic() -> None:
    """It has the same name, another id and none of the old policies, and the old owner is instructed to close the
    deleted topic."""
    async with serving() as admin:
        await admin.refused("DELETE", FLIGHTS, 404, "topic_not_found")
        await admin.change("PUT", FLIGHTS)
        await admin.change("POST", f"{FLIGHTS}/deduplicationEnabled", json=False)
        owner = await admin.owner()
        old = await admin.replica.look_up()
        owner.states.append(owner_pb2.TopicState(topic="public/default/flights", topic_id=old.topic_id))
        owner.lets_go = True
        await admin.change("DELETE", FLIGHTS)
        assert owner.states == []
        assert await admin.get(NAMESPACE) == []
        for path in (FLIGHTS, f"{FLIGHTS}/stats", f"{FLIGHTS}/partitions", f"{FLIGHTS}/deduplicationEnabled"):
            await admin.refused("GET", path, 404, "topic_not_found")
        await admin.refused("DELETE", FLIGHTS, 404, "topic_not_found")
        await admin.change("PUT", FLIGHTS)
        new = await admin.get(FLIGHTS)
        assert new["topic_id"] != old.topic_id
        assert (new["owner_epoch"], new["ledger_count"]) == (0, 0)
        assert await admin.get(f"{FLIGHTS}/deduplicationEnabled") is None


async def test_namespace_is_deleted_after_its_topics() -> None:
    """Deleted topics must not block the deletion of the namespace."""
    async with serving() as admin:
        orders = "/admin/v2/namespaces/public/orders"
        await admin.change("PUT", orders)
        for topic in ("new", "split/partitions", KAFKA_GROUPS):
            path = f"/admin/v2/persistent/public/orders/{topic}"
            await admin.change("PUT", path, **({"json": 2} if "/" in topic else {}))
            problem = await admin.refused("DELETE", orders, 409, "conflict")
            assert topic.partition("/")[0] in problem["detail"]  # lists leave out topics of the doors
            await admin.change("DELETE", path)
        await admin.change("DELETE", orders)
        await admin.refused("GET", orders, 404, "namespace_not_found")


async def test_partitioned_topic_is_created_shown_listed_and_deleted() -> None:
    """Its partitions are created on first use, and deleted with it."""
    async with serving() as admin:
        await admin.owner()
        await admin.change("PUT", FLIGHTS)
        assert await admin.get(f"{FLIGHTS}/partitions") == {"partitions": 0}
        await admin.refused("GET", f"{SPLIT}/partitions", 404, "topic_not_found")
        await admin.change("PUT", f"{SPLIT}/partitions", json=3)
        assert await admin.get(f"{SPLIT}/partitions") == {"partitions": 3}
        assert await admin.get(f"{NAMESPACE}/partitioned") == ["public/default/split"]
        for again in (f"{SPLIT}/partitions", f"{FLIGHTS}/partitions"):
            await admin.refused("PUT", again, 409, "conflict", json=3)
        await admin.refused("PUT", SPLIT, 409, "conflict")
        assert (await admin.replica.look_up("split")).partitions == 3
        assert (await admin.replica.look_up("split-partition-2")).owner_address
        assert await admin.get(NAMESPACE) == [
            f"public/default/{name}" for name in ("flights", "split", "split-partition-2")
        ]
        await admin.change("DELETE", f"{SPLIT}/partitions")
        assert await admin.get(NAMESPACE) == ["public/default/flights"]
        assert await admin.get(f"{NAMESPACE}/partitioned") == []
        for part in (0, 2):
            await admin.refused("GET", f"{NAMESPACE}/split-partition-{part}", 404, "topic_not_found")
        await admin.change("PUT", SPLIT)


async def test_topic_and_partitioned_topic_need_their_own_deletion_request() -> None:
    """A single deleted partition would be recreated empty, and deleting all partitions must be intended."""
    async with serving() as admin:
        await admin.owner()
        await admin.change("PUT", FLIGHTS)
        await admin.change("PUT", f"{SPLIT}/partitions", json=2)
        await admin.replica.look_up("split-partition-1")
        for path in (SPLIT, f"{FLIGHTS}/partitions", f"{SPLIT}-partition-1", f"{SPLIT}-partition-0"):
            await admin.refused("DELETE", path, 409, "conflict")
        assert len(await admin.get(NAMESPACE)) == 3
        await admin.refused("DELETE", f"{SPLIT}-partition-2", 404, "topic_not_found")
        await admin.refused("DELETE", f"{NAMESPACE}/none/partitions", 404, "topic_not_found")
        await admin.refused("DELETE", "/admin/v2/persistent/public/none/x", 404, "topic_not_found")


async def test_wrong_number_of_partitions_is_refused() -> None:
    """An invalid count creates nothing, and neither does a topic that cannot be partitioned."""
    async with serving() as admin:
        for count in (0, -1, PARTITIONS_MAX + 1, 1.5, True, "3", None, [3], {"partitions": 3}):
            await admin.refused("PUT", f"{SPLIT}/partitions", 422, "invalid_argument", json=count)
        await admin.refused("PUT", f"{NAMESPACE}/x-partition-1/partitions", 412, "invalid_name", json=2)
        await admin.refused("PUT", f"{NAMESPACE}/a%20b/partitions", 412, "invalid_name", json=2)
        await admin.refused("PUT", "/admin/v2/persistent/public/none/x/partitions", 404, "namespace_not_found", json=2)
        assert await admin.get(NAMESPACE) == []


async def test_name_is_reserved_while_partitions_are_being_deleted() -> None:
    """A creation waits for the end of the deletion, or gets a retriable error."""
    async with serving() as admin:
        await admin.change("PUT", f"{SPLIT}/partitions", json=2)
        deletions = DeletionStore(admin.replica.session)
        begun = await deletions.begin(parse_topic("split"))
        await admin.refused("GET", SPLIT, 404, "topic_not_found")
        await admin.refused("DELETE", "/admin/v2/namespaces/public/default", 409, "conflict")
        admin.replica.coordination.deletions.wait_ms = 0
        await admin.refused("PUT", f"{SPLIT}/partitions", 503, "service_unavailable", json=2)
        admin.replica.coordination.deletions.wait_ms = 20_000
        await admin.change("PUT", f"{SPLIT}/partitions", json=4)
        assert await deletions.read(begun.topic_id) is None


async def test_corrupt_record_is_reported_with_its_own_code() -> None:
    """The topic is not changed."""
    async with serving() as admin:
        await admin.change("PUT", FLIGHTS)
        topic_id = (await admin.get(FLIGHTS))["topic_id"]
        await admin.replica.session.write(paths.topic(topic_id), b"{", version=0)
        await admin.refused("DELETE", FLIGHTS, 500, "corrupt_entry")
        assert await admin.get(NAMESPACE) == ["public/default/flights"]
