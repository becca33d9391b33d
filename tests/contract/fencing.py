"""Fences the open ledger of a topic, as a newer owner does."""

from oncelog.core.ledger.member_status import ReadStatus
from oncelog.core.topic.topic import open_ledger
from oncelog.rpc.channel import Channel
from oncelog.rpc.storage_codec import FENCE, FenceRequest
from oncelog.topic_owner.topic_runner import TopicRunner
from tests.contract.owner_world import OwnerWorld


async def fence(world: OwnerWorld, runner: TopicRunner) -> None:
    """As a newer owner does at B."""
    ledger = open_ledger(runner.core)
    assert ledger is not None
    async with Channel(world.node.address) as node:
        answer = await node.call(FENCE, FenceRequest(world.node.incarnation, ledger.ledger_id), timeout_ms=30_000)
    assert answer.status is ReadStatus.OK
