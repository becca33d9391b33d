"""A stream to every metadata replica, for the lifetime of this owner.

A replica sends its commands to serve or unload topics over it. An open stream, and its closing when this process dies,
are the first half of the evidence by which a replica places topics again without waiting for the session to expire
(hazard living-owner-suspected). So there is a stream to every replica, and a broken stream is opened again at once.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from oncelog.core.address import join_address
from oncelog.core.errors import InvariantViolated, NotOwner, OncelogError, TooManyRequests
from oncelog.core.ids import Incarnation, TopicId
from oncelog.metadata_store.records.registry import LiveMetadata, Registry
from oncelog.rpc.channel import Channel, Stream
from oncelog.rpc.codecs.metadata_codec import OWNER_STREAM
from oncelog.runtime.tasks import start
from oncelog.topic_owner.shell.topic_registry import TopicRegistry
from oncelog.wire import metadata_pb2 as pb

logger = logging.getLogger(__name__)

RETRY_MS_MIN = 20
RETRY_MS_MAX = 1000

NewChannel = Callable[[str], Channel]


@dataclass(slots=True, eq=False)
class _OpenStream:
    """An open stream. Writes are serialised."""

    stream: Stream[pb.OwnerHello, pb.OwnerCommand]
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def send(self, hello: pb.OwnerHello) -> None:
        async with self.writing:
            await self.stream.write(hello)


class MetadataStreams:
    """Keeps one stream to each registered replica."""

    def __init__(
        self,
        registry: Registry,
        topics: TopicRegistry,
        new_channel: NewChannel,
        *,
        cluster_id: str,
        incarnation: Incarnation,
        address: str,
    ) -> None:
        self._registry = registry
        self._topics = topics
        self._new_channel = new_channel
        self._cluster_id = cluster_id
        self._incarnation = incarnation
        self._address = address
        #: {address of a registered replica: what keeps a stream to it}
        self._keeping: dict[str, asyncio.Task[None]] = {}
        #: {address: its stream} of the streams that are open
        self._streams: dict[str, _OpenStream] = {}

    async def run(self) -> None:
        """Follow the registered replicas until cancelled."""
        try:
            async for replicas in self._registry.metadata.watch():
                wanted = {_address_of(replica) for replica in replicas.values()}
                for address in [known for known in self._keeping if known not in wanted]:
                    self._keeping.pop(address).cancel()
                for address in sorted(wanted):
                    if address not in self._keeping:
                        self._keeping[address] = start(self._keep(address), what="the stream to a metadata service")
        finally:
            for task in self._keeping.values():
                task.cancel()

    async def _keep(self, address: str) -> None:
        pause_ms = RETRY_MS_MIN
        while True:
            channel = self._new_channel(address)
            try:
                opened = _OpenStream(channel.stream(OWNER_STREAM))
                await opened.send(self._hello())
                self._streams[address] = opened
                async for command in opened.stream:
                    pause_ms = RETRY_MS_MIN
                    await self._execute(command, opened)
            except InvariantViolated:
                raise
            except OncelogError as error:
                logger.info("the stream to metadata at %s is closed: %s", address, error.message)
            finally:
                self._streams.pop(address, None)
                await channel.close()
            await asyncio.sleep(pause_ms * random.uniform(0.5, 1) / 1000)
            pause_ms = min(pause_ms * 2, RETRY_MS_MAX)

    @property
    def addresses(self) -> list[str]:
        """Of the replicas with an open stream."""
        return list(self._streams)

    async def report_draining(self) -> int:
        """Tell every replica that this owner drains, so that they move its topics. Returns the replicas reached."""
        reached = 0
        for each in list(self._streams.values()):
            try:
                await each.send(self._hello())
                reached += 1
            except OncelogError as error:
                logger.info("cannot tell a metadata service that this owner drains: %s", error.message)
        return reached

    def _hello(self, beat: int = 0) -> pb.OwnerHello:
        return pb.OwnerHello(
            cluster_id=self._cluster_id,
            incarnation=self._incarnation,
            address=self._address,
            topic_count=len(self._topics),
            draining=self._topics.draining,
            beat=beat,
            takes_lists=True,
        )

    async def _execute(self, command: pb.OwnerCommand, opened: _OpenStream) -> None:
        match command.WhichOneof("command"):
            case "beat":
                await opened.send(self._hello(command.beat.number))
            case "assign":
                self._assign(command.assign)
            case "assign_all":
                for order in command.assign_all.topics:
                    self._assign(order)
            case "unload":
                try:
                    await self._topics.unload(TopicId(command.unload.topic_id))
                except NotOwner as error:
                    # Closed already. The stream must stay open: its end means that this process ends.
                    logger.info("cannot unload a topic: %s", error.message)
            case _:
                pass  # welcome: the other side considers the stream open

    def _assign(self, order: pb.AssignTopic) -> None:
        try:
            self._topics.assign(TopicId(order.topic_id))
        except TooManyRequests as error:
            logger.error("cannot take a topic: %s", error.message)


def _address_of(replica: LiveMetadata) -> str:
    return join_address(replica.host, replica.ports["grpc"])
