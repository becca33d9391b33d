"""What an owner knows of one producer of a topic."""

from dataclasses import dataclass, field

from oncelog.core.errors import InvariantViolated
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.ids import NO_INSTANCE, NO_SEQUENCE, Generation, InstanceId, Position, ProducerId, SequenceId
from oncelog.core.publishing.recent_batches import NO_BATCHES, RECENT_BATCHES_MAX, RecentBatch, RecentBatches


@dataclass(slots=True)
class ProducerState:
    """recent_batches: ascending, at most RECENT_BATCHES_MAX. recent_floor: ids at or below it are older than those.

    instance_id: the instance that holds the current generation. role: the first role that opened the name; it owns it.
    growths: of the name's first grant, see ProducerOpened. lifetime_ms: of its lease; 0: it has none. active_at_ms: the
    time of the log (`DedupState.time_ms`) at its last activity. history: of its generations, packed, see
    `generation_history`; empty: unknown.
    """

    name: str
    producer_id: ProducerId
    generation: Generation
    mode: SequenceMode
    persisted: SequenceId = NO_SEQUENCE
    recent_batches: RecentBatches = field(default_factory=lambda: NO_BATCHES)
    recent_floor: SequenceId = NO_SEQUENCE
    last_activity_ms: int = 0
    instance_id: InstanceId = NO_INSTANCE
    role: str = ""
    growths: int = 0
    lifetime_ms: int = 0
    active_at_ms: int = 0
    history: bytes = b""

    def remember(self, recent: RecentBatch) -> None:
        if recent.first <= self.persisted:
            raise InvariantViolated(f"batch {recent.first} is not above the persisted mark {self.persisted}")
        if self.recent_batches is NO_BATCHES:
            self.recent_batches = RecentBatches()
        self.recent_batches.append(recent)
        self.persisted = recent.last
        dropped = len(self.recent_batches) - RECENT_BATCHES_MAX
        if dropped > 0:
            self.recent_floor = self.recent_batches.last_of(dropped - 1)
            self.recent_batches.drop_first(dropped)

    def forget_all(self) -> None:
        """Forget all recent batches; only the mark remains."""
        self.recent_floor = self.persisted
        self.recent_batches.drop_first(len(self.recent_batches))

    def forget_below(self, floor: SequenceId) -> None:
        """Forget the recent batches that begin at or below `floor`, and raise recent_floor to at least `floor`."""
        if floor > self.recent_floor:
            dropped = sum(recent.first <= floor for recent in self.recent_batches)
            self.recent_floor = max(floor, self.recent_batches.last_of(dropped - 1)) if dropped else floor
            if dropped:
                self.recent_batches.drop_first(dropped)

    def outlive(self, last: SequenceId) -> None:
        """A unit was stored whose first id is not above the mark; its last one is `last`. That is so only while dedup
        is disabled. Its ids are unknown, so all up to `last` are older than the recent batches."""
        if last <= self.persisted:
            self.forget_below(last)
        else:
            self.persisted = last
            self.forget_all()

    def forget_until(self, position: Position) -> None:
        """Forget the batches up to the one at `position`, whose ids can no longer be read."""
        kept = sum(recent.position > position for recent in self.recent_batches)
        if kept < len(self.recent_batches):
            dropped = len(self.recent_batches) - kept
            self.recent_floor = self.recent_batches.last_of(dropped - 1)
            self.recent_batches.drop_first(dropped)
