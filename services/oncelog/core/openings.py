"""Opening producers on one topic: names, generations, and who is refused.

    by name          the next generation is granted by an entry of the log, and answered when that is durable
    by a new name    first a producer id is asked for, from blocks that never repeat one
    resume, present  the same instance goes on, if its generation is still the current one

An opening waits while no ledger is open, while a grant for its producer is in flight, and, before it is refused, until
the topic record was read again: a deposed owner must not refuse anybody.
"""

from dataclasses import dataclass

from oncelog.core.dedup import DedupTable
from oncelog.core.entry import ProducerOpened
from oncelog.core.errors import (
    InvalidArgument,
    InvariantViolated,
    ModeMismatch,
    OncelogError,
    ProducerBusy,
    ProducerExpired,
    ProducerFenced,
    SessionEnded,
    UnknownProducer,
)
from oncelog.core.ids import GENERATION_MAX, NO_SEQUENCE, Generation, OwnerEpoch, ProducerId, TopicId
from oncelog.core.opening import Granted, OnConflict, ProducerInstance, ProducerOpening
from oncelog.core.sessions import ConfirmOwnership, Park, SessionEffect, Sessions
from oncelog.core.topic_log import InFlight, TopicLog


@dataclass(frozen=True, slots=True)
class AnswerOpen:
    call: int
    result: Granted | OncelogError


@dataclass(frozen=True, slots=True)
class AllocateProducerId:
    """An id never given to anyone; comes back as ProducerIdAllocated(call, …)."""

    call: int


OpeningEffect = AnswerOpen | AllocateProducerId | SessionEffect


@dataclass(slots=True)
class Opening:
    """One request to open, until it is answered. asked, confirmed: as of a session, see `sessions.Session`."""

    event: ProducerOpening
    asked: bool = False
    confirmed: bool = False
    allocating: bool = False


class Openings:
    """The requests to open that are not answered yet, and the grants they lead to."""

    def __init__(self, topic_id: TopicId, owner_epoch: OwnerEpoch, sessions: Sessions) -> None:
        self.topic_id = topic_id
        self.owner_epoch = owner_epoch
        self.sessions = sessions
        #: {call: opening}
        self.waiting: dict[int, Opening] = {}

    @property
    def log(self) -> TopicLog:
        return self.sessions.log

    @property
    def table(self) -> DedupTable:
        return self.sessions.log.table

    def open(self, event: ProducerOpening, now_ms: int) -> list[OpeningEffect]:
        self.waiting[event.call] = Opening(event)
        return self._open(self.waiting[event.call], now_ms)

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
            del self.waiting[event.call]
            return [AnswerOpen(event.call, verdict)]
        return verdict

    def _resume(self, event: ProducerOpening) -> list[OpeningEffect] | OncelogError:
        pid, generation = event.resume or event.present or ProducerInstance(ProducerId(0), Generation(0))
        if not self.table.knows(pid) or (event.name is not None and self.table.producer_id_of(event.name) != pid):
            return UnknownProducer(f"producer id {pid} is not known under this name: open by name again")
        current, durable = self.table.generation_of(pid)
        if generation > current:
            return InvalidArgument(f"generation {generation} was never granted", field="generation", limit=current)
        if not durable:
            return []
        if generation < current:
            return ProducerFenced(f"generation {current} has this producer now", current=current)
        producer = self.table.state.producers[pid]
        if producer.mode is not event.mode:
            return ModeMismatch(f"producer {producer.name!r} is {producer.mode.name.lower()}")
        del self.waiting[event.call]
        replaced = SessionEnded("the same instance opened another session")
        session, ended = self.sessions.start(producer.name, ProducerInstance(pid, current), ended=replaced)
        granted = Granted(session.number, producer.name, session.instance, producer.persisted, final=False)
        return [*ended, AnswerOpen(event.call, granted)]

    def _open_by_name(self, opening: Opening, now_ms: int) -> list[OpeningEffect] | OncelogError:
        event = opening.event
        pid = self.table.producer_id_of(event.name) if event.name is not None else None
        if event.present is not None:
            if pid != event.present.producer_id:
                return ProducerExpired(
                    "nothing is known of this producer any more, so what is pending cannot be judged"
                )
            return self._resume(event)
        if pid is None:
            if opening.allocating:
                return []
            opening.allocating = True
            return [AllocateProducerId(event.call)]
        if self.table.mode_of(pid) is not event.mode:
            return ModeMismatch(f"producer {event.name!r} is {self.table.mode_of(pid).name.lower()}")
        if event.on_conflict is OnConflict.REFUSE and self.sessions.connected(pid):
            return ProducerBusy(f"producer {event.name!r} is connected")
        generation, durable = self.table.generation_of(pid)
        if not durable:
            return []
        if generation >= GENERATION_MAX:
            return InvalidArgument(f"producer {event.name!r} has used up its generations", field="generation")
        self._grant(opening, str(event.name), pid, Generation(generation + 1), now_ms)
        return []

    def allocated(self, call: int, pid: ProducerId, now_ms: int) -> list[OpeningEffect]:
        """A new id for the opening `call`; wasted when that has gone or found its name bound meanwhile."""
        opening = self.waiting.get(call)
        if opening is None or not opening.allocating:
            return []
        opening.allocating = False
        if self.table.knows(pid):
            raise InvariantViolated(f"producer id {pid} was issued twice")
        name = opening.event.name if opening.event.name is not None else f"producer-{pid}"
        if not self.log.open or self.table.producer_id_of(name) is not None:
            return self._open(opening, now_ms)
        self._grant(opening, name, pid, Generation(1), now_ms)
        return []

    def refused(self, call: int, error: OncelogError) -> list[OpeningEffect]:
        """There is no id for the opening `call`: it fails, and nothing else does."""
        opening = self.waiting.get(call)
        if opening is None or not opening.allocating:
            return []
        del self.waiting[call]
        return [AnswerOpen(call, error)]

    def _grant(self, opening: Opening, name: str, pid: ProducerId, generation: Generation, now_ms: int) -> None:
        mark = self.table.accepted_of(pid) if self.table.knows(pid) else NO_SEQUENCE
        grant = ProducerOpened(self.topic_id, name, pid, generation, opening.event.mode, mark)
        del self.waiting[opening.event.call]
        self.log.append_grant(grant, call=opening.event.call, now_ms=now_ms)

    def settle(self, entries: list[InFlight], now_ms: int) -> list[OpeningEffect]:
        """Grants among these durable entries are answered; from here on they fence the older generations."""
        effects: list[OpeningEffect] = []
        for entry in entries:
            if entry.grant is not None and entry.call is not None:
                effects += self._granted(entry.grant, entry.call)
        if effects:
            effects += self.retry(now_ms)
            effects += self.sessions.retry(Park.GRANT, now_ms)
        return effects

    def _granted(self, grant: ProducerOpened, call: int) -> list[OpeningEffect]:
        instance = ProducerInstance(grant.producer_id, grant.generation)
        fenced = ProducerFenced(f"generation {grant.generation} has this producer now", current=grant.generation)
        session, ended = self.sessions.start(grant.name, instance, ended=fenced)
        mark = self.table.state.producers[grant.producer_id].persisted
        return [*ended, AnswerOpen(call, Granted(session.number, grant.name, instance, mark, final=True))]

    def ownership_asked(self) -> None:
        """A read of the topic record begins: it will answer for whoever waits by now, and for nobody later."""
        for opening in self.waiting.values():
            opening.asked = True
        self.sessions.ownership_asked()

    def ownership_confirmed(self, now_ms: int) -> list[OpeningEffect]:
        """The topic record still names this owner: refusals may be said to those that it was read for."""
        for opening in self.waiting.values():
            opening.confirmed = opening.confirmed or opening.asked
        return [*self.retry(now_ms), *self.sessions.ownership_confirmed(now_ms)]

    def retry(self, now_ms: int) -> list[OpeningEffect]:
        """Try everything that waits again."""
        effects: list[OpeningEffect] = []
        for opening in list(self.waiting.values()):
            effects += self._open(opening, now_ms)
        return effects

    def given_up(self, entries: list[InFlight], error: OncelogError) -> list[OpeningEffect]:
        """Grants in flight went with their ledger: whoever asked for them is told to ask again."""
        return [AnswerOpen(entry.call, error) for entry in entries if entry.call is not None]

    def refuse_all(self, error: OncelogError) -> list[OpeningEffect]:
        """Answer every opening that is still waiting."""
        calls = list(self.waiting)
        self.waiting.clear()
        return [AnswerOpen(call, error) for call in calls]
