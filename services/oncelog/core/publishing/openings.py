"""Opening producers on one topic: names, generations, and refusals.

    by name          an entry of the log grants the next generation; the answer follows when that entry is durable
    by a new name    a producer id is allocated first, from blocks that never repeat an id
    resume, present  the same instance continues, if its generation is still the current one
    a token          the client of a gateway continues in a new session, or is a new instance (`client_order`); so
                     does one without a token that has the same instance id at each gateway
    a repeat         by the instance that holds the current generation: the same grant, with a new session
    a lease          the same without a session: a new producer, the next generation, or, for who proves the current
                     one, a longer life (`expiry`). A repeat whose generation was fenced since gets the next one

A request waits while no ledger is open, while a grant for its producer is in flight, and, before it is refused, until
the topic record was read again, because a deposed owner must not refuse a request. A request that fences no other
instance also waits while the holder of the name may still come back after a takeover (see `returning`), or while it is
unknown whether the client of a gateway still holds it (see `names`). A repeat
replaces the earlier request of its instance, or becomes the recipient of the grant in flight that the earlier request
led to, so no instance ever fences itself. A request that its client withdrew grants nothing.
"""

from oncelog.core.errors import (
    InvalidArgument,
    InvariantViolated,
    OncelogError,
    ProducerExpired,
    SessionEnded,
    UnknownProducer,
)
from oncelog.core.formats.entry import ProducerOpened
from oncelog.core.formats.opening import (
    GatewayClient,
    Granted,
    Lease,
    Leased,
    OnConflict,
    ProducerInstance,
    ProducerOpening,
)
from oncelog.core.formats.producers_aged import ProducersAged, Renewal
from oncelog.core.ids import GENERATION_MAX, Generation, OwnerEpoch, ProducerId, TopicId
from oncelog.core.policies.topic_policies import TopicPolicies
from oncelog.core.publishing import opening_errors
from oncelog.core.publishing.client_order import SessionClient, TokenVerdict
from oncelog.core.publishing.dedup_state import assigned_name
from oncelog.core.publishing.dedup_table import DedupTable
from oncelog.core.publishing.expiry import Presence, ProducerExpiry
from oncelog.core.publishing.held_names import HeldNames
from oncelog.core.publishing.log import InFlight, TopicLog
from oncelog.core.publishing.opening_queue import GrantsInFlight, Opening, OpeningQueue, superseded
from oncelog.core.publishing.opening_rules import OpeningRules, address_of, client_of
from oncelog.core.publishing.producer_ids import ProducerIds
from oncelog.core.publishing.reconnect_grace import ReconnectGrace
from oncelog.core.publishing.sessions import BlockedOn, Sessions
from oncelog.core.topic_events.effects import AnswerOpen, SessionFenced, Step
from oncelog.core.topic_events.events import NameHeld, OpeningAbandoned, ProducerIdAllocated, ProducerIdRefused


class Openings:
    """The requests to open that have no answer yet, and the grants that they lead to."""

    def __init__(
        self,
        step: Step,
        topic_id: TopicId,
        owner_epoch: OwnerEpoch,
        sessions: Sessions,
        policies: TopicPolicies,
    ) -> None:
        self._step = step
        self.topic_id = topic_id
        self.owner_epoch = owner_epoch
        self.sessions = sessions
        self.waiting = OpeningQueue()
        self.granting = GrantsInFlight()
        self.returning = ReconnectGrace(owner_epoch, names_known=bool(sessions.log.table.state.producers))
        self.names = HeldNames(step, owner_epoch)
        self.rules = OpeningRules(topic_id, sessions, self.names)
        presence = Presence(sessions.connected, self.returning.awaits, sessions.left)
        self.expiry = ProducerExpiry(step, sessions.log, presence, policies.lifetimes)
        self.caps = policies.caps
        self.ids = ProducerIds(step)

    @property
    def log(self) -> TopicLog:
        return self.sessions.log

    @property
    def table(self) -> DedupTable:
        return self.sessions.log.table

    @property
    def producers_count(self) -> int:
        """Those that are known, and those that are being opened."""
        return len(self.table.state.producers) + self.granting.new_count + len(self.ids.needing)

    def follow(self, policies: TopicPolicies) -> None:
        """The policies have changed, or are known now."""
        self.expiry.follow(policies.lifetimes)
        self.caps = policies.caps

    def open(self, event: ProducerOpening) -> None:
        """Answer, grant, or leave the request waiting."""
        adopted, former = self.granting.adopt(event)
        opening = None
        if not adopted:
            opening, former = self.waiting.add(event)
        if former is not None:
            self._step.emit(AnswerOpen(former, superseded()))
        if opening is not None:
            self._open(opening)
            self._holder_is_back()

    def abandoned(self, event: OpeningAbandoned) -> None:
        """The client withdrew this request, or is gone."""
        self._leave(event.call)
        self.granting.abandon(event.call)

    def _open(self, opening: Opening) -> None:
        """Answer, grant, or leave it waiting. A refusal is sent only after the topic record was read."""
        if not self.log.open:
            return
        event = opening.event
        if event.owner_epoch_seen > self.owner_epoch and not opening.confirmed:
            self._step.reads_ownership = True
            return
        if event.lease is not None:
            error = self._lease(opening, event.lease)
        else:
            error = self._resume(event) if event.resume is not None else self._open_by_name(opening)
        if error is None:
            return
        if not opening.confirmed:
            self._step.reads_ownership = True
            return
        self._leave(event.call)
        self._step.emit(AnswerOpen(event.call, error))

    def _leave(self, call: int) -> None:
        """Remove the request from those that wait."""
        opening = self.waiting.remove(call)
        if opening is not None:
            self.ids.left(opening)
            self.names.left(opening)

    # --- the same instance again --------------------------------------------------------------------------------------

    def _resume(self, event: ProducerOpening) -> OncelogError | None:
        """Returns why it is refused; None: it is answered, or waits."""
        pid, generation = event.resume or event.present or ProducerInstance(ProducerId(0), Generation(0))
        if not self.table.knows(pid) or (event.name is not None and self.table.producer_id_of(event.name) != pid):
            return UnknownProducer(f"producer id {pid} is not known under this name: open by name again")
        current, durable = self.table.generation_of(pid)
        if generation > current:
            return InvalidArgument(f"generation {generation} was never granted", field="generation", limit=current)
        if not durable:
            return None
        if (foreign := self.rules.foreign(event, pid)) is not None:
            return foreign
        if generation < current:
            return self.rules.fenced(pid, generation, current)
        producer = self.table.state.producers[pid]
        if (late := self.rules.late(event, pid)) is not None:
            return late
        if event.client is None and producer.instance_id != event.instance_id and not producer.lifetime_ms:
            return opening_errors.fenced_by(current)  # what a gateway presents proves it as well
        if producer.mode is not event.mode:
            return opening_errors.mode_mismatch(producer.name, producer.mode)
        self._go_on(event, pid, final=False)
        return None

    def _go_on(self, event: ProducerOpening, pid: ProducerId, *, final: bool) -> None:
        """A new session of the instance that holds the current generation."""
        self._leave(event.call)
        producer = self.table.state.producers[pid]
        instance = ProducerInstance(pid, producer.generation)
        ended = self.rules.superseding(event, pid) or SessionEnded("the same instance opened another session")
        client = client_of(event.client, event.instance_id)
        self._grant_session(event.call, producer.name, instance, ended, final=final, peer=event.peer, client=client)

    # --- clients of gateways ------------------------------------------------------------------------------------------

    def _come_back(self, opening: Opening, pid: ProducerId, granted: Generation) -> OncelogError | None:
        """A client proves that it was granted this generation. Returns why it is refused; None: answered, or waits."""
        event = opening.event
        if (foreign := self.rules.foreign(event, pid)) is not None:
            return foreign
        current, durable = self.table.generation_of(pid)
        if not durable:
            return None
        if granted < current:
            return self.rules.fenced(pid, granted, current)
        if (late := self.rules.late(event, pid)) is not None:
            return late
        if self.table.mode_of(pid) is not event.mode:
            return opening_errors.mode_mismatch(event.name, self.table.mode_of(pid))
        if self.table.settled(pid):
            self._go_on(event, pid, final=True)
            return None
        superseded = self.rules.superseding(event, pid)
        if superseded is not None:  # it must send nothing more
            self.sessions.end_of(pid, superseded)
        self.names.settles(opening, pid)
        return None

    def name_held(self, event: NameHeld) -> None:
        """A gateway says that its client is there."""
        session = self.sessions.open_sessions.get(event.session)
        if session is not None:
            self.names.held(session)

    def end_step(self) -> None:
        """Try again what waits for a name about whose holder something has changed."""
        while self.names.changed or self.sessions.parted:
            for session, keeps_name in self.sessions.take_parted():
                self.names.ends(session, keeps_name=keeps_name)
            changed = self.names.take_changed()
            for opening in self.waiting if changed else ():
                pid = self.rules.producer_id_of(opening.event)
                if pid in changed:
                    opening.holder = changed[pid] or opening.holder
                    self._open(opening)

    # --- by name ------------------------------------------------------------------------------------------------------

    def _open_by_name(self, opening: Opening) -> OncelogError | None:
        """Returns why it is refused; None: it is answered, granted, or waits."""
        event = opening.event
        pid = self.rules.producer_id_of(event)
        if event.present is not None:
            if pid != event.present.producer_id:
                return ProducerExpired(
                    "the log has forgotten this producer, so its pending batches cannot be checked: open a new producer"
                )
            return self._resume(event)
        token = None if event.client is None else event.client.token
        if token is not None:
            verdict = self.rules.verdict_on(token, pid)
            if verdict is TokenVerdict.NEWER and not opening.confirmed:
                self._step.reads_ownership = True
                return None
            if pid is not None and verdict not in (TokenVerdict.NEWER, TokenVerdict.OF_ANOTHER):
                return self._come_back(opening, pid, token.generation)
        if pid is None:
            return self._bind(opening)
        self.ids.left(opening)
        if (foreign := self.rules.foreign(event, pid)) is not None:
            return foreign
        if self.table.mode_of(pid) is not event.mode:
            return opening_errors.mode_mismatch(event.name, self.table.mode_of(pid))
        if self.rules.holds(event, pid):
            if event.client is not None:  # another gateway may have opened it, and sent batches
                return self._come_back(opening, pid, self.table.generation_of(pid)[0])
            # A durable grant means that no older batch is in flight, and this generation has sent none.
            self._go_on(event, pid, final=self.table.settled(pid))
            return None
        if event.on_conflict is OnConflict.REFUSE:
            session = self.sessions.session_of(pid)
            there = False if session is None else self.names.is_there(session, opening)
            if there:
                return opening_errors.busy(event.name)
            if there is None or (session is None and (self.returning.awaits(pid) or self.names.keeps(pid))):
                return None
        generation, durable = self.table.generation_of(pid)
        if not durable:
            return None
        if generation >= GENERATION_MAX:
            return InvalidArgument(f"producer {event.name!r} has used up its generations", field="generation")
        self._grant(opening, str(event.name), pid, Generation(generation + 1))
        return None

    def _bind(self, opening: Opening) -> OncelogError | None:
        """Bind a new name to a free producer id, or allocate one. Returns why it gets none."""
        if self.caps is not None and opening.place not in self.ids.needing:
            refusal = self.caps.refusal(self.producers_count, opening.event.producers_elsewhere)
            if refusal is not None:
                return refusal
        while self.ids.free:
            pid = self.ids.free.popleft()
            if self.table.knows(pid):
                raise InvariantViolated(f"producer id {pid} was issued twice")
            name = opening.event.name if opening.event.name is not None else assigned_name(pid)
            if self.table.producer_id_of(name) is None:
                self._grant(opening, name, pid, Generation(1))
                return None
            # A producer chose the name that this id would get, so the id is not used.
        self.ids.need(opening)
        return None

    def allocated(self, event: ProducerIdAllocated) -> None:
        """A new id, for the first opening that needs one."""
        for opening in self.ids.allocated(event):
            if not self.ids.free:
                break
            self._open(opening)

    def refused(self, event: ProducerIdRefused) -> None:
        """No id is available: the first opening that needs one fails, and nothing else does."""
        opening = self.ids.refused(event)
        if opening is not None:
            self._leave(opening.event.call)
            self._step.emit(AnswerOpen(opening.event.call, event.error))

    # --- leases -------------------------------------------------------------------------------------------------------

    def _lease(self, opening: Opening, lease: Lease) -> OncelogError | None:
        """Returns why it is refused; None: it is answered, granted, renewed, or waits."""
        event, pid = opening.event, lease.producer_id
        if pid is None:
            pid = self.table.state.unnamed.get(event.instance_id)
            if pid is None:
                return self._bind(opening)
        if not self.table.knows(pid):
            return ProducerExpired(
                f"this topic has no producer with id {pid}: it has expired, or belongs to another topic or partition. "
                "Lease a new one"
            )
        if (foreign := self.rules.foreign(event, pid)) is not None:
            return foreign
        current, durable = self.table.generation_of(pid)
        given = lease.generation
        if given is not None and given > current:
            return InvalidArgument(f"generation {given} was never granted", field="generation", limit=current)
        if not durable:
            return None
        if given is not None and given < current:
            return self.rules.fenced(pid, given, current)
        producer = self.table.state.producers[pid]
        if given is not None:
            self._leave(event.call)
            self.expiry.begins(lease.lifetime_ms)
            renewal = Renewal(pid, current, lease.lifetime_ms)
            entry = self.log.append_aged(ProducersAged(0, (renewal,)), call=event.call)
            self.granting.renewing(entry, event.call)
            return None
        if self.rules.holds(event, pid):  # a repeat of the request that led to the grant
            self._leave(event.call)
            self._answer_lease(event.call, pid)
            return None
        if current >= GENERATION_MAX:
            return InvalidArgument(f"producer id {pid} has used up its generations", field="generation")
        self.ids.left(opening)
        self._grant(opening, producer.name, pid, Generation(current + 1))
        return None

    def _answer_lease(self, call: int, pid: ProducerId) -> None:
        producer = self.table.state.producers[pid]
        leased = Leased(
            producer.name, ProducerInstance(pid, producer.generation), producer.persisted,
            self.expiry.expires_in_ms(pid) or 0,
        )  # fmt: skip
        self._step.emit(AnswerOpen(call, leased))

    def _answer_renewal(self, call: int, renewal: Renewal) -> None:
        """The next generation may have become durable in the same step: its proof is not for the former holder."""
        current = self.table.state.producers[renewal.producer_id].generation
        if renewal.generation == current:
            self._answer_lease(call, renewal.producer_id)
        else:
            self._step.emit(AnswerOpen(call, opening_errors.fenced_by(current)))

    def _aged(self, entry: InFlight, aged: ProducersAged) -> None:
        """Time has passed by a durable entry: renewals are answered, and names of the expired are free."""
        self.granting.renewed(entry)
        for renewal in aged.renewed:
            if renewal.lifetime_ms:
                self.expiry.granted(renewal.producer_id)
            if entry.call is not None:
                self._answer_renewal(entry.call, renewal)
        for pid in aged.expired:
            self.sessions.counters_of.pop(pid, None)
            self.sessions.retry_producer(pid, BlockedOn.GRANT)
        if aged.lifetimes is not None:
            self.expiry.lifetimes_logged()
        if aged.expired and self.waiting:
            self.retry()

    # --- grants -------------------------------------------------------------------------------------------------------

    def _grant(self, opening: Opening, name: str, pid: ProducerId, generation: Generation) -> None:
        event = opening.event
        mark, growths, mode = event.initial_mark, event.growths, event.mode
        if self.table.knows(pid):
            producer = self.table.state.producers[pid]
            mark, growths, mode = self.table.accepted_of(pid), producer.growths, producer.mode
        lifetime_ms = 0 if event.lease is None else event.lease.lifetime_ms or self.expiry.new_lease_ms
        self.expiry.begins(lifetime_ms)
        grant = ProducerOpened(
            self.topic_id, name, pid, generation, mode, mark, event.instance_id, event.role, growths, lifetime_ms,
            address_of(event),
        )  # fmt: skip
        self._leave(event.call)
        self.granting.add(self.log.append_grant(grant, event), event)

    def settle(self, entries: list[InFlight]) -> None:
        """Grants among these durable entries are answered; from here on they fence the older generations."""
        grants = []
        for entry in entries:
            if entry.aged is not None:
                self._aged(entry, entry.aged)
            if entry.grant is not None:
                grants.append(entry.grant)
                self.granting.settled(entry, entry.grant)
                self._granted(entry.grant, entry.call, entry.peer, entry.client)
                if entry.grant.generation == 1 or entry.grant.lifetime_ms:
                    self.expiry.granted(entry.grant.producer_id)
        if grants:
            self._retry_after(grants)
        for opening in self.names.settling:
            self._open(opening)

    def _retry_after(self, grants: list[ProducerOpened]) -> None:
        """Try again what waits for one of these grants: not every request, because those of other producers wait for
        something else, and may be thousands."""
        names = {grant.name for grant in grants}
        pids = {grant.producer_id for grant in grants}
        instances = {grant.instance_id for grant in grants}
        for opening in self.waiting:
            event = opening.event
            held = event.resume or event.present or event.lease
            if (
                event.name in names
                or (held is not None and held.producer_id in pids)
                or (event.name is None and event.instance_id in instances)
            ):
                self._open(opening)
        self._holder_is_back()
        for pid in pids:
            self.sessions.retry_producer(pid, BlockedOn.GRANT)

    def _granted(self, grant: ProducerOpened, call: int | None, peer: str, client: GatewayClient | None) -> None:
        instance = ProducerInstance(grant.producer_id, grant.generation)
        fenced = opening_errors.fenced_by(grant.generation)
        former = self.sessions.session_of(grant.producer_id)
        if former is not None and former.instance.generation < grant.generation:
            self._step.emit(SessionFenced(grant.name, former.instance, former.peer, grant.generation, grant.role, peer))
        if call is None:
            self.sessions.fence(instance, fenced)
        elif grant.lifetime_ms:
            self.sessions.fence(instance, fenced)
            self._answer_lease(call, grant.producer_id)
        else:
            holder = client_of(client, grant.instance_id)
            self._grant_session(call, grant.name, instance, fenced, final=True, peer=peer, client=holder)

    def _grant_session(
        self, call: int, name: str, instance: ProducerInstance, ended: OncelogError, *, final: bool, peer: str,
        client: SessionClient | None,
    ) -> None:  # fmt: skip
        """Open a session. ended: for the producer's session before it."""
        pid = instance.producer_id
        self.returning.came_back(pid)
        self.names.begins(pid)
        session = self.sessions.start(name, instance, ended=ended, peer=peer, client=client)
        self.expiry.session_began(pid)
        producer = self.table.state.producers[pid]
        granted = Granted(
            session.number, name, instance, producer.persisted, final, producer.growths, client is not None
        )  # fmt: skip
        self._step.emit(AnswerOpen(call, granted))

    # --- all of them --------------------------------------------------------------------------------------------------

    def ownership_read_begun(self) -> None:
        """A read of the topic record begins. It answers for the requests that wait now, not for later ones."""
        for opening in self.waiting:
            opening.read_begun = True
        self.sessions.ownership_read_begun()

    def ownership_confirmed(self) -> None:
        """The topic record still names this owner: the requests that it was read for may be refused."""
        for opening in self.waiting:
            opening.confirmed = opening.confirmed or opening.read_begun
        self.retry()
        self.sessions.ownership_confirmed()

    def retry(self) -> None:
        """Try everything that waits again."""
        for opening in self.waiting:
            self._open(opening)
        self._holder_is_back()

    def _holder_is_back(self) -> None:
        if self.returning.take_came_back():
            self.retry()

    def ledger_failed(self, entries: list[InFlight], error: OncelogError) -> None:
        """Grants in flight are dropped with their ledger: their requests are answered with this error."""
        for entry in entries:
            if entry.grant is not None:
                self.granting.settled(entry, entry.grant)
            elif entry.aged is not None:
                self.granting.renewed(entry)
                self.expiry.failed(entry.aged)
            if entry.call is not None:
                self._step.emit(AnswerOpen(entry.call, error))

    def refuse_all(self, error: OncelogError) -> None:
        """Answer every opening that is still waiting."""
        self.ids.needing.clear()
        for event in self.waiting.take_all():
            self._step.emit(AnswerOpen(event.call, error))
