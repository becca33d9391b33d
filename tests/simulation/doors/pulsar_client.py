"""A program with one producer of a client library of Pulsar, as the C++ and Java libraries behave.

It connects to any door, opens its producer, and sends. When the connection breaks it goes to any door again, presents
the token of its producer and the next epoch, and sends all batches without a receipt again, in their order. A producer
that gets ProducerFenced is over; a program that finds its name taken asks again later. When the program starts again,
its producer is a new one.

    PRODUCER answered   SUCCESS          what is pending is sent
                        25               the producer is over, and its pending batches have failed
                        16               the name is taken: the program asks again later, with a new producer
                        8                pending batches have failed; the same producer opens again
                        2                it opens again later

Oracles, besides those of histories: a producer that comes back is the same instance; receipts come in the order of the
batches; a producer is not fenced while no other program has its name; no batch of an honest program is refused.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from oncelog.core.errors import InvalidArgument, SessionEnded
from oncelog.core.formats.opening import ProducerInstance
from oncelog.core.formats.outcome import ResultKind, ResultRange
from oncelog.core.ids import Position, SequenceId, TopicId
from oncelog.verify.violation import Violation
from oncelog_doors.core.pulsar.families import ClientFamily
from oncelog_doors.core.pulsar.openings import NO_TOKEN, ProducerRequest
from oncelog_doors.core.pulsar.server_errors import Refusal, ServerError
from oncelog_doors.core.pulsar.verdicts import Ids
from tests.simulation.clients.producer_client import ClientParts
from tests.simulation.doors.entries import Batch, Packing, PulsarInput, next_batches, single_batch
from tests.simulation.network import Stream
from tests.simulation.world import Process

if TYPE_CHECKING:
    from tests.simulation.doors.door import DoorConnection, DoorServer

#: How often a client looks at its connection; after how long without a word it sends PING, and leaves: a door may read
#: nothing for 5 s.
LOOK_TICKS, PING_TICKS, SILENCE_TICKS = 900, 2000, 5500
REQUEST_TICKS = 3000
PENDING_MAX = 8


@dataclass(slots=True)
class ProducerObject:
    """One producer of a program. epoch, asked: of its newest PRODUCER. opened: its number in the history.

    instance: as its first PRODUCER_SUCCESS was for; the client does not know it. acked: the highest id with a receipt.
    """

    number: int
    epoch: int = -1
    asked: int = 0
    token: int = NO_TOKEN
    instance: ProducerInstance | None = None
    opened: int = -1
    acked: SequenceId = SequenceId(-1)
    is_open: bool = False
    pending: deque[Batch] = field(default_factory=deque)


class Receipt(NamedTuple):
    """What the client was told. place: None: no place."""

    instance: ProducerInstance
    batch: Batch
    place: Position | None


class Reopening(NamedTuple):
    """A producer came back and was told this last sequence id."""

    instance: ProducerInstance
    last: SequenceId


@dataclass(slots=True)
class Told:
    """What the clients of one topic were told, for the end of the run. batches: {entry of a unit: its ids}."""

    receipts: list[Receipt] = field(default_factory=list)
    reopenings: list[Reopening] = field(default_factory=list)
    units: dict[bytes, Batch] = field(default_factory=dict)


class PulsarClient(Process):
    """One place for such a program."""

    def __init__(
        self,
        parts: ClientParts,
        name: str,
        topic_id: TopicId,
        source: PulsarInput,
        family: ClientFamily,
        doors: "list[DoorServer]",
        told: Told,
    ) -> None:
        super().__init__(parts.world, name)
        self.parts, self.topic_id, self.source, self.family = parts, topic_id, source, family
        self.doors, self.told = doors, told
        self.producer = ProducerObject(0)
        self.end: ClientEnd | None = None
        self.finished = False
        self.next = 0
        #: it goes on behind the last id that it is told, whatever its input says
        self._resumes = False
        self._connecting = False
        #: A life of this program is gone, or a connection without a token, and a door may not know. What was asked for
        #: there is another program's for the log: it may be granted the name while this life has no session.
        self._left_behind = False
        #: of producers, PRODUCERs and batches, in all lives
        self._numbers = 0

    def state_line(self) -> str:
        if not self.alive:
            return "down"
        state = "done" if self.finished else "open" if self.producer.is_open else "waits" if self.end else "away"
        return f"{state} {self.next}/{len(self.source.ids)}-{len(self.producer.pending)}"

    # --- lives --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        super().start()
        self.end, self.finished, self._resumes, self._connecting = None, False, False, False
        self._new_producer()
        self.post(LOOK_TICKS, "looks at its connection", self._look)

    def crash(self) -> None:
        """Half of the time nobody tells the door."""
        end, self.end = self.end, None
        super().crash()
        if end is not None and self.world.rng.random() < 0.5:
            end.stream.sever()
        elif end is not None:
            self.world.count("connection left half-open")
            self._left_behind = True

    def _next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _new_producer(self) -> None:
        self.producer, self.next = ProducerObject(self._next_number()), 0
        self.post(self.world.rng.randint(1, 60), "opens its producer", self._connect)

    # --- the connection -----------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        self._connecting = False
        if self.finished:
            return
        if self.end is None:
            door = self.world.rng.choice(self.doors)
            if not door.alive:
                self._connect_later()
                return
            self.end = ClientEnd(self, door)
        self._open()

    def _connect_later(self) -> None:
        if not self._connecting:
            self._connecting = True
            self.post(self.world.rng.randint(50, 300), "connects again", self._connect)

    def _open(self) -> None:
        end, producer = self.end, self.producer
        assert end is not None
        producer.epoch += 1
        producer.asked, producer.is_open = self._next_number(), False
        asked, request = ProducerRequest(producer.epoch, producer.token), producer.asked
        if producer.token:
            self.world.count("producer comes back")
        self.post(REQUEST_TICKS, "looks at a request", lambda: self._late(producer, request))
        end.say(
            f"PRODUCER {producer.number} epoch {producer.epoch}",
            lambda remote: remote.producer(self.topic_id, producer, self.source.name, asked, request),
        )

    def _late(self, producer: ProducerObject, request: int) -> None:
        """A PRODUCER has no answer."""
        unanswered = producer is self.producer and producer.asked == request and not producer.is_open
        if unanswered and self.end is not None and not self._connecting:
            self.world.count("PRODUCER sent again on its connection")
            self._open()

    def _look(self) -> None:
        """Keep the connection alive, or leave it."""
        self.post(LOOK_TICKS, "looks at its connection", self._look)
        if self.end is None:
            return
        silent = self.world.now - self.end.heard_at
        if silent > SILENCE_TICKS:
            self.leave()
        elif silent > PING_TICKS:
            self.end.say("PING", lambda remote: remote.ping())

    def leave(self) -> None:
        """The connection is closed from here. What was written before still arrives at the door, perhaps late. Half of
        the time that is all: something between the two has forgotten the connection."""
        end = self.end
        if end is None:
            return
        if self.world.rng.random() < 0.5:
            self.world.count("connection left")
            end.say("leaves", lambda remote: remote.gone())
        else:
            self.world.count("connection left half-open by a client that lives")
            if self.producer.instance is None:
                self._left_behind = True  # it has no token yet
        self.lost(end)

    def lost(self, end: "ClientEnd") -> None:
        if self.end is end:
            self.end, self.producer.is_open = None, False
            self._connect_later()

    # --- answers ------------------------------------------------------------------------------------------------------

    def opened(self, request: int, name: str, last: SequenceId, token: int, instance: ProducerInstance) -> None:
        producer, source = self.producer, self.source
        if request != producer.asked:
            return
        producer.is_open, producer.token = True, token
        if producer.instance is None:
            producer.instance = instance
            producer.opened = self.parts.history.opened(name, instance, last, dense=False)
            if source.resumes or self._resumes:
                self.next = sum(1 for number in source.ids if number <= last)
            self.post(self.world.rng.randint(1, 20), "application", self._pump)
        else:
            self._came_back(producer, instance, last)
        for batch in producer.pending:
            self._send(batch)

    def _came_back(self, producer: ProducerObject, instance: ProducerInstance, last: SequenceId) -> None:
        self.world.count("producer came back")
        if instance != producer.instance:
            raise Violation("tokens", f"{self.name}: {producer.instance} came back, and was made {instance}")
        if last < producer.acked:
            raise Violation("last id", f"{self.name}: told {last} after a receipt for {producer.acked}")
        self.told.reopenings.append(Reopening(instance, last))

    def refused(self, request: int, refusal: Refusal) -> None:
        producer, code = self.producer, refusal.code
        if request != producer.asked:
            return
        created = producer.instance is not None
        self.world.count(f"PRODUCER refused: {code.name}{' after its creation' if created else ''}")
        producer.is_open = False
        if code is ServerError.PRODUCER_FENCED:
            if not created or (self.source.alone and not self._left_behind):
                raise Violation("lone instances", f"{self.name}: {refusal.sentence}")
            self._fail_all()
            self._begin_again()
        elif code is ServerError.PRODUCER_BUSY and not created:
            self._begin_again()
        elif code is ServerError.PRODUCER_BLOCKED_QUOTA_EXCEEDED_EXCEPTION:
            self._failed_and_goes_on(self._fail_all())
        elif code in (ServerError.PRODUCER_BUSY, ServerError.PERSISTENCE_ERROR):
            self._connect_later()
        else:
            raise AssertionError(f"{self.name}: {refusal}")

    def receipt(self, number: int, ids: Ids, place: Position | None) -> None:
        producer = self.producer
        if number != producer.number or producer.instance is None:
            return
        batch = producer.pending.popleft() if producer.pending else None
        if batch is None or batch.sent != ids:
            raise Violation("receipts in order", f"{self.name}: a receipt for {ids}, and the oldest batch is {batch}")
        self.world.count("receipt" if place is not None else "receipt without a place")
        producer.acked = SequenceId(max(producer.acked, batch.ids[-1]))
        self.told.receipts.append(Receipt(producer.instance, batch, place))
        # What is too old to be compared is confirmed: messages of a unit may be stored in others (see `Doors.check`),
        # and an id between stored ones never was.
        unverified = place is None and (batch.unit or batch.stale)
        kind = ResultKind.BELOW_MARK if unverified else ResultKind.DUPLICATE
        result = ResultRange(kind, len(batch.numbers), place, 0)
        self.parts.history.answered(producer.opened, batch.request, (result,))
        self._look_for_the_end()

    def send_error(self, number: int, sequence_id: int) -> None:
        """In the order of receipts, as Java takes it."""
        producer = self.producer
        if number != producer.number:
            return
        batch = producer.pending.popleft()
        if batch.sent.last != sequence_id:
            raise Violation("receipts in order", f"{self.name}: an error of {sequence_id}, and the oldest is {batch}")
        self.world.count("SEND failed")
        refused = InvalidArgument("the batch was refused").of_send(stored=False)
        self.parts.history.answered(producer.opened, batch.request, refused)
        if not batch.stale:
            self._check_may_fail(batch)
        self._failed_and_goes_on([batch])

    def close_producer(self, number: int) -> None:
        if number == self.producer.number and not self.finished:
            self.world.count("producer closed by its door")
            self.producer.is_open = False
            self._connect_later()

    def producer_closed(self) -> None:
        """The program has ended in order."""
        end, self.end = self.end, None
        if end is not None:
            end.say("leaves", lambda remote: remote.gone())

    # --- failed batches -----------------------------------------------------------------------------------------------

    def _fail_all(self) -> list[Batch]:
        """Their outcome is unknown, but that an id between stored ones is never stored."""
        producer = self.producer
        failed = [*producer.pending]
        producer.pending.clear()
        for batch in failed:
            error = SessionEnded("the outcome is unknown").of_send(stored=False if batch.stale else None)
            self.parts.history.answered(producer.opened, batch.request, error)
        return failed

    def _check_may_fail(self, batch: Batch) -> None:
        """Encrypted batches of other borders cannot be compared; all others can."""
        if self.source.packing is not Packing.ENCRYPTED:
            raise Violation("honest batches", f"{self.name}: {batch} was refused")

    def _failed_and_goes_on(self, failed: list[Batch]) -> None:
        """The application sends what has failed again; encrypted messages only behind what is stored."""
        if any(not batch.stale for batch in failed) and self.source.packing is Packing.ENCRYPTED:
            self.world.count("application goes on behind what is stored")
            self._resumes = True
            self._begin_again()
            return
        first = min((batch.ids[0] for batch in failed if not batch.stale), default=None)
        if first is not None:
            self.next = min(self.next, self.source.ids.index(first))
        if not self.producer.is_open:
            self._connect_later()
        self._look_for_the_end()

    def _begin_again(self) -> None:
        """With a new producer. The application closes the former one."""
        former, end = self.producer, self.end
        former.is_open = False
        if former.instance is not None and end is not None:
            end.say("CLOSE_PRODUCER", lambda remote: remote.close_producer(former.number))
        for batch in former.pending:
            self.parts.history.answered(former.opened, batch.request, SessionEnded("the producer was closed"))
        self.producer, self.next = ProducerObject(self._next_number()), 0
        self._connecting = True
        self.post(self.world.rng.randint(200, 1200), "opens a new producer", self._connect)

    # --- the application ----------------------------------------------------------------------------------------------

    def _pump(self, number: int | None = None) -> None:
        producer, source, rng = self.producer, self.source, self.world.rng
        number = producer.number if number is None else number
        if number != producer.number or self.finished:
            return
        self.post(rng.randint(*self.parts.pace), "application", lambda: self._pump(number))
        if self.next >= len(source.ids):
            self._look_for_the_end()
            return
        if len(producer.pending) >= PENDING_MAX:
            return
        if self.next and self.world.chance(source.careless):
            stale = [i for i in source.holes if i < source.ids[self.next - 1]]
            if stale:
                self.world.count("stale id sent")
                self._hand_over(single_batch(source, rng.choice(stale), stale=True))
                return
        batches, self.next = next_batches(source, self.next, rng)
        for batch in batches:
            self._hand_over(batch)
        if self.world.chance(source.repeats):
            self._hand_over(single_batch(source, rng.choice(source.ids[: self.next]), stale=False))

    def _hand_over(self, batch: Batch) -> None:
        producer = self.producer
        batch.request = self._next_number()
        if batch.unit:
            self.told.units[batch.entry] = batch
        first = batch.ids[0] if batch.unit else None
        self.parts.history.invoked(producer.opened, batch.request, batch.numbers, batch.values, first=first)
        producer.pending.append(batch)
        if producer.is_open:
            self._send(batch)

    def _send(self, batch: Batch) -> None:
        end, number = self.end, self.producer.number
        if end is not None:
            end.say(f"SEND {batch.sent}", lambda remote: remote.send(number, batch))

    def _look_for_the_end(self) -> None:
        producer, end = self.producer, self.end
        if producer.pending or self.next < len(self.source.ids) or self.finished:
            return
        self.source.complete = self.finished = True
        if end is not None:
            end.say("CLOSE_PRODUCER", lambda remote: remote.close_producer(producer.number))


class ClientEnd:
    """One connection, as the client sees it."""

    def __init__(self, client: PulsarClient, door: "DoorServer") -> None:
        self.client, self.door = client, door
        self.heard_at = client.world.now
        self.remote: DoorConnection | None = None
        self.stream = Stream(client.parts.network, client, door)
        self.stream.on_broken[client.name] = lambda: client.lost(self)
        self.stream.on_broken[door.name] = self._broken_at_door
        self.stream.send(client, "connects", lambda: self._accepted(door))

    def _accepted(self, door: "DoorServer") -> None:
        self.remote = door.accept(self)

    def _broken_at_door(self) -> None:
        if self.remote is not None:
            self.remote.gone()

    def say(self, label: str, do: "Callable[[DoorConnection], None]") -> None:
        """To the door."""

        def arrive() -> None:
            remote = self.remote
            if remote is not None:
                remote.receive(lambda: do(remote))

        self.stream.send(self.client, label, arrive)

    # --- what the door writes; of a connection that was left, nothing is read -----------------------------------------

    def _is_read(self) -> bool:
        self.heard_at = self.client.world.now
        return self.client.end is self

    def heard(self) -> None:
        self._is_read()

    def pinged(self) -> None:
        if self._is_read():
            self.say("PONG", lambda remote: remote.pong())

    def opened(self, request: int, name: str, last: SequenceId, token: int, instance: ProducerInstance) -> None:
        if self._is_read():
            self.client.opened(request, name, last, token, instance)

    def refused(self, request: int, refusal: Refusal) -> None:
        if self._is_read():
            self.client.refused(request, refusal)

    def receipt(self, producer: int, ids: Ids, place: Position | None) -> None:
        if self._is_read():
            self.client.receipt(producer, ids, place)

    def send_error(self, producer: int, sequence_id: int) -> None:
        if self._is_read():
            self.client.send_error(producer, sequence_id)

    def close_producer(self, producer: int) -> None:
        if self._is_read():
            self.client.close_producer(producer)

    def producer_closed(self) -> None:
        if self._is_read() and self.client.finished:
            self.client.producer_closed()
