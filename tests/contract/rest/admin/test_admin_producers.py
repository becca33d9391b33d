"""Routes of producers: pages over partitions, filters, names and ids, and what they refuse."""

import json
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from oncelog.core.access import NO_ROLE
from oncelog.core.errors import Conflict, DeadlineExceeded, NotFound, NotOwner, OncelogError
from oncelog.core.names import parse_topic
from oncelog.rpc.codecs.producer_codec import DESCRIBE_PRODUCER, LIST_PRODUCERS, REMOVE_PRODUCER
from oncelog.wire import producers_pb2 as pb
from tests.contract.rest.admin.admin_world import FLIGHTS, Admin, serving

pytestmark = pytest.mark.asyncio

SPLIT = "/admin/v2/persistent/public/default/split"
TOPIC, PARTS = "public/default/flights", [f"public/default/split-partition-{number}" for number in range(3)]


def row(name: str, pid: int) -> dict[str, Any]:
    return {
        "name": name, "producer_id": pid, "generation": 1, "role": None, "mode": "monotonic", "connected": False,
        "connected_from": None, "accepted": -1, "persisted": -1, "last_activity_ms": 5, "idle_ms": 5,
        "expires_ms": None, "duplicates": 0, "stale": 0, "unverified": 0, "recent_batches_count": 0,
        "recent_floor": -1, "memory_bytes": 80,
    }  # fmt: skip


class Owner:
    """A topic owner: its pages have at most `page_max` producers."""

    def __init__(self, admin: Admin) -> None:
        self.admin = admin
        #: {topic: names by producer id}
        self.known: dict[str, dict[int, str]] = defaultdict(dict)
        self.page_max = 1_000
        self.asked: list[pb.ListProducersRequest] = []
        self.removed: list[pb.RemoveProducerRequest] = []
        #: instead of an answer: (what is raised, whether it was done before)
        self.planned: list[tuple[OncelogError, bool]] = []

    async def list(self, request: pb.ListProducersRequest) -> pb.ListProducersAnswer:
        self.asked.append(request)
        known = self.known[request.topic]
        behind = [pid for pid in sorted(known) if pid > request.after]
        page = behind[: min(request.limit, self.page_max)]
        rows = [json.dumps(row(known[pid], pid)) for pid in page if known[pid].startswith(request.name_prefix)]
        return pb.ListProducersAnswer(producers_json=rows, next_after=page[-1] if len(behind) > len(page) else 0)

    async def describe(self, request: pb.DescribeProducerRequest) -> pb.DescribeProducerAnswer:
        known = self.known[request.topic]
        ids = {name: pid for pid, name in known.items()}
        pid = ids.get(request.name) if request.HasField("name") else request.producer_id
        if pid is None or pid not in known:
            raise NotFound("the topic has no such producer")
        generation = {
            "generation": 1, "at_ms": 5, "role": None, "from": "10.0.0.1:5", "leased": False,
            "fenced_generation": None,
        }  # fmt: skip
        return pb.DescribeProducerAnswer(
            producer_json=json.dumps({**row(known[pid], pid), "generations": [generation]})
        )

    async def remove(self, request: pb.RemoveProducerRequest) -> pb.RemoveProducerAnswer:
        self.removed.append(request)
        error, done = self.planned.pop(0) if self.planned else (None, True)
        if error is None and request.producer_id not in self.known[request.topic]:
            raise NotFound("the topic has no such producer")
        if done:
            self.known[request.topic].pop(request.producer_id)
        if error is not None:
            raise error
        return pb.RemoveProducerAnswer()


@pytest_asyncio.fixture
async def owner() -> AsyncIterator[Owner]:
    async with serving() as admin:
        fake, owner = await admin.owner(), Owner(admin)
        fake.server.unary(LIST_PRODUCERS, owner.list)
        fake.server.unary(DESCRIBE_PRODUCER, owner.describe)
        fake.server.unary(REMOVE_PRODUCER, owner.remove)
        await admin.change("PUT", FLIGHTS)
        await admin.world.topics.create(parse_topic("split"), partitions=3)
        yield owner


async def listed(admin: Admin, path: str, **query: Any) -> list[tuple[str, str]]:
    """(topic, name) of all pages."""
    found: list[tuple[str, str]] = []
    while True:
        page = await admin.get(f"{path}/producers", params=query)
        assert len(page["producers"]) <= query.get("limit", 100)
        found += [(each["topic"], each["name"]) for each in page["producers"]]
        if page["next_after"] is None:
            return found
        query["after"] = page["next_after"]


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
async def test_list_goes_through_all_partitions(owner: Owner, limit: int) -> None:
    """A page may end inside a partition or at its end; a partition that nobody has used has no producers."""
    owner.known[TOPIC] = {1: "a", 2: "b", 3: "c"}
    assert await listed(owner.admin, FLIGHTS, limit=limit) == [(TOPIC, name) for name in "abc"]
    for number in (0, 2):
        await owner.admin.replica.look_up(f"split-partition-{number}", create=True)
        owner.known[PARTS[number]] = {number + 1: "p", number + 7: "q"}
    expected = [(PARTS[0], "p"), (PARTS[0], "q"), (PARTS[2], "p"), (PARTS[2], "q")]
    assert await listed(owner.admin, SPLIT, limit=limit) == expected
    assert await listed(owner.admin, f"{SPLIT}-partition-2", limit=limit) == expected[2:]


async def test_page_may_be_empty_before_the_last_one(owner: Owner) -> None:
    """The filter leaves nothing of what the owner looked at: the list goes on at the place that it names."""
    owner.known[TOPIC], owner.page_max = {1: "a", 2: "b", 3: "x"}, 1
    page = await owner.admin.get(f"{FLIGHTS}/producers", params={"name_prefix": "x"})
    assert (page["producers"], page["next_after"]) == ([], "0:1")
    assert await listed(owner.admin, FLIGHTS, name_prefix="x") == [(TOPIC, "x")]


async def test_filters_reach_the_owner(owner: Owner) -> None:
    """Absent ones stay absent: a role that is not given is not the empty role."""
    query = {"name_prefix": "a", "role": "importer", "connected": "false", "idle_ms": 5, "expires_within_ms": 0}
    await owner.admin.get(f"{FLIGHTS}/producers", params=query)
    (asked,) = owner.asked
    assert (asked.name_prefix, asked.role, asked.connected, asked.idle_ms) == ("a", "importer", False, 5)
    assert (asked.HasField("expires_ms"), asked.expires_ms, asked.limit) == (True, 0, 100)
    await owner.admin.get(f"{FLIGHTS}/producers")
    for name in ("role", "connected", "idle_ms", "expires_ms"):
        assert not owner.asked[-1].HasField(name)


async def test_producer_is_found_by_name_before_id(owner: Owner) -> None:
    """A name may be a number, and may contain what a path gives a meaning to."""
    owner.known[TOPIC] = {1: "a", 2: "1", 3: "a/b?c d%"}
    for asked, pid in {"a": 1, "1": 2, "2": 2, "3": 3, "a%2Fb%3Fc%20d%25": 3}.items():
        (found,) = await owner.admin.get(f"{FLIGHTS}/producers/{asked}")
        assert (found["producer_id"], found["topic"]) == (pid, TOPIC), asked
        assert found["generations"][0]["from"] == "10.0.0.1:5"
    for asked in ("nobody", "4", "9" * 25, "-1"):
        problem = await owner.admin.refused("GET", f"{FLIGHTS}/producers/{asked}", 404, "not_found")
        assert "no such producer" in problem["detail"]


async def test_producer_of_a_partitioned_topic_is_shown_for_each_partition_that_has_it(owner: Owner) -> None:
    for number in (0, 2):
        await owner.admin.replica.look_up(f"split-partition-{number}", create=True)
    owner.known[PARTS[0]], owner.known[PARTS[2]] = {1: "p"}, {2: "p", 3: "q"}
    found = await owner.admin.get(f"{SPLIT}/producers/p")
    assert [(each["topic"], each["producer_id"]) for each in found] == [(PARTS[0], 1), (PARTS[2], 2)]
    assert [each["topic"] for each in await owner.admin.get(f"{SPLIT}/producers/q")] == [PARTS[2]]
    problem = await owner.admin.refused("GET", f"{SPLIT}/producers/nobody", 404, "not_found")
    assert "no partition of public/default/split has a producer nobody" in problem["detail"]


async def test_bad_input_names_its_field(owner: Owner) -> None:
    """No owner is asked."""
    for query, field in (
        ({"limit": 0}, "limit"), ({"limit": 1_001}, "limit"), ({"after": "x"}, "after"), ({"after": "1"}, "after"),
        ({"after": "1:-2"}, "after"), ({"after": f"1:{'9' * 30}"}, "after"), ({"connected": "perhaps"}, "connected"),
        ({"idle_ms": -1}, "idle_ms"), ({"expires_within_ms": 1 << 60}, "expires_within_ms"),
    ):  # fmt: skip
        problem = await owner.admin.refused(
            "GET", f"{FLIGHTS}/producers", 422, "invalid_argument", params={name: str(v) for name, v in query.items()}
        )
        assert problem["field"] == field
    assert not owner.asked
    missing = "/admin/v2/persistent/public/default/missing/producers"
    await owner.admin.refused("GET", missing, 404, "topic_not_found")
    await owner.admin.refused("GET", f"{missing}/p", 404, "topic_not_found")


async def test_change_goes_to_the_owner_with_the_operator(owner: Owner) -> None:
    """By the id; without a role the log says so."""
    owner.known[TOPIC] = {1: "a", 2: "b", 3: "c"}
    await owner.admin.change("POST", f"{FLIGHTS}/producers/1/expire")
    await owner.admin.change("DELETE", f"{FLIGHTS}/producers/2?force=true")
    asked = [(each.producer_id, each.delete, each.force, each.by) for each in owner.removed]
    assert asked == [(1, False, False, NO_ROLE), (2, True, True, NO_ROLE)]
    assert owner.known[TOPIC] == {3: "c"}


async def test_repeat_is_not_found_and_a_name_is_refused(owner: Owner) -> None:
    """No change reaches the owner."""
    owner.known[TOPIC] = {1: "a"}
    for producer in ("2", "9223372036854775807"):
        await owner.admin.refused("DELETE", f"{FLIGHTS}/producers/{producer}", 404, "not_found")
    for producer in ("a", "0", "-1", "9223372036854775808", "1.5"):
        for method, path in (("DELETE", ""), ("POST", "/expire")):
            problem = await owner.admin.refused(
                method, f"{FLIGHTS}/producers/{producer}{path}", 422, "invalid_argument"
            )
            assert problem["field"] == "producer"
    problem = await owner.admin.refused("DELETE", f"{SPLIT}/producers/1", 422, "invalid_argument")
    assert "use one of its 3 partitions" in problem["detail"]
    assert not owner.removed


async def test_refusal_of_the_owner_is_returned(owner: Owner) -> None:
    owner.known[TOPIC], owner.planned = {1: "a"}, [(Conflict("producer 1 is connected"), False)]
    problem = await owner.admin.refused("DELETE", f"{FLIGHTS}/producers/1", 409, "conflict")
    assert "connected" in problem["detail"]


async def test_change_that_a_lost_owner_has_made_is_a_success(owner: Owner) -> None:
    """It was deposed before it could answer: its successor does not know the producer any more, and no other producer
    ever gets the id."""
    owner.known[TOPIC], owner.planned = {1: "a"}, [(NotOwner("the topic is at another owner"), True)]
    await owner.admin.change("DELETE", f"{FLIGHTS}/producers/1")
    assert len(owner.removed) == 2


async def test_change_whose_answer_is_lost_is_unknown(owner: Owner) -> None:
    """Neither a success nor a failure; the error says what to do."""
    owner.known[TOPIC], owner.planned = {1: "a"}, [(DeadlineExceeded("no answer"), True)]
    problem = await owner.admin.refused("DELETE", f"{FLIGHTS}/producers/1", 504, "deadline_exceeded")
    assert "it is unknown whether producer 1 was removed" in problem["detail"]
