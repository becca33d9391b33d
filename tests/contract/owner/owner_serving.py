"""An owner's streams over a real socket, on one topic that a test answers for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

from crc32c import crc32c

from oncelog.core.formats.ledger_page import ListPage
from oncelog.core.formats.opening import Granted, ProducerInstance, ProducerOpening
from oncelog.core.ids import (
    Generation,
    Incarnation,
    LedgerId,
    OwnerEpoch,
    ProducerId,
    SequenceId,
    SessionNumber,
    TopicId,
)
from oncelog.core.ledger.member_selection import StorageNodesUpdated
from oncelog.core.process_version import PROCESS_VERSION
from oncelog.core.topic.serving import TopicSettings
from oncelog.core.topic.topic import Phase, Topic
from oncelog.core.topic_events.effects import AnswerOpen
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs import owner_codec, reader_codec
from oncelog.rpc.server import Server
from oncelog.runtime.telemetry import Telemetry
from oncelog.topic_owner.shell.ledger_list import LedgerList
from oncelog.topic_owner.shell.namespace_producers import NamespaceProducers
from oncelog.topic_owner.shell.owner_metrics import OwnerMetrics
from oncelog.topic_owner.shell.progress import TopicProgress
from oncelog.topic_owner.shell.topic_registry import TopicRegistry
from oncelog.topic_owner.shell.topic_runner import SessionSink, TopicRunner
from oncelog.topic_owner.streams.publish_service import PublishService
from oncelog.topic_owner.streams.read_service import ReadService
from oncelog.topic_owner.streams.stream_rooms import StreamRooms

TOPIC = "public/default/flights"
TOPIC_ID = TopicId("0123456789abcdef0123456789abcdef")


class Current:
    """Stands for the proofs of an owner that is the current one."""

    async def until_current(self, _owner_epoch_seen: OwnerEpoch) -> None:
        return None


async def _no_page(_name: LedgerId) -> ListPage | None:
    return None


class HeldTopic:
    """Stands for the TopicRunner of an empty topic that serves: keeps what it is asked."""

    def __init__(self) -> None:
        self.topic_id = TOPIC_ID
        self.name = TOPIC
        self.owner_epoch = OwnerEpoch(3)
        self.core = Topic(
            TOPIC_ID, Incarnation("f" * 32), TopicSettings(), crc32c, first_session=SessionNumber(1),
            nodes=StorageNodesUpdated(()),
        )  # fmt: skip
        self.core.phase = Phase.SERVING
        self.progress = TopicProgress(self.core)
        self.sinks: dict[SessionNumber, SessionSink] = {}
        self.openings: asyncio.Queue[tuple[ProducerOpening, SessionSink]] = asyncio.Queue()
        self.posted: list[object] = []
        self.ownership_proofs = Current()
        ledgers = LedgerList(self.core.ownership, _no_page)
        self.log = SimpleNamespace(core=self.core, progress=self.progress, ledgers=ledgers)
        #: calls that nobody waits for any more
        self.abandoned: list[int] = []

    def open(self, opening: ProducerOpening, sink: SessionSink) -> None:
        self.openings.put_nowait((opening, sink))

    def abandon(self, call: int) -> None:
        self.abandoned.append(call)

    def post(self, event: object) -> None:
        self.posted.append(event)

    def grant(self, opening: ProducerOpening, sink: SessionSink, *, session: SessionNumber, name: str = "p") -> None:
        """The grant is durable."""
        instance = ProducerInstance(ProducerId(1), Generation(1))
        granted = Granted(session, name, instance, SequenceId(-1), final=True)
        sink.opened(opening.call, cast("TopicRunner", self), AnswerOpen(opening.call, granted))


class OneTopic:
    """Stands for a TopicRegistry that holds one topic."""

    def __init__(self, topic: HeldTopic) -> None:
        self._topic = topic
        self.producers = NamespaceProducers(tuple)

    def runner(self, _topic_id: TopicId, _topic: str) -> HeldTopic:
        return self._topic


@asynccontextmanager
async def owner_serving() -> AsyncIterator[tuple[HeldTopic, PublishService, Channel]]:
    topic = HeldTopic()
    topics = cast("TopicRegistry", OneTopic(topic))
    metrics = OwnerMetrics(Telemetry("topic_owner", "owner-1"))
    publish = PublishService(
        topics,
        crc32c,
        metrics,
        message_bytes_max=1 << 20,
        unanswered_bytes_max=1 << 22,
        level=lambda: PROCESS_VERSION,
    )
    server = Server()
    server.stream(owner_codec.PUBLISH, publish.publish)
    server.stream(reader_codec.READ, ReadService(topics, StreamRooms(bytes_max=1 << 26, caller_streams_max=1_000)).read)
    port = await server.start()
    async with asyncio.timeout(60), Channel(f"127.0.0.1:{port}") as channel:
        try:
            yield topic, publish, channel
        finally:
            await server.stop(grace_ms=0)
