"""One publish with an idempotency key, at one process: the key is mapped to a place in the log, and the log decides.

    READING ── none ──> RESERVING ──> CLAIMING ── written ──> PUBLISHING ──> RECORDING ──> answered
       |                    ^             |
       |                    |             +── another came first ──> as if read
       +── answered before: its answer    |
       +── another body: refused          +── unknown ──> the lane is retired; refused, nothing was published
       +── pending ──> ASKING ── its holder lives ──> refused: in progress
                          |
                          +── gone ──> FENCING ── below the claim ──> RESERVING, to map the key anew
                                          |
                                          +── at or above it ──> REPEATING (the same ids: the log knows them)
                                                                     ──> RECORDING ──> answered

A record (`KeyRecord`) is fingerprint, claim (producer, first id, count) and, once known, the answer. Records change by
compare-and-set alone.

Rules (hazard 22)
- A claim is written before its message is published, under ids that nobody else uses (`core.lane`). So a key whose
  claim is lost was never published, and one whose message is stored is always found.
- What became of a pending claim is asked of the log, and only after its producer was fenced by opening it: at or below
  its last id it is stored; above, it never will be, and only then the key is mapped anew. Looking without fencing
  would let the holder publish it afterwards.
- Whether the holder lives decides nothing but who waits: it spares a live process from being fenced.
- An answer that could not be recorded is given all the same: the message is stored. Its lane is retired, so that the
  next repeat settles it by the log.
- A claim is one batch and so one entry: it is stored whole or not at all.
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
from oncelog.core.store_status import WriteStatus

#: So often the same request begins again because somebody fenced it; then its sender is asked to come back.
ROUNDS_MAX = 4


# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begin:
    """The first event."""


@dataclass(frozen=True, slots=True)
class KeyRead:
    """The answer to ReadKey. found None: nobody has used this key within its window."""

    found: FoundKey | None


@dataclass(frozen=True, slots=True)
class PlaceReserved:
    """The answer to ReservePlace: the lane is this request's until the claim is used, given back or retired."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class ClaimWritten:
    """The answer to WriteClaim. found: what stands there, after CONFLICT; None: it has expired just now."""

    status: WriteStatus
    found: FoundKey | None = None


@dataclass(frozen=True, slots=True)
class HolderTold:
    """The answer to AskHolder: whether a live process still works on claims of this producer."""

    lives: bool


@dataclass(frozen=True, slots=True)
class Fenced:
    """The answer to FenceProducer: nobody else can publish under this name any more; its last stored id, -1: none."""

    last: SequenceId


@dataclass(frozen=True, slots=True)
class Published:
    """The answer to Publish or PublishAgain: everything is stored."""

    answer: str


@dataclass(frozen=True, slots=True)
class PublishFailed:
    """The other answer: what is stored is not known, unless the error says that the messages are wrong."""

    error: OncelogError


@dataclass(frozen=True, slots=True)
class AnswerWritten:
    """The answer to WriteAnswer. CONFLICT: somebody settled the key meanwhile, by the same log."""

    status: WriteStatus


@dataclass(frozen=True, slots=True)
class StepFailed:
    """The answer to any effect that could not be tried, or did nothing: nothing was written."""

    error: OncelogError


Event = (
    Begin | KeyRead | PlaceReserved | ClaimWritten | HolderTold | Fenced | Published | PublishFailed | AnswerWritten
    | StepFailed
)  # fmt: skip


# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadKey:
    """KeyRead."""


@dataclass(frozen=True, slots=True)
class ReservePlace:
    """Wait for the lane and reserve ids on it: PlaceReserved."""


@dataclass(frozen=True, slots=True)
class WriteClaim:
    """Write the record; replaces None: only where there is none. ClaimWritten."""

    record: KeyRecord
    replaces: bytes | None


@dataclass(frozen=True, slots=True)
class Publish:
    """Use the claim, in the same turn: hand its messages to the lane's producer. Published or PublishFailed."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class AskHolder:
    """HolderTold."""

    producer_name: str


@dataclass(frozen=True, slots=True)
class FenceProducer:
    """Open the producer as a new instance: Fenced. It stays open for PublishAgain, to the end of the request."""

    producer_name: str


@dataclass(frozen=True, slots=True)
class PublishAgain:
    """Send the messages under their ids by the fenced producer, which finds them stored: Published or PublishFailed."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class WriteAnswer:
    """AnswerWritten."""

    record: KeyRecord
    replaces: bytes


@dataclass(frozen=True, slots=True)
class GiveBack:
    """The reserved claim was not written: its ids are free. Nothing comes back."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class RetireLane:
    """No further id is published under this name, and nobody counts its holder as living. Nothing comes back."""

    producer_name: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The end. replayed: it was given before."""

    answer: str
    replayed: bool


@dataclass(frozen=True, slots=True)
class Refuse:
    """The end."""

    error: OncelogError


Effect = (
    ReadKey | ReservePlace | WriteClaim | Publish | AskHolder | FenceProducer | PublishAgain | WriteAnswer | GiveBack
    | RetireLane | Answer | Refuse
)  # fmt: skip


class State(Enum):
    READING = "reading"
    RESERVING = "reserving"
    CLAIMING = "claiming"
    PUBLISHING = "publishing"
    ASKING = "asking"
    FENCING = "fencing"
    REPEATING = "repeating"
    RECORDING = "recording"
    OVER = "over"


class KeyedPublish:
    """One request. Each list of effects has at most one that is answered."""

    def __init__(self, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        self.state = State.READING
        #: the record that is there, as far as this request knows; what its next write replaces
        self.found: FoundKey | None = None
        #: reserved, written or published by this request
        self.claim: Claim | None = None
        #: names of lanes that this request retired: their holder need not be asked for
        self._retired: list[str] = []
        self._answer = ""
        self._rounds = 0

    def handle(self, event: Event) -> list[Effect]:
        match event:
            case Begin():
                return [ReadKey()]
            case KeyRead():
                return self._judge(event.found)
            case PlaceReserved():
                return self._reserved(event.claim)
            case ClaimWritten():
                return self._claim_written(event)
            case HolderTold():
                return self._refuse(_in_progress()) if event.lives else self._fence()
            case Fenced():
                return self._fenced(event.last)
            case Published():
                return self._published(event.answer)
            case PublishFailed():
                return self._publish_failed(event.error)
            case AnswerWritten():
                return self._answer_written(event.status)
            case StepFailed():
                return self._step_failed(event.error)
            case _:
                assert_never(event)

    # --- what the key stands for --------------------------------------------------------------------------------------

    def _judge(self, found: FoundKey | None) -> list[Effect]:
        self.found = found
        if found is None:
            return self._reserve()
        if found.record.fingerprint != self.fingerprint:
            message = "this key was used for other messages: a new publish needs a new key"
            return self._refuse(IdempotencyKeyReused(message, field="Idempotency-Key"))
        if found.record.answer is not None:
            self.state = State.OVER
            return [Answer(found.record.answer, replayed=True)]
        name = found.record.claim.producer_name
        if name in self._retired:
            return self._fence()
        self.state = State.ASKING
        return [AskHolder(name)]

    def _reserve(self) -> list[Effect]:
        self.state = State.RESERVING
        return [ReservePlace()]

    def _reserved(self, claim: Claim) -> list[Effect]:
        self.state, self.claim = State.CLAIMING, claim
        replaces = None if self.found is None else self.found.stored
        return [WriteClaim(KeyRecord(self.fingerprint, claim), replaces)]

    def _claim_written(self, event: ClaimWritten) -> list[Effect]:
        claim = self._own_claim()
        record = KeyRecord(self.fingerprint, claim)
        if event.status is WriteStatus.UNKNOWN:
            message = "nothing was published, and whether the key was noted is unknown: repeat with the same key"
            return [RetireLane(claim.producer_name), *self._refuse(IdempotencyUnavailable(message))]
        if event.status is WriteStatus.OK or (event.found is not None and event.found.record == record):
            self.found = FoundKey(record, encode_key_record(record))
            self.state = State.PUBLISHING
            return [Publish(claim)]
        self.claim = None
        return [GiveBack(claim), *self._again(event.found)]

    def _again(self, found: FoundKey | None) -> list[Effect]:
        """Another process has written the key."""
        self._rounds += 1
        return self._too_often() if self._rounds >= ROUNDS_MAX else self._judge(found)

    # --- publishing ---------------------------------------------------------------------------------------------------

    def _published(self, answer: str) -> list[Effect]:
        assert self.found is not None, "what is published was claimed"
        self.state, self._answer = State.RECORDING, answer
        return [WriteAnswer(replace(self.found.record, answer=answer), self.found.stored)]

    def _publish_failed(self, error: OncelogError) -> list[Effect]:
        retire: list[Effect] = []
        if self.state is State.PUBLISHING:
            name = self._own_claim().producer_name
            self._retired.append(name)
            self.claim = None
            retire = [RetireLane(name)]
        if isinstance(error, InvalidArgument):
            # The messages themselves are wrong, so they are not stored; the key is settled when it comes again.
            return [*retire, *self._refuse(error)]
        self._rounds += 1
        if self._rounds >= ROUNDS_MAX:
            return [*retire, *self._too_often()]
        self.state = State.READING
        return [*retire, ReadKey()]

    def _answer_written(self, status: WriteStatus) -> list[Effect]:
        self.state = State.OVER
        answer = Answer(self._answer, replayed=False)
        if status is WriteStatus.UNKNOWN and self.claim is not None:
            return [RetireLane(self.claim.producer_name), answer]
        return [answer]

    # --- settling the claim of another --------------------------------------------------------------------------------

    def _fence(self) -> list[Effect]:
        assert self.found is not None, "only what was found is settled"
        self.state = State.FENCING
        return [FenceProducer(self.found.record.claim.producer_name)]

    def _fenced(self, last: SequenceId) -> list[Effect]:
        assert self.found is not None, "only what was found is settled"
        if last < self.found.record.claim.first:
            return self._reserve()
        self.state = State.REPEATING
        return [PublishAgain(self.found.record.claim)]

    # --- ends ---------------------------------------------------------------------------------------------------------

    def _step_failed(self, error: OncelogError) -> list[Effect]:
        match self.state:
            case State.CLAIMING:
                claim, self.claim = self._own_claim(), None
                return [GiveBack(claim), *self._refuse(error)]
            case State.RECORDING:
                return self._answer_written(WriteStatus.UNKNOWN)
            case State.FENCING if isinstance(error, ProducerFenced):
                # Another repeat of the same key opened the producer at the same time, and settles the claim.
                self._rounds += 1
                if self._rounds >= ROUNDS_MAX:
                    return self._too_often()
                self.state = State.READING
                return [ReadKey()]
            case _:
                return self._refuse(error)

    def _too_often(self) -> list[Effect]:
        return self._refuse(PublishInProgress("other requests with this key keep coming first: repeat in a moment"))

    def _refuse(self, error: OncelogError) -> list[Effect]:
        self.state = State.OVER
        return [Refuse(error)]

    def _own_claim(self) -> Claim:
        if self.claim is None:
            raise InvariantViolated(f"{self.state.value} without a claim")
        return self.claim


def _in_progress() -> OncelogError:
    return PublishInProgress("a publish with this key is in progress: repeat in a moment", field="Idempotency-Key")
