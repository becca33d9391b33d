"""The read stream of one reader: entries in log order, never beyond last_add_confirmed.

Entries at the end of the log come from the cache, older ones from the storage nodes. A reader grants permits in bytes.
An entry is sent while any permit is left, so the smallest permit is enough for the largest entry. Control entries are
not sent.
"""

import asyncio
from collections.abc import AsyncIterator

from oncelog.core.access import Right
from oncelog.core.errors import (
    InvalidArgument,
    InvariantViolated,
    LedgerUnavailable,
    LogHole,
    OncelogError,
    TopicLoading,
)
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.entry import EntryKind, body_of, peek_header
from oncelog.core.ids import NOT_DEDUPLICATED, EntryId, LedgerId, Position, ProducerId
from oncelog.ledgers.reader import read_entries
from oncelog.rpc.options import FRAME_BYTES_TARGET
from oncelog.rpc.reader_codec import ReadControl, ReaderFrame, ReaderStart, StartMessage
from oncelog.rpc.server import ServerStream
from oncelog.topic_owner.authorization import authorize
from oncelog.topic_owner.log_view import LogView, ReadableRange
from oncelog.topic_owner.ownership_proofs import until_current
from oncelog.topic_owner.topic_registry import TopicRegistry
from oncelog.topic_owner.topic_runner import TopicRunner


class ReadService:
    """Serves all read streams of this owner."""

    def __init__(self, topics: TopicRegistry) -> None:
        self.topics = topics

    async def read(self, stream: ServerStream[ReadControl, ReaderFrame]) -> None:
        """The handler of one stream. An error is its last frame, with the owner epoch."""
        control = await anext(aiter(stream), None)
        if control is None:
            return
        if control.start is None:
            raise InvalidArgument("the first message of a read stream must contain the start", field="start")
        runner = self.topics.runner(control.start.topic_id, control.start.topic)
        await authorize(runner, stream.caller, Right.CONSUME)
        reading = _Reading(runner, stream, control.permit_bytes)
        async with asyncio.TaskGroup() as tasks:
            permits = tasks.create_task(reading.take_permits())
            try:
                await reading.run(control.start)
            except InvariantViolated:
                raise
            except OncelogError as error:
                await stream.write(ReaderFrame(runner.owner_epoch, error=await runner.why(error)))
            permits.cancel()


class _Reading:
    """The progress of one reader through the log."""

    def __init__(self, runner: TopicRunner, stream: ServerStream[ReadControl, ReaderFrame], permit_bytes: int) -> None:
        self._runner = runner
        self._stream = stream
        self._view = LogView(runner)
        self._permit_bytes = permit_bytes
        self._permitted = asyncio.Event()
        self._names: set[ProducerId] = set()
        self._first_index = 0
        #: told with the first frame
        self._trimmed_below = 0
        self._gone = asyncio.Event()
        #: the confirmed position at which the reader last got `at_end`
        self._told_end: Position | None = None

    async def take_permits(self) -> None:
        """Add the permits that the reader grants, until it disconnects."""
        try:
            async for control in self._stream:
                self._permit_bytes += control.permit_bytes
                self._permitted.set()
        finally:
            self._gone.set()
            self._permitted.set()

    async def run(self, start: ReaderStart) -> None:
        runner = self._runner
        await until_current(runner, start.owner_epoch_seen)
        wanted, self._first_index = await self._view.start_of(start.at)
        at, _ = await self._view.next_range(wanted)
        if at != wanted:
            self._first_index = 0  # that entry was trimmed: the log begins behind it
        if isinstance(start.at, StartMessage):
            self._trimmed_below = self._view.trimmed_below(start.at.position)
        while not self._gone.is_set():
            at, available = await self._view.next_range(at)
            if available is None:
                if self._told_end != runner.progress.confirmed:
                    self._told_end = runner.progress.confirmed
                    await self._stream.write(ReaderFrame(runner.owner_epoch, self._told_end, at_end=True))
                await self._until_more(at)
            else:
                at = await self._send_range(available)

    async def _until_more(self, at: Position) -> None:
        """Wait for an entry at or behind `at`, or for the reader to disconnect."""
        more = asyncio.ensure_future(
            self._runner.progress.until_after(Position(at.ledger_id, EntryId(at.entry_id - 1)))
        )
        gone = asyncio.ensure_future(self._gone.wait())
        try:
            await asyncio.wait((more, gone), return_when=asyncio.FIRST_COMPLETED)
            if more.done():
                more.result()
        finally:
            more.cancel()
            gone.cancel()

    async def _send_range(self, entries: ReadableRange) -> Position:
        ledger_id = entries.metadata.ledger_id
        following = entries.first
        while following <= entries.last and not self._gone.is_set():
            cached = self._runner.cache.consecutive(ledger_id, following, entries.last, bytes_max=FRAME_BYTES_TARGET)
            if cached:
                await self._send([b"".join(parts) for parts in cached])
                following = EntryId(following + len(cached))
                continue
            try:
                async for page in self._pages(entries, following):
                    self._runner.progress.unavailable.answered(ledger_id)
                    await self._send([data for _, data in page])
                    following = EntryId(page[-1][0] + 1)
                    if self._gone.is_set() or self._runner.cache.get(ledger_id, following) is not None:
                        break
            except LedgerUnavailable as error:
                self._runner.progress.unavailable.failed(error)
                raise
            except LogHole:
                if self._view.is_listed(ledger_id):
                    raise
                return Position(LedgerId(ledger_id + 1), EntryId(0))  # trimmed meanwhile
        return Position(ledger_id, following)

    def _pages(self, entries: ReadableRange, first: EntryId) -> AsyncIterator[list[tuple[EntryId, Buffer]]]:
        metadata, view = self._view.known(entries.metadata), self._view
        return read_entries(self._runner.parts.links, metadata, first, entries.last, record=view.record)

    async def _send(self, entries: list[Buffer]) -> None:
        """Send the entries that hold messages, in frames, while permits last."""
        frame: list[Buffer] = []
        names: dict[ProducerId, str] = {}
        size = 0
        for data in entries:
            header = peek_header(data)
            if header.kind != EntryKind.MESSAGES or not header.count:
                if not frame:
                    self._first_index = 0  # it applied to this entry only
                continue
            self._name(data, names)
            frame.append(data)
            size += len(data)
            if size >= FRAME_BYTES_TARGET:
                await self._write(frame, names, size)
                frame, names, size = [], {}, 0
        if frame:
            await self._write(frame, names, size)

    def _name(self, data: Buffer, names: dict[ProducerId, str]) -> None:
        producer_id = ProducerId(int.from_bytes(body_of(data)[8:16], "little"))
        if producer_id == NOT_DEDUPLICATED or producer_id in self._names:
            return
        serving = self._runner.core.serving
        if serving is None:
            # Without a name the message would look as if it had been stored without deduplication.
            raise TopicLoading(
                "the topic is moving to another owner and its producer names are not known yet: try again"
            )
        known = serving.log.table.state.producers.get(producer_id)
        if known is not None:
            names[producer_id] = known.name
            self._names.add(producer_id)

    async def _write(self, entries: list[Buffer], names: dict[ProducerId, str], size: int) -> None:
        while self._permit_bytes <= 0 and not self._gone.is_set():
            self._permitted.clear()
            await self._permitted.wait()
        if self._gone.is_set():
            return
        self._permit_bytes -= size
        first_index, self._first_index = self._first_index, 0
        confirmed = self._runner.progress.confirmed
        at_end = peek_header(entries[-1]).position >= confirmed
        self._told_end = confirmed if at_end else None
        await self._stream.write(
            ReaderFrame(
                self._runner.owner_epoch, confirmed, at_end, first_index, names, None, entries, self._trimmed_below
            )
        )  # fmt: skip
        self._trimmed_below = 0
