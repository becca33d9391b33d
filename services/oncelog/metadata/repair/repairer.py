"""The repairer of one replica. The elected one keeps the queue current, runs its jobs and writes the progress.

The election is a hint. Every decision is a compare-and-set on a record, so two repairers at once do each other's work
and harm nothing; a replica that loses the election stops at once.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from oncelog.core.errors import Conflict, CorruptEntry, NotFound, OncelogError, StoreUnavailable
from oncelog.core.ids import LedgerId, TopicId
from oncelog.core.ledger.metadata import EntryRange, LedgerState
from oncelog.core.ledger.storage_nodes import NodeState
from oncelog.core.repair.events import RepairFinished, RepairJob, RepairResult
from oncelog.core.repair.queue_events import (
    AskOwnerToRoll,
    PlaceTopic,
    QueueEffect,
    QueueTicked,
    RepairAsked,
    RepairEnded,
    StartRepair,
)
from oncelog.metadata.repair.cluster_watch import ClusterWatch
from oncelog.metadata.repair.decommission import Decommissions
from oncelog.metadata.repair.ledger_repairer import LedgerRepairer, RepairParts
from oncelog.metadata.repair.unlisted_records import UnlistedRecords
from oncelog.metadata_store.records.repair_store import (
    SAMPLE_MS,
    SAMPLES_MAX,
    STUCK_MAX,
    RepairProgress,
    RepairSample,
    RepairStore,
    RunningRepair,
    StuckRepair,
)
from oncelog.runtime.tasks import BackgroundTasks
from oncelog.runtime.telemetry import Reading

logger = logging.getLogger(__name__)

#: The span over which the rate of copying is measured.
RATE_S = 10.0
#: Rounds after which a progress that did not change is written again, as a sign of life. Each write costs an fsync on
#: every ZooKeeper server.
IDLE_ROUNDS = 10


class PlacesTopics(Protocol):
    """The part of Placements that repair needs."""

    async def place(self, topic_id: TopicId) -> object:
        """Place the topic if it has no live owner."""

    async def unload(self, topic_id: TopicId) -> None:
        """Make its owner close the topic, and place it again."""


@dataclass(frozen=True, slots=True)
class RepairerParts:
    watch: ClusterWatch
    repairs: RepairParts
    decommissions: Decommissions
    unlisted: UnlistedRecords
    store: RepairStore
    placements: PlacesTopics


class Repairer:
    """`run` lives as long as the process; `close` ends it."""

    def __init__(self, parts: RepairerParts, *, interval_ms: int, now_ms: Callable[[], int]) -> None:
        self._parts = parts
        self._interval_ms = interval_ms
        self._now_ms = now_ms
        self._tasks = BackgroundTasks()
        #: {ledger: its repair}, of the queue; and those that an operator asked this replica for
        self._running: dict[LedgerId, tuple[LedgerRepairer, asyncio.Task[None]]] = {}
        self._asked: dict[LedgerId, LedgerRepairer] = {}
        #: {ledger: how often its owner was asked to roll}
        self._rolls: dict[LedgerId, int] = {}
        #: {stuck ledger: (why, since when)}
        self._stuck: dict[LedgerId, StuckRepair] = {}
        #: since when a ledger needs repair, ms since 1970
        self._needed_since: dict[LedgerId, int] = {}
        self._rates: deque[tuple[float, int]] = deque()
        #: None: the samples of the replica that was elected before are not read yet
        self._history: deque[RepairSample] | None = None
        self.progress = RepairProgress()
        #: the progress that was written last, and the rounds since then in which it did not change
        self._written: RepairProgress | None = None
        self._idle_rounds = 0
        self.repaired_ledgers = 0
        #: name of this replica while it is elected
        self.elected_as: str | None = None

    async def run(self, elected: Callable[[], str | None]) -> None:
        """Repair while elected; never returns. elected: the name of this replica if it is elected, else None."""
        while True:
            self.elected_as = elected()
            if self.elected_as is None:
                self._stop()
            else:
                try:
                    await self.round()
                except StoreUnavailable as error:
                    logger.info("could not look for ledgers to repair; will retry: %s", error.message)
            await asyncio.sleep(self._interval_ms / 1000)

    async def round(self) -> None:
        """Look once, begin what is due, and write the progress if it is due. Raises StoreUnavailable."""
        watch, parts = self._parts.watch, self._parts
        seen = await watch.refresh()
        for repair, _ in self._running.values():
            repair.nodes_changed(seen.nodes)
        self._tick()
        queue = watch.queue
        moved = seen.nodes.in_state(NodeState.RETIRED, NodeState.DRAINING)
        await parts.decommissions.write_debts(seen, {node: queue.debt(node) for node in moved})
        await parts.decommissions.finish_drained(watch)
        for topic_id in await parts.unlisted.look(watch.unlisted):
            self._perform(PlaceTopic(topic_id))
        if self._history is None:
            self._history = await self._former_history()
        self.progress = self._progress(self._history)
        await self._write_progress()
        await parts.decommissions.write_emptied(seen, watch.is_emptied)

    async def repair_now(self, ledger_id: LedgerId) -> None:
        """Repair a ledger at once, at this replica. Raises NotFound, Conflict, StoreUnavailable."""
        watch = self._parts.watch
        seen = await watch.refresh()
        record = watch.queue.record(ledger_id)
        if record is None:
            raise NotFound(f"ledger {ledger_id} does not exist: list the ledgers", ledger_id=ledger_id)
        if record.state is not LedgerState.CLOSED:
            raise Conflict(
                f"ledger {ledger_id} is {record.state.value}: it can be repaired once its topic owner has closed it",
                ledger_id=ledger_id,
            )
        watch.queue.handle(RepairAsked(ledger_id))
        if self.elected_as is not None:
            self._tick()
        elif ledger_id not in self._asked:
            assessment = watch.queue.assessment(ledger_id)
            job = assessment.job if assessment is not None else None
            repair = LedgerRepairer(job or RepairJob(ledger_id), seen.nodes, self._parts.repairs, wall_ms=wall_ms)
            self._asked[ledger_id] = repair
            self._tasks.start(self._run_asked(ledger_id, repair), what="a repair that an operator asked for")

    async def close(self) -> None:
        await self._tasks.close()

    @property
    def busy(self) -> bool:
        """Whether a ledger is being repaired here."""
        return bool(self._running or self._asked)

    def readings(self, read: Callable[[RepairProgress], int]) -> list[Reading]:
        """A level for the metrics; none unless this replica is elected and has looked once."""
        return [Reading(read(self.progress))] if self.elected_as is not None and self.progress.updated_ms else []

    def oldest_readings(self) -> list[Reading]:
        """Seconds since the ledger that waits longest needs repair."""
        return self.readings(lambda p: max(wall_ms() - p.oldest_ms, 0) // 1000 if p.oldest_ms else 0)

    # --- work ---------------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        for effect in self._parts.watch.queue.handle(QueueTicked(self._now_ms())):
            self._perform(effect)

    def _perform(self, effect: QueueEffect) -> None:
        if isinstance(effect, StartRepair):
            job = effect.job
            repair = LedgerRepairer(job, self._parts.watch.seen.nodes, self._parts.repairs, wall_ms=wall_ms)
            task = self._tasks.start(self._repair(job, repair), what="the repair of a ledger")
            self._running[job.ledger_id] = (repair, task)
        else:
            self._tasks.start(self._end_open_ledger(effect), what="asking for the end of an open ledger")

    async def _repair(self, job: RepairJob, repair: LedgerRepairer) -> None:
        finished = RepairFinished(job.ledger_id, RepairResult.CONFLICT)
        try:
            finished = await repair.run()
        finally:
            self._running.pop(job.ledger_id, None)
            self._parts.watch.queue.handle(RepairEnded(finished, self._now_ms()))
        self._note(finished, repair)
        if self.elected_as is not None:
            self._tick()

    async def _run_asked(self, ledger_id: LedgerId, repair: LedgerRepairer) -> None:
        try:
            self._note(await repair.run(), repair)
        finally:
            self._asked.pop(ledger_id, None)

    def _note(self, finished: RepairFinished, repair: LedgerRepairer) -> None:
        ledger_id, record = finished.ledger_id, finished.record
        done = finished.result in (RepairResult.WHOLE, RepairResult.LOST)
        self.repaired_ledgers += done
        if finished.result is RepairResult.STUCK and record is not None:
            ranges = _text_of(finished.unavailable)
            waiting = ", ".join(finished.waiting_for)
            reason = f"entries {ranges} have no sound copy at a live storage node; " + (
                f"waiting for {waiting}" if waiting else "no member is absent: repair reads the copies again"
            )
            since_ms = self._stuck[ledger_id].since_ms if ledger_id in self._stuck else wall_ms()
            self._stuck[ledger_id] = StuckRepair(ledger_id, record.topic_id, reason, since_ms)
        else:
            self._stuck.pop(ledger_id, None)
        fields = {
            "ledger_id": ledger_id,
            "result": finished.result.value,
            "entries_copied": repair.core.entries_copied,
            "ms": wall_ms() - repair.began_ms,
            "waiting_for": ",".join(finished.waiting_for),
            "retry_in_ms": self._parts.watch.queue.retry_in_ms(ledger_id),
        }
        if finished.unavailable:
            fields["unavailable"] = _text_of(finished.unavailable)
        level = logging.INFO if done else logging.WARNING
        logger.log(level, "the repair of a ledger has ended", extra={"fields": fields})

    async def _end_open_ledger(self, effect: AskOwnerToRoll | PlaceTopic) -> None:
        """An owner rolls by itself when a member is absent or retired and another node is live. It does not notice
        the damage of a member to which it sends nothing, so from the second request on the topic is handed over."""
        try:
            if isinstance(effect, PlaceTopic):
                await self._parts.placements.place(effect.topic_id)
                return
            asked = self._rolls[effect.ledger_id] = self._rolls.get(effect.ledger_id, 0) + 1
            if asked > 1:
                fields = {"topic_id": effect.topic_id, "ledger_id": effect.ledger_id, "purpose": effect.purpose.value}
                logger.info("handing a topic over, to end a ledger that needs repair", extra={"fields": fields})
                await self._parts.placements.unload(effect.topic_id)
        except OncelogError as error:
            logger.info("could not end an open ledger that needs repair; will retry: %s", error.message)

    def _stop(self) -> None:
        """This replica is not elected any more."""
        self._written = self._history = None
        for _, task in self._running.values():
            task.cancel()
        self.progress = RepairProgress()
        self._rolls.clear()
        self._rates.clear()
        self._needed_since.clear()

    # --- progress -----------------------------------------------------------------------------------------------------

    async def _write_progress(self) -> None:
        """Write it if it has changed, or was not written for IDLE_ROUNDS. Raises StoreUnavailable."""
        known = self._written is not None and self._written == replace(
            self.progress, updated_ms=self._written.updated_ms
        )
        self._idle_rounds = self._idle_rounds + 1 if known else 0
        if self._idle_rounds % IDLE_ROUNDS == 0:
            await self._parts.store.write(self.progress)
            self._written = self.progress

    async def _former_history(self) -> deque[RepairSample]:
        """Raises StoreUnavailable."""
        try:
            former = await self._parts.store.read()
        except CorruptEntry as error:
            logger.warning("the history of repair begins anew: %s", error.message)
            former = None
        return deque(() if former is None else former.history, maxlen=SAMPLES_MAX)

    def _progress(self, history: deque[RepairSample]) -> RepairProgress:
        watch, requests = self._parts.watch, self._parts.repairs.requests
        queue, counts, now_ms = watch.queue, watch.queue.counts, wall_ms()
        needed = {*queue.ledgers.under_replicated, *queue.ledgers.stuck, *self._running}
        self._needed_since = {ledger: self._needed_since.get(ledger, now_ms) for ledger in needed}
        self._rolls = {ledger: count for ledger, count in self._rolls.items() if ledger in needed}
        self._stuck = {ledger: stuck for ledger, stuck in self._stuck.items() if ledger in queue.ledgers.stuck}
        now_s = time.monotonic()
        self._rates.append((now_s, requests.copied_bytes))
        while len(self._rates) > 2 and self._rates[1][0] <= now_s - RATE_S:
            self._rates.popleft()
        (since_s, before), (until_s, copied) = self._rates[0], self._rates[-1]
        entries, left_bytes = _entries_by_copies(queue.copies.entries), queue.copies.left_bytes
        if not history or abs(now_ms - history[-1].at_ms) >= SAMPLE_MS:
            history.append(RepairSample(now_ms, left_bytes, entries))
        return RepairProgress(
            replica=self.elected_as or "",
            updated_ms=now_ms,
            under_replicated=counts.under_replicated,
            unavailable=counts.unavailable,
            lost=counts.lost,
            frozen=counts.frozen,
            queued=counts.queued,
            debt=sum(map(queue.debt, watch.seen.nodes.in_state(NodeState.RETIRED, NodeState.DRAINING))),
            oldest_ms=min(self._needed_since.values(), default=0),
            bytes_per_s=int((copied - before) / (until_s - since_s)) if until_s > since_s else 0,
            repaired_bytes=requests.copied_bytes,
            repaired_entries=requests.copied_entries,
            repaired_ledgers=self.repaired_ledgers,
            running=tuple(_running(repair) for repair, _ in self._running.values()),
            stuck=tuple(list(self._stuck.values())[:STUCK_MAX]),
            left_bytes=left_bytes,
            entries_by_copies=entries,
            history=tuple(history),
        )


def _entries_by_copies(counts: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(
        counts.get(copies, 0) for copies in range(max((n for n, count in counts.items() if count), default=-1) + 1)
    )


def _running(repair: LedgerRepairer) -> RunningRepair:
    record = repair.core.record
    return RunningRepair(
        repair.core.job.ledger_id,
        record.topic_id if record is not None else TopicId(""),
        repair.step,
        repair.core.next_entry,
        repair.core.entries_total,
        repair.began_ms,
    )


def _text_of(ranges: Sequence[EntryRange]) -> str:
    return ", ".join(f"{each.first} to {each.last}" for each in ranges[:5])


def wall_ms() -> int:
    """Milliseconds since 1970, for reports."""
    return int(time.time() * 1000)
