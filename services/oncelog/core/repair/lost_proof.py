"""The proof that entries are lost: every storage node that may hold them was asked, under one version of the record.

An id is proved lost when nobody who was asked has a sound copy of it, and
    every member and the joining node    answered "missing" or "unreadable", or is retired and not registered
    every other registered node          answered, be it ERASED
Silence proves nothing, nor does ERASED from a member (hazards 61 and 78). A member that is absent and not retired may
hold the entry. "Unreadable" covers a node in limbo: its start scan is complete before it serves.
"""

from collections.abc import Callable, Sequence

from oncelog.core.ids import EntryId, Incarnation
from oncelog.core.ledger.metadata import EntryRange, LedgerMetadata
from oncelog.core.repair.copies import RangeCopies, chunks, ranges_of
from oncelog.core.repair.events import CopyVerified, RepairLimits, RepairNodes, VerifyCopy


class LostProof:
    """Asks about the ids of `ranges`. At the end each of them is found, undecided, or proved lost."""

    def __init__(
        self, record: LedgerMetadata, nodes: RepairNodes, ranges: Sequence[EntryRange], limits: RepairLimits,
        emit: Callable[[VerifyCopy], None],
    ) -> None:  # fmt: skip
        self.ranges = tuple(ranges)
        self.asked = nodes.registered
        self.ended = False
        #: a sound copy exists
        self.found: list[EntryRange] = []
        self.undecided: list[EntryRange] = []
        #: the nodes that may hold what is undecided
        self.waiting_for: dict[Incarnation, None] = {}
        self._record = record
        self._nodes = nodes
        self._emit = emit
        self._spans = chunks(ranges, limits.entries_max)
        self._named = record.members if record.joining is None else (*record.members, record.joining)
        self._copies = RangeCopies(record.ledger_id, EntryRange(EntryId(0), EntryId(-1)), emit)

    def start(self) -> None:
        self._next_range()

    def handle(self, event: CopyVerified) -> None:
        self._copies.note(event)
        if not self._copies.waiting():
            self._judge()
            self._next_range()

    def _next_range(self) -> None:
        while not self.ended:
            span = next(self._spans, None)
            if span is None:
                self.ended = True
                return
            self._copies = RangeCopies(self._record.ledger_id, span, self._emit)
            for node in self._nodes.registered:
                self._copies.ask(node)
            if self._copies.waiting():
                return
            self._judge()

    def _judge(self) -> None:
        copies = self._copies
        absent = dict.fromkeys(copies.unsourced(copies.sound))
        self.found += ranges_of(entry_id for entry_id in copies.ids() if entry_id not in absent)
        holders = [node for node in self._named if self._may_hold(node)]
        holders += [n for n in self._nodes.registered if n not in copies.answered and n not in copies.erased]
        if absent and holders:
            self.undecided += ranges_of(absent)
            self.waiting_for.update(dict.fromkeys(holders))

    def _may_hold(self, node: Incarnation) -> bool:
        """Whether a node that the record names may hold what no sound copy was found of."""
        if node in self._nodes.registered:
            return node not in self._copies.answered
        return node not in self._nodes.retired
