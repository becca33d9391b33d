"""The attempts of a client to reach a topic's owner: look it up, ask it, retry. Producers and consumers share it, and
the events and effects of their sessions that have to do with it.

    LOOKING_UP -> ASKING -> GRANTED
        ^           |          |
        +-- WAITING-+----------+      each retry is an attempt with a new number

Rules
- Completions name their attempt; those of an older one are dropped.
- The highest owner_epoch ever seen is kept and sent to every owner; answers with a lower one are rejected (hazard
  deposed-owner-refuses).
- The first retry after a success is immediate; the next ones follow after 20 ms, growing by half up to 1 s. The shell
  adds the jitter.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from oncelog.core.errors import OncelogError
from oncelog.core.ids import OwnerEpoch

RETRY_MS_MIN = 20
#: By half, not twofold: the end of an outage is then noticed after at most a third of its duration.
RETRY_GROWTH = 1.5
RETRY_MS_MAX = 1_000
OPEN_TIMEOUT_MS = 5_000


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
    REPEAT = "repeat"


class TimerKey(NamedTuple):
    """number: the attempt; of SEND, the request."""

    kind: TimerKind
    number: int


# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenWanted:
    """The application opens the producer or consumer; the first event."""


@dataclass(frozen=True, slots=True)
class CloseWanted:
    """The application closes it. What is unanswered fails, so it waits for answers first. gives_up_name: of a producer
    that a gateway has opened for a client of its own; False: the client may come back, also through another gateway."""

    gives_up_name: bool = True


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
class StreamLost:
    """The stream of this attempt, or of its session, has ended. reason: None: unknown."""

    attempt: int
    reason: OncelogError | None = None


@dataclass(frozen=True, slots=True)
class EpochSeen:
    """Another user of this client, a reader or a producer, got an answer of an owner of this epoch."""

    owner_epoch: OwnerEpoch


@dataclass(frozen=True, slots=True)
class SessionTimerFired:
    key: TimerKey


#: The events of every session, besides what owners answer.
AttemptEvent = OpenWanted | CloseWanted | OwnerFound | LookUpFailed | StreamLost | EpochSeen | SessionTimerFired


# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LookUp:
    """Find the owner and a stream to it: OwnerFound or LookUpFailed. fresh: do not use a kept route."""

    attempt: int
    fresh: bool
    owner_epoch: OwnerEpoch


@dataclass(frozen=True, slots=True)
class StartSessionTimer:
    """Feed SessionTimerFired(key) after this time; jitter: after a random time between half of it and all of it."""

    key: TimerKey
    after_ms: int
    jitter: bool = False


AttemptEffect = LookUp | StartSessionTimer


@dataclass(frozen=True, slots=True)
class FailSession:
    """The producer or consumer has failed; what is unanswered gets a result of its own."""

    error: OncelogError


@dataclass(slots=True)
class AnswerProgress:
    """Whether an owner that has requests to answer does so: after timeout_ms without any answer it is looked up again.

    count: answers of this session. before: the count when the deadline was set; None: no deadline is set.
    """

    timeout_ms: int
    count: int = 0
    before: int | None = None

    def restart(self) -> None:
        """A session begins."""
        self.count, self.before = 0, None

    def watch(self, attempt: int) -> StartSessionTimer:
        """Set a deadline for the next answer."""
        self.before = self.count
        return StartSessionTimer(TimerKey(TimerKind.ANSWER, attempt), self.timeout_ms)

    def expired(self, attempt: int, *, waiting: bool) -> list[StartSessionTimer] | None:
        """The deadline has passed. waiting: whether requests are unanswered. None: there was no answer since it was
        set."""
        if not waiting:
            self.before = None
            return []
        return [self.watch(attempt)] if self.count != self.before else None


class OpeningPhase(Enum):
    IDLE = "idle"
    LOOKING_UP = "looking up"
    ASKING = "asking"
    GRANTED = "granted"
    WAITING = "waiting"


class OwnerAttempts:
    """The attempts of one producer or consumer."""

    def __init__(self, open_timeout_ms: int = OPEN_TIMEOUT_MS) -> None:
        """open_timeout_ms: after this long an unanswered look-up or request is repeated."""
        self._open_timeout_ms = open_timeout_ms
        self.phase = OpeningPhase.IDLE
        self.attempt = 0
        self.owner_epoch = OwnerEpoch(0)
        self._failures = 0

    def believes(self, owner_epoch: OwnerEpoch) -> bool:
        """Whether an answer of this epoch is valid. 0: the sender does not serve the topic and can only refuse."""
        self.owner_epoch = max(self.owner_epoch, owner_epoch)
        return owner_epoch in (0, self.owner_epoch)

    def learn(self, owner_epoch: OwnerEpoch) -> bool:
        """Another user has seen this epoch. Returns whether it is higher than all before: the own owner was deposed."""
        newer = owner_epoch > self.owner_epoch
        self.believes(owner_epoch)
        return newer

    def begin(self, *, fresh: bool) -> list[AttemptEffect]:
        """Look the owner up immediately."""
        self.attempt += 1
        self.phase = OpeningPhase.LOOKING_UP
        deadline = StartSessionTimer(TimerKey(TimerKind.OPEN, self.attempt), self._open_timeout_ms)
        return [LookUp(self.attempt, fresh, self.owner_epoch), deadline]

    def again(self, *, fresh: bool = True) -> list[AttemptEffect]:
        """Retry: immediately after a first failure, then after a pause. `fresh` applies to the immediate retry."""
        self._failures += 1
        pause_ms = retry_pause_ms(self._failures)
        if pause_ms == 0:
            return self.begin(fresh=fresh)
        self.attempt += 1
        self.phase = OpeningPhase.WAITING
        return [StartSessionTimer(TimerKey(TimerKind.RETRY, self.attempt), pause_ms, jitter=True)]

    def owner_found(self, event: OwnerFound) -> list[AttemptEffect] | None:
        """None: the owner is to be asked now."""
        if not self.looks_up(event.attempt):
            return []
        if event.another_topic:
            self.owner_epoch = OwnerEpoch(0)
        if not self.believes(event.owner_epoch):
            return self.again()
        self.phase = OpeningPhase.ASKING
        return None

    def timer_fired(self, key: TimerKey) -> list[AttemptEffect]:
        """The pause before the present attempt is over, or the time for its answer."""
        if self.phase is OpeningPhase.WAITING and key == (TimerKind.RETRY, self.attempt):
            return self.begin(fresh=True)
        return self.again() if self.is_over(key) else []

    def succeeded(self) -> None:
        """The owner served a request, which a grant alone does not guarantee: the next failure counts as the first."""
        self._failures = 0

    def looks_up(self, attempt: int) -> bool:
        """Whether this attempt's look-up is unanswered."""
        return attempt == self.attempt and self.phase is OpeningPhase.LOOKING_UP

    def asks(self, attempt: int) -> bool:
        """Whether this attempt's request to the owner is unanswered."""
        return attempt == self.attempt and self.phase is OpeningPhase.ASKING

    def has_stream(self, attempt: int) -> bool:
        """Whether this attempt has asked an owner."""
        return attempt == self.attempt and self.phase in (OpeningPhase.ASKING, OpeningPhase.GRANTED)

    def is_over(self, key: TimerKey) -> bool:
        """Whether this timer ends an attempt that is unanswered."""
        waits = self.phase in (OpeningPhase.LOOKING_UP, OpeningPhase.ASKING)
        return waits and key == (TimerKind.OPEN, self.attempt)
