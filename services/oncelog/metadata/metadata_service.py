"""The gRPC face: look-ups, the topics of a namespace, the ledgers of a topic, and the streams of the owners."""

import asyncio
import re
from collections.abc import Sequence

from oncelog.core.access import Caller, Right
from oncelog.core.address import join_address
from oncelog.core.errors import InvalidArgument, TopicNotFound, WrongCluster
from oncelog.core.formats.topic_record import DEDUP_CURSOR, LedgerLink
from oncelog.core.ids import Incarnation, OwnerEpoch, TopicId
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.core.names import parse_namespace, parse_topic
from oncelog.metadata.closed_ledgers import ClosedLedgers
from oncelog.metadata.lookup import Lookup
from oncelog.metadata.owners import OwnerLink, Owners
from oncelog.metadata.placer import now_ms
from oncelog.rpc.reachability import resolve
from oncelog.rpc.server import ServerStream
from oncelog.stores.cursor_store import CursorStore
from oncelog.stores.ledger_store import LedgerStore
from oncelog.stores.policy_store import PolicyStore
from oncelog.stores.registry import Registry
from oncelog.stores.topic_store import TopicStore
from oncelog.wire import metadata_pb2 as pb

OwnerStream = ServerStream[pb.OwnerHello, pb.OwnerCommand]
#: Records of ledgers read at the same time.
LEDGER_READS_MAX = 64
_INCARNATION = re.compile(r"[0-9a-f]{32}")
_ADDRESS = re.compile(r"[^\s/]{1,255}:[0-9]{1,5}")
_STATES = {
    LedgerState.OPEN: pb.LEDGER_STATE_OPEN,
    LedgerState.IN_RECOVERY: pb.LEDGER_STATE_IN_RECOVERY,
    LedgerState.CLOSED: pb.LEDGER_STATE_CLOSED,
}


class LookupService:
    """Look-ups of clients, and ledgers for readers of closed ones."""

    def __init__(
        self,
        cluster_id: str,
        lookup: Lookup,
        topics: TopicStore,
        ledgers: LedgerStore,
        cursors: CursorStore,
        registry: Registry,
        policies: PolicyStore,
    ) -> None:
        self._cluster_id = cluster_id
        self._lookup = lookup
        self._topics = topics
        self._ledgers = ClosedLedgers(ledgers)
        self._cursors = cursors
        self._registry = registry
        self._policies = policies

    async def look_up(self, request: pb.LookupRequest, caller: Caller) -> pb.LookupAnswer:
        if request.cluster_id not in ("", self._cluster_id):
            raise WrongCluster(f"this is cluster {self._cluster_id}, not {request.cluster_id}")
        located = await self._lookup.locate_for(
            caller,
            parse_topic(request.topic),
            create=request.create_if_missing,
            owner_epoch_seen=OwnerEpoch(request.owner_epoch_seen),
        )
        return pb.LookupAnswer(
            cluster_id=self._cluster_id,
            topic_id=located.topic_id,
            partitions=located.partitions,
            owner_address=located.address,
            owner_incarnation=located.owner,
            owner_epoch=located.owner_epoch,
            owner_internal_address=located.internal_address,
        )

    async def topics(self, request: pb.TopicsRequest, caller: Caller) -> pb.TopicsAnswer:
        namespace = parse_namespace(request.namespace)
        await self._policies.require(caller, namespace, *Right)
        answer = pb.TopicsAnswer()
        for local, record in (await self._topics.topics(namespace)).items():
            name = parse_topic(f"{namespace}/{local}")
            if name.partition is None:
                answer.topics.add(topic=str(name), partitions=record.partitions)
        return answer

    async def ledgers(self, request: pb.LedgersRequest, caller: Caller) -> pb.LedgersAnswer:
        name = parse_topic(request.topic)
        await self._policies.require(caller, name.namespace_name, Right.CONSUME)
        record = await self._lookup.find(name)
        if record.partitions:
            raise InvalidArgument(f"{name} has {record.partitions} parts: name one, {name}-partition-N", field="topic")
        stored = await self._topics.read(record.topic_id)
        if stored is None:
            raise TopicNotFound(f"there is no topic {name}: it was deleted", topic=str(name))
        answer = pb.LedgersAnswer(topic_id=record.topic_id)
        answer.ledgers.extend(await self._listed(record.topic_id, stored.value.ledgers))
        if request.with_snapshots:
            # Behind the log's: a snapshot that is listed here may be of entries that are not listed there, never less.
            cursor = await self._cursors.read(record.topic_id, DEDUP_CURSOR)
            links = cursor.value.ledgers if cursor is not None else ()
            snapshots = [LedgerLink(link.ledger_id, 0) for link in links]
            answer.snapshot_ledgers.extend(await self._listed(record.topic_id, snapshots))
        return answer

    async def _listed(self, topic_id: TopicId, links: Sequence[LedgerLink]) -> list[pb.TopicLedger]:
        """Their records, with the addresses of their members."""
        nodes = await self._registry.storage_nodes.live()
        addresses = {node.incarnation: join_address(node.host, node.port) for node in nodes.values()}
        listed: list[pb.TopicLedger] = []
        for start in range(0, len(links), LEDGER_READS_MAX):
            some = links[start : start + LEDGER_READS_MAX]
            records = await asyncio.gather(*(self._ledgers.read(topic_id, link.ledger_id) for link in some))
            # One that is gone was trimmed since the topic record was read.
            listed += [
                _ledger(link, ledger, addresses)
                for link, ledger in zip(some, records, strict=True)
                if ledger is not None
            ]
        return listed


def _ledger(link: LedgerLink, ledger: LedgerMetadata, addresses: dict[Incarnation, str]) -> pb.TopicLedger:
    return pb.TopicLedger(
        ledger_id=link.ledger_id,
        state=_STATES[ledger.state],
        first_base_index=link.base_index,
        end=ledger.end,
        length_bytes=ledger.length,
        members=[pb.LedgerMember(incarnation=one, address=addresses.get(one, "")) for one in ledger.members],
        ack_quorum=ledger.ack_quorum,
    )


class OwnerStreams:
    """The stream of each owner, for as long as that lives."""

    def __init__(self, cluster_id: str, owners: Owners) -> None:
        self._cluster_id = cluster_id
        self._owners = owners

    async def serve(self, stream: OwnerStream) -> None:
        """The handler of one stream; however it ends, its end is noticed."""
        hello = await anext(aiter(stream), None)
        if hello is None:
            return
        self._check(hello)
        await stream.write(pb.OwnerCommand(welcome=pb.Welcome(cluster_id=self._cluster_id)))
        link = self._owners.opened(Incarnation(hello.incarnation), hello.address, draining=hello.draining)
        try:
            async with asyncio.TaskGroup() as tasks:
                helping = (tasks.create_task(_send_commands(link, stream)), tasks.create_task(_resolve(link)))
                async for news in stream:
                    link.beats.answered(news.beat)
                    self._owners.heard(link, draining=news.draining, topic_count=news.topic_count)
                for task in helping:
                    task.cancel()
        finally:
            self._owners.closed(link)

    def _check(self, hello: pb.OwnerHello) -> None:
        if hello.cluster_id != self._cluster_id:
            raise WrongCluster(f"this is cluster {self._cluster_id}, the owner belongs to {hello.cluster_id}")
        if _INCARNATION.fullmatch(hello.incarnation) is None:
            raise InvalidArgument("an owner's stream begins with its incarnation", field="incarnation")
        if _ADDRESS.fullmatch(hello.address) is None:
            raise InvalidArgument("an owner's stream begins with its address, host:port", field="address")


async def _send_commands(link: OwnerLink, stream: OwnerStream) -> None:
    """Assignments as they come, and beats between them; one task writes."""
    while True:
        timeout_ms = link.beats.due_ms(now_ms())
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                assignment = await link.assignments.get()
        except TimeoutError:
            await stream.write(pb.OwnerCommand(beat=pb.Beat(number=link.beats.sent(now_ms()))))
        else:
            order = pb.AssignTopic(topic_id=assignment.topic_id, owner_epoch=assignment.owner_epoch)
            await stream.write(pb.OwnerCommand(assign=order))


async def _resolve(link: OwnerLink) -> None:
    """The name of a pod goes with the pod, and may come back for another: the one that is connected is probed."""
    link.probe_address = await resolve(link.address)
