"""The lags of subscriptions over REST, from all owners: the order, the pages, and owners that do not answer."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from oncelog.wire.observation_pb2 import ListedLag
from tests.cluster.until import until
from tests.contract.rest.admin.admin_world import Admin, serving

pytestmark = pytest.mark.asyncio
LIST = "/admin/v2/subscriptions"
DEADLINE_S = 30.0


@pytest_asyncio.fixture
async def admin() -> AsyncIterator[Admin]:
    async with serving() as served:
        yield served


def lag(topic: str, subscription: str, backlog: int, *, oldest_ms: int = 1_000, **summary: Any) -> ListedLag:
    """One subscription, in the order of the backlog."""
    shown = {
        "name": subscription, "type": "shared", "msg_backlog": backlog, "backlog_size": 10 * backlog,
        "oldest_unacked_ms": oldest_ms, "unacked_messages": 0, "mark_delete": 0, "consumer_count": 0,
        "backlog_change_10m": 2, **summary,
    }  # fmt: skip
    name = f"public/default/{topic}"
    return ListedLag(
        topic=name, topic_id=name.encode().hex()[-32:], owner_epoch=1, subscription=subscription, rank=-backlog,
        summary_json=json.dumps(shown),
    )  # fmt: skip


async def test_largest_backlogs_of_all_owners_come_first(admin: Admin) -> None:
    """With their owner, in pages, and with the sums of all of them."""
    owners = [await admin.world.owner(admin.replica) for _ in range(2)]
    await admin.replica.sees(*owners)
    owners[0].lags = [lag("b", "audit", 50), lag("b", "billing", 5)]
    owners[1].lags = [lag("a", "audit", 16_200, oldest_ms=400)]
    page = await admin.get(LIST, params={"state": "no_consumer", "limit": 2})
    rows = [(row["topic"], row["name"], row["owner_address"]) for row in page["subscriptions"]]
    assert rows == [
        ("public/default/a", "audit", owners[1].address), ("public/default/b", "audit", owners[0].address),
    ]  # fmt: skip
    assert (page["total"], page["backlog_messages"], page["oldest_unacked_ms"]) == (3, 16_255, 400)
    assert page["subscriptions"][0]["backlog_change_10m"] == 2
    page = await admin.get(LIST, params={"limit": 2, "after": page["next_after"]})
    assert ([row["name"] for row in page["subscriptions"]], page["next_after"]) == (["billing"], None)
    asked = owners[0].lags_asked
    assert [(each.state, each.sort, each.limit) for each in asked] == [
        ("no_consumer", "backlog", 3),
        ("", "backlog", 3),
    ]


async def test_list_of_a_namespace_asks_for_that(admin: Admin) -> None:
    """And wrong parameters are refused by name, before an owner is asked."""
    owner = await admin.owner()
    await admin.get(f"{LIST}/public/orders", params={"sort": "age", "topic": "x", "subscription": "y"})
    assert [(one.namespace, one.sort, one.topic, one.subscription) for one in owner.lags_asked] == [
        ("public/orders", "age", "x", "y")
    ]
    for query, field in (({"state": "stuck"}, "state"), ({"limit": 0}, "limit"), ({"sort": "size"}, "sort")):
        problem = await admin.refused("GET", LIST, 422, "invalid_argument", params=query)
        assert problem["field"] == field
    assert len(owner.lags_asked) == 1


async def test_owner_that_does_not_answer_is_named_and_the_rest_is_shown(admin: Admin) -> None:
    """What it has is missing, also in the sums."""
    silent, sound = [await admin.world.owner(admin.replica) for _ in range(2)]
    await admin.replica.sees(silent, sound)
    silent.listed = None
    sound.lags = [lag("a", "audit", 7)]
    page = await admin.get(LIST)
    assert [one["incarnation"] for one in page["silent_owners"]] == [silent.incarnation]
    assert (page["total"], page["backlog_messages"]) == (1, 7)


async def test_topics_that_are_not_served_yet_are_counted_over_all_owners(admin: Admin) -> None:
    """Their owners know nothing of their subscriptions. The first ones by name are named."""
    owners = [await admin.world.owner(admin.replica) for _ in range(2)]
    await admin.replica.sees(*owners)
    owners[0].waiting = [f"public/default/t{number}" for number in (1, 3, 5)]
    owners[1].waiting = [f"public/default/t{number}" for number in (0, 2, 4, *range(60, 72))]
    names = [f"public/default/t{number}" for number in (0, 1, 2, 3, 4, 5, 60, 61, 62, 63)]
    page = await admin.get(LIST)
    assert (page["waiting"], page["total"]) == ({"topics": 18, "first": names}, 0)


async def test_topics_without_an_owner_are_counted_and_the_first_are_named(admin: Admin) -> None:
    """Their lags are missing, so a short list is no sign of health. A topic that was never used is left out, and one
    that a client uses again counts no more. The text and the namespace of the request choose here, too."""
    owner = await admin.owner()
    names = [f"public/default/t{number:02}" for number in range(12)]
    for name in (*names, "public/default/never"):
        await admin.change("PUT", f"/admin/v2/persistent/{name}")
    for name in names:
        await admin.get(f"/lookup/v2/topic/persistent/{name}")
    assert (await admin.get(LIST))["without_owner"] == {"topics": 0, "first": []}
    await owner.session.close()
    await admin.replica.sees()

    async def found(path: str = LIST, **query: str) -> Any:
        return (await admin.get(path, params=query))["without_owner"]

    async def all_lost() -> bool:
        return bool(await found() == {"topics": 12, "first": names[:10]})

    await until(all_lost, DEADLINE_S, waiting_for="topics without an owner")
    assert await found(topic="T1") == {"topics": 2, "first": names[10:]}
    assert await found(f"{LIST}/public/orders") == {"topics": 0, "first": []}
    assert await found("/admin/v2/topics", name="t03") == {"topics": 1, "first": names[3:4]}
    await admin.owner()
    await admin.get(f"/lookup/v2/topic/persistent/{names[0]}")

    async def one_is_back() -> bool:
        return bool((await found())["topics"] == 11)

    await until(one_is_back, DEADLINE_S, waiting_for="the topic that is used again")
