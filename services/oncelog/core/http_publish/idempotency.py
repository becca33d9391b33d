"""One publish request with an idempotency key: the key is mapped to sequence ids, and the log decides what is stored.

    READING ── no record ──> RESERVING ──> CLAIMING ── written ──> PUBLISHING ──> RECORDING ──> answered
       |                         ^             |
       |                         |             +── another request wrote first ──> continue as if just read
       +── answered: same answer |             +── unknown ──> retire the producer; refused, nothing was published
       +── other messages: refused
       +── pending ──> CHECKING_HOLDER ── holder alive ──> refused: in progress
                          |
                          +── holder gone ──> FENCING ── last stored id below the claim ──> RESERVING, new claim
                                                 |
                                                 +── at or above it ──> REPUBLISHING (same ids: deduplicated)
                                                                          ──> RECORDING ──> answered

A record (`KeyRecord`) holds a fingerprint of the messages, the claim (producer, first id, count) and, once known, the
answer. Records change by compare-and-set only.

Rules (hazard key-without-message)
- The claim is written before its messages are published, under ids that no other request uses (`keyed_producer`). So a
  key whose claim was lost was never published, and the record of a key whose messages are stored is always found.
- The log decides what became of another request's pending claim, and only after the claim's producer was fenced by
  opening it. A last stored id at or above the claim means that the messages are stored. Below it, they never will be,
  and only then the key is mapped to new ids. Without fencing, the holder could still publish the old ids afterwards.
- Whether the holder is alive affects only who waits: a live holder is not fenced.
- If the answer cannot be recorded, it is still returned, because the messages are stored. The producer is retired, so
  that the next repeat of the request settles the key by the log.
- A claim is one batch and therefore one entry: it is stored whole or not at all.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import assert_never

from oncelog.core.errors import (
    IdempotencyKeyReused,
    IdempotencyUnavailable,
    InvalidArgument,
    InvariantViolated,
    OncelogError,
    ProducerFenced,
    PublishInProgress,
)
from oncelog.core.http_publish.key_record import FoundKey, KeyRecord, encode_key_record
from oncelog.core.http_publish.keyed_producer import Claim
from oncelog.core.ids import SequenceId
from oncelog.core.records.status import WriteStatus

#: Attempts of one request after others wrote the key or fenced its producer; then the sender is asked to retry.
ATTEMPTS_MAX = 4
#: How the message of IdempotencyUnavailable ends when the request may be repeated.
RETRY = ": retry with the same key"


# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeyedPublishRequested:
    """The first event."""


@dataclass(frozen=True, slots=True)
class KeyRead:
    """Completes ReadKey. found None: the key was not used within the idempotency window."""

    found: FoundKey | None


@dataclass(frozen=True, slots=True)
class IdsReserved:
    """Completes ReserveIds. The producer belongs to this request until the claim is used, released or retired."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class ClaimWritten:
    """Completes WriteClaim. found, after CONFLICT: the record that exists; None: it has just expired."""

    status: WriteStatus
    found: FoundKey | None = None


@dataclass(frozen=True, slots=True)
class HolderChecked:
    """Completes CheckHolder. alive: a live process still works on claims of this producer."""

    alive: bool


@dataclass(frozen=True, slots=True)
class FenceCompleted:
    """Completes FenceProducer: older instances of the producer are fenced. last: its last stored id, -1 if none."""

    last: SequenceId


@dataclass(frozen=True, slots=True)
class ClaimPublished:
    """Completes PublishClaim or RepublishClaim: all messages are stored."""

    answer: str


@dataclass(frozen=True, slots=True)
class PublishFailed:
    """PublishClaim or RepublishClaim failed. Unless the error means invalid messages, they may or may not be stored."""

    error: OncelogError


@dataclass(frozen=True, slots=True)
class AnswerWritten:
    """Completes WriteAnswer. CONFLICT: another request settled the key meanwhile, by the same log."""

    status: WriteStatus


@dataclass(frozen=True, slots=True)
class StepFailed:
    """Any other effect failed before it changed anything: nothing was written."""

    error: OncelogError


KeyedPublishEvent = (
    KeyedPublishRequested | KeyRead | IdsReserved | ClaimWritten | HolderChecked | FenceCompleted | ClaimPublished
    | PublishFailed | AnswerWritten | StepFailed
)  # fmt: skip


# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadKey:
    """Read the key's record. Completed by KeyRead."""


@dataclass(frozen=True, slots=True)
class ReserveIds:
    """Wait for the topic's keyed producer and reserve ids on it. Completed by IdsReserved."""


@dataclass(frozen=True, slots=True)
class WriteClaim:
    """Write the record, if the stored one equals `replaces`; None: if there is none. Completed by ClaimWritten."""

    record: KeyRecord
    replaces: bytes | None


@dataclass(frozen=True, slots=True)
class PublishClaim:
    """Hand the messages to the keyed producer, and release it to other requests. ClaimPublished or PublishFailed."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class CheckHolder:
    """Check whether the process that holds this producer is alive. Completed by HolderChecked."""

    producer_name: str


@dataclass(frozen=True, slots=True)
class FenceProducer:
    """Open the producer as a new instance. It stays open for RepublishClaim until the request ends. FenceCompleted."""

    producer_name: str


@dataclass(frozen=True, slots=True)
class RepublishClaim:
    """Send the messages again under their ids, from the instance that FenceProducer opened. The log recognises them as
    duplicates. Completed by ClaimPublished or PublishFailed."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class WriteAnswer:
    """Record the answer, if the stored record equals `replaces`. Completed by AnswerWritten."""

    record: KeyRecord
    replaces: bytes


@dataclass(frozen=True, slots=True)
class ReleaseClaim:
    """Free the reserved ids: the claim was not written. Has no completion."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class RetireProducer:
    """Publish no further id under this name, and no longer count its holder as alive. Has no completion."""

    producer_name: str


@dataclass(frozen=True, slots=True)
class ReturnAnswer:
    """End of the request. replayed: the answer was given before."""

    answer: str
    replayed: bool


@dataclass(frozen=True, slots=True)
class RejectRequest:
    """End of the request."""

    error: OncelogError


KeyedPublishEffect = (
    ReadKey | ReserveIds | WriteClaim | PublishClaim | CheckHolder | FenceProducer | RepublishClaim | WriteAnswer
    | ReleaseClaim | RetireProducer | ReturnAnswer | RejectRequest
)  # fmt: skip


class KeyedPublishState(Enum):
    READING = "reading"
    RESERVING = "reserving"
    CLAIMING = "claiming"
    PUBLISHING = "publishing"
    CHECKING_HOLDER = "checking_holder"
    FENCING = "fencing"
    REPUBLISHING = "republishing"
    RECORDING = "recording"
    ENDED = "ended"


class KeyedPublish:
    """One request. Each list of effects has at most one that has a completion."""

    def __init__(self, fingerprint: str, *, without_role: str = "") -> None:
        """fingerprint: of the messages and the caller's role. without_role: of the messages alone, as older services
        wrote it; a record that has it belongs to no role."""
        self.fingerprint = fingerprint
        self._known_as = (fingerprint, without_role or fingerprint)
        self.state = KeyedPublishState.READING
        #: the record as last read or written; this request's next write replaces it
        self.found: FoundKey | None = None
        #: the claim that this request reserved, wrote or published
        self.claim: Claim | None = None
        #: producers that this request retired: their holder is this process, and need not be checked
        self._retired: list[str] = []
        self._answer = ""
        self._attempts = 0

    def handle(self, event: KeyedPublishEvent) -> list[KeyedPublishEffect]:
        match event:
            case KeyedPublishRequested():
                return [ReadKey()]
            case KeyRead():
                return self._continue_from(event.found)
            case IdsReserved():
                return self._reserved(event.claim)
            case ClaimWritten():
                return self._claim_written(event)
            case HolderChecked():
                return self._reject(_in_progress()) if event.alive else self._fence()
            case FenceCompleted():
                return self._fenced(event.last)
            case ClaimPublished():
                return self._published(event.answer)
            case PublishFailed():
                return self._publish_failed(event.error)
            case AnswerWritten():
                return self._answer_written(event.status)
            case StepFailed():
                return self._step_failed(event.error)
            case _:
                assert_never(event)

    # --- the key's record ---------------------------------------------------------------------------------------------

    def _continue_from(self, found: FoundKey | None) -> list[KeyedPublishEffect]:
        self.found = found
        if found is None:
            return self._reserve()
        if found.record.fingerprint not in self._known_as:
            message = (
                "this idempotency key was used for other messages, or by another role: use a new key for a new publish"
            )
            return self._reject(IdempotencyKeyReused(message, field="Idempotency-Key"))
        if found.record.answer is not None:
            self.state = KeyedPublishState.ENDED
            return [ReturnAnswer(found.record.answer, replayed=True)]
        name = found.record.claim.producer_name
        if name in self._retired:
            return self._fence()
        self.state = KeyedPublishState.CHECKING_HOLDER
        return [CheckHolder(name)]

    def _reserve(self) -> list[KeyedPublishEffect]:
        self.state = KeyedPublishState.RESERVING
        return [ReserveIds()]

    def _reserved(self, claim: Claim) -> list[KeyedPublishEffect]:
        self.state, self.claim = KeyedPublishState.CLAIMING, claim
        replaces = None if self.found is None else self.found.stored
        return [WriteClaim(KeyRecord(self.fingerprint, claim), replaces)]

    def _claim_written(self, event: ClaimWritten) -> list[KeyedPublishEffect]:
        claim = self._own_claim()
        record = KeyRecord(self.fingerprint, claim)
        if event.status is WriteStatus.UNKNOWN:
            message = f"nothing was published, but the key may have been recorded{RETRY}"
            return [RetireProducer(claim.producer_name), *self._reject(IdempotencyUnavailable(message))]
        if event.status is WriteStatus.OK or (event.found is not None and event.found.record == record):
            self.found = FoundKey(record, encode_key_record(record))
            self.state = KeyedPublishState.PUBLISHING
            return [PublishClaim(claim)]
        self.claim = None
        return [ReleaseClaim(claim), *self._continue_from_conflict(event.found)]

    def _continue_from_conflict(self, found: FoundKey | None) -> list[KeyedPublishEffect]:
        """Another request wrote the key's record first."""
        self._attempts += 1
        return self._reject_as_contended() if self._attempts >= ATTEMPTS_MAX else self._continue_from(found)

    # --- publishing ---------------------------------------------------------------------------------------------------

    def _published(self, answer: str) -> list[KeyedPublishEffect]:
        assert self.found is not None, "published messages have a claim"
        self.state, self._answer = KeyedPublishState.RECORDING, answer
        return [WriteAnswer(replace(self.found.record, answer=answer), self.found.stored)]

    def _publish_failed(self, error: OncelogError) -> list[KeyedPublishEffect]:
        retire: list[KeyedPublishEffect] = []
        if self.state is KeyedPublishState.PUBLISHING:
            name = self._own_claim().producer_name
            self._retired.append(name)
            self.claim = None
            retire = [RetireProducer(name)]
        if isinstance(error, InvalidArgument):
            # The messages are invalid, so they are not stored. The next request with this key settles it.
            return [*retire, *self._reject(error)]
        self._attempts += 1
        if self._attempts >= ATTEMPTS_MAX:
            return [*retire, *self._reject_as_contended()]
        self.state = KeyedPublishState.READING
        return [*retire, ReadKey()]

    def _answer_written(self, status: WriteStatus) -> list[KeyedPublishEffect]:
        self.state = KeyedPublishState.ENDED
        answer = ReturnAnswer(self._answer, replayed=False)
        if status is WriteStatus.UNKNOWN and self.claim is not None:
            return [RetireProducer(self.claim.producer_name), answer]
        return [answer]

    # --- settling another request's claim -----------------------------------------------------------------------------

    def _fence(self) -> list[KeyedPublishEffect]:
        assert self.found is not None, "settling needs a found record"
        self.state = KeyedPublishState.FENCING
        return [FenceProducer(self.found.record.claim.producer_name)]

    def _fenced(self, last: SequenceId) -> list[KeyedPublishEffect]:
        assert self.found is not None, "settling needs a found record"
        if last < self.found.record.claim.first:
            return self._reserve()
        self.state = KeyedPublishState.REPUBLISHING
        return [RepublishClaim(self.found.record.claim)]

    # --- ends ---------------------------------------------------------------------------------------------------------

    def _step_failed(self, error: OncelogError) -> list[KeyedPublishEffect]:
        match self.state:
            case KeyedPublishState.CLAIMING:
                claim, self.claim = self._own_claim(), None
                return [ReleaseClaim(claim), *self._reject(error)]
            case KeyedPublishState.RECORDING:
                return self._answer_written(WriteStatus.UNKNOWN)
            case KeyedPublishState.FENCING if isinstance(error, ProducerFenced):
                # Another request with the same key opened the producer at the same time, and settles the claim.
                self._attempts += 1
                if self._attempts >= ATTEMPTS_MAX:
                    return self._reject_as_contended()
                self.state = KeyedPublishState.READING
                return [ReadKey()]
            case _:
                return self._reject(error)

    def _reject_as_contended(self) -> list[KeyedPublishEffect]:
        return self._reject(PublishInProgress("other requests with this key were faster each time: retry shortly"))

    def _reject(self, error: OncelogError) -> list[KeyedPublishEffect]:
        self.state = KeyedPublishState.ENDED
        return [RejectRequest(error)]

    def _own_claim(self) -> Claim:
        if self.claim is None:
            raise InvariantViolated(f"state {self.state.value} without a claim")
        return self.claim


def _in_progress() -> OncelogError:
    return PublishInProgress("a publish with this key is in progress: retry shortly", field="Idempotency-Key")
