"""The interface of the metadata store: one set of tests for the fake in memory and for a real ZooKeeper."""

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

import pytest

from oncelog.core.errors import NotFound, StoreUnavailable
from oncelog.core.records.status import WriteStatus
from oncelog.metadata_store.session.store_session import CreateStep, DeleteStep, SessionState, Step, WriteStep
from oncelog.metadata_store.session.watch import ChildrenWatch, NodesWatch
from tests.cluster.until import until
from tests.contract.stores.store_backends import DEADLINE_S, Backend, MemoryBackend

T = TypeVar("T")
OK, CONFLICT, UNKNOWN = WriteStatus.OK, WriteStatus.CONFLICT, WriteStatus.UNKNOWN

pytestmark = pytest.mark.asyncio


async def test_written_data_is_read_with_its_version(backend: Backend) -> None:
    """A created node has version 0, and each write adds one."""
    session = await backend.open()
    assert await session.read("/a") is None
    assert await session.create("/a", b"first") is OK
    assert ((await session.read("/a")) or ())[:3] == (b"first", 0, None)
    assert await session.write("/a", b"second", version=0) == (OK, 1)
    assert ((await session.read("/a")) or ())[:3] == (b"second", 1, None)
    assert ((await session.read_unsynced("/a")) or ())[:3] == (b"second", 1, None)


async def test_only_the_named_version_is_replaced(backend: Backend) -> None:
    """Of two writers that read the same version one succeeds; the other changes nothing."""
    one, other = await backend.open(), await backend.open()
    await one.create("/a", b"start")
    assert (await one.write("/a", b"one", version=0)).status is OK
    assert (await other.write("/a", b"other", version=0)).status is CONFLICT
    assert ((await other.read("/a")) or ())[:3] == (b"one", 1, None)
    assert await other.delete("/a", version=0) is CONFLICT
    assert await other.delete("/a", version=1) is OK
    assert await one.read("/a") is None


async def test_absent_node_is_a_conflict_for_write_and_delete(backend: Backend) -> None:
    """Both name a version, and no node has it."""
    session = await backend.open()
    assert (await session.write("/a", b"", version=0)).status is CONFLICT
    assert await session.delete("/a", version=0) is CONFLICT


async def test_create_of_an_existing_node_conflicts_and_without_a_parent_fails(backend: Backend) -> None:
    """The results differ: a conflict can be read, but a missing parent makes every retry fail."""
    session = await backend.open()
    assert await session.create("/a", b"mine") is OK
    assert await session.create("/a", b"theirs") is CONFLICT
    with pytest.raises(NotFound):
        await session.create("/missing/a", b"")
    with pytest.raises(NotFound):
        await session.children("/missing")


async def test_node_with_children_is_not_deleted(backend: Backend) -> None:
    """A folder is deleted last."""
    session = await backend.open()
    await session.ensure_path("/a/b")
    assert await session.delete("/a", version=0) is CONFLICT
    assert await session.children("/a") == ["b"]


async def test_ensured_path_may_partly_exist(backend: Backend) -> None:
    """The path exists afterwards, whichever process created it."""
    session = await backend.open()
    await session.create("/a", b"kept")
    await session.ensure_path("/a/b/c")
    await session.ensure_path("/a/b/c")
    assert ((await session.read("/a")) or ())[:3] == (b"kept", 0, None)
    assert await session.children("/a/b") == ["c"]


async def test_lost_reply_is_unknown_and_the_write_is_applied(backend: Backend) -> None:
    """The server applied it. The caller cannot know that without a read."""
    session = await backend.open()
    await session.create("/a", b"start")
    backend.lose_next_reply(session)
    assert (await session.write("/a", b"done", version=0)).status is UNKNOWN
    assert ((await session.read("/a")) or ())[:3] == (b"done", 1, None)
    backend.lose_next_reply(session)
    assert await session.create("/b", b"") is UNKNOWN
    assert await session.create("/b", b"") is CONFLICT
    backend.lose_next_reply(session)
    assert await session.delete("/b", version=0) is UNKNOWN
    assert await session.read("/b") is None
    backend.lose_next_reply(session)
    assert await session.transact([CreateStep("/c"), CreateStep("/d")]) is UNKNOWN
    assert await session.children("") == ["a", "c", "d"]


async def test_lost_request_is_unknown_and_never_sent_again(backend: Backend) -> None:
    """A write is attempted once. The caller decides about a repetition, after a read."""
    session = await backend.open()
    await session.create("/a", b"start")
    backend.lose_next_request(session)
    assert (await session.write("/a", b"lost", version=0)).status is UNKNOWN
    assert ((await session.read("/a")) or ())[:3] == (b"start", 0, None)
    assert (await session.write("/a", b"done", version=0)).status is OK


async def test_read_survives_a_broken_connection(backend: Backend) -> None:
    """Reads are retried until they are answered."""
    session = await backend.open()
    await session.create("/a", b"kept")
    for _ in range(3):
        await backend.break_connection(session)
        assert ((await session.read("/a")) or ())[:3] == (b"kept", 0, None)
        assert await session.children("") == ["a"]


async def test_transaction_is_all_or_nothing(backend: Backend) -> None:
    """One step that fails rolls the others back, at any position."""
    session = await backend.open()
    await session.create("/a", b"start")
    steps: list[Step] = [CreateStep("/b", b"new"), WriteStep("/a", b"next", 0), CreateStep("/b/c")]
    assert await session.transact([*steps, WriteStep("/a", b"late", 0)]) is CONFLICT
    assert await session.transact([WriteStep("/a", b"late", 7), *steps]) is CONFLICT
    assert await session.transact([CreateStep("/a"), *steps]) is CONFLICT
    with pytest.raises(NotFound):
        await session.transact([*steps, CreateStep("/missing/child")])
    assert await session.read("/b") is None
    assert ((await session.read("/a")) or ())[:3] == (b"start", 0, None)
    assert await session.transact(steps) is OK
    assert ((await session.read("/a")) or ())[:3] == (b"next", 1, None)
    assert await session.children("/b") == ["c"]
    assert await session.transact([DeleteStep("/b/c", 0), DeleteStep("/b", 0)]) is OK
    assert await session.read("/b") is None


async def test_sequential_nodes_ascend_and_are_ephemeral(backend: Backend) -> None:
    """Numbers are never reused, so the lowest is the oldest."""
    one, other = await backend.open(), await backend.open()
    await one.ensure_path("/n")
    statuses, names = zip(*[await one.create_sequential("/n/", b"") for _ in range(3)], strict=True)
    assert set(statuses) == {OK}
    assert names == ("/n/0000000000", "/n/0000000001", "/n/0000000002")
    await one.close()
    assert await other.children("/n") == []
    assert await other.create_sequential("/n/", b"") == (OK, "/n/0000000003")


async def test_ephemeral_node_ends_with_its_session(backend: Backend) -> None:
    """At once when the session is closed. The node names its session."""
    one, other = await backend.open(), await backend.open()
    assert await one.create("/a", b"", ephemeral=True) is OK
    seen = await other.read("/a")
    assert seen is not None
    assert seen.holder == one.session_id
    await one.close()
    assert await other.read("/a") is None


async def test_ephemeral_node_survives_a_broken_connection_but_not_its_session(backend: Backend) -> None:
    """A connection is not a session: only the end of the session is reported as LOST."""
    session, other = await backend.open(), await backend.open()
    states: list[SessionState] = []
    session.add_listener(states.append)
    await session.create("/a", b"", ephemeral=True)
    former = session.session_id
    await backend.break_connection(session)
    await until(lambda: states == [SessionState.SUSPENDED, SessionState.CONNECTED], DEADLINE_S)
    assert session.session_id == former
    assert await other.read("/a") is not None
    await backend.expire(session)
    await until(lambda: states[-2:] == [SessionState.LOST, SessionState.CONNECTED], DEADLINE_S)
    assert session.session_id not in {None, former}
    assert await other.read("/a") is None
    assert await session.create("/a", b"", ephemeral=True) is OK


async def test_session_state_is_reported_until_the_listener_is_removed(backend: Backend) -> None:
    """`state` is the last reported state."""
    session = await backend.open()
    states: list[SessionState] = []
    assert session.state is SessionState.CONNECTED
    session.add_listener(states.append)
    session.remove_listener(states.append)
    await backend.break_connection(session)
    await session.read("/a")
    await until(lambda: session.state is SessionState.CONNECTED, DEADLINE_S)
    assert states == []


async def test_closed_session_answers_nothing(backend: Backend) -> None:
    """Calls fail at once instead of waiting for a timeout."""
    session = await backend.open()
    await session.close()
    await session.close()
    assert session.closed
    with pytest.raises(StoreUnavailable):
        await session.read("/a")
    with pytest.raises(StoreUnavailable):
        await session.create("/a", b"")


async def test_fired_is_called_once_after_a_change(backend: Backend) -> None:
    """A one-shot watch: for data, for creation, and for deletion."""
    session, other = await backend.open(), await backend.open()
    fired: list[str] = []
    assert await session.read("/a", fired=lambda: fired.append("came")) is None
    await other.create("/a", b"0")
    await until(lambda: fired == ["came"], DEADLINE_S)
    await session.read("/a", fired=lambda: fired.append("changed"))
    await other.write("/a", b"1", version=0)
    await until(lambda: fired == ["came", "changed"], DEADLINE_S)
    await other.write("/a", b"2", version=1)
    await session.read("/a", fired=lambda: fired.append("went"))
    await other.delete("/a", version=2)
    await until(lambda: fired == ["came", "changed", "went"], DEADLINE_S)


async def test_children_watch_shows_the_current_names_and_then_each_change(backend: Backend) -> None:
    """Nothing is missed between two items, because the read itself sets the watch."""
    session, other = await backend.open(), await backend.open()
    await session.ensure_path("/n")
    watch = ChildrenWatch(session, "/n")
    assert await next_of(watch) == []
    await other.create("/n/b", b"")
    assert await next_of(watch) == ["b"]
    await other.create("/n/a", b"")
    assert await next_of(watch) == ["a", "b"]
    await other.delete("/n/b", version=0)
    await other.create("/n/c", b"")
    assert await settled(watch, ["a", "c"]) == ["a", "c"]


async def test_children_watch_survives_connection_and_session(backend: Backend) -> None:
    """Changes during an outage are shown afterwards."""
    session, other = await backend.open(), await backend.open()
    await session.ensure_path("/n")
    watch = ChildrenWatch(session, "/n")
    assert await next_of(watch) == []
    await backend.break_connection(session)
    await other.create("/n/a", b"")
    assert await settled(watch, ["a"]) == ["a"]
    await backend.expire(session)
    await other.create("/n/b", b"")
    assert await settled(watch, ["a", "b"]) == ["a", "b"]


async def without_times(watch: NodesWatch) -> AsyncIterator[dict[str, object]]:
    async for nodes in watch:
        yield {name: node[:3] for name, node in nodes.items()}


async def test_nodes_watch_shows_data_and_replaced_nodes(backend: Backend) -> None:
    """A node that was deleted and created again has the same name, but other data."""
    session, other = await backend.open(), await backend.open()
    await session.ensure_path("/n")
    watch = without_times(NodesWatch(session, "/n"))
    assert await next_of(watch) == {}
    await other.create("/n/a", b"0")
    assert await settled(watch, {"a": (b"0", 0, None)})
    await other.write("/n/a", b"1", version=0)
    assert await settled(watch, {"a": (b"1", 1, None)})
    await other.delete("/n/a", version=1)
    await other.create("/n/a", b"2")
    assert await settled(watch, {"a": (b"2", 0, None)})
    await backend.break_connection(session)
    await other.delete("/n/a", version=0)
    await other.create("/n/b", b"3")
    assert await settled(watch, {"b": (b"3", 0, None)})


async def test_watch_ends_with_its_session(backend: Backend) -> None:
    """A task that waits for a change learns that none will come."""
    session = await backend.open()
    await session.ensure_path("/n")
    watch = ChildrenWatch(session, "/n")
    assert await next_of(watch) == []
    waiting = asyncio.ensure_future(next_of(watch))
    await session.close()
    with pytest.raises(StoreUnavailable):
        await waiting


async def next_of(watch: AsyncIterator[T]) -> T:
    async with asyncio.timeout(DEADLINE_S):
        return await anext(watch)


async def settled(watch: AsyncIterator[T], expected: object) -> T:
    """The item that equals `expected`; a watch may show earlier states first."""
    async with asyncio.timeout(DEADLINE_S):
        async for item in watch:
            if item == expected:
                return item
    raise AssertionError("a watch has no end")


async def test_lagging_server_of_the_fake_shows_old_data_until_a_sync() -> None:
    """A real follower may lag at any time; the fake does on request."""
    backend = MemoryBackend()
    session, other = await backend.open(), await backend.open()
    session.faults.fall_behind()
    await other.create("/a", b"")
    assert await session.read_unsynced("/a") is None
    assert ((await session.read("/a")) or ())[:3] == (b"", 0, None)
    assert ((await session.read_unsynced("/a")) or ())[:3] == (b"", 0, None)
