"""One PRODUCER, until it is answered.

    asking ──granted──▶ PRODUCER_SUCCESS          the door asks the owner of the topic, with the token of the client
       │ ──refused────▶ ERROR                     and its epoch
       │ ──token void─▶ asking without a token
       └ ──20 s───────▶ ERROR 2                   a producer that was created once: all clients try again

The owner grants only while the topic takes batches. So a producer that was closed because its topic took nothing is
answered when it takes some again (hazard unread-for-one-topic).

The owner decides what a token means (`oncelog.core.publishing.client_order`):

    absent           a new instance; while another one is connected, ProducerBusy: 16
    current          the same instance goes on, if the epoch is above that of the session that it ends
    not above        ProducerFenced: 25, the request of a connection that the client has left, or a copy of the client
    older            ProducerFenced: 25, which stops the client
    of another       topic or producer, or newer than the log after a restore: ProducerExpired, so the door opens a
                     new instance, without the token

An owner that gets a token proves first that it is the current owner of the topic. So none of these answers comes from
an owner that was deposed (hazard deposed-owner-refuses).
"""

from dataclasses import dataclass

from oncelog.core.errors import OncelogError, ProducerExpired
from oncelog.core.ids import SequenceId
from oncelog_doors.core.pulsar.families import ClientFamily
from oncelog_doors.core.pulsar.server_errors import Refusal, ServerError, refusal_of

#: Below the 30 s after which a client gives its request up.
ANSWER_MS = 20_000
NO_TOKEN = 0


@dataclass(frozen=True, slots=True)
class ProducerRequest:
    """What decides in PRODUCER. token: topic_epoch, NO_TOKEN if absent."""

    epoch: int
    token: int = NO_TOKEN
    shared: bool = True
    transactions: bool = False


@dataclass(frozen=True, slots=True)
class AskOwner:
    """epoch: None: the client does not count, so the later request of a token wins."""

    token: int
    epoch: int | None


@dataclass(frozen=True, slots=True)
class Succeed:
    """last_sequence_id: what is durable, after writes in flight have settled; -1: nothing."""

    name: str
    last_sequence_id: SequenceId
    token: int


@dataclass(frozen=True, slots=True)
class Refuse:
    refusal: Refusal


OpeningEffect = AskOwner | Succeed | Refuse


class ProducerOpening:
    """It is answered once. What comes after that is dropped."""

    def __init__(self, request: ProducerRequest, family: ClientFamily, now_ms: int) -> None:
        self._request = request
        self._epoch = request.epoch if family.counts_openings else None
        self._token = request.token
        self.answered = False
        #: when `expired` is called; None: a client that never had the producer waits as long as it wants
        self.deadline_ms = now_ms + ANSWER_MS if request.token else None

    def begin(self, due: Refusal | None = None) -> list[OpeningEffect]:
        """due: see `due_refusals`."""
        refusal = due or _refusal_of(self._request)
        return self._refuse(refusal) if refusal is not None else [AskOwner(self._token, self._epoch)]

    def granted(self, name: str, last_sequence_id: SequenceId, token: int) -> list[OpeningEffect]:
        if self.answered:
            return []
        self.answered = True
        return [Succeed(name, last_sequence_id, token)]

    def refused(self, error: OncelogError) -> list[OpeningEffect]:
        if self.answered:
            return []
        if isinstance(error, ProducerExpired) and self._token:
            self._token = NO_TOKEN
            return [AskOwner(NO_TOKEN, self._epoch)]
        return self._refuse(refusal_of(error))

    def expired(self) -> list[OpeningEffect]:
        """The deadline is over, and the topic takes nothing."""
        if self.answered:
            return []
        sentence = f"the topic takes no messages now: its owner has not answered in {ANSWER_MS // 1000} s. Try again"
        return self._refuse(Refusal(ServerError.PERSISTENCE_ERROR, sentence))

    def _refuse(self, refusal: Refusal) -> list[OpeningEffect]:
        self.answered = True
        return [Refuse(refusal)]


def _refusal_of(request: ProducerRequest) -> Refusal | None:
    """Why the request is not offered; None: it is."""
    if not request.shared:
        sentence = "exclusive access to a topic is not offered here: open the producer with access mode Shared"
        return Refusal(ServerError.NOT_ALLOWED_ERROR, sentence)
    if request.transactions:
        sentence = "transactions are not offered here: open the producer without them"
        return Refusal(ServerError.NOT_ALLOWED_ERROR, sentence)
    return None
