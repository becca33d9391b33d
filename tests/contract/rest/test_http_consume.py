"""Consuming over HTTP at one replica: what is acknowledged never comes again, everything else does."""

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
import pytest_asyncio

import oncelog
from oncelog.core.acks.changes import EffectsBound
from oncelog.core.ids import EntryId, Generation, LedgerId, Position, SeekEpoch
from tests.cluster.until import until
from tests.contract.rest.consume_world import DEADLINE_S, SESSIONS, ConsumeReplica, ConsumeWorld, HttpSession

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def world() -> AsyncIterator[ConsumeWorld]:
    async with ConsumeWorld.running() as running:
        yield running


@pytest_asyncio.fixture
async def replica(world: ConsumeWorld) -> ConsumeReplica:
    return await world.replica()


def values(messages: list[dict[str, Any]]) -> list[str]:
    return [message["value"] for message in messages]


def ids(messages: list[dict[str, Any]]) -> list[str]:
    return [message["id"] for message in messages]


# --- messages ---------------------------------------------------------------------------------------------------------


async def test_message_has_what_publish_gave_it_and_what_identifies_it(
    world: ConsumeWorld, replica: ConsumeReplica
) -> None:
    """Bytes that are no text are base64, as HTTP publish takes them."""
    await world.publish(
        "two teas", b"\x00\xff", keys=[b"table-4", b"\xfe"], event_times_ms=[7, None], properties=[{"guest": "Ada"}, {}]
    )
    session = await replica.opened()
    first, second = await session.take()
    assert first == first | {
        "id": "0.0.0", "topic": "public/default/orders", "topic_id": world.cluster.topic("orders").topic_id,
        "partition": None, "index": 0, "seek_epoch": 0, "generation": 0, "delivery_count": 1, "value": "two teas",
        "value_base64": None, "key": "table-4", "key_base64": None, "event_time_ms": 7, "properties": {"guest": "Ada"},
    }  # fmt: skip
    assert (second["id"], second["value"], second["value_base64"], second["key_base64"]) == (
        "1.0.0",
        None,
        "AP8=",
        "/g==",
    )
    assert (second["event_time_ms"], second["properties"]) == (None, {})
    assert str(first["message_id"]).count(":") == 2
    assert first["append_time_ms"] > 0


async def test_acknowledged_message_never_comes_again_and_every_other_one_does(
    world: ConsumeWorld, replica: ConsumeReplica
) -> None:
    """The answer says it for each id. The next session gets exactly the rest."""
    await world.publish("a", "b", "c")
    session = await replica.opened()
    a, b, c = ids(await session.take())
    assert await session.settled("acks", [a, c]) == [(True, None)] * 2
    assert await session.take(wait=0) == []
    answer = await session.http.delete(session.path)
    assert answer.status_code == 204
    await session.refused(410, "session_gone", "POST", "/acks", json={"ids": [b]})
    other = await replica.opened()
    assert values(await other.take()) == ["b"]
    assert await other.take(wait=0) == []


@pytest.mark.hazard("foreign-delivery-id")
async def test_each_id_has_its_own_outcome(world: ConsumeWorld, replica: ConsumeReplica) -> None:
    """A repeat of an acknowledgement is fine. What another session has, what nobody has, and what is no id is
    refused, and the message is not lost."""
    await world.publish("a", "b")
    one, two = await replica.opened(window=1), await replica.opened(window=1)
    (a,) = await one.take(1)
    (b,) = await two.take(1)
    nothing = (False, "not_outstanding")
    given = [a["id"], b["id"], "77.0.0", "x", a["id"].replace(".0.0", ".0.9")]
    assert await one.settled("acks", given) == [(True, None), nothing, nothing, nothing, nothing]
    assert await one.settled("acks", [a["id"]]) == [(True, None)]
    assert await one.settled("nacks", [a["id"], b["id"]]) == [nothing, nothing]
    assert (await two.http.delete(two.path)).status_code == 204
    assert values(await one.take()) == [b["value"]]


async def test_acknowledgement_is_answered_when_it_is_durable(world: ConsumeWorld, replica: ConsumeReplica) -> None:
    """Not before."""
    await world.publish("a")
    session = await replica.opened()
    (a,) = ids(await session.take())
    world.cluster.consume.writable.clear()
    asking = asyncio.ensure_future(session.settled("acks", [a]))
    await until(lambda: world.cluster.consume.requests[-1].__class__.__name__ == "AckRequested", DEADLINE_S)
    assert not asking.done()
    world.cluster.consume.writable.set()
    assert await asking == [(True, None)]


async def test_acknowledgement_in_memory_alone_is_not_called_durable(
    world: ConsumeWorld, replica: ConsumeReplica
) -> None:
    """The next owner may deliver the message again."""
    await world.publish("a")
    session = await replica.opened()
    world.cluster.consume.in_memory = True
    given = ids(await session.take())
    for _ in range(2):
        assert await session.settled("acks", given) == [(None, "in_memory")]


async def test_returned_message_comes_again_and_counts(world: ConsumeWorld, replica: ConsumeReplica) -> None:
    await world.publish("a", "b")
    session = await replica.opened()
    a, b = ids(await session.take())
    assert await session.settled("nacks", [a], delay=0) == [(True, None)]
    (again,) = await session.take()
    assert (again["id"], again["delivery_count"]) == (a, 2)
    assert await session.settled("acks", [a, b]) == [(True, None)] * 2


async def test_messages_come_again_after_the_ack_timeout(world: ConsumeWorld, replica: ConsumeReplica) -> None:
    """And the former delivery cannot be acknowledged any more when its time is over."""
    await world.publish("a")
    session = await replica.opened(ack_timeout=3)
    (first,) = await session.take()
    (again,) = await session.take()
    assert (again["value"], again["delivery_count"]) == ("a", 2)
    assert await session.settled("acks", [first["id"]]) == [(True, None)]  # the id of the new delivery is the same


async def test_seek_voids_what_was_given(world: ConsumeWorld, replica: ConsumeReplica) -> None:
    """The message comes again under another id."""
    await world.publish("a")
    session = await replica.opened()
    (a,) = ids(await session.take())
    async with await world.client.subscribe("orders", subscription="billing", type="shared") as consumer:
        await consumer.seek(oncelog.EARLIEST)
    assert await session.settled("acks", [a]) == [(False, "stale_seek_epoch")]
    (again,) = await session.take()
    assert again["id"] == "0.1.0"


async def test_change_of_the_owner_loses_nothing(world: ConsumeWorld, replica: ConsumeReplica) -> None:
    await world.publish("a", "b")
    session = await replica.opened()
    a, b = ids(await session.take())
    assert await session.settled("acks", [a]) == [(True, None)]
    await world.cluster.take_over()
    assert await session.settled("acks", [b]) == [(True, None)]
    await world.publish("c")
    assert values(await session.take()) == ["c"]


async def test_partition_is_in_the_id(world: ConsumeWorld, replica: ConsumeReplica) -> None:
    """Indexes of partitions are equal."""
    world.cluster.partitioned["public/default/split"] = 2
    producer = await world.client.create_producer("split")
    for key in "abcdefgh":
        await producer.send(key.encode(), key=key.encode())
    session = await replica.opened(path=SESSIONS.replace("orders", "split"))
    found = await session.take_all(8)
    assert len(set(ids(found))) == 8
    assert {each["partition"] for each in found} == {0, 1}
    assert all(each["id"].endswith(f".{each['partition']}") for each in found)
    assert all(each["topic"].endswith(f"split-partition-{each['partition']}") for each in found)
    assert await session.settled("acks", ids(found)) == [(True, None)] * 8


# --- waiting and bounds -----------------------------------------------------------------------------------------------


async def test_long_poll_is_answered_by_the_first_message(world: ConsumeWorld, replica: ConsumeReplica) -> None:
    session = await replica.opened()
    waiting = asyncio.ensure_future(session.take(wait=60))
    await until(lambda: [each.core._requests for each in replica.service._sessions.values()] == [1], DEADLINE_S)
    await world.publish("a")
    assert values(await waiting) == ["a"]


async def test_newer_request_ends_an_older_one(world: ConsumeWorld, replica: ConsumeReplica) -> None:
    """The older one may belong to a client that is gone: what it took would wait for its time-out."""
    session = await replica.opened()
    older = asyncio.ensure_future(session.http.get(f"{session.path}/messages?wait=60"))
    await until(lambda: [each.core._requests for each in replica.service._sessions.values()] == [1], DEADLINE_S)
    newer = asyncio.ensure_future(session.take())
    ended = await older
    assert (ended.status_code, ended.json()["code"]) == (409, "conflict")
    await world.publish("a")
    assert values(await newer) == ["a"]


async def test_request_of_a_client_that_is_gone_takes_nothing(world: ConsumeWorld, replica: ConsumeReplica) -> None:
    """Its messages would come only after their time-out."""
    session = await replica.opened()
    async with httpx.AsyncClient(base_url=session.http.base_url, trust_env=False, verify=False) as leaving:
        waiting = asyncio.ensure_future(leaving.get(f"{session.path}/messages?wait=60"))
        await until(lambda: [each.core._requests for each in replica.service._sessions.values()] == [1], DEADLINE_S)
        waiting.cancel()
    await until(lambda: [each.core._requests for each in replica.service._sessions.values()] == [0], DEADLINE_S)
    await world.publish("a")
    assert values(await session.take()) == ["a"]


async def test_window_and_max_bound_what_is_given(world: ConsumeWorld, replica: ConsumeReplica) -> None:
    """A client that acknowledges nothing gets no more."""
    await world.publish(*"abcde")
    session = await replica.opened(window=3)
    first = await session.take(2)
    rest = await session.take()
    assert (len(first), len(rest)) == (2, 1)
    assert await session.take(wait=0) == []
    waiting = asyncio.ensure_future(session.take())
    assert await session.settled("acks", ids(first)) == [(True, None)] * 2
    assert len(await waiting) in (1, 2)


async def test_answer_is_bounded_in_bytes(world: ConsumeWorld, replica: ConsumeReplica) -> None:
    for _ in range(4):
        await world.publish(bytes(900_000))
    session = await replica.opened()
    assert len(await session.take()) == 2
    assert len(await session.take()) == 2


async def test_message_that_cannot_be_decoded_hides_none_before_it(
    world: ConsumeWorld, replica: ConsumeReplica
) -> None:
    """What was taken before it is answered first; then comes the error."""

    await world.publish("a")
    await world.publish("broken")
    world.cluster.consume.mangle = lambda entry: (
        replace(entry, data=bytes(len(entry.data))) if entry.base_index == 1 else entry
    )
    session = await replica.opened()
    assert values(await session.take_all(1)) == ["a"]
    await session.refused(500, "corrupt_entry")


async def test_sessions_are_bounded_in_all_and_for_each_caller(world: ConsumeWorld) -> None:
    """One caller gets half of them. A session that ends makes room."""
    replica = await world.replica(sessions_max=4)
    await world.publish("a")
    one, _ = await replica.opened(), await replica.opened()
    answer = await replica.http.post(SESSIONS, json={"ack_timeout": 30})
    assert (answer.status_code, answer.json()["code"], answer.json()["limit"]) == (429, "too_many_requests", 2)
    assert int(answer.headers["retry-after"]) > 0
    await one.http.delete(one.path)
    await replica.opened()


async def test_what_waits_for_a_session_is_bounded(world: ConsumeWorld) -> None:
    """By its share of the budget, and one entry of each partition; everything still comes."""
    replica = await world.replica(sessions_max=20, bytes_max=4 << 20)
    budget, sent = replica.service.bytes, [f"{number}" * 16_384 for number in range(100, 160)]
    for value in sent:
        await world.publish(value)
    session = await replica.opened()
    got: list[str] = []
    while len(got) < len(sent):
        await until(lambda: budget.bytes > 0, DEADLINE_S)
        assert budget.bytes <= budget.share_bytes + 50_000
        taken = await session.take(3)
        got += values(taken)
        await session.settled("acks", [each["id"] for each in taken])
    assert got == sent
    await session.http.delete(session.path)
    await until(lambda: budget.bytes == 0, DEADLINE_S)


async def test_caller_whose_sessions_hold_too_much_loses_the_largest(world: ConsumeWorld) -> None:
    """An entry goes whole, so many sessions of one role may have more than their shares. No message is lost by it."""
    replica = await world.replica(sessions_max=20, bytes_max=4 << 20)
    value = os.urandom(700_000).hex()  # an entry of 1.4 MB; a caller may hold 2 MiB
    await world.publish(value)
    one = await replica.opened()
    await until(lambda: replica.service.bytes.bytes > 1 << 20, DEADLINE_S)
    other = await replica.opened(path=SESSIONS.replace("billing", "audit"))
    await until(lambda: replica.service.session_count == 1, DEADLINE_S)
    assert replica.service.bytes.bytes < 2 << 20
    gone = [await each.http.get(f"{each.path}/messages?wait=0") for each in (one, other)]
    assert sorted(each.status_code for each in gone) == [200, 410]
    for each in (one, other):
        await each.http.delete(each.path)
    for path in (SESSIONS, SESSIONS.replace("billing", "audit")):
        again = await replica.opened(path=path)
        assert values(await again.take_all(1)) == [value]
        await again.http.delete(again.path)


async def test_caller_at_its_limit_opens_no_further_session(world: ConsumeWorld) -> None:
    """Until its messages are taken."""
    replica = await world.replica(sessions_max=20, bytes_max=4 << 20)
    for _ in range(2):
        await world.publish(os.urandom(500_000).hex())
    for name in ("one", "two"):
        await replica.opened(path=SESSIONS.replace("billing", name))
    await until(lambda: replica.service.bytes.bytes > 19 * 100_000, DEADLINE_S)
    replica.service.bytes.caller_bytes_max = replica.service.bytes.bytes
    answer = await replica.http.post(SESSIONS, json={"ack_timeout": 30})
    assert (answer.status_code, answer.json()["code"]) == (429, "too_many_requests")
    assert "bytes of messages wait" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "ack_timeout"),
        ({"ack_timeout": 0}, "ack_timeout"),
        ({"ack_timeout": 3_601}, "ack_timeout"),
        ({"ack_timeout": "30"}, "ack_timeout"),
        ({"ack_timeout": 30, "window": 10_001}, "window"),
        ({"ack_timeout": 30, "type": "any"}, "type"),
        ({"ack_timeout": 30, "effects": "x"}, "effects"),
    ],
)
async def test_session_with_bad_input_is_refused(
    world: ConsumeWorld, replica: ConsumeReplica, body: dict[str, Any], field: str
) -> None:
    await world.publish("a")
    answer = await replica.http.post(SESSIONS, json=body)
    assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (422, "invalid_argument", field)
    assert replica.service.session_count == 0


async def test_requests_with_bad_input_are_refused(world: ConsumeWorld, replica: ConsumeReplica) -> None:
    await world.publish("a")
    session = await replica.opened()
    for part in ("/messages?max=1001", "/messages?max=0", "/messages?wait=61", "/messages?wait=x"):
        await session.refused(422, "invalid_argument", part=part)
    for what, body in (
        ("/acks", {"ids": []}), ("/acks", {"ids": ["0.0.0"] * 10_001}), ("/acks", {"ids": [1]}),
        ("/nacks", {"ids": ["0.0.0"], "delay": -1}), ("/nacks", {"ids": ["0.0.0"], "delay": 1e12}),
    ):  # fmt: skip
        await session.refused(422, "invalid_argument", "POST", what, json=body)
    nothing = HttpSession(replica.http, SESSIONS.replace("orders", "absent"))
    await nothing.refused(404, "topic_not_found", "POST", "", json={"ack_timeout": 30})
    assert "public/default/absent" not in world.cluster.topics


async def test_second_exclusive_session_is_refused(world: ConsumeWorld, replica: ConsumeReplica) -> None:
    await world.publish("a")
    session = await replica.opened(type="exclusive")
    assert values(await session.take()) == ["a"]
    answer = await replica.http.post(SESSIONS, json={"ack_timeout": 30, "type": "exclusive"})
    assert (answer.status_code, answer.json()["code"]) == (409, "consumer_busy")
    answer = await replica.http.post(SESSIONS, json={"ack_timeout": 30, "type": "shared"})
    assert (answer.status_code, answer.json()["code"]) == (409, "subscription_type_mismatch")
    assert replica.service.session_count == 1


@pytest.mark.hazard("consumer-without-effects")
async def test_subscription_whose_effects_are_in_a_store_is_refused(
    world: ConsumeWorld, replica: ConsumeReplica
) -> None:
    """A session keeps no effects: it would acknowledge messages without them."""
    await world.publish("a")
    session = await replica.opened()
    await session.http.delete(session.path)
    state = world.cluster.topic("orders").ack_state
    (number,) = state.subscriptions
    bound = EffectsBound(number, SeekEpoch(0), Generation(0), "5a" * 16, "billing", 0, rebind=False)
    state.fold_changes(Position(LedgerId(1), EntryId(state.position.entry_id + 1)), [bound])
    await world.cluster.take_over()
    answer = await replica.http.post(SESSIONS, json={"ack_timeout": 30})
    assert (answer.status_code, answer.json()["code"]) == (409, "store_mismatch")
    assert replica.service.session_count == 0


# --- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.hazard("abandoned-http-session")
async def test_abandoned_session_ends_and_its_messages_go_to_others(
    world: ConsumeWorld, replica: ConsumeReplica
) -> None:
    """Also those that only waited for it: they have no time-out."""
    await world.publish(*"abcd")
    abandoned, other = await replica.opened(ack_timeout=3), await replica.opened()
    assert len(await abandoned.take(1)) == 1
    assert sorted(values(await other.take_all(4))) == list("abcd")
    await abandoned.refused(410, "session_gone")


async def test_deleted_subscription_ends_its_session(world: ConsumeWorld, replica: ConsumeReplica) -> None:
    await world.publish("a")
    session = await replica.opened()
    waiting = asyncio.ensure_future(session.http.get(f"{session.path}/messages?wait=60"))
    (a,) = (await waiting).json()["messages"]
    assert world.cluster.owner is not None
    world.cluster.owner.consumers.of(world.cluster.topic("orders")).delete("billing")
    await until(lambda: replica.service.session_count == 0, DEADLINE_S)
    await session.refused(410, "session_gone", "POST", "/acks", json={"ids": [a["id"]]})


async def test_stop_of_the_service_answers_long_polls_and_returns_messages(
    world: ConsumeWorld, replica: ConsumeReplica
) -> None:
    """The next session gets them at once, not after the ack time-out."""
    await world.publish("a")
    session = await replica.opened()
    assert values(await session.take()) == ["a"]
    waiting = asyncio.ensure_future(session.http.get(f"{session.path}/messages?wait=60"))
    await until(lambda: [each.core._requests for each in replica.service._sessions.values()] == [1], DEADLINE_S)
    await replica.stop()
    answer = await waiting
    assert (answer.status_code, answer.json()["code"]) == (410, "session_gone")
    other = await world.replica()
    assert values(await (await other.opened()).take()) == ["a"]
