"""An owner of `fake_cluster`: a server whose sessions live and end with it. Topics, with their log, stay."""

import asyncio
from typing import TYPE_CHECKING

from oncelog.core.errors import (
    EntriesLost,
    LedgerUnavailable,
    ModeMismatch,
    NotOwner,
    OncelogError,
    ProducerBusy,
    ProducerExpired,
    ProducerFenced,
    ServiceUnavailable,
    SessionSuperseded,
    UnreadableEntry,
)
from oncelog.core.formats.client_token import check_of
from oncelog.core.formats.entry import EntryKind, producer_id_of
from oncelog.core.formats.opening import OnConflict, ProducerInstance
from oncelog.core.ids import (
    BEFORE_ALL,
    Incarnation,
    OwnerEpoch,
    ProducerId,
    SessionNumber,
    TopicId,
)
from oncelog.core.topic_events.effects import BatchAnswer
from oncelog.rpc.codecs.consumer_codec import CONSUME
from oncelog.rpc.codecs.owner_codec import (
    LAST_MESSAGE,
    PRODUCER_NAMES,
    PUBLISH,
    READ_CHUNK,
    EndedSession,
    OpenDenied,
    OpenGranted,
    OpenRequest,
    PublishAnswers,
    ReceivedPublish,
)
from oncelog.rpc.codecs.reader_codec import (
    FIND_INDEX,
    READ,
    ReadControl,
    ReaderFrame,
    StartAt,
    StartIndex,
    StorageResume,
)
from oncelog.rpc.server import Server, ServerStream
from oncelog.wire.owner_pb2 import (
    LastMessageAnswer,
    LastMessageRequest,
    ProducerName,
    ProducerNamesAnswer,
    ProducerNamesRequest,
    ReadChunkAnswer,
    ReadChunkRequest,
)
from tests.contract.sdk.fakes.fake_consume import ConsumeStreams
from tests.contract.sdk.fakes.fake_offers import FakeMembers
from tests.contract.sdk.fakes.fake_topic import LEDGER, FakeTopic, start_of

if TYPE_CHECKING:
    from tests.contract.sdk.fakes.fake_cluster import FakeCluster


class Permits:
    """What a reader has granted and not got yet; news: more was granted, the log has grown, or the reader is gone."""

    def __init__(self, left_bytes: int) -> None:
        self.left_bytes = left_bytes
        self.news = asyncio.Event()
        self.gone = False
        self.resumed: asyncio.Queue[StorageResume] = asyncio.Queue()
        #: the reader takes offers
        self.direct = False

    async def take(self, stream: ServerStream[ReadControl, ReaderFrame]) -> None:
        try:
            async for control in stream:
                self.left_bytes += control.permit_bytes
                if control.resume is not None:
                    self.resumed.put_nowait(control.resume)
                self.news.set()
        finally:
            self.gone = True
            self.news.set()


class FakeOwner:
    """One server process: sessions live and end with it."""

    def __init__(self, cluster: "FakeCluster", epoch: int) -> None:
        self.epoch = OwnerEpoch(epoch)
        self.incarnation = Incarnation(f"{epoch:032x}")
        self.address = ""
        self.server = Server()
        #: {topic id: entries it knows of} of an owner that was deposed and does not know it
        self.knows: dict[TopicId, int] | None = None
        #: batches judged here
        self.judged = 0
        self._cluster = cluster
        self._sessions: dict[SessionNumber, tuple[FakeTopic, ProducerId, str]] = {}
        #: {session: its stream}, of clients of gateways
        self._streams: dict[SessionNumber, ServerStream[ReceivedPublish, PublishAnswers]] = {}
        self.server.stream(PUBLISH, self._publish)
        self.server.stream(READ, self._read)
        self.consumers = ConsumeStreams(cluster.by_id, epoch, cluster.consume)
        self.server.stream(CONSUME, self.consumers.serve)
        self.server.unary(FIND_INDEX, self.consumers.find_index)
        self.server.unary(LAST_MESSAGE, self._last_message)
        self.server.unary(PRODUCER_NAMES, self._producer_names)
        self.server.unary(READ_CHUNK, self._read_chunk)

    async def start(self) -> None:
        self.address = f"127.0.0.1:{await self.server.start()}"

    async def kill(self) -> None:
        await self.server.stop(grace_ms=0)

    # --- publish ------------------------------------------------------------------------------------------------------

    async def _publish(self, stream: ServerStream[ReceivedPublish, PublishAnswers]) -> None:
        mine: list[SessionNumber] = []
        try:
            async for frame in stream:
                self._cluster.seen.frames.append(len(frame.batches))
                await self._cluster.knobs.gate.wait()
                self._cluster.seen.opens.append(len(frame.opens))
                granted = [self._open(request) for request in frame.opens]
                opened = [each.session for each in granted if isinstance(each, OpenGranted)]
                mine += opened
                for number in opened:
                    await self._supersede(number)
                    self._streams[number] = stream
                answers, ended = self._take(frame)
                ended += [EndedSession(number, None, self.epoch) for number in frame.closes]
                for number in (*frame.closes, *frame.closes_keeping):
                    self._sessions.pop(number, None)
                self._cluster.seen.closed_sessions += frame.closes
                self._cluster.seen.kept_sessions += frame.closes_keeping
                self._cluster.seen.held_sessions += frame.held
                ended += [EndedSession(number, None, self.epoch) for number in frame.closes_keeping]
                if self._cluster.knobs.lose_answers > 0 and answers:
                    self._cluster.knobs.lose_answers -= 1
                    raise ServiceUnavailable("the answers are lost")
                await stream.write(
                    PublishAnswers(
                        answers,
                        [each for each in granted if isinstance(each, OpenGranted)],
                        [each for each in granted if isinstance(each, OpenDenied)],
                        ended,
                        wanted=opened if self._cluster.knobs.wants_at_once else [],
                    )
                )
        finally:
            for number in mine:
                self._sessions.pop(number, None)

    async def _supersede(self, session: SessionNumber) -> None:
        """End the session that the producer of this one has had before, if it still has it."""
        topic, producer_id, _ = self._sessions[session]
        for number, (other, pid, _) in list(self._sessions.items()):
            if (other, pid) == (topic, producer_id) and number != session and self._cluster.knobs.supersedes:
                del self._sessions[number]
                ended = EndedSession(number, SessionSuperseded("it goes on elsewhere"), self.epoch)
                await self._streams[number].write(PublishAnswers(ended=[ended]))

    async def want(self, name: str) -> None:
        """Ask for this name on the streams of those that hold it."""
        for number in [number for number, session in self._sessions.items() if session[2] == name]:
            await self._streams[number].write(PublishAnswers(wanted=[number]))

    def _open(self, request: OpenRequest) -> OpenGranted | OpenDenied:
        topic = self._cluster.by_id.get(request.topic_id)
        refusal = self._cluster.knobs.refuse_open(request) or (NotOwner() if topic is None else None)
        if topic is None or refusal is not None:
            return OpenDenied(request.open_id, refusal or NotOwner(), self.epoch)
        instance = request.resume or request.present
        if request.client is not None:
            self._cluster.seen.clients.append(request.client)
            self._cluster.seen.instance_ids.append(request.instance_id)
            known = topic.table.producer_id_of(request.producer_name or "")
            token = request.client.token
            if token is not None and known is not None and token.check == check_of(topic.topic_id, known):
                instance = ProducerInstance(known, token.generation)
        if instance is None:
            known = topic.table.producer_id_of(request.producer_name or "")
            if known is not None and topic.table.mode_of(known) is not request.mode:
                return OpenDenied(request.open_id, ModeMismatch(), self.epoch)
            busy = known is not None and any(session[1] == known for session in self._sessions.values())
            if busy and request.on_conflict is OnConflict.REFUSE:
                return OpenDenied(request.open_id, ProducerBusy(), self.epoch)
            name, producer_id, generation = topic.grant(request, self._cluster.next_producer_id())
        else:
            producer_id, generation = instance
            if not topic.table.knows(producer_id):
                return OpenDenied(request.open_id, ProducerExpired(), self.epoch)
            current = topic.table.generation_of(producer_id)[0]
            if generation != current:
                return OpenDenied(request.open_id, ProducerFenced(current=current), self.epoch)
            name = topic.table.state.producers[producer_id].name
        session = self._cluster.next_session()
        self._sessions[session] = (topic, producer_id, name)
        producer = topic.table.state.producers[producer_id]
        return OpenGranted(
            request.open_id, session, name, producer_id, generation, producer.persisted,
            request.resume is None and request.present is None, self.epoch,
            topic.topic_id, self._cluster.knobs.message_bytes_max, growths=producer.growths,
            for_client=request.client is not None and self._cluster.knobs.knows_gateways,
        )  # fmt: skip

    def _take(self, frame: ReceivedPublish) -> tuple[list[BatchAnswer], list[EndedSession]]:
        answers: list[BatchAnswer] = []
        ended: list[EndedSession] = []
        for number, request, data in zip(frame.sessions, frame.requests, frame.batches, strict=True):
            session = self._sessions.get(number)
            if session is None:
                continue
            self.judged += 1
            result = self._cluster.knobs.refuse_batch(data) or session[0].publish(data)
            answers.append(BatchAnswer(number, request, result))
            if isinstance(result, OncelogError):
                del self._sessions[number]
                ended.append(EndedSession(number, result, self.epoch))
        return answers, ended

    # --- read ---------------------------------------------------------------------------------------------------------

    async def _read(self, stream: ServerStream[ReadControl, ReaderFrame]) -> None:
        control = await anext(aiter(stream), None)
        if control is None or control.start is None:
            return
        topic = self._cluster.by_id.get(control.start.topic_id)
        # As the real owner (`ownership_proofs`).
        if topic is None or control.start.owner_epoch_seen > self.epoch:
            await stream.write(ReaderFrame(self.epoch, error=NotOwner()))
            return
        self._cluster.seen.starts.append(control.start.at)
        permits = Permits(control.permit_bytes)
        permits.direct = control.start.storage_reads
        taking = asyncio.ensure_future(permits.take(stream))
        try:
            await self._send_log(topic, control.start.at, stream, permits)
        finally:
            taking.cancel()

    async def _send_log(
        self, topic: FakeTopic, start: StartAt, stream: ServerStream[ReadControl, ReaderFrame], permits: "Permits"
    ) -> None:
        if isinstance(start, StartIndex) and topic.search_meets is not None:
            raise _unreadable(topic.search_meets)
        at, first_index = start_of(topic, start)
        names: set[ProducerId] = set()
        sent = False
        while not permits.gone:
            permits.news.clear()
            entries: list[bytes] = []
            end = self._end_of(topic)
            offering = self._cluster.knobs.offered if permits.direct and sent else None
            if offering is not None and at < end:
                at = await self._offer(offering, topic, (at, end), stream, permits)
                continue
            while at < end and permits.left_bytes > 0 and not topic.lacks(at) and not (sent and permits.direct):
                header, data = topic.entries[at]
                at += 1
                if header.kind == EntryKind.MESSAGES:
                    entries.append(data)
                    permits.left_bytes -= len(data)
                    # As the real owner, it makes no offer before it has sent something.
                    sent = self._cluster.knobs.offered is not None
            wanted = {producer_id_of(data) for data in entries} - names
            new = {pid: state.name for pid, state in topic.table.state.producers.items() if pid in wanted}
            names.update(new)
            at_end = at >= end and not topic.lacks(at)
            position = topic.entries[-1][0].position if topic.entries else BEFORE_ALL
            frame = ReaderFrame(self.epoch, position, at_end, first_index, new, None, entries, topic.trimmed_below)
            await stream.write(frame)
            first_index = 0
            if at in topic.unreadable:
                raise _unreadable(at, next_ledger_id=LEDGER, next_entry_id=at + 1)
            if at in topic.away:
                raise LedgerUnavailable(
                    f"entry {LEDGER}:{at} is away", ledger_id=LEDGER, first=at, last=at, waiting_for="a node"
                )
            if at in topic.lost:
                last = topic.lost[-1]
                raise EntriesLost(
                    f"entries up to {LEDGER}:{last} are lost", ledger_id=LEDGER, first=at, last=last,
                    next_ledger_id=LEDGER, next_entry_id=last + 1,
                )  # fmt: skip
            topic.readers.append(permits.news)
            if at < self._end_of(topic) and permits.left_bytes > 0:
                continue  # it grew while the frame was written
            await permits.news.wait()

    async def _offer(
        self,
        offering: FakeMembers,
        topic: FakeTopic,
        entries: tuple[int, int],
        stream: ServerStream[ReadControl, ReaderFrame],
        permits: Permits,
    ) -> int:
        """Returns the entry to go on with."""
        at, end = entries
        position = topic.entries[end - 1][0].position
        await stream.write(ReaderFrame(self.epoch, position, offer=offering.offer(topic, at, end)))
        resume = await permits.resumed.get()
        following = int(resume.at.entry_id)
        assert resume.at.ledger_id == LEDGER
        assert at <= following <= end
        permits.direct = resume.storage_reads
        offering.resumed.append((following, resume.storage_reads))
        offering.ends.append(resume.end)
        return following

    def _end_of(self, topic: FakeTopic) -> int:
        return len(topic.entries) if self.knows is None else self.knows.get(topic.topic_id, 0)

    async def _producer_names(self, request: ProducerNamesRequest) -> ProducerNamesAnswer:
        if not self._cluster.knobs.names.is_set():
            raise ServiceUnavailable("the names are not known yet")
        producers = self._cluster.by_id[TopicId(request.topic_id)].table.state.producers
        names = [ProducerName(producer_id=number, name=producers[ProducerId(number)].name)
                 for number in request.producer_ids if number in producers]  # fmt: skip
        return ProducerNamesAnswer(names=names, owner_epoch=self.epoch)

    async def _read_chunk(self, request: ReadChunkRequest) -> ReadChunkAnswer:
        return self._cluster.knobs.chunk(request.entry_id)

    async def _last_message(self, request: LastMessageRequest) -> LastMessageAnswer:
        topic = self._cluster.by_id.get(TopicId(request.topic_id))
        if topic is None:
            raise NotOwner
        self._cluster.knobs.before_last_message()
        for header, _ in reversed(topic.entries[: self._end_of(topic)]):
            if header.kind == EntryKind.MESSAGES:
                count = header.skip_first + header.count
                return LastMessageAnswer(
                    present=True, ledger_id=header.ledger_id, entry_id=header.entry_id, batch_index=count - 1,
                    next_index=topic.table.state.next_index, owner_epoch=self.epoch,
                )  # fmt: skip
        return LastMessageAnswer(present=False, next_index=topic.table.state.next_index, owner_epoch=self.epoch)


def _unreadable(at: int, **more: int) -> UnreadableEntry:
    return UnreadableEntry(f"entry {LEDGER}:{at} is damaged everywhere", ledger_id=LEDGER, entry_id=at, **more)
