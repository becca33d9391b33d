"""What a client of Pulsar says in ACK and REDELIVER, what becomes of it, and when it is answered.

An ACK may name messages of many entries. It is answered once: when all that it has changed is durable in the log, with
the first error that there was. What the client acknowledges again while the first acknowledgement is on its way waits
for that one.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from oncelog.core.ids import EntryId, LedgerId, Position, SeekEpoch
from oncelog_doors.core.pulsar.consuming.ack_sets import Ranges
from oncelog_doors.core.pulsar.server_errors import Refusal, ServerError

#: Of one command. A client of Java sends 1,998 at a time, and more after its connection was broken.
IDS_MAX = 10_000
UNREADABLE_DELAY_MS = 60_000
#: Behind the delivery for which they wait.
LATER_DELAY_MS = 1_000

_NEGATIVE = 2**63


class NamedId(NamedTuple):
    """A MessageId as a client sends it; numbers of 64 bits may come signed or unsigned. batch_size: 0: not said."""

    ledger_id: int
    entry_id: int
    batch_index: int = -1
    ack_set: Sequence[int] = ()
    batch_size: int = 0

    @property
    def position(self) -> Position:
        """Clients that acknowledge all in front of the first entry of a ledger name ledger:-1."""
        return Position(LedgerId(self.ledger_id), EntryId(self.entry_id if 0 <= self.entry_id < _NEGATIVE else -1))


class AckAsked(NamedTuple):
    """An ACK. request_id: None: the client wants no ACK_RESPONSE. unreadable: it has a validation_error: the client
    could not read what it acknowledges. acks_unreadable: a policy acknowledges this, as Pulsar does."""

    ids: Sequence[NamedId]
    cumulative: bool = False
    request_id: int | None = None
    unreadable: bool = False
    acks_unreadable: bool = False


class AckAnswer(NamedTuple):
    """An ACK_RESPONSE. refusal: None: all that the command names is durably acknowledged."""

    request_id: int
    refusal: Refusal | None


class AckDecision(NamedTuple):
    """What becomes of an ACK.

    acknowledge: messages to acknowledge in one request to the log, with this seek_epoch; empty: none. When the request
    is over, `Outstanding.settled(ticket, …)` is called. nack: to deliver again, after UNREADABLE_DELAY_MS. answers: due
    now. ignored: how many ids name nothing that this consumer holds, or contradict it. unreadable: how many entries
    the client could not read.
    """

    acknowledge: Ranges = ()
    seek_epoch: SeekEpoch = SeekEpoch(0)
    ticket: int = 0
    nack: Ranges = ()
    answers: tuple[AckAnswer, ...] = ()
    ignored: int = 0
    unreadable: int = 0


class GivenBack(NamedTuple):
    """What the log is to deliver again. nack: at once; later: after LATER_DELAY_MS: it was not sent, because it waits
    for what is delivered again before."""

    nack: Ranges
    later: Ranges = ()


class _Command:
    """One ACK that waits."""

    __slots__ = ("refusal", "request_id", "tickets")

    def __init__(self, request_id: int, tickets: set[int], refusal: Refusal | None) -> None:
        self.request_id = request_id
        self.tickets = tickets
        self.refusal = refusal


class AckAnswers:
    """The answers that are not due yet."""

    def __init__(self) -> None:
        #: {ticket: the commands that wait for it}
        self._waiting: dict[int, list[_Command]] = {}

    def open(self, request_id: int | None, tickets: Iterable[int], refusal: Refusal | None) -> tuple[AckAnswer, ...]:
        """A command was taken. tickets: the requests to the log for which it waits. refusal: an error that it has
        already. Returns the answer if it is due now."""
        if request_id is None:
            return ()
        command = _Command(request_id, set(tickets), refusal)
        if not command.tickets:
            return (AckAnswer(request_id, refusal),)
        for ticket in command.tickets:
            self._waiting.setdefault(ticket, []).append(command)
        return ()

    def settled(self, ticket: int, refusal: Refusal | None) -> list[AckAnswer]:
        """A request is over. refusal: None: it is durable. Returns the answers that are due now."""
        due = []
        for command in self._waiting.pop(ticket, ()):
            command.tickets.discard(ticket)
            command.refusal = command.refusal or refusal
            if not command.tickets:
                due.append(AckAnswer(command.request_id, command.refusal))
        return due


def not_held(ignored: int) -> Refusal:
    """The error of a command, some of whose ids name nothing that the consumer holds."""
    sentence = (
        f"{ignored} of the acknowledged ids name nothing that this consumer was sent on this connection, or contradict "
        "it: such messages are delivered again"
    )
    return Refusal(ServerError.CONSUMER_NOT_FOUND, sentence)


def not_read() -> Refusal:
    """The error of a command with a validation_error."""
    sentence = (
        f"messages that a client cannot read are not acknowledged: they come again after {UNREADABLE_DELAY_MS} ms"
    )
    return Refusal(ServerError.NOT_ALLOWED_ERROR, sentence)


def refusal_of_ack(asked: AckAsked, *, cumulative_allowed: bool) -> Refusal | None:
    """Why a whole ACK is refused; None: it is not."""
    if len(asked.ids) > IDS_MAX:
        sentence = f"an acknowledgement of {len(asked.ids)} message ids: at most {IDS_MAX}, send several"
        return Refusal(ServerError.NOT_ALLOWED_ERROR, sentence)
    if asked.cumulative and not cumulative_allowed:
        sentence = "cumulative acknowledgements need an exclusive or failover subscription: acknowledge each message"
        return Refusal(ServerError.NOT_ALLOWED_ERROR, sentence)
    if asked.cumulative and len(asked.ids) != 1:
        sentence = f"a cumulative acknowledgement of {len(asked.ids)} message ids: name one"
        return Refusal(ServerError.NOT_ALLOWED_ERROR, sentence)
    return None
