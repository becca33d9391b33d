"""What a proof reads: the log of a topic up to the last entry that its owner has confirmed.

The owner is asked first, and the list of ledgers is read afterwards. So the list covers the position that the owner has
named, while the topic grows.
"""

import asyncio
import json
from dataclasses import dataclass, replace

from oncelog.core.errors import LogHole, ServiceUnavailable, TopicLoading, TopicNotFound
from oncelog.core.formats.topic_record import LedgerLink
from oncelog.core.ids import EntryId, LedgerId, Position, TopicId
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.core.names import TopicName
from oncelog.metadata.owners.owner_calls import OwnerCalls
from oncelog.metadata.proof.owner_view import SERVING
from oncelog.metadata.topics.topic_calls import TopicCalls
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.records.registry import LiveOwner
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.verify.range_join import LedgerFact

#: Ledger records that are read at once.
_READS_MAX = 64
#: How often the list is read while retention deletes ledgers.
_ATTEMPTS_MAX = 3


@dataclass(frozen=True, slots=True)
class OwnerEnd:
    """The end of a topic as its owner says it. position: of the last confirmed entry; BEFORE_ALL: there is none."""

    topic_id: TopicId
    position: Position
    next_index: int


@dataclass(frozen=True, slots=True)
class RangedLedger:
    """record: as of a CLOSED ledger that ends with the range. closed: it is CLOSED. whole: and the range has all of
    it."""

    record: LedgerMetadata
    first_index: int
    closed: bool
    whole: bool

    @property
    def entries(self) -> int:
        return self.record.end + 1

    def fact(self) -> LedgerFact:
        record = self.record
        length = record.length if self.whole else 0
        return LedgerFact(record.ledger_id, self.first_index, record.end, self.whole, length)


@dataclass(frozen=True, slots=True)
class TopicRange:
    """The ledgers of the log up to `end`, in order. until_index: of the first message behind it."""

    topic_id: TopicId
    end: Position
    until_index: int
    ledgers: tuple[RangedLedger, ...]

    @property
    def first(self) -> Position:
        """The first entry that is kept, or would be."""
        return Position(self.ledgers[0].record.ledger_id, EntryId(0)) if self.ledgers else self.end

    @property
    def from_index(self) -> int:
        """Older messages were deleted by retention."""
        return self.ledgers[0].first_index if self.ledgers else self.until_index

    @property
    def entries(self) -> int:
        return sum(each.entries for each in self.ledgers)


class TopicRanges:
    def __init__(self, topics: TopicStore, ledgers: LedgerStore, topic_calls: TopicCalls, calls: OwnerCalls) -> None:
        self._topics = topics
        self._ledgers = ledgers
        self._topic_calls = topic_calls
        self._calls = calls

    async def end_of(self, topic: TopicName, *, placed: bool = True) -> OwnerEnd:
        """Ask the owner. placed: as for `TopicCalls.of_owner`, whose errors this raises; False: nor is it waited for an
        owner that takes the topic over."""

        async def ask(owner: LiveOwner, topic_id: TopicId) -> OwnerEnd:
            state = await self._calls.state(owner, topic_id, internal=False)
            if state is None or state.phase != SERVING:
                phase = "unknown" if state is None else state.phase
                raise (TopicLoading if placed else ServiceUnavailable)(f"topic {topic} is {phase} at its owner")
            stats = json.loads(state.stats_json)
            position = Position.parse(stats["last_position"])
            return OwnerEnd(topic_id, position, stats["message_count"])

        return await self._topic_calls.of_owner(topic, ask, placed=placed)

    async def range_of(self, topic_id: TopicId, end: Position, until_index: int) -> TopicRange:
        """Raises TopicNotFound; LogHole if the ledgers that are listed do not reach up to `end`."""
        for _ in range(_ATTEMPTS_MAX):
            stored = await self._topics.read(topic_id)
            if stored is None:
                raise TopicNotFound("the topic was deleted", topic_id=topic_id)
            links = await self._topics.pages.links(stored.value)
            wanted = [link for link in links if link.ledger_id <= end.ledger_id]
            if wanted and wanted[-1].ledger_id != end.ledger_id:
                break
            found: list[RangedLedger] = []
            for start in range(0, len(wanted), _READS_MAX):
                some = wanted[start : start + _READS_MAX]
                records = await asyncio.gather(*(self._ledgers.read(link.ledger_id) for link in some))
                found += [_ranged(link, one.value, end) for link, one in zip(some, records, strict=True) if one]
            if len(found) == len(wanted):
                return TopicRange(topic_id, end, until_index, tuple(found))
            # Retention has deleted ledgers since the list was read.
        raise LogHole(
            f"the owner has confirmed entry {end}, and no record of ledger {end.ledger_id} or of one before it is "
            "listed for the topic"
        )

    async def record(self, ledger_id: LedgerId) -> LedgerMetadata | None:
        return await self._ledgers.record(ledger_id)


def _ranged(link: LedgerLink, record: LedgerMetadata, end: Position) -> RangedLedger:
    closed = record.state is LedgerState.CLOSED
    last = end.entry_id if link.ledger_id == end.ledger_id else record.end
    whole = closed and last == record.end
    return RangedLedger(replace(record, state=LedgerState.CLOSED, end=last), link.base_index, closed, whole)
