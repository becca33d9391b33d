"""Publishing over HTTP: every message is stored once, and every error says what to do."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from oncelog.core.errors import (
    CorruptEntry,
    IdempotencyKeyReused,
    NotEnoughStorageNodes,
    OncelogError,
    SessionEnded,
)
from oncelog.core.names import parse_topic
from oncelog.core.publishing.recent_batches import RECENT_BATCHES_MAX
from oncelog.core.sdk.producer.routing import partition_of
from oncelog.metadata.http_publish.publish_body import PublishBody, read_messages
from oncelog.metadata.http_publish.routes import REPLAYED
from oncelog.rpc.codecs.owner_codec import OpenRequest
from tests.cluster.until import until
from tests.contract.rest.publish_world import ORDERS, PublishWorld, Replica

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def world() -> AsyncIterator[PublishWorld]:
    async with PublishWorld.running() as running:
        yield running


async def answered(replica: Replica, *values: str, key: str) -> list[dict[str, Any]]:
    """Repeat the request until it is answered, as a sender does."""

    async def tried() -> list[dict[str, Any]]:
        response = await replica.post(*values, key=key)
        assert response.status_code in {200, 409, 503}, response.text
        found: list[dict[str, Any]] = response.json()["messages"] if response.status_code == 200 else []
        return found

    return await until(tried, 60)


# --- under producer names ---------------------------------------------------------------------------------------------


async def test_batch_is_stored_and_its_repeat_is_a_duplicate(world: PublishWorld) -> None:
    """With the message id of the first copy."""
    replica = await world.replica()
    first = await replica.stored("a", "b", producer_name="shop", sequence_ids=[5, 9])
    assert [(each["sequence_id"], each["duplicate"], each["verified"]) for each in first] == [
        (5, False, True),
        (9, False, True),
    ]
    again = await replica.stored("a", "b", producer_name="shop", sequence_ids=[5, 9])
    assert [each["message_id"] for each in again] == [each["message_id"] for each in first]
    assert all(each["duplicate"] for each in again)
    assert world.values() == ["a", "b"]


async def test_stale_id_does_not_affect_other_results_of_its_batch(world: PublishWorld) -> None:
    """The error has the result of each message. A sender that took id 5 as not stored would publish it twice."""
    replica = await world.replica()
    await replica.stored("a", "b", producer_name="shop", sequence_ids=[5, 9])
    problem = await replica.refused(
        409, "stale_sequence", "a", "late", "c", producer_name="shop", sequence_ids=[5, 7, 10]
    )
    assert (problem["stored"], problem["high_water"]) == (None, 10)
    assert problem["messages"] == [
        {"sequence_id": 5, "stored": True, "duplicate": True, "code": None},
        {"sequence_id": 7, "stored": False, "duplicate": False, "code": "stale_sequence"},
        {"sequence_id": 10, "stored": True, "duplicate": False, "code": None},
    ]
    assert world.values() == ["a", "b", "c"]
    alone = await replica.refused(409, "stale_sequence", "late", producer_name="shop", sequence_id=7)
    assert alone["stored"] is False
    wrong = await replica.refused(422, "invalid_sequence_id", "a", producer_name="shop", sequence_id=-1)
    assert wrong["stored"] is False


async def test_message_that_may_be_lost_is_an_error_unless_accepted(world: PublishWorld) -> None:
    """A sender looks at the status alone: a success with a flag would lose the message in silence."""
    replica = await world.replica()
    for number in range(100, 101 + RECENT_BATCHES_MAX):
        await replica.stored("v", producer_name="shop", sequence_id=number)
    fine = await replica.post("v", producer_name="shop", sequence_id=100 + RECENT_BATCHES_MAX)
    assert "warning" not in fine.json()
    problem = await replica.refused(409, "unverified_sequence", "lost", producer_name="shop", sequence_id=7)
    assert problem["stored"] is None
    assert "older than all ids" in problem["detail"]
    both = await replica.refused(409, "unverified_sequence", "a", "b", producer_name="shop", sequence_ids=[7, 900])
    assert [each["stored"] for each in both["messages"]] == [None, True]
    accepted: dict[str, Any] = {"producer_name": "shop", "sequence_id": 7, "on_unverified": "accept"}
    answer = (await replica.post("lost", **accepted)).json()
    unverified = {"message_id": None, "sequence_id": 7, "duplicate": True, "resent": False, "verified": False}
    assert answer["messages"] == [unverified | {"content_differs": None}]
    assert "they are lost" in answer["warning"]


@pytest.mark.hazard("other-content")
async def test_other_content_under_a_stored_id_is_an_error(world: PublishWorld) -> None:
    """As with an idempotency key. A sender whose messages say when they were sent accepts it."""
    replica = await world.replica()
    (first,) = await replica.stored("a", producer_name="shop", sequence_id=0)
    (again,) = await replica.stored("a", producer_name="shop", sequence_id=0)
    assert again == first | {"duplicate": True, "content_differs": False}
    problem = await replica.refused(409, "content_differs", "b", producer_name="shop", sequence_id=0)
    assert problem["stored"] is False
    assert first["message_id"] in problem["detail"]
    (accepted,) = await replica.stored("b", producer_name="shop", sequence_id=0, on_content_differs="accept")
    assert accepted == again | {"content_differs": True}
    assert world.values() == ["a"]


async def test_bytes_keys_times_and_properties_are_stored(world: PublishWorld) -> None:
    """Values as base64, and optional fields that only some messages of a batch have."""
    replica = await world.replica()
    full = {"value_base64": base64.b64encode(b"\x00\xff").decode(), "key": "k", "event_time_ms": 7}
    messages = [full | {"properties": {"a": "b"}}, {"value": "plain"}]
    body = {"producer_name": "shop", "sequence_id": 0, "messages": messages}
    assert (await replica.http.post(ORDERS, json=body)).status_code == 200
    reader = await replica.client.create_reader("orders")
    first, second = await reader.read_next(), await reader.read_next()
    assert (bytes(first.value), first.key, first.event_time_ms, dict(first.properties)) == (
        b"\x00\xff", b"k", 7, {"a": "b"},
    )  # fmt: skip
    assert (bytes(second.value), second.key, second.event_time_ms) == (b"plain", None, None)


async def test_replicas_serve_one_producer_name_alternately(world: PublishWorld) -> None:
    """Each change of replica fences the other's producer, and each message is stored once, in order."""
    replicas = [await world.replica(), await world.replica()]
    for number in range(8):
        for replica in (replicas[number % 2], replicas[(number + 1) % 2]):
            (message,) = await replica.stored(str(number), producer_name="shop", sequence_id=number)
            assert message["sequence_id"] == number
    assert world.values() == [str(number) for number in range(8)]


async def test_contiguous_name_at_two_replicas_reports_only_real_gaps(world: PublishWorld) -> None:
    """A replica that was fenced without noticing opens the producer again before it reports a gap."""
    one, other = await world.replica(), await world.replica()
    options = {"producer_name": "shop", "sequence_mode": "contiguous"}
    await one.stored("0", sequence_id=0, **options)
    await other.stored("1", sequence_id=1, **options)
    await one.stored("2", sequence_id=2, **options)
    problem = await one.refused(409, "sequence_gap", "4", sequence_id=4, **options)
    assert problem["expected"] == 3
    await one.stored("3", sequence_id=3, **options)
    assert world.values() == ["0", "1", "2", "3"]


async def test_repeatedly_fenced_instance_reports_producer_fenced(world: PublishWorld) -> None:
    """The number of attempts is limited."""
    replica = await world.replica()
    stealing = False

    def steal(request: OpenRequest) -> OncelogError | None:
        """Another client opens the name as soon as it is granted."""
        if stealing:
            topic, number = world.cluster.topic("orders"), world.cluster.next_producer_id()
            asyncio.get_running_loop().call_soon(topic.grant, request, number)
        return None

    world.cluster.knobs.refuse_open = steal
    stealing = True
    problem = await replica.refused(409, "producer_fenced", "0", producer_name="shop", sequence_id=0)
    assert problem["stored"] in {None, False}
    stealing = False
    await replica.stored("0", producer_name="shop", sequence_id=0)


async def test_producers_are_limited_and_an_idle_one_is_closed(world: PublishWorld) -> None:
    """The memory must not grow with the number of producer names."""
    replica = await world.replica(publish_producers_max=2)
    for number in range(5):
        await replica.stored("x", producer_name=f"shop-{number}", sequence_id=0)
    assert replica.publisher._named.open_count == 2
    world.cluster.knobs.gate.clear()
    waiting = [asyncio.ensure_future(replica.post("y", producer_name=f"busy-{n}", sequence_id=0)) for n in range(2)]
    await until(lambda: all(slot.users for slot in replica.publisher._named._slots.values()), 30)
    await replica.refused(429, "too_many_requests", "z", producer_name="one-more", sequence_id=0)
    world.cluster.knobs.gate.set()
    assert {(await one).status_code for one in waiting} == {200}


# --- with idempotency keys --------------------------------------------------------------------------------------------


async def test_repeated_key_gets_the_original_answer_at_every_replica(world: PublishWorld) -> None:
    """With the header for a replay; the key may be quoted."""
    one, other = await world.replica(), await world.replica()
    first = await one.post("a", "b", key="order-17")
    assert REPLAYED not in first.headers
    for replica, key in ((one, "order-17"), (other, "order-17"), (other, '"order-17"')):
        again = await replica.post("a", "b", key=key)
        assert (again.json(), again.headers[REPLAYED]) == (first.json(), "true")
    assert world.values() == ["a", "b"]


async def test_key_belongs_to_the_role_that_used_it_first(world: PublishWorld) -> None:
    """Another one gets neither its answer nor the place of its messages. Its own keys are as good."""
    replica = await world.replica()
    limits = replica.publisher.limits
    messages = read_messages(PublishBody.model_validate({"messages": [{"value": "a"}]}), limits)
    orders = parse_topic("orders")
    first, keyed = await replica.publisher.publish_keyed(orders, "key", messages, "importer")
    assert not keyed.replayed
    with pytest.raises(IdempotencyKeyReused, match="another role"):
        await replica.publisher.publish_keyed(orders, "key", messages, "auditor")
    again = await replica.publisher.publish_keyed(orders, "key", messages, "importer")
    assert again == (first, replace(keyed, replayed=True))
    assert not (await replica.publisher.publish_keyed(orders, "other", messages, "auditor"))[1].replayed
    assert world.values() == ["a", "a"]


async def test_other_messages_with_a_used_key_are_refused(world: PublishWorld) -> None:
    """The messages are compared, not the formatting of the JSON."""
    replica = await world.replica()
    await replica.stored("a", key="key")
    await replica.refused(422, "idempotency_key_reused", "b", key="key")
    await replica.refused(422, "idempotency_key_reused", "a", "a", key="key")
    assert (await replica.http.post(
        ORDERS, content=b'{ "messages" : [ { "value_base64": "YQ==" } ] }',
        headers={"Idempotency-Key": "key", "Content-Type": "application/json"},
    )).status_code == 200  # fmt: skip


@pytest.mark.hazard("resent-to-another-partition")
async def test_key_of_a_partitioned_topic_always_finds_its_message(world: PublishWorld) -> None:
    """Also when the topic gets more partitions: the message would be stored again in another one. A key belongs to the
    whole topic, so other messages are refused whichever partition they would go to."""
    replica = await world.replica()
    world.partitions["public/default/orders"] = [3]
    first = {}
    for number in range(12):
        answer = await replica.post("a", key=f"key-{number}")
        assert answer.status_code == 200, answer.text
        first[number] = answer.json()
    used = {each["topic"] for each in first.values()}
    assert used == {f"public/default/orders-partition-{number}" for number in range(3)}
    world.partitions["public/default/orders"] = [3, 4]
    for number in range(12):
        again = await replica.post("a", key=f"key-{number}")
        assert (again.json(), again.headers[REPLAYED]) == (first[number], "true")
    assert sum(len(world.cluster.topic(f"orders-partition-{n}").values()) for n in range(3)) == 12
    headers, body = {"Idempotency-Key": "key-0"}, {"value": "a"}
    for key in "abcdef":
        refused = await replica.http.post(ORDERS, json={"messages": [body | {"key": key}]}, headers=headers)
        assert refused.json()["code"] == "idempotency_key_reused"
    keyed = [body | {"key": key} for key in "abcdef"]
    mixed = await replica.http.post(ORDERS, json={"messages": keyed}, headers={"Idempotency-Key": "mixed"})
    assert (mixed.status_code, mixed.json()["code"], mixed.json()["stored"]) == (422, "invalid_argument", False)
    one = await replica.http.post(ORDERS, json={"messages": [keyed[0], body]}, headers={"Idempotency-Key": "one"})
    assert one.json()["topic"] == f"public/default/orders-partition-{partition_of(b'a', 3)}"


async def test_quoted_key_keeps_its_quotes_and_spaces(world: PublishWorld) -> None:
    """The header without quotes is the same key; quotes and backslashes are escaped inside."""
    replica = await world.replica()
    first = await replica.stored("a", key="key")
    assert await replica.stored("a", key='"key"') == first
    found = {first[0]["message_id"]}
    for key in (" key", '"key"', "\\key", '\\"key', "key\\"):
        (one,) = await replica.stored("a", key=json.dumps(key))
        assert await replica.stored("a", key=json.dumps(key)) == [one]
        found.add(one["message_id"])
    assert len(found) == len(world.values()) == 6


async def test_key_in_progress_is_a_conflict_at_every_replica(world: PublishWorld) -> None:
    """A live holder is not fenced; after it has finished, the repeat is answered."""
    one, other = await world.replica(), await world.replica()
    await one.stored("first", key="first")
    await other.stored("second", key="second")
    world.cluster.knobs.gate.clear()
    waiting = asyncio.ensure_future(one.post("a", key="key"))
    await until(lambda: len(world.keys.values) == 3, 30)
    for replica in (one, other):
        problem = await replica.post("a", key="key")
        assert (problem.status_code, problem.json()["code"]) == (409, "publish_in_progress")
        assert problem.headers["Retry-After"]
    world.cluster.knobs.gate.set()
    assert (await waiting).status_code == 200
    assert (await other.post("a", key="key")).headers[REPLAYED] == "true"
    assert world.values() == ["first", "second", "a"]


async def test_concurrent_keys_are_stored_once_each(world: PublishWorld) -> None:
    """By two replicas, with each key at both."""
    replicas = [await world.replica(), await world.replica()]
    keys = [f"key-{number}" for number in range(40)]
    await asyncio.gather(*(answered(replica, key, key=key) for key in keys for replica in replicas))
    assert sorted(world.values()) == sorted(keys)


@pytest.mark.hazard("key-without-message")
async def test_log_decides_the_result_of_a_dead_process_key(world: PublishWorld) -> None:
    """Claimed and not sent, or sent and not recorded: in both cases it is stored once, with its message id."""
    dead, other = await world.replica(), await world.replica()
    await dead.stored("first", key="first")
    world.cluster.knobs.gate.clear()
    waiting = asyncio.ensure_future(dead.post("a", key="never sent"))
    await until(lambda: len(world.keys.values) == 2, 30)
    await dead.vanish()
    waiting.cancel()
    world.keys.leases.clear()
    world.cluster.knobs.gate.set()
    (message,) = await answered(other, "a", key="never sent")
    assert message["message_id"] is not None
    assert world.values() == ["first", "a"]


async def test_stored_message_without_a_recorded_answer_is_found_in_the_log(world: PublishWorld) -> None:
    """Redis fails between publish and record: the request and its repeat get the same message id."""
    replica, other = await world.replica(), await world.replica()
    await replica.stored("first", key="first")
    world.cluster.knobs.gate.clear()
    waiting = asyncio.ensure_future(replica.post("a", key="key"))
    await until(lambda: len(world.keys.values) == 2, 30)
    world.keys.down = True
    world.cluster.knobs.gate.set()
    first = await waiting
    assert first.status_code == 200
    world.keys.down = False
    world.keys.leases.clear()
    for each in (other, replica):
        assert (await answered(each, "a", key="key")) == first.json()["messages"]
    assert world.values() == ["first", "a"]


@pytest.mark.hazard("key-without-message")
async def test_repeat_after_a_lost_claim_reply_publishes_once(world: PublishWorld) -> None:
    """The claim is written, but its id is never published: the key is mapped to a new id."""
    replica = await world.replica()
    await replica.stored("first", key="first")
    world.keys.lose_replies = 1
    await replica.refused(503, "idempotency_unavailable", "a", key="key")
    assert world.values() == ["first"]
    world.keys.leases.clear()
    await answered(replica, "a", key="key")
    await answered(replica, "a", key="key")
    assert world.values() == ["first", "a"]


async def test_without_redis_keys_are_refused_and_producer_names_work(world: PublishWorld) -> None:
    """Redis is down or not configured: the error says which, and nothing is stored."""
    without, replica = await world.replica(keys=False), await world.replica()
    problem = await without.refused(503, "idempotency_unavailable", "a", key="key")
    assert "ONCELOG_REDIS_URL" in problem["detail"]
    assert problem["stored"] is False
    world.keys.down = True
    await replica.refused(503, "idempotency_unavailable", "a", key="key")
    await replica.stored("named", producer_name="shop", sequence_id=0)
    assert world.values() == ["named"]


async def test_recreated_topic_has_no_keys(world: PublishWorld) -> None:
    """Keys belong to the topic's id, not to its name."""
    replica = await world.replica()
    await replica.stored("a", key="key")
    old = world.cluster.topics.pop("public/default/orders")
    del world.cluster.by_id[old.topic_id]
    await world.cluster.take_over()
    fresh = await world.replica()
    await fresh.stored("a", key="key")
    assert world.values() == ["a"]


# --- bad input --------------------------------------------------------------------------------------------------------


BAD_INPUT: list[tuple[dict[str, Any], str | None, int, str, str]] = [
    ({"messages": [{"value": "a"}]}, None, 400, "idempotency_key_required", "Idempotency-Key"),
    ({"messages": [{"value": "a"}]}, "", 422, "invalid_argument", "Idempotency-Key"),
    ({"messages": [{"value": "a"}]}, "k" * 256, 422, "invalid_argument", "Idempotency-Key"),
    ({"messages": [{"value": "a"}], "producer_name": "p"}, "key", 422, "invalid_argument", "producer_name"),
    ({"messages": [{"value": "a"}], "sequence_id": 1}, "key", 422, "invalid_argument", "sequence_id"),
    ({"messages": [{"value": "a"}], "producer_name": "p"}, None, 422, "sequence_id_required", "sequence_id"),
    ({"messages": [{"value": "a"}], "producer_name": ""}, None, 412, "invalid_name", "producer_name"),
    ({"messages": []}, "key", 422, "invalid_argument", "messages"),
    ({"messages": [{"value": "a"}], "colour": 1}, "key", 422, "invalid_argument", "colour"),
    ({"messages": [{"value": "a", "colour": 1}]}, "key", 422, "invalid_argument", "messages.0.colour"),
    ({"messages": [{}]}, "key", 422, "invalid_argument", "messages.0.value"),
    ({"messages": [{"value": "a", "value_base64": "YQ=="}]}, "key", 422, "invalid_argument", "messages.0.value"),
    ({"messages": [{"value_base64": "%"}]}, "key", 422, "invalid_argument", "messages.0.value_base64"),
    ({"messages": [{"value": "a" * 101}]}, "key", 413, "message_too_large", "messages.0.value"),
    ({"messages": [{"value": "a"}] * 4}, "key", 413, "message_too_large", "messages"),
    ({"messages": [{"value": "a" * 3_000}]}, "key", 413, "message_too_large", "body"),
    ({"messages": [{"value": "a"}], "producer_name": "p", "sequence_id": -1}, None, 422, "invalid_sequence_id",
     "sequence_id"),
    ({"messages": [{"value": "a"}], "producer_name": "p", "sequence_ids": [1, 2]}, None, 422, "invalid_argument",
     "sequence_ids"),
]  # fmt: skip


async def test_invalid_input_is_refused_with_field_and_limit(world: PublishWorld) -> None:
    """The check happens before anything is claimed or stored."""
    replica = await world.replica(publish_message_bytes_max=100, publish_messages_max=3, publish_body_bytes_max=2_000)
    for body, key, status, code, field in BAD_INPUT:
        response = await replica.http.post(ORDERS, json=body, headers={} if key is None else {"Idempotency-Key": key})
        problem = response.json()
        assert (response.status_code, problem["code"], problem["field"]) == (status, code, field), problem
        assert status != 413 or problem["limit"] in {3, 100, 2_000}
    assert world.keys.values == {}


async def test_request_continues_after_its_timeout(world: PublishWorld) -> None:
    """Its sender gets an error that says that it continues, and gets the answer by repeating the request."""
    replica = await world.replica(publish_timeout_ms=50)
    world.cluster.knobs.gate.clear()
    await replica.refused(504, "deadline_exceeded", "a", producer_name="shop", sequence_id=0)
    world.cluster.knobs.gate.set()
    await until(lambda: not replica.publisher._requests, 30)
    assert world.values() == ["a"]


@pytest.mark.parametrize("how", [{"producer_name": "shop", "sequence_id": 1}, {"key": "second"}])
async def test_timeout_of_a_publish_tells_what_it_waits_for(world: PublishWorld, how: dict[str, Any]) -> None:
    """By producer name and by key: storage nodes without space are named."""
    replica = await world.replica(publish_timeout_ms=200)
    first = {"producer_name": "shop", "sequence_id": 0} if "producer_name" in how else {"key": "first"}

    async def stored() -> bool:
        return (await replica.post("a", **first)).status_code == 200

    await until(stored, 30)
    world.cluster.knobs.refuse_batch = lambda _: SessionEnded("a write failed")
    world.cluster.knobs.refuse_open = lambda _: NotEnoughStorageNodes("storage nodes have no space: a, b")

    async def told() -> bool:
        problem = (await replica.post("b", **how)).json()
        return problem["code"] == "deadline_exceeded" and "storage nodes have no space: a, b" in problem["detail"]

    await until(told, 30, waiting_for="the reason in the problem")
    world.cluster.knobs.refuse_open = lambda _: None
    world.cluster.knobs.refuse_batch = lambda _: None
    await until(lambda: not replica.publisher._requests, 30)


async def test_corrupt_key_record_is_an_error(world: PublishWorld) -> None:
    """If it were ignored, the messages would be published again."""
    replica = await world.replica()
    await replica.stored("a", key="key")
    (name,) = world.keys.values
    world.keys.values[name] = b"{}"
    await replica.refused(500, CorruptEntry.code, "a", key="key")
    assert world.values() == ["a"]
