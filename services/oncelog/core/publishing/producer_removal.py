"""Producers that an operator expires before their time, or deletes.

    request --refused: unknown; lives for ever; connected, or may come back, without force
       |
       v
    decided: its session ends, nothing new of it is taken --what is in flight is durable--> entry --durable--> answered

Rules
- It is an entry of the log (PRODUCERS_AGED) that says by whom, never a private decision: what one owner has forgotten,
  every later owner has forgotten.
- An entry never expires a producer of which something is in flight, and never one that another entry expires already.
  A request for such a producer is answered with the first one.
- Until the entry is durable nothing is decided about the producer: who opens its name waits, and gets a new producer.
- If the write fails, nothing was done, and the requests are answered with a retriable error. A repeat names the same
  id, which no other producer ever gets: it can never remove a producer that took the name meanwhile.
"""

from oncelog.core.delivery.events import AnswerAdmin
from oncelog.core.errors import Conflict, NotFound, OncelogError, ProducerFenced, TopicLoading
from oncelog.core.formats.producers_aged import ProducersAged
from oncelog.core.ids import ProducerId
from oncelog.core.publishing.log import InFlight
from oncelog.core.publishing.openings import Openings
from oncelog.core.topic_events.effects import Step
from oncelog.core.topic_events.events import ProducerRemovalRequested


class ProducerRemovals:
    """Of one topic at its owner, between a takeover and its end."""

    def __init__(self, step: Step, openings: Openings) -> None:
        self._step = step
        self._openings = openings
        #: {producer id: the request that decided it} of those with something in flight
        self._waiting: dict[ProducerId, ProducerRemovalRequested] = {}
        #: {producer id: calls to be answered when its entry is durable}
        self._calls: dict[ProducerId, list[int]] = {}

    def request(self, event: ProducerRemovalRequested) -> None:
        """Refuse it, or begin."""
        pid, table = event.producer_id, self._openings.table
        if pid not in self._calls:
            error = self._refusal(event)
            if error is not None:
                self._step.emit(AnswerAdmin(event.call, error))
                return
            table.removing(pid)
            self._waiting[pid] = event
        self._calls.setdefault(pid, []).append(event.call)
        self._go_on(pid)

    def _refusal(self, event: ProducerRemovalRequested) -> OncelogError | None:
        pid, openings = event.producer_id, self._openings
        table = openings.table
        if not self._openings.log.open:
            return TopicLoading("the topic opens its next ledger: try again")
        if pid not in table.state.producers:
            if table.knows(pid):
                return TopicLoading("the first opening of this producer is being stored: try again")
            return NotFound(f"this topic has no producer with id {pid}: it never had one, or it has expired")
        if table.expires(pid):
            return TopicLoading("the producer is expiring just now: try again")
        if not event.delete and not openings.expiry.lifetime_of(pid):
            return Conflict(f"producer {pid} lives for ever, so it cannot expire: delete it instead")
        if event.force:
            return None
        if openings.sessions.connected(pid) or table.in_flight(pid):
            return Conflict(f"producer {pid} is connected: stop its program first, or force it, which fences it")
        if openings.returning.awaits(pid):
            return Conflict(
                f"producer {pid} may be connected: after a takeover or a failed write its program has some seconds to "
                "come back. Ask again, or force it"
            )
        return None

    def _go_on(self, pid: ProducerId) -> None:
        """Hand the entry to the log as soon as nothing of the producer is in flight."""
        event, openings = self._waiting.get(pid), self._openings
        if event is None:
            return
        done = "deleted" if event.delete else "expired"
        generation = openings.table.state.producers[pid].generation
        # Also of a grant that was in flight when the request came.
        openings.sessions.end_of(pid, ProducerFenced(f"an operator has {done} this producer", current=generation))
        if openings.log.open and not openings.table.in_flight(pid):
            del self._waiting[pid]
            openings.log.append_aged(ProducersAged(0, (), (pid,), event.by))

    def retry(self) -> None:
        """Something became durable, or the log has opened."""
        for pid in list(self._waiting):
            self._go_on(pid)

    def settle(self, entries: list[InFlight]) -> None:
        """These entries are durable: answer the requests that they carry out."""
        for entry in entries:
            for pid in entry.aged.expired if entry.aged is not None else ():
                for call in self._calls.pop(pid, ()):
                    self._step.emit(AnswerAdmin(call))
        self.retry()

    def failed(self, error: OncelogError) -> None:
        """What was in flight was dropped, and the marks of the table with it."""
        calls, self._calls = self._calls, {}
        self._waiting.clear()
        for call in (each for of_producer in calls.values() for each in of_producer):
            self._step.emit(AnswerAdmin(call, error))
