"""A cluster with one topic: what owners, repair and trims do to its records and to the entries at storage nodes.

It keeps the rules of the log, and knows no JOIN. Each action is one that a cluster survives: a write that fails, a
takeover with a tail that too few members have, a repair, a trim. `records` is the live tree, `inventories` what the
asked nodes would show, `acked` what must not be lost.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.era import FIRST_ERA
from oncelog.core.formats.head import LedgerHead
from oncelog.core.formats.ledger_page import ListPage, PagedLedger
from oncelog.core.formats.topic_record import (
    FORMAT_WITH_HEADS,
    CursorLink,
    CursorRecord,
    LedgerLink,
    TopicRecord,
)
from oncelog.core.ids import NO_ENTRY, EntryId, Incarnation, LedgerId, OwnerEpoch, Position, TopicId
from oncelog.core.ledger.member_status import CopyState
from oncelog.core.ledger.metadata import EntryRange, LedgerMetadata, LedgerState
from oncelog.core.rebuild.result import CopiedRecords, NotedName, NotedRecords
from oncelog.core.rebuild.sources import Chain, HeldLedger, Inventory
from oncelog.core.retention.paging import PageSettings

TOPIC, NAME = TopicId("7" * 32), "public/default/orders"
NODES = tuple(Incarnation(letter * 32) for letter in "abcdef")
PAGES = PageSettings(ledgers=2, inline_max=3)
LOG, ACKS, DEDUP = LedgerPurpose.LOG, LedgerPurpose.ACKS, LedgerPurpose.DEDUP
HEAD_BYTES, ENTRY_BYTES = 100, 10


@dataclass
class Ledger:
    """last_add_confirmed: of the writer. present: the members that get entries. begun: whether entry 0 was sent."""

    record: LedgerMetadata
    purpose: LedgerPurpose
    base_index: int
    head: LedgerHead | None
    present: list[Incarnation]
    last_add_confirmed: EntryId = NO_ENTRY

    @property
    def ledger_id(self) -> LedgerId:
        return self.record.ledger_id

    @property
    def first_of_chain(self) -> EntryId:
        """The first entry that is no head."""
        return EntryId(0 if self.head is None else 1)

    def length_at(self, end: EntryId) -> int:
        heads = 0 if self.head is None or end < 0 else 1
        return heads * HEAD_BYTES + (end + 1 - heads) * ENTRY_BYTES


@dataclass
class Disk:
    """entries: {ledger: those stored}."""

    entries: dict[LedgerId, set[int]] = field(default_factory=dict)
    erased: dict[LedgerId, bool] = field(default_factory=dict)
    floors: dict[Chain, LedgerId] = field(default_factory=dict)


class LiveWorld:
    def __init__(self, rng: Random, *, write_quorum: int = 3, ack_quorum: int = 2, heads: bool = True) -> None:
        self.rng = rng
        self.write_quorum, self.ack_quorum = write_quorum, ack_quorum
        self.heads = heads
        self.disks = {node: Disk() for node in NODES}
        self.ledgers: dict[LedgerId, Ledger] = {}
        self.topic = TopicRecord(TOPIC, NAME, NODES[0], OwnerEpoch(3), format=FORMAT_WITH_HEADS)
        self.cursor = CursorRecord(OwnerEpoch(3))
        self.pages: list[ListPage] = []
        self.open: dict[LedgerPurpose, Ledger] = {}
        self.position: dict[LedgerPurpose, Position] = {}
        self.next_index = 0
        self.next_id = 0

    # --- lists --------------------------------------------------------------------------------------------------------

    def listed(self, purpose: LedgerPurpose) -> list[LedgerId]:
        if purpose is ACKS:
            return list(self.topic.acks)
        if purpose is DEDUP:
            return [link.ledger_id for link in self.cursor.ledgers]
        pages = {page.name: page for page in self.pages}
        paged = [each.ledger_id for link in self.topic.pages for each in link.listed(pages[link.name])]
        return paged + [link.ledger_id for link in self.topic.ledgers]

    def link(self, purpose: LedgerPurpose) -> Ledger:
        """Link the next ledger. The last one is CLOSED."""
        self.next_id += self.rng.randint(1, 3)
        ledger_id = LedgerId(self.next_id)
        members = tuple(self.rng.sample(NODES, self.write_quorum))
        listed = self.listed(purpose)
        empty = listed[-1] if listed and self.ledgers[listed[-1]].record.end < 0 else None
        if purpose is LOG:
            self.topic = self.topic.with_ledger(LedgerLink(ledger_id, self.next_index), instead=empty)
        elif purpose is ACKS:
            self.topic = self.topic.with_ack_ledger(ledger_id, instead=empty)
        else:
            bases = [each for each in listed if self.ledgers[each].record.end >= self.ledgers[each].first_of_chain]
            begin = bases[-2] if len(bases) > 1 else 0
            kept = tuple(link for link in self.cursor.ledgers if link.ledger_id >= begin)
            self.cursor = self.cursor.with_ledgers((*kept, CursorLink(ledger_id, None)))
        floor = {
            LOG: self.topic.deleted_below, ACKS: self.topic.acks_deleted_below, DEDUP: self.cursor.deleted_below
        }[purpose]  # fmt: skip
        former = None if purpose is DEDUP else self.position.get(purpose)
        head = LedgerHead(NAME, members, self.ack_quorum, 1, NODES[0], floor, former) if self.heads else None
        record = LedgerMetadata(ledger_id, TOPIC, members, self.ack_quorum)
        base_index = self.next_index if purpose is LOG else 0
        ledger = Ledger(record, purpose, base_index, head, list(members))
        self.ledgers[ledger_id] = self.open[purpose] = ledger
        return ledger

    def to_page(self) -> None:
        if len(self.topic.ledgers) > PAGES.inline_max:
            moved = self.topic.ledgers[: PAGES.ledgers]
            page = ListPage(tuple(PagedLedger(link.ledger_id, link.base_index, 0, 1) for link in moved))
            self.topic = self.topic.with_page(page.link)
            self.pages.append(page)

    # --- writing ------------------------------------------------------------------------------------------------------

    def write(self, purpose: LedgerPurpose) -> None:
        """A batch is acknowledged. Members that miss a part of it get nothing more."""
        ledger = self.open.get(purpose) or self.link(purpose)
        end = EntryId(max(ledger.last_add_confirmed + 1, ledger.first_of_chain) + self.rng.randint(0, 2))
        full = self.rng.sample(ledger.present, self.rng.randint(self.ack_quorum, len(ledger.present)))
        self._store(ledger, end, full)
        self._confirm(ledger, end)

    def _store(self, ledger: Ledger, end: EntryId, full: Sequence[Incarnation]) -> None:
        for member in list(ledger.present):
            if member not in full:
                ledger.present.remove(member)
            last = end if member in full else self.rng.randint(ledger.last_add_confirmed, end)
            stored = range(ledger.last_add_confirmed + 1, last + 1)
            if stored:
                self.disks[member].entries.setdefault(ledger.ledger_id, set()).update(stored)

    def _confirm(self, ledger: Ledger, end: EntryId) -> None:
        """The entries up to `end` are of the chain."""
        first = max(ledger.last_add_confirmed + 1, ledger.first_of_chain)
        ledger.last_add_confirmed = end
        if end >= first:
            self.position[ledger.purpose] = Position(ledger.ledger_id, end)
            if ledger.purpose is LOG:
                self.next_index += end + 1 - first

    def _tail(self, ledger: Ledger) -> None:
        """A batch of which too few members get anything."""
        end = EntryId(ledger.last_add_confirmed + self.rng.randint(1, 3))
        for member in self.rng.sample(ledger.present, self.rng.randint(0, self.ack_quorum - 1)):
            stored = range(ledger.last_add_confirmed + 1, self.rng.randint(ledger.last_add_confirmed + 1, end) + 1)
            self.disks[member].entries.setdefault(ledger.ledger_id, set()).update(stored)

    def _close(self, ledger: Ledger) -> None:
        end = ledger.last_add_confirmed
        ledger.record = ledger.record.closed(end=end, length=ledger.length_at(end))
        del self.open[ledger.purpose]

    def fail(self, purpose: LedgerPurpose) -> None:
        """A batch, or all but its first entries, is not acknowledged: the ledger is closed without it."""
        ledger = self.open.get(purpose) or self.link(purpose)
        if ledger.head is not None and ledger.last_add_confirmed < 0 and self.rng.random() < 0.5:
            self._store(ledger, EntryId(0), ledger.present)
            self._confirm(ledger, EntryId(0))
        self._tail(ledger)
        self._close(ledger)

    def take_over(self, purpose: LedgerPurpose) -> None:
        """Another owner fences and recovers the open ledger. It finds a part of an unacknowledged tail, or none. The
        others of its members may get a part of the tail afterwards."""
        ledger = self.open.get(purpose)
        if ledger is None:
            return
        fenced = self.rng.sample(ledger.record.members, self.write_quorum - self.ack_quorum + 1)
        self._tail(ledger)
        found = [max(self.disks[node].entries.get(ledger.ledger_id, {-1})) for node in fenced]
        end = EntryId(max([ledger.last_add_confirmed, *found]))
        if end >= 0:
            back = {*fenced, *self.rng.sample(ledger.record.members, self.ack_quorum)}
            for node in sorted(back):
                self.disks[node].entries.setdefault(ledger.ledger_id, set()).update(
                    range(ledger.last_add_confirmed + 1, end + 1)
                )
        self._confirm(ledger, end)
        self._close(ledger)

    def roll(self, purpose: LedgerPurpose) -> None:
        """The open ledger is closed as planned, and the next one is linked."""
        if purpose in self.open:
            self._close(self.open[purpose])
            self.link(purpose)

    def close(self, purpose: LedgerPurpose) -> None:
        """The owner stops cleanly."""
        if purpose in self.open:
            self._close(self.open[purpose])

    # --- upkeep -------------------------------------------------------------------------------------------------------

    def repair(self, *, partial: bool = False) -> None:
        """A member of a closed ledger is replaced, and erases its copy now or later. partial: the copy is not ready."""
        closed = [
            each
            for purpose in LedgerPurpose
            for each in self.listed(purpose)
            if self.ledgers[each].record.state is LedgerState.CLOSED and self.ledgers[each].record.end >= 0
        ]
        if not closed:
            return
        ledger = self.ledgers[self.rng.choice([*closed, max(closed)])]
        record = ledger.record
        target = self.rng.choice([node for node in NODES if node not in record.members])
        whole, old = set(range(record.end + 1)), self.rng.choice(record.members)
        if partial:
            ledger.record = replace(record, joining=target, verified=False)
            if ledger.ledger_id not in self.disks[target].entries:
                self.disks[target].entries[ledger.ledger_id] = set(range(self.rng.randint(0, record.end) + 1))
            return
        for node in (*record.members, target):
            self.disks[node].entries.setdefault(ledger.ledger_id, set()).update(whole)
        ledger.record = replace(record, joining=target).swap(old).mark_verified()
        if self.rng.random() < 0.7:
            for node in NODES:
                if node not in ledger.record.members and ledger.ledger_id in self.disks[node].entries:
                    del self.disks[node].entries[ledger.ledger_id]
                    self.disks[node].erased[ledger.ledger_id] = False

    def trim(self, purpose: LedgerPurpose) -> None:
        """The front of a chain goes, as far as a snapshot covers it. Qa holders, at least, erase it and note that."""
        listed = self.listed(purpose)
        if len(listed) < 2 or DEDUP not in self.position:
            return
        count = self.rng.randint(1, len(listed) - 1)
        gone, last_gone = listed[:count], listed[count - 1]
        if purpose is LOG:
            cut = [link for link in self.topic.pages if link.first <= last_gone < link.last]
            pages = {page.name: page for page in self.pages}
            left = pages[cut[0].name].link_behind(last_gone) if cut else None
            self.topic = self.topic.without(last_gone, left)
        else:
            self.topic = self.topic.without_first_acks(count)
        floor = listed[count]
        for ledger_id in gone:
            holders = [node for node in NODES if ledger_id in self.disks[node].entries]
            erasing = self.rng.sample(holders, self.rng.randint(min(self.ack_quorum, len(holders)), len(holders)))
            for node in erasing:
                disk = self.disks[node]
                del disk.entries[ledger_id]
                disk.erased.pop(ledger_id, None)
                if self.rng.random() < 0.5:
                    disk.erased[ledger_id] = True  # else compaction has dropped the tombstone
                if self.heads:
                    disk.floors[Chain(TOPIC, purpose)] = floor

    def finalize(self) -> None:
        """From now on ledgers have heads, and no open one is without."""
        for purpose in list(self.open):
            self._close(self.open[purpose])
        self.heads = True

    # --- what is there ------------------------------------------------------------------------------------------------

    @property
    def records(self) -> CopiedRecords:
        listed = [each for purpose in LedgerPurpose for each in self.listed(purpose)]
        return CopiedRecords(
            {TOPIC: self.topic},
            {TOPIC: self.cursor},
            {each: self.ledgers[each].record for each in listed},
            {TOPIC: tuple(self.pages)},
        )

    @property
    def noted(self) -> NotedRecords:
        return NotedRecords({NAME: NotedName(TOPIC)})

    def acked(self, ledger_id: LedgerId) -> int:
        """How many entries of the ledger must not be lost."""
        return self.ledgers[ledger_id].last_add_confirmed + 1

    def inventories(self, missing: Sequence[tuple[Incarnation, str]] = ()) -> list[Inventory]:
        """missing: nodes that are "absent", "limbo" (a part of the records is lost) or "damaged" (some of them)."""
        how = dict(missing)
        return [self._inventory(node, how.get(node, "")) for node in NODES if how.get(node) != "absent"]

    def _inventory(self, node: Incarnation, how: str) -> Inventory:
        disk, ledgers = self.disks[node], dict[LedgerId, HeldLedger]()
        for ledger_id in sorted({*disk.entries, *disk.erased}):
            entries = set(disk.entries.get(ledger_id, ()))
            erased = not entries and ledger_id in disk.erased
            state = CopyState.ERASED if erased else CopyState.HELD
            if how == "limbo" and not erased:
                state, entries = CopyState.LIMBO, {each for each in entries if self.rng.random() < 0.6}
            elif how == "damaged" and not erased and self.rng.random() < 0.5:
                state, entries = CopyState.DAMAGED, {each for each in entries if self.rng.random() < 0.6}
            if state is not CopyState.LIMBO or entries:
                ledgers[ledger_id] = self._held(ledger_id, state, sorted(entries), deleted=disk.erased.get(ledger_id))
        limbo_below = LedgerId(self.next_id + 1) if how == "limbo" else LedgerId(0)
        return Inventory(node, "cluster", FIRST_ERA, ledgers, limbo_below, disk.floors)

    def _held(
        self, ledger_id: LedgerId, state: CopyState, entries: Sequence[int], *, deleted: bool | None
    ) -> HeldLedger:
        ledger = self.ledgers[ledger_id]
        chain = None if deleted and not entries else Chain(TOPIC, ledger.purpose)
        runs: list[EntryRange] = []
        for each in map(EntryId, entries):
            if runs and runs[-1].last + 1 == each:
                runs[-1] = EntryRange(runs[-1].first, each)
            else:
                runs.append(EntryRange(each, each))
        head = ledger.head if entries and entries[0] == 0 else None
        length = ledger.length_at(EntryId(entries[-1])) if entries else 0
        base_index = ledger.base_index + max(0, entries[0] - ledger.first_of_chain) if entries else 0
        return HeldLedger(
            ledger_id, chain, state, tuple(runs), head=head, base_index=base_index, last_length=length,
            deleted=bool(deleted) and not entries, erased_before=deleted is not None,
        )  # fmt: skip
