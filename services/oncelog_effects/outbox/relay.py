"""`oncelog relay`: performs what `core.outbox.relay` decides.

Each connection to the database is a session with a claim of its own. Every effect is a task of the session; when the
session ends, its tasks are cancelled and its producers are closed, and what they had under way is compared later.
"""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from oncelog.core.errors import EffectsError, InvalidArgument, OncelogError, ProducerFenced, StoreUnavailable
from oncelog.runtime.backoff import Backoff
from oncelog.runtime.exception_groups import leaves_of
from oncelog_effects.core.outbox import events
from oncelog_effects.core.outbox.relay import OutboxRelay
from oncelog_effects.core.outbox.streams import LogMessage
from oncelog_effects.outbox.database import Backlog, ClaimLost, OutboxDatabase
from oncelog_effects.outbox.log import OpenLog, StreamLog

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class RelayCounts:
    """Since the start of the process. backlog: of the last renewal."""

    sent: int = 0
    refused: int = 0
    claims: int = 0
    stored_before: int = 0
    backlog: Backlog = field(default_factory=lambda: Backlog(0, 0.0, 0))


class _SessionEnded(Exception):
    """The connection is of no use any more."""


class RelayProcess:
    """One relay. Standby relays are the same; they wait for the claim."""

    def __init__(self, open_log: OpenLog, database: OutboxDatabase, core: OutboxRelay) -> None:
        self.core = core
        self.counts = RelayCounts()
        self.trouble = ""
        self._waits = False
        self._make_log = open_log
        self._database = database
        self._log: StreamLog | None = None
        self._events: asyncio.Queue[events.RelayEvent] = asyncio.Queue()
        self._timers: dict[events.TimerKind, asyncio.TimerHandle] = {}
        self._performers: dict[type[Any], Callable[[Any], Awaitable[events.RelayEvent]]] = {
            events.ClaimOutbox: self._claim,
            events.RenewClaim: self._renew,
            events.FindPartitions: self._find_partitions,
            events.OpenStream: self._open,
            events.CreateStream: self._create_stream,
            events.ReadLog: self._read_log,
            events.LookAtRows: self._look,
            events.NumberRows: self._number,
            events.SendRows: self._send,
            events.ConfirmRows: self._confirm,
            events.PruneRows: self._prune,
        }

    async def run(self) -> None:
        """Until it is cancelled. Raises what contradicts the log, and what makes the database useless."""
        backoff = Backoff(forget_after_s=10)
        try:
            while True:
                try:
                    await self._session()
                except (_SessionEnded, StoreUnavailable) as error:
                    self.trouble = str(error)
                    logger.warning("the relay begins again at the claim: %s", self.trouble)
                await backoff.pause()
        finally:
            await self._database.close()

    async def _session(self) -> None:
        """One connection. Raises _SessionEnded, StoreUnavailable, and what ends the relay."""
        claim = uuid.uuid4().hex
        try:
            await self._database.connect()
            self._log = self._make_log(self._database.outbox_id, self._database.tables.name)
            self._events = asyncio.Queue()
            self._events.put_nowait(events.Connected(claim))
            async with asyncio.TaskGroup() as tasks:
                while True:
                    event = await self._events.get()
                    for effect in self.core.handle(event):
                        self._begin(tasks, effect)
        except BaseExceptionGroup as errors:
            raise min(leaves_of(errors), key=lambda error: isinstance(error, _SessionEnded)) from None
        finally:
            await asyncio.shield(self._end(claim))

    async def _end(self, claim: str) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self.core.handle(events.Disconnected(claim))
        if self._log is not None:
            await self._log.close_all()
        try:
            await self._database.release(claim)
        except StoreUnavailable:
            pass  # the lease runs out
        await self._database.disconnect()

    def _begin(self, tasks: asyncio.TaskGroup, effect: events.RelayEffect) -> None:
        """Raises the error that ends the relay."""
        match effect:
            case events.StartTimer():
                self._start_timer(effect)
            case events.Stop():
                raise effect.error
            case events.CloseStreams():
                pass  # the end of the session closes them
            case _:
                tasks.create_task(self._perform(effect))

    async def _perform(self, effect: events.RelayEffect) -> None:
        try:
            event = await self._performers[type(effect)](effect)
        except ClaimLost:
            raise _SessionEnded("another relay has the claim") from None
        self._events.put_nowait(event)

    def _start_timer(self, effect: events.StartTimer) -> None:
        former = self._timers.pop(effect.kind, None)
        if former is not None:
            former.cancel()
        fired = events.TimerFired(effect.claim, effect.kind)
        loop = asyncio.get_running_loop()
        self._timers[effect.kind] = loop.call_later(effect.after_ms / 1000, self._events.put_nowait, fired)

    # --- database -----------------------------------------------------------------------------------------------------

    async def _claim(self, effect: events.ClaimOutbox) -> events.RelayEvent:
        found = await self._database.claim(effect.claim)
        if found is None:
            if not self._waits:
                logger.info("another relay has the claim of %s: this one waits", self._database.tables.name)
            self._waits = True
            return events.ClaimRefused(effect.claim)
        self._waits = False
        self.counts.claims += 1
        self.trouble = ""
        logger.info("claimed the outbox %s in %s", self._database.tables.name, self._database.place)
        return events.OutboxClaimed(effect.claim, *found)

    async def _renew(self, effect: events.RenewClaim) -> events.RelayEvent:
        self.counts.backlog = await self._database.renew(effect.claim)
        return events.ClaimRenewed(effect.claim)

    async def _create_stream(self, effect: events.CreateStream) -> events.RelayEvent:
        stream = await self._database.create_stream(effect.claim, effect.topic, effect.topic_id)
        return events.StreamCreated(effect.claim, stream)

    async def _look(self, effect: events.LookAtRows) -> events.RelayEvent:
        return events.RowsSeen(effect.claim, await self._database.look(effect.count, effect.except_topics))

    async def _number(self, effect: events.NumberRows) -> events.RelayEvent:
        written = await self._database.number(effect.claim, effect.assigned, effect.refused)
        if written:
            self.counts.refused += len(effect.refused)
            for refused in effect.refused:
                logger.error("row %d of the outbox can never be sent: %s", refused.row, refused.reason)
        return events.RowsNumbered(effect.claim, written)

    async def _confirm(self, effect: events.ConfirmRows) -> events.RelayEvent:
        await self._database.confirm(effect.claim, effect.stream, effect.up_to, effect.message_id)
        return events.RowsConfirmed(effect.claim, effect.topic)

    async def _prune(self, effect: events.PruneRows) -> events.RelayEvent:
        return events.RowsPruned(effect.claim, await self._database.prune(effect.claim, effect.count))

    # --- log ----------------------------------------------------------------------------------------------------------

    @property
    def _open_log(self) -> StreamLog:
        assert self._log is not None
        return self._log

    async def _find_partitions(self, effect: events.FindPartitions) -> events.RelayEvent:
        try:
            return events.PartitionsFound(effect.claim, effect.topic, await self._open_log.partitions(effect.topic))
        except OncelogError as error:
            logger.warning("topic %s cannot be looked up now: %s", effect.topic, error)
            return events.TopicFailed(effect.claim, effect.topic, error)

    async def _open(self, effect: events.OpenStream) -> events.RelayEvent:
        try:
            return events.StreamOpened(
                effect.claim, effect.topic, effect.attempt, *await self._open_log.open(effect.topic, effect.attempt)
            )
        except OncelogError as error:
            return self._failed(effect, error)

    async def _read_log(self, effect: events.ReadLog) -> events.RelayEvent:
        found: list[LogMessage] = []
        try:
            async for messages in self._open_log.stored(effect.topic, effect.after, effect.last):
                found += messages
        except OncelogError as error:
            return self._failed(effect, error)
        self.counts.stored_before += len(found)
        return events.LogRead(effect.claim, effect.topic, effect.attempt, tuple(found))

    async def _send(self, effect: events.SendRows) -> events.RelayEvent:
        rows = await self._database.load(effect.stream, effect.first, effect.last)
        try:
            sent = await self._open_log.send(effect.topic, effect.attempt, rows)
        except OncelogError as error:
            return self._failed(effect, error)
        self.counts.sent += len(rows)
        return events.RowsSent(effect.claim, effect.topic, effect.attempt, effect.last, sent.message_id, sent.foreign)

    def _failed(
        self, effect: events.OpenStream | events.ReadLog | events.SendRows, error: OncelogError
    ) -> events.RelayEvent:
        if isinstance(error, EffectsError | InvalidArgument):
            logger.error("topic %s cannot be used: %s", effect.topic, error)
        else:
            logger.warning("topic %s cannot be used now: %s", effect.topic, error)
        return events.StreamFailed(
            effect.claim, effect.topic, effect.attempt, error, fenced=isinstance(error, ProducerFenced)
        )
