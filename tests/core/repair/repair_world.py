"""A small world for repairs: storage nodes with copies of one ledger and the ledger's record, driven step by step."""

import random
from dataclasses import dataclass, field

from oncelog.core.ids import EntryId, Incarnation, LedgerId, TopicId
from oncelog.core.ledger.member_status import CopyState
from oncelog.core.ledger.metadata import LedgerKey, LedgerMetadata, LedgerState
from oncelog.core.ledger.storage_nodes import NodeView, StorageNodes
from oncelog.core.records.records import ABSENT_VERSION, ReadRecord, RecordWritten, WriteRecord
from oncelog.core.records.status import WriteStatus
from oncelog.core.repair.events import (
    CopyEntries,
    CopyOutcome,
    CopyVerified,
    EntriesCopied,
    EntriesRestored,
    LedgerReviewed,
    OwnerMemory,
    RepairEffect,
    RepairEvent,
    RepairFinished,
    RepairJob,
    RepairLimits,
    RepairRecordRead,
    RepairResult,
    RepairStarted,
    RestoreEntries,
    ReviewLedger,
    VerifyCopy,
    VerifyStatus,
)
from oncelog.core.repair.ledger_repair import LedgerRepair

TOPIC = TopicId("0f" * 16)
LEDGER = LedgerId(7)
OWNER = Incarnation("owner")
A, B, C, D, E = (Incarnation(name) for name in "abcde")
LIMITS = RepairLimits(entries_max=4, bytes_max=100)


def closed(end: int = 9, **fields: object) -> LedgerMetadata:
    record = LedgerMetadata(LEDGER, TOPIC, (A, B, C), 2, state=LedgerState.CLOSED, end=EntryId(end))
    return LedgerMetadata(**{name: getattr(record, name) for name in LedgerMetadata.__dataclass_fields__} | fields)


@dataclass
class Copies:
    """What one node holds: {id: checksum}; damaged ids are answered as unreadable."""

    sound: dict[int, int] = field(default_factory=dict)
    damaged: dict[int, None] = field(default_factory=dict)
    erased: bool = False
    silent: bool = False
    full: bool = False
    #: the ledger under this id is another topic's
    other: bool = False
    #: ids of one answer
    answer_max: int = 3


def held(*ids: int) -> Copies:
    return Copies({entry_id: 1000 + entry_id for entry_id in ids})


class RepairWorld:
    """Answers every effect as correct storage nodes and a correct store do."""

    def __init__(self, record: LedgerMetadata, nodes: dict[Incarnation, Copies], retired: tuple[Incarnation, ...] = ()):
        self.record = record
        self.version = 1
        self.nodes = nodes
        self.retired = retired
        self.listed = True
        self.draining: tuple[Incarnation, ...] = ()
        #: members and joining nodes that received an entry; every record that was written
        self.copied: list[tuple[Incarnation, Incarnation, int]] = []
        self.written: list[LedgerMetadata] = []
        #: how the next writes are answered; OK when empty
        self.statuses: list[WriteStatus] = []
        #: {entry: checksum} in the memory of the topic's owner; None: it does not answer
        self.memory: dict[int, int] | None = {}

    def view(self) -> StorageNodes:
        return StorageNodes(
            NodeView(node, registered=node in self.nodes, retired=node in self.retired, draining=node in self.draining)
            for node in dict.fromkeys((*self.nodes, *self.retired, *self.draining))
        )

    def answer(self, effect: RepairEffect) -> RepairEvent | None:
        match effect:
            case ReadRecord():
                return RepairRecordRead(self.record, self.version, self.listed)
            case WriteRecord():
                return self._write(effect)
            case VerifyCopy():
                return self._verify(effect)
            case CopyEntries():
                return self._copy(effect)
            case ReviewLedger(node):
                return LedgerReviewed(node, self._review(node))
            case RestoreEntries():
                return self._restore(effect)
            case RepairFinished():
                return None

    def _restore(self, effect: RestoreEntries) -> EntriesRestored:
        if self.memory is None:
            return EntriesRestored(OwnerMemory.SILENT, OWNER)
        asked = [entry_id for span in effect.ranges for entry_id in range(span.first, span.last + 1)]
        found = {entry_id: self.memory[entry_id] for entry_id in asked if entry_id in self.memory}
        target = self.nodes[effect.target]
        target.sound |= found
        for entry_id in found:
            target.damaged.pop(entry_id, None)
        return EntriesRestored(OwnerMemory.RESTORED if found else OwnerMemory.NOTHING, OWNER)

    def _write(self, effect: WriteRecord[LedgerKey, LedgerMetadata]) -> RecordWritten[LedgerKey, LedgerMetadata]:
        status = self.statuses.pop(0) if self.statuses else WriteStatus.OK
        if effect.version != self.version:
            status = WriteStatus.CONFLICT
        if status is not WriteStatus.CONFLICT:
            self.version += 1
            self.record = effect.value
            self.written.append(effect.value)
        return effect.answered(status, self.version if status is WriteStatus.OK else ABSENT_VERSION)

    def _verify(self, effect: VerifyCopy) -> CopyVerified:
        node = self.nodes.get(effect.node)
        if node is None or node.silent:
            return CopyVerified(effect.node, effect.first, VerifyStatus.SILENT)
        if node.erased:
            return CopyVerified(effect.node, effect.first, VerifyStatus.ERASED)
        following = effect.first + min(effect.count, node.answer_max)
        ids = [EntryId(entry_id) for entry_id in range(effect.first, following)]
        return CopyVerified(
            effect.node,
            effect.first,
            next_entry=EntryId(following),
            checksums=[node.sound.get(entry_id, 0) for entry_id in ids],
            missing=[e for e in ids if e not in node.sound and e not in node.damaged],
            unreadable=[e for e in ids if e in node.damaged],
        )

    def _copy(self, effect: CopyEntries) -> EntriesCopied:
        source, target = self.nodes.get(effect.source), self.nodes.get(effect.target)
        if target is None or target.silent:
            return EntriesCopied(effect.source, effect.target, (), CopyOutcome.TARGET_FAILED)
        if effect.target not in self.record.members and effect.target != self.record.joining:
            return EntriesCopied(effect.source, effect.target, (), CopyOutcome.NOT_NAMED)
        if target.full:
            return EntriesCopied(effect.source, effect.target, (), CopyOutcome.TARGET_REFUSED)
        if target.other:
            return EntriesCopied(effect.source, effect.target, (), CopyOutcome.TARGET_CONFLICTS)
        if source is None or source.silent:
            return EntriesCopied(effect.source, effect.target, (), CopyOutcome.SOURCE_FAILED)
        copied: list[EntryId] = []
        for entry_id in effect.ids[:2]:  # as if two entries filled the limit
            if entry_id not in source.sound or entry_id in source.damaged:
                return EntriesCopied(effect.source, effect.target, copied, CopyOutcome.SOURCE_FAILED)
            target.erased = False
            target.sound[entry_id] = source.sound[entry_id]
            target.damaged.pop(entry_id, None)
            copied.append(entry_id)
            self.copied.append((effect.source, effect.target, entry_id))
        return EntriesCopied(effect.source, effect.target, copied)

    def _review(self, name: Incarnation) -> CopyState | None:
        node, record = self.nodes.get(name), self.record
        if node is None or node.silent:
            return None
        complete = all(entry_id in node.sound for entry_id in range(record.end + 1)) and not node.damaged
        return CopyState.HELD if complete and name in record.members else CopyState.LIMBO

    # --- driving ------------------------------------------------------------------------------------------------------

    def repair(self, job: RepairJob | None = None) -> LedgerRepair:
        return LedgerRepair(job or RepairJob(LEDGER), self.view(), LIMITS)

    def run(
        self, repair: LedgerRepair, *, steps: int = 10_000, rng: random.Random | None = None
    ) -> RepairFinished | None:
        """Answer effects, in order or at random, up to `steps` of them. Returns the end; None if it was not reached."""
        effects = repair.handle(RepairStarted())
        repair.check_invariants()
        for _ in range(steps):
            if not effects:
                raise AssertionError("the repair waits for nothing")
            effect = effects.pop(rng.randrange(len(effects)) if rng else 0)
            if isinstance(effect, RepairFinished):
                assert not effects
                return effect
            event = self.answer(effect)
            assert event is not None
            effects += repair.handle(event)
            repair.check_invariants()
        return None

    def result(self, job: RepairJob | None = None) -> RepairResult:
        finished = self.run(self.repair(job))
        assert finished is not None
        return finished.result
