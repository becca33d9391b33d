"""The difference between what a rebuild would give and the records that are there: what a drill shows.

Allowed, because a rebuild gives it on purpose, or because nothing is stored that could say otherwise:
- owners, epochs, floors that are lower, pages instead of lists, positions of bases, higher formats;
- members of closed ledgers, `joining`, `verified`, and a closed last ledger that is open again;
- ledgers without an entry, or with nothing but a head, and topics that have no other ledgers;
- an open last ledger instead of such ones: nothing in it was acknowledged, and its recovery decides what is stored;
- a last ledger that ends later: what follows is the tail of a failed write, and nothing was stored after it;
- a ledger with snapshots that ends later, or is listed still: any snapshot is as good as a newer one.

A cluster that is in use changes while its records are read. So the caller compares what differs again.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from oncelog.core.formats.topic_record import CursorRecord, TopicRecord
from oncelog.core.ids import LedgerId, OwnerEpoch, TopicId
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.core.rebuild.result import CopiedRecords, NotedName, Rebuilt, RebuiltTopic

_CURSOR = "dedup cursor"


class Difference(NamedTuple):
    """message: what the rebuild would give, and what is there."""

    topic_id: TopicId
    name: str
    message: str


def difference(rebuilt: Rebuilt, live: CopiedRecords, names: Mapping[str, NotedName]) -> list[Difference]:
    """live, names: all records of topics, with every page. Empty: nothing would be lost, and nothing would return."""
    found: list[Difference] = []
    for topic_id in sorted({*rebuilt.topics, *live.topics}):
        ours, theirs = rebuilt.topics.get(topic_id), live.topics.get(topic_id)
        if theirs is None:
            assert ours is not None
            found.append(Difference(topic_id, ours.record.name, "the topic would return; it is not there"))
        else:
            compared = _Compared(ours or RebuiltTopic(TopicRecord(topic_id, theirs.name)), theirs, live)
            found += [Difference(topic_id, theirs.name, message) for message in compared.messages()]
    plain = {name: point.topic_id for name, point in names.items() if not (point.partitioned or point.deleted)}
    for name in sorted({*plain, *rebuilt.names}):
        ours_id, theirs_id = rebuilt.names.get(name), plain.get(name)
        if ours_id != theirs_id and (ours_id is not None or theirs_id in rebuilt.topics):
            topic_id = ours_id or theirs_id or TopicId("")
            found.append(Difference(topic_id, name, f"the name would lead to {ours_id}; it leads to {theirs_id}"))
    return found


class _Compared:
    def __init__(self, ours: RebuiltTopic, theirs: TopicRecord, live: CopiedRecords) -> None:
        self._ours = ours
        self._theirs = theirs
        self._live = live
        self._cursor = live.cursors.get(theirs.topic_id, CursorRecord(OwnerEpoch(0)))
        self._records = {record.ledger_id: record for record in ours.ledgers}
        self._wanted = {wanted.ledger_id for wanted in ours.wanted}

    def messages(self) -> Iterator[str]:
        ours, theirs = self._ours, self._theirs
        cursor = ours.cursor or CursorRecord(OwnerEpoch(0))
        if ours.record.name != theirs.name:
            yield f"the name would be {ours.record.name}"
        if ours.record.format < theirs.format and self._records:
            yield f"the record would have format {ours.record.format}; it has {theirs.format}"
        chains = (
            ("log", _log(ours), self._live_log(), ours.record.deleted_below, theirs.deleted_below),
            ("ack log", dict.fromkeys(ours.record.acks, 0), dict.fromkeys(theirs.acks, 0),
             ours.record.acks_deleted_below, theirs.acks_deleted_below),
            (_CURSOR, {each.ledger_id: 0 for each in cursor.ledgers},
             {each.ledger_id: 0 for each in self._cursor.ledgers}, cursor.deleted_below, self._cursor.deleted_below),
        )  # fmt: skip
        for name, our_list, their_list, our_floor, their_floor in chains:
            if our_floor > their_floor:
                yield f"the {name} would begin at ledger {our_floor}; it begins at {their_floor}"
            yield from self._lists(name, our_list, their_list)

    def _live_log(self) -> dict[LedgerId, int]:
        pages = {page.name: page for page in self._live.pages.get(self._theirs.topic_id, ())}
        paged = {
            each.ledger_id: each.base_index
            for link in self._theirs.pages
            if link.name in pages
            for each in link.listed(pages[link.name])
        }
        return paged | dict(self._theirs.ledgers)

    def _lists(self, name: str, ours: Mapping[LedgerId, int], theirs: Mapping[LedgerId, int]) -> Iterator[str]:
        last = max(theirs, default=None)
        our_last = max(ours, default=None)
        for ledger_id in sorted({*ours, *theirs}):
            record = self._live.ledgers.get(ledger_id)
            if ledger_id not in theirs:
                if name != _CURSOR and self._records[ledger_id].state is LedgerState.CLOSED:
                    yield f"ledger {ledger_id} would return to the {name}"
            elif record is None:
                yield f"ledger {ledger_id} of the {name} has no record"
            elif ledger_id in ours:
                if ours[ledger_id] != theirs[ledger_id]:
                    first = f"would begin with message {ours[ledger_id]}; it begins with {theirs[ledger_id]}"
                    yield f"ledger {ledger_id} of the {name} {first}"
                later = name == _CURSOR or ledger_id == our_last
                # An owner that cannot recover the last snapshot in time uses an older one, and begins another ledger.
                left_open = name == _CURSOR and ledger_id != last
                if not left_open or record.state is LedgerState.CLOSED:
                    yield from self._ledger(name, self._records[ledger_id], record, may_end_later=later)
            elif not self._may_lack(record, is_last=ledger_id == last):
                yield f"ledger {ledger_id} would be missing in the {name}"

    def _may_lack(self, record: LedgerMetadata, *, is_last: bool) -> bool:
        """Whether the ledger has nothing but, perhaps, a head."""
        if record.state is not LedgerState.CLOSED:
            return is_last
        return record.end < 0 or (record.end == 0 and record.ledger_id in self._ours.passed_over)

    def _ledger(self, name: str, ours: LedgerMetadata, theirs: LedgerMetadata, *, may_end_later: bool) -> Iterator[str]:
        where = f"ledger {theirs.ledger_id} of the {name}"
        if (ours.topic_id, ours.ack_quorum, ours.write_quorum) != (
            theirs.topic_id, theirs.ack_quorum, theirs.write_quorum,
        ):  # fmt: skip
            yield f"{where} would be of another topic, or have other quorums"
        closed = LedgerState.CLOSED
        if theirs.state is closed and ours.state is closed:
            later = may_end_later and ours.end > theirs.end
            if ours.end != theirs.end and not later:
                yield f"{where} would end at entry {ours.end}; it ends at {theirs.end}"
            elif ours.length != theirs.length and ours.ledger_id not in self._wanted and not later:
                yield f"{where} would have {ours.length} bytes; it has {theirs.length}"
        elif theirs.state is not closed and ours.state is closed:
            yield f"{where} would be closed at entry {ours.end}; it is open"
        elif theirs.state is not closed and frozenset(ours.members) != frozenset(theirs.members):
            yield f"{where} would have the members {', '.join(ours.members)}; it has {', '.join(theirs.members)}"


def _log(topic: RebuiltTopic) -> dict[LedgerId, int]:
    paged = {each.ledger_id: each.base_index for page in topic.pages for each in page.ledgers}
    return paged | dict(topic.record.ledgers)
