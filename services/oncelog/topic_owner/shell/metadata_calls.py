"""Unary calls of an owner to any metadata service."""

from collections.abc import Callable

from oncelog.core.errors import ServiceUnavailable
from oncelog.rpc.channel import Channel
from oncelog.rpc.methods import AnswerT, ReceivedAnswerT, ReceivedRequestT, RequestT, UnaryMethod

NewChannel = Callable[[str], Channel]


class MetadataCalls:
    """addresses: of the replicas to which this owner has a stream; set when the links are there."""

    def __init__(self) -> None:
        self.addresses: Callable[[], list[str]] = list
        self.new_channel: NewChannel | None = None

    async def call(
        self,
        method: UnaryMethod[RequestT, ReceivedRequestT, AnswerT, ReceivedAnswerT],
        request: RequestT,
        *,
        timeout_ms: int,
    ) -> ReceivedAnswerT:
        """Raises the service's error; ServiceUnavailable if this owner has no metadata service now."""
        addresses = self.addresses()
        if not addresses or self.new_channel is None:
            raise ServiceUnavailable("this owner is connected to no metadata service now")
        channel = self.new_channel(addresses[0])
        try:
            return await channel.call(method, request, timeout_ms=timeout_ms)
        finally:
            await channel.close()
