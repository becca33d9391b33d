"""The tree of errors, ordered by what the caller does next.

    OncelogError
    ├── Retriable                 try again: nothing was decided or nothing was written
    │   ├── NotOwner              look the topic up again; names the owner if known
    │   ├── SessionEnded          open the producer again and resend everything pending, in order
    │   ├── SequenceGap           an earlier batch is missing: resend from `expected`
    │   ├── UnknownProducer       open by name again, presenting producer id and generation
    │   ├── ProducerBusy          the name is in use and the caller asked not to fence
    │   ├── ConsumerBusy          the subscription, or the consumer's name in it, is in use
    │   ├── TopicLoading          the topic is moving to another owner
    │   ├── NotEnoughStorageNodes fewer live storage nodes than the ack quorum
    │   ├── LedgerUnavailable     no live storage node has a copy now; names the nodes that are waited for
    │   ├── StoreUnavailable      ZooKeeper (or Redis) does not answer
    │   ├── ServiceUnavailable    a process cannot be reached, or is draining
    │   ├── DeadlineExceeded      no answer in time: the outcome is unknown
    │   ├── PublishInProgress     a publish with the same idempotency key is not answered yet
    │   ├── IdempotencyUnavailable  Redis does not answer, or has lost keys: nothing was published
    │   └── TooManyRequests       a bounded queue is full
    ├── Fatal                     the same call fails again
    │   ├── InvalidArgument       a field is malformed or over its limit; names the field
    │   │   ├── InvalidName · InvalidSequenceId · InvalidBatch · MessageTooLarge
    │   │   ├── SequenceIdRequired  explicit and automatic ids were mixed
    │   │   └── IdempotencyKeyRequired · IdempotencyKeyReused
    │   ├── StaleSequence         an id below the high-water mark that was never stored; final for this batch
    │   ├── UnverifiedSequence    too old to know whether it is stored; not with on_unverified="accept"
    │   ├── ContentDiffers        another message is stored under the id; not with on_content_differs="accept"
    │   ├── ProducerFenced        a newer instance has the name; final for this producer
    │   ├── SessionSuperseded     the client of a gateway goes on in a later session; final for this producer
    │   ├── ProducerExpired       its state is gone; final for this producer
    │   ├── BacklogQuotaExceeded  a subscription has not acknowledged enough; final for this producer
    │   ├── LimitReached          there are as many as a limit allows; names the field and the limit
    │   ├── ModeMismatch          the name is bound to the other sequence mode
    │   ├── ProducerClosed · ReaderClosed · ConsumerClosed · ClientClosed
    │   │   └── ClientForked      the client belongs to the parent process
    │   ├── ConsumerFenced        another consumer is active since; final for a cumulative acknowledgement
    │   ├── SubscriptionGone      the subscription was deleted; final for this consumer
    │   ├── SessionGone           a session of HTTP consume has ended: open another one
    │   ├── SubscriptionTypeMismatch  the subscription has another type while it has consumers
    │   ├── EffectsError          log and store of effects contradict each other (`core.effect_errors`)
    │   │   └── StoreMismatch     the subscription's effects belong to another store, or to none
    │   ├── StaleSeekEpoch        the subscription was sought since; final for this acknowledgement
    │   ├── NotFound · TopicNotFound · NamespaceNotFound · SubscriptionNotFound · LedgerNotFound
    │   ├── Conflict              another write came first; read again and decide
    │   │   └── PreconditionFailed  the version that the caller named has changed: nothing was written
    │   ├── Unauthenticated · PermissionDenied
    │   ├── WrongCluster          a client or a directory of another cluster
    │   ├── StaleEra              the records in ZooKeeper were restored since this process joined
    │   ├── StorageDirectoryRefused · JournalFailed
    │   ├── ChunkedMessage          the value of a message is in chunks, which this program does not join
    │   ├── CompressionUnavailable  the program lacks the library of a compression; names the extra to install
    │   ├── CorruptEntry          the checksum or the content is wrong; never treated as "missing"
    │   ├── UnreadableEntry       no copy can be read; a takeover or a read stops here
    │   ├── EntriesLost           every copy of these entries is proved lost
    │   ├── LogHole               an entry, ledger or snapshot that must exist does not
    │   ├── IdsExhausted          a counter in ZooKeeper has no id left
    │   └── LedgerFenced          another owner has fenced this ledger
    └── InvariantViolated         a bug in Oncelog; ends the process

`code` is the stable name on the wire, in REST problems and in metrics. A message says what to do next.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Self

#: What applications may catch: `oncelog.errors` exports these names.
__all__ = [
    "BacklogQuotaExceeded", "ChunkedMessage", "ClientClosed", "ClientForked", "CompressionUnavailable", "Conflict",
    "ConsumerBusy", "ConsumerClosed", "ConsumerFenced", "ContentDiffers", "CorruptEntry", "DeadlineExceeded",
    "EffectsError", "EntriesLost",
    "Fatal",
    "IdempotencyKeyRequired",
    "IdempotencyKeyReused",
    "IdempotencyUnavailable",
    "IdsExhausted",
    "InvalidArgument",
    "InvalidBatch",
    "InvalidName",
    "InvalidSequenceId",
    "InvariantViolated",
    "JournalFailed",
    "LedgerFenced",
    "LedgerNotFound",
    "LedgerUnavailable",
    "LimitReached",
    "LogHole",
    "MessageTooLarge",
    "ModeMismatch",
    "NamespaceNotFound",
    "NotEnoughStorageNodes",
    "NotFound",
    "NotOwner",
    "OncelogError",
    "PermissionDenied",
    "PreconditionFailed",
    "ProducerBusy",
    "ProducerClosed",
    "ProducerExpired",
    "ProducerFenced",
    "PublishInProgress",
    "ReaderClosed",
    "Retriable",
    "SequenceGap",
    "SequenceIdRequired",
    "ServiceUnavailable",
    "SessionEnded",
    "SessionGone",
    "SessionSuperseded",
    "StaleEra",
    "StaleSeekEpoch",
    "StaleSequence",
    "StorageDirectoryRefused",
    "StoreMismatch",
    "StoreUnavailable",
    "SubscriptionGone",
    "SubscriptionNotFound",
    "SubscriptionTypeMismatch",
    "TooManyRequests",
    "TopicLoading",
    "TopicNotFound",
    "Unauthenticated",
    "UnknownProducer",
    "UnreadableEntry",
    "UnverifiedSequence",
    "WrongCluster",
]  # fmt: skip
_NOT_STORED = "this send stored nothing and never will"
_UNKNOWN = (
    "it is unknown whether the message is stored: compare last_sequence_id, or send it again under the same producer "
    "name and sequence id"
)


class OncelogError(Exception):
    """Base of every error that Oncelog raises on purpose."""

    code: ClassVar[str] = "error"
    retriable: ClassVar[bool] = False
    #: For a failed send. False: this send stored nothing and never will. None: unknown; compare last_sequence_id, or
    #: send again under the same producer name and sequence id.
    stored: bool | None = None
    #: For a failed `send_many`: an `oncelog.BatchResult` with the result of each message; None for other errors.
    result: Any = None

    def __init__(self, message: str = "", **details: int | str | None) -> None:
        super().__init__(message or self.code)
        #: Further facts by name (expected, current, owner, field, limit …); None when unknown.
        self.details: dict[str, int | str | None] = details

    def of_send(self, stored: bool | None) -> Self:
        """A copy of this error as the result of one send; its message also states `stored`."""
        copy = type(self)(f"{self.cause}; {_UNKNOWN if stored is None else _NOT_STORED}", **self.details)
        copy.stored, copy.result = stored, self.result
        copy.__cause__ = self.__cause__
        return copy

    @property
    def message(self) -> str:
        return str(self.args[0])

    @property
    def cause(self) -> str:
        """The message without the sentence that `of_send` adds."""
        return self.message.removesuffix(f"; {_NOT_STORED}").removesuffix(f"; {_UNKNOWN}")

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        name = cls.__name__
        cls.code = "".join("_" + c.lower() if c.isupper() and i else c.lower() for i, c in enumerate(name))
        BY_CODE[cls.code] = cls


#: {code: class}, for errors received over the wire.
BY_CODE: dict[str, type[OncelogError]] = {}


class Retriable(OncelogError):
    """Nothing was decided or nothing was written: try again."""

    retriable: ClassVar[bool] = True


class NotOwner(Retriable):
    """This process does not own the topic; details: owner (address) and owner_epoch, if known."""


class SessionEnded(Retriable):
    """The producer session is over; open again and resend everything pending, in order."""


class SequenceGap(Retriable):
    """A contiguous producer skipped an id; details: expected."""


class UnknownProducer(Retriable):
    """The owner does not know the producer id; open by name again, presenting id and generation."""


class ProducerBusy(Retriable):
    """The name is held by a connected instance and the caller asked not to fence it."""


class ConsumerBusy(Retriable):
    """Another consumer is connected: to an exclusive subscription, or under the same name (hazard
    activation-not-durable)."""


class TopicLoading(Retriable):
    """The topic is moving to another owner."""


class NotEnoughStorageNodes(Retriable):
    """Fewer storage nodes are live than the ack quorum needs."""


class LedgerUnavailable(Retriable):
    """No live storage node can give these entries now, or end this ledger; a node that returns can.

    details: ledger_id, first, last (entries), waiting_for (the storage nodes, separated by commas).
    """


class StoreUnavailable(Retriable):
    """The metadata store does not answer; the outcome of a write is unknown."""


class ServiceUnavailable(Retriable):
    """A process cannot be reached, is draining, or has no capacity for this request now."""


class DeadlineExceeded(Retriable):
    """No answer in time: the outcome is unknown."""


class PublishInProgress(Retriable):
    """A publish with the same idempotency key is not answered yet."""


class IdempotencyUnavailable(Retriable):
    """Redis does not answer, is misconfigured or has lost keys; details: retry_after_s.

    Nothing was published. If the key may have been recorded, the log decides when the key is used again.
    """


class TooManyRequests(Retriable):
    """A bounded queue is full."""


class Fatal(OncelogError):
    """The same call fails again."""


class InvalidArgument(Fatal):
    """A field is malformed or over its limit; details: field, limit."""

    #: raised before anything is sent; for a batch that an owner refused, the producer session sets it
    stored: bool | None = False


class InvalidName(InvalidArgument):
    """A tenant, namespace, topic or producer name breaks the rules of `core.names`."""


class InvalidSequenceId(InvalidArgument):
    """A sequence id is negative, above 2**63 - 1, not an integer, or not above its predecessor in the batch."""


class InvalidBatch(InvalidArgument):
    """A batch's header, checksum or columns contradict each other; nothing of it was stored."""


class MessageTooLarge(InvalidArgument):
    """A message or batch is over the size limit; final for this message only."""


class SequenceIdRequired(InvalidArgument):
    """Automatic and explicit sequence ids were mixed on one producer."""


class IdempotencyKeyRequired(InvalidArgument):
    """A publish over HTTP names neither a producer nor an idempotency key."""


class IdempotencyKeyReused(InvalidArgument):
    """The idempotency key belongs to a request with other messages."""


class StaleSequence(Fatal):
    """An id below the high-water mark that was never stored; details: high_water. Final for this batch."""


class UnverifiedSequence(Fatal):
    """A sequence id older than all that the log remembers of its producer: not stored now, and perhaps never.

    A producer with on_unverified="accept" gets a success with verified=False instead. The error's `stored` is None, and
    sending the message again gives the same answer.
    """


class ContentDiffers(Fatal):
    """The sequence id is stored with other content; details: message_id (of the first copy). Final for this batch.

    A producer with on_content_differs="accept" gets a duplicate with content_differs=True instead.
    """


class ProducerFenced(Fatal):
    """A newer instance opened the name; details: current (its generation). Final for this producer."""


class SessionSuperseded(Fatal):
    """The client of a gateway goes on in a session that it has opened later. Final for this producer (hazard
    sessions-end-each-other)."""


class ProducerExpired(Fatal):
    """The producer's state is gone, so pending batches cannot be checked. Final for this producer."""


class BacklogQuotaExceeded(Fatal):
    """A subscription leaves more unacknowledged than the topic's backlog quota allows; details: limit."""


class LimitReached(Fatal):
    """There are as many of something as its limit allows: one must go before another can be created; details: field,
    limit."""


class ModeMismatch(Fatal):
    """The name is bound to the other sequence mode."""


class ProducerClosed(Fatal):
    """The producer was closed."""


class ReaderClosed(Fatal):
    """The reader was closed."""


class ConsumerClosed(Fatal):
    """The consumer was closed."""


class ConsumerFenced(Fatal):
    """Another consumer of the subscription became active since: the cumulative acknowledgement is void (hazard
    former-consumer-acks)."""


class SubscriptionGone(Fatal):
    """The subscription was deleted; one of the same name is another one (hazard recreated-subscription). Final for this
    consumer."""


class SessionGone(Fatal):
    """A session of HTTP consume has ended, or its metadata service has. What it has not acknowledged is delivered
    again; details: reason, the code of what ended it, if that is known."""


class SubscriptionTypeMismatch(Fatal):
    """The subscription has consumers of another type; details: type."""


class EffectsError(Fatal):
    """The store of a subscription's effects and the log contradict each other, or the store is of no use."""


class StoreMismatch(EffectsError):
    """The effects of the subscription's messages are in another store, or under another name; or the subscription has
    consumers of the other kind (hazards consumer-without-effects, two-stores-take-turns)."""


class StaleSeekEpoch(Fatal):
    """The subscription was sought since: the acknowledgement is void (hazard late-ack-after-seek). details:
    seek_epoch."""


class ClientClosed(Fatal):
    """The client was closed."""

    #: see Unauthenticated
    stored: bool | None = False


class ClientForked(ClientClosed):
    """The client, and what it has opened, belongs to the process that this one was forked from."""


class NotFound(Fatal):
    """The named thing does not exist."""


class TopicNotFound(NotFound):
    """The topic does not exist and may not be created on first use."""


class NamespaceNotFound(NotFound):
    """The namespace does not exist."""


class SubscriptionNotFound(NotFound):
    """The topic has no subscription of this name."""


class Conflict(Fatal):
    """Another write came first; read again and decide."""


class PreconditionFailed(Conflict):
    """The object's version is not the one that the caller had read (If-Match); nothing was written."""


class Unauthenticated(Fatal):
    """No valid credentials."""

    #: raised before anything of the call is stored; the producer session decides about earlier sends
    stored: bool | None = False


class PermissionDenied(Fatal):
    """The credentials do not allow this."""

    #: see Unauthenticated
    stored: bool | None = False


class WrongCluster(Fatal):
    """A client or a directory belongs to another cluster."""


class StaleEra(Fatal):
    """ZooKeeper's records were restored since the caller joined the cluster; details: era."""


class StorageDirectoryRefused(Fatal):
    """A storage node's directory is foreign, incomplete or in use."""


class JournalFailed(Fatal):
    """A write or fsync of the journal failed; nothing is acknowledged any more and the process ends."""


class CompressionUnavailable(Fatal):
    """This program lacks the library of a compression, or is too old to know it: no damage, and nothing is skipped
    (hazard codec-taken-for-damage). details: compression, extra (to be installed)."""


class ChunkedMessage(Fatal):
    """The value of a message is in chunks, and this part of Oncelog does not join them: no damage, and nothing is
    skipped. Read the message with a reader or consumer of the SDK."""


class CorruptEntry(Fatal):
    """An entry's checksum or content is wrong. A corrupt entry is never treated as missing."""


class UnreadableEntry(Fatal):
    """No copy of an entry that must exist can be read; details: ledger_id, entry_id. Of a reader that came to it also
    next_ledger_id, next_entry_id: where the log goes on. Without them it may be of a search for the reader's start.

    members: {storage node: its answer} when this process asked them; empty when the error came over the wire.
    """

    members: Mapping[str, str] = MappingProxyType({})


class EntriesLost(Fatal):
    """Every copy of these entries is proved lost (hazard lost-too-early); details: ledger_id, first, last, and
    next_ledger_id, next_entry_id as of UnreadableEntry. Also of a ledger that the topic's list has lost (hazard
    position-of-a-lost-part), with the same details. Of a producer that was told of more than the log has (hazard
    log-went-back): acked, stored."""


class LogHole(Fatal):
    """An entry, ledger or snapshot that must exist does not."""


class IdsExhausted(Fatal):
    """A counter of ids in ZooKeeper is used up or holds an impossible number; nothing was written. details: counter."""


class LedgerFenced(Fatal):
    """Another owner has fenced the ledger."""


class LedgerNotFound(NotFound):
    """The ledger does not exist."""


class InvariantViolated(OncelogError):
    """An internal rule is broken: a bug in Oncelog. The process ends."""
