"""A consume stream, spoken by hand."""

from collections import deque
from collections.abc import Callable
from typing import TypeVar

from oncelog.core.acks.changes import IndexRange, SubscriptionType
from oncelog.core.delivery.events import (
    AckRequested,
    AnswerAck,
    AnswerSubscribe,
    ConsumerOpening,
    DeliverMessages,
    FlowReported,
    HeldMessages,
    Subscribed,
)
from oncelog.core.errors import OncelogError
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.consumer_codec import CONSUME, ConsumerReport, ConsumerRequest, OpenConsumer, ReportedEvent
from oncelog.topic_owner.shell.topic_runner import TopicRunner

ReportT = TypeVar("ReportT")
WINDOW = 1_000


class ConsumeClient:
    """One consume stream, spoken by hand."""

    def __init__(self, channel: Channel, runner: TopicRunner) -> None:
        self.stream = channel.stream(CONSUME)
        self.runner = runner
        self.calls = 0
        self._reports: deque[ReportedEvent] = deque()

    async def send(self, *requests: ConsumerRequest) -> None:
        await self.stream.write(list(requests))

    async def report(self, kind: type[ReportT], wanted: Callable[[ReportT], bool] = lambda _: True) -> ReportT:
        """The next report of this kind; others before it are dropped."""
        while True:
            while self._reports:
                report: ConsumerReport = self._reports.popleft().report
                if isinstance(report, kind) and wanted(report):
                    return report
            self._reports += await anext(aiter(self.stream))

    async def ask(
        self, kind: SubscriptionType, *, name: str = "c", subscription: str = "billing", first_index: int | None = 0,
        resume: HeldMessages | None = None, instance: bytes | None = None,
    ) -> Subscribed | OncelogError:  # fmt: skip
        self.calls += 1
        opening = ConsumerOpening(
            self.calls, subscription, kind, name, instance or name.encode().ljust(16, b"\0"),
            first_index=first_index, resume=resume,
        )  # fmt: skip
        return await self.open(opening)

    async def open(self, opening: ConsumerOpening) -> Subscribed | OncelogError:
        await self.send(OpenConsumer(self.runner.name, self.runner.topic_id, opening))
        return (await self.report(AnswerSubscribe)).result

    async def attach(
        self, kind: SubscriptionType = SubscriptionType.SHARED, *, window: int = WINDOW, name: str = "c",
        resume: HeldMessages | None = None,
    ) -> Subscribed:  # fmt: skip
        result = await self.ask(kind, name=name, resume=resume)
        assert isinstance(result, Subscribed), result
        await self.send(FlowReported(result.consumer, 0, window))
        return result

    async def received(self, count: int) -> list[int]:
        """The indexes of the next `count` messages."""
        got: list[int] = []
        while len(got) < count:
            frame = await self.report(DeliverMessages)
            got += [i for each in frame.entries for first, last in each.ranges for i in range(first, last + 1)]
        return got

    async def ack(self, attached: Subscribed, first: int, last: int, *, request: int = 1) -> AnswerAck:
        ranges = (IndexRange(first, last),)
        await self.send(AckRequested(attached.consumer, request, attached.seek_epoch, ranges))
        return await self.report(AnswerAck, lambda answer: answer.request == request)
