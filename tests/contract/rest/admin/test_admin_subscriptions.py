"""Routes of subscriptions: what they ask of owners, what becomes of a partitioned topic, and what they refuse."""

import json
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from oncelog.core.errors import (
    Conflict,
    DeadlineExceeded,
    NotOwner,
    OncelogError,
    ServiceUnavailable,
    SubscriptionNotFound,
)
from oncelog.core.names import parse_topic
from oncelog.rpc.codecs.owner_codec import TRIM, TRUNCATE
from oncelog.rpc.codecs.subscription_codec import CHANGE_SUBSCRIPTION, DESCRIBE_SUBSCRIPTIONS
from oncelog.wire import subscriptions_pb2 as pb
from oncelog.wire import truncation_pb2
from tests.contract.rest.admin.admin_world import FLIGHTS, Admin, serving

pytestmark = pytest.mark.asyncio

SPLIT = "/admin/v2/persistent/public/default/split"
PARTS = [f"public/default/split-partition-{number}" for number in range(3)]


class Owner:
    """Records changes, and answers with the errors that a test has planned."""

    def __init__(self, admin: Admin) -> None:
        self.admin = admin
        #: {topic: {subscription: statistics}}
        self.subscriptions: dict[str, dict[str, Any]] = defaultdict(dict)
        self.changes: list[pb.ChangeSubscriptionRequest] = []
        #: of the topic split, at each change
        self.partitions: list[int] = []
        #: {topic: errors of its next changes}
        self.planned: dict[str, list[OncelogError]] = defaultdict(list)
        #: ids of topics
        self.truncated: list[str] = []
        self.truncation_errors: list[OncelogError] = []
        #: the indexes; None: the end
        self.trims: list[int | None] = []

    async def change(self, request: pb.ChangeSubscriptionRequest) -> pb.ChangeSubscriptionAnswer:
        self.changes.append(request)
        self.partitions.append((await self.admin.replica.look_up("split")).partitions)
        if self.planned[request.topic]:
            raise self.planned[request.topic].pop(0)
        return pb.ChangeSubscriptionAnswer()

    async def describe(self, request: pb.DescribeSubscriptionsRequest) -> pb.DescribeSubscriptionsAnswer:
        known = self.subscriptions[request.topic]
        if not request.subscription:
            return pb.DescribeSubscriptionsAnswer(names=sorted(known))
        if request.subscription not in known:
            raise SubscriptionNotFound(f"the topic has no subscription {request.subscription}")
        return pb.DescribeSubscriptionsAnswer(statistics_json=json.dumps(known[request.subscription]))

    async def truncate(self, request: truncation_pb2.TruncateRequest) -> truncation_pb2.TruncateAnswer:
        if self.truncation_errors:
            raise self.truncation_errors.pop()
        self.truncated.append(request.topic_id)
        return truncation_pb2.TruncateAnswer()

    async def trim(self, request: truncation_pb2.TrimRequest) -> truncation_pb2.TrimAnswer:
        self.trims.append(request.before_index if request.HasField("before_index") else None)
        return truncation_pb2.TrimAnswer(first_index=40)

    @property
    def changed(self) -> list[str]:
        return sorted(request.topic for request in self.changes)


@pytest_asyncio.fixture
async def owner() -> AsyncIterator[Owner]:
    async with serving() as admin:
        fake, owner = await admin.owner(), Owner(admin)
        fake.server.unary(CHANGE_SUBSCRIPTION, owner.change)
        fake.server.unary(TRUNCATE, owner.truncate)
        fake.server.unary(TRIM, owner.trim)
        fake.server.unary(DESCRIBE_SUBSCRIPTIONS, owner.describe)
        await admin.change("PUT", FLIGHTS)
        await admin.world.topics.create(parse_topic("split"), partitions=3)
        yield owner


async def test_change_goes_to_every_partition(owner: Owner) -> None:
    """A new subscription also to partitions that nobody has used."""
    await owner.admin.change("PUT", f"{SPLIT}/subscription/billing", json={"start": {"position": "earliest"}})
    assert owner.changed == PARTS
    assert all(request.create.start.HasField("earliest") for request in owner.changes)
    owner.changes.clear()
    await owner.admin.change("POST", f"{SPLIT}/subscription/billing/skip_all")
    await owner.admin.change("POST", f"{SPLIT}/subscription/billing/resetcursor/5")
    assert owner.changed == sorted(PARTS * 2)
    assert {request.WhichOneof("change") for request in owner.changes} == {"skip_all", "seek"}


async def test_redo_and_store_of_effects_go_to_every_partition(owner: Owner) -> None:
    """A seek without `redo` is a plain one; a store id is judged before anything is changed."""
    billing, store = f"{SPLIT}/subscription/billing", {"store_id": "5a" * 16}
    await owner.admin.change("PUT", billing)
    place: dict[str, object] = {"position": "earliest"}
    for body, kind in ((place, "seek"), (place | {"redo": False}, "seek"), (place | {"redo": True}, "redo")):
        await owner.admin.change("POST", f"{billing}/resetcursor", json=body)
        assert [request.WhichOneof("change") for request in owner.changes[-3:]] == [kind] * 3
        assert all(getattr(request, kind).HasField("earliest") for request in owner.changes[-3:])
    await owner.admin.change("PUT", f"{billing}/store", json=store)
    assert {request.rebind.store_id for request in owner.changes[-3:]} == {"5a" * 16}
    done = len(owner.changes)
    for bad in ("5A" * 16, "5a", ""):
        await owner.admin.refused("PUT", f"{billing}/store", 422, "invalid_argument", json={"store_id": bad})
    assert len(owner.changes) == done


async def test_unknown_outcome_of_one_partition_is_told_for_all(owner: Owner) -> None:
    """A definite error of another partition does not hide that the change may have been made."""
    await owner.admin.change("PUT", f"{SPLIT}/subscription/billing")
    lost = ServiceUnavailable("127.0.0.1:1: connection reset", address="127.0.0.1:1")
    for definite in (SubscriptionNotFound("no"), ServiceUnavailable("not written: try again"), Conflict("in use")):
        owner.planned |= {PARTS[0]: [definite], PARTS[1]: [lost], PARTS[2]: [definite]}
        skip_all = f"{SPLIT}/subscription/billing/skip_all"
        problem = await owner.admin.refused("POST", skip_all, 504, "deadline_exceeded")
        assert f"done on 0 of 3 partitions, failed on 2, unknown on 1; {PARTS[1]}:" in problem["detail"]


async def test_partition_that_does_not_answer_may_have_the_subscription(owner: Owner) -> None:
    """So "not found" would be wrong."""
    await owner.admin.change("PUT", f"{SPLIT}/subscription/billing")
    owner.planned[PARTS[0]] = [SubscriptionNotFound("no")]
    owner.planned[PARTS[1]] = [ServiceUnavailable("the owner is draining")]
    owner.planned[PARTS[2]] = [SubscriptionNotFound("no")]
    skip_all = f"{SPLIT}/subscription/billing/skip_all"
    problem = await owner.admin.refused("POST", skip_all, 503, "service_unavailable")
    assert f"done on 0 of 3 partitions, failed on 3; {PARTS[1]}:" in problem["detail"]


async def test_creation_that_was_done_in_part_can_be_repeated(owner: Owner) -> None:
    """Partitions that have the subscription are left as they are; but not one with other properties."""
    path, body = f"{SPLIT}/subscription/billing", {"properties": {"team": "a"}}
    exists = Conflict("subscription billing exists already")
    owner.subscriptions[PARTS[0]] = {"billing": {"properties": {"team": "a"}}}
    owner.planned[PARTS[0]] = [exists, exists]
    await owner.admin.change("PUT", path, json=body)
    problem = await owner.admin.refused("PUT", path, 409, "conflict", json={"properties": {"team": "b"}})
    assert f"{PARTS[0]}: subscription billing exists already, with other properties" in problem["detail"]
    for part in PARTS:
        owner.subscriptions[part] = owner.subscriptions[PARTS[0]]
        owner.planned[part] = [exists]
    await owner.admin.refused("PUT", path, 409, "conflict", json=body)


async def test_truncation_names_what_was_done(owner: Owner) -> None:
    """Partitions that nobody has used are left out."""
    await owner.admin.change("DELETE", f"{SPLIT}/truncate")
    assert not owner.truncated
    await owner.admin.change("PUT", f"{SPLIT}/subscription/billing")
    await owner.admin.change("DELETE", f"{SPLIT}/truncate")
    assert len(owner.truncated) == len(set(owner.truncated)) == 3
    owner.truncation_errors = [DeadlineExceeded("no answer")]
    problem = await owner.admin.refused("DELETE", f"{SPLIT}/truncate", 504, "deadline_exceeded")
    assert "done on 2 of 3 partitions, failed on 0, unknown on 1" in problem["detail"]


async def test_trim_is_asked_of_one_log_with_its_index(owner: Owner) -> None:
    """A body that says nothing, or something else, deletes nothing."""
    answer = await owner.admin.http.post(f"{FLIGHTS}/trim", json={"before_index": 42})
    assert (answer.status_code, answer.json()) == (200, {"first_index": 40})
    await owner.admin.http.post(f"{FLIGHTS}/trim", json={"before_index": None})
    assert owner.trims == [42, None]
    await owner.admin.refused("POST", f"{SPLIT}/trim", 422, "invalid_argument", json={"before_index": 1})
    bodies: tuple[object, ...] = (
        {}, {"before": 1}, {"before_index": -1}, {"before_index": "1"}, {"before_index": 2**62}, [], 3
    )  # fmt: skip
    for bad in bodies:
        await owner.admin.refused("POST", f"{FLIGHTS}/trim", 422, "invalid_argument", json=bad)
    assert owner.trims == [42, None]


async def test_partition_without_the_subscription_is_no_failure(owner: Owner) -> None:
    """Only when no partition has it. So a deletion that was done in part can be repeated."""
    await owner.admin.change("PUT", f"{SPLIT}/subscription/billing")
    owner.subscriptions[PARTS[1]] = owner.subscriptions[PARTS[2]] = {"billing": {"consumer_count": 0}, "audit": {}}
    owner.planned[PARTS[0]] = [SubscriptionNotFound("no"), SubscriptionNotFound("no")]
    await owner.admin.change("DELETE", f"{SPLIT}/subscription/billing")
    assert await owner.admin.get(f"{SPLIT}/subscriptions") == ["audit", "billing"]
    assert list(await owner.admin.get(f"{SPLIT}/subscription/billing")) == PARTS[1:]
    owner.planned[PARTS[1]], owner.planned[PARTS[2]] = [SubscriptionNotFound("no")], [SubscriptionNotFound("no")]
    await owner.admin.refused("DELETE", f"{SPLIT}/subscription/billing", 404, "subscription_not_found")
    await owner.admin.refused("GET", f"{SPLIT}/subscription/other", 404, "subscription_not_found")


async def test_unknown_outcome_is_told_and_not_repeated(owner: Owner) -> None:
    """The connection ended without an answer: the owner may have done it. A skip that is repeated skips twice."""
    lost = ServiceUnavailable("127.0.0.1:1: connection reset", address="127.0.0.1:1")
    owner.planned["public/default/flights"] = [lost]
    problem = await owner.admin.refused("POST", f"{FLIGHTS}/subscription/billing/skip/3", 504, "deadline_exceeded")
    assert "it is unknown whether subscription billing was changed" in problem["detail"]
    assert len(owner.changes) == 1


async def test_owner_that_has_done_nothing_is_asked_again(owner: Owner) -> None:
    """The topic is moving, and the change was refused."""
    owner.planned["public/default/flights"] = [NotOwner("the topic is being moved: look it up again")]
    await owner.admin.change("POST", f"{FLIGHTS}/subscription/billing/skip/3")
    assert [request.skip for request in owner.changes] == [3, 3]


async def test_expiry_of_all_subscriptions_goes_on_past_a_deleted_one(owner: Owner) -> None:
    owner.subscriptions["public/default/flights"] = {"a": {}, "b": {}, "c": {}}
    owner.planned["public/default/flights"] = [SubscriptionNotFound("it was deleted meanwhile")]
    await owner.admin.change("POST", f"{FLIGHTS}/all_subscription/expireMessages/60")
    assert [(request.subscription, request.expire_after_ms) for request in owner.changes] == [
        ("a", 60_000), ("b", 60_000), ("c", 60_000),
    ]  # fmt: skip


async def test_deletion_with_consumers_on_one_partition_deletes_none(owner: Owner) -> None:
    for number, part in enumerate(PARTS):
        owner.subscriptions[part] = {"billing": {"consumer_count": number // 2}}
    await owner.admin.change("PUT", f"{SPLIT}/subscription/billing")
    owner.changes.clear()
    await owner.admin.refused("DELETE", f"{SPLIT}/subscription/billing", 409, "conflict")
    assert not owner.changes
    await owner.admin.change("DELETE", f"{SPLIT}/subscription/billing?force=true")
    assert owner.changed == PARTS


BAD_INPUT: list[tuple[str, object, str]] = [
    ("POST subscription/billing/skip/0", None, "count"),
    ("POST subscription/billing/skip/-1", None, "count"),
    ("POST subscription/billing/skip/9007199254740992", None, "count"),
    ("POST subscription/billing/skip/many", None, "count"),
    ("POST subscription/billing/expireMessages/0", None, "seconds"),
    ("POST subscription/billing/expireMessages/-5", None, "seconds"),
    ("POST all_subscription/expireMessages/1e9", None, "seconds"),
    ("POST subscription/billing/resetcursor/-1", None, "time_ms"),
    ("POST subscription/billing/resetcursor", {}, "body"),
    ("POST subscription/billing/resetcursor", {"index": 1, "time_ms": 1}, "body"),
    ("POST subscription/billing/resetcursor", {"index": -1}, "index"),
    ("POST subscription/billing/resetcursor", {"index": "1"}, "index"),
    ("POST subscription/billing/resetcursor", {"position": "first"}, "position"),
    ("POST subscription/billing/resetcursor", {"ledgerId": 1, "entryId": 2}, "ledgerId"),
    ("POST subscription/billing/resetcursor", {"message_id": "x"}, "message_id"),
    ("GET subscription/billing/position/0", None, "number"),
    ("GET subscription/billing/position/10001", None, "number"),
    ("PUT subscription/billing", {"type": "shared"}, "type"),
    ("PUT subscription/billing/properties", {"a": 1}, "a"),
    ("PUT subscription/billing/properties", {str(n): "" for n in range(65)}, "properties"),
    ("PUT subscription/billing/properties", {"a": "x" * 20_000}, "properties"),
]


async def test_bad_input_names_its_field_and_asks_no_owner(owner: Owner) -> None:
    """422, and nothing is half done."""
    for call, body, field in BAD_INPUT:
        method, path = call.split()
        options = {} if body is None else {"json": body}
        problem = await owner.admin.refused(method, f"{FLIGHTS}/{path}", 422, "invalid_argument", **options)
        assert problem["field"] == field, (call, problem)
    assert not owner.changes


async def test_bad_names_are_refused(owner: Owner) -> None:
    for name in ("a%20b", "x" * 256, "caf%C3%A9"):
        problem = await owner.admin.refused("PUT", f"{FLIGHTS}/subscription/{name}", 412, "invalid_name")
        assert problem["field"] == "subscription"
    await owner.admin.refused("PUT", f"{FLIGHTS}-none/subscription/s", 404, "topic_not_found")
    assert not owner.changes


async def test_place_of_one_partition_is_refused_for_several(owner: Owner) -> None:
    """The error says how to name a partition."""
    for method, path, body in (
        ("POST", "resetcursor", {"index": 3}),
        ("POST", "resetcursor", {"message_id": "1:2"}),
        ("POST", "skip/3", None),
        ("GET", "position/1", None),
    ):
        options = {} if body is None else {"json": body}
        whole = f"{SPLIT}/subscription/billing/{path}"
        problem = await owner.admin.refused(method, whole, 422, "invalid_argument", **options)
        assert "split-partition-N" in problem["detail"]
    assert not owner.changes


async def test_subscriptions_begin_in_new_partitions_before_clients_use_them(owner: Owner) -> None:
    """Otherwise a subscription without a connected consumer would miss the first messages of a new partition."""
    billing = {"properties": {"team": "a"}, "role": "ann"}
    await owner.admin.replica.look_up("split-partition-1")
    owner.subscriptions[PARTS[1]] = {"billing": billing, "audit": {"properties": {}, "role": None}}
    await owner.admin.change("POST", f"{SPLIT}/partitions", json=5)
    assert await owner.admin.get(f"{SPLIT}/partitions") == {"partitions": 5}
    look_up = await owner.admin.replica.look_up("split")
    assert (look_up.partitions, list(look_up.former_partitions)) == (5, [3])
    new = [f"public/default/split-partition-{number}" for number in (3, 4)]
    assert owner.changed == sorted(new * 4)
    assert sorted(owner.partitions) == [3] * 4 + [5] * 4
    first = next(request for request in owner.changes if request.subscription == "billing")
    assert first.create.start.HasField("earliest")
    assert (first.create.role, [(one.name, one.value) for one in first.create.properties]) == ("ann", [("team", "a")])


async def test_interrupted_growth_is_finished_by_the_same_request(owner: Owner) -> None:
    """Until then the topic has its former number of partitions, and its deletion includes the new ones."""
    await owner.admin.replica.look_up("split-partition-0")
    owner.subscriptions[PARTS[0]] = {"billing": {"properties": {}, "role": None}}
    owner.planned["public/default/split-partition-4"] = [ServiceUnavailable("the change was not written: try again")]
    await owner.admin.refused("POST", f"{SPLIT}/partitions", 503, "service_unavailable", json=5)
    assert await owner.admin.get(f"{SPLIT}/partitions") == {"partitions": 3}
    await owner.admin.refused("DELETE", f"{SPLIT}-partition-4", 409, "conflict")
    exists = Conflict("subscription billing exists already")
    owner.planned["public/default/split-partition-3"] = [exists, exists]
    await owner.admin.change("POST", f"{SPLIT}/partitions", json=5)
    assert await owner.admin.get(f"{SPLIT}/partitions") == {"partitions": 5}
    await owner.admin.change("POST", f"{SPLIT}/partitions", json=5)
    await owner.admin.change("DELETE", f"{SPLIT}/partitions")
    assert await owner.admin.get("/admin/v2/persistent/public/default") == ["public/default/flights"]


async def test_growth_of_a_wrong_topic_or_number_is_refused(owner: Owner) -> None:
    """Partitions are never taken away, and a topic that has none gets none."""
    problem = await owner.admin.refused("POST", f"{SPLIT}/partitions", 422, "invalid_argument", json=2)
    assert (problem["field"], problem["limit"]) == ("partitions", 3)
    for count in (0, 1_001, True, "4", None):
        await owner.admin.refused("POST", f"{SPLIT}/partitions", 422, "invalid_argument", json=count)
    await owner.admin.refused("POST", f"{FLIGHTS}/partitions", 422, "invalid_argument", json=3)
    await owner.admin.refused("POST", f"{SPLIT}s/partitions", 404, "topic_not_found", json=3)
    assert await owner.admin.get(f"{SPLIT}/partitions") == {"partitions": 3}
