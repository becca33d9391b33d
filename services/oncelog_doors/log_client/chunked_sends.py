"""Messages in chunks of one client of a door: performs what `Upload` decides.

A chunk is handed to the log when it comes. When all chunks of a message are stored, the message that names them is
handed over, and meanwhile nothing else of this producer. If the session of the producer ends in between, the producer
does (`core.sdk.producer.session`), and its client sends all chunks again.

If the log has the message already, nothing is written. Then each chunk is compared with the bytes that the log has, so
another message under the same id is never taken for a repetition (hazard generator-goes-back), whatever the sizes of
the chunks are.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from oncelog.client.gateways import PackedCallback, PackedEntry, PackedProducer, PackedResult
from oncelog.core.errors import OncelogError, StaleSequence
from oncelog.core.formats.outcome import ResultKind
from oncelog.core.ids import Position
from oncelog_doors.core.pulsar.chunked_sends import Answers, Upload, without_first
from oncelog_doors.core.pulsar.verdicts import Ids, Known, Rejected, Verdict
from oncelog_doors.log_client.client_chunks import PreparedChunk
from oncelog_doors.log_client.known_batches import known_of
from oncelog_doors.log_client.stored_contents import ChunkAgain, StoredContents
from oncelog_doors.pulsar.ports import Decided

#: A client that sends no chunk for so long may wait for receipts.
WITHHELD_S = 5.0

#: Decides by the policies of the topic. The result may be None: the producer has ended.
Judge = Callable[[Ids, tuple[Known, Position | None], Decided], None]


class _Sent(NamedTuple):
    """A chunk that was given. stored: its bytes are not needed any more."""

    decided: Decided
    stored: Callable[[], None]


class _Sending:
    """One message. sent: {number: a chunk whose SEND is not answered}. last: the last chunk, once it came. is_judged:
    what the log has to say about the message is known."""

    def __init__(self, upload: Upload) -> None:
        self.upload = upload
        self.sent: dict[int, _Sent] = {}
        self.last: PreparedChunk | None = None
        self.is_judged = False


class ChunkedSends:
    """Of one producer."""

    def __init__(
        self, producer: PackedProducer, contents: StoredContents, judge: Judge, *, withheld_s: float = WITHHELD_S
    ) -> None:
        self._producer, self._contents, self._judge, self._withheld_s = producer, contents, judge, withheld_s
        #: the message whose next chunk may come
        self._sending: _Sending | None = None
        self._timer: asyncio.TimerHandle | None = None
        #: the message whose last chunk came, and which is not handed over yet
        self._finishing: tuple[_Sending, asyncio.Future[None]] | None = None

    @property
    def is_finishing(self) -> bool:
        """Whether a message in chunks has to be handed over before anything else."""
        return self._finishing is not None

    async def finished(self) -> None:
        """Return when nothing is."""
        while self._finishing is not None:
            await asyncio.shield(self._finishing[1])

    # --- what the client sends ----------------------------------------------------------------------------------------

    def give(self, chunk: PreparedChunk, decided: Decided, stored: Callable[[], None]) -> None:
        """As `ProducerPort.give`. Only while nothing is finishing."""
        if chunk.place.number == 0:
            self.give_up()
            self._sending = _Sending(Upload(chunk.place, chunk.ids))
        sending = self._sending
        if sending is None:
            decided(without_first(chunk.place, chunk.ids))
            return
        upload = sending.upload
        refusal = upload.refusal_of(chunk.place, chunk.ids, len(chunk.data))
        if refusal is not None:
            self.give_up()
            decided(refusal)
            return
        self._stop_timer()
        number, offset = upload.take(len(chunk.data))
        sending.sent[number] = _Sent(decided, stored)
        if upload.all_given:
            self._sending, sending.last = None, chunk
        if sending.is_judged:
            stored()
            self._answer(sending, upload.due())
            return
        if upload.all_given:
            self._finishing = sending, asyncio.get_running_loop().create_future()
        entry = chunk.packed(offset)
        self._hand(sending, entry, partial(self._chunk_answered, sending, chunk, number, offset, entry))

    def give_up(self) -> None:
        """The client sends something else now, or nothing any more."""
        sending, self._sending = self._sending, None
        self._stop_timer()
        if sending is not None:
            self._answer(sending, sending.upload.release())

    def _hand(self, sending: _Sending, entry: PackedEntry, answered: PackedCallback) -> None:
        try:
            self._producer.send_nowait(entry, answered)
        except OncelogError as error:
            self._failed(sending, error)

    # --- what the log says --------------------------------------------------------------------------------------------

    def _chunk_answered(
        self,
        sending: _Sending,
        chunk: PreparedChunk,
        number: int,
        offset: int,
        entry: PackedEntry,
        result: PackedResult | None,
        error: OncelogError | None,
    ) -> None:
        if result is None or sending.is_judged:
            self._settled(sending, number)
            self._judge_error(sending, error)
            return
        first = result.ranges[0].stored
        if first is not None and first.kind is ResultKind.CHUNK and first.position is not None:
            self._settled(sending, number)
            self._answer(sending, sending.upload.stored(number, first.position, self._producer.checksum_of(entry)))
            self._go_on(sending)
            return
        known, _place = known_of(result.ranges)
        if first is None or first.position is None:
            self._settled(sending, number)
            self._is(sending, known, None)
            return
        again = ChunkAgain(first.position, first.offset, offset, chunk.data, chunk.place.total_bytes, chunk.key)
        self._contents.compare_chunk(again, partial(self._compared, sending, number))

    def _compared(self, sending: _Sending, number: int, found: tuple[Known, Position | None] | None) -> None:
        """found: of the chunk. None: the producer has ended."""
        self._settled(sending, number)
        if sending.is_judged:
            return
        if found is None:
            self._decide(sending, None)
            return
        known, place = found
        if known not in (Known.SAME_BATCH, Known.OTHER_BATCHES):
            self._is(sending, known, None)
            return
        self._answer(sending, sending.upload.repeated(number))
        if sending.upload.is_repeated:
            self._is(sending, known, place)
        else:
            self._go_on(sending)

    def _go_on(self, sending: _Sending) -> None:
        """A chunk is settled."""
        upload = sending.upload
        if upload.is_stored and sending.last is not None:
            try:
                message = sending.last.message(upload.names)
            except OncelogError as error:
                self._failed(sending, error)
                return
            self._hand(sending, message, partial(self._message_answered, sending))
            self._handed_over(sending)
        elif upload.waits and sending is self._sending:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._withheld_s, lambda: self._answer(sending, upload.release()))

    def _message_answered(self, sending: _Sending, result: PackedResult | None, error: OncelogError | None) -> None:
        if result is None:
            self._judge_error(sending, error)
        else:
            self._is(sending, *known_of(result.ranges))

    def _judge_error(self, sending: _Sending, error: OncelogError | None) -> None:
        if isinstance(error, StaleSequence):
            self._is(sending, Known.STALE, None)
        elif error is not None:
            self._failed(sending, error)

    def _failed(self, sending: _Sending, error: OncelogError) -> None:
        """If the producer has ended, nothing is known of the message; else it was refused."""
        ended = self._producer.failure is not None
        self._decide(sending, None if ended else Rejected(f"sequence id {sending.upload.ids}: {error}"))

    def _is(self, sending: _Sending, known: Known, place: Position | None) -> None:
        """What is known of the message, and its place."""
        if not sending.is_judged:
            sending.is_judged = True
            self._judge(sending.upload.ids, (known, place), partial(self._decide, sending))

    def _decide(self, sending: _Sending, verdict: Verdict | None) -> None:
        """verdict: None: the producer has ended."""
        sending.is_judged = True
        self._handed_over(sending)
        if verdict is not None:
            self._answer(sending, sending.upload.decided(verdict))
            return
        for number in sending.upload.end():
            sending.sent.pop(number).decided(None)

    # --- answers ------------------------------------------------------------------------------------------------------

    def _answer(self, sending: _Sending, answers: Answers) -> None:
        for number, verdict in answers.items():
            sending.sent.pop(number).decided(verdict)

    def _settled(self, sending: _Sending, number: int) -> None:
        """The bytes of a chunk are not needed any more."""
        if (sent := sending.sent.get(number)) is not None:
            sent.stored()

    def _handed_over(self, sending: _Sending) -> None:
        if self._finishing is not None and self._finishing[0] is sending:
            done, self._finishing = self._finishing[1], None
            done.set_result(None)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Each `decided` that is open gets None, at the latest when the producer is closed."""
        sending, self._sending = self._sending, None
        self._stop_timer()
        if sending is not None:
            self._decide(sending, None)
