"""A consume stream that opens windows without an end and reads nothing but the answers to its openings."""

from collections.abc import Iterable, Sequence
from typing import Any

import grpc

from oncelog.core.acks.changes import SubscriptionType
from oncelog.core.delivery.events import AnswerSubscribe, ConsumerOpening, FlowReported, Subscribed
from oncelog.core.ids import TopicId
from oncelog.rpc.codecs.consumer_codec import CONSUME, OpenConsumer

#: A window that no client needs.
ENDLESS = 1 << 40
#: A connection of its own, whose buffers do not grow with what arrives.
OPTIONS: list[tuple[str, int]] = [("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0)]


class Unread:
    """metadata: of the call, for a gateway."""

    def __init__(
        self, address: str, topic: str, topic_id: TopicId, *, metadata: Sequence[tuple[str, str]] = ()
    ) -> None:
        self._channel = grpc.aio.insecure_channel(address, options=OPTIONS)
        self._call: Any = self._channel.stream_stream(CONSUME.path)(metadata=tuple(metadata))
        self._topic = (topic, topic_id)
        self.consumers: list[Subscribed] = []

    async def open(self, subscriptions: Iterable[str]) -> None:
        """A shared consumer of each, all openings in one frame, and all windows in another one."""
        names = list(subscriptions)
        openings = [
            ConsumerOpening(
                number, name, SubscriptionType.SHARED, f"c{number}", str(number).encode().ljust(16, b"\0"), 0
            )
            for number, name in enumerate(names)
        ]
        await self._call.write(CONSUME.encode_request([OpenConsumer(*self._topic, opening) for opening in openings]))
        while len(self.consumers) < len(names):
            for each in CONSUME.decode_answer(await self._call.read()):
                assert isinstance(each.report, AnswerSubscribe)
                assert isinstance(each.report.result, Subscribed), each.report.result
                self.consumers.append(each.report.result)
        flows = [FlowReported(each.consumer, 0, ENDLESS) for each in self.consumers]
        await self._call.write(CONSUME.encode_request(flows))

    async def read(self) -> None:
        """Read everything, without an end."""
        while await self._call.read() is not grpc.aio.EOF:
            pass

    async def close(self) -> None:
        self._call.cancel()
        await self._channel.close()
