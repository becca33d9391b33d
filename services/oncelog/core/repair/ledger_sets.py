"""The listed ledgers by what is wrong with them, and their entries by copies, for reports about storage."""

from dataclasses import dataclass, field

from oncelog.core.ids import LedgerId
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.core.repair.assessment import Assessment


@dataclass(frozen=True, slots=True)
class RepairCounts:
    """under_replicated: ledgers with fewer live undamaged members than their write quorum. unproved: CLOSED ledgers
    that are not whole. queued: jobs that wait."""

    under_replicated: int
    unproved: int
    unavailable: int
    lost: int
    frozen: int
    stuck: int
    queued: int


@dataclass(slots=True)
class LedgerSets:
    """The ledgers of each kind, in the order in which they became so."""

    under_replicated: dict[LedgerId, None] = field(default_factory=dict)
    unproved: dict[LedgerId, None] = field(default_factory=dict)
    unavailable: dict[LedgerId, None] = field(default_factory=dict)
    lost: dict[LedgerId, None] = field(default_factory=dict)
    frozen: dict[LedgerId, None] = field(default_factory=dict)
    stuck: dict[LedgerId, None] = field(default_factory=dict)

    def counts(self, *, queued: int) -> RepairCounts:
        return RepairCounts(
            len(self.under_replicated),
            len(self.unproved),
            len(self.unavailable),
            len(self.lost),
            len(self.frozen),
            len(self.stuck),
            queued,
        )


@dataclass(slots=True)
class CopyCounts:
    """Of the CLOSED ledgers. entries: {copies: entries that have so many}. A copy is a live member without known
    damage; an entry that was given up as lost has none. left_bytes: of the copies that are missing, or will be when a
    node has gone that is to be replaced."""

    entries: dict[int, int] = field(default_factory=dict)
    left_bytes: int = 0

    def count(self, record: LedgerMetadata, assessment: Assessment, by: int) -> None:
        """by: 1 for a ledger that is added, -1 for one that is taken out."""
        if record.state is not LedgerState.CLOSED:
            return
        lost = sum(each.last - each.first + 1 for each in record.lost)
        for copies, entries in ((assessment.copies, record.end + 1 - lost), (0, lost)):
            self.entries[copies] = self.entries.get(copies, 0) + by * entries
        replaced = assessment.job is not None and assessment.job.replace is not None
        missing = max(record.write_quorum - assessment.copies, int(replaced), 0)
        self.left_bytes += by * missing * record.length
