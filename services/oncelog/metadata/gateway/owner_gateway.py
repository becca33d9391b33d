"""Gateway to the topic owners, for clients that can reach only this service (`oncelog+proxy://`).

A client calls a method of a topic owner here, and names the owner in the call's metadata (`oncelog-owner`). The gateway
forwards the messages unchanged, in both directions.

Rules
- Only registered owners can be reached, at the address of their registration, and only by the methods that clients
  call.
- The caller is authenticated here, as in every call. The caller's own token is forwarded to the owner, which checks the
  caller's rights.
- In each direction, the next message is read when the previous one was written to the other side: so flow control
  works end to end. The bytes held here and the number of streams are bounded, and one caller gets at most half of both.
- A stream without a message after it was opened is ended.
- If the owner is gone, the stream ends like a lost connection. The gateway retries nothing; the client does.
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
from oncelog.metadata.owners.owners import Owners, address_of
from oncelog.metadata_store.records.registry import LiveOwner
from oncelog.rpc.channel import Stream
from oncelog.rpc.channels import Channels
from oncelog.rpc.codecs.consumer_codec import CONSUME
from oncelog.rpc.codecs.group_codec import ASK_GROUP
from oncelog.rpc.codecs.group_offset_codec import COMMIT_OFFSETS, DELETE_OFFSETS, FETCH_OFFSETS, RAISE_GENERATIONS
from oncelog.rpc.codecs.metadata_codec import GATEWAY_OWNER
from oncelog.rpc.codecs.owner_codec import LAST_MESSAGE, LEASE_PRODUCER_ID, PRODUCER_NAMES, PUBLISH, READ_CHUNK
from oncelog.rpc.codecs.reader_codec import FIND_INDEX, READ
from oncelog.rpc.methods import StreamMethod
from oncelog.rpc.options import AUTHORIZATION
from oncelog.rpc.server import Server, ServerStream
from oncelog.runtime.credentials import PLAIN, Credentials

logger = logging.getLogger(__name__)

#: The methods that clients call. A unary call is forwarded as a stream with one message in each direction.
PATHS = tuple(
    method.path
    for method in (
        *(PUBLISH, READ, CONSUME),
        *(LAST_MESSAGE, LEASE_PRODUCER_ID, PRODUCER_NAMES, FIND_INDEX, READ_CHUNK),
        *(ASK_GROUP, COMMIT_OFFSETS, FETCH_OFFSETS, RAISE_GENERATIONS, DELETE_OFFSETS),
    )
)
#: Clients send their first message as soon as they have opened a stream.
FIRST_MESSAGE_S = 30.0
STREAMS_MAX = 1_000
BYTES_MAX = 128 * 1024 * 1024

RawStream = ServerStream[bytes, bytes]


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """streams_max: open streams. bytes_max: of messages held at a time. One caller gets at most half of each."""

    streams_max: int = STREAMS_MAX
    bytes_max: int = BYTES_MAX
    first_message_s: float = FIRST_MESSAGE_S

    @property
    def caller_streams_max(self) -> int:
        return max(1, self.streams_max // 2)


class Gateway:
    """Used inside one event loop."""

    def __init__(self, owners: Owners, peers: Credentials = PLAIN, *, limits: GatewayLimits | None = None) -> None:
        """peers: credentials for connections to owners; this service's own token is never sent from here."""
        self._owners = owners
        self._channels = Channels(replace(peers, token=None), forwards=True)
        self.limits = limits or GatewayLimits()
        #: {caller: number of open streams}
        self._callers: Counter[str] = Counter()
        #: {caller: bytes of its messages being forwarded}
        self._caller_bytes: Counter[str] = Counter()
        #: bytes of messages being forwarded
        self.held_bytes = 0
        #: bytes forwarded since the start, in both directions
        self.passed_bytes = 0

    @property
    def stream_count(self) -> int:
        """Number of open streams."""
        return self._callers.total()

    def serve(self, server: Server) -> None:
        """Register the methods."""
        for path in PATHS:
            method: StreamMethod[bytes, bytes, bytes, bytes] = StreamMethod(path, bytes, bytes, bytes, bytes)
            server.client_stream(method, self._handler(method))

    def _handler(self, method: StreamMethod[bytes, bytes, bytes, bytes]) -> Callable[[RawStream], Awaitable[None]]:
        async def handle(stream: RawStream) -> None:
            with self._counted(_caller_of(stream)):
                await self._forward(stream, method)

        return handle

    # --- one stream ---------------------------------------------------------------------------------------------------

    async def _forward(self, stream: RawStream, method: StreamMethod[bytes, bytes, bytes, bytes]) -> None:
        owner = self._owner(stream.header(GATEWAY_OWNER))
        try:
            async with asyncio.timeout(self.limits.first_message_s):
                first = await anext(stream, None)
        except TimeoutError as error:
            raise DeadlineExceeded(
                f"no message within {self.limits.first_message_s:g} s after the stream was opened: open a new stream"
            ) from error
        authorization = stream.header(AUTHORIZATION)
        metadata = () if authorization is None else ((AUTHORIZATION, authorization),)
        origin = f"topic owner {owner.incarnation}, called by the gateway"
        channel = self._channels.shared(address_of(owner), key=owner.incarnation, origin=origin)
        upstream = channel.stream(method, metadata=metadata)
        caller = _caller_of(stream)
        sending = asyncio.create_task(self._send(first, stream, upstream))
        try:
            async for answer in upstream:
                with self._held(answer, caller):
                    await stream.write(answer)
        finally:
            upstream.cancel()
            sending.cancel()
            await asyncio.wait({sending})

    async def _send(self, first: bytes | None, stream: RawStream, upstream: Stream[bytes, bytes]) -> None:
        """Forward from the client to the owner. Errors are reported by the other direction."""
        caller = _caller_of(stream)
        try:
            message = first
            while message is not None:
                with self._held(message, caller):
                    await upstream.write(message)
                message = await anext(stream, None)
            await upstream.finish()
        except OncelogError as error:
            upstream.cancel(error)

    def _owner(self, named: str | None) -> LiveOwner:
        if named is None:
            raise InvalidArgument(
                f"this is a metadata service: a call to a topic owner needs {GATEWAY_OWNER} in its metadata; clients "
                "send it if their URL begins with oncelog+proxy://",
                field=GATEWAY_OWNER,
            )
        owner = self._owners.find(Incarnation(named))
        if owner is None or self._owners.is_lost(owner.incarnation):
            raise ServiceUnavailable(f"topic owner {named[:40]!r} is not available: look the topic up again")
        return owner

    # --- bounds -------------------------------------------------------------------------------------------------------

    @contextmanager
    def _counted(self, caller: str) -> Iterator[None]:
        """Raises TooManyRequests."""
        limits = self.limits
        if self.stream_count >= limits.streams_max:
            message = f"this gateway has {limits.streams_max} open streams, the maximum: retry with another service"
            raise TooManyRequests(message, limit=limits.streams_max)
        if self._callers[caller] >= limits.caller_streams_max:
            raise TooManyRequests(
                f"{caller} has {limits.caller_streams_max} open streams at this gateway, the maximum for one caller: "
                "close some, or use fewer producers and readers",
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
    def _held(self, message: bytes, caller: str) -> Iterator[None]:
        """Raises TooManyRequests. This ends the stream and frees its bytes: gRPC has already read the message.

        A caller whose clients read nothing would otherwise have the streams of all others ended.
        """
        size, own = len(message), self._caller_bytes[caller]
        if own and own + size > self.limits.bytes_max // 2:
            raise TooManyRequests(
                f"{caller} has {own} bytes of undelivered messages at this gateway, and at most "
                f"{self.limits.bytes_max // 2} are allowed: read what was sent, or use fewer streams",
                limit=self.limits.bytes_max // 2,
            )
        if self.held_bytes + size > self.limits.bytes_max:
            text = (
                f"this gateway holds {self.limits.bytes_max} bytes of undelivered messages, the maximum: retry shortly"
            )
            raise TooManyRequests(text, limit=self.limits.bytes_max)
        self.held_bytes += size
        self._caller_bytes[caller] += size
        try:
            yield
        finally:
            self.held_bytes -= size
            self._caller_bytes[caller] -= size
            if not self._caller_bytes[caller]:
                del self._caller_bytes[caller]
        self.passed_bytes += size

    # --- life ---------------------------------------------------------------------------------------------------------

    def owners_changed(self, live: list[LiveOwner]) -> None:
        """Close the channels to owners that are gone, and the streams on them."""
        self._channels.retain(owner.incarnation for owner in live)

    async def close(self) -> None:
        await self._channels.close()


def _caller_of(stream: RawStream) -> str:
    """The role, or without authentication the host: all connections of one host are one caller."""
    return f"role {stream.caller.role}" if stream.caller.role else f"host {stream.peer.rpartition(':')[0]}"
