"""A queue of repairs, and the cluster that it sees."""

from dataclasses import replace

from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.ids import Incarnation, LedgerId
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.ledger.storage_nodes import NodeView
from oncelog.core.repair.events import RepairFinished, RepairJob, RepairResult
from oncelog.core.repair.ledger_sets import CopyCounts
from oncelog.core.repair.queue_events import (
    ChainRecorded,
    ClusterSeen,
    LedgerRecorded,
    QueueEffect,
    QueueTicked,
    RepairEnded,
    RepairSettings,
    StartRepair,
)
from oncelog.core.repair.repair_queue import RepairQueue
from tests.core.repair.repair_world import TOPIC, A, B, C, D, closed

OWNER = Incarnation("owner")
LOG = LedgerPurpose.LOG
SETTINGS = RepairSettings(
    absent_delay_ms=1000, retry_ms=10, retry_max_ms=100, lost_retry_ms=5000, roll_retry_ms=50, roll_retry_max_ms=150
)


def record(ledger_id: int, *members: Incarnation, **fields: object) -> LedgerMetadata:
    """A CLOSED and whole ledger on A, B and C, or on these members."""
    return replace(closed(ledger_id=LedgerId(ledger_id), members=members or (A, B, C), verified=True), **fields)  # type: ignore[arg-type]


class QueueWorld:
    """A queue, and the cluster that it is told of."""

    def __init__(self, *records: LedgerMetadata, settings: RepairSettings = SETTINGS) -> None:
        self.queue = RepairQueue(settings)
        self.now = 0
        self.views = {node: NodeView(node) for node in (A, B, C, D)}
        self.owners: tuple[Incarnation, ...] = (OWNER,)
        self.listed = tuple(r.ledger_id for r in records)
        self.see()
        for each in records:
            self.queue.handle(LedgerRecorded(each))
        self.queue.handle(ChainRecorded(TOPIC, LOG, self.listed, OWNER))

    def see(self) -> None:
        views = tuple(self.views.values())
        assert self.queue.handle(ClusterSeen(views, self.owners, self.now)) == []
        self.check_copies()

    def check_copies(self) -> None:
        """What is counted step by step is what a count from the beginning gives."""
        counted = CopyCounts()
        for each in self.listed:
            record, assessment = self.queue.record(each), self.queue.assessment(each)
            if record is not None and assessment is not None:
                counted.count(record, assessment, 1)
        found = {copies: count for copies, count in self.queue.copies.entries.items() if count}
        assert (found, self.queue.copies.left_bytes) == (
            {c: n for c, n in counted.entries.items() if n},
            counted.left_bytes,
        )

    def change(self, node: Incarnation, **fields: bool) -> None:
        self.views[node] = replace(self.views.get(node, NodeView(node)), **fields)  # type: ignore[arg-type]
        self.see()

    def lose(self, node: Incarnation) -> None:
        self.change(node, registered=False, retired=True)

    def tick(self, ticks: int = 0) -> list[QueueEffect]:
        self.now += ticks
        effects = self.queue.handle(QueueTicked(self.now))
        self.check_copies()
        return effects

    def end(self, job: RepairJob, result: RepairResult, after: LedgerMetadata | None = None, **fields: object) -> None:
        finished = RepairFinished(job.ledger_id, result, after, 1 if after else -1, **fields)  # type: ignore[arg-type]
        self.queue.handle(RepairEnded(finished, self.now))
        self.check_copies()

    def job(self) -> RepairJob:
        (effect,) = self.tick()
        assert isinstance(effect, StartRepair)
        return effect.job
