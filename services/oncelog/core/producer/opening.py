"""How a producer gets its session: find the owner, ask it, try again. The half of `producer_session` that knows owners.

    LOOKING_UP -> ASKING -> GRANTED
        ^           |          |
        +-- WAITING-+----------+      each new try is an attempt with a number of its own

Rules
- Completions name their attempt; those of an older one are dropped.
- The highest owner_epoch ever seen is kept and told to every owner; whatever carries a lower one is not believed
  (hazard 6).
- The first opening makes a new instance. A living one resumes with (producer id, generation), or opens by name again
  and presents both once its id is unknown (hazard 11).
- All requests of one instance carry its own id, so the owner takes a repeat for what it is. A request that is not
  answered in time is withdrawn before the next one is sent: it must not be granted later.
- The first retry after a success is at once, the next ones after 20 ms growing by half up to 1 s; the shell adds the
  jitter.
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
#: Growing by half and not twofold: what ends between two tries is noticed after a third of its length at most.
RETRY_GROWTH = 1.5
RETRY_MS_MAX = 1_000
OPEN_TIMEOUT_MS = 5_000
MESSAGE_BYTES_MAX = 5 * 1024 * 1024
#: Room for the batch's header, lengths and id deltas beside one message of the largest size.
BATCH_OVERHEAD_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """name None: the owner assigns one. initial_sequence_id: the last id used; None: go on where the log ends.

    on_conflict REFUSE: ProducerBusy while another instance is connected. send_timeout_ms None: for ever.
    """

    name: str | None = None
    mode: SequenceMode = SequenceMode.MONOTONIC
    on_conflict: OnConflict = OnConflict.FENCE
    initial_sequence_id: int | None = None
    send_timeout_ms: int | None = None
    pending_bytes_max: int = PENDING_BYTES_MAX
    in_flight_count_max: int = IN_FLIGHT_COUNT_MAX
    in_flight_bytes_max: int = IN_FLIGHT_BYTES_MAX
    #: an owner that leaves everything unanswered for so long is given up
    answer_timeout_ms: int = 30_000
    #: a request to open, or the look-up before it, that is not answered for so long is made again
    open_timeout_ms: int = OPEN_TIMEOUT_MS
    #: for whom a superuser opens it
    on_behalf_of: Caller | None = None


def retry_pause_ms(failures: int) -> int:
    """The pause before the next try after `failures` in a row, without jitter: none, then growing to a second."""
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

    another_topic: the name is another topic's than at the attempt before, whose epochs say nothing of this one's.
    """

    attempt: int
    owner_epoch: OwnerEpoch
    another_topic: bool = False


@dataclass(frozen=True, slots=True)
class LookUpFailed:
    """The other answer to LookUp: the owner is not known, or not reached."""

    attempt: int
    error: OncelogError


@dataclass(frozen=True, slots=True)
class ProducerGranted:
    """The answer to OpenProducer. last_sequence_id: the persisted mark, -1 for none; meaningful only when final."""

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
    """The other answer to OpenProducer. owner_epoch 0: not known."""

    attempt: int
    error: OncelogError
    owner_epoch: OwnerEpoch = OwnerEpoch(0)


@dataclass(frozen=True, slots=True)
class StreamLost:
    """The stream on which this attempt asked, or was granted, is gone."""

    attempt: int


@dataclass(frozen=True, slots=True)
class EpochSeen:
    """Somebody else of this client, a reader or another producer, was answered by an owner of this epoch."""

    owner_epoch: OwnerEpoch


@dataclass(frozen=True, slots=True)
class SessionTimerFired:
    key: TimerKey


# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LookUp:
    """Find the owner and a stream to it: OwnerFound or LookUpFailed. fresh: a remembered route is not good enough."""

    attempt: int
    fresh: bool
    owner_epoch: OwnerEpoch


@dataclass(frozen=True, slots=True)
class OpenProducer:
    """Ask the owner that this attempt found: ProducerGranted or OpenRefused. At most one of resume, present is set.

    on_conflict is the application's wish for a new instance; a living one has nobody to refuse.
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
    """Tell the owner, if the attempt's stream still lives, that nobody waits for the answer to its OpenProducer."""

    attempt: int


@dataclass(frozen=True, slots=True)
class CloseSession:
    """Tell the owner, if the attempt's stream still lives, that nobody uses this session any more."""

    attempt: int
    session: SessionNumber


@dataclass(frozen=True, slots=True)
class StartSessionTimer:
    """Bring SessionTimerFired(key) after this long; jitter: after a time drawn from half of it to all of it."""

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
        #: None until the first grant, and when an expired producer may begin anew
        self.instance: ProducerInstance | None = None
        #: the owner said UnknownProducer: open by name, presenting the instance
        self.id_unknown = False
        self.owner_epoch = OwnerEpoch(0)
        self._failures = 0

    def believes(self, owner_epoch: OwnerEpoch) -> bool:
        """Whether the sender may speak for the topic; 0 is a sender that does not serve it, and may only refuse."""
        self.owner_epoch = max(self.owner_epoch, owner_epoch)
        return owner_epoch in (0, self.owner_epoch)

    def begin(self, *, fresh: bool) -> list[OpeningEffect]:
        """Look the owner up now."""
        self.attempt += 1
        self.phase = OpeningPhase.LOOKING_UP
        deadline = StartSessionTimer(TimerKey(TimerKind.OPEN, self.attempt), self._settings.open_timeout_ms)
        return [LookUp(self.attempt, fresh, self.owner_epoch), deadline]

    def again(self, *, fresh: bool = True) -> list[OpeningEffect]:
        """Something failed: look up at once the first time, then after a pause. `fresh` counts when it is at once."""
        self._failures += 1
        pause_ms = retry_pause_ms(self._failures)
        if pause_ms == 0:
            return self.begin(fresh=fresh)
        self.attempt += 1
        self.phase = OpeningPhase.WAITING
        return [StartSessionTimer(TimerKey(TimerKind.RETRY, self.attempt), pause_ms, jitter=True)]

    def succeeded(self) -> None:
        """A batch was answered well, which a grant alone does not promise: the next failure is a first one."""
        self._failures = 0

    def owner_found(self, event: OwnerFound) -> list[OpeningEffect]:
        if not self.looks_up(event.attempt):
            return []
        if event.another_topic:
            assert self.instance is None, "a living instance is of one topic"
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
        """Whether this attempt's look-up is open."""
        return attempt == self.attempt and self.phase is OpeningPhase.LOOKING_UP

    def asks(self, attempt: int) -> bool:
        """Whether this attempt's question to the owner is open."""
        return attempt == self.attempt and self.phase is OpeningPhase.ASKING

    def granted(self, event: ProducerGranted) -> None:
        """The grant is taken: from now on this instance resumes."""
        if self.instance is not None and self.instance.producer_id != event.producer_id:
            raise InvariantViolated("a grant of another producer id is never taken by a living instance")
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
        """Nobody waits for the answer any more, if one is due."""
        return [WithdrawOpening(self.attempt)] if self.phase is OpeningPhase.ASKING else []
