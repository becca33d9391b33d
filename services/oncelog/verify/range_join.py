"""Joins the summaries of a log's ranges in order, and checks what each range assumes about the ranges before it.

Pure. The result does not depend on how the log was cut into ranges. After a trimmed start, or after an entry that could
not be read, the earlier messages of a producer are unknown: its mark is then a lower bound, and nothing that depends on
the missing part is a finding.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from oncelog.core.formats.entry import SequenceMode
from oncelog.core.formats.epoched_ids import begins_epoch
from oncelog.core.ids import NO_SEQUENCE, EntryId, Generation, LedgerId, OwnerEpoch, Position, ProducerId, SequenceId
from oncelog.verify.range_fold import ledger_border
from oncelog.verify.range_summary import Finding, LedgerSummary, ProducerSummary, RangeSummary, StoredIds

#: How many ids at or below the mark are searched for in the whole log of a topic.
LOOKED_FOR_MAX = 100_000
#: Findings, and expired producers, that a joined log keeps. All findings are counted.
JOINED_FINDINGS_KEPT = 10_000
EXPIRED_KEPT = 100_000


SNAPSHOT_RULE = "snapshot"


class LedgerFact(NamedTuple):
    """A ledger in the cluster's record. last: the last entry to check, -1: none. whole: the ledger is closed and ends
    with `last`; length is then the size of its bodies."""

    ledger_id: LedgerId
    first_index: int
    last: EntryId
    whole: bool
    length: int


@dataclass(slots=True)
class JoinedProducer:
    """sure: all its messages were read; otherwise the mark is a lower bound. followed: the log was read without a gap
    since one of its ids."""

    name: str
    mode: SequenceMode | None
    generation: Generation
    mark: SequenceId
    sure: bool
    messages: int = 0
    followed: bool = False


@dataclass(frozen=True, slots=True)
class Share:
    """The producers of which one reading of a log keeps sums: those with ids above `after`, up to `through`. None: all
    above."""

    after: int = 0
    through: int | None = None

    def __contains__(self, producer_id: int) -> bool:
        return producer_id > self.after and (self.through is None or producer_id <= self.through)


#: Every producer.
ALL = Share()


class ShareTooLarge(Exception):
    """What is known of the producers of a share takes too much memory. smaller: begins at the same id."""

    def __init__(self, smaller: Share) -> None:
        super().__init__(f"read the log again, for producers up to {smaller.through}")
        self.smaller = smaller


def require_within(share: Share, sizes: Mapping[ProducerId, int], kept_max: int) -> None:
    """sizes: {producer of the share: what is kept of it}. Raises ShareTooLarge."""
    kept = 0
    ascending = sorted(sizes)
    for number, producer_id in enumerate(ascending):
        kept += sizes[producer_id]
        if kept > kept_max and number:
            raise ShareTooLarge(Share(share.after, ascending[number - 1]))


class LowIds(NamedTuple):
    """Ids of a range that are at or below the mark before it."""

    producer_id: ProducerId
    stretch: StoredIds
    mark: SequenceId


class JoinedTakeover(NamedTuple):
    """The first entry of an owner epoch."""

    owner_epoch: OwnerEpoch
    position: Position
    time_ms: int


@dataclass(slots=True)
class JoinedLog:
    """A log, joined up to some range. blind: an earlier part was not read. low_unlisted: at least so many further ids
    at or below the mark. expired: {id: name} of producers that are in `producers` no more, the last EXPIRED_KEPT.
    names: {name: id} of those in `producers`.

    share: of which producers sums are kept. again: the log was joined before, for another share: what does not depend
    on a producer's sums is a finding of that time.
    """

    producers: dict[ProducerId, JoinedProducer] = field(default_factory=dict)
    expired: dict[ProducerId, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    findings_count: int = 0
    low: list[LowIds] = field(default_factory=list)
    low_unlisted: int = 0
    epochs: list[JoinedTakeover] = field(default_factory=list)
    last: LedgerSummary | None = None
    blind: bool = False
    #: modes of producers whose grants may be trimmed, as the owner reports them
    modes: Mapping[ProducerId, SequenceMode] = field(default_factory=dict)
    totals: RangeSummary = field(default_factory=RangeSummary)
    names: dict[str, ProducerId] = field(default_factory=dict)
    share: Share = ALL
    again: bool = False

    def find(self, rule: str, position: Position | None, message: str) -> None:
        self.findings_count += 1
        if len(self.findings) < JOINED_FINDINGS_KEPT:
            self.findings.append(Finding(rule, position, message))

    def expire(self, producer_id: ProducerId) -> None:
        if producer_id not in self.share:
            return
        known = self.producers.pop(producer_id, None)
        if known is not None and self.names.get(known.name) == producer_id:
            del self.names[known.name]
        self.expired[producer_id] = "" if known is None else known.name
        if len(self.expired) > EXPIRED_KEPT:
            del self.expired[next(iter(self.expired))]


def join_range(joined: JoinedLog, summary: RangeSummary) -> None:
    """Add the next range. The summary is not changed."""
    if not joined.again:
        joined.findings += summary.findings[: JOINED_FINDINGS_KEPT - len(joined.findings)]
        joined.findings_count += summary.findings_count
    for finding in summary.findings if joined.again else ():
        if finding.rule == SNAPSHOT_RULE:  # of a batch that the snapshot remembers of a producer of this share
            joined.find(*finding)
    for number, part in enumerate(summary.ledgers):
        if number == 0 and joined.last is not None and not joined.again:
            for finding in ledger_border(joined.last, part):
                joined.find(*finding)
        known = joined.epochs[-1].owner_epoch if joined.epochs else None
        if part.owner_epoch is not None and part.began_ms is not None and part.owner_epoch != known:
            joined.epochs.append(JoinedTakeover(part.owner_epoch, Position(part.ledger_id, part.first), part.began_ms))
        joined.last = part
    blind_before = joined.blind
    joined.blind = joined.blind or summary.lost > 0
    for producer_id, each in summary.producers.items():
        if producer_id in joined.share:
            _join_producer(joined, producer_id, each, summary, blind=blind_before)
    for producer_id in summary.expired:
        joined.expire(producer_id)
    if summary.lost:  # also for producers without an entry in this range
        for producer in joined.producers.values():
            producer.sure = producer.followed = False
    _add_totals(joined.totals, summary)


def _join_producer(
    joined: JoinedLog,
    producer_id: ProducerId,
    part: ProducerSummary,
    summary: RangeSummary,
    *,
    blind: bool,
) -> None:
    lost = summary.lost > 0
    known = joined.producers.get(producer_id)
    if known is None:
        known = _appear(joined, producer_id, part, summary.expired, blind=blind)
    known.sure = known.sure and not lost
    _check_generations(joined, producer_id, known, part)
    _check_presumed(joined, known, part)
    _check_holes(joined, known, part, lost=lost)
    for stretch in part.low:
        joined.low.append(LowIds(producer_id, stretch, max(known.mark, part.mark)))
    joined.low_unlisted += part.low_rows - sum(stretch.rows for stretch in part.low)
    for stretch in part.front:
        count = bisect_right(stretch.ids, known.mark)
        if count:
            low = StoredIds(stretch.position, stretch.index, stretch.ids[:count], count)
            joined.low.append(LowIds(producer_id, low, known.mark))
            if count == len(stretch.ids) < stretch.rows:
                joined.low_unlisted += 1
    if part.front_cut and part.front[-1].ids[-1] <= known.mark:
        joined.low_unlisted += 1
    presumed = NO_SEQUENCE if known.sure else max((stated.mark for stated in part.stated), default=NO_SEQUENCE)
    known.mark = max(known.mark, part.mark, presumed)
    if part.generation is not None:
        known.generation = part.generation
    known.messages += part.messages


def _appear(
    joined: JoinedLog,
    producer_id: ProducerId,
    part: ProducerSummary,
    expired: Collection[ProducerId],
    *,
    blind: bool,
) -> JoinedProducer:
    """A producer that appears in no earlier range. expired: in this one."""
    granted = part.granted
    known = JoinedProducer("", joined.modes.get(producer_id), Generation(0), NO_SEQUENCE, sure=not blind)
    if granted is not None:
        known.name, known.mode, known.mark = granted.name, granted.mode, granted.mark
        other = joined.names.get(granted.name, producer_id)
        if other != producer_id and other not in expired:
            text = f"{granted.name!r} is producer {other}, and is granted as {producer_id}"
            joined.find("names", granted.position, text)
        joined.names[granted.name] = producer_id
    highest = max((one.generation for one in part.early), default=None)
    if highest is not None and (producer_id in joined.expired or not blind):
        what = "has expired" if producer_id in joined.expired else "was never granted"
        text = f"a batch is of producer {producer_id}, which {what}"
        joined.find("grants", part.early[0].position, text)
        known.sure = False
    if highest is not None:
        known.generation = highest
    elif granted is not None and blind:
        known.generation = Generation(granted.generation - 1)
    joined.producers[producer_id] = known
    return known


def _check_generations(
    joined: JoinedLog, producer_id: ProducerId, known: JoinedProducer, part: ProducerSummary
) -> None:
    granted = part.granted
    for early in part.early:
        if early.generation > known.generation and not known.sure:
            known.generation = early.generation
        elif early.generation != known.generation:
            text = f"the batch of {known.name!r} is of generation {early.generation}, not {known.generation}"
            joined.find("fencing", early.position, text)
    if granted is None:
        return
    if not known.name:
        known.name, known.mode = granted.name, granted.mode
        joined.names.setdefault(granted.name, producer_id)
    elif (known.name, known.mode) != (granted.name, granted.mode):
        text = f"{known.name!r} is granted as {granted.name!r}, {granted.mode.name.lower()}"
        joined.find("names", granted.position, text)
    if granted.generation <= known.generation or (known.sure and granted.generation != known.generation + 1):
        text = f"generation {granted.generation} of {granted.name!r} follows {known.generation}"
        joined.find("generations", granted.position, text)


def _check_presumed(joined: JoinedLog, known: JoinedProducer, part: ProducerSummary) -> None:
    for stated in part.stated:
        mark = max(known.mark, stated.own)
        if stated.mark < mark or (known.sure and stated.mark != mark):
            text = f"the grant of {known.name!r} has the mark {stated.mark}, the log before it {mark}"
            joined.find("grant's mark", stated.position, text)
    skipped = part.skipped
    if skipped is not None and known.sure and skipped.mark > known.mark:
        text = (
            f"id {skipped.mark} of {known.name!r} is skipped as a duplicate, and the log before it ends at {known.mark}"
        )
        joined.find("skipped", skipped.position, text)


def _check_holes(joined: JoinedLog, known: JoinedProducer, part: ProducerSummary, *, lost: bool) -> None:
    """The ids of a contiguous producer have no gaps and start with 0; those of an epoched one may begin a higher
    epoch."""
    if known.mode in (SequenceMode.CONTIGUOUS, SequenceMode.EPOCHED):
        holes, count, epoched = part.holes, part.holes_count, known.mode is SequenceMode.EPOCHED
        if not epoched:
            holes, count = sorted([*holes, *part.epochs]), count + part.epochs_count
        for hole in holes:
            joined.find("hole", hole.position, _hole(known, hole.before, hole.after))
        joined.findings_count += count - len(holes)
        if part.front and (known.sure or known.followed) and not lost:
            first = part.front[0].ids[0]
            if first > known.mark + 1 and not (epoched and begins_epoch(first, known.mark)):
                joined.find("hole", part.front[0].position, _hole(known, known.mark, first))
    known.followed = (known.followed or part.mark >= 0) and not lost


def _hole(known: JoinedProducer, before: int, after: int) -> str:
    missing = f"id {before + 1} is" if after == before + 2 else f"ids {before + 1} to {after - 1} are"
    return f"{missing} missing of {known.name!r}, which is {known.mode.name.lower() if known.mode else 'contiguous'}"


def _add_totals(totals: RangeSummary, summary: RangeSummary) -> None:
    for name in (
        "entries",
        "grants",
        "messages",
        "skipped",
        "unnamed",
        "bytes",
        "lost",
        "remembered",
        "copies",
        "thin",
    ):
        setattr(totals, name, getattr(totals, name) + getattr(summary, name))
    totals.silent |= summary.silent
    totals.stored_times.merge(summary.stored_times)
    totals.skipped_times.merge(summary.skipped_times)
    totals.opened_times.merge(summary.opened_times)
    times = [time for time in (totals.first_ms, summary.first_ms) if time is not None]
    totals.first_ms = min(times, default=None)
    times = [time for time in (totals.last_ms, summary.last_ms) if time is not None]
    totals.last_ms = max(times, default=None)


# --- the ledgers' chain -----------------------------------------------------------------------------------------------


def check_chain(summaries: Iterable[RangeSummary], facts: Sequence[LedgerFact]) -> list[Finding]:
    """Check that all ledgers of the cluster's record were read, completely, and with indexes without a gap."""
    parts: dict[LedgerId, list[LedgerSummary]] = {}
    for summary in summaries:
        for part in summary.ledgers:
            parts.setdefault(part.ledger_id, []).append(part)
    found: list[Finding] = []
    index: int | None = facts[0].first_index if facts else None
    for number, fact in enumerate(facts):
        position = Position(fact.ledger_id, EntryId(0))
        if number and fact.ledger_id <= facts[number - 1].ledger_id:
            found.append(Finding("chain", position, f"the record lists it after {facts[number - 1].ledger_id}"))
        if not fact.whole and number + 1 < len(facts):
            found.append(Finding("chain", position, "the ledger is not closed, and another one follows it"))
        mine = parts.get(fact.ledger_id, [])
        begins = mine[0].first_index if mine else index
        if begins not in (None, fact.first_index):
            text = f"the ledger begins at message {begins}, its record has {fact.first_index}"
            found.append(Finding("chain", position, text))
        last = mine[-1].last if mine else EntryId(-1)
        if last != fact.last or (mine and mine[0].first != 0):
            first = mine[0].first if mine else 0
            text = f"read entries {first} to {last} instead of 0 to {fact.last}"
            found.append(Finding("chain", position, text))
        length = mine[-1].after_bytes if mine else 0
        if fact.whole and length is not None and length != fact.length:
            text = f"the ledger's bodies have {length} bytes, its record has {fact.length}"
            found.append(Finding("chain", Position(fact.ledger_id, last), text))
        index = mine[-1].next_index if mine else index
    return found


# --- ids at or below the mark -----------------------------------------------------------------------------------------

IdPlaces = Mapping[tuple[int, int], Sequence[tuple[Position, int]]]


def looked_for(lows: Sequence[LowIds]) -> dict[int, set[int]]:
    """{producer id: ids} to search for in the whole log, LOOKED_FOR_MAX at most."""
    wanted: dict[int, set[int]] = {}
    left = LOOKED_FOR_MAX
    for low in lows:
        taken = low.stretch.ids[:left]
        wanted.setdefault(low.producer_id, set()).update(taken)
        left -= len(taken)
    return wanted


def check_low_ids(joined: JoinedLog, places: IdPlaces) -> list[Finding]:
    """Findings for ids at or below the mark: stored twice, or out of order. places: {(producer id, id): where}."""
    found: list[Finding] = []
    for low in joined.low:
        known = joined.producers.get(low.producer_id)
        name = joined.expired.get(low.producer_id, "") if known is None else known.name
        here = low.stretch.position
        twice: list[int] = []
        alone: list[int] = []
        other: Position | None = None
        for offset, number in enumerate(low.stretch.ids):
            mine = (here, low.stretch.index + offset)
            others = [place for place in places.get((low.producer_id, number), ()) if place != mine]
            if others and other is None:
                other = others[0][0]
            (twice if others else alone).append(number)
        if twice:
            text = (
                f"{_ids(twice)} of {name!r} stored again: {'it is' if len(twice) == 1 else 'the first is'} at {other}"
            )
            found.append(Finding("once", here, text))
        if alone:
            found.append(Finding("order", here, f"{_ids(alone)} of {name!r} after id {low.mark}"))
    return found


def _ids(ids: Sequence[int]) -> str:
    return f"id {ids[0]}" if len(ids) == 1 else f"{len(ids)} ids from {ids[0]} to {ids[-1]}"
