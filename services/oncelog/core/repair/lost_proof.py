"""The proof that entries are lost: every storage node that may hold them was asked twice, under one version of the
record, while the same nodes were registered.

    FIRST    every registered node is asked about a range of ids
    AGAIN    the same nodes are asked again about the ids that a complete first round denied

A round denies an id when no node that was asked has a sound copy of it, and
    every member and the joining node    answered "missing" or "unreadable", or is retired and not registered
    every other registered node          answered, be it ERASED
Silence proves nothing, nor does ERASED from a member (hazards answer-of-a-former-member and lost-too-early). A member
that is absent and not retired may hold the entry. "Unreadable" covers a node in limbo: its start scan is complete
before it serves.

An id is proved lost when both rounds deny it. One round is not enough: after a node has denied an entry, another
repairer may copy the entry to it, under the same version, and the source may lose it before it is asked.
"""

from collections.abc import Callable, Sequence

from oncelog.core.ids import EntryId, Incarnation
from oncelog.core.ledger.metadata import EntryRange, LedgerMetadata
from oncelog.core.ledger.storage_nodes import StorageNodes
from oncelog.core.repair.copies import RangeCopies, chunks, ranges_of
from oncelog.core.repair.events import CopyVerified, RepairLimits, VerifyCopy


class LostProof:
    """Asks about the ids of `ranges`. At the end each of them is found, undecided, or proved lost."""

    def __init__(
        self, record: LedgerMetadata, nodes: StorageNodes, ranges: Sequence[EntryRange], limits: RepairLimits,
        emit: Callable[[VerifyCopy], None],
    ) -> None:  # fmt: skip
        self.ranges = tuple(ranges)
        self.ended = False
        #: a node registered or left since the proof began: the answers prove nothing together
        self.disturbed = False
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
        self._span = EntryRange(EntryId(0), EntryId(-1))
        self._copies = RangeCopies(record, self._span, emit)
        #: the ids of the range that the first round denied, once it is complete
        self._denied: dict[EntryId, None] | None = None

    def start(self) -> None:
        self._next_range()

    def nodes_changed(self, nodes: StorageNodes) -> None:
        if frozenset(nodes.registered) != frozenset(self._nodes.registered):
            self.disturbed = True

    def handle(self, event: CopyVerified) -> None:
        self._copies.note(event)
        if not self._copies.waiting():
            self._round_ended()
            if not self.ended and not self._copies.waiting():
                self._next_range()

    def _next_range(self) -> None:
        while not self.ended and not self._copies.waiting():
            span = next(self._spans, None)
            if span is None:
                self.ended = True
                return
            self._span, self._denied = span, None
            self._ask()

    def _ask(self) -> None:
        self._copies = RangeCopies(self._record, self._span, self._emit)
        for node in self._nodes.registered:
            self._copies.ask(node)
        if not self._copies.waiting():
            self._round_ended()

    def _round_ended(self) -> None:
        copies = self._copies
        unsourced = dict.fromkeys(copies.unsourced(copies.sound))
        open_ids = list(copies.ids() if self._denied is None else self._denied)
        self.found += ranges_of(entry_id for entry_id in open_ids if entry_id not in unsourced)
        denied = dict.fromkeys(entry_id for entry_id in open_ids if entry_id in unsourced)
        holders = [node for node in self._named if self._may_hold(node)]
        holders += [n for n in self._nodes.registered if n not in copies.answered and n not in copies.erased]
        if denied and holders:
            self.undecided += ranges_of(denied)
            self.waiting_for.update(dict.fromkeys(holders))
        elif denied and self._denied is None:
            self._denied = denied
            self._ask()

    def _may_hold(self, node: Incarnation) -> bool:
        """Whether a node that the record names may hold what no sound copy was found of."""
        if node in self._nodes.registered:
            return node not in self._copies.answered
        return self._nodes[node].may_return
