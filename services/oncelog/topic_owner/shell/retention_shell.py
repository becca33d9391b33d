"""Performs what a topic's retention needs: ends of former owners' ledgers, times of messages, comparisons of clocks,
truncations."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

from oncelog.core.delivery.events import MessagesEvicted
from oncelog.core.errors import EntriesLost, LedgerUnavailable, LogHole, StoreUnavailable, UnreadableEntry
from oncelog.core.formats.entry import peek_header
from oncelog.core.ids import LedgerId
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.topic_events.effects import (
    AnswerTruncate,
    CheckClock,
    ChunksOrphaned,
    LogTrimmed,
    PublishingSwitched,
    ReadLedgerEnds,
    ReadStoredTimes,
)
from oncelog.core.topic_events.events import (
    EndOfLedger,
    LedgerEndsRead,
    StoredTimesRead,
    TopicEvent,
    TrimBelowRequested,
    TruncateRequested,
)
from oncelog.runtime.observing.events import EventKind
from oncelog.storage_client.reader import read_entry
from oncelog.topic_owner.shell.log_view import LogView, ReadableLog
from oncelog.topic_owner.shell.owner_metrics import OwnerMetrics
from oncelog.topic_owner.shell.store_clock import StoreClock

logger = logging.getLogger(__name__)

#: Ends that are reported together.
ENDS_AT_ONCE = 64
RETRY_S = 1.0


class RetentionShell:
    """The retention of one topic."""

    def __init__(
        self,
        log: ReadableLog,
        *,
        clock: StoreClock,
        metrics: OwnerMetrics,
        timing: asyncio.Semaphore,
        post: Callable[[TopicEvent], None],
        start: Callable[[Coroutine[None, None, None]], None],
    ) -> None:
        """timing: limits reads of times, of all topics. start: begins work that ends with the topic."""
        self._log = log
        self._clock = clock
        self._counts = metrics.counts
        self._events = metrics.events
        self._timing = timing
        self._post = post
        self._start = start
        self._numbers = count(1)
        #: {call: where its answer goes}
        self._truncations: dict[int, asyncio.Future[int]] = {}
        #: {type of an effect: what performs it}
        self.performers: dict[type, Callable[[Any], None]] = {
            ReadLedgerEnds: self._read_ends,
            ReadStoredTimes: self._read_times,
            CheckClock: self._check_clock,
            AnswerTruncate: self._answer_truncate,
            LogTrimmed: self._count_trimmed,
            ChunksOrphaned: self._count_orphaned,
            MessagesEvicted: self._evicted,
            PublishingSwitched: self._publishing_switched,
        }

    async def truncate(self) -> int:
        """Delete all messages up to the present end. Returns the first index afterwards. Raises OncelogError."""
        return await self._truncated(TruncateRequested(next(self._numbers)))

    async def trim_below(self, index: int | None) -> int:
        """Delete the ledgers that have only messages below an index; None: below the durable end. Returns the first
        index afterwards. Raises OncelogError."""
        return await self._truncated(TrimBelowRequested(next(self._numbers), index))

    async def _truncated(self, event: TruncateRequested | TrimBelowRequested) -> int:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._truncations[event.call] = answer
        try:
            self._post(event)
            return await answer
        finally:
            self._truncations.pop(event.call, None)

    def _answer_truncate(self, effect: AnswerTruncate) -> None:
        answer = self._truncations.get(effect.call)
        if answer is None or answer.done():
            return
        if effect.error is None:
            answer.set_result(effect.first_index)
        else:
            answer.set_exception(effect.error)

    def _count_trimmed(self, effect: LogTrimmed) -> None:
        self._counts.trimmed_ledgers += effect.ledgers
        self._counts.trimmed_messages += effect.messages
        self._counts.trimmed_bytes += effect.message_bytes

    def _count_orphaned(self, effect: ChunksOrphaned) -> None:
        self._counts.orphaned_chunks += effect.chunks
        self._counts.orphaned_chunk_bytes += effect.value_bytes

    def _evicted(self, effect: MessagesEvicted) -> None:
        reason = effect.reason.name.lower()
        self._counts.evicted[reason] += effect.count
        self._events.note(
            EventKind.EVICTION, logger, "messages left a backlog without a consumer", level="warning", repeats=True,
            topic=self._topic, subscription=effect.subscription, reason=reason, count=effect.count,
        )  # fmt: skip

    def _publishing_switched(self, effect: PublishingSwitched) -> None:
        held = f"a backlog quota has publishing {effect.action}"
        message = "publishing is open again" if effect.action is None else held
        self._events.note(
            EventKind.QUOTA, logger, message, level="warning", repeats=True, topic=self._topic,
            subscription=effect.subscription,
        )  # fmt: skip

    @property
    def _topic(self) -> str:
        return self._log.core.ownership.record.name

    # --- clocks -------------------------------------------------------------------------------------------------------

    def _check_clock(self, _effect: CheckClock) -> None:
        self._start(self._compare_clocks())

    async def _compare_clocks(self) -> None:
        try:
            self._post(await self._clock.compare())
        except StoreUnavailable as error:
            logger.warning("the clock cannot be compared with ZooKeeper's; will retry: %s", error.message)

    # --- ends of ledgers ----------------------------------------------------------------------------------------------

    def _read_ends(self, effect: ReadLedgerEnds) -> None:
        self._start(self._ends(effect.ledger_ids))

    async def _ends(self, ledger_ids: tuple[LedgerId, ...]) -> None:
        found: list[EndOfLedger] = []
        for ledger_id in ledger_ids:
            end = await self._end_of(ledger_id)
            if end is not None:
                found.append(end)
            if len(found) >= ENDS_AT_ONCE:
                self._post(LedgerEndsRead(tuple(found)))
                found = []
        self._post(LedgerEndsRead(tuple(found)))

    async def _end_of(self, ledger_id: LedgerId) -> EndOfLedger | None:
        """Waits for members that are absent, and for a record that is missing. None: the ledger was trimmed
        meanwhile."""
        view = LogView(self._log)
        while not view.is_trimmed(ledger_id):
            try:
                metadata = await self._log.ledger(ledger_id)
                appended_ms = 0 if metadata.end < 0 else await self._appended_ms(metadata)
            except (LedgerUnavailable, LogHole) as error:
                logger.info("the age of ledger %d is not known yet: %s", ledger_id, error.message)
                await asyncio.sleep(RETRY_S)
            else:
                return EndOfLedger(ledger_id, metadata.end, metadata.length, appended_ms)
        return None

    async def _appended_ms(self, metadata: LedgerMetadata) -> int:
        log = self._log
        try:
            data = await read_entry(log.links, metadata, metadata.end, headers_only=True, record=log.record)
        except (EntriesLost, UnreadableEntry) as error:
            # Its age is not known any more. It counts from now on, so that nothing goes too early.
            logger.warning("the age of ledger %d counts from now: %s", metadata.ledger_id, error.message)
            return time.time_ns() // 1_000_000
        return peek_header(data).append_time_ms

    # --- times of messages --------------------------------------------------------------------------------------------

    def _read_times(self, effect: ReadStoredTimes) -> None:
        self._start(self._times(effect.indexes))

    async def _times(self, indexes: tuple[int, ...]) -> None:
        view = LogView(self._log)
        for index in indexes:
            async with self._timing:
                at_ms = await self._time_of(view, index)
            self._post(StoredTimesRead({index: at_ms}))

    async def _time_of(self, view: LogView, index: int) -> int | None:
        """None: it cannot be read now, or never."""
        try:
            at, metadata = await view.place_of_index(index)
            if metadata is None:
                return None
            header = peek_header(await view.entry(metadata, at.entry_id, headers_only=True))
        except (EntriesLost, LedgerUnavailable, LogHole, StoreUnavailable, UnreadableEntry) as error:
            logger.info("when message %d of %s was stored is not known yet: %s", index, self._topic, error.message)
            return None
        return header.append_time_ms if header.base_index <= index < header.next_index else None
