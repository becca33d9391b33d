"""One pass over a ledger: the nodes that the record names are brought to hold the same entries.

    per range of ids
        READ      every live member and the joining node read the range back from their disks
        OTHERS    an id without a sound copy: the other registered nodes are asked, too (a directory that was retired
                  and is served again, or one that was swapped out and has not erased its copy)
        COPY      what a target lacks is copied to it from any node with a sound copy
        ATTEST    the target reads the range back; what it still lacks is copied again, a few times at most
    all ranges are done, or two sound copies differ: `ended`

Without targets the pass copies nothing and only finds the ids without a sound copy; if a node is joining, those
without a sound copy at a live member.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

from oncelog.core.ids import EntryId, Incarnation
from oncelog.core.ledger.metadata import EntryRange, LedgerMetadata
from oncelog.core.ledger.storage_nodes import StorageNodes
from oncelog.core.repair.copies import RangeCopies, chunks, ranges_of, without
from oncelog.core.repair.events import (
    CopyEntries,
    CopyOutcome,
    CopyVerified,
    EntriesCopied,
    RepairLimits,
    VerifyCopy,
)


class CopyPass:
    """One pass, under one version of the record. nodes: may be replaced by newer ones at any time."""

    #: times that a range is copied to a node that does not read it back
    rounds_max: ClassVar[int] = 3

    def __init__(
        self, record: LedgerMetadata, nodes: StorageNodes, targets: Sequence[Incarnation], limits: RepairLimits,
        emit: Callable[[VerifyCopy | CopyEntries], None],
    ) -> None:  # fmt: skip
        self.nodes = nodes
        self.targets = tuple(targets)
        self.ended = False
        #: set by the caller: the pass ends with the present range
        self.stopped = False
        #: two sound copies of this id differ (hazard differing-copies)
        self.differing: EntryId | None = None
        #: {target that could not be filled: why}
        self.failed: dict[Incarnation, CopyOutcome] = {}
        #: targets that received copies
        self.filled: dict[Incarnation, None] = {}
        #: ids without a sound copy
        self.unsourced: list[EntryRange] = []
        self.entries_copied = 0
        #: no lower id is examined any more in this pass
        self.next_entry = EntryId(0)
        self._record = record
        self._limits = limits
        self._emit = emit
        whole = (EntryRange(EntryId(0), record.end),) if record.end >= 0 else ()
        self._spans: Iterator[EntryRange] = chunks(without(whole, record.lost), limits.entries_max)
        self._copies = self._copies_of(EntryRange(EntryId(0), EntryId(-1)))
        self._others_asked = False
        self._rounds = 0
        #: {target: ids requested}
        self._copying: dict[Incarnation, tuple[EntryId, ...]] = {}
        #: {target: ids that it acknowledged since it last read the range back}
        self._acknowledged: dict[Incarnation, dict[EntryId, None]] = {}

    def start(self) -> None:
        self._next_range()

    def handle(self, event: CopyVerified | EntriesCopied) -> None:
        if isinstance(event, CopyVerified):
            self._copies.note(event)
        else:
            self._entries_copied(event)
        self._go_on()

    def participants(self) -> list[Incarnation]:
        """The registered nodes that the record names."""
        record = self._record
        named = record.members if record.joining is None else (*record.members, record.joining)
        return [node for node in named if node in self.nodes.registered]

    @property
    def copying(self) -> tuple[Incarnation, ...]:
        return tuple(self._copying)

    # --- one range ----------------------------------------------------------------------------------------------------

    def _copies_of(self, span: EntryRange) -> RangeCopies:
        return RangeCopies(self._record, span, self._emit)

    def _next_range(self) -> None:
        # Without any node there is nothing to learn, and every range would be over at once.
        self.stopped = self.stopped or not self.nodes.registered
        span = None if self.stopped else next(self._spans, None)
        if span is None:
            self.ended = True
            return
        self.next_entry = span.first
        self._others_asked = False
        self._rounds = 0
        self._acknowledged = {}
        self._copies = self._copies_of(span)
        for node in self.participants():
            self._copies.ask(node)
        self._go_on()

    def _go_on(self) -> None:
        copies = self._copies
        if self.ended or copies.waiting() or self._copying:
            return
        self.differing = copies.differing()
        if self.differing is not None:
            self.ended = True
            return
        unsourced = copies.unsourced(copies.sound)
        if unsourced and not self._others_asked:
            self._others_asked = True
            participants = self.participants()
            for node in self.nodes.registered:
                if node not in participants:
                    copies.ask(node)
            if copies.waiting():
                return
        self._copy_lacking(dict.fromkeys(unsourced))

    def _copy_lacking(self, unsourced: dict[EntryId, None]) -> None:
        """Request what the targets lack. If they lack nothing that has a source, the range is done."""
        unread: list[Incarnation] = []
        sourced = [entry_id for entry_id in self._copies.ids() if entry_id not in unsourced]
        for target in self.targets:
            if target in self.failed:
                continue
            done = self._acknowledged.get(target, {})
            ids = [entry_id for entry_id in self._copies.lacking(target, sourced) if entry_id not in done]
            if not self._reachable(target):
                self.failed[target] = CopyOutcome.TARGET_FAILED
            elif ids:
                self._copy(target, ids)
            elif done:
                unread.append(target)
        if self._copying:
            return
        if unread:
            self._read_back(unread)
            return
        if not self.targets and self._record.joining is not None:
            members = [node for node in self.participants() if node != self._record.joining]
            unsourced = dict.fromkeys(self._copies.unsourced(members))
        self.unsourced += ranges_of(unsourced)
        self._next_range()

    def _reachable(self, target: Incarnation) -> bool:
        return target in self._copies.answered or target in self._copies.erased

    def _copy(self, target: Incarnation, ids: Sequence[EntryId]) -> None:
        """From the node that has most of them."""
        best: tuple[Incarnation, list[EntryId]] | None = None
        for source, sound in self._copies.sound.items():
            held = [entry_id for entry_id in ids if entry_id in sound]
            if source != target and held and (best is None or len(held) > len(best[1])):
                best = (source, held)
        if best is not None:
            self._copying[target] = tuple(best[1])
            record, bytes_max = self._record, self._limits.bytes_max
            ids = self._copying[target]
            self._emit(CopyEntries(best[0], target, record.ledger_id, ids, bytes_max, record.topic_id))

    def _entries_copied(self, event: EntriesCopied) -> None:
        requested = self._copying.pop(event.target, ())
        acknowledged = dict.fromkeys(event.copied)
        copied = dict.fromkeys(entry_id for entry_id in requested if entry_id in acknowledged)
        if copied:
            self.filled[event.target] = None
            self._acknowledged.setdefault(event.target, {}).update(copied)
            self.entries_copied += len(copied)
        if event.outcome is CopyOutcome.SOURCE_FAILED:
            for entry_id in requested:
                if entry_id not in copied:
                    self._copies.sound.get(event.source, {}).pop(entry_id, None)
        elif event.outcome is not CopyOutcome.DONE or not copied:
            self.failed[event.target] = event.outcome

    def _read_back(self, targets: Sequence[Incarnation]) -> None:
        """ATTEST: a copy counts when the target reads it from its disk."""
        self._rounds += 1
        for target in targets:
            self._acknowledged.pop(target, None)
            if self._rounds > self.rounds_max:
                self.failed[target] = CopyOutcome.TARGET_FAILED
            else:
                self._copies.ask(target)
        self._go_on()
