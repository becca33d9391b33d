"""The summary of a folded range of a log. Its size is bounded, and it is sufficient to join ranges.

A range is folded without the ranges before it. So a summary has two kinds of facts about each producer: its changes
in the range, and the assumptions of the range (mark and generation before it). `range_join` checks the second kind.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from oncelog.core.formats.entry import SequenceMode
from oncelog.core.ids import (
    NO_SEQUENCE,
    EntryId,
    Generation,
    Incarnation,
    LedgerId,
    OwnerEpoch,
    Position,
    ProducerId,
    SequenceId,
)
from oncelog.verify.time_series import TimeSeries

#: Ids kept of an `StoredIds` with gaps. The rest is counted.
IDS_KEPT = 4096
#: `StoredIds`s kept of each producer: the first ones above the mark of the range, and those at or below it.
FRONT_KEPT = 8
LOW_KEPT = 32
#: Grants kept of each producer, and further ones whose mark differs from that of the range.
STATED_KEPT = 32
STATED_ODD_KEPT = 64
#: Generations before a grant that are kept of each producer. A correct log has one.
EARLY_KEPT = 8
#: Gaps kept of each producer. The rest is counted.
HOLES_KEPT = 8
#: Findings kept of a range.
FINDINGS_KEPT = 100


class Finding(NamedTuple):
    """A broken rule. position: None for the topic as a whole."""

    rule: str
    position: Position | None
    message: str


class StoredIds(NamedTuple):
    """Consecutive messages of an entry. ids: ascending, those that are kept. rows: the number of messages.

    index: batch_index of the first.
    """

    position: Position
    index: int  # type: ignore[assignment]  # hides tuple.index, which is not used
    ids: Sequence[int]
    rows: int

    @classmethod
    def of(cls, position: Position, index: int, ids: Sequence[int]) -> "StoredIds":
        kept = ids if isinstance(ids, range) else list(ids[:IDS_KEPT])
        return cls(position, index, kept, len(ids))


class RangeGrant(NamedTuple):
    """The facts of a grant that joining needs. mark: of a name's first grant: ids up to it count as stored, because
    another cluster has stored them; -1: none."""

    position: Position
    name: str
    mode: SequenceMode
    generation: Generation
    mark: SequenceId = NO_SEQUENCE


class StatedMark(NamedTuple):
    """The mark in a grant. own: the mark of the range before the grant."""

    mark: SequenceId
    own: SequenceId
    position: Position


class RangeSkip(NamedTuple):
    """The highest id of a batch that was skipped as a duplicate."""

    mark: SequenceId
    position: Position


class EarlyBatch(NamedTuple):
    """The first batch of a generation before any grant of its producer in the range."""

    generation: Generation
    position: Position


class IdGap(NamedTuple):
    """Missing ids between two consecutive ids of a range."""

    position: Position
    before: SequenceId
    after: SequenceId


@dataclass(slots=True)
class ProducerSummary:
    """One producer in one range.

    early: one batch of each generation before the first grant. generation: of the last grant. mark: the highest id
    stored in this range, -1: none. front: the first entries with ids above all earlier ids of the range; front_cut:
    there are more. low: entries with ids at or below; low_rows: their number of messages. stated: the first grants, and
    those whose mark depends on earlier ranges. skipped: the highest one above the mark. holes: the first gaps after the
    first id; holes_count: all of them. A contiguous producer must have none. epochs, epochs_count: the same of gaps in
    front of an id that begins an epoch (see `epoched_ids`), which an epoched producer may have.
    """

    early: list[EarlyBatch] = field(default_factory=list)
    generation: Generation | None = None
    granted: RangeGrant | None = None
    mark: SequenceId = SequenceId(-1)
    front: list[StoredIds] = field(default_factory=list)
    front_cut: bool = False
    low: list[StoredIds] = field(default_factory=list)
    low_rows: int = 0
    stated: list[StatedMark] = field(default_factory=list)
    skipped: RangeSkip | None = None
    holes: list[IdGap] = field(default_factory=list)
    holes_count: int = 0
    epochs: list[IdGap] = field(default_factory=list)
    epochs_count: int = 0
    messages: int = 0


@dataclass(slots=True)
class LedgerSummary:
    """Consecutive entries of one ledger in one range. None: the entry there could not be read.

    owner_epoch, last_epoch: of the first and the last entry. before_bytes, after_bytes: size of the ledger's bodies
    before the first entry, and including the last one.
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
    """The summary of one range."""

    ledgers: list[LedgerSummary] = field(default_factory=list)
    producers: dict[ProducerId, ProducerSummary] = field(default_factory=dict)
    entries: int = 0
    grants: int = 0
    messages: int = 0
    #: messages of stored batches that were skipped as duplicates
    skipped: int = 0
    #: messages published without deduplication
    unnamed: int = 0
    bytes: int = 0
    #: entries that could not be read on any member
    lost: int = 0
    #: batches of a snapshot that were found at their position
    remembered: int = 0
    #: compared copies of entries, and entries with fewer copies than members but with the ack quorum
    copies: int = 0
    thin: int = 0
    #: {storage node: why it did not answer}
    silent: dict[Incarnation, str] = field(default_factory=dict)
    #: producers that have expired, and where
    expired: dict[ProducerId, Position] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    findings_count: int = 0
    stored_times: TimeSeries = field(default_factory=TimeSeries)
    skipped_times: TimeSeries = field(default_factory=TimeSeries)
    opened_times: TimeSeries = field(default_factory=TimeSeries)
    #: ms, by the clocks of the owners; None without an entry
    first_ms: int | None = None
    last_ms: int | None = None
