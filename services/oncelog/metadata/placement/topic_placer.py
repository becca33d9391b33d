"""Placement of one topic (phase: acquire): performs what `core.placement.topic_placement` decides.

All requests that arrive while a round runs get the result of that round. A round waits until the store answers: reads
are repeated, a write never is.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from oncelog.core.errors import CorruptEntry, OncelogError, ServiceUnavailable, StoreUnavailable, TopicNotFound
from oncelog.core.formats.topic_record import TopicRecord
from oncelog.core.ids import TopicId
from oncelog.core.placement.topic_placement import (
    BACKOFF_MS,
    NoOwnerLive,
    NotifyOwner,
    PlacementEffect,
    PlacementRecordRead,
    PlacementRecordWritten,
    PlacementRequested,
    TopicMissing,
    TopicPlaced,
    TopicPlacement,
    UnloadRequested,
)
from oncelog.core.records.records import ABSENT_VERSION, ReadRecord, TopicKey, WriteRecord
from oncelog.core.records.status import WriteStatus
from oncelog.metadata.owners.connected_owner import now_ms
from oncelog.metadata.owners.owners import Owners, Start
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.metadata_store.session.answers import sent_once, until_answered
from oncelog.metadata_store.session.store_session import Versioned, WriteResult

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PlacementParts:
    """What the placers of all topics share. placed, notify: callbacks, called at once and in this order."""

    topics: TopicStore
    owners: Owners
    start: Start
    placed: Callable[[TopicPlaced], None]
    notify: Callable[[NotifyOwner], None]


class TopicPlacer:
    """Performs the decisions about one topic, one round at a time."""

    def __init__(self, topic_id: TopicId, parts: PlacementParts) -> None:
        self._topic_id = topic_id
        self._parts = parts
        self._core = TopicPlacement(topic_id)
        self._effects: deque[PlacementEffect] = deque()
        self._running = False
        self._waiters: list[asyncio.Future[TopicPlaced | None]] = []
        self._used_ms = 0
        #: what the next read shows, if it is known already
        self._record: Versioned[TopicRecord] | None = None

    @property
    def idle(self) -> bool:
        """No round runs, and no back-off can be active: a new placer would decide the same."""
        return not self._running and now_ms() - self._used_ms > BACKOFF_MS

    async def ask(
        self, event: PlacementRequested | UnloadRequested, record: Versioned[TopicRecord] | None = None
    ) -> TopicPlaced | None:
        """The topic's owner after the round; None: no owner can take it. Raises TopicNotFound, CorruptEntry.

        record: in place of the first read. Harmless if it is out of date: what follows is a compare-and-set on its
        version.
        """
        if self.idle:
            # The core's view of the record may be outdated, and would start a back-off long after the takeover.
            self._core = TopicPlacement(self._topic_id)
        waiter: asyncio.Future[TopicPlaced | None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._effects.extend(self._core.handle(event))
        if not self._running:
            self._running = True
            self._record = record
            self._parts.start(self._run())
        return await waiter

    async def _run(self) -> None:
        try:
            while self._effects:
                await self._perform(self._effects.popleft())
                self._core.check_invariants()
        except CorruptEntry as error:
            # Nothing can be decided. After a repair of the record, the next request starts with a new core.
            self._core = TopicPlacement(self._topic_id)
            self._effects.clear()
            self._fail(error)
        finally:
            self._running = False
            self._used_ms = now_ms()
            self._fail(ServiceUnavailable("this metadata service is stopping: retry with another one"))

    async def _perform(self, effect: PlacementEffect) -> None:
        match effect:
            case ReadRecord():
                self._effects.extend(self._core.handle(await self._read()))
            case WriteRecord():
                written = await self._write(effect)
                event = PlacementRecordWritten(self._topic_id, written.status, written.version, now_ms())
                self._effects.extend(self._core.handle(event))
            case TopicPlaced():
                self._parts.placed(effect)
                self._answer(effect)
            case NotifyOwner():
                self._parts.notify(effect)
            case NoOwnerLive():
                self._answer(None)
            case TopicMissing():
                self._fail(TopicNotFound(f"topic {self._topic_id} does not exist", topic_id=self._topic_id))
            case _:
                assert_never(effect)

    async def _read(self) -> PlacementRecordRead:
        return await until_answered("a topic record", self._read_with_owners, retried=(StoreUnavailable,))

    async def _read_with_owners(self) -> PlacementRecordRead:
        owners = self._parts.owners
        stored, self._record = self._record, None
        if stored is None:
            stored = await self._parts.topics.read(self._topic_id)
        owner = None if stored is None else stored.value.owner
        if owner is not None and owners.find(owner) is None:
            await owners.refresh()
        record, version = stored or (None, ABSENT_VERSION)
        return PlacementRecordRead(self._topic_id, record, version, owners.seen_for(owner), now_ms())

    async def _write(self, effect: WriteRecord[TopicKey, TopicRecord]) -> WriteResult:
        record = effect.value
        written = await sent_once(self._parts.topics.write(record, version=effect.version))
        fields = {"topic": record.name, "owner": record.owner, "owner_epoch": record.owner_epoch}
        done = written.status is WriteStatus.OK
        what = "topic assigned to an owner" if done else "the assignment of a topic to an owner was not confirmed"
        logger.info(what, extra={"fields": {**fields, "status": written.status.value}})
        return written

    def _answer(self, placed: TopicPlaced | None) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(placed)

    def _fail(self, error: OncelogError) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)
