"""How a producer gets its session: look up the owner, ask it, retry. The part of `session` that deals with owners.

    LOOKING_UP -> ASKING -> GRANTED
        ^           |          |
        +-- WAITING-+----------+      each retry is an attempt with a new number

Rules
- Completions name their attempt; those of an older one are dropped.
- The highest owner_epoch ever seen is kept and sent to every owner; answers with a lower one are rejected (hazard 6).
- The first opening makes a new instance. A granted instance resumes with (producer id, generation). When its id is
  unknown to the owner, it opens by name again and presents both (hazard 11).
- All requests of one instance carry its instance id, so the owner recognises repeats. A request that is not answered in
  time is withdrawn before the next one is sent, because it must not be granted later.
- The first retry after a success is immediate; the next ones follow after 20 ms, growing by half up to 1 s. The shell
  adds the jitter.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from oncelog.core.access import Caller
from oncelog.core.errors import InvariantViolated, OncelogError
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.formats.opening import OnConflict, ProducerInstance
from oncelog.core.ids import Generation, InstanceId, OwnerEpoch, ProducerId, SequenceId, SessionNumber
from oncelog.core.producer.pending_batches import IN_FLIGHT_BYTES_MAX, IN_FLIGHT_COUNT_MAX, PENDING_BYTES_MAX

RETRY_MS_MIN = 20
#: By half, not twofold: the end of an outage is then noticed after at most a third of its duration.
RETRY_GROWTH = 1.5
RETRY_MS_MAX = 1_000
OPEN_TIMEOUT_MS = 5_000
MESSAGE_BYTES_MAX = 5 * 1024 * 1024
#: Room for the batch's header, lengths and id deltas beside one message of the largest size.
BATCH_OVERHEAD_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """name None: the owner assigns one. initial_sequence_id: the last id used; None: continue after the log's last id.

    on_conflict REFUSE: ProducerBusy while another instance is connected. send_timeout_ms None: no limit.
    """

    name: str | None = None
    mode: SequenceMode = SequenceMode.MONOTONIC
    on_conflict: OnConflict = OnConflict.FENCE
    initial_sequence_id: int | None = None
    send_timeout_ms: int | None = None
    pending_bytes_max: int = PENDING_BYTES_MAX
    in_flight_count_max: int = IN_FLIGHT_COUNT_MAX
    in_flight_bytes_max: int = IN_FLIGHT_BYTES_MAX
    #: after this long without any answer the owner is looked up again
    answer_timeout_ms: int = 30_000
    #: after this long an unanswered look-up or request to open is repeated
    open_timeout_ms: int = OPEN_TIMEOUT_MS
    #: the caller for whom a superuser opens the producer
    on_behalf_of: Caller | None = None


def retry_pause_ms(failures: int) -> int:
    """The pause before the next attempt after `failures` in a row, without jitter: none, then growing to 1 s."""
    if failures <= 1:
        return 0
    return min(RETRY_MS_MAX, int(RETRY_MS_MIN * RETRY_GROWTH ** min(failures - 2, 20)))


class TimerKind(Enum):
    RETRY = "retry"
    OPEN = "open"
    ANSWER = "answer"
    SEND = "send"


class TimerKey(NamedTuple):
    """number: the attempt; of SEND, the request."""

    kind: TimerKind
    number: int


# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OwnerFound:
    """The answer to LookUp: the shell has a stream to the owner.

    another_topic: the name belongs to another topic than at the previous attempt, so earlier epochs do not apply.
    """

    attempt: int
    owner_epoch: OwnerEpoch
    another_topic: bool = False


@dataclass(frozen=True, slots=True)
class LookUpFailed:
    """The other answer to LookUp: the owner is unknown or cannot be reached."""

    attempt: int
    error: OncelogError


@dataclass(frozen=True, slots=True)
class ProducerGranted:
    """The answer to OpenProducer. last_sequence_id: the persisted mark, -1 for none; only valid when final."""

    attempt: int
    session: SessionNumber
    name: str
    producer_id: ProducerId
    generation: Generation
    last_sequence_id: SequenceId
    final: bool
    owner_epoch: OwnerEpoch
    message_bytes_max: int = MESSAGE_BYTES_MAX
    deduplication: bool = True


@dataclass(frozen=True, slots=True)
class OpenRefused:
    """The other answer to OpenProducer. owner_epoch 0: unknown."""

    attempt: int
    error: OncelogError
    owner_epoch: OwnerEpoch = OwnerEpoch(0)


@dataclass(frozen=True, slots=True)
class StreamLost:
    """The stream of this attempt, or of its session, has ended."""

    attempt: int


@dataclass(frozen=True, slots=True)
class EpochSeen:
    """Another user of this client, a reader or a producer, got an answer of an owner of this epoch."""

    owner_epoch: OwnerEpoch


@dataclass(frozen=True, slots=True)
class SessionTimerFired:
    key: TimerKey


# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LookUp:
    """Find the owner and a stream to it: OwnerFound or LookUpFailed. fresh: do not use a kept route."""

    attempt: int
    fresh: bool
    owner_epoch: OwnerEpoch


@dataclass(frozen=True, slots=True)
class OpenProducer:
    """Ask the owner for a session: ProducerGranted or OpenRefused follows. At most one of resume, present is set.

    on_conflict applies to a new instance; one that was granted before always fences.
    """

    attempt: int
    name: str | None
    mode: SequenceMode
    on_conflict: OnConflict
    resume: ProducerInstance | None
    present: ProducerInstance | None
    owner_epoch: OwnerEpoch
    instance_id: InstanceId
    on_behalf_of: Caller | None = None


@dataclass(frozen=True, slots=True)
class WithdrawOpening:
    """Withdraw the attempt's OpenProducer, if its stream is still open."""

    attempt: int


@dataclass(frozen=True, slots=True)
class CloseSession:
    """Close this session at the owner, if the attempt's stream is still open."""

    attempt: int
    session: SessionNumber


@dataclass(frozen=True, slots=True)
class StartSessionTimer:
    """Feed SessionTimerFired(key) after this time; jitter: after a random time between half of it and all of it."""

    key: TimerKey
    after_ms: int
    jitter: bool = False


OpeningEffect = LookUp | OpenProducer | WithdrawOpening | CloseSession | StartSessionTimer


class OpeningPhase(Enum):
    IDLE = "idle"
    LOOKING_UP = "looking up"
    ASKING = "asking"
    GRANTED = "granted"
    WAITING = "waiting"


class SessionOpening:
    """The attempts of one producer to get a session."""

    def __init__(self, settings: ProducerSettings, instance_id: InstanceId) -> None:
        """instance_id: 16 random bytes, of this producer alone."""
        self._settings = settings
        self._instance_id = instance_id
        self.name = settings.name
        self.phase = OpeningPhase.IDLE
        self.attempt = 0
        #: None until the first grant, and when an expired producer may start again
        self.instance: ProducerInstance | None = None
        #: the owner said UnknownProducer: open by name, presenting the instance
        self.id_unknown = False
        self.owner_epoch = OwnerEpoch(0)
        self._failures = 0

    def believes(self, owner_epoch: OwnerEpoch) -> bool:
        """Whether an answer of this epoch is valid. 0: the sender does not serve the topic and can only refuse."""
        self.owner_epoch = max(self.owner_epoch, owner_epoch)
        return owner_epoch in (0, self.owner_epoch)

    def begin(self, *, fresh: bool) -> list[OpeningEffect]:
        """Look the owner up immediately."""
        self.attempt += 1
        self.phase = OpeningPhase.LOOKING_UP
        deadline = StartSessionTimer(TimerKey(TimerKind.OPEN, self.attempt), self._settings.open_timeout_ms)
        return [LookUp(self.attempt, fresh, self.owner_epoch), deadline]

    def again(self, *, fresh: bool = True) -> list[OpeningEffect]:
        """Retry: immediately after a first failure, then after a pause. `fresh` applies to the immediate retry."""
        self._failures += 1
        pause_ms = retry_pause_ms(self._failures)
        if pause_ms == 0:
            return self.begin(fresh=fresh)
        self.attempt += 1
        self.phase = OpeningPhase.WAITING
        return [StartSessionTimer(TimerKey(TimerKind.RETRY, self.attempt), pause_ms, jitter=True)]

    def succeeded(self) -> None:
        """A batch was stored, which a grant alone does not guarantee: the next failure counts as the first."""
        self._failures = 0

    def owner_found(self, event: OwnerFound) -> list[OpeningEffect]:
        if not self.looks_up(event.attempt):
            return []
        if event.another_topic:
            assert self.instance is None, "a granted instance belongs to one topic"
            self.owner_epoch = OwnerEpoch(0)
        if not self.believes(event.owner_epoch):
            return self.again()
        self.phase = OpeningPhase.ASKING
        proven = self.instance
        return [
            OpenProducer(
                self.attempt,
                self.name,
                self._settings.mode,
                on_conflict=self._settings.on_conflict if proven is None else OnConflict.FENCE,
                resume=None if self.id_unknown else proven,
                present=proven if self.id_unknown else None,
                owner_epoch=self.owner_epoch,
                instance_id=self._instance_id,
                on_behalf_of=self._settings.on_behalf_of,
            )
        ]

    def looks_up(self, attempt: int) -> bool:
        """Whether this attempt's look-up is unanswered."""
        return attempt == self.attempt and self.phase is OpeningPhase.LOOKING_UP

    def asks(self, attempt: int) -> bool:
        """Whether this attempt's request to the owner is unanswered."""
        return attempt == self.attempt and self.phase is OpeningPhase.ASKING

    def granted(self, event: ProducerGranted) -> None:
        """The grant is accepted: from now on this instance resumes."""
        if self.instance is not None and self.instance.producer_id != event.producer_id:
            raise InvariantViolated("a granted instance must not accept another producer id")
        self.phase = OpeningPhase.GRANTED
        self.name = event.name
        self.instance = ProducerInstance(event.producer_id, event.generation)
        self.id_unknown = False

    def timer_fired(self, key: TimerKey) -> list[OpeningEffect]:
        if key.number != self.attempt:
            return []
        if key.kind is TimerKind.RETRY and self.phase is OpeningPhase.WAITING:
            return self.begin(fresh=True)
        if key.kind is TimerKind.OPEN and self.phase in (OpeningPhase.LOOKING_UP, OpeningPhase.ASKING):
            return [*self.withdraw(), *self.again()]
        return []

    def withdraw(self) -> list[OpeningEffect]:
        """Withdraw the request to the owner, if it is unanswered."""
        return [WithdrawOpening(self.attempt)] if self.phase is OpeningPhase.ASKING else []
