"""The state of the topics that a query reads: their partitions, the end of each, its closed ledgers.

Nothing is kept between two batches. So a new topic that matches a pattern, or a new partition, is read in the next
batch.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

from oncelog.client.values.messages import StoredBatch
from oncelog.core.errors import (
    CorruptEntry,
    DeadlineExceeded,
    EntriesLost,
    ReaderClosed,
    TopicNotFound,
    UnreadableEntry,
)
from oncelog.core.formats.entry import GIVEN_UP_INDEXES
from oncelog.core.ids import EntryId, Incarnation, LedgerId, TopicId
from oncelog.rpc.codecs.metadata_codec import TOPICS
from oncelog.rpc.codecs.owner_codec import LAST_MESSAGE
from oncelog.rpc.codecs.reader_codec import StartIndex, StartTime
from oncelog.wire import metadata_pb2 as pb
from oncelog.wire.owner_pb2 import LastMessageRequest
from oncelog_spark.cluster import ClusterConnection, ledgers_of
from oncelog_spark.source.offsets import ClosedLedger, GivenUpNumbers, TopicState
from oncelog_spark.source.options import TopicPattern
from oncelog_spark.source.positions import AtTime, PositionOption, check_named, number_at

#: Topics whose state is requested at the same time.
_AT_ONCE = 16


class TopicCatalog:
    """The topics of one query."""

    def __init__(self, cluster: ClusterConnection, topics: tuple[str, ...] | TopicPattern) -> None:
        self._cluster = cluster
        self._topics = topics
        self._at_once = asyncio.Semaphore(_AT_ONCE)

    async def states(self) -> dict[str, TopicState]:
        """{full name of each topic or partition: its state}, by name. Raises TopicNotFound for a topic that the query
        names."""
        whole = await self._matching() if isinstance(self._topics, TopicPattern) else self._topics
        partitions = [name for names in await asyncio.gather(*map(self._partitions, whole)) for name in names]
        found = await asyncio.gather(*map(self._state, partitions))
        return {state.topic: state for state in sorted(filter(None, found), key=lambda state: state.topic)}

    async def numbers_at(self, option: str, position: PositionOption, states: Iterable[TopicState]) -> dict[str, int]:
        """{topic: number of the first message at or behind the position}. Raises InvalidArgument."""
        listed = list(states)
        if isinstance(position, AtTime):
            numbers = await asyncio.gather(*(self._number_at_time(state, position.time_ms) for state in listed))
            return dict(zip((state.topic for state in listed), numbers, strict=True))
        check_named(option, position, (state.topic for state in listed))
        return {state.topic: number_at(option, position, state) for state in listed}

    async def row_bytes(self, state: TopicState, number: int) -> float | None:
        """Average bytes of a row in the entries from this message on; None: there are none yet. Raises as `states`."""
        entries = await self._first_entries(state, StartIndex(number))
        rows = sum(stored.entry.count for stored in entries)
        return sum(len(stored.body) for stored in entries) / rows if rows else None

    async def _matching(self) -> list[str]:
        assert isinstance(self._topics, TopicPattern)
        answer = await self._cluster.ask_metadata(TOPICS, pb.TopicsRequest(namespace=str(self._topics.namespace)))
        return [one.topic for one in answer.topics if self._topics.matches(one.topic)]

    async def _partitions(self, topic: str) -> list[str]:
        async with self._at_once:
            try:
                count = await self._cluster.partitions(topic)
            except TopicNotFound:
                if isinstance(self._topics, TopicPattern):
                    return []  # it was deleted after it was listed
                raise
        return [f"{topic}-partition-{number}" for number in range(count)] or [topic]

    async def _state(self, topic: str) -> TopicState | None:
        """None: a partition that was never used, or a topic of a pattern that was deleted meanwhile."""
        async with self._at_once:
            try:
                # The ledgers first: closed ledgers stay closed, and messages stored meanwhile are behind them.
                ledgers = await ledgers_of(self._cluster, topic)
                last = await self._cluster.ask_owner(
                    topic,
                    LAST_MESSAGE,
                    lambda route: LastMessageRequest(
                        topic=topic, topic_id=route.topic_id, owner_epoch_seen=route.owner_epoch
                    ),
                )
            except TopicNotFound:
                if isinstance(self._topics, TopicPattern) or topic not in self._topics:
                    return None
                raise
        earliest = ledgers.ledgers[0].first_base_index if ledgers.ledgers else 0
        state = TopicState(
            topic, TopicId(ledgers.topic_id), earliest, max(earliest, last.next_index), closed_of(ledgers.ledgers)
        )
        firsts = [ledger.first_base_index for ledger in ledgers.ledgers]
        gaps = [await self._given_up(state, first, end) for first, end in pairwise([*firsts, state.next])]
        return without_given_up(state, [gap for gap in gaps if gap is not None])

    async def _given_up(self, state: TopicState, first: int, end: int) -> GivenUpNumbers | None:
        """What the ledger with these numbers leaves out at its beginning; None: nothing.

        GivenUp is the first entry of its ledger and leaves out more numbers than other ledgers have. The next entry
        shows how many; only a ledger of extremely small messages could have so many of its own.
        """
        if end - first < GIVEN_UP_INDEXES:
            return None
        try:
            entries = await self._first_entries(state, StartIndex(first))
        except (CorruptEntry, EntriesLost, UnreadableEntry):
            return GivenUpNumbers(first, first + GIVEN_UP_INDEXES)
        gap = GivenUpNumbers(first, min(end, entries[0].entry.base_index) if entries else end)
        return gap if gap.end > gap.first else None

    async def _number_at_time(self, state: TopicState, time_ms: int) -> int:
        """Number of the first message appended at or after the time; the end where there is none."""
        entries = await self._first_entries(state, StartTime(time_ms))
        return entries[0].entry.base_index if entries else state.next

    async def _first_entries(self, state: TopicState, start: StartIndex | StartTime) -> list[StoredBatch]:
        """Those of the first frame of a read stream; none: there are none yet."""
        # A window of one byte lets exactly one frame through.
        stream = self._cluster.read_stream(state.topic, start, topic_id=state.topic_id, window_bytes=1)
        try:
            async with asyncio.timeout(self._cluster.patience_ms / 1000):
                await stream.arrival()
            return [stored for stored, _ in iter(stream.take_entry, None)]
        except TimeoutError as error:
            message = f"the owner of {state.topic}: no answer in time: {stream.trouble or error}"
            raise DeadlineExceeded(message) from (stream.trouble or error)
        finally:
            stream.close(ReaderClosed("the first entries were read"))


def without_given_up(state: TopicState, gaps: Iterable[GivenUpNumbers]) -> TopicState:
    """The state with numbers that its log leaves out. gaps: ascending, each at the beginning of a ledger."""
    behind = {gap.first: gap.end for gap in gaps}
    closed = tuple(ledger._replace(first=behind.get(ledger.first, ledger.first)) for ledger in state.closed)
    return replace(
        state,
        earliest=behind.get(state.earliest, state.earliest),
        closed=tuple(ledger for ledger in closed if ledger.first < ledger.end),
        given_up=tuple(GivenUpNumbers(*gap) for gap in behind.items() if gap[0] > state.earliest),
    )


def closed_of(ledgers: Iterable[pb.TopicLedger]) -> tuple[ClosedLedger, ...]:
    """Those that can be read without the owner: CLOSED, and with a successor, which shows where their numbers end."""
    listed = list(ledgers)
    found: list[ClosedLedger] = []
    for ledger, following in pairwise(listed):
        if ledger.state == pb.LEDGER_STATE_CLOSED and ledger.first_base_index < following.first_base_index:
            members = tuple((Incarnation(one.incarnation), one.address) for one in ledger.members)
            found.append(
                ClosedLedger(
                    LedgerId(ledger.ledger_id),
                    ledger.first_base_index,
                    following.first_base_index,
                    EntryId(ledger.end),
                    members,
                    ledger.length_bytes,
                )
            )
    return tuple(found)
