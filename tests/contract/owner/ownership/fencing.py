"""Fences the open ledger of a topic, as a newer owner does."""

from oncelog.core.topic.topic import open_ledger
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.storage_codec import FENCE
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.wire import storage_pb2 as pb
from tests.contract.owner.owner_world import OwnerWorld


async def fence(world: OwnerWorld, runner: TopicRunner) -> None:
    """As a newer owner does at B."""
    ledger = open_ledger(runner.core)
    assert ledger is not None
    async with Channel(world.node.address) as node:
        request = pb.FenceRequest(target=world.node.incarnation, ledger_id=ledger.ledger_id)
        answer = await node.call(FENCE, request, timeout_ms=30_000)
    assert answer.status == pb.STORAGE_STATUS_OK
