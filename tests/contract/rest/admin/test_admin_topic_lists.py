"""Topics by state over REST, from all owners: the order, the pages, and owners that do not answer."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from oncelog.wire.observation_pb2 import ListedTopic
from tests.cluster.metadata.metadata_world import FakeOwner
from tests.contract.rest.admin.admin_world import Admin, serving

pytestmark = pytest.mark.asyncio
LIST = "/admin/v2/topics"


@pytest_asyncio.fixture
async def admin() -> AsyncIterator[Admin]:
    async with serving() as served:
        yield served


async def several(admin: Admin, count: int) -> list[FakeOwner]:
    owners = [await admin.world.owner(admin.replica) for _ in range(count)]
    await admin.replica.sees(*owners)
    return owners


def topic(number: int, rank: int, epoch: int = 1, **summary: Any) -> ListedTopic:
    shown = {"phase": "serving", "states": ["backlog"], **summary}
    name = f"public/default/t{number:04}"
    return ListedTopic(
        topic=name, topic_id=f"{number:032x}", owner_epoch=epoch, rank=rank, summary_json=json.dumps(shown)
    )


async def test_worst_topics_of_all_owners_come_first(admin: Admin) -> None:
    """With their owner, and since when they have been in their state."""
    owners = await several(admin, 2)
    owners[0].listed = [topic(1, -50), topic(3, -10, held_since_ms=70, blocked_since_ms=60)]
    owners[1].listed = [topic(4, -90, waiting_since_ms=80), topic(2, -50)]
    page = await admin.get(LIST, params={"state": "backlog", "limit": 3})
    assert [row["topic"][-4:] for row in page["topics"]] == ["0004", "0001", "0002"]
    assert (page["total"], page["next_after"], page["silent_owners"]) == (4, "-50:public/default/t0002", [])
    first = page["topics"][0]
    assert (first["owner"], first["owner_address"]) == (owners[1].incarnation, owners[1].address)
    assert (first["owner_epoch"], first["since_ms"], first["held_by"]) == (1, 80, None)
    rest = await admin.get(LIST, params={"state": "backlog", "limit": 3, "after": page["next_after"]})
    assert [(row["topic"][-4:], row["since_ms"]) for row in rest["topics"]] == [("0003", 60)]
    assert rest["next_after"] is None


async def test_five_thousand_topics_are_listed_in_pages_with_one_call_to_each_owner_for_a_page(admin: Admin) -> None:
    """Each topic once, also in pages of a size that does not divide their number."""
    owners = await several(admin, 3)
    for number, owner in enumerate(owners):
        owner.listed = [topic(each, each // 7) for each in range(number, 5_000, 3)]
    found, pages, after = [], 0, None
    while True:
        query = {"limit": 700} if after is None else {"limit": 700, "after": after}
        page = await admin.get(LIST, params=query)
        found += [row["topic"] for row in page["topics"]]
        pages += 1
        if (after := page["next_after"]) is None:
            break
    assert found == [f"public/default/t{number:04}" for number in range(5_000)]
    assert [len(owner.lists_asked) for owner in owners] == [pages] * 3 == [8] * 3
    assert {asked.limit for owner in owners for asked in owner.lists_asked} == {701}


async def test_owner_that_does_not_answer_is_named_and_the_rest_is_shown(admin: Admin) -> None:
    """An operator looks at this list when something is wrong. A dead owner keeps its session for some seconds."""
    silent, dead, sound = await several(admin, 3)
    silent.listed = None
    sound.listed = [topic(1, 0)]
    await dead.stop_listening()
    page = await admin.get(LIST)
    assert [row["owner"] for row in page["topics"]] == [sound.incarnation]
    named = {one["incarnation"]: one for one in page["silent_owners"]}
    assert named.keys() == {silent.incarnation, dead.incarnation}
    assert named[dead.incarnation]["address"] == dead.address
    assert "does not answer in time" in named[silent.incarnation]["reason"]


async def test_topic_that_moves_is_listed_once_by_its_later_owner(admin: Admin) -> None:
    """The former one may not know of it yet."""
    former, later = await several(admin, 2)
    former.listed, later.listed = [topic(1, -5, epoch=3)], [topic(1, -2, epoch=4)]
    (row,) = (await admin.get(LIST))["topics"]
    assert (row["owner"], row["owner_epoch"]) == (later.incarnation, 4)


async def test_owners_get_namespace_filter_and_order(admin: Admin) -> None:
    """They sort; the rank of a topic is what they sort by. Wrong parameters are refused by name, before an owner is
    asked."""
    owner = await admin.owner()
    owner.listed = [topic(2, -90), topic(1, -50)]
    page = await admin.get(f"{LIST}/public/default", params={"name": "T0", "sort": "bytes", "state": "held"})
    assert [row["topic"][-1] for row in page["topics"]] == ["2", "1"]
    (asked,) = owner.lists_asked
    assert (asked.name, asked.sort, asked.state, asked.namespace, asked.folded) == (
        "T0", "bytes", "held", "public/default", False,
    )  # fmt: skip
    for query, field in (
        ({"state": "stuck"}, "state"), ({"limit": 1_001}, "limit"), ({"limit": 0}, "limit"),
        ({"after": "x"}, "after"), ({"after": "5:"}, "after"), ({"after": f"{'9' * 40}:t"}, "after"),
        ({"sort": "colour"}, "sort"), ({"partitions": "half"}, "partitions"),
        ({"partitions": "folded", "sort": "bytes"}, "sort"), ({"name": "x" * 1_001}, "name"),
        ({"state": "grown"}, "state"),
    ):  # fmt: skip
        problem = await admin.refused("GET", LIST, 422, "invalid_argument", params=query)
        assert problem["field"] == field
    assert len(owner.lists_asked) == 1


def partitions(name: str, count: int, messages: int | None, **summary: Any) -> ListedTopic:
    """What one owner says of its partitions of a topic."""
    shown = {"phase": "serving", "states": [], "partitions": count, "message_count": messages, **summary}
    return ListedTopic(topic=f"public/default/{name}", summary_json=json.dumps(shown))


async def test_partitions_of_several_owners_are_one_row(admin: Admin) -> None:
    """With the sum of what the owners say. A topic whose partitions have one owner shows it."""
    owners = await several(admin, 2)
    owners[0].listed = [partitions("a", 1, 5), partitions("b", 3, 7), topic(1, 0)]
    owners[1].listed = [partitions("a", 2, 10), partitions("c", 1, None)]
    page = await admin.get(LIST, params={"partitions": "folded", "limit": 3})
    assert [(row["topic"][15:], row["partitions"], row["message_count"]) for row in page["topics"]] == [
        ("a", 3, 15), ("b", 3, 7), ("c", 1, None),
    ]  # fmt: skip
    assert [row["owner"] for row in page["topics"]] == [None, owners[0].incarnation, owners[1].incarnation]
    assert [row["topic_id"] for row in page["topics"]] == [None] * 3
    rest = await admin.get(LIST, params={"partitions": "folded", "limit": 3, "after": page["next_after"]})
    assert [(row["topic"][15:], row["partitions"], row["owner"]) for row in rest["topics"]] == [
        ("t0001", 0, owners[0].incarnation)
    ]
    assert all(asked.folded for owner in owners for asked in owner.lists_asked)


async def test_older_owner_that_would_ignore_the_order_is_named_as_silent(admin: Admin) -> None:
    """Its topics would stand at wrong places, and those that a filter leaves out would be listed."""
    old, new = await several(admin, 2)
    old.list_version, old.listed, new.listed = 0, [topic(1, 0)], [topic(2, 0)]
    for query in ({"name": "t"}, {"sort": "name"}, {"partitions": "folded"}):
        page = await admin.get(LIST, params=query)
        assert [row["topic"][-1] for row in page["topics"]] == ["2"]
        assert [one["incarnation"] for one in page["silent_owners"]] == [old.incarnation]
        assert "older version" in page["silent_owners"][0]["reason"]
    assert len((await admin.get(LIST))["topics"]) == 2
