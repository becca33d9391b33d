"""A door's process: connections of clients of Pulsar, and producers on them. The cores of the doors decide; here their
effects are performed, as by `oncelog_doors.pulsar.home`, `connection` and `producer_slot`.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, assert_never

from oncelog.client.network.epochs import OwnerEpochs
from oncelog.core.errors import OncelogError, SessionSuperseded
from oncelog.core.formats.opening import ProducerInstance
from oncelog.core.ids import SequenceId, TopicId
from oncelog.verify.violation import Violation
from oncelog_doors.core.pulsar.due_refusals import DueRefusals, addressee
from oncelog_doors.core.pulsar.liveness import Drop, Liveness, LivenessEffect, SayAlive, WritePing
from oncelog_doors.core.pulsar.openings import (
    AskOwner,
    OpeningEffect,
    ProducerOpening,
    ProducerRequest,
    Refuse,
    Succeed,
)
from oncelog_doors.core.pulsar.send_budget import (
    BudgetEffect,
    DropProducer,
    ProducerKey,
    ReadAgain,
    SendBudget,
    SendLimits,
    StopReading,
)
from oncelog_doors.core.pulsar.sends import CloseProducer, SendEffect, Sends, WriteReceipt, WriteSendError
from oncelog_doors.core.pulsar.verdicts import Rejected, Verdict
from oncelog_doors.log_client.client_entries import packed
from tests.simulation.clients.producer_client import ClientParts
from tests.simulation.doors.door_session import DoorSession
from tests.simulation.doors.entries import Batch
from tests.simulation.world import Process

if TYPE_CHECKING:
    from tests.simulation.doors.pulsar_client import ClientEnd, ProducerObject

_BATCH_BYTES_MAX = 1 << 20


class DoorServer(Process):
    """It keeps nothing that a crash could lose."""

    def __init__(self, parts: ClientParts, name: str, pending_bytes_max: int, budget_bytes: int) -> None:
        super().__init__(parts.world, name)
        self.parts = parts
        self.pending_bytes_max = pending_bytes_max
        self._limits = SendLimits(budget_bytes, 2 * budget_bytes, budget_bytes // 2)
        #: of connections, openings and sessions, in all lives
        self._numbers = 0
        self.connections: dict[int, DoorConnection] = {}
        self.sessions: list[DoorSession] = []

    def start(self) -> None:
        super().start()
        self.budget = SendBudget(self._limits)
        self.due = DueRefusals()
        self._tick_due: int | None = None
        #: of the SDK's client in it
        self.epochs = OwnerEpochs()

    def crash(self) -> None:
        connections, sessions = [*self.connections.values()], self.sessions
        super().crash()
        self.connections, self.sessions = {}, []
        for connection in connections:
            connection.end.stream.sever()
        for session in sessions:
            session.calls.sever()

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def accept(self, end: "ClientEnd") -> "DoorConnection":
        connection = DoorConnection(self, end, self.next_number())
        self.connections[connection.number] = connection
        return connection

    def perform_budget(self, effects: list[BudgetEffect]) -> None:
        for effect in effects:
            match effect:
                case StopReading(number):
                    self.world.count("door stops reading")
                    self.connections[number].hold()
                case ReadAgain(number):
                    self.connections[number].release()
                case DropProducer(key):
                    self.world.count("door drops a producer")
                    self.connections[key.connection].drop(key)
                case _:
                    assert_never(effect)
        self.budget.check_invariants()
        due = self.budget.next_ms
        if due is not None and due != self._tick_due:
            self._tick_due = due
            self.post(max(0, due - self.world.now), "looks at its budget", self._tick)

    def _tick(self) -> None:
        self._tick_due = None
        self.perform_budget(self.budget.tick(self.world.now))


class DoorConnection:
    """One connection of a client, as the door sees it."""

    def __init__(self, door: DoorServer, end: "ClientEnd", number: int) -> None:
        self.door, self.end, self.number = door, end, number
        self.slots: dict[int, DoorSlot] = {}
        self.closed = False
        self._liveness = Liveness(door.world.now)
        self._wanted: list[DoorSession] = []
        #: what came while nothing is read
        self._unread: deque[Callable[[], None]] = deque()
        self._held = False
        self._watches = 0
        self._watch()

    def write(self, label: str, do: Callable[[], None]) -> None:
        if not self.closed:
            self.end.stream.send(self.door, label, do)

    # --- reading ------------------------------------------------------------------------------------------------------

    def receive(self, do: Callable[[], None]) -> None:
        self._unread.append(do)
        self._read()

    def _read(self) -> None:
        while self._unread and not self._held and not self.closed:
            self._perform(self._liveness.heard(self.door.world.now))
            self._unread.popleft()()

    def hold(self) -> None:
        self._held = True
        self._perform(self._liveness.reading(False, self.door.world.now))

    def release(self) -> None:
        self._held = False
        self._perform(self._liveness.reading(True, self.door.world.now))
        self.door.post(0, "reads again", self._read)

    # --- commands -----------------------------------------------------------------------------------------------------

    def ping(self) -> None:
        self.write("PONG", self.end.heard)

    def pong(self) -> None:
        """It was heard."""

    def producer(
        self, topic_id: TopicId, producer: "ProducerObject", name: str, asked: ProducerRequest, request: int
    ) -> None:
        former = self.slots.get(producer.number)
        if former is not None:
            former.disconnected()
        slot = DoorSlot(self, topic_id, producer, name, asked, request)
        self.slots[producer.number] = slot
        slot.begin()

    def send(self, producer: int, batch: Batch) -> None:
        slot = self.slots.get(producer)
        if slot is not None:
            slot.send(batch)

    def close_producer(self, producer: int) -> None:
        slot = self.slots.get(producer)
        if slot is None:
            self.write("SUCCESS", self.end.producer_closed)
        else:
            slot.close_by_client()

    # --- life ---------------------------------------------------------------------------------------------------------

    def wanted(self, session: DoorSession) -> None:
        self._wanted.append(session)
        self._perform(self._liveness.wanted(self.door.world.now))

    def _perform(self, effects: list[LivenessEffect]) -> None:
        for effect in effects:
            match effect:
                case WritePing():
                    self.write("PING", self.end.pinged)
                    self._watch()
                case SayAlive():
                    wanted, self._wanted = self._wanted, []
                    for session in wanted:
                        session.client_lives()
                case Drop():
                    self.door.world.count("door drops a silent client")
                    self.end.stream.sever()
                    self.gone()

    def _watch(self) -> None:
        self._watches += 1
        number, door = self._watches, self.door

        def look() -> None:
            if number == self._watches and not self.closed:
                self._perform(self._liveness.tick(door.world.now))
                self._watch()

        door.post(max(1, self._liveness.next_ms - door.world.now), "looks at a connection", look)

    def drop(self, key: ProducerKey) -> None:
        for slot in [slot for slot in self.slots.values() if slot.key == key]:
            slot.drop()

    def gone(self) -> None:
        """The client has left, or the stream has broken."""
        if self.closed:
            return
        self.closed = True
        for slot in list(self.slots.values()):
            slot.disconnected()
        self.door.connections.pop(self.number, None)
        self.door.perform_budget(self.door.budget.disconnected(self.number))


class _Queued(NamedTuple):
    number: int
    batch: Batch


class DoorSlot:
    """One producer of one connection, from PRODUCER on."""

    def __init__(
        self, connection: DoorConnection, topic_id: TopicId, producer: "ProducerObject", name: str,
        asked: ProducerRequest, request: int,
    ) -> None:  # fmt: skip
        door = connection.door
        self.connection, self.door = connection, door
        self.key = ProducerKey(connection.number, door.next_number())
        self._topic_id, self._name, self._request = topic_id, name, request
        self._producer, self._epoch = producer, asked.epoch
        self._token = asked.token
        self._counts = connection.end.client.family.counts_openings
        self._opening = ProducerOpening(asked, connection.end.client.family, door.world.now)
        self._sends: Sends | None = None
        self._session: DoorSession | None = None
        self._queue: deque[_Queued] = deque()
        self._closed = False
        self._client_closes = False

    @property
    def _addressee(self) -> object:
        return addressee(self._topic_id, self._token, self.key.connection, self._producer.number)

    def begin(self) -> None:
        deadline, now = self._opening.deadline_ms, self.door.world.now
        if deadline is not None:
            self.door.post(deadline - now, "an opening is late", self._expired)
        self._perform_opening(self._opening.begin(self.door.due.take(self._addressee, now)))

    def _expired(self) -> None:
        if not self._closed:
            self._perform_opening(self._opening.expired())

    def _perform_opening(self, effects: list[OpeningEffect]) -> None:
        end = self.connection.end
        for effect in effects:
            match effect:
                case AskOwner():
                    door = self.door
                    self._session = DoorSession(door, self._topic_id, self._name, effect, self, door.next_number())
                    door.sessions.append(self._session)
                    self._session.begin()
                case Succeed(name, last, token):
                    self._token = token
                    self._sends = Sends(end.client.family)
                    answer = partial(end.opened, self._request, name, last, token, self._instance)
                    self.connection.write("PRODUCER_SUCCESS", answer)
                case Refuse(refusal):
                    self.connection.write(f"ERROR {refusal.code}", partial(end.refused, self._request, refusal))
                    self._end(gives_up_name=False)
                case _:
                    assert_never(effect)

    # --- what the session says ----------------------------------------------------------------------------------------

    def granted(self, name: str, last: SequenceId, token: int, instance: ProducerInstance) -> None:
        if not self._closed:
            self._instance = instance
            self._perform_opening(self._opening.granted(name, last, token))

    def ended(self, error: OncelogError) -> None:
        self.door.world.count(f"session of a door ended: {error.code}")
        if isinstance(error, SessionSuperseded) and self._counts and self._epoch == self._producer.epoch:
            raise Violation("superseded sessions", f"{self._epoch}, the newest opening of {self._name!r}")
        if self._closed:
            return
        if self._sends is None:
            self._perform_opening(self._opening.refused(error))
        else:
            self._perform(self._sends.ended(error))

    def wanted(self) -> None:
        if self._session is not None and not self._closed:
            self.connection.wanted(self._session)

    def room(self) -> None:
        self._hand_over()

    # --- sends --------------------------------------------------------------------------------------------------------

    def send(self, batch: Batch) -> None:
        if self._sends is None or not self._sends.takes or self._client_closes:
            self.door.world.count("SEND ignored")
            return
        number = self._sends.taken(batch.sent)
        self.door.perform_budget(self.door.budget.taken(self.key, len(batch.entry), self.door.world.now))
        self._queue.append(_Queued(number, batch))
        self._hand_over()

    def _hand_over(self) -> None:
        session = self._session
        while self._queue and session is not None and session.has_room(len(self._queue[0].batch.entry)):
            number, batch = self._queue.popleft()
            size = len(batch.entry)
            prepared = packed(
                batch.entry, batch.sent, len(batch.ids), producer_name=self._name, bytes_max=_BATCH_BYTES_MAX
            )
            if isinstance(prepared, Rejected):
                raise Violation("honest entries", f"{self._name!r}: {prepared.sentence}")
            self.door.budget.handed(self.key, size)
            session.give(batch.sent, prepared, partial(self._decided, number, size))

    def _decided(self, number: int, size: int, verdict: Verdict | None) -> None:
        if not self.door.alive:
            return
        self.door.perform_budget(self.door.budget.answered(self.key, size, self.door.world.now))
        if verdict is not None and self._sends is not None:
            self._perform(self._sends.decided(number, verdict))
            if not self._sends.takes:
                self._queue.clear()

    def _perform(self, effects: list[SendEffect]) -> None:
        end, producer = self.connection.end, self._producer.number
        for effect in effects:
            match effect:
                case WriteReceipt(ids, place):
                    self.connection.write("SEND_RECEIPT", partial(end.receipt, producer, ids, place))
                case WriteSendError(sequence_id, _):
                    self.connection.write("SEND_ERROR", partial(end.send_error, producer, sequence_id))
                case CloseProducer(due):
                    if due is not None:
                        self.door.due.add(self._addressee, due, self.door.world.now)
                    self.connection.write("CLOSE_PRODUCER", partial(end.close_producer, producer))
                    self._end(gives_up_name=False)
                case _:
                    assert_never(effect)
        self._close_if_answered()

    # --- ends ---------------------------------------------------------------------------------------------------------

    def drop(self) -> None:
        if self._sends is not None:
            self._perform(self._sends.dropped())

    def close_by_client(self) -> None:
        self._client_closes = True
        self._close_if_answered()

    def _close_if_answered(self) -> None:
        if self._client_closes and not self._closed and (self._sends is None or not self._sends.waiting):
            self.connection.write("SUCCESS", self.connection.end.producer_closed)
            self._end(gives_up_name=True)

    def disconnected(self) -> None:
        self._end(gives_up_name=False)

    def _end(self, *, gives_up_name: bool) -> None:
        if self._closed:
            return
        self._closed = True
        self._queue.clear()
        if self._sends is not None:
            self._sends.dropped()
        self.door.perform_budget(self.door.budget.closed(self.key))
        slots = self.connection.slots
        if slots.get(self._producer.number) is self:
            del slots[self._producer.number]
        if self._session is not None:
            session = self._session
            self.door.post(0, "closes a session", lambda: session.close(gives_up_name=gives_up_name))
