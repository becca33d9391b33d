"""An owner's streams to the metadata services: kept while a service is registered, and reopened after a break."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from oncelog.core.errors import NotOwner, ServiceUnavailable, TooManyRequests
from oncelog.core.ids import Incarnation, TopicId
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.registry import LiveMetadata, Registry
from oncelog.metadata_store.session.ephemerals import Registration
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.metadata_codec import OWNER_STREAM
from oncelog.rpc.server import Server, ServerStream
from oncelog.topic_owner.metadata_streams import MetadataStreams
from oncelog.topic_owner.shell.topic_registry import TopicRegistry
from oncelog.wire import metadata_pb2 as pb
from tests.cluster.until import until
from tests.contract.stores.memory_store import MemorySession, MemoryTree

ME = Incarnation("d" * 32)
KNOWN, UNKNOWN = TopicId("ab" * 16), TopicId("cd" * 16)
DEADLINE_S = 30.0


class Topics:
    """Stands for a TopicRegistry: holds one topic and has room for no other."""

    def __init__(self) -> None:
        self.draining = False
        self.commands: list[tuple[str, str]] = []

    def __len__(self) -> int:
        return 1

    def assign(self, topic_id: TopicId) -> None:
        self.commands.append(("assign", topic_id))
        if topic_id != KNOWN:
            raise TooManyRequests("this owner holds one topic already")

    async def unload(self, topic_id: TopicId) -> None:
        self.commands.append(("unload", topic_id))
        if topic_id != KNOWN:
            raise NotOwner(f"this process does not serve {topic_id}")


class Replica:
    """A metadata service as its owners' streams see it: keeps what they say."""

    def __init__(self) -> None:
        self.hellos: list[pb.OwnerHello] = []
        self.commands: asyncio.Queue[pb.OwnerCommand | None] = asyncio.Queue()
        #: how many streams were opened, and have ended
        self.begun = 0
        self.ended = 0
        self.port = 0
        self._server = Server()
        self._server.stream(OWNER_STREAM, self._serve)

    async def start(self) -> None:
        self.port = await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(grace_ms=0)

    async def _serve(self, stream: ServerStream[pb.OwnerHello, pb.OwnerCommand]) -> None:
        """A command of None breaks the stream off."""
        self.begun += 1
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._listen(stream))
                await stream.write(pb.OwnerCommand(welcome=pb.Welcome(cluster_id="c")))
                while (command := await self.commands.get()) is not None:
                    await stream.write(command)
                raise ServiceUnavailable("this service stops")
        finally:
            self.ended += 1

    async def _listen(self, stream: ServerStream[pb.OwnerHello, pb.OwnerCommand]) -> None:
        async for hello in stream:
            self.hellos.append(hello)


class Linked:
    """The streams of one owner, and what a test makes them meet."""

    def __init__(self, tree: MemoryTree) -> None:
        self._tree = tree
        self.topics = Topics()
        self.streams = MetadataStreams(
            Registry(MemorySession(tree, root="/oncelog")), cast("TopicRegistry", self.topics), Channel,
            cluster_id="c", incarnation=ME, address="127.0.0.1:2",
        )  # fmt: skip

    async def register(self, replica: Replica) -> Registration[LiveMetadata]:
        registry = Registry(MemorySession(self._tree, root="/oncelog"))
        registration = registry.register_metadata(LiveMetadata("127.0.0.1", {"grpc": replica.port}))
        await registration.establish()
        return registration


@asynccontextmanager
async def linked(count: int) -> AsyncIterator[tuple[Linked, list[Replica]]]:
    """An owner's streams, and replicas that run; none of them is registered yet."""
    tree = MemoryTree()
    await ClusterStore(MemorySession(tree, root="/oncelog")).establish()
    owner = Linked(tree)
    replicas = [Replica() for _ in range(count)]
    for replica in replicas:
        await replica.start()
    running = asyncio.create_task(owner.streams.run())
    try:
        async with asyncio.timeout(60):
            yield owner, replicas
    finally:
        running.cancel()
        await asyncio.wait([running])
        await until(lambda: not owner.streams._streams, DEADLINE_S)
        for replica in replicas:
            await replica.stop()


def command(kind: str, topic_id: TopicId) -> pb.OwnerCommand:
    if kind == "assign":
        return pb.OwnerCommand(assign=pb.AssignTopic(topic_id=topic_id, owner_epoch=1))
    return pb.OwnerCommand(unload=pb.UnloadTopic(topic_id=topic_id))


@pytest.mark.asyncio
async def test_each_replica_has_a_stream_while_it_is_registered() -> None:
    """The replica that places topics must see this owner; a replica that has left gets no stream."""
    async with linked(2) as (owner, [first, second]):
        await owner.register(first)
        await until(lambda: first.hellos, DEADLINE_S)
        leaving = await owner.register(second)
        await until(lambda: second.hellos, DEADLINE_S)
        [hello] = first.hellos
        assert (hello.cluster_id, hello.incarnation, hello.address) == ("c", ME, "127.0.0.1:2")
        assert (hello.topic_count, hello.draining, hello.takes_lists) == (1, False, True)
        await leaving.leave()
        await until(lambda: second.ended == 1, DEADLINE_S)
        assert (first.ended, len(first.hellos), len(second.hellos)) == (0, 1, 1)


@pytest.mark.asyncio
async def test_broken_stream_is_reopened_at_once() -> None:
    """Without a stream, the replica may consider this owner dead."""
    async with linked(1) as (owner, [replica]):
        await owner.register(replica)
        for _ in range(3):
            replica.commands.put_nowait(None)
        await until(lambda: (replica.begun, replica.ended) == (4, 3), DEADLINE_S)


@pytest.mark.asyncio
async def test_connection_to_an_unreachable_replica_is_retried() -> None:
    """A replica registers before it listens, and its record may outlive it."""
    async with linked(0) as (owner, _):
        late = Replica()
        await late.start()
        port = late.port
        await late.stop()
        await owner.register(late)
        late = Replica()
        late.port = await late._server.start(port=port)
        try:
            await until(lambda: late.hellos, DEADLINE_S)
        finally:
            await late.stop()


@pytest.mark.asyncio
async def test_refused_commands_leave_the_stream_open() -> None:
    """One topic too many, or an unknown topic: the end of the stream would signal the end of this process."""
    async with linked(1) as (owner, [replica]):
        await owner.register(replica)
        wanted = [(kind, topic_id) for kind in ("assign", "unload") for topic_id in (UNKNOWN, KNOWN)]
        for kind, topic_id in wanted:
            replica.commands.put_nowait(command(kind, TopicId(topic_id)))
        listed = [pb.AssignTopic(topic_id=topic_id, owner_epoch=1) for topic_id in (UNKNOWN, KNOWN)]
        replica.commands.put_nowait(pb.OwnerCommand(assign_all=pb.AssignTopics(topics=listed)))
        await until(lambda: len(owner.topics.commands) == 6, DEADLINE_S)
        assert owner.topics.commands == wanted + wanted[:2]
        assert (len(replica.hellos), replica.ended) == (1, 0)


@pytest.mark.asyncio
async def test_draining_owner_reports_it_on_existing_and_new_streams() -> None:
    """Its topics move as soon as they are closed, and no other topic is placed on it."""
    async with linked(2) as (owner, replicas):
        for replica in replicas:
            await owner.register(replica)
        await until(lambda: len(owner.streams._streams) == 2 and all(r.hellos for r in replicas), DEADLINE_S)
        owner.topics.draining = True
        assert await owner.streams.report_draining() == 2
        await until(lambda: [len(replica.hellos) for replica in replicas] == [2, 2], DEADLINE_S)
        assert [[hello.draining for hello in replica.hellos] for replica in replicas] == [[False, True]] * 2
        replicas[0].commands.put_nowait(None)
        await until(lambda: len(replicas[0].hellos) == 3, DEADLINE_S)
        assert replicas[0].hellos[2].draining


@pytest.mark.asyncio
async def test_broken_stream_does_not_stop_reports_on_other_streams() -> None:
    """A replica that has left needs no report."""
    async with linked(2) as (owner, [gone, there]):
        await owner.register(gone)
        await owner.register(there)
        await until(lambda: len(owner.streams._streams) == 2 and gone.hellos and there.hellos, DEADLINE_S)
        streams = list(owner.streams._streams.values())
        streams[0].stream.cancel()
        owner.topics.draining = True
        await owner.streams.report_draining()
        await until(lambda: any(hello.draining for hello in there.hellos), DEADLINE_S)


@pytest.mark.asyncio
async def test_each_heartbeat_is_answered_with_its_number() -> None:
    """The replica learns that the stream responded until it ended; the answer also has the current state."""
    async with linked(1) as (owner, [replica]):
        await owner.register(replica)
        await until(lambda: replica.hellos, DEADLINE_S)
        for number in (1, 2, 3):
            replica.commands.put_nowait(pb.OwnerCommand(beat=pb.Beat(number=number)))
        await until(lambda: len(replica.hellos) == 4, DEADLINE_S)
        assert [hello.beat for hello in replica.hellos] == [0, 1, 2, 3]
        assert {hello.topic_count for hello in replica.hellos} == {1}
