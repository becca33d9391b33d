"""The way through this service to topic owners, for clients that reach nothing else (`oncelog+proxy://`).

A call of an owner's method that names an owner in its metadata (`oncelog-owner`) is passed on to that owner, message by
message, in both directions, as the bytes that they are.

Rules
- Only owners that are registered are reached, by the address of their record: a caller chooses among them and nothing
  else. Only what clients call of an owner is passed on.
- The caller is authenticated here, as at every call, and its own token goes on to the owner, which decides what it may
  do.
- The next message of a direction is taken when the one before was taken at the other side: each side's flow control
  reaches the other. What is on the way here is bounded in bytes, streams are bounded in number, and no caller gets more
  than half of them.
- A stream that says nothing after it was opened is ended.
- When the owner is gone the stream ends as a lost connection does. Nothing is repeated here: whoever called decides.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from oncelog.core.errors import (
    DeadlineExceeded,
    InvalidArgument,
    OncelogError,
    ServiceUnavailable,
    TooManyRequests,
)
from oncelog.core.ids import Incarnation
from oncelog.metadata.coordination.owners import Owners, address_of
from oncelog.rpc.channel import Channel, Stream
from oncelog.rpc.metadata_codec import GATEWAY_OWNER
from oncelog.rpc.methods import StreamMethod
from oncelog.rpc.options import AUTHORIZATION
from oncelog.rpc.owner_codec import LAST_MESSAGE, PRODUCER_NAMES, PUBLISH
from oncelog.rpc.reader_codec import READ
from oncelog.rpc.server import Server, ServerStream
from oncelog.runtime.credentials import PLAIN, Credentials
from oncelog.stores.registry import LiveOwner

logger = logging.getLogger(__name__)

#: What clients call of an owner. A unary call is a stream of one message each way, and is passed on as that.
PATHS = (PUBLISH.path, READ.path, LAST_MESSAGE.path, PRODUCER_NAMES.path)
#: Clients say something as soon as they have opened a stream.
FIRST_MESSAGE_S = 30.0
STREAMS_MAX = 1_000
BYTES_MAX = 128 * 1024 * 1024

RawStream = ServerStream[bytes, bytes]


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """streams_max: at once; one caller gets half of them. bytes_max: of messages on their way."""

    streams_max: int = STREAMS_MAX
    bytes_max: int = BYTES_MAX
    first_message_s: float = FIRST_MESSAGE_S

    @property
    def caller_streams_max(self) -> int:
        return max(1, self.streams_max // 2)


class Gateway:
    """Used inside one event loop."""

    def __init__(self, owners: Owners, peers: Credentials = PLAIN, *, limits: GatewayLimits | None = None) -> None:
        """peers: how other services are known; the token of this one is shown to nobody here."""
        self._owners = owners
        self._credentials = replace(peers, token=None)
        self.limits = limits or GatewayLimits()
        self._channels: dict[Incarnation, Channel] = {}
        #: {caller: its streams}
        self._callers: Counter[str] = Counter()
        #: messages on their way, bytes
        self.held_bytes = 0
        #: passed on since the start, in both directions
        self.passed_bytes = 0

    @property
    def stream_count(self) -> int:
        """Streams that are open now."""
        return self._callers.total()

    def serve(self, server: Server) -> None:
        """Add the methods."""
        for path in PATHS:
            method: StreamMethod[bytes, bytes, bytes, bytes] = StreamMethod(path, bytes, bytes, bytes, bytes)
            server.client_stream(method, self._passing(method))

    def _passing(self, method: StreamMethod[bytes, bytes, bytes, bytes]) -> Callable[[RawStream], Awaitable[None]]:
        async def handle(stream: RawStream) -> None:
            with self._counted(_caller_of(stream)):
                await self._pass(stream, method)

        return handle

    # --- one stream ---------------------------------------------------------------------------------------------------

    async def _pass(self, stream: RawStream, method: StreamMethod[bytes, bytes, bytes, bytes]) -> None:
        owner = self._owner(stream.header(GATEWAY_OWNER))
        try:
            async with asyncio.timeout(self.limits.first_message_s):
                first = await anext(stream, None)
        except TimeoutError as error:
            raise DeadlineExceeded(
                f"the stream said nothing for {self.limits.first_message_s:g} s after it was opened: open another one"
            ) from error
        authorization = stream.header(AUTHORIZATION)
        metadata = () if authorization is None else ((AUTHORIZATION, authorization),)
        upstream = self._channel(owner).stream(method, metadata=metadata)
        sending = asyncio.create_task(self._send(first, stream, upstream))
        try:
            async for answer in upstream:
                with self._held(answer):
                    await stream.write(answer)
        finally:
            upstream.cancel()
            sending.cancel()
            await asyncio.wait({sending})

    async def _send(self, first: bytes | None, stream: RawStream, upstream: Stream[bytes, bytes]) -> None:
        """From the client to the owner. Whatever ends it, the reading side tells."""
        try:
            message = first
            while message is not None:
                with self._held(message):
                    await upstream.write(message)
                message = await anext(stream, None)
            await upstream.finish()
        except OncelogError as error:
            upstream.cancel(error)

    def _owner(self, named: str | None) -> LiveOwner:
        if named is None:
            raise InvalidArgument(
                f"this is a metadata service: a call for a topic owner needs {GATEWAY_OWNER} in its metadata, which "
                "clients with oncelog+proxy:// send",
                field=GATEWAY_OWNER,
            )
        owner = self._owners.find(Incarnation(named))
        if owner is None or self._owners.is_lost(owner.incarnation):
            raise ServiceUnavailable(f"topic owner {named[:40]!r} is gone: look the topic up again")
        return owner

    def _channel(self, owner: LiveOwner) -> Channel:
        channel = self._channels.get(owner.incarnation)
        if channel is None:
            origin = f"topic owner {owner.incarnation}, asked by the gateway"
            channel = Channel(address_of(owner), credentials=self._credentials, origin=origin)
            self._channels[owner.incarnation] = channel
        return channel

    # --- bounds -------------------------------------------------------------------------------------------------------

    @contextmanager
    def _counted(self, caller: str) -> Iterator[None]:
        """Raises TooManyRequests."""
        limits = self.limits
        if self.stream_count >= limits.streams_max:
            message = f"this gateway has {limits.streams_max} streams open: try again, or another metadata service"
            raise TooManyRequests(message, limit=limits.streams_max)
        if self._callers[caller] >= limits.caller_streams_max:
            raise TooManyRequests(
                f"{caller} has {limits.caller_streams_max} streams open at this gateway: close some, or share one "
                "client among producers and readers",
                limit=limits.caller_streams_max,
            )
        self._callers[caller] += 1
        try:
            yield
        finally:
            self._callers[caller] -= 1
            if not self._callers[caller]:
                del self._callers[caller]

    @contextmanager
    def _held(self, message: bytes) -> Iterator[None]:
        """Raises TooManyRequests, which ends the stream and frees what it holds: gRPC has read the message already."""
        size = len(message)
        if self.held_bytes + size > self.limits.bytes_max:
            text = f"this gateway holds {self.limits.bytes_max} bytes that others do not take: try again in a moment"
            raise TooManyRequests(text, limit=self.limits.bytes_max)
        self.held_bytes += size
        try:
            yield
        finally:
            self.held_bytes -= size
        self.passed_bytes += size

    # --- life ---------------------------------------------------------------------------------------------------------

    async def owners_changed(self, live: list[LiveOwner]) -> None:
        """Close the channels to owners that have gone, and the streams on them."""
        present = {owner.incarnation for owner in live}
        gone = [owner for owner in self._channels if owner not in present]
        await asyncio.gather(*(self._channels.pop(owner).close() for owner in gone))

    async def close(self) -> None:
        await self.owners_changed([])


def _caller_of(stream: RawStream) -> str:
    """The role where there are roles, else the host: all of its connections are one caller."""
    return f"role {stream.caller.role}" if stream.caller.role else f"host {stream.peer.rpartition(':')[0]}"
