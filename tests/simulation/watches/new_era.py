"""The oracle of a restore: what the records of the new era list is what was stored, no more and no less.

- A closed ledger ends where it ended. The last one of a chain may be open again, and then ends there or later.
- No ledger with a stored entry is missing. What is left out had nothing but a head, or was never acknowledged.
- A ledger that was trimmed is listed again only if no node that was asked, and no head, knew the floor. If no node that
  was asked knows of the commit of the era that listed it again, it may be left out: nothing needs what was trimmed.
- A topic whose deletion was answered is not there, nor anything of it. Every other topic is, and has its name; but one
  that nothing notes is there only with an entry.
- What was told to be stored is in the lists, or will be: the last ledger's end is checked when it closes.

The folds begin anew from the lists, and must give what owners of the new era take over.
"""

from collections.abc import Container, Iterable
from dataclasses import replace

from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.era import Era
from oncelog.core.formats.entry import EntryKind, peek_header
from oncelog.core.formats.head import HEAD_KINDS
from oncelog.core.ids import EntryId, LedgerId
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.core.rebuild.result import RebuiltTopic
from oncelog.core.rebuild.sources import Chain
from oncelog.verify.violation import Violation
from tests.simulation.servers.metadata.restorer import Restored
from tests.simulation.servers.store.decoding import decode_ledger
from tests.simulation.servers.store.ledger_lists import links_of
from tests.simulation.servers.store.store import Store
from tests.simulation.watches.ack_log_watch import AckLogWatch
from tests.simulation.watches.watching import Closed, TopicWatch, Watch, durable_copies


def begin_era(watch: Watch, store: Store, former: Era, restored: Restored) -> None:
    """store: has the records of the new era. former: the newest one before it. Raises Violation."""
    watch.follow(store)
    _check_deleted(watch, restored)
    for topic_id, before in list(watch.topics.items()):
        topic = restored.rebuilt.topics.get(topic_id)
        if topic is None and topic_id in watch.unnoted and not _has_entries(watch, before):
            watch.begin_deletion(topic_id)
            continue
        name = before.record.name
        if topic is None or restored.rebuilt.names.get(name) != topic_id:
            raise Violation("restore", f"topic {topic_id} is not found by {name}: {restored.rebuilt.names}")
        watch.topics[topic_id] = _NewEra(watch, former, before, topic, restored).topic_watch()


def check_given_up(watch: Watch, topic: TopicWatch) -> None:
    """At the end, when every ledger is CLOSED: a restore beyond the bound is said in both chains, in a ledger of its
    era or of a later one. A topic that was created since has lost nothing. Raises Violation."""
    since = topic.owed_from
    if not since or (topic.topic_id in watch.unnoted and topic.ledgers and topic.ledgers[0] >= since):
        return
    for chain, ledgers in (("log", topic.ledgers), ("ack log", topic.acks.ledgers)):
        entries = [data for each in ledgers if each >= since for data in watch.closed[each][1]]
        if not any(peek_header(data).kind == EntryKind.GIVEN_UP for data in entries):
            raise Violation("given up", f"the {chain} of {topic.topic_id} does not say it from ledger {since} on")


def _has_entries(watch: Watch, before: TopicWatch) -> bool:
    closed = watch.closed
    ledgers = (*before.ledgers, *before.acks.ledgers)
    return any(before.confirmed.get(each, -1) >= 0 or (each in closed and closed[each][1]) for each in ledgers)


def _check_deleted(watch: Watch, restored: Restored) -> None:
    for topic_id in [each for each, answered in watch.deleted.items() if answered]:
        ledgers = [data for path, data in restored.records.items() if path.startswith("ledgers/")]
        back = [path for path in restored.records if topic_id in path and not path.startswith("tombstones/")]
        back += [str(decode_ledger(data)) for data in ledgers if decode_ledger(data).topic_id == topic_id]
        if back or f"tombstones/{topic_id}" not in restored.records:
            raise Violation("restore", f"topic {topic_id} was deleted, and these are back: {back}")


class _NewEra:
    """One topic."""

    def __init__(self, watch: Watch, former: Era, before: TopicWatch, topic: RebuiltTopic, restored: Restored) -> None:
        self.watch = watch
        self.former = former
        self.before = before
        self.topic = topic
        self.inventories, self.unseen_below = restored.inventories, restored.unseen_below
        self.newest = max((era for each in self.inventories for era in each.committed_eras), default=former)
        self.knows_former = any(former in each.committed_eras for each in self.inventories)
        self.records = {record.ledger_id: record for record in topic.ledgers}

    def topic_watch(self) -> TopicWatch:
        before, record = self.before, self.topic.record
        links = links_of(self.watch.store, record)
        for link in links:
            if before.begins.get(link.ledger_id, link.base_index) != link.base_index:
                raise Violation("restore", f"{link} was linked with message {before.begins[link.ledger_id]}")
        log = [link.ledger_id for link in links]
        trimmed = self._check_list(LedgerPurpose.LOG, before.ledgers, before.trimmed, before.listed_again, log)
        acks, acks_again = list(record.acks), before.acks.listed_again
        acks_trimmed = self._check_list(LedgerPurpose.ACKS, before.acks.ledgers, before.acks.trimmed, acks_again, acks)
        cursor = [] if self.topic.cursor is None else [link.ledger_id for link in self.topic.cursor.ledgers]
        last = [*log[-1:], *list(record.acks)[-1:]]
        longer = [
            ledger_id
            for ledger_id in (*log, *record.acks, *cursor)
            if self._closed(self.records[ledger_id], is_snapshot=ledger_id in cursor, is_last=ledger_id in last)
        ]
        new = TopicWatch(record.topic_id)
        new.record, new.owners, new.confirmed = record, before.owners, before.confirmed
        new.ledgers, new.trimmed = self._from_the_front(before.ledgers, trimmed, log)
        left_out = [each for each in before.ledgers if each not in log and each not in trimmed]
        new.left_out = before.left_out | dict.fromkeys(left_out)
        again = [each for each in before.trimmed if each in log]
        new.listed_again = before.listed_again | dict.fromkeys(again, LedgerId(self.watch.store.era.first_id))
        lasts = [chain[-1] if chain else LedgerId(0) for chain in (log, acks)]
        owes = self.unseen_below > min(lasts)  # a ledger that nobody showed may be behind one of them
        new.owed_from = LedgerId(self.watch.store.era.first_id) if owes else before.owed_from
        new.begins = before.begins | dict(links)
        new.acks = AckLogWatch()
        new.acks.ledgers, new.acks.trimmed = self._from_the_front(before.acks.ledgers, acks_trimmed, acks)
        new.acks.listed_again = acks_again | dict.fromkeys(each for each in before.acks.trimmed if each in acks)
        open_ones = [each for each in record.acks if self.records[each].state is not LedgerState.CLOSED]
        new.acks.reopened = before.acks.reopened | dict.fromkeys([*open_ones, *longer])
        return new

    def _from_the_front(
        self, known: list[LedgerId], trimmed: dict[LedgerId, None], listed: list[LedgerId]
    ) -> tuple[list[LedgerId], dict[LedgerId, None]]:
        """(Every ledger of the chain, those that were trimmed.)"""
        front = [each for each in known if each in trimmed and each not in listed and self._entries(each)]
        return [*front, *listed], dict.fromkeys(front)

    # --- lists --------------------------------------------------------------------------------------------------------

    def _check_list(
        self, purpose: LedgerPurpose, known: list[LedgerId], trimmed: dict[LedgerId, None],
        again: Iterable[LedgerId], listed: list[LedgerId],
    ) -> dict[LedgerId, None]:  # fmt: skip
        """again: those that a restore listed although they were trimmed. Returns all that are trimmed now."""
        left = [each for each in again if each not in listed and not self.knows_former]
        self.watch.store.world.count("trimmed ledger left out again", len(left))
        gone = trimmed | dict.fromkeys(left)
        missing = [each for each in known if each not in listed and each not in gone and self._entries(each)]
        if missing:
            raise Violation("restore", f"ledgers {missing} of the {purpose.value} are not listed: {listed}")
        floor = self._known_floor(Chain(self.before.topic_id, purpose), known)
        back = [each for each in listed if each in trimmed]
        if back and back[0] < floor:
            raise Violation("restore", f"ledger {back[0]} is listed again, and the floor {floor} was known")
        self.watch.store.world.count("trimmed ledger listed again", len(back))
        return gone

    def _entries(self, ledger_id: LedgerId) -> int:
        """How many entries beside its head are certainly stored."""
        if ledger_id in self.watch.closed:
            entries = self.watch.closed[ledger_id][1]
            return sum(1 for data in entries if peek_header(data).kind not in HEAD_KINDS)
        return max(0, self.before.confirmed.get(ledger_id, -1))

    def _known_floor(self, chain: Chain, known: Container[LedgerId]) -> LedgerId:
        """known: ledgers of the former era's list. The head of one that this list left out says what an era before was
        told, perhaps after its end, and so does a node that does not know the newest era (hazard
        deletion-in-a-former-era)."""
        floors = [LedgerId(0)]
        for inventory in self.inventories:
            if self.newest in inventory.committed_eras:
                floors.append(inventory.floors.get(chain, LedgerId(0)))
            floors += [
                held.head.floor
                for held in inventory.ledgers.values()
                if held.chain == chain and held.head is not None
                if held.ledger_id >= self.former.first_id or held.ledger_id in known
            ]
        return max(floors)

    def _closed(self, record: LedgerMetadata, *, is_snapshot: bool, is_last: bool) -> bool:
        """The entries of a ledger that the new records call CLOSED. Returns whether it is longer than it was.

        While no head is behind the last one of a chain, its end was an answer to nobody: what was never answered may be
        there."""
        closed: Closed = self.watch.closed
        former = closed.get(record.ledger_id)
        if record.state is not LedgerState.CLOSED:
            if former is not None:
                self.before.confirmed[record.ledger_id] = max(
                    former[0].end, self.before.confirmed.get(record.ledger_id, EntryId(-1))
                )
                del closed[record.ledger_id]
            return False
        if is_snapshot:  # it may end with what was never acknowledged
            closed[record.ledger_id] = (record, [])
            return False
        if former is None and not is_last:
            closed[record.ledger_id] = (record, self.watch.check_copies(record))
            return False
        if former is not None:
            end, entries = former[0].end, former[1]
        else:  # it was open when the store was lost
            end = self.before.confirmed.get(record.ledger_id, EntryId(-1))
            entries = self.watch.check_copies(replace(record, end=min(end, record.end)))
        if end > record.end or (end < record.end and not is_last):
            raise Violation("restore", f"ledger {record.ledger_id} ends at {record.end}, it ended at {end}")
        copies, found = durable_copies(self.watch.nodes, record.ledger_id), range(end + 1, record.end + 1)
        more = [next(held[EntryId(each)] for held in copies.values() if each in held) for each in found]
        closed[record.ledger_id] = (record, entries + more)
        return bool(more)
