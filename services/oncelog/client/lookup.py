"""Who serves a topic: asked of the metadata services, any of which answers."""

from typing import NamedTuple, TypeVar

from oncelog.client.addresses import Routing
from oncelog.core.errors import InvalidArgument, OncelogError, ServiceUnavailable, WrongCluster
from oncelog.core.ids import Incarnation, OwnerEpoch, TopicId
from oncelog.core.names import TopicName
from oncelog.rpc.channel import Channel
from oncelog.rpc.metadata_codec import GATEWAY_OWNER, LOOKUP
from oncelog.rpc.methods import UnaryMethod
from oncelog.runtime.credentials import Credentials
from oncelog.wire.metadata_pb2 import LookupAnswer, LookupRequest

LOOK_UP_TIMEOUT_MS = 3_000
RequestT = TypeVar("RequestT")
ReceivedRequestT = TypeVar("ReceivedRequestT")
AnswerT = TypeVar("AnswerT")
ReceivedAnswerT = TypeVar("ReceivedAnswerT")
#: How the origin of an owner's own address begins.
OWNER_ORIGIN = "advertised by topic owner"
GATEWAY_ORIGIN = "a metadata service, as the gateway"


class Route(NamedTuple):
    """address: host:port to connect to, the owner's or a gateway's. owner_epoch: of the ownership that this answer saw.

    proxied: `address` is a gateway, which passes on what names the owner.
    """

    topic_id: TopicId
    address: str
    owner_epoch: OwnerEpoch
    owner: Incarnation = Incarnation("")
    proxied: bool = False

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What every call there carries."""
        return ((GATEWAY_OWNER, self.owner),) if self.proxied else ()

    @property
    def origin(self) -> str:
        """Where the address comes from, for errors."""
        return f"{GATEWAY_ORIGIN} to owner {self.owner}" if self.proxied else f"{OWNER_ORIGIN} {self.owner}"


class OwnerLookup:
    """Asks one metadata service after the other, beginning with the one that answered last."""

    def __init__(
        self, addresses: tuple[str, ...], credentials: Credentials, routing: Routing = Routing.ADVERTISED
    ) -> None:
        self._addresses = list(addresses)
        self._credentials = credentials
        self._routing = routing
        self._channels: dict[str, Channel] = {}
        #: of the first answer; another cluster behind one of the addresses would mix two logs
        self._cluster_id: str | None = None

    async def find(self, topic: TopicName, *, create: bool = True, owner_epoch: OwnerEpoch = OwnerEpoch(0)) -> Route:
        """Where `topic` is served, placing and (if `create`) creating it when need be; never older than owner_epoch.

        Raises InvalidArgument for a partitioned topic, and as `ask`.
        """
        answer, asked = await self._look_up(topic, create=create, owner_epoch=owner_epoch)
        if answer.partitions:
            message = f"{topic} has {answer.partitions} parts: name one, {topic}-partition-N"
            raise InvalidArgument(message, field="topic", limit=answer.partitions)
        address = answer.owner_address
        if self._routing is Routing.PROXY:
            address = asked
        elif self._routing is Routing.INTERNAL:
            address = answer.owner_internal_address or address
        return Route(
            TopicId(answer.topic_id),
            address,
            OwnerEpoch(answer.owner_epoch),
            Incarnation(answer.owner_incarnation),
            self._routing is Routing.PROXY,
        )

    async def partitions(self, topic: TopicName) -> int:
        """How many partitions the topic has; 0: it is not partitioned. Creates nothing.

        Raises TopicNotFound, and as `ask`.
        """
        answer, _ = await self._look_up(topic, create=False, owner_epoch=OwnerEpoch(0))
        return answer.partitions

    async def ask(
        self,
        method: UnaryMethod[RequestT, ReceivedRequestT, AnswerT, ReceivedAnswerT],
        request: RequestT,
        *,
        timeout_ms: int = LOOK_UP_TIMEOUT_MS,
    ) -> ReceivedAnswerT:
        """One call to whichever metadata service answers. timeout_ms: for each of them.

        Raises the services' fatal error, or the last retriable one once all were asked.
        """
        answer, _ = await self._ask(method, request, timeout_ms)
        return answer

    async def _look_up(self, topic: TopicName, *, create: bool, owner_epoch: OwnerEpoch) -> tuple[LookupAnswer, str]:
        """The answer, and the address of the service that gave it. Raises WrongCluster, and as `ask`."""
        request = LookupRequest(
            topic=str(topic),
            create_if_missing=create,
            owner_epoch_seen=owner_epoch,
            cluster_id=self._cluster_id or "",
        )
        answer, asked = await self._ask(LOOKUP, request, LOOK_UP_TIMEOUT_MS)
        self._cluster_id = self._cluster_id or answer.cluster_id
        if answer.cluster_id != self._cluster_id:
            raise WrongCluster(f"{asked} belongs to cluster {answer.cluster_id}, not {self._cluster_id}")
        return answer, asked

    async def _ask(
        self,
        method: UnaryMethod[RequestT, ReceivedRequestT, AnswerT, ReceivedAnswerT],
        request: RequestT,
        timeout_ms: int,
    ) -> tuple[ReceivedAnswerT, str]:
        failure: OncelogError = ServiceUnavailable("no metadata service is known")
        for address in list(self._addresses):
            try:
                return await self._channel(address).call(method, request, timeout_ms=timeout_ms), address
            except OncelogError as error:
                if not error.retriable:
                    raise
                failure = error
                self._addresses.remove(address)
                self._addresses.append(address)
        raise failure

    def _channel(self, address: str) -> Channel:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = Channel(
                address, credentials=self._credentials, origin="a metadata service"
            )
        return channel

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()
