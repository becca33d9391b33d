"""The messages that one consumer has received of one topic or partition: decoded, and found again for acknowledging."""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from crc32c import crc32c

from oncelog.client.consuming.acknowledging import Acknowledgements
from oncelog.client.consuming.consumer_driver import ConsumerDriver
from oncelog.client.network.chunk_join import ChunksTrimmed, is_chunked
from oncelog.client.values.corruption import SKIPPED_MAX, OnCorrupt, Skipped
from oncelog.client.values.encrypted import OnEncrypted
from oncelog.client.values.messages import ConsumerDelivery, MessageBatch, StoredBatch, decode_stored, open_entry
from oncelog.core.acks.changes import IndexRange
from oncelog.core.delivery.events import StoredEntry
from oncelog.core.errors import CompressionUnavailable, CorruptEntry, InvalidArgument, MessageTooLarge
from oncelog.core.format_errors import MessageEncrypted, UnknownFormat
from oncelog.core.formats.columns import Columns
from oncelog.core.formats.message_id import MessageId
from oncelog.core.ids import Generation, Position, SeekEpoch
from oncelog.core.sdk.consumer.events import MessageRange, SkipUnreadable

logger = logging.getLogger(__name__)

#: Received entries whose messages can be acknowledged by message id; older ones are forgotten.
ENTRIES_KEPT = 10_000
#: Of one entry, seek epochs and generations under which messages of it were received.
DELIVERIES_KEPT = 4


class ReceivedPosition(NamedTuple):
    """A received message: where it is, and how it was delivered."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which has no use here
    seek_epoch: SeekEpoch
    generation: Generation
    delivery_count: int = 1


@dataclass(slots=True)
class _Received:
    """The messages of one entry that the application has received under one seek epoch and generation."""

    seek_epoch: SeekEpoch
    generation: Generation
    #: bit i: the message with this index in the batch
    mask: int = 0
    #: {index in the topic: how often it was delivered}, of those above 1
    delivery_counts: dict[int, int] = field(default_factory=dict)


class _ReceivedEntry(NamedTuple):
    """base_index: of the batch's first message. received: the newest delivery last."""

    base_index: int
    received: list[_Received]


class _Decoded(NamedTuple):
    entry: StoredEntry
    stored: StoredBatch
    columns: Columns


class ConsumedMessages:
    """Of one driver."""

    def __init__(
        self,
        driver: ConsumerDriver,
        on_corrupt: OnCorrupt,
        on_encrypted: OnEncrypted = OnEncrypted.RAISE,
    ) -> None:
        self.driver = driver
        self.acks = Acknowledgements(driver)
        self._on_corrupt, self._on_encrypted = on_corrupt, on_encrypted
        #: called with messages that cannot be read, where they are skipped; None: they are acknowledged
        self.pass_over: Callable[[IndexRange], None] | None = None
        #: handed out by the core, and not returned to the application yet
        self._runs: deque[MessageRange] = deque()
        #: the entry that was decoded last: its messages often come in several runs
        self._decoded: _Decoded | None = None
        #: {position: what was received of this entry}, the one received longest ago first
        self._entries: dict[Position, _ReceivedEntry] = {}
        self.skipped_total = 0
        self.skipped: deque[Skipped] = deque(maxlen=SKIPPED_MAX)

    # --- receiving ----------------------------------------------------------------------------------------------------

    def take(self, count_max: int) -> list[MessageBatch]:
        """Up to count_max messages that are here. Raises CorruptEntry, once for each delivery, for an entry that cannot
        be decoded; its messages stay unacknowledged, and the next call goes on behind it.

        Raises CompressionUnavailable, MessageTooLarge, MessageEncrypted and UnknownFormat at each call: no message is
        passed over because a library, memory, a key or a later version is missing (hazards codec-taken-for-damage,
        format-of-a-later-version)."""
        batches: list[MessageBatch] = []
        count = 0
        while count < count_max:
            if not self._runs:
                self._runs.extend(self.driver.take(count_max - count))
                if not self._runs:
                    break
            run = self._runs[0]
            if self.driver.is_void(run.seek_epoch, run.generation):
                self._runs.popleft()
                continue
            try:
                batch = self._batch(run)
                if batch is None:
                    break
            except (CompressionUnavailable, MessageEncrypted, MessageTooLarge, UnknownFormat):
                if batches:
                    break  # first what was received before it
                raise
            except ChunksTrimmed:
                self._runs.popleft()
                logger.warning("%s: message %s was trimmed before it was joined", self.driver.topic, run.first)
                continue
            except CorruptEntry as error:
                if batches and self._on_corrupt is OnCorrupt.RAISE:
                    break  # first what was received before it
                self._runs.popleft()
                self.driver.chunks.end()  # a chunk may be readable when the message is delivered again
                self._cannot_decode(run, error)
                continue
            self._runs.popleft()
            if run.last == run.entry.base_index + run.entry.count - 1:
                self._decoded = None  # no more of it comes: keep no entry while nothing waits
            batches.append(batch)
            count += run.count
        return batches

    @property
    def has_rest(self) -> bool:
        """Whether `take` returns messages that the core counts as handed out."""
        return bool(self._runs) and not self.driver.chunks.waits

    def _batch(self, run: MessageRange) -> MessageBatch | None:
        """None: the message is in chunks, which are being joined. Raises as `take`, and ChunksTrimmed."""
        entry, decoded = run.entry, self._decoded
        if decoded is None or decoded.entry is not entry:
            stored = open_delivered(entry)
            if is_chunked(stored):
                self._decoded = None
                joined = self.driver.chunks.joined(stored)
                if joined is None:
                    return None
                stored = joined
                self.driver.chunks.end()
            decoded = self._decoded = _Decoded(entry, stored, decode_stored(stored, self._on_encrypted))
        stored = decoded.stored
        first = run.first - entry.base_index + entry.skip_first
        self._keep(run)
        return MessageBatch(
            stored,
            self.driver.topic_partition,
            self.driver.names.name(stored.batch.producer_id),
            first_batch_index=first,
            end_batch_index=first + run.count,
            columns=decoded.columns,
            delivery=ConsumerDelivery(self, run.seek_epoch, run.generation, run.delivery_counts),
        )

    def _keep(self, run: MessageRange) -> None:
        entry, entries = run.entry, self._entries
        kept = entries.pop(entry.position, None) or _ReceivedEntry(entry.base_index - entry.skip_first, [])
        entries[entry.position] = kept
        received = kept.received
        if not received or (received[-1].seek_epoch, received[-1].generation) != (run.seek_epoch, run.generation):
            received.append(_Received(run.seek_epoch, run.generation))
            del received[:-DELIVERIES_KEPT]
        received[-1].mask |= ((1 << run.count) - 1) << (run.first - kept.base_index)
        if run.delivery_counts:
            received[-1].delivery_counts.update(run.delivery_counts)
        if len(entries) > ENTRIES_KEPT:
            del entries[next(iter(entries))]

    def _cannot_decode(self, run: MessageRange, error: CorruptEntry) -> None:
        position, topic = run.entry.position, self.driver.topic
        skipped = Skipped(position.ledger_id, position.entry_id, run.first, run.count, error.message)
        if self._on_corrupt is OnCorrupt.RAISE:
            raise CorruptEntry(
                f"{topic}: cannot read {skipped}. Its messages stay unacknowledged; receiving goes on behind them."
                " Subscribe with on_corrupt='skip' to acknowledge such messages",
                ledger_id=position.ledger_id,
                entry_id=position.entry_id,
                first_index=run.first,
                count=run.count,
            ) from error
        self._skip(skipped, run.seek_epoch, IndexRange(run.first, run.last))

    def skip_unreadable(self, skip: SkipUnreadable) -> None:
        """Acknowledge messages that no storage node can give any more."""
        (first, last), details = skip.messages, skip.error.details
        ledger_id, entry_id, last_entry_id = (
            int(details.get(name) or 0) for name in ("ledger_id", "first" if "first" in details else "entry_id", "last")
        )
        skipped = Skipped(ledger_id, entry_id, first, last - first + 1, skip.error.message, last_entry_id or None)
        self._skip(skipped, skip.seek_epoch, skip.messages)

    def _skip(self, skipped: Skipped, seek_epoch: SeekEpoch, messages: IndexRange) -> None:
        logger.warning("%s: skipped %s", self.driver.topic, skipped)
        self.skipped.append(skipped)
        self.skipped_total += skipped.entry_count
        if self.pass_over is not None:
            self.pass_over(messages)
        else:
            self.acks.add(seek_epoch, [messages])

    # --- acknowledging ------------------------------------------------------------------------------------------------

    def find(self, message_id: MessageId) -> ReceivedPosition:
        """The newest delivery of a message that was received. Raises InvalidArgument: also for a message of a received
        entry that went to another consumer, because an acknowledgement would count for it."""
        known = self._entries.get(message_id.position)
        topic_id = self.driver.topic_partition.topic_id
        if known is not None and message_id.topic_id in ("", topic_id):
            index = known.base_index + message_id.batch_index
            for received in reversed(known.received):
                if received.mask >> message_id.batch_index & 1:
                    count = received.delivery_counts.get(index, 1)
                    return ReceivedPosition(index, received.seek_epoch, received.generation, count)
        raise InvalidArgument(
            f"message {message_id} of {self.driver.topic} is not one that this consumer received lately: acknowledge "
            "the Message itself",
            field="messages",
        )


def open_delivered(entry: StoredEntry) -> StoredBatch:
    """Check an entry as it was delivered. Raises CorruptEntry, UnknownFormat."""
    stored = open_entry(entry.data, crc32c)
    header = stored.entry
    if (header.position, header.base_index, header.count, header.skip_first) != (
        entry.position,
        entry.base_index,
        entry.count,
        entry.skip_first,
    ):
        raise CorruptEntry(f"entry {header.position} was delivered as {entry.position}")
    return stored
