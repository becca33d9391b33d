"""Topics without an owner: how often their records are read, and when it is not known which they are."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from typing import cast

import pytest

from oncelog.core.errors import CorruptEntry, StoreUnavailable
from oncelog.core.formats.topic_record import TopicRecord
from oncelog.core.ids import Incarnation, OwnerEpoch, TopicId
from oncelog.core.topic.listing import NAMED_MAX
from oncelog.metadata.observing.unowned_topics import UnownedTopics
from oncelog.metadata.owners.owners import Owners
from oncelog.metadata.service import running_tasks
from oncelog.metadata_store.records.topic_store import TopicStore
from tests.cluster.until import until

pytestmark = pytest.mark.asyncio
DEADLINE_S = 30.0
LIVE, LOST = Incarnation("a" * 32), Incarnation("b" * 32)


@dataclass
class _Records:
    """Stands for the topic records. held: walks wait for it; None: they do not. failing: ZooKeeper does not answer."""

    records: list[TopicRecord | CorruptEntry]
    held: asyncio.Event | None = None
    failing: bool = False
    walks: int = 0

    async def each(self) -> AsyncGenerator[TopicRecord | CorruptEntry, None]:
        self.walks += 1
        if self.held is not None:
            await self.held.wait()
        if self.failing:
            raise StoreUnavailable("ZooKeeper does not answer")
        for record in self.records:
            yield record


class _Owners:
    """Stands for the owners: all but LOST are live."""

    def __init__(self) -> None:
        self.change = asyncio.Event()

    def is_lost(self, owner: Incarnation) -> bool:
        return owner == LOST


def record(name: str, owner: Incarnation | None = LOST, epoch: int = 1) -> TopicRecord:
    return TopicRecord(TopicId(name.encode().hex()), f"public/default/{name}", owner, OwnerEpoch(epoch))


async def test_only_topics_that_an_owner_has_served_and_none_serves_are_found() -> None:
    """By full name. A record that cannot be read hides no other."""
    some = [record("z"), record("served", LIVE), record("never", None, 0), record("closed", None)]
    records = _Records([*some, CorruptEntry("damaged")])
    async with running_tasks() as start:
        unowned = UnownedTopics(cast("TopicStore", records), cast("Owners", _Owners()), start)
        assert not unowned.is_unowned("public/default/z")
        found = await unowned.found(lambda name: True)
        assert found == (2, ["public/default/closed", "public/default/z"])
        assert [unowned.is_unowned(f"public/default/{name}") for name in ("z", "served", "never")] == [
            True,
            False,
            False,
        ]


async def test_one_walk_answers_all_callers_with_few_names() -> None:
    """A thousand viewers cost one walk, and 5,000 topics ten names. A walk that waits holds no caller for long."""
    records = _Records([record(f"t{number:04}") for number in range(5_000)], held=asyncio.Event())
    assert records.held is not None
    async with running_tasks() as start:
        unowned = UnownedTopics(cast("TopicStore", records), cast("Owners", _Owners()), start)
        asked = [asyncio.ensure_future(unowned.found(lambda name: True)) for _ in range(1_000)]
        await unowned.look(wait_s=0)
        await until(lambda: records.walks == 1, DEADLINE_S)
        records.held.set()
        for one in asked:
            found = await one
            assert found is not None
            assert (found.topics, len(found.first)) == (5_000, NAMED_MAX)
        assert records.walks == 1


async def test_nothing_is_known_before_the_first_walk_has_ended_and_after_one_that_failed() -> None:
    """An unknown number is not 0."""
    records, owners = _Records([record("z")], failing=True), _Owners()
    async with running_tasks() as start:
        unowned = UnownedTopics(cast("TopicStore", records), cast("Owners", owners), start)
        assert await unowned.found(lambda name: True) is None
        assert not unowned.is_unowned("public/default/z")
        records.failing = False

        async def known() -> bool:
            return await unowned.found(lambda name: True) == (1, ["public/default/z"])

        await until(known, DEADLINE_S)
        records.records = [replace(record("z"), owner=LIVE)]

        async def gone() -> bool:
            return await unowned.found(lambda name: True) == (0, [])

        await until(gone, DEADLINE_S)
