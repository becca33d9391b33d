"""The reader of a door's client, without a cluster: rights that end while it is open, and damage."""

import asyncio
from typing import cast

import pytest

from oncelog.client.client import AsyncClient
from oncelog.client.gateways import EntryReader, WholeEntry
from oncelog.client.values.messages import StoredBatch
from oncelog.core.access import UNCHECKED, Caller
from oncelog.core.errors import CorruptEntry, PermissionDenied, ReaderClosed, ServiceUnavailable
from oncelog.core.formats.batch import read_cost
from oncelog.core.names import TopicName
from oncelog.runtime.tasks import BackgroundTasks
from oncelog_doors.log_client.log_reader import LogReader
from oncelog_doors.log_client.namespace_answers import NamespaceAnswers
from oncelog_doors.log_client.namespace_grants import Grants, NamespaceGrants
from oncelog_doors.log_client.rights import Rights
from tests.cluster.until import until
from tests.doors.core.pulsar.stored_batches import columns, of_client, stored

DEADLINE_S = 30.0
TOPIC = TopicName("public", "default", "orders")


class Entries:
    """In the place of `EntryReader`. entry: what is taken, again and again."""

    def __init__(self, entry: WholeEntry) -> None:
        self.entry = entry
        self.closed = asyncio.Event()

    def take(self) -> WholeEntry | None:
        return None if self.closed.is_set() else self.entry

    async def arrival(self) -> None:
        await self.closed.wait()
        raise ReaderClosed("the reader was closed")

    async def last_entry(self) -> WholeEntry:
        return self.entry

    def close(self) -> None:
        self.closed.set()


class World:
    """grants: what is known of the namespace; None: it cannot be known now."""

    def __init__(self, caller: Caller, data: bytes, *, skip_first: int = 0) -> None:
        raw = stored(data, skip_first=skip_first)
        self.grants: Grants | None = {"billing": ["consume"]}
        self.asked = 0
        self.tasks = BackgroundTasks()
        self.entries = Entries(WholeEntry(StoredBatch(raw.entry, raw.batch, memoryview(raw.body)), "importer"))
        self.rights = Rights(caller, TOPIC, NamespaceGrants(self._ask))
        self.closed = 0
        self.reader = LogReader(
            cast("AsyncClient", None),
            cast("EntryReader", self.entries),
            self.rights,
            self.tasks,
            every_s=0.001,
            closed=self._closed,
        )

    def _closed(self) -> None:
        self.closed += 1

    async def _ask(self, namespace: str) -> Grants:
        assert namespace == "public/default"
        self.asked += 1
        if self.grants is None:
            raise ServiceUnavailable("no metadata service answers")
        return self.grants


@pytest.mark.asyncio
async def test_role_that_has_lost_its_right_gets_nothing_more() -> None:
    """Whatever waits for it. While that cannot be known, it goes on."""
    world = World(Caller("billing"), columns([b"a"]))
    waiting = asyncio.ensure_future(world.reader.arrival())
    world.grants = None
    await until(lambda: world.asked > 3, DEADLINE_S)
    assert world.reader.take() is not None
    world.grants = {"billing": ["produce"]}
    with pytest.raises(PermissionDenied, match="billing"):
        await asyncio.wait_for(waiting, DEADLINE_S)
    assert world.reader.take() is None
    await world.tasks.close()


@pytest.mark.asyncio
async def test_superuser_is_not_asked_for() -> None:
    """Nor is anyone without authentication."""
    for caller in (UNCHECKED, Caller("root", superuser=True)):
        world = World(caller, columns([b"a"]))
        assert await world.rights.check(may_create=True)
        world.reader.close()
        assert (world.asked, world.entries.closed.is_set()) == (0, True)


@pytest.mark.asyncio
async def test_closed_reader_asks_no_more() -> None:
    """Its watch ends with it."""
    world = World(Caller("billing"), columns([b"a"]))
    await until(lambda: world.asked, DEADLINE_S)
    world.reader.close()
    with pytest.raises(ReaderClosed):
        await world.reader.arrival()
    await until(lambda: not world.tasks._tasks, DEADLINE_S)


@pytest.mark.asyncio
async def test_damage_has_its_place() -> None:
    """An entry that no client can be sent, although its checksum is right."""
    world = World(UNCHECKED, of_client(b"\x0e\x01 no metadata", [1, 2]), skip_first=1)
    entry = world.reader.take()
    assert entry is not None
    assert world.reader.size_of(entry) == read_cost(entry.stored.batch, entry.stored.body)
    with pytest.raises(CorruptEntry, match="5:3"):
        world.reader.prepare(entry, 1000)
    world = World(UNCHECKED, of_client(b"\x0e\x01", [1, 2]))
    with pytest.raises(CorruptEntry, match="5:3"):
        await world.reader.last_id()


@pytest.mark.asyncio
async def test_reader_gives_its_part_of_memory_back_once() -> None:
    """When it is closed, however often."""
    world = World(UNCHECKED, columns([b"a"]))
    assert world.closed == 0
    for _ in range(2):
        world.reader.close()
    assert world.closed == 1


@pytest.mark.asyncio
async def test_readers_of_a_namespace_ask_once_together() -> None:
    """An answer that was asked for after the call is as good as their own; an older one only where that is said."""
    answered, asked = asyncio.Event(), []

    async def ask(namespace: str) -> Grants:
        asked.append(namespace)
        await answered.wait()
        return {"billing": [str(len(asked))]}

    grants = NamespaceGrants(ask)
    first = asyncio.ensure_future(grants.of("public/default"))
    await until(lambda: asked, DEADLINE_S)
    others = [asyncio.ensure_future(grants.of("public/default")) for _ in range(5)]
    other = asyncio.ensure_future(grants.of("public/other"))
    await until(lambda: len(asked) == 2, DEADLINE_S)
    answered.set()
    await asyncio.wait([first, other, *others])
    assert asked == ["public/default", "public/other", "public/default"]
    assert {str(each.result()) for each in others} == {"{'billing': ['3']}"}
    assert await grants.of("public/default", age_s=3600.0) == {"billing": ["3"]}
    assert await grants.of("public/default") == {"billing": ["4"]}


@pytest.mark.asyncio
async def test_failed_answer_is_for_those_that_wait_alone() -> None:
    """Later ones ask again. An answer that is not kept is dropped when nothing waits for it."""
    failing, go_on, asked = [True], asyncio.Event(), []

    async def ask(namespace: str) -> int:
        asked.append(namespace)
        await go_on.wait()
        if failing[0]:
            raise ServiceUnavailable("no metadata service answers")
        return len(asked)

    answers = NamespaceAnswers(ask, keeps=False)
    first = asyncio.ensure_future(answers.of("public/default"))
    await until(lambda: asked, DEADLINE_S)
    others = [asyncio.ensure_future(answers.of("public/default")) for _ in range(5)]
    await asyncio.wait(others, timeout=0)
    go_on.set()
    await asyncio.wait([first, *others])
    assert [type(each.exception()) for each in (first, *others)] == [ServiceUnavailable] * 6
    assert len(asked) == 2
    failing[0] = False
    assert await answers.of("public/default", age_s=3600.0) == 3
    assert await answers.of("public/default", age_s=3600.0) == 4
    kept, failing[0] = NamespaceAnswers(ask), True
    with pytest.raises(ServiceUnavailable):
        await kept.of("public/default")
    failing[0] = False
    assert [await kept.of("public/default", age_s=3600.0) for _ in range(2)] == [6, 6]
