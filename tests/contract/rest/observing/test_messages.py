"""Routes that look at single messages: what they ask an owner for, how they show its answers, what they refuse."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from oncelog.core.errors import LedgerUnavailable, TopicLoading
from oncelog.core.names import parse_topic
from oncelog.rpc.codecs.finding_codec import FIND_MESSAGE, READ_STORED_MESSAGES
from oncelog.wire import finding_pb2 as pb
from tests.contract.rest.admin.admin_world import FLIGHTS, Admin, serving

pytestmark = pytest.mark.asyncio

MESSAGES = f"{FLIGHTS}/messages"
SPLIT = "/admin/v2/persistent/public/default/split"
FOUND = {
    "state": "stored", "explanation": "stored as 3:5:0, index 7", "message_id": "3:5:0", "index": 7,
    "append_time_ms": 5, "deduplication": True, "producer_id": 1, "mode": "monotonic", "accepted": 9, "persisted": 9,
    "recent_floor": -1,
    "refusals": {
        "counts": {"duplicate": 2}, "possible_counts": {}, "first_ms": 6, "last_ms": 7, "last_from": "10.0.0.1:5",
        "since_ms": 1, "complete": True,
    },
}  # fmt: skip


class Owner:
    """A topic owner that finds one message, and gives prepared pages."""

    def __init__(self, admin: Admin) -> None:
        self.admin = admin
        self.asked: list[pb.FindMessageRequest] = []
        self.read_asked: list[pb.StoredMessagesRequest] = []
        self.found: dict[str, Any] = dict(FOUND)
        self.page = pb.StoredMessagesAnswer()
        #: {index where a page begins: the page}; others are `page`
        self.pages: dict[int, pb.StoredMessagesAnswer] = {}
        self.unavailable: set[str] = set()
        self.moving = 0

    async def find(self, request: pb.FindMessageRequest) -> pb.FindMessageAnswer:
        self.asked.append(request)
        if self.moving:
            self.moving -= 1
            raise TopicLoading("the topic is moving to another owner: try again")
        if request.topic in self.unavailable:
            raise LedgerUnavailable("no storage node gives entry 3:5 now")
        return pb.FindMessageAnswer(found_json=json.dumps(self.found))

    async def read(self, request: pb.StoredMessagesRequest) -> pb.StoredMessagesAnswer:
        self.read_asked.append(request)
        return self.pages.get(request.start.index, self.page)


@pytest_asyncio.fixture
async def owner() -> AsyncIterator[Owner]:
    async with serving() as admin:
        fake, owner = await admin.owner(), Owner(admin)
        fake.server.unary(FIND_MESSAGE, owner.find)
        fake.server.unary(READ_STORED_MESSAGES, owner.read)
        await admin.change("PUT", FLIGHTS)
        await admin.world.topics.create(parse_topic("split"), partitions=3)
        yield owner


async def placed(owner: Owner, topic: str = "flights") -> None:
    """The topic has an owner."""
    lookup = f"/lookup/v2/topic/persistent/public/default/{topic}"
    await owner.admin.get(lookup, params={"create": True})


async def test_message_is_found_at_the_owner_of_its_topic(owner: Owner) -> None:
    """A topic that moves is followed. A name may have any printable characters."""
    await placed(owner)
    owner.moving = 1
    query = {"producer_name": "<b>till</b> 1&x", "sequence_id": 2**63 - 1}
    assert await owner.admin.get(f"{MESSAGES}/find", params=query) == [{"topic": "public/default/flights", **FOUND}]
    assert len(owner.asked) == 2
    assert (owner.asked[-1].producer_name, owner.asked[-1].sequence_id) == ("<b>till</b> 1&x", 2**63 - 1)


async def test_each_partition_is_asked_and_one_that_does_not_answer_is_unknown(owner: Owner) -> None:
    """A partition that was never used has no messages, and is left out."""
    for number in (0, 2):
        await placed(owner, f"split-partition-{number}")
    owner.unavailable = {"public/default/split-partition-2"}
    found = await owner.admin.get(f"{SPLIT}/messages/find", params={"producer_name": "p", "sequence_id": 0})
    assert [(each["topic"][-1], each["state"], each["index"]) for each in found] == [
        ("0", "stored", 7), ("2", "unknown", None),
    ]  # fmt: skip
    assert found[1]["explanation"] == "unknown: no storage node gives entry 3:5 now"


async def test_look_places_no_topic(owner: Owner) -> None:
    """A takeover is work for the whole cluster, and whoever looks has not asked for it."""
    for path, query in ((f"{MESSAGES}/find", {"producer_name": "p", "sequence_id": "0"}), (MESSAGES, {})):
        problem = await owner.admin.refused("GET", path, 409, "conflict", params=query)
        assert "no owner serves topic" in problem["detail"]
    assert (owner.asked, owner.read_asked, (await owner.admin.world.record()).owner) == ([], [], None)


#: (path, query, the field that the error names)
BAD: list[tuple[str, dict[str, str], str]] = [
    (f"{MESSAGES}/find", {"producer_name": "p"}, "sequence_id"),
    (f"{MESSAGES}/find", {"sequence_id": "1"}, "producer_name"),
    (f"{MESSAGES}/find", {"producer_name": "p", "sequence_id": "-1"}, "sequence_id"),
    (f"{MESSAGES}/find", {"producer_name": "p", "sequence_id": str(2**63)}, "sequence_id"),
    (f"{MESSAGES}/find", {"producer_name": "p", "sequence_id": "one"}, "sequence_id"),
    (MESSAGES, {"index": "1", "time_ms": "1"}, "index"),
    (MESSAGES, {"index": "-1"}, "index"),
    (MESSAGES, {"index": str(2**62)}, "index"),
    (MESSAGES, {"message_id": "latest"}, "message_id"),
    (MESSAGES, {"message_id": f"{10**19 - 1}:1"}, "message_id"),
    (MESSAGES, {"limit": "0"}, "limit"),
    (MESSAGES, {"limit": "201"}, "limit"),
    (MESSAGES, {"value_bytes_max": str(1 << 21)}, "value_bytes_max"),
    (f"{SPLIT}/messages", {}, "topic"),
    (MESSAGES, {"filter": "order = 1"}, "filter"),
    (MESSAGES, {"filter": ""}, "filter"),
    (MESSAGES, {"text": ""}, "text"),
    (MESSAGES, {"text": "x" * 1025}, "text"),
    (MESSAGES, {"producer_name": ""}, "producer_name"),
    (MESSAGES, {"backwards": "perhaps"}, "backwards"),
]


async def test_bad_question_is_refused_with_the_name_of_its_field(owner: Owner) -> None:
    await placed(owner)
    for path, query, field in BAD:
        problem = await owner.admin.refused("GET", path, 422, "invalid_argument", params=query)
        assert problem["field"] == field, query
    assert (owner.asked, owner.read_asked) == ([], [])


async def test_illegal_producer_names_are_refused(owner: Owner) -> None:
    for name in ("", "a\nb", "x" * 300):
        query = {"producer_name": name, "sequence_id": 1}
        await owner.admin.refused("GET", f"{MESSAGES}/find", 412, "invalid_name", params=query)


def stored(index: int, **fields: Any) -> pb.StoredMessage:
    return pb.StoredMessage(
        **{"index": index, "ledger_id": 3, "entry_id": 5, "batch_index": index, "sequence_id": 10 + index} | fields
    )


async def test_page_shows_text_bytes_and_what_was_cut(owner: Owner) -> None:
    """Markup is data. A text that was cut inside a character stays a text; bytes that are no text are in base64."""
    await placed(owner)
    markup = "<img src=x onerror=alert(1)>"
    owner.page = pb.StoredMessagesAnswer(
        messages=[
            stored(0, value=markup.encode(), value_bytes=28, key=markup.encode(), properties={markup: markup}),
            stored(1, value="aé".encode()[:2], value_bytes=3, truncated=True, producer_name="till"),
            stored(2, value="aé".encode()[:2], value_bytes=2, truncated=True, key=b"\xff"),
            stored(3, value_bytes=9_000_000, in_chunks=True),
            stored(4), stored(5, null_value=True), stored(6, encrypted=True),
        ],
        first_index=0, begin_index=0, next_index=7, end_index=40,
    )  # fmt: skip
    page = await owner.admin.get(MESSAGES, params={"index": 0, "limit": 7})
    one, two, three, four, *special = page["messages"]
    assert [(each["value"], each["null_value"], each["encrypted"]) for each in special] == [
        ("", False, False), (None, True, False), (None, False, True),
    ]  # fmt: skip
    assert (one["value"], one["key"], one["properties"]) == (markup, markup, {markup: markup})
    assert (one["message_id"], one["producer_name"], one["truncated"]) == ("3:5:0", None, False)
    assert (two["value"], two["value_base64"], two["truncated"], two["producer_name"]) == ("a", None, True, "till")
    assert (three["value"], three["value_base64"], three["key_base64"]) == (None, "YcM=", "/w==")
    assert (four["value"], four["value_base64"], four["value_bytes"], four["in_chunks"]) == (
        None,
        None,
        9_000_000,
        True,
    )
    assert (page["previous_index"], page["next_index"], page["unreadable"]) == (None, 7, None)


async def test_page_tells_an_expired_producer_from_none(owner: Owner) -> None:
    """Without an id the message was stored without deduplication; with an id alone the producer's name is not known any
    more."""
    await placed(owner)
    owner.page = pb.StoredMessagesAnswer(
        messages=[stored(0), stored(1, producer_id=9), stored(2, producer_id=9, producer_name="till")],
        first_index=0, begin_index=0, next_index=3, end_index=3,
    )  # fmt: skip
    messages = (await owner.admin.get(MESSAGES, params={"index": 0}))["messages"]
    told = [(each["producer_id"], each["producer_name"]) for each in messages]
    assert told == [(None, None), (9, None), (9, "till")]


async def test_places_and_limits_reach_the_owner(owner: Owner) -> None:
    """Without a place, the newest messages. `previous_index` leads back to the oldest one that is kept."""
    await placed(owner)
    owner.page = pb.StoredMessagesAnswer(first_index=7, begin_index=30, next_index=40, end_index=40)
    for query, previous in (({}, 7), ({"message_id": "3:5:2", "limit": "10"}, 20), ({"time_ms": "5"}, 7)):
        page = await owner.admin.get(MESSAGES, params=query)
        assert (page["previous_index"], page["next_index"], page["messages"]) == (previous, None, [])
    newest, by_id, by_time = owner.read_asked
    assert (newest.start.WhichOneof("start"), newest.back, newest.limit, newest.with_content) == (
        "latest",
        50,
        50,
        True,
    )
    assert (by_id.start.message_id.entry_id, by_id.start.message_id.batch_index, by_id.back) == (5, 2, 0)
    assert (by_id.start.message_id.inclusive, by_time.start.time_ms) == (True, 5)


async def test_search_reaches_the_owner_and_says_where_it_looked(owner: Owner) -> None:
    """From the oldest message on, or backwards from the newest; the place to go on with is that of its direction."""
    await placed(owner)
    owner.page = pb.StoredMessagesAnswer(first_index=7, begin_index=30, next_index=40, end_index=90)
    wanted = {"key": "", "text": "ü", "filter": ".order == 17", "producer_name": "till"}
    for query, following in (
        ({}, (7, 40)), ({"backwards": "true"}, (30, 40)), ({"index": "50", "backwards": "true"}, (30, 40)),
    ):  # fmt: skip
        page = await owner.admin.get(MESSAGES, params={**wanted, **query})
        assert (page["looked_from"], page["looked_to"]) == (30, 40)
        assert (page["previous_index"], page["next_index"]) == following
    forwards, newest, placed_at = owner.read_asked
    assert [each.start.WhichOneof("start") for each in owner.read_asked] == ["earliest", "latest", "index"]
    assert [(each.backwards, each.back) for each in owner.read_asked] == [(False, 0), (True, 0), (True, 0)]
    assert placed_at.start.index == 50
    assert newest.filter == forwards.filter == pb.MessageFilter(
        key=b"", text="ü".encode(), condition=".order == 17", producer_name="till"
    )  # fmt: skip
    await owner.admin.get(MESSAGES)
    assert not owner.read_asked[-1].HasField("filter")


async def test_hidden_values_are_not_asked_for(owner: Owner) -> None:
    """And a value that is not shown is not an empty one."""
    await placed(owner)
    owner.page = pb.StoredMessagesAnswer(
        messages=[stored(0, value_bytes=5)], next_index=1, end_index=9,
        unreadable=pb.UnreadableMessages(first_index=1, count=2, reason="no storage node gives them"),
    )  # fmt: skip
    page = await owner.admin.get(MESSAGES, params={"values": False, "value_bytes_max": 0})
    [request] = owner.read_asked
    assert (request.with_content, request.value_bytes_max) == (False, 0)
    [shown] = page["messages"]
    assert (shown["value"], shown["value_base64"], shown["value_bytes"]) == (None, None, 5)
    assert page["unreadable"] == {"first_index": 1, "count": 2, "reason": "no storage node gives them"}
