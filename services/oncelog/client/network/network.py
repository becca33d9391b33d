"""What all users of one client share: look-ups, and one publish and one consume stream to each topic owner."""

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn, Protocol, TypeVar

from oncelog.client.network.addresses import Routing
from oncelog.client.network.consume_stream import ConsumeStream
from oncelog.client.network.epochs import OwnerEpochs
from oncelog.client.network.lookup import OwnerLookup, Route
from oncelog.client.network.outages import Outages
from oncelog.client.network.publish_stream import PublishStream
from oncelog.client.network.storage_reads import NodeConnections
from oncelog.client.values.process import not_to_be_sent, used_after_fork, used_in_another_loop
from oncelog.core.errors import ClientClosed, ClientForked, ServiceUnavailable
from oncelog.core.formats.chunks import CHUNKED_BYTES_DEFAULT
from oncelog.core.ids import OwnerEpoch
from oncelog.core.names import TopicName
from oncelog.rpc import library
from oncelog.rpc.channel import Channel
from oncelog.rpc.channels import Channels
from oncelog.rpc.methods import UnaryMethod
from oncelog.runtime.credentials import Credentials
from oncelog.runtime.forks import keep, when_forked
from oncelog.runtime.tasks import BackgroundTasks

#: As in Pulsar (autoUpdatePartitionsInterval).
PARTITIONS_PAUSE_S = 60.0
#: Of one call of a topic's owner, which the caller repeats.
OWNER_CALL_TIMEOUT_MS = 5_000


class OwnerAnswer(Protocol):
    """An owner's answer says as which owner it was given."""

    owner_epoch: int


RequestT = TypeVar("RequestT")
AnswerT = TypeVar("AnswerT")
OwnerAnswerT = TypeVar("OwnerAnswerT", bound=OwnerAnswer)
StreamT = TypeVar("StreamT", PublishStream, ConsumeStream)


class Network:
    """Keeps the route of each topic until a user asks for a fresh one or a newer owner_epoch is seen."""

    def __init__(
        self,
        addresses: tuple[str, ...],
        credentials: Credentials,
        routing: Routing = Routing.ADVERTISED,
        *,
        storage_reads: bool = True,
        message_bytes_max: int = CHUNKED_BYTES_DEFAULT,
    ) -> None:
        """storage_reads: whether readers accept to read from storage nodes. message_bytes_max: of messages in chunks
        that are joined."""
        library.own()
        self.background = BackgroundTasks()
        #: the longest pause between two looks for new partitions of a topic
        self.partitions_pause_s = PARTITIONS_PAUSE_S
        self.closed = False
        self.message_bytes_max = message_bytes_max
        #: None: not used yet
        self._loop: asyncio.AbstractEventLoop | None = None
        #: why this process may not use it: it belongs to the parent process
        self.inherited: ClientForked | None = None
        self.epochs = OwnerEpochs()
        self.outages = Outages()
        self._channels = Channels(credentials)
        self.storage_nodes = NodeConnections(self._channels, wanted=storage_reads)
        self._lookup = OwnerLookup(addresses, self._channels, routing)
        self._routes: dict[TopicName, Route] = {}
        #: {owner (when proxied) or its address: the stream to it}
        self._publish_streams: dict[str, PublishStream] = {}
        self._consume_streams: dict[str, ConsumeStream] = {}
        keep(self)
        when_forked(self)

    async def route(
        self, topic: TopicName, *, fresh: bool, owner_epoch: OwnerEpoch = OwnerEpoch(0), create: bool = True
    ) -> Route:
        """Where `topic` is served.

        A kept route is returned only when `fresh` is False and its epoch is not below owner_epoch or the highest epoch
        that this client has seen of the topic. Raises TopicNotFound when the topic is missing and `create` is False,
        and NotOwner when the look-up's answer is outdated.
        """
        self.check_open()
        route = self._routes.get(topic)
        if route is not None:
            owner_epoch = max(owner_epoch, self.epochs.highest(route.topic_id))
        if route is None or fresh or route.owner_epoch < owner_epoch:
            route = await self._lookup.find(topic, create=create, owner_epoch=owner_epoch)
            self._routes[topic] = route
            self.epochs.believe(route.topic_id, route.owner_epoch)
        return route

    @property
    def lookup(self) -> OwnerLookup:
        """The metadata services. Raises ClientClosed."""
        self.check_open()
        return self._lookup

    def channel(self, route: Route) -> Channel:
        """A new channel to the route's address; the caller closes it."""
        return self._channels.channel(route.address, metadata=route.metadata, origin=route.origin)

    async def ask_owner(
        self, route: Route, method: UnaryMethod[RequestT, Any, Any, OwnerAnswerT], request: RequestT
    ) -> OwnerAnswerT:
        """One call of the route's owner. Raises its error, and NotOwner when a newer owner was seen."""
        async with self.channel(route) as channel:
            answer = await channel.call(method, request, timeout_ms=OWNER_CALL_TIMEOUT_MS)
        self.epochs.believe(route.topic_id, OwnerEpoch(answer.owner_epoch))
        return answer

    async def ask_kept(
        self,
        route: Route,
        method: UnaryMethod[RequestT, Any, Any, AnswerT],
        request: RequestT,
        *,
        timeout_ms: int = OWNER_CALL_TIMEOUT_MS,
    ) -> AnswerT:
        """One call of the route's owner by a connection that is kept for such calls: they come often. The caller looks
        at the epoch of the answer. Raises the error of the call."""
        self.check_open()
        key = route.owner if route.proxied else route.address
        channel = self._channels.shared(route.address, key=key, metadata=route.metadata, origin=route.origin)
        try:
            return await channel.call(method, request, timeout_ms=timeout_ms)
        except ServiceUnavailable:
            await self._channels.drop(channel)
            raise

    def publish_stream(self, route: Route) -> PublishStream:
        """The open publish stream to an owner; it is opened when there is none."""
        return self._kept(
            self._publish_streams, route, lambda: PublishStream(self.channel(route), self.background, self.epochs)
        )

    def consume_stream(self, route: Route) -> ConsumeStream:
        """The open consume stream to an owner; it is opened when there is none."""
        return self._kept(self._consume_streams, route, lambda: ConsumeStream(self.channel(route), self.background))

    def _kept(self, streams: dict[str, StreamT], route: Route, new: Callable[[], StreamT]) -> StreamT:
        self.check_open()
        # Behind gateways all owners share the gateways' addresses; one stream per owner is enough, by any gateway.
        key = route.owner if route.proxied else route.address
        stream = streams.get(key)
        if stream is None or not stream.alive:
            # Drop lost streams: each restarted owner has a new address.
            for other in [other for other, known in streams.items() if not known.alive]:
                del streams[other]
            stream = streams[key] = new()
        return stream

    def forked(self) -> None:
        """In a forked child: everything of it belongs to the parent."""
        self.inherited = used_after_fork()

    def __reduce__(self) -> NoReturn:
        raise not_to_be_sent()

    def check_loop(self) -> None:
        """Raises RuntimeError in another event loop, or in a thread without one, and ClientForked."""
        if self.inherited is not None:
            raise self.inherited
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is not self._loop or running is None:
            if self._loop is not None or running is None:
                raise used_in_another_loop()
            self._loop = running

    def check_open(self) -> None:
        """Raises ClientClosed, and as `check_loop`."""
        self.check_loop()
        if self.closed:
            raise ClientClosed("the client was closed")

    async def close(self) -> None:
        self.closed = True
        for publishing in self._publish_streams.values():
            publishing.close()
        for consuming in self._consume_streams.values():
            consuming.close()
        await self.background.close()
        await self._channels.close()
        # One pass of the loop lets gRPC finish the cancelled calls.
        await asyncio.sleep(0)
