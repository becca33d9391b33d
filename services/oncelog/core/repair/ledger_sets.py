"""The listed ledgers by what is wrong with them, for reports about storage."""

from dataclasses import dataclass, field

from oncelog.core.ids import LedgerId


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
