"""Placement: which owner serves a topic, and how a metadata replica decides it. It is the first phase of a takeover.

    IDLE --PlacementRequested | UnloadRequested--> READING (the topic record, after a sync)
    READING --the owner stays--> IDLE: TopicPlaced      --no live owner | no record--> IDLE: NoOwnerLive | TopicMissing
    READING --the topic must move--> WRITING (CAS: a live owner, owner_epoch + 1)
    WRITING --OK--> IDLE: TopicPlaced, NotifyOwner           --CONFLICT | UNKNOWN--> READING: decide again

    a topic must move   when its owner has no session, or is of a version below the cluster's level;
                        when an unload named this owner at this epoch;
                        when its owner is suspected (see `owner_suspicion`) and no takeover was seen within the back-off

Rules
- Any metadata replica may run this at any time; the record orders them (hazards stale-record-after-conflict and
  living-owner-suspected). A write is never repeated: after a conflict or a lost reply, the decision is made again from
  the current record, sessions and suspicions.
- Only an owner whose registered version knows the cluster's level gets a topic (hazard
  away-node-of-an-older-version).
- A silent owner keeps its topics until its session ends. A wrong suspicion costs one takeover, never a message.
- Choices use rendezvous hashing: every replica with the same view makes the same choice, and few topics move when the
  view changes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import assert_never

from oncelog.core.errors import InvariantViolated
from oncelog.core.formats.topic_record import TopicRecord
from oncelog.core.ids import Incarnation, OwnerEpoch, TopicId
from oncelog.core.process_version import PROCESS_VERSION
from oncelog.core.records.records import ReadRecord, TopicKey, WriteRecord
from oncelog.core.records.status import WriteStatus
from oncelog.core.rendezvous import ranked

#: A takeover takes well below a second. Two suspicions of a topic within this time are more likely a network partition
#: than two deaths.
BACKOFF_MS = 2_000


def pick_owner(topic_id: TopicId, live: Sequence[Incarnation]) -> Incarnation | None:
    """The owner for a topic among the live ones; None if there is none."""
    best_first = ranked(topic_id, live)
    return best_first[0] if best_first else None


@dataclass(frozen=True, slots=True)
class OwnersView:
    """The owners, as this replica sees them. live: with a session. suspected: those of them that seem dead.

    versions: {owner: its registered process version}, for the owners with another version than this program's.
    level: of the cluster, as this replica has seen it last. Also an owner below it may have a session: it had none when
    the level was raised, and is of a version that does not notice (hazard away-node-of-an-older-version).
    """

    live: tuple[Incarnation, ...]
    suspected: tuple[Incarnation, ...] = ()
    versions: Mapping[Incarnation, int] = field(default_factory=dict)
    level: int = 0

    def can_serve(self, owner: Incarnation) -> bool:
        """Whether the owner takes part in the cluster."""
        return self.versions.get(owner, PROCESS_VERSION) >= self.level

    @property
    def usable(self) -> tuple[Incarnation, ...]:
        """The owners on which topics can be placed."""
        return tuple(owner for owner in self.live if owner not in self.suspected and self.can_serve(owner))


# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlacementRequested:
    """A client looked the topic up, or the topic's owner seems dead."""

    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class UnloadRequested:
    """Move the topic away from `avoid`, if that is still its owner. Without another owner, to itself at a higher
    epoch."""

    topic_id: TopicId
    avoid: Incarnation


@dataclass(frozen=True, slots=True)
class PlacementRecordRead:
    """The response to ReadRecord, with the owners as seen when it arrived."""

    topic_id: TopicId
    record: TopicRecord | None
    version: int
    owners: OwnersView
    now_ms: int


@dataclass(frozen=True, slots=True)
class PlacementRecordWritten:
    """The response to WriteRecord."""

    topic_id: TopicId
    status: WriteStatus
    version: int
    now_ms: int


PlacementEvent = PlacementRequested | UnloadRequested | PlacementRecordRead | PlacementRecordWritten


# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicPlaced:
    """The owner of the topic, for all waiting requests."""

    topic_id: TopicId
    owner: Incarnation
    owner_epoch: OwnerEpoch


@dataclass(frozen=True, slots=True)
class NotifyOwner:
    """Tell the owner to read the record. Repeating this is harmless."""

    topic_id: TopicId
    owner: Incarnation
    owner_epoch: OwnerEpoch


@dataclass(frozen=True, slots=True)
class NoOwnerLive:
    """No owner is live that the topic could be placed on, or only owners of a version that cannot serve it."""

    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class TopicMissing:
    """The topic has no record."""

    topic_id: TopicId


PlacementEffect = (
    ReadRecord[TopicKey] | WriteRecord[TopicKey, TopicRecord] | TopicPlaced | NotifyOwner | NoOwnerLive | TopicMissing
)


# --- the machine ------------------------------------------------------------------------------------------------------


class PlacementState(Enum):
    IDLE = "idle"
    READING = "reading"
    WRITING = "writing"


class TopicPlacement:
    """The decisions of one metadata replica about one topic."""

    def __init__(self, topic_id: TopicId, *, backoff_ms: int = BACKOFF_MS) -> None:
        self.topic_id = topic_id
        self.state = PlacementState.IDLE
        self._backoff_ms = backoff_ms
        #: until this time suspicions move nothing
        self._backoff_until_ms = 0
        #: the record as last read or written, and the record of the write in flight
        self._record: TopicRecord | None = None
        self._attempt: TopicRecord | None = None
        #: whether this round wrote: then the owner is notified, whichever write stands in the end
        self._wrote = False
        #: (the owner to avoid, the epoch at which it was found to own the topic; None until then)
        self._unload: tuple[Incarnation, OwnerEpoch | None] | None = None

    def handle(self, event: PlacementEvent) -> list[PlacementEffect]:
        """Take one event. Requests that arrive during a round are answered by its end."""
        if event.topic_id != self.topic_id:
            return []
        match event:
            case PlacementRequested():
                return self._look() if self.state is PlacementState.IDLE else []
            case UnloadRequested():
                self._unload = (event.avoid, None)
                return self._look() if self.state is PlacementState.IDLE else []
            case PlacementRecordRead():
                return self._record_read(event) if self.state is PlacementState.READING else []
            case PlacementRecordWritten():
                return self._record_written(event) if self.state is PlacementState.WRITING else []
            case _:
                assert_never(event)

    def _look(self) -> list[PlacementEffect]:
        self.state = PlacementState.READING
        return [ReadRecord(TopicKey(self.topic_id))]

    def _record_read(self, event: PlacementRecordRead) -> list[PlacementEffect]:
        record = event.record
        if record is None:
            self._rest()
            return [TopicMissing(self.topic_id)]
        self._see(record, event.now_ms)
        if not self._must_move(record, event.owners, event.now_ms):
            return self._placed(record)
        pick = self._pick(event.owners.usable)
        if pick is None:
            self._rest()
            return [NoOwnerLive(self.topic_id)]
        self.state = PlacementState.WRITING
        self._wrote = True
        self._attempt = record.placed_on(pick)
        return [WriteRecord(TopicKey(self.topic_id), self._attempt, event.version)]

    def _see(self, record: TopicRecord, now_ms: int) -> None:
        """A takeover by any replica begins the back-off; a first placement does not."""
        known, self._record = self._record, record
        if known is not None and known.owner is not None and record.owner_epoch > known.owner_epoch:
            self._backoff_until_ms = now_ms + self._backoff_ms

    def _must_move(self, record: TopicRecord, owners: OwnersView, now_ms: int) -> bool:
        if self._unload is not None:
            avoid, epoch = self._unload
            if avoid == record.owner and epoch in (None, record.owner_epoch):
                self._unload = (avoid, record.owner_epoch)
                return True
            self._unload = None
        if record.owner not in owners.live or not owners.can_serve(record.owner):
            return True
        return record.owner in owners.suspected and now_ms >= self._backoff_until_ms

    def _pick(self, usable: Sequence[Incarnation]) -> Incarnation | None:
        avoid = self._unload[0] if self._unload is not None else None
        others = [owner for owner in usable if owner != avoid]
        return pick_owner(self.topic_id, others or usable)

    def _record_written(self, event: PlacementRecordWritten) -> list[PlacementEffect]:
        attempt, self._attempt = self._attempt, None
        if attempt is None:
            raise InvariantViolated(f"topic {self.topic_id}: a write was answered that was never made")
        if event.status is not WriteStatus.OK:
            return self._look()
        self._see(attempt, event.now_ms)
        if self._unload is not None and self._unload[1] is None:
            # The unload arrived while the write was in flight, and may mean the new owner: the record decides.
            return [*self._placed(attempt, keep_unload=True), *self._look()]
        return self._placed(attempt)

    def _placed(self, record: TopicRecord, *, keep_unload: bool = False) -> list[PlacementEffect]:
        owner, epoch, wrote, unload = record.owner, record.owner_epoch, self._wrote, self._unload
        if owner is None:
            raise InvariantViolated(f"topic {self.topic_id} is placed on no owner")
        self._rest()
        self._unload = unload if keep_unload else None
        placed = TopicPlaced(self.topic_id, owner, epoch)
        return [placed, NotifyOwner(self.topic_id, owner, epoch)] if wrote else [placed]

    def _rest(self) -> None:
        self.state = PlacementState.IDLE
        self._wrote = False
        self._unload = None

    def check_invariants(self) -> None:
        """Raises InvariantViolated if this machine contradicts itself."""
        if (self._attempt is None) is (self.state is PlacementState.WRITING):
            raise InvariantViolated(
                f"topic {self.topic_id} is {self.state.value}, which does not fit the write in flight"
            )
        if self._attempt is not None and self._record is not None:
            if self._attempt.owner_epoch != self._record.owner_epoch + 1 or self._attempt.owner is None:
                raise InvariantViolated(
                    f"topic {self.topic_id}: a placement must name an owner and raise the epoch by one"
                )
            before, after = self._record, self._attempt
            if (after.pages, after.ledgers, after.acks) != (before.pages, before.ledgers, before.acks):
                raise InvariantViolated(f"topic {self.topic_id}: a placement must not touch the ledgers")
        if self.state is PlacementState.IDLE and self._unload is not None:
            raise InvariantViolated(f"topic {self.topic_id}: an unload was forgotten")
