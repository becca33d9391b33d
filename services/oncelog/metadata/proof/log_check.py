"""The part `once` of a proof: reads each entry of the log. It checks that no (producer, sequence id) is stored twice or
out of order; that indexes, marks, generations and ledgers follow from each other; and that the owner, and its newest
snapshot at its position, have the producers of the log.

    for each share of the producers, in most topics one:
        the newest snapshot is read
        the owner gives a page of its producers, as of a position; the log is read up to there, and they are compared
        the next page, and the log up to its position; ... up to the last page
        ids at or below the mark are looked for in the whole log, to tell messages that are stored twice from messages
        that are out of order

The first reading takes whole entries; the others take heads, which storage nodes have verified as a whole. What is kept
is bounded: the sums of one share, and what the snapshot says of it.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field

from crc32c import crc32c

from oncelog.core.errors import InvariantViolated, LedgerUnavailable, LogHole, OncelogError, TopicNotFound
from oncelog.core.formats.batch import Buffer
from oncelog.core.ids import BEFORE_ALL, EntryId, Position
from oncelog.core.names import TopicName
from oncelog.metadata.proof.owner_view import PATIENCE_MS, Opening, OwnerViews
from oncelog.metadata.proof.throttle import Throttle
from oncelog.metadata.proof.topic_range import TopicRange, TopicRanges
from oncelog.storage_client.losses import LostEntry, read_with_losses
from oncelog.verify.log_pass import RANGE_ENTRIES, LogPass
from oncelog.verify.owner_report import NOT_REPORTED, LiveMap
from oncelog.verify.range_fold import find_places
from oncelog.verify.range_join import IdPlaces, Share, ShareTooLarge
from oncelog.verify.range_summary import Finding
from oncelog.verify.stored_log import parse_head
from oncelog.verify.topic_check import LogJoin
from oncelog.verify.violation import Violation

#: Of one read: what is checked without a pause.
READ_BYTES = 64 * 1024
#: Producers of one share, and batches that a snapshot remembers of them: some 100 MB.
KEPT_MAX = 100_000
#: Batches with ids at or below the mark after which reading ends: the log is damaged beyond a list of findings.
LOW_MAX = 10_000

#: How many entries were read, and how many there are to read.
Progressed = Callable[[int, int], None]


@dataclass(slots=True)
class LogChecked:
    """not_checked: what was not read or compared, and why. from_index: of the first message that was read."""

    findings: list[Finding] = field(default_factory=list)
    findings_count: int = 0
    not_checked: list[str] = field(default_factory=list)
    from_index: int = 0

    def add(self, findings: list[Finding], count: int) -> None:
        """A finding of a former reading counts once."""
        known = set(self.findings)
        new = [each for each in dict.fromkeys(findings) if each not in known]
        self.findings += new
        self.findings_count += count - len(findings) + len(new)


@dataclass(frozen=True, slots=True)
class CheckLimits:
    """Of what is kept in memory."""

    kept_max: int = KEPT_MAX
    range_entries: int = RANGE_ENTRIES
    low_max: int = LOW_MAX


class _BrokenOff(Exception):
    """The rest of the log is not read."""


class LogCheck:
    """One check of one range. Raises LogHole when retention deletes a ledger of it meanwhile."""

    def __init__(
        self,
        topic: TopicName,
        known: TopicRange,
        ranges: TopicRanges,
        views: OwnerViews,
        throttle: Throttle,
        progressed: Progressed,
        limits: CheckLimits | None = None,
    ) -> None:
        """known: the range of the proof. The log is read up to the position that the owner names now, which is not
        before its end."""
        self._topic = topic
        self._proved = known
        self._ranges = ranges
        self._views = views
        self._throttle = throttle
        self._progressed = progressed
        self._limits = limits or CheckLimits()
        self._read = self._of = 0
        self._checked = LogChecked(from_index=known.from_index)

    async def run(self) -> LogChecked:
        share, again = Share(), False
        while True:
            try:
                read = await self._read_for(share, again=again)
            except ShareTooLarge as large:
                share = large.smaller
                continue
            if read is None or read.through is None:
                return self._checked
            share, again = Share(read.through), True

    async def _read_for(self, share: Share, *, again: bool) -> Share | None:
        """Read the log for the first producers of the share; returns of which ones it was. None: reading was broken
        off. Raises ShareTooLarge, LogHole."""
        opening = await self._opened(share)
        live = self._end if opening is None else opening.report.live
        known = self._proved
        if live.position != known.end:
            known = await self._ranges.range_of(known.topic_id, live.position, live.next_index)
        share = share if opening is None else opening.share
        joined = LogJoin(
            None if opening is None else opening.snapshots, blind=known.from_index > 0,
            modes={} if opening is None else opening.modes, share=share, again=again, kept_max=self._limits.kept_max,
        )  # fmt: skip
        log = LogPass(known.topic_id, joined, crc32c, range_entries=self._limits.range_entries)
        self._checked.from_index = max(self._checked.from_index, known.from_index)
        self._of = self._read + known.entries
        try:
            await self._take(known, log)
            if opening is not None:
                known = await self._compare_pages(opening, known, log)
            elif not again:
                log.compare_live(live, Share())
            places = await self._places(known, log.looked_for())
        except (LedgerUnavailable, _BrokenOff) as error:
            self._checked.add(log.joined.findings, log.joined.findings_count)
            self._checked.not_checked.append(error.message if isinstance(error, LedgerUnavailable) else str(error))
            return None
        due = NOT_REPORTED if opening is None else opening.report.snapshot_due
        checked = log.conclude([each.fact() for each in known.ledgers], places, due)
        self._checked.add(checked.findings, checked.findings_count)
        snapshot = joined.snapshot
        if snapshot is not None and checked.snapshot is None and snapshot.position >= known.first:
            text = f"snapshot {snapshot.number} has the position {snapshot.position}, where the log has no entry"
            self._checked.not_checked.append(text)
        return None if opening is None else share

    @property
    def _end(self) -> LiveMap:
        """Without any producer."""
        return LiveMap(self._proved.end, self._proved.until_index, {}, False)

    # --- at the owner -------------------------------------------------------------------------------------------------

    async def _opened(self, share: Share) -> Opening | None:
        """None: neither the owner's producers nor a snapshot can be compared."""
        try:
            return await self._views.open(
                self._topic, self._proved.topic_id, share.after, self._throttle, kept_max=self._limits.kept_max,
                through=share.through,
            )  # fmt: skip
        except (InvariantViolated, TopicNotFound, LogHole):
            raise
        except OncelogError as error:
            self._leave_out("the producers of the owner, and its snapshots", error)
            return None

    async def _compare_pages(self, opening: Opening, known: TopicRange, log: LogPass) -> TopicRange:
        """Compare each page of the share, and read the log up to its position. Returns what was read in all."""
        report, after = opening.report, opening.share.after
        while True:
            if report.live.position > known.end:
                known = await self._ranges.range_of(known.topic_id, report.live.position, report.live.next_index)
                await self._take(known, log)
            log.compare_live(report.live, Share(after, report.next_after))
            if report.live.lists_all is False:
                gap = f"the topic owner lists {len(report.live.producers)} of its producers: the others"
                self._checked.not_checked.append(f"{gap} are not compared with the log")
            if report.next_after is None or report.next_after not in opening.share:
                return known
            after = report.next_after
            try:
                report = await self._views.report(self._topic, known.topic_id, after)
            except (InvariantViolated, TopicNotFound):
                raise
            except OncelogError as error:
                self._leave_out(f"the producers of the owner with ids above {after}", error)
                return known

    def _leave_out(self, what: str, error: OncelogError) -> None:
        self._checked.not_checked.append(f"{what} were not compared with the log: {error.message}")

    # --- the log ------------------------------------------------------------------------------------------------------

    async def _take(self, known: TopicRange, log: LogPass) -> None:
        """Fold what is behind the entries that were folded. Raises _BrokenOff."""
        async with aclosing(self._entries(known, log.position, heads=log.joined.again)) as entries:
            async for position, found in entries:
                if isinstance(found, str):
                    log.lose(position, found)
                else:
                    log.take(position, found)
                self._read += 1
                self._progressed(self._read, max(self._of, self._read))
                if len(log.joined.low) > self._limits.low_max:
                    raise _BrokenOff(f"what is behind entry {self._read}: too many ids are out of order")

    async def _places(self, known: TopicRange, wanted: dict[int, set[int]]) -> IdPlaces:
        places: dict[tuple[int, int], list[tuple[Position, int]]] = {}
        if not wanted:
            return places
        async with aclosing(self._entries(known, BEFORE_ALL, heads=True)) as entries:
            async for position, found in entries:
                if isinstance(found, str):
                    continue  # a finding of the first reading, as is an entry that cannot be parsed
                try:
                    stored = find_places(parse_head(found, position), wanted)
                except Violation:
                    continue
                for producer_id, number, place, index in stored:
                    places.setdefault((producer_id, number), []).append((place, index))
        return places

    async def _entries(
        self, known: TopicRange, behind: Position, *, heads: bool
    ) -> AsyncGenerator[tuple[Position, Buffer | str], None]:
        """Each entry behind that one, or why no storage node gives it."""
        for ledger in known.ledgers:
            record = ledger.record
            first = EntryId(behind.entry_id + 1 if record.ledger_id == behind.ledger_id else 0)
            if record.ledger_id < behind.ledger_id or first > record.end:
                continue
            pages = read_with_losses(
                self._views.nodes, record, first, record.end, timeout_ms=PATIENCE_MS, record=self._ranges.record,
                headers_only=heads, call_bytes_max=READ_BYTES,
            )  # fmt: skip
            async for page in pages:
                if isinstance(page, LostEntry):
                    yield Position(record.ledger_id, page.entry_id), page.reason
                    continue
                with self._throttle.working():
                    for entry_id, data in page:
                        yield Position(record.ledger_id, entry_id), data
                await self._throttle.pause(sum(len(data) for _, data in page))
