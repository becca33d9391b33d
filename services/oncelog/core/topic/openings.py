"""Opening producers on one topic: names, generations, and who is refused.

    by name          the next generation is granted by an entry of the log, and answered when that is durable
    by a new name    first a producer id is asked for, from blocks that never repeat one
    resume, present  the same instance goes on, if its generation is still the current one
    a repeat         of an instance that holds the current generation: the same grant again, with a new session

An opening waits while no ledger is open, while a grant for its producer is in flight, and, before it is refused, until
the topic record was read again: a deposed owner must not refuse anybody. One that fences nobody also waits while the
name's holder may still come back after a takeover, see `returning`. A repeat takes the place of its instance's
former request, or of the caller of the grant in flight that this one led to: no instance ever fences itself. A request
that its client withdrew grants nothing.

Producer ids are asked for one for each opening that needs one, and go to the openings in their order, whichever of them
asked: one whose opening has gone is kept for the next.
"""

from collections import deque
from dataclasses import dataclass

from oncelog.core.dedup.state import assigned_name
from oncelog.core.dedup.table import DedupTable
from oncelog.core.errors import (
    InvalidArgument,
    InvariantViolated,
    ModeMismatch,
    OncelogError,
    PermissionDenied,
    ProducerBusy,
    ProducerExpired,
    ProducerFenced,
    SessionEnded,
    UnknownProducer,
)
from oncelog.core.formats.entry import ProducerOpened
from oncelog.core.formats.opening import Granted, OnConflict, ProducerInstance, ProducerOpening
from oncelog.core.ids import GENERATION_MAX, NO_SEQUENCE, Generation, OwnerEpoch, ProducerId, TopicId
from oncelog.core.topic.log import InFlight, TopicLog
from oncelog.core.topic.opening_queue import GrantsInFlight, Opening, OpeningQueue, superseded
from oncelog.core.topic.returning import Returning
from oncelog.core.topic.sessions import ConfirmOwnership, Park, Session, SessionEffect, Sessions


@dataclass(frozen=True, slots=True)
class AnswerOpen:
    call: int
    result: Granted | OncelogError


@dataclass(frozen=True, slots=True)
class AllocateProducerId:
    """An id never given to anyone; comes back as ProducerIdAllocated(ask, …)."""

    ask: int


OpeningEffect = AnswerOpen | AllocateProducerId | SessionEffect


class Openings:
    """The requests to open that are not answered yet, and the grants they lead to."""

    def __init__(self, topic_id: TopicId, owner_epoch: OwnerEpoch, sessions: Sessions) -> None:
        self.topic_id = topic_id
        self.owner_epoch = owner_epoch
        self.sessions = sessions
        self.waiting = OpeningQueue()
        self.granting = GrantsInFlight()
        self.returning = Returning(owner_epoch, names_known=bool(sessions.log.table.state.producers))
        #: {place: opening} of those that wait for a producer id, in order
        self._needing: dict[int, Opening] = {}
        #: ids that nobody needed when they came
        self._free: deque[ProducerId] = deque()
        #: asks for ids that are not answered
        self._asks: dict[int, None] = {}
        self._asked = 0

    @property
    def log(self) -> TopicLog:
        return self.sessions.log

    @property
    def table(self) -> DedupTable:
        return self.sessions.log.table

    def open(self, event: ProducerOpening, now_ms: int) -> list[OpeningEffect]:
        adopted, former = self.granting.adopt(event)
        if not adopted:
            opening, former = self.waiting.add(event)
            effects = self._open(opening, now_ms) + self._holder_is_back(now_ms)
        else:
            effects = []
        return effects if former is None else [AnswerOpen(former, superseded()), *effects]

    def abandoned(self, call: int) -> None:
        """The client withdrew this request, or is gone."""
        self._leave(call)
        self.granting.abandon(call)

    def _open(self, opening: Opening, now_ms: int) -> list[OpeningEffect]:
        """Answer, grant, or leave it waiting. A refusal is said only after the topic record was read."""
        if not self.log.open:
            return []
        event = opening.event
        if event.owner_epoch_seen > self.owner_epoch and not opening.confirmed:
            return [ConfirmOwnership()]
        verdict = self._resume(event) if event.resume is not None else self._open_by_name(opening, now_ms)
        if isinstance(verdict, OncelogError):
            if not opening.confirmed:
                return [ConfirmOwnership()]
            self._leave(event.call)
            return [AnswerOpen(event.call, verdict)]
        return verdict

    def _leave(self, call: int) -> None:
        """The opening waits no more."""
        opening = self.waiting.remove(call)
        if opening is not None:
            self._needing.pop(opening.place, None)

    # --- the same instance again --------------------------------------------------------------------------------------

    def _resume(self, event: ProducerOpening) -> list[OpeningEffect] | OncelogError:
        pid, generation = event.resume or event.present or ProducerInstance(ProducerId(0), Generation(0))
        if not self.table.knows(pid) or (event.name is not None and self.table.producer_id_of(event.name) != pid):
            return UnknownProducer(f"producer id {pid} is not known under this name: open by name again")
        current, durable = self.table.generation_of(pid)
        if generation > current:
            return InvalidArgument(f"generation {generation} was never granted", field="generation", limit=current)
        if not durable:
            return []
        foreign = self._foreign(event, pid)
        if foreign is not None:
            return foreign
        if generation < current:
            return ProducerFenced(f"generation {current} has this producer now", current=current)
        producer = self.table.state.producers[pid]
        if producer.instance_id != event.instance_id:
            return ProducerFenced(f"generation {current} was granted to another instance", current=current)
        if producer.mode is not event.mode:
            return ModeMismatch(f"producer {producer.name!r} is {producer.mode.name.lower()}")
        return self._go_on(event, pid, final=False)

    def _go_on(self, event: ProducerOpening, pid: ProducerId, *, final: bool) -> list[OpeningEffect]:
        """A new session of the instance that holds the current generation."""
        self._leave(event.call)
        producer = self.table.state.producers[pid]
        instance = ProducerInstance(pid, producer.generation)
        replaced = SessionEnded("the same instance opened another session")
        session, ended = self._start(producer.name, instance, replaced)
        granted = Granted(session.number, producer.name, instance, producer.persisted, final=final)
        return [*ended, AnswerOpen(event.call, granted)]

    def _holds(self, event: ProducerOpening, pid: ProducerId) -> bool:
        """Whether this instance has the current generation, by a durable grant."""
        _, durable = self.table.generation_of(pid)
        return durable and bool(event.instance_id) and self.table.state.producers[pid].instance_id == event.instance_id

    # --- by name ------------------------------------------------------------------------------------------------------

    def _open_by_name(self, opening: Opening, now_ms: int) -> list[OpeningEffect] | OncelogError:
        event = opening.event
        pid = self._producer_id_of(event)
        if event.present is not None:
            if pid != event.present.producer_id:
                return ProducerExpired(
                    "nothing is known of this producer any more, so what is pending cannot be judged"
                )
            return self._resume(event)
        if pid is None:
            return self._bind(opening, now_ms)
        self._needing.pop(opening.place, None)
        foreign = self._foreign(event, pid)
        if foreign is not None:
            return foreign
        if self.table.mode_of(pid) is not event.mode:
            return ModeMismatch(f"producer {event.name!r} is {self.table.mode_of(pid).name.lower()}")
        if self._holds(event, pid):
            # Durable means that nothing of an older generation is in flight, and of its own there is nothing yet.
            return self._go_on(event, pid, final=self.table.settled(pid))
        if event.on_conflict is OnConflict.REFUSE:
            if self.sessions.connected(pid):
                return ProducerBusy(f"producer {event.name!r} is connected")
            if self.returning.awaits(pid):
                return []
        generation, durable = self.table.generation_of(pid)
        if not durable:
            return []
        if generation >= GENERATION_MAX:
            return InvalidArgument(f"producer {event.name!r} has used up its generations", field="generation")
        self._grant(opening, str(event.name), pid, Generation(generation + 1), now_ms)
        return []

    def _foreign(self, event: ProducerOpening, pid: ProducerId) -> PermissionDenied | None:
        """A name belongs to the first role that opened it."""
        owner = self.table.role_of(pid)
        if not owner or owner == event.role or event.takes_any_name:
            return None
        message = (
            f"producer name {event.name!r} belongs to role {owner}: choose another name, or have role {event.role} "
            "granted the right admin in the namespace"
        )
        return PermissionDenied(message, role=owner)

    def _producer_id_of(self, event: ProducerOpening) -> ProducerId | None:
        if event.name is not None:
            return self.table.producer_id_of(event.name)
        return self.table.state.unnamed.get(event.instance_id)

    def _bind(self, opening: Opening, now_ms: int) -> list[OpeningEffect]:
        """Bind a new name to a free producer id, or ask for one."""
        while self._free:
            pid = self._free.popleft()
            if self.table.knows(pid):
                raise InvariantViolated(f"producer id {pid} was issued twice")
            name = opening.event.name if opening.event.name is not None else assigned_name(pid)
            if self.table.producer_id_of(name) is None:
                self._grant(opening, name, pid, Generation(1), now_ms)
                return []
            # Somebody chose the name that this id would have: the id is wasted.
        self._needing[opening.place] = opening
        if len(self._asks) >= len(self._needing):
            return []
        self._asked += 1
        self._asks[self._asked] = None
        return [AllocateProducerId(self._asked)]

    def allocated(self, ask: int, pid: ProducerId, now_ms: int) -> list[OpeningEffect]:
        """A new id, for the first opening that needs one."""
        if ask not in self._asks:
            return []
        del self._asks[ask]
        self._free.append(pid)
        effects: list[OpeningEffect] = []
        for opening in list(self._needing.values()):
            if not self._free:
                break
            effects += self._open(opening, now_ms)
        return effects

    def refused(self, ask: int, error: OncelogError) -> list[OpeningEffect]:
        """There is no id: the first opening that needs one fails, and nothing else does."""
        if ask not in self._asks:
            return []
        del self._asks[ask]
        opening = next(iter(self._needing.values()), None)
        if opening is None:
            return []
        self._leave(opening.event.call)
        return [AnswerOpen(opening.event.call, error)]

    # --- grants -------------------------------------------------------------------------------------------------------

    def _grant(self, opening: Opening, name: str, pid: ProducerId, generation: Generation, now_ms: int) -> None:
        event = opening.event
        mark = self.table.accepted_of(pid) if self.table.knows(pid) else NO_SEQUENCE
        grant = ProducerOpened(self.topic_id, name, pid, generation, event.mode, mark, event.instance_id, event.role)
        self._leave(event.call)
        self.granting.add(self.log.append_grant(grant, call=event.call, now_ms=now_ms), event)

    def settle(self, entries: list[InFlight], now_ms: int) -> list[OpeningEffect]:
        """Grants among these durable entries are answered; from here on they fence the older generations."""
        effects: list[OpeningEffect] = []
        grants = False
        for entry in entries:
            if entry.grant is not None:
                grants = True
                self.granting.settled(entry, entry.grant)
                effects += self._granted(entry.grant, entry.call)
        if grants:
            effects += self.retry(now_ms)
            effects += self.sessions.retry(Park.GRANT, now_ms)
        return effects

    def _granted(self, grant: ProducerOpened, call: int | None) -> list[OpeningEffect]:
        instance = ProducerInstance(grant.producer_id, grant.generation)
        fenced = ProducerFenced(f"generation {grant.generation} has this producer now", current=grant.generation)
        if call is None:
            return [*self.sessions.fence(instance, fenced)]
        session, ended = self._start(grant.name, instance, fenced)
        mark = self.table.state.producers[grant.producer_id].persisted
        return [*ended, AnswerOpen(call, Granted(session.number, grant.name, instance, mark, final=True))]

    def _start(self, name: str, instance: ProducerInstance, error: OncelogError) -> tuple[Session, list[SessionEffect]]:
        self.returning.came_back(instance.producer_id)
        return self.sessions.start(name, instance, ended=error)

    # --- all of them --------------------------------------------------------------------------------------------------

    def ownership_asked(self) -> None:
        """A read of the topic record begins: it will answer for whoever waits by now, and for nobody later."""
        for opening in self.waiting:
            opening.asked = True
        self.sessions.ownership_asked()

    def ownership_confirmed(self, now_ms: int) -> list[OpeningEffect]:
        """The topic record still names this owner: refusals may be said to those that it was read for."""
        for opening in self.waiting:
            opening.confirmed = opening.confirmed or opening.asked
        return [*self.retry(now_ms), *self.sessions.ownership_confirmed(now_ms)]

    def retry(self, now_ms: int) -> list[OpeningEffect]:
        """Try everything that waits again."""
        effects: list[OpeningEffect] = []
        for opening in self.waiting:
            effects += self._open(opening, now_ms)
        return effects + self._holder_is_back(now_ms)

    def _holder_is_back(self, now_ms: int) -> list[OpeningEffect]:
        return self.retry(now_ms) if self.returning.take_news() else []

    def given_up(self, entries: list[InFlight], error: OncelogError) -> list[OpeningEffect]:
        """Grants in flight went with their ledger: whoever asked for them is told to ask again."""
        for entry in entries:
            if entry.grant is not None:
                self.granting.settled(entry, entry.grant)
        return [AnswerOpen(entry.call, error) for entry in entries if entry.call is not None]

    def refuse_all(self, error: OncelogError) -> list[OpeningEffect]:
        """Answer every opening that is still waiting."""
        self._needing.clear()
        return [AnswerOpen(event.call, error) for event in self.waiting.take_all()]
