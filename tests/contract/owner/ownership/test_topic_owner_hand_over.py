"""The order in which a draining owner waits and reports, and that it never waits for an unresponsive peer."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from oncelog.core.errors import StoreUnavailable
from oncelog.runtime.settings import TopicOwnerSettings
from oncelog.topic_owner.owner import Owner

pytestmark = pytest.mark.asyncio

DEADLINE_S = 30.0
SETTINGS = TopicOwnerSettings(drain_timeout_ms=1_600, stability_timeout_ms=1_000)


class Surroundings:
    """Registry, links, view and topics of one owner, as far as a hand-over asks them. Keeps what was asked."""

    def __init__(self, *, topics: int, owners: Callable[[], int], hear: bool = True) -> None:
        self.asked: list[str] = []
        self.owners = self.topics = self
        self.stability = None
        self.draining = False
        self._topics, self._owners, self._hear = topics, owners, hear

    def __len__(self) -> int:
        return self._topics

    async def live(self) -> list[int]:
        self.asked.append("owners")
        return list(range(self._owners()))

    async def until_stable(self, *_: object, timeout_ms: int) -> bool:
        assert timeout_ms == SETTINGS.stability_timeout_ms
        assert not self.draining, "nothing new is taken while the topics stay"
        self.asked.append("stable")
        return True

    async def report_draining(self) -> int:
        self.asked.append("say")
        await asyncio.Event().wait() if not self._hear else None
        return 2


async def hand_over(there: Surroundings) -> bool:
    owner = Owner(SETTINGS, until_stable=there.until_stable)
    owner.topics = cast("Any", there)
    asking = cast("Any", there)
    async with asyncio.timeout(DEADLINE_S):
        return await owner._hand_over(asking, asking, asking)


def unanswered() -> int:
    raise StoreUnavailable("ZooKeeper chooses a leader")


async def test_topics_stay_until_the_cluster_is_stable() -> None:
    there = Surroundings(topics=2, owners=lambda: 2)
    assert await hand_over(there)
    assert there.asked == ["owners", "stable", "owners", "say"]
    assert there.draining


async def test_drain_waits_for_an_unavailable_zookeeper() -> None:
    """An outage was read as "no other owner exists": all topics were closed, without an owner until ZooKeeper was
    back.
    """
    there = Surroundings(topics=2, owners=unanswered)
    assert await hand_over(there)
    assert there.asked == ["owners", "stable", "owners", "say"]


async def test_only_owner_does_not_wait() -> None:
    """At once, or when the last other owner ends."""
    there = Surroundings(topics=2, owners=lambda: 1)
    assert not await hand_over(there)
    assert there.asked == ["owners"]
    counts = iter([2, 1])
    there = Surroundings(topics=2, owners=lambda: next(counts))
    assert not await hand_over(there)
    assert there.asked == ["owners", "stable", "owners"]


async def test_owner_without_topics_does_not_wait() -> None:
    there = Surroundings(topics=0, owners=lambda: 2)
    assert await hand_over(there)
    assert there.asked == ["owners", "say"]


async def test_metadata_service_that_does_not_read_does_not_delay_the_drain() -> None:
    there = Surroundings(topics=2, owners=lambda: 2, hear=False)
    assert not await hand_over(there)
