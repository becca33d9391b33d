"""The ledger that a managed ledger opens next, prepared while the last one is still written to or being recovered.

    IDLE --prepare--> CLAIMING (an id) -> CREATING (its record) -> READY --take--> IDLE
                                       -> WAITING (for storage nodes) -> CLAIMING
    READY --drop, or better members are available--> IDLE (its record is deleted; no list ever named it)

Rules
- An id that is not above the last id of the list is discarded. So is an id whose record may or may not exist.
- A storage node counts as live only if it was so when the id was requested. After a restore of ZooKeeper a node
  registers once all ids of its ledgers have been given again, and an owner may have got one of these (hazard
  ledger-id-given-twice).
- Nothing is written to a ledger before a list names it, and a list names it only after the ledger before it is CLOSED.
  Preparing a ledger early therefore affects only how long producers wait.
- Its record says the owner's epoch. So repair can remove the record of a ledger whose owner ended before it was listed
  (hazard prepared-ledger-is-left).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from oncelog.core.chain.roll_rule import NEVER_ROLLS, RollRule
from oncelog.core.errors import InvariantViolated
from oncelog.core.formats.batch import Checksum
from oncelog.core.ids import Incarnation, LedgerId, OwnerEpoch, TopicId
from oncelog.core.ledger.member_selection import StorageNodesUpdated, pick_members
from oncelog.core.ledger.metadata import LedgerKey, LedgerMetadata
from oncelog.core.records.records import ABSENT_VERSION, RecordWritten, WriteRecord
from oncelog.core.records.status import WriteStatus


class LedgerPurpose(Enum):
    """What a ledger is for: the topic's log, the snapshots of its dedup cursor, or its ack log."""

    LOG = "log"
    DEDUP = "dedup"
    ACKS = "acks"


@dataclass(frozen=True, slots=True)
class ManagedLedgerSettings:
    """The quorums, the writer, and when it rolls. The ensemble is the write quorum, because members are static."""

    purpose: LedgerPurpose
    topic_id: TopicId
    owner_epoch: OwnerEpoch
    write_quorum: int
    ack_quorum: int
    checksum: Checksum
    rule: RollRule = NEVER_ROLLS


# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LedgerIdClaimed:
    purpose: LedgerPurpose
    ledger_id: LedgerId


# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClaimLedgerId:
    purpose: LedgerPurpose


@dataclass(frozen=True, slots=True)
class DeleteLedgers:
    """Delete the records of these ledgers, because no list names them."""

    ledger_ids: tuple[LedgerId, ...]


NextEffect = ClaimLedgerId | WriteRecord[LedgerKey, LedgerMetadata] | DeleteLedgers


class NextState(Enum):
    IDLE = "idle"
    CLAIMING = "claiming"
    WAITING = "waiting for storage nodes"
    CREATING = "creating"
    READY = "ready"


class NextLedger:
    """Prepares one ledger at a time."""

    def __init__(
        self,
        settings: ManagedLedgerSettings,
        *,
        last_ledger: LedgerId,
        nodes: StorageNodesUpdated,
        emit: Callable[[NextEffect], None],
    ) -> None:
        """last_ledger: the highest id of the list, -1 when it is empty."""
        self.settings = settings
        self.state = NextState.IDLE
        #: the newest list of the storage nodes
        self.nodes = nodes
        self._emit = emit
        self._last_ledger = last_ledger
        self._claimed: LedgerId | None = None
        #: the nodes that were live when its id was requested
        self._candidates: frozenset[Incarnation] = frozenset()
        self._created: LedgerMetadata | None = None

    @property
    def ready(self) -> bool:
        return self.state is NextState.READY

    def prepare(self) -> None:
        """Begin, unless it has begun; begin again where better members are available than those of the ready ledger."""
        if self.ready and self._outdated():
            self.drop()
        if self.state is NextState.IDLE:
            self._claim()

    def take(self) -> LedgerMetadata:
        """Take the ledger that is ready. The caller adds it to the list."""
        if not self.ready or self._created is None:
            raise InvariantViolated(f"the next ledger was taken while it is {self.state.value}")
        self.state = NextState.IDLE
        self._last_ledger = self._created.ledger_id
        return self._created

    def drop(self) -> None:
        """The ready ledger is not needed."""
        if self.ready and self._created is not None:
            self.state = NextState.IDLE
            self._emit(DeleteLedgers((self._created.ledger_id,)))

    def update_nodes(self, nodes: StorageNodesUpdated) -> None:
        """A newer view of the storage nodes."""
        self.nodes = nodes
        if self.state is NextState.WAITING:
            self._claim_if_enough()

    def id_claimed(self, event: LedgerIdClaimed) -> None:
        """Take the answer to ClaimLedgerId."""
        if self.state is not NextState.CLAIMING or event.purpose is not self.settings.purpose:
            return
        if event.ledger_id <= self._last_ledger:
            self._claim()
            return
        self._claimed = event.ledger_id
        self._create()

    def record_written(self, event: RecordWritten[LedgerKey, LedgerMetadata]) -> None:
        """Take the answer to the creation of its record, among those of other ledgers' records."""
        if self.state is not NextState.CREATING or event.value != self._created:
            return
        if event.status is WriteStatus.OK:
            self.state = NextState.READY
        else:
            # The record may exist or not, so this id is discarded. No list names it.
            self._claim()

    def _claim_if_enough(self) -> None:
        """Claim a new id unless there are too few storage nodes."""
        if self._pick(self._last_ledger, self.nodes.live) is not None:
            self._claim()

    def _claim(self) -> None:
        self.state = NextState.CLAIMING
        self._candidates = frozenset(self.nodes.live)
        self._emit(ClaimLedgerId(self.settings.purpose))

    def _create(self) -> None:
        assert self._claimed is not None
        live = [node for node in self.nodes.live if node in self._candidates]
        members = self._pick(self._claimed, live)
        if members is None:
            self.state = NextState.WAITING
            self._claim_if_enough()
            return
        self.state = NextState.CREATING
        s = self.settings
        self._created = LedgerMetadata(self._claimed, s.topic_id, members, s.ack_quorum, owner_epoch=s.owner_epoch)
        self._emit(WriteRecord(LedgerKey(self._claimed), self._created, ABSENT_VERSION))

    def _pick(self, ledger_id: LedgerId, live: Sequence[Incarnation]) -> tuple[Incarnation, ...] | None:
        nodes, s = self.nodes, self.settings
        return pick_members(ledger_id, live, nodes.fillers, nodes.retired, s.write_quorum, s.ack_quorum)

    def _outdated(self) -> bool:
        """Whether members have left since the ledger was created, and better ones, or not enough, are available."""
        assert self._created is not None
        members, live = self._created.members, frozenset(self.nodes.live)
        best = self._pick(self._created.ledger_id, self.nodes.live)
        if best is None or any(member in self.nodes.retired for member in members):
            return True
        return len(live.intersection(best)) > len(live.intersection(members))
