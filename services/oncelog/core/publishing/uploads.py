"""Messages in chunks at their owner: which chunks a message may name.

A value above the limit of a batch is sent as chunks, then one message that names them. A chunk is written when it
arrives, as an entry of kind CHUNK: it takes no index, moves no mark, and every reader and fold passes over it. Nothing
is collected: of each upload the owner keeps the entry ids and checksums, and those only in memory.

    --first chunk (offset 0)--> UPLOADING --next chunk--> UPLOADING --the message names exactly these--> stored
    UPLOADING --session ends, ledger rolls or fails, another message or a first chunk comes--> lost: send all again

Rules
- The message alone has an index and moves the producer's mark. So a crash between chunks leaves nothing that a reader
  sees, and of two instances of a producer, or two attempts, at most one message is stored.
- All chunks are in the ledger of their message. Retention trims whole ledgers, so it never trims a chunk before its
  message. A ledger ends between two chunks by a roll, a failed write or a takeover: the upload is lost then. The error
  is SessionEnded, which makes the client open again and send everything, in order, from the first chunk on.
- An upload belongs to one session. A fenced instance has none, so its chunks never become a message.
- A chunk is judged as its message would be. Its id is stored already: the answer is the duplicate's, with the position
  of the message, and nothing is written. So the retry of a message whose answer was lost sends one chunk.
- A message may name only the chunks of its session's upload: all of them, in order, with their checksums and the bytes
  of the value. Entries become durable in order, so a durable message has durable chunks.
- A roll that is due waits for the uploads that have begun, and first chunks wait for the roll. Otherwise many uploads
  in one ledger could lose each other for ever. It waits no longer for an upload that sends nothing for IDLE_MS, or
  that takes HOLD_MS_MAX, nor at all when the ledger lacks a member.
- What a lost upload has written is an orphan. It costs space until its ledger is trimmed, and is counted.
tests/model/chunks explores these rules with broken sessions, rolls, failed writes, takeovers, restarts and trims.
"""

from dataclasses import dataclass, field

from oncelog.core.errors import InvalidBatch, MessageTooLarge, OncelogError, SessionEnded
from oncelog.core.formats.batch import payload_of
from oncelog.core.formats.chunks import CHUNKS_MAX, ChunkName, ChunkNames, decode_chunk, decode_chunk_names
from oncelog.core.ids import LedgerId, SequenceId, SessionNumber
from oncelog.core.publishing.log import InFlight, TopicLog
from oncelog.core.topic_events.effects import ChunksOrphaned, Step
from oncelog.core.topic_events.events import ReceivedBatch

#: A roll waits no longer for an upload of which no chunk has come for so long.
IDLE_MS = 30_000
#: Nor for one that has taken so long.
HOLD_MS_MAX = 3_600_000


@dataclass(slots=True)
class Upload:
    """The chunks of one message so far. value_bytes: of all of them."""

    ledger_id: LedgerId
    sequence_id: SequenceId
    began_ms: int
    newest_ms: int
    value_bytes: int = 0
    chunks: list[ChunkName] = field(default_factory=list)

    @property
    def names(self) -> ChunkNames:
        return ChunkNames(self.ledger_id, self.value_bytes, tuple(self.chunks))


class Uploads:
    """The uploads of one topic's sessions, at most one of each."""

    def __init__(self, step: Step, log: TopicLog) -> None:
        self._step = step
        self._log = log
        #: {session: its upload}
        self._of_session: dict[SessionNumber, Upload] = {}

    def __len__(self) -> int:
        return len(self._of_session)

    @property
    def hold_ledger(self) -> bool:
        """Whether a roll that is due has to wait."""
        now_ms = self._step.now_ms
        return any(
            upload.ledger_id == self._ledger_id
            and now_ms - upload.newest_ms < IDLE_MS
            and now_ms - upload.began_ms < HOLD_MS_MAX
            for upload in self._of_session.values()
        )

    @property
    def _ledger_id(self) -> LedgerId | None:
        writer = self._log.ledgers.writer
        return None if writer is None else writer.ledger_id

    def waits(self, batch: ReceivedBatch) -> bool:
        """Whether this is a first chunk, and the ledger is about to roll."""
        return decode_chunk(payload_of(batch.header, batch.data))[0] == 0 and self._log.ledgers.rolls_soon

    def append(self, session: SessionNumber, batch: ReceivedBatch) -> InFlight | OncelogError:
        """Write a chunk, or say why its upload is lost. The log is open."""
        offset, data = decode_chunk(payload_of(batch.header, batch.data))
        ledger_id, now_ms = self._ledger_id, self._step.now_ms
        assert ledger_id is not None
        if offset == 0:
            self.end(session)
            self._of_session[session] = Upload(ledger_id, batch.header.first, now_ms, now_ms)
        upload = self._of_session.get(session)
        if upload is None or (upload.ledger_id, upload.sequence_id, upload.value_bytes) != (
            ledger_id, batch.header.first, offset,
        ):  # fmt: skip
            return self._lost(session, batch)
        if len(upload.chunks) == CHUNKS_MAX:
            message = f"a message has at most {CHUNKS_MAX} chunks: send larger ones"
            return MessageTooLarge(message, field="value", limit=CHUNKS_MAX)
        entry = self._log.append_chunk(batch)
        upload.chunks.append(ChunkName(entry.header.entry_id, batch.header.checksum))
        upload.value_bytes += len(data)
        upload.newest_ms = now_ms
        return entry

    def check(self, session: SessionNumber, batch: ReceivedBatch) -> OncelogError | None:
        """Why the message that names chunks may not be stored now; None: it may, and its upload is over."""
        upload = self._of_session.get(session)
        if upload is None or (upload.ledger_id, upload.sequence_id) != (self._ledger_id, batch.header.first):
            return self._lost(session, batch)
        if decode_chunk_names(payload_of(batch.header, batch.data)) != upload.names:
            return InvalidBatch("the message names other chunks than its session has stored", field="payload")
        del self._of_session[session]
        return None

    def _lost(self, session: SessionNumber, batch: ReceivedBatch) -> SessionEnded:
        self.end(session)
        number = batch.header.first
        return SessionEnded(
            f"the chunks of message {number} before this one are not in the open ledger: send all of them again"
        )

    def end(self, session: SessionNumber) -> None:
        """The session's upload, if it has one, never becomes a message."""
        upload = self._of_session.pop(session, None)
        if upload is not None and upload.chunks:
            self._step.emit(ChunksOrphaned(len(upload.chunks), upload.value_bytes))
