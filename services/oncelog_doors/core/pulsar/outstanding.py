"""What one consumer of Pulsar holds: which messages its ids mean, and what its acknowledgements are in the log.

An id of Pulsar names an entry, and a client acknowledges the entry as a whole. Here the same entry may come to several
consumers in parts, and to one consumer several times. So an id means what *this consumer* was sent under it, never "the
entry" (hazard ack-of-another-part).

    arrived ──▶ waits ──▶ out ──▶ acknowledged: forgotten when it is durable
                 ▲         │
                 └─────────┴──▶ given back: may arrive again, with the same messages or fewer of them

- A consumer holds one delivery of an entry at a time. What arrives of an entry that is out waits until that delivery is
  acknowledged in whole. In an ordered subscription, and in one that keeps the order of keys, everything behind it waits.
- The numbers of messages in a batch, which acknowledgement sets use, are those of the first delivery as long as this
  consumer may acknowledge it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Generic, NamedTuple, TypeVar

from oncelog.core.acks.changes import IndexRange
from oncelog.core.errors import OncelogError
from oncelog.core.ids import Position, SeekEpoch
from oncelog_doors.core.pulsar.server_errors import Refusal

UNACKNOWLEDGED_MAX = 50_000
IDS_MAX = 2_000
UNREADABLE_DELAY_MS = 60_000

E = TypeVar("E")


class Arrived(NamedTuple, Generic[E]):
    """An entry that the log gives to this consumer. entry: what the shell needs to make its bytes; not looked at here.
    base_index, count: of the whole entry, as its header has them. ranges: the messages that are meant, ascending
    indexes of the topic. can_be_cut: as `parts.can_be_cut` says; unused if all messages are meant."""

    entry: E
    position: Position
    base_index: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which has no use here
    ranges: tuple[IndexRange, ...]
    seek_epoch: SeekEpoch
    can_be_cut: bool = True


class Arrival(Enum):
    TAKEN = auto()
    #: of a position before the last seek: it is dropped, and its messages count as unsent
    OLD = auto()
    #: somebody else has sought the subscription: the table is empty now, the entry is taken. The client must be closed
    #: (CLOSE_CONSUMER), because it shows messages that it cannot acknowledge any more.
    SOUGHT = auto()


@dataclass(frozen=True, slots=True)
class Outgoing(Generic[E]):
    """An entry to be sent now. sends: the messages whose bytes are sent, in the order of batch_index (`parts.part_of`);
    all: the entry goes as `delivery_of` makes it. mask: ack_set of MESSAGE, empty for none: a bit that is clear hides a
    message. messages: what it costs the client's permits."""

    number: int
    arrived: Arrived[E]
    sends: tuple[IndexRange, ...]
    all: bool
    mask: tuple[int, ...]
    messages: int


class NamedId(NamedTuple):
    """A MessageId as a client sends it; numbers of 64 bits may come signed or unsigned. batch_size: 0: not said."""

    ledger_id: int
    entry_id: int
    batch_index: int = -1
    ack_set: Sequence[int] = ()
    batch_size: int = 0


class AckAsked(NamedTuple):
    """An ACK. request_id: None: the client wants no ACK_RESPONSE. unreadable: it has a validation_error."""

    ids: Sequence[NamedId]
    cumulative: bool = False
    request_id: int | None = None
    unreadable: bool = False


class AckAnswer(NamedTuple):
    """An ACK_RESPONSE. refusal: None: all that the command names is durably acknowledged."""

    request_id: int
    refusal: Refusal | None


class AckDecision(NamedTuple):
    """What becomes of an ACK. acknowledge: messages to acknowledge in one request to the log, ascending; when it is
    over, `settled(ticket, …)` is called. nack: to deliver again, after UNREADABLE_DELAY_MS. answers: due now. ignored:
    ids that name nothing this consumer holds, or contradict it; to be counted. unreadable: entries, to be counted."""

    acknowledge: tuple[IndexRange, ...] = ()
    ticket: int = 0
    nack: tuple[IndexRange, ...] = ()
    answers: tuple[AckAnswer, ...] = ()
    ignored: int = 0
    unreadable: int = 0


class GivenBack(NamedTuple):
    """What the log is to deliver again, at once: ascending. unsent: messages in it that the client was never sent, for
    `Permits.unsent`."""

    nack: tuple[IndexRange, ...]
    unsent: int


class Outstanding(Generic[E]):
    """Of one consumer, from SUBSCRIBE on. A client that subscribes again gets a new one: what it still sends of the
    former one names nothing."""

    def __init__(
        self, *, cumulative: bool, keeps_order: bool, unacknowledged_max: int = UNACKNOWLEDGED_MAX
    ) -> None:
        """cumulative: the type allows cumulative acknowledgements (exclusive, failover). keeps_order: of all messages or
        of keys, so all types but shared: an entry that waits stops those behind it."""
        #: as the client has it: MESSAGE repeats it
        self.consumer_epoch = 0
        #: messages that were sent and are not durably acknowledged or given back
        self.unacknowledged = 0
        #: the client has sent an acknowledgement set, so masks are sent to it
        self.reads_masks = False
        #: the table remembers too much, or holds a part that cannot be sent before the client subscribes again:
        #: CLOSE_CONSUMER is due
        self.must_close = False

    # --- delivery -----------------------------------------------------------------------------------------------------

    def arrived(self, arrived: Arrived[E]) -> Arrival:
        """The log has delivered an entry. It waits until `next` returns it."""
        raise NotImplementedError

    def next(self) -> Outgoing[E] | None:
        """The entry to be made ready and sent now. None: none may go before another event. The caller asks only while
        permits are left."""
        raise NotImplementedError

    def may_go(self, outgoing: Outgoing[E]) -> bool:
        """Its bytes are ready. True: they are sent now, and cost their permits. False: it was given back, recalled or
        sought meanwhile: nothing is sent."""
        raise NotImplementedError

    @property
    def blocked(self) -> bool:
        """Too much is unacknowledged: nothing goes out."""
        raise NotImplementedError

    @property
    def waiting(self) -> int:
        """Messages that have arrived and were not sent."""
        raise NotImplementedError

    # --- what the client says -----------------------------------------------------------------------------------------

    def acknowledge(self, asked: AckAsked) -> AckDecision:
        raise NotImplementedError

    def settled(self, ticket: int, error: OncelogError | None) -> list[AckAnswer]:
        """The request of `AckDecision.acknowledge` is over. error: None: it is durable. Returns the answers due."""
        raise NotImplementedError

    def redeliver(self, ids: Sequence[NamedId]) -> GivenBack:
        """REDELIVER with ids. Those that name nothing are passed over. At most IDS_MAX are looked at."""
        raise NotImplementedError

    def redeliver_all(self, consumer_epoch: int = 0) -> GivenBack:
        """REDELIVER without ids: everything, also what waits. What the SDK still holds is to be taken to `arrived`
        before, else it goes out in front of the redelivered messages."""
        raise NotImplementedError

    # --- what the log says --------------------------------------------------------------------------------------------

    def recalled(self, ranges: Sequence[IndexRange]) -> int:
        """The owner has taken messages back, to deliver them again. What was not sent is dropped. Returns how many
        messages that were, for `Permits.unsent`. What was sent may still be acknowledged."""
        raise NotImplementedError

    def sought(self, seek_epoch: SeekEpoch) -> int:
        """The subscription begins elsewhere: all is void, nothing is given back. Returns messages that were never sent,
        for `Permits.unsent`."""
        raise NotImplementedError
