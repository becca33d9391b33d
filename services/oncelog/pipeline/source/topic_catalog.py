"""What the cluster says of the topics that a query reads: their parts, how far each goes, its closed ledgers.

Nothing of it is kept between two batches, so a topic that a pattern matches from now on, or a further part, is there in
the next one.
"""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import pairwise

from oncelog.client.backoff import persist
from oncelog.core.errors import NotOwner, TopicNotFound
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.entry import peek_header
from oncelog.core.ids import EntryId, Incarnation, LedgerId, OwnerEpoch, TopicId
from oncelog.pipeline.cluster_links import ClusterLinks
from oncelog.pipeline.source.offsets import ClosedLedger, TopicState
from oncelog.pipeline.source.options import Pattern
from oncelog.pipeline.source.positions import AtTime, Place, check_named, number_at
from oncelog.rpc.metadata_codec import LEDGERS, TOPICS
from oncelog.rpc.owner_codec import LAST_MESSAGE
from oncelog.rpc.reader_codec import READ, ReadControl, ReaderStart, StartIndex, StartTime
from oncelog.wire import metadata_pb2 as pb
from oncelog.wire.owner_pb2 import LastMessageRequest

#: Topics asked about at the same time.
_AT_ONCE = 16


class Catalog:
    """Asks about the topics of one query."""

    def __init__(self, links: ClusterLinks, topics: tuple[str, ...] | Pattern) -> None:
        self._links = links
        self._topics = topics
        self._at_once = asyncio.Semaphore(_AT_ONCE)

    async def states(self) -> dict[str, TopicState]:
        """{full name of each topic or part: its state}, by name. Raises TopicNotFound for one that was named."""
        whole = await self._matching() if isinstance(self._topics, Pattern) else self._topics
        parts = [name for names in await asyncio.gather(*map(self._parts, whole)) for name in names]
        found = await asyncio.gather(*map(self._state, parts))
        return {state.topic: state for state in sorted(filter(None, found), key=lambda state: state.topic)}

    async def numbers_at(self, option: str, place: Place, states: Iterable[TopicState]) -> dict[str, int]:
        """{topic: number of the first message from the place on}. Raises InvalidArgument."""
        listed = list(states)
        if isinstance(place, AtTime):
            numbers = await asyncio.gather(*(self._number_at_time(state, place.time_ms) for state in listed))
            return dict(zip((state.topic for state in listed), numbers, strict=True))
        check_named(option, place, (state.topic for state in listed))
        return {state.topic: number_at(option, place, state) for state in listed}

    async def row_bytes(self, state: TopicState, number: int) -> float | None:
        """What a row weighs in the entries from this message on; None: there are none yet. Raises as `states`."""
        entries = await self._first_entries(state, StartIndex(number))
        rows = sum(peek_header(data).count for data in entries)
        return sum(map(len, entries)) / rows if rows else None

    async def _matching(self) -> list[str]:
        assert isinstance(self._topics, Pattern)
        answer = await self._links.ask_metadata(TOPICS, pb.TopicsRequest(namespace=str(self._topics.namespace)))
        return [one.topic for one in answer.topics if self._topics.matches(one.topic)]

    async def _parts(self, topic: str) -> list[str]:
        async with self._at_once:
            try:
                count = (await self._links.look_up(topic)).partitions
            except TopicNotFound:
                if isinstance(self._topics, Pattern):
                    return []  # deleted since it was listed
                raise
        return [f"{topic}-partition-{number}" for number in range(count)] or [topic]

    async def _state(self, topic: str) -> TopicState | None:
        """None: a part that nobody has used yet, or a topic of a pattern that was deleted meanwhile."""
        async with self._at_once:
            try:
                # The ledgers first: what is closed now stays so, and what is written meanwhile is behind it.
                ledgers = await self._links.ask_metadata(LEDGERS, pb.LedgersRequest(topic=topic))
                last = await self._links.ask_owner(
                    topic,
                    LAST_MESSAGE,
                    lambda route: LastMessageRequest(
                        topic=topic, topic_id=route.topic_id, owner_epoch_seen=route.owner_epoch
                    ),
                )
            except TopicNotFound:
                if isinstance(self._topics, Pattern) or topic not in self._topics:
                    return None
                raise
        earliest = ledgers.ledgers[0].first_base_index if ledgers.ledgers else 0
        return TopicState(
            topic, TopicId(ledgers.topic_id), earliest, max(earliest, last.next_index), closed_of(ledgers.ledgers)
        )

    async def _number_at_time(self, state: TopicState, time_ms: int) -> int:
        """Of the first message appended at or after the time; the end where there is none."""
        entries = await self._first_entries(state, StartTime(time_ms))
        return peek_header(entries[0]).base_index if entries else state.next

    async def _first_entries(self, state: TopicState, place: StartIndex | StartTime) -> Sequence[Buffer]:
        """Those of one frame of the owner, through takeovers; none: nothing is there yet."""

        async def ask(_again: bool) -> Sequence[Buffer]:
            route = await self._links.look_up(state.topic)
            stream = self._links.channel(route.owner_address).stream(READ)
            start = ReaderStart(state.topic, state.topic_id, place, OwnerEpoch(route.owner_epoch))
            try:
                # A permit of one byte lets exactly one frame through.
                await stream.write(ReadControl(start, 1))
                async for frame in stream:
                    if frame.error is not None:
                        raise frame.error
                    return frame.entries
            finally:
                stream.cancel()
            raise NotOwner(f"the owner of {state.topic} has ended the stream")

        return await persist(ask, timeout_ms=self._links.patience_ms, what=f"the owner of {state.topic}")


def closed_of(ledgers: Iterable[pb.TopicLedger]) -> tuple[ClosedLedger, ...]:
    """Those that need no owner: CLOSED, and with a successor, which says where their numbers end."""
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
