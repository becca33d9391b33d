"""Consumes the entries of one subscription as they are stored, whole: for gateways, whose clients get batches and not
messages.

An entry is verified, and not decoded. A message in chunks comes with its value joined.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from oncelog.client.reading.entry_reader import EntryStart, WholeEntry
from oncelog.client.values.results import AckResult
from oncelog.core.acks.changes import IndexRange
from oncelog.core.errors import OncelogError
from oncelog.core.ids import Generation, SeekEpoch
from oncelog.rpc.codecs.reader_codec import StartMessage

#: Where a subscription begins. StartMessage: a message inside of an entry, by its place in the batch.
ConsumerStart = EntryStart | StartMessage


class ConsumedEntry(NamedTuple):
    """One delivery of messages of one entry.

    whole: the entry, as a reader gives it. ranges: the message indexes that are meant for this consumer, ascending and
    disjoint; each delivery has one at least. delivery_count: of the entry's worst message among them; 1: none of them
    was delivered before. seek_epoch, generation: for `ack` and `ack_below`.
    """

    whole: WholeEntry
    ranges: tuple[IndexRange, ...]
    delivery_count: int
    seek_epoch: SeekEpoch
    generation: Generation

    @property
    def messages(self) -> int:
        """How many messages are meant for this consumer, which is what the delivery costs of its permits."""
        return sum(last - first + 1 for first, last in self.ranges)


@dataclass(frozen=True, slots=True)
class EntryConsumerCallbacks:
    """Called on the event loop after the consumer is open. They must not call `take`; everything else they may.

    active: exclusive and failover: whether this is the active consumer now. When it no longer is, what it holds is
    void. recalled: messages that were taken here are not held any more, and go to other consumers or come again: the
    owner took them back, or did not leave them here after a lost connection. sought: the subscription begins again;
    everything that was taken before is void, and acknowledgements of it end with StaleSeekEpoch. wanted: another client
    wants to attach to the exclusive subscription: call `client_lives`, or close the consumer.
    """

    active: Callable[[bool], None] | None = None
    recalled: Callable[[tuple[IndexRange, ...]], None] | None = None
    sought: Callable[[SeekEpoch], None] | None = None
    wanted: Callable[[], None] | None = None


class EntryConsumer:
    """One consumer of a subscription of a topic without partitions, or of one partition, for one client of a gateway.
    Made by `gateways.open_entry_consumer`; for one event loop.

    It survives a change of the topic owner, and keeps what it holds. It gets no message before the client has given
    permits. An entry comes whole while any permit is left, so that its messages may exceed them; then nothing comes
    until the sum of permits exceeds all messages that came.

    Attributes:
        topic: the full name of the topic or partition.
        subscription, name: of the subscription, and of this consumer.
    """

    topic: str
    subscription: str
    name: str

    # --- receiving ----------------------------------------------------------------------------------------------------

    def permits(self, total: int) -> None:
        """The client has asked for so many messages in all, since the consumer was opened. Never falls; a lower number
        than before changes nothing."""
        raise NotImplementedError

    def take(self) -> ConsumedEntry | None:
        """The next delivery; None when none was received. The consumer holds its messages until they are acknowledged,
        negatively acknowledged or recalled.

        Raises CorruptEntry, once for each delivery, for an entry whose bytes are damaged: its messages stay
        unacknowledged, and the next call goes on behind it. Raises UnknownFormat and MessageTooLarge at each call.
        """
        raise NotImplementedError

    async def arrival(self) -> None:
        """Return when a delivery may be here for `take`. Raises the error that ended the consumer. A retriable error in
        between is raised once: wait again."""
        raise NotImplementedError

    # --- acknowledging ------------------------------------------------------------------------------------------------

    def ack(self, ranges: Sequence[IndexRange], seek_epoch: SeekEpoch) -> asyncio.Future[AckResult]:
        """Acknowledge exactly these messages.

        The future has the result when the owner has answered: durable, or in its memory only (`AckResult.durable`). Its
        error: StaleSeekEpoch when the subscription was sought since, SubscriptionGone, or the error that ended the
        consumer. The error of a future that is not awaited is dropped. Raises the error that ended the consumer.
        """
        raise NotImplementedError

    def ack_below(self, index: int, seek_epoch: SeekEpoch, generation: Generation) -> asyncio.Future[AckResult]:
        """Acknowledge every message with a lower index; exclusive and failover only. seek_epoch, generation: of the
        delivery. `AckResult.complete` is False when it ended before a message that this consumer has negatively
        acknowledged and not got again. Errors as `ack`, and ConsumerFenced: another consumer has become active since.
        """
        raise NotImplementedError

    def nack(self, ranges: Sequence[IndexRange], *, delay_ms: int | None = None) -> asyncio.Future[None]:
        """Deliver these messages again; each counts one delivery. What the consumer does not hold is ignored.

        delay_ms: not before so many milliseconds; None: the owner's back-off by the number of deliveries; 0: at once.
        The future ends when that is durable; errors as `ack`.
        """
        raise NotImplementedError

    def redeliver(self) -> asyncio.Future[None]:
        """Deliver everything again that was taken and not acknowledged, at once; each message counts one delivery.

        Exclusive and failover: in order. What has arrived here meanwhile comes behind it, and counts none.
        """
        raise NotImplementedError

    # --- the subscription ---------------------------------------------------------------------------------------------

    async def seek(self, start: ConsumerStart) -> SeekEpoch:
        """Begin the subscription again at another place, for all its consumers. Returns its new epoch when that is
        durable and everything that was taken before is void here; `sought` is called, too.

        A place before the first message that is kept means that one. Raises DeadlineExceeded if the outcome is unknown,
        and the error that ended the consumer.
        """
        raise NotImplementedError

    @property
    def active(self) -> bool:
        """Exclusive and failover: whether this is the active consumer. Others: whether it is open."""
        raise NotImplementedError

    @property
    def seek_epoch(self) -> SeekEpoch:
        raise NotImplementedError

    @property
    def created(self) -> bool:
        """Whether the subscription was created for this consumer. False if that is unknown."""
        raise NotImplementedError

    async def unsubscribe(self) -> None:
        """Delete the subscription, if this is its only consumer; then the consumer is closed.

        Raises Conflict when others are connected: nothing has changed. Otherwise the consumer is closed, also when an
        error is raised: Conflict when another consumer has come in this moment, or the error of the call.
        """
        raise NotImplementedError

    # --- life ---------------------------------------------------------------------------------------------------------

    def client_lives(self) -> None:
        """The answer to `wanted`: the client is there, and keeps the subscription."""
        raise NotImplementedError

    @property
    def failure(self) -> OncelogError | None:
        """The error that ended the consumer, ConsumerClosed if by `close`; None while it is open."""
        raise NotImplementedError

    async def close(self, *, client_lost: bool = False) -> None:
        """End the consumer, and give back what it holds, at once. Acknowledgements that were not answered may be
        done or not; their futures get ConsumerClosed.

        client_lost: the client is gone without a word. Then the oldest message that it holds counts one delivery, as
        one that may have ended it. Returns when the owner has answered, after a second at most. May be called twice.
        """
        raise NotImplementedError
