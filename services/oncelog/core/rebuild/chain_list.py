"""The ledgers of one chain in order, and where each one ends.

    the highest ledger --its head's `former`--> the one before it, and that one's end --> ... --> the front

Rules
- `former` decides, not the ids: a ledger between a ledger and its former one has nothing that is of the chain. It was
  never acknowledged, was given up, or has nothing but a head (hazards former-ignored and a-tail-that-was-given-up).
- A ledger of which no asked node shows entry 0 was never acknowledged, unless nodes that show nothing could have done
  so. It is left out.
- A ledger below the highest floor that any node, head or copy knows was trimmed (hazard floor-ignored). What a node
  has erased before it learned of an era proves nothing to a list of that era, and neither does the head of a ledger
  that the list has left out: the ZooKeeper of the era before may have been told of a trim after the restore (hazard
  deletion-in-a-former-era).
- A ledger of which no asked node shows the head has the place and the end that the copy says.
- The last ledger is left open, and its recovery finds the end. But a repair replaces members of closed ledgers only,
  and a node that it fills lacks acknowledged entries for a while, which a recovery would take for the end. So a last
  ledger of which a node beside its members has or had a copy, or of which a member once erased its copy, is closed, at
  the last entry that any node has: what is stored behind it has a head (hazard refilled-member). So is one of which a
  member is emptied: if a list named it then, repair has replaced the member, perhaps by a node that is silent now; and
  the member has acknowledged nothing of a ledger that was listed later. Only what it had when an earlier restore gave
  it up beyond the bound may be nowhere else.
- Ledgers with snapshots do not follow from one another: each begins with a base. So all of them are listed, and a
  snapshot that was never acknowledged is as good as another: it is what a durable state was. But such a one may be at
  one node only, although its record is CLOSED. So a ledger ends, if possible, at the last entry that may have been
  acknowledged, and one that no asked node has is left out (hazard snapshot-that-was-never-acknowledged).
- A list that was written in a later era names every ledger of the eras before it. One that it does not name was left
  out, and stays so: since then the ledgers before it have got entries that it does not know. Unless a ledger of the
  chain names it as its former one: then the chain went on behind it (hazard left-out-ledger-returns).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.formats.head import LedgerHead
from oncelog.core.formats.ledger_page import PageLink
from oncelog.core.ids import NO_ENTRY, EntryId, LedgerId
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.core.rebuild.evidence import Evidence
from oncelog.core.rebuild.result import ReviewReason, Side
from oncelog.core.rebuild.sources import Chain


class Finding(NamedTuple):
    """What an operator must decide about a chain. before, behind: the ledgers on both sides."""

    reason: ReviewReason
    message: str
    before: Side | None = None
    behind: Side | None = None


class CopiedList(NamedTuple):
    """What the copy says of a chain. ledgers: {ledger: its base_index}. complete_below: all ledgers of the chain below
    this id are named. missing_pages: those that the copy lacks."""

    ledgers: Mapping[LedgerId, int]
    floor: LedgerId
    complete_below: LedgerId
    missing_pages: Sequence[PageLink] = ()


class ChainLedger(NamedTuple):
    """end: None: not known; the ledger may still be open. copied: its record in the copy."""

    ledger_id: LedgerId
    base_index: int
    end: EntryId | None
    head: LedgerHead | None
    copied: LedgerMetadata | None


@dataclass(slots=True)
class ChainList:
    """ledgers: ascending. floor: lower ones were trimmed. passed_over: they have a head, and nothing of the chain."""

    chain: Chain
    floor: LedgerId
    ledgers: list[ChainLedger] = field(default_factory=list)
    passed_over: list[LedgerId] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def last(self) -> LedgerId:
        """0: the chain has no ledger."""
        return self.ledgers[-1].ledger_id if self.ledgers else LedgerId(0)

    @property
    def trimmed(self) -> bool:
        """Whether ledgers at the front are no more."""
        return self.floor > 0 or bool(self.ledgers and self.ledgers[0].base_index > 0)


def list_chain(evidence: Evidence, chain: Chain, copied: CopiedList) -> ChainList:
    """The chain, and what an operator must decide about it."""
    return _ChainWalk(evidence, chain, copied).result()


class _ChainWalk:
    def __init__(self, evidence: Evidence, chain: Chain, copied: CopiedList) -> None:
        self._evidence = evidence
        self._copied = copied.ledgers
        self._complete_below = copied.complete_below
        self._copied_pages = copied.missing_pages
        self._shown = evidence.shown(chain)
        self._heads = {each: head for each in self._shown if (head := evidence.head(each)) is not None}
        floors = (head.floor for each, head in self._heads.items() if not self._unnamed(each))
        self._list = ChainList(chain, max([evidence.floor(chain), copied.floor, *floors]))
        #: {ledger: its end, as the head of the next one says}
        self._ends: dict[LedgerId, EntryId] = {}
        #: ledgers in front of a gap: what said where they end is in the gap
        self._before_gap: set[LedgerId] = set()
        #: (a ledger's former one, the ledger): what lies between is not of the chain
        self._between: list[tuple[LedgerId, LedgerId]] = []

    def result(self) -> ChainList:
        known = {**self._heads, **dict.fromkeys(self._copied)}
        ids = self._of_chain(sorted(each for each in known if self._in_chain(each) and self._may_have(each)))
        order = self._snapshots(ids) if self._list.chain.purpose is LedgerPurpose.DEDUP else self._walk(ids)
        for place, ledger_id in enumerate(order):
            self._list.ledgers.append(self._ledger(ledger_id, is_last=place == len(order) - 1))
        if self._list.chain.purpose is not LedgerPurpose.DEDUP:
            self._find_unplaced(order)
        return self._list

    def _of_chain(self, ids: Sequence[LedgerId]) -> list[LedgerId]:
        """Without those that an earlier restore has left out."""
        kept: list[LedgerId] = []
        formers: set[LedgerId] = set()
        for ledger_id in reversed(ids):
            if self._unnamed(ledger_id) and ledger_id not in formers:
                self._list.passed_over.append(ledger_id)
                continue
            kept.append(ledger_id)
            head = self._heads.get(ledger_id)
            if head is not None and head.former is not None:
                formers.add(head.former.ledger_id)
        return kept[::-1]

    def _unnamed(self, ledger_id: LedgerId) -> bool:
        """Whether a list of a later era does not name it."""
        named = ledger_id >= self._complete_below or ledger_id in self._copied
        return not named and not self._in_missing_page(ledger_id)

    def _in_missing_page(self, ledger_id: LedgerId) -> bool:
        return any(page.first <= ledger_id <= page.last for page in self._copied_pages)

    def _in_chain(self, ledger_id: LedgerId) -> bool:
        """Whether it was not trimmed."""
        return ledger_id >= self._list.floor and not self._evidence.deleted(ledger_id)

    def _may_have(self, ledger_id: LedgerId) -> bool:
        """Whether the ledger may have anything that was acknowledged."""
        record = self._evidence.copied.ledgers.get(ledger_id)
        if record is not None and record.state is LedgerState.CLOSED:
            return record.end >= 0
        return self._evidence.begins(ledger_id) or self._maybe_unseen(ledger_id)

    def _maybe_unseen(self, ledger_id: LedgerId) -> bool:
        return self._evidence.unseen(ledger_id) >= self._ack_quorum(ledger_id)

    def _ack_quorum(self, ledger_id: LedgerId) -> int:
        record = self._evidence.copied.ledgers.get(ledger_id)
        return self._evidence.ack_quorum if record is None else record.ack_quorum

    # --- the order ----------------------------------------------------------------------------------------------------

    def _snapshots(self, ids: list[LedgerId]) -> list[LedgerId]:
        """Without those that no node has."""
        return [each for each in ids if self._shown_or_unseen(each)]

    def _walk(self, ids: list[LedgerId]) -> list[LedgerId]:
        """From the last ledger to the first. Returns those of the chain, ascending."""
        order: list[LedgerId] = []
        size_of = self._evidence.size_bytes
        left_bytes, walked_bytes = sum(map(size_of, ids)), 0
        while ids:
            current = ids.pop()
            order.append(current)
            left_bytes -= size_of(current)
            walked_bytes += size_of(current)
            head = self._heads.get(current)
            if head is None:
                continue
            former = head.former
            self._between.append((LedgerId(-1) if former is None else former.ledger_id, current))
            while ids and ids[-1] > self._between[-1][0]:
                left_bytes -= size_of(ids[-1])
                self._pass_over(ids.pop(), current)
            if former is None or not self._in_chain(former.ledger_id):
                break
            self._ends[former.ledger_id] = former.entry_id
            if not ids or ids[-1] != former.ledger_id:
                before = Side(ids[0], ids[-1], len(ids), left_bytes) if ids else None
                self._missing(former.ledger_id, before, Side(current, order[0], len(order), walked_bytes))
        return order[::-1]

    def _pass_over(self, ledger_id: LedgerId, behind: LedgerId) -> None:
        if ledger_id in self._heads:
            self._list.passed_over.append(ledger_id)
        record = self._evidence.copied.ledgers.get(ledger_id)
        if record is not None and record.state is LedgerState.CLOSED and record.end > 0:
            message = (
                f"the copy says that ledger {ledger_id} ends at entry {record.end}, and the head of ledger {behind} "
                f"that nothing of it is of the log; accepted: the head is right"
            )
            self._list.findings.append(Finding(ReviewReason.ENDS_DIFFER, message))

    def _missing(self, former: LedgerId, before: Side | None, behind: Side) -> None:
        if self._evidence.begins(former):
            return  # it has no head, and the copy does not list it: `_find_unplaced`
        message = (
            f"ledger {former} is missing in front of ledger {behind.first}: no node that was asked has it, and nothing "
            f"says that it was trimmed; accepted: what is before the gap stays in the list"
        )
        if before is not None:
            self._before_gap.add(before.last)
        self._list.findings.append(Finding(ReviewReason.GAP, message, before, behind))

    def _find_unplaced(self, order: Sequence[LedgerId]) -> None:
        """Ledgers without a head that no copy lists, and that may have acknowledged entries."""
        listed = frozenset(order)
        unplaced = [
            each
            for each in self._shown
            if each not in listed and each not in self._heads and self._in_chain(each) and not self._left_out(each)
            if any(copy.held.runs for copy in self._evidence.copies(each))
            if self._evidence.begins(each) or self._maybe_unseen(each)
            if not any(low < each < high for low, high in self._between)
        ]
        if unplaced:
            message = (
                f"{len(unplaced)} ledgers, from {unplaced[0]} to {unplaced[-1]}, have no head, and no copy lists them; "
                f"accepted: they stay on the storage nodes, and are in no list"
            )
            behind = [each for each in order if each > unplaced[-1]]
            sides = self._side(unplaced), self._side(behind)
            self._list.findings.append(Finding(ReviewReason.NO_HEAD, message, *sides))

    def _side(self, ledgers: Sequence[LedgerId]) -> Side | None:
        """Of ledgers in ascending order."""
        if not ledgers:
            return None
        return Side(ledgers[0], ledgers[-1], len(ledgers), sum(map(self._evidence.size_bytes, ledgers)))

    def _left_out(self, ledger_id: LedgerId) -> bool:
        """Whether the copy proves that it is not of the chain: a list is complete up to its last ledger."""
        if self._in_missing_page(ledger_id):
            return False
        return ledger_id < self._complete_below or ledger_id <= max(self._copied, default=LedgerId(-1))

    # --- one ledger ---------------------------------------------------------------------------------------------------

    def _ledger(self, ledger_id: LedgerId, *, is_last: bool) -> ChainLedger:
        record = self._evidence.copied.ledgers.get(ledger_id)
        copied = record.end if record is not None and record.state is LedgerState.CLOSED else None
        end = self._ends.get(ledger_id, copied)
        if end is not None and copied is not None and end != copied:
            end = max(end, copied)
            message = (
                f"ledger {ledger_id} ends at entry {copied} by the copy, and at entry {self._ends[ledger_id]} by the "
                f"head of the next ledger; accepted: at entry {end}"
            )
            self._list.findings.append(Finding(ReviewReason.ENDS_DIFFER, message))
        if end is None and (not is_last or self._repaired(ledger_id, record)):
            end = self._covered(ledger_id, 1)
            if self._list.chain.purpose is LedgerPurpose.DEDUP:
                needed = self._ack_quorum(ledger_id) - self._evidence.unseen(ledger_id)
                acknowledged = self._covered(ledger_id, max(needed, 1))
                end = acknowledged if acknowledged >= 0 else end
            asked = self._evidence.asked
            given_up = bool(asked.given_up_by) and not asked.may_return
            sure = is_last and (given_up or not self._maybe_unseen(ledger_id))
            sure = sure or ledger_id in self._before_gap or self._list.chain.purpose is LedgerPurpose.DEDUP
            if not sure:
                message = (
                    f"neither a head nor a copy says where ledger {ledger_id} ends; accepted: at entry {end}, the last "
                    f"one that any node has which was asked"
                )
                self._list.findings.append(Finding(ReviewReason.NO_END, message))
        if copied is not None and copied >= 0 and not self._shown_or_unseen(ledger_id):
            message = f"no node that was asked has ledger {ledger_id}, which the copy lists; accepted: it stays listed"
            self._list.findings.append(Finding(ReviewReason.GAP, message))
        return ChainLedger(ledger_id, self._base_index(ledger_id), end, self._heads.get(ledger_id), record)

    def _repaired(self, ledger_id: LedgerId, record: LedgerMetadata | None) -> bool:
        """Whether a member was replaced, or is being replaced. Then the ledger was closed before.

        A node that shows no entry, only a fence or limbo, shows no copy.
        """
        head, asked = self._heads.get(ledger_id), self._evidence.asked
        members = head.members if head is not None else () if record is None else record.members
        if ledger_id >= asked.owed_below and not asked.emptied.isdisjoint(members):
            return True
        return any(
            copy.held.erased_before or (copy.held.chain is not None and copy.node not in members)
            for copy in self._evidence.copies(ledger_id)
        )

    def _shown_or_unseen(self, ledger_id: LedgerId) -> bool:
        copies = self._evidence.copies(ledger_id)
        return any(copy.held.runs for copy in copies) or self._maybe_unseen(ledger_id)

    def _covered(self, ledger_id: LedgerId, nodes: int) -> EntryId:
        """The last entry of those without a hole that so many nodes have, each entry perhaps others."""
        runs = [run for copy in self._evidence.copies(ledger_id) for run in copy.held.runs]
        end = NO_ENTRY
        while len(lasts := [run.last for run in runs if run.first <= end + 1 <= run.last]) >= nodes:
            end = min(lasts)
        return end

    def _base_index(self, ledger_id: LedgerId) -> int:
        """The first entry says it, else the copy."""
        for copy in self._evidence.copies(ledger_id):
            if copy.begins:
                return copy.held.base_index
        return self._copied.get(ledger_id, 0)
