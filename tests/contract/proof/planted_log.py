"""A topic's log as storage nodes hold it, entry by entry, with the damage that a test plants; and the verdict on its
ranges.

What is appended is right unless the test says otherwise: marks, numbers and lengths go on by themselves.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from crc32c import crc32c

from oncelog.core.formats.batch import encode_batch, encode_deltas
from oncelog.core.formats.columns import encode_values
from oncelog.core.formats.entry import (
    EntryHeader,
    EntryKind,
    ProducerOpened,
    SequenceMode,
    encode_header,
    encode_opened,
)
from oncelog.core.ids import EntryId, Generation, LedgerId, OwnerEpoch, Position, ProducerId, SequenceId, TopicId
from oncelog.verify.owner_report import NOT_REPORTED, LiveMap
from oncelog.verify.producer_marks import ReportedProducer
from oncelog.verify.range_fold import RangeFold, find_places
from oncelog.verify.range_join import LedgerFact, looked_for
from oncelog.verify.range_summary import RangeSummary
from oncelog.verify.remembered import RememberedBatch
from oncelog.verify.snapshots import ReportedSnapshot, SnapshotSearch
from oncelog.verify.stored_log import parse_entry
from oncelog.verify.topic_check import LogJoin, TopicCheck
from oncelog.verify.violation import Violation

TOPIC_ID = TopicId("0123456789abcdef0123456789abcdef")
#: Milliseconds between two entries.
EVERY_MS = 1_000


@dataclass
class PlantedProducer:
    """A producer's state in the log so far."""

    name: str
    producer_id: ProducerId
    generation: Generation = Generation(0)
    mark: SequenceId = SequenceId(-1)
    mode: SequenceMode = SequenceMode.MONOTONIC
    #: what a snapshot would remember: batches by their positions
    remembered: list[RememberedBatch] = field(default_factory=list)


@dataclass
class PlantedLog:
    """entries: {position: bytes}, in log order. facts: of the ledgers' metadata. epoch: of the owner."""

    entries: dict[Position, bytes] = field(default_factory=dict)
    producers: dict[str, PlantedProducer] = field(default_factory=dict)
    ledger_id: int = 1
    epoch: int = 1
    next_index: int = 0
    #: added to the last confirmed entry in the next entry
    confirmed_ahead: int = 0
    #: [ledger id, first index, entries, bytes] of each ledger
    ledgers: list[list[int]] = field(default_factory=lambda: [[1, 0, 0, 0]])

    def open(
        self,
        name: str,
        *,
        persisted: int | None = None,
        generation: int | None = None,
        mode: SequenceMode = SequenceMode.MONOTONIC,
    ) -> Position:
        """A grant."""
        unknown = PlantedProducer(name, ProducerId(len(self.producers) + 1), mode=mode)
        producer = self.producers.setdefault(name, unknown)
        producer.generation = Generation(producer.generation + 1 if generation is None else generation)
        stated = SequenceId(producer.mark if persisted is None else persisted)
        grant = ProducerOpened(
            TOPIC_ID, producer.name, producer.producer_id, producer.generation, producer.mode, stated
        )
        return self._append(EntryKind.PRODUCER_OPENED, encode_opened(grant), 0, 0)

    def store(
        self,
        name: str,
        ids: Sequence[int],
        *,
        skip: int = 0,
        generation: int | None = None,
        bad_batch: bool = False,
        count: int | None = None,
        topic_id: TopicId = TOPIC_ID,
    ) -> Position:
        """A batch of messages."""
        producer = self.producers[name]
        payload = encode_values([b"v%d" % number for number in ids])
        batch = encode_batch(
            payload, producer_id=producer.producer_id,
            generation=producer.generation if generation is None else Generation(generation),
            first=ids[0], last=ids[-1], count=len(ids), publish_time_ms=1_000, checksum=crc32c,
            deltas=encode_deltas(ids),
        )  # fmt: skip
        producer.mark = SequenceId(max(producer.mark, ids[-1]))
        if bad_batch:
            batch = batch[:-1] + bytes([batch[-1] ^ 1])
        counted = len(ids) - skip if count is None else count
        position = self._append(EntryKind.MESSAGES, batch, skip, counted, topic_id)
        new = ids[skip:]
        producer.remembered.append(RememberedBatch(producer.producer_id, new[0], new[-1], len(new), position, skip))
        return position

    def roll(self, *, epoch: int | None = None, ledger_id: int | None = None) -> None:
        """The next ledger, of a new owner if an epoch is given."""
        self.epoch = self.epoch if epoch is None else epoch
        self.ledger_id = self.ledger_id + 1 if ledger_id is None else ledger_id
        self.ledgers.append([self.ledger_id, self.next_index, 0, 0])

    def append(self, kind: EntryKind, body: bytes, *, count: int = 0) -> Position:
        """An entry of another kind, as a cursor's ledger has them."""
        return self._append(kind, body, 0, count)

    def _append(self, kind: EntryKind, body: bytes, skip: int, count: int, topic_id: TopicId = TOPIC_ID) -> Position:
        ledger = self.ledgers[-1]
        position = Position(LedgerId(ledger[0]), EntryId(ledger[2]))
        ledger[2] += 1
        ledger[3] += len(body)
        confirmed = EntryId(position.entry_id - 1 + self.confirmed_ahead)
        header = EntryHeader(
            kind, position.ledger_id, position.entry_id, confirmed, ledger[3],
            OwnerEpoch(self.epoch), EVERY_MS * (1 + len(self.entries)), self.next_index, skip, count, len(body),
            topic_id,
        )  # fmt: skip
        self.next_index += count
        self.entries[position] = encode_header(header, body, crc32c) + body
        return position

    # --- what the cluster reports -------------------------------------------------------------------------------------

    def facts(self) -> list[LedgerFact]:
        """As in the ledgers' metadata."""
        last = self.ledgers[-1][0]
        return [
            LedgerFact(LedgerId(number), index, EntryId(entries - 1), number != last, size if number != last else 0)
            for number, index, entries, size in self.ledgers
        ]

    def reported_producers(self) -> dict[ProducerId, ReportedProducer]:
        """As the topic owner has it now."""
        return {
            one.producer_id: ReportedProducer(one.name, one.mode, one.generation, one.mark)
            for one in self.producers.values()
        }

    def live(self) -> LiveMap:
        return LiveMap(list(self.entries)[-1], self.next_index, self.reported_producers(), True)

    def snapshot(self, number: int = 1) -> ReportedSnapshot:
        """A snapshot of the log as it is now."""
        remembered = tuple(batch for one in self.producers.values() for batch in one.remembered)
        return ReportedSnapshot(number, list(self.entries)[-1], self.next_index, self.reported_producers(), remembered)


def fold(entries: Iterable[tuple[Position, bytes]]) -> RangeSummary:
    """One range, as a task folds it."""
    folding = RangeFold(TOPIC_ID)
    for position, data in entries:
        try:
            folding.add(parse_entry(data, position, crc32c, keeps_values=False))
        except Violation as violation:
            folding.lose(position, "digest", str(violation))
    return folding.summary


def searched(snapshot: ReportedSnapshot | None) -> SnapshotSearch:
    """A search that has found this one, the newest that the owner has taken."""
    search = SnapshotSearch(crc32c, taken=snapshot.number if snapshot else 0)
    search.found = snapshot
    return search


def check_log(
    log: PlantedLog,
    *cuts: int,
    live: LiveMap | None = None,
    snapshot: ReportedSnapshot | None = None,
    facts: Sequence[LedgerFact] | None = None,
    from_start: bool = True,
) -> TopicCheck:
    """Check the log, split into ranges behind these numbers of entries, and behind a snapshot's position."""
    entries = list(log.entries.items())
    ends = {*cuts, len(entries)}
    if snapshot is not None and snapshot.position in log.entries:
        ends.add(list(log.entries).index(snapshot.position) + 1)
    borders = [0, *sorted(end for end in ends if 0 < end <= len(entries))]
    live = log.live() if live is None else live
    modes = {producer_id: reported.mode for producer_id, reported in live.producers.items()}
    join = LogJoin(searched(snapshot) if snapshot else None, blind=not from_start, modes=modes)
    for first, end in pairwise(borders):
        join.add(fold(entries[first:end]), entries[end - 1][0])
    join.compare_live(live)
    places: dict[tuple[int, int], list[tuple[Position, int]]] = {}
    wanted = looked_for(join.joined.low)
    for position, data in entries if wanted else ():
        try:
            entry = parse_entry(data, position, crc32c, keeps_values=False)
        except Violation:
            continue
        for producer_id, number, place, index in find_places(entry, wanted):
            places.setdefault((producer_id, number), []).append((place, index))
    return join.conclude(log.facts() if facts is None else facts, places, NOT_REPORTED)
