"""The look-up of a topic's owner, answered by any metadata service.

A service that refuses a call with TooManyRequests says how long to wait. Until then this client does not ask it again,
for no topic; then its calls come at random times, not all at once.
"""

import asyncio
import random
from typing import NamedTuple, TypeVar

from oncelog.client.network.addresses import Routing
from oncelog.core.errors import (
    InvalidArgument,
    OncelogError,
    ServiceUnavailable,
    TooManyRequests,
    WrongCluster,
)
from oncelog.core.ids import Incarnation, OwnerEpoch, TopicId
from oncelog.core.names import TopicName
from oncelog.rpc.channels import Channels
from oncelog.rpc.codecs.metadata_codec import GATEWAY_OWNER, LOOKUP
from oncelog.rpc.methods import UnaryMethod
from oncelog.wire.metadata_pb2 import LookupAnswer, LookupRequest

LOOK_UP_TIMEOUT_MS = 3_000
#: Calls of one client that are under way at once. After an owner's death a client may look thousands of topics up: all
#: at once they would time out, and the repeats would add to the load.
LOOK_UPS_MAX = 64
RequestT = TypeVar("RequestT")
ReceivedRequestT = TypeVar("ReceivedRequestT")
AnswerT = TypeVar("AnswerT")
ReceivedAnswerT = TypeVar("ReceivedAnswerT")
#: The beginning of the origin text of an owner's own address.
OWNER_ORIGIN = "advertised by topic owner"
GATEWAY_ORIGIN = "a metadata service, as the gateway"


class Route(NamedTuple):
    """Where a topic is served.

    address: host:port to connect to, the owner's or a gateway's. owner_epoch: of the ownership in the answer.
    proxied: `address` is a gateway, which forwards calls that name the owner in their metadata.
    """

    topic_id: TopicId
    address: str
    owner_epoch: OwnerEpoch
    owner: Incarnation = Incarnation("")
    proxied: bool = False

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Metadata that each call to the address must carry."""
        return ((GATEWAY_OWNER, self.owner),) if self.proxied else ()

    @property
    def origin(self) -> str:
        """Where the address comes from, for error messages."""
        return f"{GATEWAY_ORIGIN} to owner {self.owner}" if self.proxied else f"{OWNER_ORIGIN} {self.owner}"


class PartitionCounts(NamedTuple):
    """now: the number of a topic's partitions; 0: it is not partitioned. former: before each growth, ascending."""

    now: int
    former: tuple[int, ...] = ()

    def after(self, growths: int) -> int | None:
        """The number after so many growths; None: it was looked up before that growth."""
        counts = (*self.former, self.now)
        return counts[growths] if growths < len(counts) else None


class OwnerLookup:
    """Asks the metadata services in turn, starting with the one that answered last."""

    def __init__(self, addresses: tuple[str, ...], channels: Channels, routing: Routing = Routing.ADVERTISED) -> None:
        self._addresses = list(addresses)
        self._channels = channels
        self._routing = routing
        #: {service: loop time until which it is not asked, since it was busy}
        self._busy_until_s: dict[str, float] = {}
        #: a call's time begins when it has a slot here
        self._slots = asyncio.Semaphore(LOOK_UPS_MAX)
        #: cluster id of the first answer; an address of another cluster must not be used
        self._cluster_id: str | None = None

    @property
    def cluster_id(self) -> str:
        """Empty before the first answer."""
        return self._cluster_id or ""

    async def find(self, topic: TopicName, *, create: bool = True, owner_epoch: OwnerEpoch = OwnerEpoch(0)) -> Route:
        """Where `topic` is served, never by an owner older than owner_epoch. The service places the topic if it has no
        owner, and creates it if it is missing and `create` is True.

        Raises InvalidArgument for a partitioned topic, and as `ask`.
        """
        answer, asked = await self._look_up(topic, create=create, owner_epoch=owner_epoch)
        if answer.partitions:
            message = f"{topic} is partitioned: use one of its {answer.partitions} partitions, {topic}-partition-N"
            raise InvalidArgument(message, field="topic", partitions=answer.partitions)
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
        """The number of the topic's partitions, 0 when it is not partitioned. Creates no topic.

        Raises TopicNotFound, and as `ask`.
        """
        return (await self.partition_counts(topic)).now

    async def topic_id(self, topic: TopicName) -> TopicId:
        """Of the topic, also of one with partitions. Creates no topic. Raises as `partitions`."""
        answer, _ = await self._look_up(topic, create=False, owner_epoch=OwnerEpoch(0))
        return TopicId(answer.topic_id)

    async def partition_counts(self, topic: TopicName) -> "PartitionCounts":
        """As `partitions`, with the numbers that the topic had before."""
        answer, _ = await self._look_up(topic, create=False, owner_epoch=OwnerEpoch(0))
        return PartitionCounts(answer.partitions, tuple(answer.former_partitions))

    async def ask(
        self,
        method: UnaryMethod[RequestT, ReceivedRequestT, AnswerT, ReceivedAnswerT],
        request: RequestT,
        *,
        timeout_ms: int = LOOK_UP_TIMEOUT_MS,
        more_metadata: tuple[tuple[str, str], ...] = (),
    ) -> ReceivedAnswerT:
        """Call the first metadata service that answers. timeout_ms: limit of each single call. more_metadata: of the
        calls.

        Raises a fatal error at once, and the last retriable error after all services were asked.
        """
        answer, _ = await self._ask(method, request, timeout_ms, more_metadata)
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
        more_metadata: tuple[tuple[str, str], ...] = (),
    ) -> tuple[ReceivedAnswerT, str]:
        failure: OncelogError = ServiceUnavailable("no metadata service is configured")
        asked: set[str] = set()
        while len(asked) < len(self._addresses):
            async with self._slots:
                address = await self._next(asked)
                asked.add(address)
                try:
                    channel = self._channels.shared(address, origin="a metadata service")
                    answer = await channel.call(method, request, timeout_ms=timeout_ms, more_metadata=more_metadata)
                    return answer, address
                except OncelogError as error:
                    if not error.retriable:
                        raise
                    failure = error
            self._addresses.remove(address)
            self._addresses.append(address)
            if isinstance(failure, TooManyRequests):
                pause_s = int(failure.details.get("retry_after_s") or 1)
                self._busy_until_s[address] = asyncio.get_running_loop().time() + pause_s
        raise failure

    async def _next(self, asked: set[str]) -> str:
        """The first service of the others that is not busy; waits until there is one, and up to half as long again."""
        while True:
            now_s = asyncio.get_running_loop().time()
            left_s = {one: self._busy_until_s.get(one, now_s) - now_s for one in self._addresses if one not in asked}
            free = next((one for one, pause_s in left_s.items() if pause_s <= 0), None)
            if free is not None:
                return free
            await asyncio.sleep(min(left_s.values()) * random.uniform(1.0, 1.5))


def partitions_in(error: OncelogError | None) -> int:
    """The number of partitions, if `find` refused a topic because it is partitioned; else 0."""
    return int(error.details.get("partitions") or 0) if isinstance(error, InvalidArgument) else 0
