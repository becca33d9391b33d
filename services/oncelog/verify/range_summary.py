"""What is left of a range of a log once it was folded: small, whatever the range holds, and enough to be joined.

A range does not know what came before it. So a summary says two things of each producer: what the range does to it, and
what it presumes of it (the mark and generation that it must come with). `range_join` holds the second against the
ranges before.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from oncelog.core.formats.entry import SequenceMode
from oncelog.core.ids import EntryId, Generation, Incarnation, LedgerId, OwnerEpoch, Position, ProducerId, SequenceId
from oncelog.verify.time_series import TimeSeries

#: Ids kept of a stretch that has holes. What is cut is counted.
IDS_KEPT = 4096
#: Stretches kept of each producer: the first ones above the range's own mark, and those at or below it.
FRONT_KEPT = 8
LOW_KEPT = 32
#: Grants kept of each producer, and further ones whose mark is not the range's own.
STATED_KEPT = 32
STATED_ODD_KEPT = 64
#: Generations before a grant that are kept of each producer: a good log has one.
EARLY_KEPT = 8
#: Holes kept of each producer; the rest are counted.
HOLES_KEPT = 8
#: Findings kept of a range.
FINDINGS_KEPT = 100


class Finding(NamedTuple):
    """A rule that is broken, and where. position None: of the topic as a whole."""

    rule: str
    position: Position | None
    message: str


class IdRange(NamedTuple):
    """Ids that one entry stores one behind the other. ids: ascending, those kept; rows: how many there are.

    index: batch_index of the first.
    """

    position: Position
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls
    ids: Sequence[int]
    rows: int

    @classmethod
    def of(cls, position: Position, index: int, ids: Sequence[int]) -> "IdRange":
        kept = ids if isinstance(ids, range) else list(ids[:IDS_KEPT])
        return cls(position, index, kept, len(ids))


class RangeGrant(NamedTuple):
    """A grant as far as joining needs it."""

    position: Position
    name: str
    mode: SequenceMode
    generation: Generation


class StatedMark(NamedTuple):
    """The mark that a grant states. own: the range's own one before it."""

    mark: SequenceId
    own: SequenceId
    position: Position


class RangeSkip(NamedTuple):
    """The highest id of a batch that was known before it was stored."""

    mark: SequenceId
    position: Position


class EarlyBatch(NamedTuple):
    """The first batch of a generation that comes before any grant of its producer in a range."""

    generation: Generation
    position: Position


class IdGap(NamedTuple):
    """Ids between two that follow each other in the log, in one range."""

    position: Position
    before: SequenceId
    after: SequenceId


@dataclass(slots=True)
class ProducerSummary:
    """One producer in one range.

    early: one batch of each generation that comes before the first grant here. generation: of the last grant here.
    mark: the highest id stored in this range, -1 none. front: the first entries with ids above every other before them
    in this range; front_cut: more follow. low: those at or below; low_rows counts them. stated: of its grants, the
    first ones, and then those that a good log has only where a mark comes with the range. skipped: the highest one
    above the mark. holes: the first ones, holes_count all, behind the first id; only a contiguous producer may have
    none.
    """

    early: list[EarlyBatch] = field(default_factory=list)
    generation: Generation | None = None
    granted: RangeGrant | None = None
    mark: SequenceId = SequenceId(-1)
    front: list[IdRange] = field(default_factory=list)
    front_cut: bool = False
    low: list[IdRange] = field(default_factory=list)
    low_rows: int = 0
    stated: list[StatedMark] = field(default_factory=list)
    skipped: RangeSkip | None = None
    holes: list[IdGap] = field(default_factory=list)
    holes_count: int = 0
    messages: int = 0


@dataclass(slots=True)
class LedgerSummary:
    """Consecutive entries of one ledger in one range. None: an entry that could not be read stood there.

    owner_epoch, last_epoch: of the first entry and of the last one. before_bytes, after_bytes: bodies of the ledger
    before the first entry and with the last one.
    """

    ledger_id: LedgerId
    first: EntryId
    last: EntryId
    first_index: int | None
    next_index: int | None
    owner_epoch: OwnerEpoch | None
    last_epoch: OwnerEpoch | None
    before_bytes: int | None
    after_bytes: int | None
    #: append time of the first entry, ms
    began_ms: int | None


@dataclass(slots=True)
class RangeSummary:
    """One range, folded."""

    ledgers: list[LedgerSummary] = field(default_factory=list)
    producers: dict[ProducerId, ProducerSummary] = field(default_factory=dict)
    entries: int = 0
    grants: int = 0
    messages: int = 0
    #: messages of stored batches that were known already
    skipped: int = 0
    #: messages published without deduplication
    unnamed: int = 0
    bytes: int = 0
    #: entries that nobody could read
    lost: int = 0
    #: batches of a snapshot that are where it remembers them
    remembered: int = 0
    #: copies of entries that were compared, and entries with fewer copies than members, but enough
    copies: int = 0
    thin: int = 0
    #: {storage node: why it did not answer}, where its copies were looked for
    silent: dict[Incarnation, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    findings_count: int = 0
    stored_times: TimeSeries = field(default_factory=TimeSeries)
    skipped_times: TimeSeries = field(default_factory=TimeSeries)
    opened_times: TimeSeries = field(default_factory=TimeSeries)
    #: ms, of the owners' clocks; None: no entry
    first_ms: int | None = None
    last_ms: int | None = None
