"""The part `once` of a proof: reads the header of each entry of the log, and checks that no (producer, sequence id) is
stored twice or out of order, and that indexes, marks, generations and ledgers follow from each other.

Storage nodes verify each entry as a whole before they send its header. Ids at or below the mark of their producer are
looked for in the whole log again, to tell messages that are stored twice from messages that are out of order.
"""

from collections.abc import Callable
from dataclasses import dataclass

from oncelog.core.errors import LedgerUnavailable
from oncelog.core.formats.batch import Buffer
from oncelog.core.ids import EntryId, Position
from oncelog.metadata.proof.throttle import Throttle
from oncelog.metadata.proof.topic_range import RangedLedger, TopicRange
from oncelog.storage_client.losses import LostEntry, read_with_losses
from oncelog.storage_client.node_calls import NodeCalls
from oncelog.storage_client.reader import ReadRecord
from oncelog.verify.range_fold import RangeFold, find_places
from oncelog.verify.range_join import JoinedLog, join_range, looked_for
from oncelog.verify.range_summary import Finding, RangeSummary
from oncelog.verify.stored_log import parse_head
from oncelog.verify.topic_check import LiveMap, conclude
from oncelog.verify.violation import Violation

#: How long to wait for storage nodes that do not answer, since the last entry.
PATIENCE_MS = 30_000
#: Of one read: what is checked without a pause.
READ_BYTES = 64 * 1024
#: Entries of one summary, which bounds the memory.
SUMMARY_ENTRIES = 10_000
#: Batches with ids at or below the mark after which reading ends: the log is damaged beyond a list of findings.
LOW_MAX = 10_000

Page = list[tuple[EntryId, Buffer]]


@dataclass(frozen=True, slots=True)
class LogChecked:
    """not_checked: why the log was not read to its end; empty: it was."""

    findings: list[Finding]
    findings_count: int
    not_checked: str = ""


class LogCheck:
    """One reading of one range. Raises LogHole when retention deletes a ledger of it meanwhile."""

    def __init__(
        self,
        nodes: NodeCalls,
        record: ReadRecord,
        known: TopicRange,
        throttle: Throttle,
        progressed: Callable[[int], None],
        *,
        summary_entries: int = SUMMARY_ENTRIES,
        low_max: int = LOW_MAX,
    ) -> None:
        """progressed: is told how many entries were read."""
        self._summary_entries, self._low_max = summary_entries, low_max
        self._nodes = nodes
        self._record = record
        self._range = known
        self._throttle = throttle
        self._progressed = progressed
        self._joined = JoinedLog(blind=known.from_index > 0)
        #: the ledgers of each summary, which the check of the chain needs
        self._chain: list[RangeSummary] = []
        self._fold = RangeFold(known.topic_id)
        self._read = 0

    async def run(self) -> LogChecked:
        joined = self._joined
        try:
            for ledger in self._range.ledgers:
                if not await self._each(ledger, self._take, self._fold_lost, low_max=self._low_max):
                    return self._broken_off(f"what is behind entry {self._read}: too many ids are out of order")
            self._join()
            places = await self._places(looked_for(joined.low)) if joined.low else {}
        except LedgerUnavailable as error:
            return self._broken_off(error.message)
        end = LiveMap(self._range.end, self._range.until_index, {}, False)
        facts = [each.fact() for each in self._range.ledgers]
        checked = conclude(joined, self._chain, facts, live=end, snapshot=None, places=places)
        return LogChecked(checked.findings, checked.findings_count)

    def _broken_off(self, reason: str) -> LogChecked:
        """What was found until then counts; the rest is named."""
        self._join()
        return LogChecked(self._joined.findings, self._joined.findings_count, reason)

    async def _each(
        self,
        ledger: RangedLedger,
        take: Callable[[Position, Buffer], None],
        lost: Callable[[Position, str], None],
        *,
        low_max: int | None = None,
    ) -> bool:
        """Whether all entries were read; False after more than low_max batches with ids at or below the mark."""
        record = ledger.record
        pages = read_with_losses(
            self._nodes, record, EntryId(0), record.end, timeout_ms=PATIENCE_MS, record=self._record,
            headers_only=True, call_bytes_max=READ_BYTES,
        )  # fmt: skip
        async for page in pages:
            if isinstance(page, LostEntry):
                lost(Position(record.ledger_id, page.entry_id), page.reason)
                continue
            with self._throttle.working():
                for entry_id, data in page:
                    take(Position(record.ledger_id, entry_id), data)
            if low_max is not None and len(self._joined.low) > low_max:
                return False
            await self._throttle.pause(sum(len(data) for _, data in page))
        return True

    def _take(self, position: Position, data: Buffer) -> None:
        try:
            self._fold.add(parse_head(data, position))
        except Violation as violation:
            self._fold.lose(position, "digest", str(violation))
        self._count()

    def _fold_lost(self, position: Position, reason: str) -> None:
        self._fold.lose(position, "unreadable", reason)
        self._count()

    def _count(self) -> None:
        self._read += 1
        self._progressed(self._read)
        if self._read % self._summary_entries == 0:
            self._join()

    def _join(self) -> None:
        summary, self._fold = self._fold.summary, RangeFold(self._range.topic_id)
        join_range(self._joined, summary)
        self._chain.append(RangeSummary(ledgers=summary.ledgers))

    async def _places(self, wanted: dict[int, set[int]]) -> dict[tuple[int, int], list[tuple[Position, int]]]:
        places: dict[tuple[int, int], list[tuple[Position, int]]] = {}

        def take(position: Position, data: Buffer) -> None:
            try:
                found = find_places(parse_head(data, position), wanted)
            except Violation:
                return  # a finding of the first reading
            for producer_id, number, place, index in found:
                places.setdefault((producer_id, number), []).append((place, index))

        for ledger in self._range.ledgers:
            await self._each(ledger, take, lambda _position, _reason: None)
        return places
