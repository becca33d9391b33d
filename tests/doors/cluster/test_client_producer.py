"""The producer of a door's client, without a cluster: policies decide about a batch where they must."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from oncelog.client.gateways import PackedProducer
from oncelog.core.errors import InvariantViolated, PermissionDenied, StaleSequence
from oncelog.runtime.tasks import BackgroundTasks
from oncelog_doors.core.pulsar.verdicts import Accepted, Ids, Rejected, TopicRules, Verdict
from oncelog_doors.log_client.client_policies import ClientPolicies, PoliciesOfTopic
from oncelog_doors.log_client.client_producer import ClientProducer, PreparedEntry
from oncelog_doors.log_client.stored_contents import StoredContents
from tests.cluster.until import until

DEADLINE_S = 30.0


class World:
    """A producer whose batches are all stale. policies: of the topic; None: they cannot be read."""

    def __init__(self, *, age_s: float = 3600.0) -> None:
        self.policies: ClientPolicies | None = ClientPolicies()
        self.asked = 0
        self.answers = asyncio.Event()
        self.answers.set()
        self.tasks = BackgroundTasks()
        self.verdicts: list[Verdict | None] = []
        self.closed = False
        policies = PoliciesOfTopic(self._ask, age_s=age_s)
        packed, contents = cast("PackedProducer", self), cast("StoredContents", _NoContents())
        self.producer = ClientProducer(packed, policies, contents, self.tasks)

    async def _ask(self) -> ClientPolicies:
        self.asked += 1
        await self.answers.wait()
        if self.policies is None:
            raise PermissionDenied("the door has no right")
        return self.policies

    def send_nowait(self, entry: object, then: Callable[[Any, Any], None]) -> None:
        """Of `PackedProducer`."""
        then(None, StaleSequence("never stored"))

    async def close(self, *, gives_up_name: bool) -> None:
        """Of `PackedProducer`."""
        self.closed = True

    def give(self, count: int = 1) -> None:
        for number in range(count):
            self.producer.give(PreparedEntry(Ids(number), cast("Any", None)), self.verdicts.append, lambda: None)

    async def verdict(self) -> Verdict | None:
        self.verdicts.clear()
        self.give()
        await until(lambda: self.verdicts, DEADLINE_S)
        return self.verdicts[0]


class _NoContents:
    def close(self) -> None:
        """Nothing is compared."""

    def compare(self, *_: object) -> None:
        raise InvariantViolated("a stale batch is not compared")


@pytest.mark.asyncio
async def test_batches_that_wait_ask_for_policies_once() -> None:
    """A change is followed when the answer has become old."""
    world = World()
    world.give(5)
    await until(lambda: len(world.verdicts) == 5, DEADLINE_S)
    assert all(isinstance(each, Rejected) for each in world.verdicts)
    assert world.asked == 1
    later = World(age_s=0.0)
    assert isinstance(await later.verdict(), Rejected)
    later.policies = ClientPolicies(rules=TopicRules(accept_stale=True))
    assert await later.verdict() == Accepted()


@pytest.mark.asyncio
async def test_defaults_apply_where_policies_cannot_be_read() -> None:
    """They refuse, and so lose nothing."""
    world = World()
    world.policies = None
    assert isinstance(await world.verdict(), Rejected)


@pytest.mark.asyncio
async def test_producer_that_is_closed_answers_what_waits_for_policies() -> None:
    """That nothing is known: also what has only just come."""
    world = World()
    world.answers.clear()
    world.give()
    await until(lambda: world.asked == 1, DEADLINE_S)
    world.give()
    await world.producer.close(gives_up_name=False)
    await until(lambda: world.verdicts == [None, None], DEADLINE_S)
    assert world.closed
