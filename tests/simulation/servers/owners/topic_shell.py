"""The shell of one topic at one owner: performs the core's effects in the simulated cluster.

Requests to members are repeated until they are answered or their takeover is over. Frames of entries are sent once: a
frame that is lost breaks the stream to its member.
"""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast, get_args

from oncelog.core.chain.managed_ledger import AckQuorumLost, SendAdds
from oncelog.core.chain.next_ledger import ClaimLedgerId, DeleteLedgers, LedgerIdClaimed
from oncelog.core.chain.replay import ChainReplay, ReadEntries, ReplayState
from oncelog.core.delivery.events import ConsumerEffect
from oncelog.core.errors import NotOwner, ProducerBusy, TopicLoading
from oncelog.core.formats.batch import deltas_of, peek_batch
from oncelog.core.formats.entry import ProducerOpened, body_of
from oncelog.core.formats.opening import Granted, OnConflict, ProducerOpening
from oncelog.core.ids import BEFORE_ALL, LedgerId, OwnerEpoch, Position, ProducerId, SessionNumber, TopicId
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.ledger.recovery import FenceMember, RecoveryAdd, RecoveryRead
from oncelog.core.records.records import ReadRecord, RecordRead, TopicKey, WriteRecord
from oncelog.core.topic.takeover import TakeoverState
from oncelog.core.topic.topic import Phase
from oncelog.core.topic_events.effects import (
    AllocateProducerId,
    AnswerBatches,
    AnswerOpen,
    CheckClock,
    ChunksOrphaned,
    CursorRecoveryTimedOut,
    DeletePages,
    EndSession,
    ExplainDelay,
    LastAddConfirmed,
    LogTrimmed,
    NameWanted,
    NotifyDedupToggled,
    PublishingSwitched,
    ReadEntryIds,
    ReadLedgerEnds,
    Served,
    SessionFenced,
    SnapshotTaken,
    StartTopicTimer,
    TakeoverPhaseEnded,
    TopicClosed,
    TopicDeposed,
    TopicEffect,
    TopicFailed,
)
from oncelog.core.topic_events.events import (
    BatchesReceived,
    ClockChecked,
    EndOfLedger,
    EntryIdsRead,
    LedgerEndsRead,
    NameHeld,
    OpeningAbandoned,
    OpeningsDelayed,
    ProducerIdAllocated,
    ReceivedBatch,
    SessionClosed,
    TopicEvent,
    TopicTimerFired,
)
from oncelog.verify.violation import Violation
from tests.oracles.leases import Appended
from tests.simulation.clients.ack_workload import AppendChanges, ChangingTopic
from tests.simulation.consumers.messages import sound_entries
from tests.simulation.consumers.owner_end import ShellConsumers
from tests.simulation.servers.owners.member_requests import RETRY_TICKS, MemberRequests
from tests.simulation.servers.store.decoding import decode_ledger, decode_page
from tests.simulation.servers.store.ledger_lists import page_path
from tests.simulation.servers.store.records import read_record, write_record
from tests.simulation.watches.names_watch import NamesWatch

if TYPE_CHECKING:
    from tests.simulation.servers.owners.owner_server import ClientLink, OwnerServer
    from tests.simulation.watches.names_watch import GatewayLink

_CONSUMER_EFFECTS = get_args(ConsumerEffect)


class TopicShell:
    """One core.Topic and its pending requests."""

    def __init__(self, owner: "OwnerServer", topic_id: TopicId, first_session: SessionNumber) -> None:
        parts = owner.parts
        self.owner = owner
        self.topic_id = topic_id
        self.core = parts.topic_class(
            topic_id, owner.incarnation, parts.settings, parts.checksum, first_session=first_session,
            nodes=owner.storage_nodes(), dedup_enabled=parts.dedup_enabled,
        )  # fmt: skip
        if isinstance(self.core, ChangingTopic):
            self.core.recorder = parts.recorders[topic_id]()
        self.requests = MemberRequests(self)
        self.consumers = ShellConsumers(self)
        self.names = NamesWatch(self)
        #: readers may go up to here
        self.confirmed = BEFORE_ALL
        #: {session or call: its client}
        self._sessions: dict[SessionNumber, ClientLink] = {}
        self._calls: dict[int, tuple[ClientLink, ProducerOpening]] = {}
        #: when the topic began to serve, the producers that have had a session since, and those in the log before
        self._served_at = 0
        self._seen: set[ProducerId] = set()
        self._known: list[ProducerId] = []
        #: ticks of the core while its present takeover has waited for the recovery of the cursor
        self._ticks_waiting = 0
        #: the last ledger of a cursor whose recovery took too long, or was not possible
        self.passed_over_cursor: LedgerId | None = None
        #: {entry: how it was appended}; None: in a run in which no producer expires
        self._appended = parts.appended.get(topic_id)
        #: the producers that had a session at the end of the step before
        self._connected: frozenset[ProducerId] = frozenset()
        #: the newest entry that was looked at for grants
        self._looked_at = BEFORE_ALL
        #: the newest call's number, and the last effect for logs
        self._call = 0
        self.last_report = ""

    @property
    def over(self) -> bool:
        return self.core.phase in (Phase.DEPOSED, Phase.CLOSED)

    @property
    def epoch(self) -> OwnerEpoch:
        return self.core.ownership.epoch

    # --- what comes in ------------------------------------------------------------------------------------------------

    def open(self, link: "ClientLink", opening: ProducerOpening) -> None:
        self._call += 1
        self._calls[self._call] = (link, opening)
        self.names.asks(self._call)
        self.handle(replace(opening, call=self._call))

    def withdraw(self, link: "ClientLink", call: int) -> None:
        """The client's request of this number, if it is not answered yet."""
        for mine, (other, opening) in list(self._calls.items()):
            if other is link and opening.call == call:
                del self._calls[mine]
                self.handle(OpeningAbandoned(mine))

    def receive(self, session: SessionNumber, batches: list[ReceivedBatch]) -> None:
        self.handle(BatchesReceived([(session, batches)]))

    def close_session(self, session: SessionNumber, *, keeps_name: bool = False) -> None:
        self._sessions.pop(session, None)
        self.names.closes(session, keeps_name=keeps_name)
        self.handle(SessionClosed(session, keeps_name))

    def hold_name(self, session: SessionNumber) -> None:
        self.names.held(session)
        self.handle(NameHeld(session))

    def link_broken(self, link: "ClientLink") -> None:
        for session in [s for s, other in self._sessions.items() if other is link]:
            self.close_session(session, keeps_name=True)
            if not self.owner.alive:
                return
        for call in [call for call, (other, _) in self._calls.items() if other is link]:
            del self._calls[call]
            self.handle(OpeningAbandoned(call))
            if not self.owner.alive:
                return

    def handle(self, event: TopicEvent | AppendChanges) -> None:
        """One step of the core, and its effects; a process may crash between two of them."""
        snapshots = None if self.core.takeover is None else self.core.takeover.snapshots
        recovery = None if snapshots is None else snapshots.recovery
        effects = self.core.handle(event, now_ms=self.owner.now_ms)  # type: ignore[arg-type]
        if snapshots is not None and recovery is not None:
            self._check_passed_over(snapshots, recovery.ledger_id)
        consumption = self.owner.parts.consumption.get(self.topic_id)
        if consumption is not None:
            consumption.stepped(self)
        self._check_grants()
        if self._appended is not None and self.core.serving is not None:
            self._connected = frozenset(self.core.serving.sessions.producer_ids)
        self._check_cursor_timeout(event)
        for effect in effects:
            self._perform(effect)
            if self.owner.burn():
                return
        self.core.check_invariants()
        self.owner.parts.watch(self.owner, self)

    def _check_passed_over(self, snapshots: ChainReplay, ledger_id: LedgerId) -> None:
        """Whether the takeover goes on without this ledger, which it has begun to recover."""
        goes_on = snapshots.state not in (ReplayState.RECOVERING, ReplayState.FAILED)
        if goes_on and snapshots.recovery is None and snapshots.end is None:
            self.passed_over_cursor = ledger_id

    def _check_cursor_timeout(self, event: TopicEvent | AppendChanges) -> None:
        """No takeover waits for its snapshot longer than it may.

        Counted in ticks of the core: they and the timer reach a process that was paused in the same order as others.
        """
        takeover = self.core.takeover
        if takeover is None or takeover.state is not TakeoverState.CURSOR:
            self._ticks_waiting = 0
        elif event == TopicTimerFired("tick"):
            self._ticks_waiting += 1
        settings = self.owner.parts.settings
        if self._ticks_waiting > settings.cursor_timeout_ms // settings.tick_ms + 2:
            raise Violation("cursor timeout", f"a takeover has waited {self._ticks_waiting} ticks for its snapshot")

    def _check_grants(self) -> None:
        """A grant is appended only for an instance that still waits for it. When each entry is appended is noted."""
        log = self.core.serving.log if self.core.serving is not None else None
        if log is None or not log.in_flight:
            return
        newest = log.in_flight[-1].header.position
        if newest <= self._looked_at:
            return
        for entry in reversed(log.in_flight):
            if entry.header.position <= self._looked_at:
                break
            if self._appended is not None:
                self._appended[entry.position] = Appended(self.owner.world.now, self._connected)
            if entry.grant is not None:
                self._check_grant(entry.grant)
        self._looked_at = newest

    def _check_grant(self, grant: ProducerOpened) -> None:
        wishes = [opening for _, opening in self._calls.values() if opening.instance_id == grant.instance_id]
        if not wishes:
            raise Violation("abandoned openings", f"{grant} is appended for a request that its client withdrew")
        if grant.generation == 1 or wishes[-1].on_conflict is not OnConflict.REFUSE:
            return
        self.owner.world.count("name taken without fencing")
        self.names.check_grant(grant)
        early = self.owner.world.now < self._served_at + self.owner.parts.settings.return_grace_ms
        if early and grant.producer_id in self._known and grant.producer_id not in self._seen:
            raise Violation(
                "holders may return",
                f"{grant} is appended {self.owner.world.now - self._served_at} ticks "
                "after the takeover, and its holder had no time to come back",
            )

    # --- effects ------------------------------------------------------------------------------------------------------

    def _perform(self, effect: TopicEffect) -> None:
        match effect:
            case NameWanted(session):
                self.names.wanted(session)
                link = self._sessions.get(session)
                if link is not None:  # only sessions for clients of gateways are wanted
                    cast("GatewayLink", link).wanted(session)
            case SendAdds():
                self.requests.send_adds(effect)
            case AnswerBatches() | AnswerOpen() | EndSession():
                self._answer(effect)
            case FenceMember():
                self.requests.fence(effect)
            case RecoveryRead():
                self.requests.recovery_read(effect)
            case RecoveryAdd():
                self.requests.recovery_add(effect)
            case ReadEntries():
                self.requests.read_entries(effect)
            case ReadEntryIds(position):
                self._read_ids(position)
            case ClaimLedgerId(purpose):
                self.owner.ledger_ids.want(lambda n: self.handle(LedgerIdClaimed(purpose, LedgerId(n))))
            case AllocateProducerId(allocation):
                self.owner.producer_ids.want(lambda n: self.handle(ProducerIdAllocated(allocation, ProducerId(n))))
            case ExplainDelay():
                self.owner.world.count("openings delayed")
                delayed = OpeningsDelayed(TopicLoading("the topic does not serve"))
                self.owner.post(1, "explains a delay", lambda: self.handle(delayed))
            case StartTopicTimer(key, after_ms):
                self.owner.post(after_ms, f"timer {key}", lambda: self.handle(TopicTimerFired(key)))
            case ReadRecord():
                read_record(self.owner.store, self.owner, effect, self._record_read)
            case WriteRecord():
                self._write(effect)
            case ReadLedgerEnds(ledger_ids):
                self.owner.post(1, "reads ends of ledgers", lambda: self._read_ends(ledger_ids))
            case CheckClock():
                checked = ClockChecked(self.owner.now_ms, self.owner.parts.true_ms)
                self.owner.post(5, "checks its clock", lambda: self.handle(checked))
            case DeletePages(below):
                self._delete_pages(below)
            case DeleteLedgers(ledger_ids):
                for ledger_id in ledger_ids:
                    self.owner.world.count("ledger deleted")
                    self.owner.store.remove(f"ledgers/{ledger_id}")
            case _ if isinstance(effect, _CONSUMER_EFFECTS):
                self.consumers.perform(effect)
            case _:
                self._report(effect)

    def _report(self, effect: TopicEffect) -> None:
        world = self.owner.world
        match effect:
            case LastAddConfirmed(position):
                self.confirmed = max(self.confirmed, position)
            case NotifyDedupToggled():
                pass  # only clients are notified
            case Served(log_end):
                world.count("takeover")
                self.names = NamesWatch(self)
                self._served_at, self._seen = world.now, set()
                self._known = list(self.core.serving.log.table.state.producers) if self.core.serving else []
                self.confirmed = max(self.confirmed, log_end)
            case (
                CursorRecoveryTimedOut()
                | TakeoverPhaseEnded()
                | SnapshotTaken()
                | AckQuorumLost()
                | TopicFailed()
                | TopicDeposed()
                | TopicClosed()
                | LogTrimmed()
                | ChunksOrphaned()
                | PublishingSwitched()
                | SessionFenced()
            ):
                world.count(type(effect).__name__)
                if isinstance(effect, SnapshotTaken) and effect.evicted:
                    world.count("batches forgotten")
                self.last_report = str(effect)
                if isinstance(effect, TopicClosed):
                    self.owner.closed(self)
            case _:
                raise AssertionError(f"no performer for {effect}")

    def _answer(self, effect: AnswerBatches | AnswerOpen | EndSession) -> None:
        if isinstance(effect, AnswerBatches):
            for session in dict.fromkeys(answer.session for answer in effect.answers):
                if session in self._sessions:
                    answers = [(a.request, a.result) for a in effect.answers if a.session == session]
                    self._sessions[session].answered(session, answers, self.epoch)
        elif isinstance(effect, EndSession):
            self.owner.world.count(f"session ended: {effect.error.code}")
            link = self._sessions.pop(effect.session, None)
            if link is not None:
                link.ended(effect.session, effect.error, self.epoch)
        elif effect.call in self._calls:
            link, opening = self._calls.pop(effect.call)
            if isinstance(effect.result, ProducerBusy):
                self.names.check_busy(effect.call, opening)
            granted = isinstance(effect.result, Granted)
            epoch = OwnerEpoch(0) if isinstance(effect.result, NotOwner) else self.epoch
            if isinstance(effect.result, Granted):
                session = effect.result.session
                self._sessions[session] = link
                self._seen.add(effect.result.instance.producer_id)
                self.names.granted(effect.result.instance.producer_id)
                if not link.stream.open:
                    close = partial(self.close_session, session, keeps_name=True)
                    self.owner.post(1, "closes a session without a client", close)
            if granted or epoch or isinstance(effect.result, NotOwner):
                link.opened(AnswerOpen(opening.call, effect.result), epoch)

    # --- the store ----------------------------------------------------------------------------------------------------

    def _delete_pages(self, below: LedgerId) -> None:
        """The pages below the floor, also those that a crash has left, after the records of their ledgers."""
        store = self.owner.store
        for name in sorted(map(int, store.children(f"pages/{self.topic_id}"))):
            path = page_path(self.topic_id, LedgerId(name))
            data, _ = store.get(path)
            page = None if data is None else decode_page(data)
            if page is not None and page.ledgers[-1].ledger_id < below:
                self.owner.world.count("page deleted")
                for ledger in page.ledgers:
                    store.remove(f"ledgers/{ledger.ledger_id}")
                store.remove(path)

    def _record_read(self, event: RecordRead[Any, Any]) -> None:
        """A topic was deleted if its record is missing and the store's era has not ended."""
        if event.value is None and isinstance(event.key, TopicKey):
            self.requests.until_era_is_proved(lambda: self.handle(event))
        else:
            self.handle(event)

    def _read_ends(self, ledger_ids: tuple[LedgerId, ...]) -> None:
        """A last entry that cannot be read counts as new. A record that is missing is looked for again."""
        ends: list[EndOfLedger] = []
        missing: list[LedgerId] = []
        for ledger_id in ledger_ids:
            data, _ = self.owner.store.get(f"ledgers/{ledger_id}")
            metadata = None if data is None else decode_ledger(data)
            if metadata is not None:
                last = sound_entries(self.owner.parts, ledger_id, metadata.end, metadata.end)
                ended_ms = last[0][0].append_time_ms if last else self.owner.now_ms
                ends.append(EndOfLedger(ledger_id, metadata.end, metadata.length, ended_ms))
            elif ledger_id >= self.core.ownership.record.deleted_below:
                missing.append(ledger_id)
        if missing and not self.over:
            again = tuple(missing)
            self.owner.post(RETRY_TICKS[1], "reads ends of ledgers again", lambda: self._read_ends(again))
        self.handle(LedgerEndsRead(tuple(ends)))

    def _write(self, effect: WriteRecord[Any, Any]) -> None:
        write_record(self.owner.store, self.owner, effect, self.handle)

    def _read_ids(self, position: Position) -> None:
        """The ids of a stored batch: its ledger's record names the members that hold the entry."""
        serving = self.core.serving

        def bytes_read(data: bytes) -> None:
            body = body_of(data)
            header = peek_batch(body)
            self.handle(EntryIdsRead(position, header, bytes(deltas_of(header, body))))

        def not_read(*, has_record: bool) -> None:
            def give_up() -> None:
                if self.core.serving is serving:
                    self.handle(EntryIdsRead(position, None, b"", has_record))

            self.owner.post(RETRY_TICKS[1], "gives up an entry's ids", give_up)

        def ledger_read(data: bytes | None, _version: int) -> None:
            if data is not None:
                metadata: LedgerMetadata = decode_ledger(data)
                self.requests.read_entry(
                    metadata, position.entry_id, bytes_read, lambda: self.core.serving is serving,
                    lambda: not_read(has_record=True),
                )  # fmt: skip
            else:
                self.owner.world.count("ids of an entry whose ledger has no record")
                not_read(has_record=False)

        self.owner.world.count("ids read from an entry")
        self.owner.store.read(self.owner, f"ledgers/{position.ledger_id}", ledger_read)
