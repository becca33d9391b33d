"""Folds one range of a topic's log into a summary, without the ranges before it.

The rules are those of `fold.LogFold`. A violation inside the range is a finding. What depends on earlier ranges goes
into the summary and is checked by `range_join`. So do ids at or below the mark: only a search of the whole log shows
whether such an id is stored twice or out of order.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise

from oncelog.core.formats.batch import BatchHeader
from oncelog.core.formats.entry import EntryHeader, GivenUp, ProducerOpened
from oncelog.core.formats.epoched_ids import begins_epoch
from oncelog.core.ids import NO_SEQUENCE, EntryId, Incarnation, Position, ProducerId, SequenceId, TopicId
from oncelog.verify.copies import CopiesComparison
from oncelog.verify.range_summary import (
    EARLY_KEPT,
    FINDINGS_KEPT,
    FRONT_KEPT,
    HOLES_KEPT,
    LOW_KEPT,
    STATED_KEPT,
    STATED_ODD_KEPT,
    EarlyBatch,
    Finding,
    IdGap,
    LedgerSummary,
    ProducerSummary,
    RangeGrant,
    RangeSkip,
    RangeSummary,
    StatedMark,
    StoredIds,
)
from oncelog.verify.remembered import RememberedAt, difference
from oncelog.verify.stored_log import LoggedEntry, count_of


class RangeFold:
    """Receives the entries of one range in order."""

    def __init__(self, topic_id: TopicId, remembered: RememberedAt | None = None) -> None:
        """remembered: batches that a snapshot contains; those of other ranges are not looked at."""
        self.summary = RangeSummary()
        self._topic_id = topic_id
        self._remembered: RememberedAt = remembered or {}
        #: whether an entry of this range could not be read, so that grants or batches may be missing
        self._blind = False

    def add(self, entry: LoggedEntry) -> None:
        """The checksum of the entry was verified before."""
        header, summary = entry.header, self.summary
        self._follow(header)
        summary.entries += 1
        summary.bytes += header.body_bytes
        if header.topic_id != self._topic_id:
            self._find("topic", header.position, f"the entry is of topic {header.topic_id}, not of {self._topic_id}")
        if summary.first_ms is None:
            summary.first_ms = header.append_time_ms
        summary.last_ms = max(header.append_time_ms, summary.last_ms or 0)
        if entry.grant is not None:
            self._granted(header, entry.grant)
        elif entry.batch is not None:
            self._stored(entry)
        elif entry.given_up is not None:
            self._given_up(header, entry.given_up)
        elif entry.aged is not None:
            summary.expired.update(dict.fromkeys(entry.aged.expired, header.position))
        elif entry.head is not None and header.entry_id:
            self._find("head", header.position, "the head of a ledger is not its first entry")
        held = count_of(entry)
        if header.count != held:
            self._find("count", header.position, f"the entry counts {header.count} messages and holds {held}")
        for batch in self._remembered.get(header.position, ()):
            wrong = difference(batch, entry)
            summary.remembered += not wrong
            if wrong:
                self._find("snapshot", header.position, wrong)

    def compare(self, compared: CopiesComparison, silent: Mapping[Incarnation, str]) -> None:
        """Add the comparison of the copies of some entries. silent: {member: why it did not answer}."""
        summary = self.summary
        summary.copies += compared.copies
        summary.thin += compared.thin
        summary.silent |= silent
        for finding in compared.findings:
            self._find(*finding)

    def lose(self, position: Position, rule: str, message: str) -> None:
        """Add an entry that must exist and cannot be read or decoded."""
        self._blind = True
        summary = self.summary
        summary.lost += 1
        self._find(rule, position, message)
        part = summary.ledgers[-1] if summary.ledgers else None
        if part is None or part.ledger_id != position.ledger_id:
            part = LedgerSummary(position.ledger_id, position.entry_id, position.entry_id, *(None,) * 7)
            summary.ledgers.append(part)
        part.last = position.entry_id
        part.next_index = part.after_bytes = None

    # --- the order of entries -----------------------------------------------------------------------------------------

    def _follow(self, header: EntryHeader) -> None:
        ledgers = self.summary.ledgers
        part = ledgers[-1] if ledgers else None
        before = header.length - header.body_bytes
        if header.last_add_confirmed >= header.entry_id:
            self._find(
                "confirmed", header.position, f"the entry was appended with {header.last_add_confirmed} confirmed"
            )
        if part is None or part.ledger_id != header.ledger_id:
            ledgers.append(
                LedgerSummary(
                    ledger_id=header.ledger_id,
                    first=header.entry_id,
                    last=header.entry_id,
                    first_index=header.base_index,
                    next_index=header.next_index,
                    owner_epoch=header.owner_epoch,
                    last_epoch=header.owner_epoch,
                    before_bytes=before,
                    after_bytes=header.length,
                    began_ms=header.append_time_ms,
                )
            )
            for finding in ledger_border(part, ledgers[-1]) if part is not None else ():
                self._find(*finding)
            return
        if header.entry_id != part.last + 1:
            self._find("positions", header.position, f"the entry follows entry {part.last} of its ledger")
        if part.next_index is not None and header.base_index != part.next_index:
            self._find(
                "base_index", header.position, f"the entry begins at message {header.base_index}, not {part.next_index}"
            )
        if part.last_epoch is not None and header.owner_epoch != part.last_epoch:
            text = f"the entry is of epoch {header.owner_epoch}, the one before it in its ledger of {part.last_epoch}"
            self._find("owner epoch", header.position, text)
        if part.after_bytes is not None and before != part.after_bytes:
            self._find("ledger length", header.position, f"{before} bytes stand before it, not {part.after_bytes}")
        if part.owner_epoch is None:
            part.owner_epoch, part.began_ms = header.owner_epoch, header.append_time_ms
        part.last, part.last_epoch = header.entry_id, header.owner_epoch
        part.next_index, part.after_bytes = header.next_index, header.length

    def _given_up(self, header: EntryHeader, given_up: GivenUp) -> None:
        """Grants and batches may be missing before this entry, as after one that cannot be read."""
        self._blind = True
        self.summary.lost += 1
        place = f"{given_up.ledger_id}:{given_up.first_entry}"
        text = f"{given_up.by} has given up the entries from {place} on: acknowledged messages may be lost"
        self._find("unreadable", header.position, text)

    def _lives(self, producer_id: ProducerId, position: Position) -> None:
        expired = self.summary.expired.get(producer_id)
        if expired is not None:
            self._find("expired", position, f"the entry is of producer {producer_id}, which has expired at {expired}")

    # --- producers ----------------------------------------------------------------------------------------------------

    def _granted(self, header: EntryHeader, grant: ProducerOpened) -> None:
        summary, position = self.summary, header.position
        self._lives(grant.producer_id, position)
        summary.grants += 1
        summary.opened_times.add(header.append_time_ms)
        if grant.topic_id != self._topic_id:
            self._find("topic", position, f"it grants {grant.name!r} on topic {grant.topic_id}, not {self._topic_id}")
        part = summary.producers.setdefault(grant.producer_id, ProducerSummary())
        known = part.granted
        if known is None:
            mark = grant.persisted if grant.generation == 1 else NO_SEQUENCE
            part.granted = RangeGrant(position, grant.name, grant.mode, grant.generation, mark)
        elif (known.name, known.mode) != (grant.name, grant.mode):
            self._find(
                "names", position, f"producer {grant.producer_id} is {known.name!r} ({known.mode.name}), and is "
                f"granted as {grant.name!r} ({grant.mode.name})",
            )  # fmt: skip
        if part.generation is not None and grant.generation != part.generation + 1 and not self._blind:
            self._find(
                "generations", position, f"generation {grant.generation} of {grant.name!r} follows {part.generation}"
            )
        part.generation = grant.generation
        if self._blind and grant.persisted >= part.mark:
            return  # an entry that could not be read may have raised the mark
        kept = STATED_KEPT if grant.persisted == part.mark else STATED_ODD_KEPT
        if len(part.stated) < kept:
            part.stated.append(StatedMark(grant.persisted, part.mark, position))

    def _stored(self, entry: LoggedEntry) -> None:
        header, batch, summary = entry.header, entry.batch, self.summary
        assert batch is not None
        skip = min(header.skip_first, batch.count)
        new = entry.ids[skip:]
        summary.messages += len(new)
        summary.stored_times.add(header.append_time_ms, len(new))
        if skip:
            summary.skipped += skip
            summary.skipped_times.add(header.append_time_ms, skip)
        if not batch.producer_id:
            summary.unnamed += len(new)
            return
        self._lives(batch.producer_id, header.position)
        part = summary.producers.setdefault(batch.producer_id, ProducerSummary())
        part.messages += len(new)
        if not self._blind:
            self._check_generation(header, batch, part)
        if skip and entry.ids[skip - 1] > part.mark and not self._blind:
            last = RangeSkip(SequenceId(entry.ids[skip - 1]), header.position)
            part.skipped = max(part.skipped, last) if part.skipped else last
        low = bisect_right(new, part.mark)
        if low:
            part.low_rows += low
            if len(part.low) < LOW_KEPT:
                part.low.append(StoredIds.of(header.position, skip, new[:low]))
        if low < len(new):
            self._note_holes(header.position, part, new[low:])
            if len(part.front) < FRONT_KEPT:
                part.front.append(StoredIds.of(header.position, skip + low, new[low:]))
            else:
                part.front_cut = True
            part.mark = SequenceId(new[-1])

    def _note_holes(self, position: Position, part: ProducerSummary, ids: Sequence[int]) -> None:
        """ids: ascending, above the mark of this range. The id before the first one of a range is not known here."""
        if part.mark >= 0 and ids[0] != part.mark + 1 and not self._blind and begins_epoch(ids[0], part.mark):
            part.epochs_count += 1
            if len(part.epochs) < HOLES_KEPT:
                part.epochs.append(IdGap(position, part.mark, SequenceId(ids[0])))
        elif part.mark >= 0 and ids[0] != part.mark + 1 and not self._blind:
            part.holes_count += 1
            if len(part.holes) < HOLES_KEPT:
                part.holes.append(IdGap(position, part.mark, SequenceId(ids[0])))
        if ids[-1] - ids[0] + 1 == len(ids):
            return
        part.holes_count += 1
        if len(part.holes) < HOLES_KEPT:
            before, after = next((one, two) for one, two in pairwise(ids) if two != one + 1)
            part.holes.append(IdGap(position, SequenceId(before), SequenceId(after)))

    def _check_generation(self, header: EntryHeader, batch: BatchHeader, part: ProducerSummary) -> None:
        if part.granted is None:
            known = {one.generation for one in part.early}
            if batch.generation not in known and len(known) < EARLY_KEPT:
                part.early.append(EarlyBatch(batch.generation, header.position))
        elif batch.generation != part.generation:
            text = (
                f"the batch of producer {batch.producer_id} is of generation {batch.generation}, not {part.generation}"
            )
            self._find("fencing", header.position, text)

    def _find(self, rule: str, position: Position | None, message: str) -> None:
        self.summary.findings_count += 1
        if len(self.summary.findings) < FINDINGS_KEPT:
            self.summary.findings.append(Finding(rule, position, message))


def ledger_border(before: LedgerSummary, part: LedgerSummary) -> list[Finding]:
    """The violations between two consecutive parts, of one ledger or of two."""
    found: list[Finding] = []
    position = Position(part.ledger_id, part.first)
    if part.ledger_id == before.ledger_id and part.first != before.last + 1:
        found.append(Finding("positions", position, f"the entry follows entry {before.last} of its ledger"))
    if part.ledger_id < before.ledger_id:
        found.append(Finding("positions", position, f"the entry follows ledger {before.ledger_id}"))
    if part.ledger_id > before.ledger_id and part.first != EntryId(0):
        found.append(Finding("positions", position, f"ledger {part.ledger_id} begins with entry {part.first}"))
    if before.next_index is not None and part.first_index is not None and part.first_index != before.next_index:
        text = f"the entry begins at message {part.first_index}, not {before.next_index}"
        found.append(Finding("base_index", position, text))
    if before.last_epoch is not None and part.owner_epoch is not None:
        same = part.ledger_id == before.ledger_id
        if part.owner_epoch < before.last_epoch or (same and part.owner_epoch != before.last_epoch):
            text = f"the entry is of epoch {part.owner_epoch} and follows epoch {before.last_epoch}"
            found.append(Finding("owner epoch", position, text))
    wanted = before.after_bytes if part.ledger_id == before.ledger_id else 0
    if wanted is not None and part.before_bytes is not None and part.before_bytes != wanted:
        text = f"{part.before_bytes} bytes stand before it, not {wanted}"
        found.append(Finding("ledger length", position, text))
    return found


def find_places(entry: LoggedEntry, wanted: dict[int, set[int]]) -> list[tuple[int, int, Position, int]]:
    """Where the entry stores ids that are looked for: (producer id, id, position, batch_index).

    wanted: {producer id: ids}.
    """
    ids = wanted.get(entry.batch.producer_id) if entry.batch is not None else None
    if not ids or entry.batch is None:
        return []
    producer_id = entry.batch.producer_id
    new = enumerate(entry.ids[entry.header.skip_first :], entry.header.skip_first)
    return [(producer_id, number, entry.position, index) for index, number in new if number in ids]
