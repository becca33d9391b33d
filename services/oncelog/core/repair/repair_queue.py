"""What to repair next: all listed ledgers, judged when something about them changes.

    record, list, node or damage changes -> the ledger is assessed anew -> NOTHING | ROLL | REPAIR
    REPAIR --QueueTicked, fewest copies first--> running --RepairEnded--> assessed anew, or a retry later
    ROLL   --QueueTicked--> AskOwnerToRoll, or PlaceTopic without a live owner; again after a while

Rules
- There is no record of this queue. Every replica derives the same one from ledger records, topics, registrations,
  cookies and reports of damage.
- Retired, draining and damaged members count at once, absent ones after a delay (hazard flapping-node). Ledgers that
  are not CLOSED are left to their owners, and what no topic or cursor lists is not touched (58).
- Nothing begins while a registered process has a version below 2 (80).
- A ledger that still needs work after a repair waits: a few seconds at first, a minute at most. It is tried again at
  once when something changes that the repair depended on: a node that it waits for registers or answers again, its
  record is changed by another writer, or the damage in it changes. A change during a repair makes the next pause a
  short one. Without any change a STUCK repair has nothing new to find, so it is tried again after all others.
- An event costs as much as the ledgers that it concerns; a tick as much as what is due. What concerns all ledgers of a
  node makes them due: some are assessed at once, and while there are more (`behind`), nothing begins.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import islice
from typing import ClassVar, assert_never

from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.ids import Incarnation, LedgerId, TopicId
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.core.ledger.storage_nodes import NodeView, StorageNodes
from oncelog.core.repair.assessment import Assessment, Need, assess
from oncelog.core.repair.events import RepairFinished, RepairJob, RepairResult
from oncelog.core.repair.ledger_sets import CopyCounts, LedgerSets, RepairCounts
from oncelog.core.repair.queue_events import (
    AskOwnerToRoll,
    AssessmentsDue,
    ChainRecorded,
    ClusterSeen,
    DamageReported,
    LedgerRecorded,
    LedgerRemoved,
    PlaceTopic,
    QueueEffect,
    QueueEvent,
    QueueTicked,
    RepairAsked,
    RepairEnded,
    RepairSettings,
    StartRepair,
)

#: Added to the rank of a repair that has nothing new to find.
_AFTER_OTHERS = 1 << 16

# --- the machine ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Known:
    """One listed ledger."""

    record: LedgerMetadata
    assessment: Assessment
    #: the end of its last repair
    last: RepairFinished | None = None
    attempts: int = 0
    retry_at_ms: int = 0
    #: whether something changed since the last repair began
    changed: bool = False
    #: when to ask for a roll again, and the pause after that
    roll_at_ms: int = 0
    roll_pause_ms: int = 0
    asked: bool = False
    #: where it is in the queue; None while it is not in it
    rank: int | None = None
    #: retired members whose copies count as debt
    copyable: tuple[Incarnation, ...] = ()


@dataclass(slots=True)
class _Chain:
    ledgers: tuple[LedgerId, ...]
    owner: Incarnation | None
    purpose: LedgerPurpose


class RepairQueue:
    """The repairer's view of the cluster."""

    settings_class: ClassVar[type[RepairSettings]] = RepairSettings

    def __init__(self, settings: RepairSettings | None = None) -> None:
        self.settings = settings or self.settings_class()
        self.nodes = StorageNodes()
        self.ledgers = LedgerSets()
        self.copies = CopyCounts()
        self.running: dict[LedgerId, RepairJob] = {}
        self._owners: dict[Incarnation, None] = {}
        self._seen = False
        self._now_ms = 0
        #: {ledger: (record, version)}
        self._records: dict[LedgerId, tuple[LedgerMetadata, int]] = {}
        #: {ledger: (topic, purpose)} of every listed one, and the lists themselves
        self._listed: dict[LedgerId, tuple[TopicId, LedgerPurpose]] = {}
        self._chains: dict[tuple[TopicId, LedgerPurpose], _Chain] = {}
        #: the listed ledgers with a record
        self._known: dict[LedgerId, _Known] = {}
        self._of_node: dict[Incarnation, dict[LedgerId, None]] = {}
        #: {node that reports damage: the ledgers}
        self._damage_of: dict[Incarnation, dict[LedgerId, None]] = {}
        #: {copies: ledgers to repair now}, and those to roll
        self._ready: dict[int, dict[LedgerId, None]] = {}
        self._to_roll: dict[LedgerId, None] = {}
        #: heap of (when, ledger) of pauses
        self._pauses: list[tuple[int, LedgerId]] = []
        #: the ledgers whose last repair waits for nodes
        self._waiting: dict[LedgerId, None] = {}
        #: absent nodes whose delay has not passed yet
        self._waiting_nodes: dict[Incarnation, None] = {}
        self._long_absent: dict[Incarnation, None] = {}
        self._debts: dict[Incarnation, int] = {}
        #: {ledger to assess anew: whether it is tried again at once}
        self._due: dict[LedgerId, bool] = {}
        #: {node: until when it gets no copies of further ledgers, because it refused some}
        self._refusing: dict[Incarnation, int] = {}

    def handle(self, event: QueueEvent) -> list[QueueEffect]:
        match event:
            case LedgerRecorded():
                self._record(event.record, event.version)
            case LedgerRemoved():
                self._remove(event.ledger_id)
            case ChainRecorded():
                self._chain(event)
            case ClusterSeen():
                self._cluster(event)
            case DamageReported():
                self._damage(event)
            case RepairEnded():
                self._ended(event)
            case RepairAsked():
                self._asked(event.ledger_id)
            case AssessmentsDue():
                self._assess_due()
            case QueueTicked():
                return self._tick(event.now_ms)
            case _:
                assert_never(event)
        return []

    # --- reports ------------------------------------------------------------------------------------------------------

    @property
    def counts(self) -> RepairCounts:
        return self.ledgers.counts(queued=sum(len(ledgers) for ledgers in self._ready.values()))

    def debt(self, node: Incarnation) -> int:
        """Ledgers that name this retired directory and that live nodes could copy now, without those that are stuck."""
        return self._debts.get(node, 0)

    @property
    def lacks_records(self) -> bool:
        """Whether a list names a ledger that has no record."""
        return any(ledger_id not in self._records for ledger_id in self._listed)

    def naming(self, node: Incarnation) -> list[LedgerMetadata]:
        """The listed ledgers that name the node as a member or as joining."""
        return [self._known[n].record for n in self._of_node.get(node, ()) if n in self._known]

    def damaged(self, ledger_id: LedgerId) -> tuple[Incarnation, ...]:
        """The nodes that report damage in the ledger."""
        return tuple(node for node, ledgers in self._damage_of.items() if ledger_id in ledgers)

    def assessment(self, ledger_id: LedgerId) -> Assessment | None:
        """None for a ledger that is not listed. `unavailable` holds what the last repair found, too."""
        known = self._known.get(ledger_id)
        if known is None:
            return None
        last = known.last
        if last is None or last.result is not RepairResult.STUCK or known.assessment.unavailable:
            return known.assessment
        return replace(known.assessment, unavailable=last.unavailable, waiting_for=last.waiting_for)

    def retry_in_ms(self, ledger_id: LedgerId) -> int | None:
        """How long the ledger waits after its last repair, if nothing changes; None: it does not wait."""
        known = self._known.get(ledger_id)
        if known is None or known.assessment.need is not Need.REPAIR or known.retry_at_ms <= self._now_ms:
            return None
        return known.retry_at_ms - self._now_ms

    def record(self, ledger_id: LedgerId) -> LedgerMetadata | None:
        found = self._records.get(ledger_id)
        return None if found is None else found[0]

    # --- records and lists --------------------------------------------------------------------------------------------

    def _record(self, record: LedgerMetadata, version: int) -> None:
        before = self._records.get(record.ledger_id)
        if before is not None and (before[1] > version or (before == (record, version))):
            return
        if before is not None:
            self._unname(before[0])
        self._records[record.ledger_id] = (record, version)
        for node in _named(record):
            self._of_node.setdefault(node, {})[record.ledger_id] = None
        known = self._known.get(record.ledger_id)
        if known is not None and record.ledger_id not in self.running and not self._is_of(known.last, version):
            self._retry_now(record.ledger_id)
        self._assess(record.ledger_id)

    @staticmethod
    def _is_of(last: RepairFinished | None, version: int) -> bool:
        """Whether the repair has seen this version of the record, or written it."""
        return last is not None and last.version >= version

    def _remove(self, ledger_id: LedgerId) -> None:
        before = self._records.pop(ledger_id, None)
        if before is not None:
            self._unname(before[0])
        self._assess(ledger_id)

    def _unname(self, record: LedgerMetadata) -> None:
        for node in _named(record):
            self._of_node.get(node, {}).pop(record.ledger_id, None)

    def _chain(self, event: ChainRecorded) -> None:
        key = (event.topic_id, event.purpose)
        before = self._chains.get(key)
        listed = dict.fromkeys(event.ledgers)
        former = dict.fromkeys(before.ledgers) if before is not None else {}
        if listed:
            self._chains[key] = _Chain(event.ledgers, event.owner, event.purpose)
        else:
            self._chains.pop(key, None)
        for ledger_id in former:
            if ledger_id not in listed:
                self._listed.pop(ledger_id, None)
                self._assess(ledger_id)
        for ledger_id in listed:
            if ledger_id not in former:
                self._listed[ledger_id] = key
                self._assess(ledger_id)

    # --- nodes and damage ---------------------------------------------------------------------------------------------

    def _cluster(self, event: ClusterSeen) -> None:
        before = self.nodes
        self._now_ms = max(self._now_ms, event.now_ms)
        self._owners = dict.fromkeys(event.owners)
        self._seen = True
        views = [self._dated(view, before) for view in event.nodes]
        self.nodes = StorageNodes(views, now_ms=self._now_ms, absent_delay_ms=self.settings.absent_delay_ms)
        absent = [v.incarnation for v in views if v.may_return]
        self._long_absent = {node: None for node in absent if node in self._long_absent}
        self._waiting_nodes = {node: None for node in absent if node not in self._long_absent}
        changed = [v.incarnation for v in views if self._differs(before.views.get(v.incarnation), v)]
        changed += [node for node in before.views if node not in self.nodes.views]
        arrived = any(self.nodes[node].registered and not before[node].registered for node in changed)
        answering = {node: None for node, view in self.nodes.views.items() if view.answers and not before[node].answers}
        concerned: dict[LedgerId, None] = {}
        for node in changed:
            concerned.update(self._of_node.get(node, {}))
        if before.targets != self.nodes.targets:
            concerned.update(self._of_nodes_to_replace())
        if arrived:
            # A node that registers may hold what was lost, or what a repair had no source for (hazard lost-too-early).
            for ledger_id in (*self.ledgers.lost, *self.ledgers.stuck):
                self._known[ledger_id].asked = True
                concerned[ledger_id] = None
        concerned.update(self._waiting_for(answering))
        self._due |= dict.fromkeys(concerned, True)
        self._assess_due()

    @staticmethod
    def _differs(before: NodeView | None, view: NodeView) -> bool:
        """Whether the ledgers of the node are to be assessed again. Silence alone does not change what they need."""
        return before is None or replace(before, silent=view.silent) != view

    def _waiting_for(self, nodes: Mapping[Incarnation, None]) -> dict[LedgerId, None]:
        """The ledgers whose last repair waits for one of the nodes."""
        lasts = {ledger_id: self._known[ledger_id].last for ledger_id in self._waiting} if nodes else {}
        return {
            ledger_id: None
            for ledger_id, last in lasts.items()
            if last is not None and any(node in nodes for node in last.waiting_for)
        }

    def _dated(self, view: NodeView, before: StorageNodes) -> NodeView:
        if view.registered:
            return replace(view, absent_since_ms=None)
        since = before[view.incarnation].absent_since_ms
        return replace(view, absent_since_ms=self._now_ms if since is None else since)

    def _of_nodes_to_replace(self) -> dict[LedgerId, None]:
        """The ledgers that may wait for a node that can take a copy."""
        return {
            n: None for node in self.nodes.views if self.nodes.to_replace(node) for n in self._of_node.get(node, ())
        }

    def _damage(self, event: DamageReported) -> None:
        before, now = self._damage_of.pop(event.node, {}), dict.fromkeys(event.ledgers)
        if now:
            self._damage_of[event.node] = now
        self._due |= {ledger: True for ledger in (*before, *now) if (ledger in before) != (ledger in now)}
        self._assess_due()

    # --- assessment ---------------------------------------------------------------------------------------------------

    @property
    def behind(self) -> bool:
        """Whether ledgers are to be assessed yet. The caller then gives others a turn, and AssessmentsDue."""
        return bool(self._due)

    def _assess_due(self) -> None:
        for ledger_id in list(islice(self._due, self.settings.assessed_at_once)):
            if self._due.pop(ledger_id):
                self._retry_now(ledger_id)
            self._assess(ledger_id)

    def _assess(self, ledger_id: LedgerId) -> None:
        record, known = self.record(ledger_id), self._known.get(ledger_id)
        if known is not None:
            self._forget(ledger_id, known)
        if record is None or ledger_id not in self._listed:
            self._known.pop(ledger_id, None)
            return
        avoid = {node: None for node, until in self._refusing.items() if until > self._now_ms}
        assessment = assess(record, self.nodes, self.damaged(ledger_id), avoid=avoid)
        if known is None:
            known = self._known[ledger_id] = _Known(record, assessment)
        known.record, known.assessment = record, assessment
        if known.asked and assessment.job is None and assessment.need is Need.NOTHING:
            known.assessment = replace(assessment, need=Need.REPAIR, job=RepairJob(ledger_id))
        if known.assessment.need is Need.NOTHING:
            known.attempts = 0
        self._file(ledger_id, known)

    def _file(self, ledger_id: LedgerId, known: _Known) -> None:
        """Put the ledger into every set that it belongs to."""
        assessment, sets = known.assessment, self.ledgers
        self.copies.count(known.record, assessment, 1)
        stuck = known.last is not None and known.last.result is RepairResult.STUCK
        if known.last is not None and known.last.waiting_for:
            self._waiting[ledger_id] = None
        for kind, belongs in (
            (sets.under_replicated, assessment.under_replicated),
            (sets.unproved, known.record.state is LedgerState.CLOSED and not known.record.verified),
            (sets.unavailable, bool(assessment.unavailable) or stuck),
            (sets.lost, bool(known.record.lost)),
            (sets.frozen, known.record.frozen),
            (sets.stuck, stuck),
        ):
            if belongs:
                kind[ledger_id] = None
        # What the last repair found no source for, live nodes cannot copy: no node may wait for it (hazard
        # update-waits-for-copies).
        unrepairable = known.last is not None and known.last.result in (RepairResult.STUCK, RepairResult.LOST)
        known.copyable = () if unrepairable else assessment.copyable
        for node in known.copyable:
            self._debts[node] = self._debts.get(node, 0) + 1
        if assessment.need is Need.ROLL:
            self._to_roll[ledger_id] = None
        elif assessment.need is Need.REPAIR and ledger_id not in self.running and known.retry_at_ms <= self._now_ms:
            # Fewest copies first; what an operator asked for comes before everything.
            late = _AFTER_OTHERS if stuck and known.attempts else 0
            known.rank = -1 if known.asked else assessment.copies + late
            self._ready.setdefault(known.rank, {})[ledger_id] = None

    def _forget(self, ledger_id: LedgerId, known: _Known) -> None:
        """Take the ledger out of every set."""
        sets = self.ledgers
        self.copies.count(known.record, known.assessment, -1)
        kinds = (sets.under_replicated, sets.unproved, sets.unavailable, sets.lost, sets.frozen, sets.stuck)
        for kind in (*kinds, self._to_roll, self._waiting):
            kind.pop(ledger_id, None)
        for node in known.copyable:
            self._debts[node] -= 1
        if known.rank is not None:
            self._ready.get(known.rank, {}).pop(ledger_id, None)
            known.rank = None

    def _retry_now(self, ledger_id: LedgerId) -> None:
        known = self._known.get(ledger_id)
        if known is not None:
            known.attempts, known.retry_at_ms, known.changed = 0, 0, True

    def _asked(self, ledger_id: LedgerId) -> None:
        known = self._known.get(ledger_id)
        if known is not None:
            known.asked = True
            self._retry_now(ledger_id)
            self._assess(ledger_id)

    # --- ticks --------------------------------------------------------------------------------------------------------

    def _tick(self, now_ms: int) -> list[QueueEffect]:
        self._now_ms = max(self._now_ms, now_ms)
        if self._due:
            return []
        self.nodes = StorageNodes(
            self.nodes.views.values(), now_ms=self._now_ms, absent_delay_ms=self.settings.absent_delay_ms
        )
        for node in list(self._waiting_nodes):
            if self.nodes.long_absent(node):
                del self._waiting_nodes[node]
                self._long_absent[node] = None
                self._due |= dict.fromkeys(self._of_node.get(node, ()), False)
                self._assess_due()
        while self._pauses and self._pauses[0][0] <= self._now_ms:
            self._assess(heappop(self._pauses)[1])
        accepting = [node for node, until in self._refusing.items() if until <= self._now_ms]
        for node in accepting:
            del self._refusing[node]
        if accepting:
            self._due |= dict.fromkeys(self._of_nodes_to_replace(), False)
            self._assess_due()
        if self._due or not self._seen:
            return []
        effects: list[QueueEffect] = [*self._rolls()]
        while len(self.running) < self.settings.jobs_max and self._bytes_running() < self.settings.jobs_bytes_max:
            job = self._next_job()
            if job is None:
                break
            self.running[job.ledger_id] = job
            effects.append(StartRepair(job))
        return effects

    def _bytes_running(self) -> int:
        """What the running repairs hold in memory at most. Many small ledgers fit, so that their calls and writes share
        the disks' syncs; of large ones a few keep the limit of bytes per second used."""
        records = (self._records.get(ledger_id) for ledger_id in self.running)
        return sum(min(known[0].length, self.settings.job_bytes_max) for known in records if known is not None)

    def _next_job(self) -> RepairJob | None:
        for rank in sorted(self._ready):
            while self._ready[rank]:
                ledger_id = next(iter(self._ready[rank]))
                self._assess(ledger_id)  # its target may have refused another copy by now
                known = self._known[ledger_id]
                if known.rank == rank and known.assessment.job is not None:
                    del self._ready[rank][ledger_id]
                    known.rank, known.asked, known.changed = None, False, False
                    return known.assessment.job
            del self._ready[rank]
        return None

    def _rolls(self) -> Iterable[AskOwnerToRoll | PlaceTopic]:
        """Ask for each open ledger, with pauses that double: from the second request on the topic is handed over, and
        where that does not end the ledger, a hand-over every few seconds would keep the topic from its producers."""
        for ledger_id in self._to_roll:
            known = self._known[ledger_id]
            if known.roll_at_ms > self._now_ms:
                continue
            known.roll_at_ms = self._now_ms + (known.roll_pause_ms or self.settings.roll_retry_ms)
            known.roll_pause_ms = min(2 * (known.roll_at_ms - self._now_ms), self.settings.roll_retry_max_ms)
            topic_id, purpose = self._listed[ledger_id]
            owner = self._owner_of(topic_id)
            if owner is None:
                yield PlaceTopic(topic_id)
            else:
                yield AskOwnerToRoll(topic_id, owner, purpose, ledger_id)

    def _owner_of(self, topic_id: TopicId) -> Incarnation | None:
        """The live owner of the topic, as the record of its log names it."""
        chain = self._chains.get((topic_id, LedgerPurpose.LOG))
        owner = None if chain is None else chain.owner
        return owner if owner in self._owners else None

    def _ended(self, event: RepairEnded) -> None:
        finished, ledger_id = event.finished, event.finished.ledger_id
        self._now_ms = max(self._now_ms, event.now_ms)
        if finished.record is not None:
            self._record(finished.record, finished.version)
        self.running.pop(ledger_id, None)
        known, stored = self._known.get(ledger_id), self._records.get(ledger_id)
        if known is not None and stored is not None:
            known.last = finished
            if known.changed or (finished.record is not None and stored[1] > finished.version):
                known.attempts = 0
            # A ledger that still needs work after a repair waits, so that it does not run again and again.
            known.retry_at_ms = self._now_ms + self._pause_ms(finished.result, known.attempts)
            known.attempts += 1
            heappush(self._pauses, (known.retry_at_ms, ledger_id))
        if finished.result is RepairResult.TARGET_REFUSED:
            for node in finished.waiting_for:
                self._refusing[node] = self._now_ms + self.settings.retry_max_ms
        self._assess(ledger_id)

    def _pause_ms(self, result: RepairResult, attempts: int) -> int:
        """The repairs that wait begin one after another, at most jobs_max at a time, so the pause needs no jitter."""
        if result is RepairResult.LOST:
            return self.settings.lost_retry_ms
        return min(self.settings.retry_ms << min(attempts, 20), self.settings.retry_max_ms)


def _named(record: LedgerMetadata) -> tuple[Incarnation, ...]:
    return record.members if record.joining is None else (*record.members, record.joining)
