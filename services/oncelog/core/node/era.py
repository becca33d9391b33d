"""The era that one storage node has stored, and what it takes from whom (`core.era`).

    era e --RaiseEra (e + n, r), from a restore--> CLAIMED: (e + n, r)
    CLAIMED (e, r) --the cluster's record names (e, r)--> COMMITTED (e, r)
    CLAIMED (e, r) --the cluster's record names (e, r')--> JOINED_LATE (e, r'): the other restore of this era has won
    era e --the cluster's record names (e + n, r)--> JOINED_LATE (e + n, r)

Rules
- The record is durable before the answer, and compaction keeps it for ever.
- Of two restores of one era a node takes the first only. Each needs more than half of the nodes, so one wins, and the
  cluster's record names it (hazard two-restores).
- What was added before the record stands, and an inventory behind it has it. Nothing of a lower era is added behind it
  (hazard inventory-before-the-era).
- A ledger of a former era takes no ordinary add any more: its writer is of that era.
- A node that learns its era from the cluster's record only was not asked by the restore. It cannot say which of its
  records the restore knew, so all ledgers of former eras are in limbo there.
- A node acts on records of its own era only: those of a former one may be those of a ZooKeeper that has come back
  (hazard the-lost-ensemble-returns).
Source: Paxos's ballots; the epochs of HDFS's quorum journal.
"""

from dataclasses import dataclass
from enum import Enum, IntEnum

from oncelog.core.era import ERA_JUMP_MAX, FIRST_ERA, Era
from oncelog.core.errors import InvalidArgument, ServiceUnavailable, StaleEra
from oncelog.core.ids import Incarnation, LedgerId
from oncelog.core.ledger.member_status import ReadStatus


class EraState(IntEnum):
    """How the node came to its era; the entry id of the record. JOINED_LATE: committed, and learned only then."""

    CLAIMED = 0
    COMMITTED = 1
    JOINED_LATE = 2


class EraVerdict(Enum):
    """What a node thinks of a caller's era. AHEAD: the caller's may be newer; the node does not believe a call, and
    learns its era from the cluster's record, or from RaiseEra."""

    SAME = "same"
    STALE = "stale"
    AHEAD = "ahead"


@dataclass(frozen=True, slots=True)
class EraReceived:
    """Store this era. committed: it is that of a cluster which serves."""

    call: int
    target: Incarnation
    era: Era
    committed: bool


@dataclass(frozen=True, slots=True)
class AnswerEra:
    """era: what the node has stored, durably. Another one than the request's: the request was refused."""

    call: int
    era: Era
    status: ReadStatus


@dataclass(frozen=True, slots=True)
class EraRaised:
    """The node is in this era from now on: end all streams of others, and let no read ticket of before be valid."""

    era: Era


@dataclass(frozen=True, slots=True)
class StoredEra:
    """What the node's newest ERA record says. Without a record it is the first era."""

    era: Era = FIRST_ERA
    state: EraState = EraState.COMMITTED

    @property
    def limbo_below(self) -> LedgerId:
        """Of which ledgers this record says that the node may lack entries; 0: of none."""
        return LedgerId(self.era.first_id if self.state is EraState.JOINED_LATE else 0)

    def raised(self, era: Era, *, committed: bool) -> "StoredEra":
        """What is stored after a request. The same as now: there is nothing to write."""
        claimed = self.state is EraState.CLAIMED
        if era == self.era:
            return StoredEra(era, EraState.COMMITTED) if committed and claimed else self
        wins = era.number == self.era.number and committed and claimed
        if not wins and not self.era.number < era.number <= self.era.number + ERA_JUMP_MAX:
            return self
        return StoredEra(era, EraState.JOINED_LATE if committed else EraState.CLAIMED)

    def why_newer(self, era: Era) -> str:
        """Why the node does not join a cluster whose record names `era`; empty if it may."""
        if self.raised(era, committed=True).era == era:
            return ""
        both = f"this storage node is in era {self.era}, and ZooKeeper in era {era}: "
        if self.state is EraState.CLAIMED:
            return (
                both + "a restore has raised the node and has not ended; `oncelog admin backup restore` goes on with it"
            )
        return (
            f"ZooKeeper is older than the data: {both}it is the ZooKeeper that the cluster has lost, or was restored "
            "from a backup: correct its address, or restore its records with `oncelog admin backup restore`"
        )

    def refuse_jump(self, era: Era) -> None:
        """Raises InvalidArgument for an era that is so much higher that no restore can have led there."""
        if era.number > self.era.number + ERA_JUMP_MAX:
            raise InvalidArgument(
                f"era {era.number} is more than {ERA_JUMP_MAX} above era {self.era.number} of this storage node: no "
                "restore takes such a jump",
                field="era",
                limit=self.era.number + ERA_JUMP_MAX,
            )

    def judge(self, caller: Era) -> EraVerdict:
        if caller == self.era:
            return EraVerdict.SAME
        if caller.number == self.era.number:
            return EraVerdict.AHEAD if self.state is EraState.CLAIMED else EraVerdict.STALE
        return EraVerdict.STALE if caller.number < self.era.number else EraVerdict.AHEAD

    def refuse(self, caller: Era) -> None:
        """Raises StaleEra for a caller of a former era, ServiceUnavailable for one whose era may be newer."""
        match self.judge(caller):
            case EraVerdict.SAME:
                return
            case EraVerdict.STALE:
                raise StaleEra(
                    f"this storage node is in era {self.era}, and the call is of era {caller}: ZooKeeper's records "
                    "were restored since the caller joined the cluster; it must start again",
                    era=str(self.era),
                )
            case EraVerdict.AHEAD:
                raise ServiceUnavailable(
                    f"this storage node is in era {self.era}, and the call is of era {caller}: the node takes an era "
                    "from the cluster's record or from a restore only: retry"
                )
