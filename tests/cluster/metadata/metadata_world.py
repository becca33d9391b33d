"""Metadata replicas and owners in one process: real gRPC between them, the metadata store in memory."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from uuid import uuid4

from oncelog.core.errors import DeadlineExceeded, InvalidArgument, OncelogError, ServiceUnavailable
from oncelog.core.formats.topic_record import TopicRecord
from oncelog.core.ids import Incarnation, TopicId
from oncelog.core.names import parse_topic
from oncelog.core.topic.listing import NAMED_MAX
from oncelog.metadata.owners.owners import Probe, probe
from oncelog.metadata.replica import Coordination
from oncelog.metadata.service import running_tasks
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.registry import LiveOwner, Registry
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.rpc.channel import Channel, Stream
from oncelog.rpc.codecs.events_codec import serve_events
from oncelog.rpc.codecs.metadata_codec import LOOKUP, OWNER_STREAM
from oncelog.rpc.codecs.owner_codec import ASSIGN, LIST_LAGS, LIST_TOPICS, RATES, SAMPLE_TOPICS, TOPIC_STATES, UNLOAD
from oncelog.rpc.server import Server
from oncelog.runtime.observing.events import EventRing
from oncelog.wire import metadata_pb2 as pb
from oncelog.wire import observation_pb2, owner_pb2
from tests.cluster.until import until
from tests.contract.stores.memory_store import MemorySession, MemoryTree

CLUSTER_ID = "test-cluster"
DEADLINE_S = 30.0
TIMEOUT_MS = 30_000

OwnerSideStream = Stream[pb.OwnerHello, pb.OwnerCommand]


@dataclass(eq=False)
class Replica:
    """One metadata service without its REST port."""

    coordination: Coordination
    session: MemorySession
    server: Server
    address: str
    channel: Channel

    async def look_up(self, topic: str = "flights", *, create: bool = True, epoch: int = 0) -> pb.LookupAnswer:
        request = pb.LookupRequest(topic=topic, create_if_missing=create, owner_epoch_seen=epoch)
        return await self.channel.call(LOOKUP, request, timeout_ms=TIMEOUT_MS)

    async def sees(self, *owners: "FakeOwner") -> None:
        """Return once this replica has seen the sessions of exactly these owners, and their streams here."""
        expected = {owner.incarnation for owner in owners}

        def seen() -> bool:
            known = self.coordination.owners
            links = all(known.link(owner.incarnation) for owner in owners if self in owner.streams)
            return {one.incarnation for one in known.live} == expected and links

        await until(seen, DEADLINE_S)


@dataclass(eq=False)
class FakeOwner:
    """An owner that accepts every assigned topic and stores nothing."""

    session: MemorySession
    server: Server
    port: int
    channels: AsyncExitStack
    incarnation: Incarnation = field(default_factory=lambda: Incarnation(uuid4().hex))
    #: {replica: the stream to it}
    streams: "dict[Replica, OwnerSideStream]" = field(default_factory=dict)
    #: Topics assigned on a stream, and topics assigned by a call.
    assigned: list[tuple[str, int]] = field(default_factory=list)
    called: list[tuple[str, int]] = field(default_factory=list)
    unloaded: list[str] = field(default_factory=list)
    states: list[owner_pb2.TopicState] = field(default_factory=list)
    #: topics that it lists, in order; None: it does not answer. When it answers, if there is an event. And the
    #: requests for lists
    listed: list[observation_pb2.ListedTopic] | None = field(default_factory=list)
    hold_lists: asyncio.Event | None = None
    lists_asked: list[observation_pb2.ListTopicsRequest] = field(default_factory=list)
    #: of its lists; 0: it knows no order and no filter by name
    list_version: int = 1
    #: subscriptions that it lists, in order
    lags: list[observation_pb2.ListedLag] = field(default_factory=list)
    #: names of topics that it does not serve yet
    waiting: list[str] = field(default_factory=list)
    lags_asked: list[observation_pb2.ListLagsRequest] = field(default_factory=list)
    #: what it answers for
    events: EventRing = field(default_factory=lambda: EventRing("topic_owner"))
    #: what it says of its topics, for plots
    samples: observation_pb2.SampleTopicsAnswer = field(default_factory=observation_pb2.SampleTopicsAnswer)
    #: what it says of its rates, the oldest first
    sampled: list[observation_pb2.RatesSample] = field(default_factory=list)
    #: whether it takes several assignments in one message; and how many each message had
    takes_lists: bool = True
    lists: list[int] = field(default_factory=list)
    #: whether it drops an assigned topic, like an owner that finds no record
    lets_go: bool = False
    #: False: it is paused, or so slow that the call for it times out
    answers_assignments: bool = True
    tasks: list["asyncio.Task[None]"] = field(default_factory=list)
    #: the load that it reports in each heartbeat response; None: it does not respond
    topic_count: int | None = 0
    beats_answered: int = 0
    #: topics that it was asked to unload; it does so once the event is set, if there is one
    unloading: list[str] = field(default_factory=list)
    hold_unloads: asyncio.Event | None = None
    #: whether it refuses them permanently, like an owner with a bug
    refuses_unloads: bool = False

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def hello(self, *, draining: bool = False, cluster_id: str = CLUSTER_ID) -> pb.OwnerHello:
        return pb.OwnerHello(
            cluster_id=cluster_id,
            incarnation=self.incarnation,
            address=self.address,
            draining=draining,
            takes_lists=self.takes_lists,
        )

    async def connect(self, *replicas: Replica) -> None:
        """Open a stream to each replica; returns when the replica has welcomed it."""
        for replica in replicas:
            channel = await self.channels.enter_async_context(Channel(replica.address))
            stream = self.streams[replica] = await self._welcomed(channel)
            self.tasks.append(asyncio.ensure_future(self._hear(stream)))

    async def _welcomed(self, channel: Channel) -> OwnerSideStream:
        """A stream whose hello was answered. On a busy machine one connection may not be there in time."""
        while True:
            stream = channel.stream(OWNER_STREAM)
            try:
                await stream.write(self.hello())
                assert (await anext(aiter(stream))).WhichOneof("command") == "welcome"
            except ServiceUnavailable:
                continue
            return stream

    async def _hear(self, stream: OwnerSideStream) -> None:
        try:
            async for command in stream:
                if command.WhichOneof("command") in ("assign", "assign_all"):
                    orders = command.assign_all.topics or [command.assign]
                    self.lists.append(len(orders))
                    self.assigned += [(order.topic_id, order.owner_epoch) for order in orders]
                elif command.WhichOneof("command") == "beat" and self.topic_count is not None:
                    answer = self.hello()
                    answer.beat, answer.topic_count = command.beat.number, self.topic_count
                    await stream.write(answer)
                    self.beats_answered += 1
        except OncelogError:
            return  # this owner was killed, or the replica has ended

    async def assign(self, request: owner_pb2.AssignRequest) -> owner_pb2.AssignAnswer:
        assert request.target == self.incarnation
        self.called.append((request.topic_id, request.owner_epoch))
        if not self.answers_assignments:
            raise DeadlineExceeded("the owner does not answer in time")
        if self.lets_go:
            self.states = [state for state in self.states if state.topic_id != request.topic_id]
        return owner_pb2.AssignAnswer()

    async def unload(self, request: owner_pb2.UnloadRequest) -> owner_pb2.UnloadAnswer:
        assert request.target == self.incarnation
        self.unloading.append(request.topic_id)
        if self.refuses_unloads:
            raise InvalidArgument("this owner unloads nothing", field="topic_id")
        if self.hold_unloads is not None:
            await self.hold_unloads.wait()
        self.unloaded.append(request.topic_id)
        return owner_pb2.UnloadAnswer()

    async def topic_states(self, request: owner_pb2.TopicStatesRequest) -> owner_pb2.TopicStatesAnswer:
        wanted = [state for state in self.states if state.topic_id in request.topic_ids]
        return owner_pb2.TopicStatesAnswer(states=wanted)

    async def list_topics(self, request: observation_pb2.ListTopicsRequest) -> observation_pb2.ListTopicsAnswer:
        self.lists_asked.append(request)
        if self.hold_lists is not None:
            await self.hold_lists.wait()
        if self.listed is None:
            raise DeadlineExceeded("the owner does not answer in time")
        after = (request.after_rank, request.after_topic)
        behind = [each for each in self.listed if not request.after_topic or (each.rank, each.topic) > after]
        return observation_pb2.ListTopicsAnswer(
            topics=behind[: request.limit], total=len(self.listed), version=self.list_version
        )

    async def list_lags(self, request: observation_pb2.ListLagsRequest) -> observation_pb2.ListLagsAnswer:
        self.lags_asked.append(request)
        if self.hold_lists is not None:
            await self.hold_lists.wait()
        if self.listed is None:
            raise DeadlineExceeded("the owner does not answer in time")
        shown = [json.loads(each.summary_json) for each in self.lags]
        after = (request.after_rank, request.after_name)
        behind = [
            each
            for each in self.lags
            if not request.after_name or (each.rank, f"{each.topic} {each.subscription}") > after
        ]
        return observation_pb2.ListLagsAnswer(
            lags=behind[: request.limit],
            total=len(self.lags),
            waiting=len(self.waiting),
            waiting_first=self.waiting[:NAMED_MAX],
            backlog_messages=sum(each["msg_backlog"] for each in shown),
            oldest_unacked_ms=min((each["oldest_unacked_ms"] for each in shown), default=None),
        )

    async def sample_topics(self, request: observation_pb2.SampleTopicsRequest) -> observation_pb2.SampleTopicsAnswer:
        if self.listed is None:
            raise DeadlineExceeded("the owner does not answer in time")
        return self.samples

    async def rates(self, request: observation_pb2.RatesRequest) -> observation_pb2.RatesAnswer:
        return observation_pb2.RatesAnswer(
            samples=self.sampled[-request.seconds // 10 :], producers=3, consumers=2, topics=1
        )

    async def stop_listening(self) -> None:
        await self.server.stop(grace_ms=0)

    def break_streams(self) -> None:
        for stream in self.streams.values():
            stream.cancel()
        self.streams.clear()

    async def die(self) -> None:
        """Like SIGKILL: streams and port are closed, and the session stays until its timeout."""
        await self.stop_listening()
        self.break_streams()


class World:
    """One cluster, made by `running`, which stops all its replicas and owners."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.tree = MemoryTree()
        self._stack = stack
        self.topics: TopicStore

    @classmethod
    @asynccontextmanager
    async def running(cls) -> AsyncIterator["World"]:
        async with asyncio.timeout(60), AsyncExitStack() as stack:
            world = cls(stack)
            session = await world.session()
            await ClusterStore(session).establish(CLUSTER_ID)
            world.topics = TopicStore(session)
            yield world

    async def session(self) -> MemorySession:
        session = MemorySession(self.tree, root="/oncelog")
        await session.ensure_path("")
        self._stack.push_async_callback(session.close)
        return session

    async def replica(self, *, reach: Probe = probe) -> Replica:
        session = await self.session()
        start = await self._stack.enter_async_context(running_tasks())
        coordination = Coordination.over(session, CLUSTER_ID, start, reach=reach)
        await coordination.owners.refresh()
        start(coordination.owners.follow())
        server = Server()
        coordination.serve(server)
        address = f"127.0.0.1:{await server.start()}"
        self._stack.push_async_callback(coordination.close)
        self._stack.push_async_callback(lambda: server.stop(grace_ms=0))
        channel = await self._stack.enter_async_context(Channel(address))
        return Replica(coordination, session, server, address, channel)

    async def owner(self, *replicas: Replica, port: int = 0) -> FakeOwner:
        """A live owner with a stream to each of `replicas`."""
        server = Server()
        channels = await self._stack.enter_async_context(AsyncExitStack())
        owner = FakeOwner(await self.session(), server, port, channels)
        server.unary(ASSIGN, owner.assign)
        server.unary(UNLOAD, owner.unload)
        server.unary(TOPIC_STATES, owner.topic_states)
        server.unary(LIST_TOPICS, owner.list_topics)
        server.unary(LIST_LAGS, owner.list_lags)
        server.unary(SAMPLE_TOPICS, owner.sample_topics)
        owner.events.name = owner.incarnation
        serve_events(server, owner.events)
        server.unary(RATES, owner.rates)
        owner.port = await server.start(port=port)
        self._stack.push_async_callback(owner.die)
        live = LiveOwner(owner.incarnation, "127.0.0.1", {"grpc": owner.port}, 0)
        await Registry(owner.session).register_owner(live).establish()
        await owner.connect(*replicas)
        return owner

    async def record(self, topic: str = "flights") -> TopicRecord:
        found = await self.topics.find(parse_topic(topic))
        assert found is not None
        stored = await self.topics.read(TopicId(found.value.topic_id))
        assert stored is not None
        return stored.value

    async def moved_to(self, owner: FakeOwner, topic: str = "flights") -> TopicRecord:
        """The topic's record once it names `owner`."""

        async def named() -> bool:
            return (await self.record(topic)).owner == owner.incarnation

        await until(named, DEADLINE_S, waiting_for=f"{topic} on {owner.incarnation}")
        return await self.record(topic)
