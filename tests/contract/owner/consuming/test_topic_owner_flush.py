"""What a flush of the SDK rests on, at a real owner: the answer to an acknowledgement of no message."""

from pathlib import Path

import pytest

from oncelog.core.acks.changes import IndexRange, SubscriptionType
from oncelog.core.delivery.events import AckRequested, AnswerAck, ConsumerDetached, FlowReported
from oncelog.core.errors import ConsumerClosed, StaleSeekEpoch
from oncelog.core.ids import SeekEpoch
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.wire import owner_pb2
from tests.contract.owner.consuming.test_topic_owner_consuming import stored
from tests.contract.owner.consuming.test_topic_owner_subscriptions import Administrator
from tests.contract.owner.owner_world import owner_world
from tests.contract.sdk.fakes.consume_client import WINDOW, ConsumeClient

pytestmark = pytest.mark.asyncio


def begun(runner: TopicRunner) -> list[list[int]]:
    """Of each consumer, the messages that its application has, as the owner knows."""
    assert runner.core.serving is not None
    return [list(each.out.begun) for one in runner.core.serving.subscriptions for each in one.consumers]


@pytest.mark.parametrize("kind", list(SubscriptionType))
async def test_acknowledgement_of_nothing_is_answered_behind_reports(tmp_path: Path, kind: SubscriptionType) -> None:
    """Nothing else is: neither credit and what the application has received, nor the end of a consumer. The answer
    comes at a former seek epoch, too, and from a stream whose consumer has detached."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, *[2] * 5)
        client = ConsumeClient(channel, runner)
        attached = await client.attach(kind)
        assert len(await client.received(10)) == 10
        number, epoch = attached.consumer, attached.seek_epoch
        for request, last in enumerate((3, 7), start=1):
            report = FlowReported(number, last + 1, WINDOW, (IndexRange(0, last),), 10, epoch)
            await client.send(report, AckRequested(number, request, epoch, ()))
            answer = await client.report(AnswerAck)
            assert (answer.request, answer.error, answer.acked_below) == (request, None, 0)
            assert begun(runner) == [list(range(last + 1))]
        await Administrator(channel, runner).change(seek=owner_pb2.ReaderStart(index=2))
        await client.send(AckRequested(number, 3, epoch, ()))
        assert isinstance((await client.report(AnswerAck)).error, StaleSeekEpoch)
        await client.send(ConsumerDetached(number, lost=False), AckRequested(number, 0, SeekEpoch(0), ()))
        assert isinstance((await client.report(AnswerAck)).error, ConsumerClosed)
        assert begun(runner) == []
