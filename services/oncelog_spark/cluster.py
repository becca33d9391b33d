"""The connections of one piece of work, be it planning or reading: nothing of them is left when it is done.

    async with ClusterConnection(connection) as cluster:
        answer = await cluster.ask_metadata(LEDGERS, request)
        answer = await cluster.ask_owner(topic, LAST_MESSAGE, lambda route: LastMessageRequest(...))
        stream = cluster.read_stream(topic, StartIndex(42), topic_id=topic_id)

Look-ups and read streams are those of the SDK. A call that fails with a retriable error is repeated, with a fresh
look-up, for `PATIENCE_MS`; then it is a DeadlineExceeded with the last reason, and Spark tries the task again. Nothing
here creates a topic.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from oncelog.client.network.backoff import persist
from oncelog.client.network.lookup import Route
from oncelog.client.network.network import Network
from oncelog.client.reading.read_stream import WINDOW_BYTES, ReadStream
from oncelog.client.values.corruption import Corruption, OnCorrupt
from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.errors import TopicNotFound
from oncelog.core.ids import EntryId, Incarnation, LedgerId, OwnerEpoch, TopicId
from oncelog.core.ledger.metadata import EntryRange, LedgerMetadata, LedgerState
from oncelog.core.names import parse_topic
from oncelog.rpc.channel import Channel
from oncelog.rpc.channels import Channels
from oncelog.rpc.codecs.metadata_codec import LEDGERS
from oncelog.rpc.codecs.reader_codec import StartAt
from oncelog.rpc.methods import UnaryMethod
from oncelog.runtime.credentials import Credentials
from oncelog.storage_client.node_calls import NodeCalls
from oncelog.storage_client.reader import ReadRecord
from oncelog.wire import metadata_pb2 as pb
from oncelog_spark.options import ConnectionOptions

PATIENCE_MS = 60_000
_CALL_TIMEOUT_MS = 10_000
#: Ledgers in one answer: some megabytes, and as many reads of records.
LEDGERS_AT_ONCE = 5_000
SKIP_ADVICE = "Set onCorrupt=skip to pass over such entries"

RequestT = TypeVar("RequestT")
AnswerT = TypeVar("AnswerT")
ReceivedRequestT = TypeVar("ReceivedRequestT")
ReceivedAnswerT = TypeVar("ReceivedAnswerT")
ResultT = TypeVar("ResultT")

#: (incarnation, host:port, or "" while it is not registered)
Members = tuple[tuple[Incarnation, str], ...]


class OwnerAnswer(Protocol):
    """What every answer of a topic owner contains."""

    @property
    def owner_epoch(self) -> int: ...


OwnerAnswerT = TypeVar("OwnerAnswerT", bound=OwnerAnswer)


class ClusterConnection:
    """One channel for each address, and the SDK's look-ups and streams."""

    def __init__(self, connection: ConnectionOptions, *, patience_ms: int = PATIENCE_MS) -> None:
        self.credentials = connection.credentials()
        self.patience_ms = patience_ms
        self._network = Network(connection.addresses, self.credentials)
        self._channels = Channels(self.credentials)

    async def ask_metadata(
        self,
        method: UnaryMethod[RequestT, ReceivedRequestT, AnswerT, ReceivedAnswerT],
        request: RequestT,
        *,
        patience_ms: int | None = None,
    ) -> ReceivedAnswerT:
        """One call to any metadata service. Raises its fatal error, DeadlineExceeded."""
        return await persist(
            lambda _again: self._network.lookup.ask(method, request, timeout_ms=_CALL_TIMEOUT_MS),
            timeout_ms=self.patience_ms if patience_ms is None else patience_ms,
            what="the metadata services",
        )

    async def partitions(self, topic: str) -> int:
        """How many partitions the topic has; 0: it is not partitioned. Raises TopicNotFound, and as `ask_metadata`."""
        return await persist(
            lambda _again: self._network.lookup.partitions(parse_topic(topic)),
            timeout_ms=self.patience_ms,
            what="the metadata services",
        )

    async def ask_owner(
        self,
        topic: str,
        method: UnaryMethod[RequestT, ReceivedRequestT, AnswerT, OwnerAnswerT],
        request_of: Callable[[Route], RequestT],
    ) -> OwnerAnswerT:
        """One call to the topic's owner, through takeovers. Raises TopicNotFound, and as `ask_metadata`.

        request_of: its route has the highest owner_epoch that was seen; the answer of a lower one is refused, and the
        topic looked up again.
        """

        async def ask(again: bool) -> OwnerAnswerT:
            route = await self.route(topic, fresh=again)
            channel = self.channel(route.address)
            answer = await channel.call(method, request_of(route), timeout_ms=_CALL_TIMEOUT_MS)
            self._network.epochs.believe(route.topic_id, OwnerEpoch(answer.owner_epoch))
            return answer

        return await persist(ask, timeout_ms=self.patience_ms, what=f"the owner of {topic}")

    async def route(self, topic: str, *, fresh: bool) -> Route:
        """Where the topic is served; tried once. Raises TopicNotFound, and retriable errors."""
        return await self._network.route(parse_topic(topic), fresh=fresh, create=False)

    def read_stream(
        self,
        topic: str,
        start: StartAt,
        *,
        topic_id: TopicId,
        skip_corrupt: bool = False,
        window_bytes: int = WINDOW_BYTES,
    ) -> ReadStream:
        """The SDK's stream of entries, of the topic with this id alone. The caller closes it."""
        choice = OnCorrupt.SKIP if skip_corrupt else OnCorrupt.RAISE
        corruption = Corruption(topic, choice, advice=SKIP_ADVICE)
        return ReadStream(
            parse_topic(topic),
            start,
            self._network,
            corruption=corruption,
            window_bytes=window_bytes,
            topic_id=topic_id,
            joins_chunks=False,
        )

    def channel(self, address: str) -> Channel:
        """To a topic owner or a storage node; closed with this connection."""
        return self._channels.shared(address)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._channels.close()
        await self._network.close()


@asynccontextmanager
async def storage_of(credentials: Credentials, members: Members) -> AsyncIterator[NodeCalls]:
    """The client of these storage nodes, for reading alone."""
    storage = NodeCalls(credentials)
    storage.update_addresses(addresses_of(members))
    try:
        yield storage
    finally:
        await storage.close()


def closed_ledger(
    ledger_id: LedgerId, topic_id: TopicId, members: Iterable[Incarnation], last: EntryId
) -> LedgerMetadata:
    """A ledger as `storage_client.reader` takes it, with this last entry."""
    return LedgerMetadata(ledger_id, topic_id, tuple(members), 1, LedgerState.CLOSED, last)


@dataclass(frozen=True, slots=True)
class PresentLedgers:
    """The members that ledgers of one topic have now: repair replaces members, and a former one gives nothing.

    purpose: whether they are of the topic's log, of its snapshots or of its ack log. addresses: of all storage nodes
    that are read from.
    """

    cluster: ClusterConnection
    topic: str
    storage: NodeCalls
    addresses: dict[Incarnation, str]
    purpose: LedgerPurpose = LedgerPurpose.LOG

    async def members(self, ledger_id: LedgerId) -> pb.TopicLedger | None:
        """The ledger as it is listed now, None if it is not; `storage` learns the addresses. Raises OncelogError."""
        request = pb.LedgersRequest(
            topic=self.topic,
            with_snapshots=self.purpose is LedgerPurpose.DEDUP,
            with_acks=self.purpose is LedgerPurpose.ACKS,
            ledger_ids=[ledger_id],
        )
        answer = await self.cluster.ask_metadata(LEDGERS, request, patience_ms=_CALL_TIMEOUT_MS)
        for ledger in (*answer.ledgers, *answer.snapshot_ledgers, *answer.ack_ledgers):
            if ledger.ledger_id == ledger_id:
                self.addresses.update(
                    {Incarnation(one.incarnation): one.address for one in ledger.members if one.address}
                )
                self.storage.update_addresses(self.addresses)
                return ledger
        return None

    def record_of(self, metadata: LedgerMetadata) -> ReadRecord:
        """Reads the record of this ledger again, for `storage_client.reader`; its end stays."""

        async def read(ledger_id: LedgerId) -> LedgerMetadata | None:
            ledger = await self.members(ledger_id)
            if ledger is None:
                return None
            return replace(
                metadata,
                members=tuple(Incarnation(one.incarnation) for one in ledger.members),
                lost=tuple(EntryRange(EntryId(each.first), EntryId(each.last)) for each in ledger.lost),
                given_up_by=ledger.given_up_by,
                given_up=tuple(map(Incarnation, ledger.gone)),
            )

        return read


async def ledgers_of(
    cluster: "ClusterConnection", topic: str, *, with_snapshots: bool = False, at_once: int = LEDGERS_AT_ONCE
) -> pb.LedgersAnswer:
    """All ledgers of a topic's log, in as many answers as they need. Raises TopicNotFound, and as `ask_metadata`.

    with_snapshots: also those of its snapshots, which are read behind all of the log's. at_once: ledgers in one answer.
    """
    request = pb.LedgersRequest(topic=topic, with_snapshots=with_snapshots, ledgers_max=at_once)
    whole = pb.LedgersAnswer()
    while True:
        answer = await cluster.ask_metadata(LEDGERS, request)
        if whole.topic_id not in ("", answer.topic_id):
            raise TopicNotFound(f"topic {topic} was deleted while its ledgers were listed", topic=topic)
        whole.topic_id = answer.topic_id
        whole.ledgers.extend(answer.ledgers)
        if not answer.HasField("next_after_ledger_id"):
            whole.snapshot_ledgers.extend(answer.snapshot_ledgers)
            return whole
        request.after_ledger_id = answer.next_after_ledger_id


def addresses_of(members: Members) -> dict[Incarnation, str]:
    """Without those that are not registered."""
    return {member: address for member, address in members if address}


def run_connected(
    connection: ConnectionOptions, work: Callable[[ClusterConnection], Coroutine[Any, Any, ResultT]]
) -> ResultT:
    """Do `work` with a connection of its own, which is closed when it is done."""

    async def run() -> ResultT:
        async with ClusterConnection(connection) as cluster:
            return await work(cluster)

    return process_loop().run_until_complete(run())


#: {process id: its loop}; a forked child has none yet
_LOOPS: dict[int, asyncio.AbstractEventLoop] = {}


def process_loop() -> asyncio.AbstractEventLoop:
    """The one event loop of this process for planning and reading. It is never closed: gRPC's poller continues to wake
    every loop that it has served, and fails on closed ones."""
    loop = _LOOPS.get(os.getpid())
    if loop is None:
        loop = _LOOPS[os.getpid()] = asyncio.new_event_loop()
    return loop
