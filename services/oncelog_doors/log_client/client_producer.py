"""A producer of the SDK, in the form that a door needs (`pulsar.ports.ProducerPort`)."""

import asyncio
from collections.abc import Callable
from functools import partial

from oncelog.client.gateways import PackedEntry, PackedProducer, PackedResult
from oncelog.core.errors import OncelogError, StaleSequence
from oncelog.core.ids import Position, SequenceId
from oncelog.runtime.tasks import BackgroundTasks
from oncelog_doors.core.pulsar.verdicts import BY_RULES, Ids, Known, Rejected, TopicRules, verdict_on
from oncelog_doors.log_client.chunked_sends import ChunkedSends
from oncelog_doors.log_client.client_chunks import PreparedChunk, prepared_chunk
from oncelog_doors.log_client.client_entries import packed
from oncelog_doors.log_client.client_policies import PoliciesOfTopic
from oncelog_doors.log_client.known_batches import known_of
from oncelog_doors.log_client.stored_contents import StoredContents
from oncelog_doors.pulsar.ports import Decided

_NO_RULES = TopicRules()


class ClientProducer:
    """Of one client of a door."""

    def __init__(
        self, producer: PackedProducer, policies: PoliciesOfTopic, contents: StoredContents, tasks: BackgroundTasks
    ) -> None:
        self._producer, self._policies, self._contents, self._tasks = producer, policies, contents, tasks
        self._judging: set[asyncio.Task[None]] = set()
        self._chunks = ChunkedSends(producer, contents, self._known)

    @property
    def name(self) -> str:
        return self._producer.name

    @property
    def token(self) -> int:
        return self._producer.token

    @property
    def last_sequence_id(self) -> SequenceId:
        return self._producer.last_sequence_id

    def prepare(
        self, entry: bytes, ids: Ids, message_count: int, *, is_chunk: bool
    ) -> "PreparedEntry | PreparedChunk | Rejected":
        limit = self._producer.batch_bytes_max
        if is_chunk:
            return prepared_chunk(entry, ids, message_count, producer_name=self.name, bytes_max=limit)
        found = packed(entry, ids, message_count, producer_name=self.name, bytes_max=limit)
        return found if isinstance(found, Rejected) else PreparedEntry(ids, found)

    def has_room(self, size: int) -> bool:
        return not self._chunks.is_finishing and self._producer.has_room(size)

    async def room(self, size: int) -> None:
        await self._chunks.finished()
        await self._producer.room(size)

    def give(self, prepared: "PreparedEntry | PreparedChunk", decided: Decided, stored: Callable[[], None]) -> None:
        if isinstance(prepared, PreparedChunk):
            self._chunks.give(prepared, decided, stored)
            return
        self._chunks.give_up()
        try:
            self._producer.send_nowait(prepared.entry, partial(self._answered, prepared, decided))
        except OncelogError as error:
            self._failed(error, decided)

    def gives_no_more_chunks(self) -> None:
        self._chunks.give_up()

    def _answered(
        self, sent: "PreparedEntry", decided: Decided, result: PackedResult | None, error: OncelogError | None
    ) -> None:
        if result is not None:
            known, place = known_of(result.ranges)
            if known in (Known.OTHER_BATCHES, Known.PARTLY_NEW):
                then = partial(self._known, sent.ids, decided=decided)
                self._contents.compare(known, sent.entry, result.ranges, then)
            else:
                self._known(sent.ids, (known, place), decided)
        elif isinstance(error, StaleSequence):  # of all messages of the batch
            self._known(sent.ids, (Known.STALE, None), decided)
        else:
            assert error is not None, "a batch has a result or an error"
            self._failed(error, decided)

    def _known(self, ids: Ids, known: tuple[Known, Position | None] | None, decided: Decided) -> None:
        if known is None:
            decided(None)
        elif known[0] in BY_RULES:
            task = self._tasks.start(self._judge(known[0], ids, decided), what="the policies for a batch")
            self._judging.add(task)
            task.add_done_callback(partial(self._judged, decided))
        else:
            decided(verdict_on(known[0], ids, known[1], _NO_RULES))

    async def _judge(self, known: Known, ids: Ids, decided: Decided) -> None:
        decided(verdict_on(known, ids, None, (await self._policies.get()).rules))

    def _judged(self, decided: Decided, task: "asyncio.Task[None]") -> None:
        self._judging.discard(task)
        if task.cancelled():
            decided(None)

    def _failed(self, error: OncelogError, decided: Decided) -> None:
        """If the producer has ended, nothing is known of the batch; else the batch itself was refused."""
        decided(None if self._producer.failure is not None else Rejected(str(error)))

    def holder_lives(self) -> None:
        self._producer.client_lives()

    async def ended(self) -> OncelogError:
        return await self._producer.ended()

    async def close(self, *, gives_up_name: bool) -> None:
        self._contents.close()
        for task in self._judging:
            task.cancel()
        self._chunks.close()
        await self._producer.close(gives_up_name=gives_up_name)


class PreparedEntry:
    """What `give` takes."""

    __slots__ = ("entry", "ids")

    def __init__(self, ids: Ids, entry: PackedEntry) -> None:
        self.ids, self.entry = ids, entry
