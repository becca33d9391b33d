"""Sessions of HTTP consume reached through another replica, and streams of server-sent events at both."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from oncelog.core.names import NamespaceName
from oncelog.metadata.http_consume.bodies import Event
from oncelog.metadata.http_consume.event_stream import EventStream
from oncelog.metadata_store.records.policies import Policies
from oncelog.metadata_store.records.policy_store import PolicyStore
from tests.cluster.until import until
from tests.contract.process.security_world import ROOT, bearer, secured
from tests.contract.rest.consume_world import DEADLINE_S, SESSIONS, ConsumeReplica, ConsumeWorld, HttpSession

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def world() -> AsyncIterator[ConsumeWorld]:
    async with ConsumeWorld.running() as running:
        yield running


@pytest_asyncio.fixture
async def replica(world: ConsumeWorld) -> ConsumeReplica:
    return await world.replica()


@pytest_asyncio.fixture
async def other(world: ConsumeWorld, replica: ConsumeReplica) -> ConsumeReplica:
    """It knows of the first one."""
    return await world.replica()


def ids(messages: list[dict[str, Any]]) -> list[str]:
    return [message["id"] for message in messages]


def values(messages: list[dict[str, Any]]) -> list[str]:
    return [message["value"] for message in messages]


# --- through another replica ------------------------------------------------------------------------------------------


async def test_session_is_used_through_any_replica(
    world: ConsumeWorld, replica: ConsumeReplica, other: ConsumeReplica
) -> None:
    """A load balancer sends each request somewhere. Answers and errors are those of the replica that keeps it."""
    session = await replica.opened()
    far = session.through(other)
    waiting = asyncio.ensure_future(far.take(wait=60))
    await until(lambda: [each.core._requests for each in replica.service._sessions.values()] == [1], DEADLINE_S)
    await world.publish("a", "b")
    a, b = ids(await waiting)
    assert await far.settled("acks", [a, "9.0.0"]) == [(True, None), (False, "not_outstanding")]
    assert await far.settled("nacks", [b], delay=0) == [(True, None)]
    assert values(await session.take()) == ["b"]
    await far.refused(422, "invalid_argument", "POST", "/acks", json={"ids": []})
    assert (await far.http.delete(far.path)).status_code == 204
    await session.refused(410, "session_gone")
    await far.refused(410, "session_gone")
    assert other.service.session_count == replica.service.session_count == 0


async def test_client_of_another_replica_that_is_gone_takes_nothing(
    world: ConsumeWorld, replica: ConsumeReplica, other: ConsumeReplica
) -> None:
    """Its disconnection reaches the replica that keeps the session."""
    session = await replica.opened()
    async with httpx.AsyncClient(base_url=other.http.base_url, trust_env=False, verify=False) as leaving:
        waiting = asyncio.ensure_future(leaving.get(f"{session.path}/messages?wait=60"))
        await until(lambda: [each.core._requests for each in replica.service._sessions.values()] == [1], DEADLINE_S)
        waiting.cancel()
    await until(lambda: [each.core._requests for each in replica.service._sessions.values()] == [0], DEADLINE_S)
    await world.publish("a")
    assert values(await session.take()) == ["a"]


async def test_replica_that_is_gone_takes_its_sessions_with_it(
    world: ConsumeWorld, replica: ConsumeReplica, other: ConsumeReplica
) -> None:
    """The answer says what to do, and the next session gets what was not acknowledged, and nothing else."""
    await world.publish("a", "b")
    session = await replica.opened()
    a, _ = ids(await session.take())
    assert await session.settled("acks", [a]) == [(True, None)]
    await replica.stop()
    far = session.through(other)
    detail = await far.refused(410, "session_gone")
    assert "Open another one" in detail
    await far.refused(410, "session_gone", "POST", "/acks", json={"ids": [a]})
    assert values(await (await other.opened()).take()) == ["b"]


async def test_no_id_leads_to_another_address(world: ConsumeWorld, replica: ConsumeReplica) -> None:
    """A hostile client names anything."""
    for name in (
        "x",
        "0" * 12 + "-" + "0" * 32,
        f"{replica.service.replicas.own}-{'0' * 32}",
        "127.0.0.1:1-" + "0" * 32,
    ):
        session = HttpSession(replica.http, f"{SESSIONS}/{name}")
        await session.refused(410, "session_gone")
        await session.refused(410, "session_gone", "DELETE", "")
        await session.refused(410, "session_gone", "POST", "/acks", json={"ids": ["0.0.0"]})


async def test_session_belongs_to_its_role_and_place(world: ConsumeWorld, tmp_path: Path) -> None:
    """Also through another replica, which forwards the caller's own token. Without the right, nothing is told; a right
    that is revoked ends the use."""
    security = secured(tmp_path)
    replica, other = await world.replica(security=security), await world.replica(security=security)
    await world.publish("a")
    policies, namespace = PolicyStore(world.session), NamespaceName("public", "default")

    async def grant(**rights: str) -> None:
        permissions = {role: (right,) for role, right in rights.items()}
        await policies.change(namespace, lambda _: Policies(permissions=permissions))

    await grant(clerk="consume", rival="consume", till="produce")
    body = {"ack_timeout": 30, "start": "earliest"}
    for headers, status, code in (({}, 401, "unauthenticated"), (bearer("till"), 403, "permission_denied")):
        answer = await replica.http.post(SESSIONS, json=body, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
    opened = await replica.http.post(SESSIONS, json=body, headers=bearer("clerk"))
    path = f"{SESSIONS}/{opened.json()['session']}"
    for at in (replica, other):
        session = HttpSession(at.http, path)
        await session.refused(410, "session_gone", headers=bearer("rival"))
        await session.refused(410, "session_gone", headers=bearer(ROOT))
        await session.refused(403, "permission_denied", headers=bearer("till"))
        elsewhere = HttpSession(at.http, path.replace("billing", "audit"))
        await elsewhere.refused(410, "session_gone", headers=bearer("clerk"))
        answer = await at.http.get(f"{path}/messages?wait=0", headers=bearer("clerk"))
        assert answer.status_code == 200
    await grant(clerk="produce")
    for at in (replica, other):
        await HttpSession(at.http, path).refused(403, "permission_denied", headers=bearer("clerk"))


# --- streams ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("far", [False, True], ids=["at the replica", "through another one"])
async def test_stream_sends_messages_as_they_arrive(
    world: ConsumeWorld, replica: ConsumeReplica, other: ConsumeReplica, far: bool
) -> None:
    """And ends with the reason when the session does."""
    opened = await replica.opened()
    session = opened.through(other) if far else opened
    async with session.stream() as events:
        await world.publish("a", "b")
        (kind, name, first), second = await events.next(), (await events.next())[2]
        assert (kind, name, first["value"], second["value"]) == ("message", first["id"], "a", "b")
        assert await session.settled("acks", ids([first, second])) == [(True, None)] * 2
        await world.publish("c")
        assert values(await events.messages(1)) == ["c"]
        await opened.http.delete(opened.path)
        kind, _, problem = await events.next()
        assert (kind, problem["code"], problem["status"]) == ("end", "session_gone", 410)
        with pytest.raises(EOFError):
            await events.next()
    await session.refused(410, "session_gone", headers={"Accept": "text/event-stream"})


@pytest.mark.parametrize("far", [False, True], ids=["at the replica", "through another one"])
async def test_stream_that_comes_back_gets_again_what_it_may_not_have_received(
    world: ConsumeWorld, replica: ConsumeReplica, other: ConsumeReplica, far: bool
) -> None:
    """Behind Last-Event-ID, and nothing that is acknowledged."""
    await world.publish(*"abcd")
    opened = await replica.opened()
    session = opened.through(other) if far else opened
    async with session.stream() as events:
        a, b, _, d = await events.messages(4)
    assert await session.settled("acks", [d["id"]]) == [(True, None)]
    async with session.stream(last=a["id"]) as events:
        again = await events.messages(2)
        assert sorted(values(again)) == ["b", "c"]
        assert {each["delivery_count"] for each in again} == {2}
    assert await session.settled("acks", [a["id"], b["id"]]) == [(True, None)] * 2
    async with session.stream(last="unknown") as events:
        assert values(await events.messages(1)) == ["c"]
    assert await session.take(wait=0) == []
    assert values(await session.take(last="unknown")) == ["c"]


async def test_newer_stream_ends_an_older_one(world: ConsumeWorld, replica: ConsumeReplica) -> None:
    """A client that lost its connection is back before anybody has noticed."""
    session = await replica.opened()
    async with session.stream() as older, session.stream() as newer:
        kind, _, problem = await older.next()
        assert (kind, problem["code"]) == ("end", "conflict")
        await world.publish("a")
        assert values(await newer.messages(1)) == ["a"]


@pytest.mark.hazard("abandoned-http-session")
@pytest.mark.parametrize("far", [False, True], ids=["at the replica", "through another one"])
async def test_stream_whose_client_acknowledges_nothing_ends(
    world: ConsumeWorld, replica: ConsumeReplica, other: ConsumeReplica, far: bool
) -> None:
    """Its connection may be open long after its client is gone. Others get its messages."""
    opened = await replica.opened(ack_timeout=3)
    session = opened.through(other) if far else opened
    async with session.stream() as events:
        await world.publish("a")
        found = await events.messages(1)
        while "code" not in found[-1]:
            found += await events.messages(1)
        assert found[-1]["code"] == "session_gone"
    assert values(await (await other.opened()).take()) == ["a"]


async def test_stream_takes_nothing_for_a_client_that_does_not_read() -> None:
    """Backpressure: what a client does not read stays in the log, and a client that reads nothing is cut off."""
    taken, sent = list[float](), list[dict[str, Any]]()

    async def take(wait_s: float, gone: "asyncio.Future[None]") -> list[Event]:
        taken.append(wait_s)
        return [Event("1.0.0", b"{}")]

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    async def send(message: Any) -> None:
        sent.append(message)
        if len(sent) == 3:
            await asyncio.Event().wait()

    async with asyncio.timeout(DEADLINE_S):
        await EventStream([], take, write_s=0.05)({"type": "http"}, receive, send)
    assert len(taken) == 1
    assert [message.get("body") for message in sent] == [None, b": \n\n", b"id: 1.0.0\ndata: {}\n\n"]
