"""One producer of one connection: performs what `ProducerOpening` and `Sends` decide.

    PRODUCER ─▶ opening ──▶ open ──▶ closed by either side, by the end of its session, or with the connection
                   └──────▶ refused

A SEND is checked, waits until the session has room, and is handed to the log, in the order of the connection. Of a
producer that is not open, or that takes nothing any more, a SEND is ignored: the client sends it again.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, assert_never

from oncelog.core.access import Caller
from oncelog.core.errors import OncelogError, TopicNotFound
from oncelog.core.formats.batch import LONG_CHECK_BYTES
from oncelog.core.formats.pulsar import pulsar_takes_long
from oncelog.core.names import TopicName
from oncelog.runtime.tasks import BackgroundTasks
from oncelog_doors.connections.ports import Timers
from oncelog_doors.core.pulsar.due_refusals import DueRefusals, addressee
from oncelog_doors.core.pulsar.families import ClientFamily
from oncelog_doors.core.pulsar.openings import (
    AskOwner,
    OpeningEffect,
    ProducerOpening,
    ProducerRequest,
    Refuse,
    Succeed,
)
from oncelog_doors.core.pulsar.schemas import Schema
from oncelog_doors.core.pulsar.send_budget import BudgetEffect, ProducerKey, SendBudget
from oncelog_doors.core.pulsar.sends import CloseProducer, SendEffect, Sends, WriteReceipt, WriteSendError
from oncelog_doors.core.pulsar.verdicts import Ids, Rejected, Verdict, rejection_of_kind, rejection_of_numbers
from oncelog_doors.pulsar import replies
from oncelog_doors.pulsar.frames import Frame
from oncelog_doors.pulsar.ports import ClusterPort, ProducerPort
from oncelog_doors.wire.pulsar_commands_pb2 import Command, Send

#: What a SEND counts in the budget whose chunk is stored, and whose receipt is withheld.
WITHHELD_BYTES = 512
#: Entries that wait are checked together up to this: about a frame to the owner. The first one may be larger.
CHECKED_TOGETHER_BYTES_MAX = 1024 * 1024


class Surroundings(Protocol):
    """What a slot needs of its connection and its door."""

    caller: Caller
    family: ClientFamily
    cluster: ClusterPort
    timers: Timers
    budget: SendBudget
    due: DueRefusals
    sends: type[Sends]
    tasks: BackgroundTasks

    def write(self, command: Command) -> None: ...
    def over(self, slot: "ProducerSlot") -> None:
        """The slot is closed or refused."""

    def wanted(self, port: ProducerPort) -> None:
        """Another client wants the name."""

    def perform_budget(self, effects: list[BudgetEffect]) -> None: ...


class _Queued(NamedTuple):
    number: int
    ids: Ids
    message_count: int
    is_chunk: bool
    entry: bytes


@dataclass(slots=True)
class _Given:
    """A SEND that was handed to the log. kept: bytes of it that the door keeps."""

    number: int
    kept: int


class ProducerSlot:
    """key: of this opening, in the whole door."""

    def __init__(
        self,
        around: Surroundings,
        key: ProducerKey,
        topic: TopicName,
        name: str | None,
        request: ProducerRequest,
        *,
        producer_id: int,
        request_id: int,
        schema: Schema | None = None,
        subscription: str = "",
    ) -> None:
        """subscription: is to be there before the first message is; empty: none."""
        self.key = key
        self.topic = topic
        self.producer_id = producer_id
        self._around = around
        self._name = name
        self._request_id = request_id
        self._schema = schema
        self._schema_version = b""
        self._token = request.token
        self._subscription = "" if request.token else subscription
        self._opening = ProducerOpening(request, around.family, around.timers.now_ms())
        self._asking: asyncio.Task[None] | None = None
        self._cancel_deadline: Callable[[], None] | None = None
        self._port: ProducerPort | None = None
        self._sends: Sends | None = None
        self._queue: deque[_Queued] = deque()
        self._handing = False
        self._closed = False
        #: done when each SEND is answered; only while the client closes its producer
        self._answered: asyncio.Future[None] | None = None

    # --- opening ------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        around = self._around
        if self._opening.deadline_ms is not None:
            self._cancel_deadline = around.timers.at(self._opening.deadline_ms, self._expired)
        due = around.due.take(self._addressee(self._token), around.timers.now_ms())
        self._perform_opening(self._opening.begin(due))

    def _expired(self) -> None:
        self._perform_opening(self._opening.expired())

    def _perform_opening(self, effects: list[OpeningEffect]) -> None:
        for effect in effects:
            match effect:
                case AskOwner():
                    what = f"the opening of a producer of {self.topic}"
                    self._asking = self._around.tasks.start(self._ask(effect), what=what)
                case Succeed():
                    self._stop_waiting()
                    self._token = effect.token
                    self._sends = self._around.sends(self._around.family)
                    self._around.write(replies.producer_success(self._request_id, effect, self._schema_version))
                case Refuse():
                    self._around.write(replies.error(self._request_id, effect.refusal))
                    self._end(gives_up_name=False)
                case _:
                    assert_never(effect)

    async def _ask(self, ask: AskOwner) -> None:
        try:
            try:
                port = await self._opened(ask)
            except TopicNotFound:
                # Java's client opens producers of dead letter topics without a look-up that creates them.
                await self._around.cluster.partitions(self.topic, self._around.caller, may_create=True)
                port = await self._opened(ask)
        except OncelogError as error:
            self._perform_opening(self._opening.refused(error))
            return
        self._port = port
        if self._closed:  # `_close_port` closes it
            return
        self._perform_opening(self._opening.granted(port.name, port.last_sequence_id, port.token))
        self._ended(await port.ended())

    async def _opened(self, ask: AskOwner) -> ProducerPort:
        cluster, caller = self._around.cluster, self._around.caller
        # First: a producer whose schema is refused takes the name from no other one.
        if self._schema is not None:
            self._schema_version = await cluster.schemas.store(self.topic, caller, self._schema)
        if self._subscription:
            await cluster.ensure_subscription(self.topic, caller, self._subscription)
        return await cluster.open_producer(
            self.topic, caller, name=self._name, token=ask.token, epoch=ask.epoch, wanted=self._wanted
        )

    def _ended(self, error: OncelogError) -> None:
        if self._closed:
            return
        if self._sends is None:
            self._perform_opening(self._opening.refused(error))
        else:
            self._perform(self._sends.ended(error))

    def _wanted(self) -> None:
        if self._port is not None:
            self._around.wanted(self._port)

    # --- sends --------------------------------------------------------------------------------------------------------

    def send(self, frame: Frame) -> None:
        """A SEND of this producer."""
        if self._sends is None or not self._sends.takes or self._answered is not None:
            return
        around, sent = self._around, frame.command.send
        entry = frame.entry or b""
        ids = Ids(sent.sequence_id, sent.highest_sequence_id if sent.HasField("highest_sequence_id") else None)
        number = self._sends.taken(ids)
        around.perform_budget(around.budget.taken(self.key, len(entry), around.timers.now_ms()))
        rejected = _rejection(sent, ids)
        if rejected is not None:
            self._reject(number, len(entry), rejected)
            return
        self._queue.append(_Queued(number, ids, sent.message_count, sent.is_chunk, entry))
        self._hand_over()

    def _hand_over(self) -> None:
        """Give the log what it takes at once; else a task does."""
        while self._queue and not self._handing and self._port is not None:
            first = self._queue[0]
            if pulsar_takes_long(first.entry) or not self._port.has_room(len(first.entry)):
                self._handing = True
                self._around.tasks.start(self._hand_over_slowly(self._port), what=f"the SENDs to {self.topic}")
                return
            self._give(self._port, self._queue.popleft(), _prepare(self._port, first))

    async def _hand_over_slowly(self, port: ProducerPort) -> None:
        """What waits is checked together, and so it goes to the owner together: a frame for each batch costs it more
        than the batch."""
        while self._queue:
            together = self._next_ones()
            check = partial(_prepared, port, together)
            long = sum(len(each.entry) for each in together) > LONG_CHECK_BYTES
            long = long or any(pulsar_takes_long(each.entry) for each in together)
            for each, prepared in zip(together, await asyncio.to_thread(check) if long else check(), strict=True):
                await port.room(len(each.entry))
                if not self._queue:  # the producer was closed meanwhile
                    break
                self._give(port, self._queue.popleft(), prepared)
        self._handing = False

    def _next_ones(self) -> list[_Queued]:
        """The first SENDs of the queue, as many as are checked together."""
        found: list[_Queued] = []
        size = 0
        for each in self._queue:
            if found and size + len(each.entry) > CHECKED_TOGETHER_BYTES_MAX:
                break
            found.append(each)
            size += len(each.entry)
        return found

    def _give(self, port: ProducerPort, taken: _Queued, prepared: Any | Rejected) -> None:
        if isinstance(prepared, Rejected):
            port.gives_no_more_chunks()
            self._reject(taken.number, len(taken.entry), prepared)
            return
        given = _Given(taken.number, len(taken.entry))
        self._around.budget.handed(self.key, given.kept)
        port.give(prepared, partial(self._decided, given), partial(self._stored, given))

    def _reject(self, number: int, size: int, rejected: Rejected) -> None:
        around = self._around
        around.perform_budget(around.budget.rejected(self.key, size, around.timers.now_ms()))
        self._judge(number, rejected)

    def _stored(self, given: _Given) -> None:
        freed = max(0, given.kept - WITHHELD_BYTES)
        given.kept -= freed
        around = self._around
        around.perform_budget(around.budget.answered(self.key, freed, around.timers.now_ms()))

    def _decided(self, given: _Given, verdict: Verdict | None) -> None:
        around = self._around
        around.perform_budget(around.budget.answered(self.key, given.kept, around.timers.now_ms()))
        if verdict is not None:
            self._judge(given.number, verdict)

    def _judge(self, number: int, verdict: Verdict) -> None:
        assert self._sends is not None, "a SEND was taken"
        self._perform(self._sends.decided(number, verdict))
        if not self._sends.takes:
            self._forget_queue()

    def _perform(self, effects: list[SendEffect]) -> None:
        around = self._around
        for effect in effects:
            match effect:
                case WriteReceipt():
                    around.write(replies.receipt(self.producer_id, effect))
                case WriteSendError():
                    around.write(replies.send_error(self.producer_id, effect))
                case CloseProducer():
                    if effect.due is not None:
                        around.due.add(self._addressee(self._token), effect.due, around.timers.now_ms())
                    around.write(replies.close_producer(self.producer_id))
                    self._end(gives_up_name=False)
                case _:
                    assert_never(effect)
        if self._answered is not None and self._sends is not None and not self._sends.waiting:
            self._set_answered()

    # --- ends ---------------------------------------------------------------------------------------------------------

    def drop(self) -> None:
        """The budget closes it."""
        if self._sends is not None:
            self._perform(self._sends.dropped())

    def close_by_client(self, request_id: int) -> None:
        """Its SENDs are answered first."""
        if self._sends is None or not self._sends.waiting:
            self._closed_by_client(request_id)
        elif self._answered is None:
            self._answered = asyncio.get_running_loop().create_future()
            self._answered.add_done_callback(lambda _: self._closed_by_client(request_id))
            if self._port is not None and not self._queue:
                self._port.gives_no_more_chunks()

    def _closed_by_client(self, request_id: int) -> None:
        self._around.write(replies.success(request_id))
        self._end(gives_up_name=True)

    def disconnected(self) -> None:
        """The connection is gone, or has another opening of this producer."""
        self._end(gives_up_name=False)

    @property
    def refused(self) -> bool:
        """A SEND has failed in a family that is closed for it; CLOSE_PRODUCER may wait for receipts."""
        return self._sends is not None and not self._sends.takes

    @property
    def waiting(self) -> int:
        """SENDs without an answer."""
        return 0 if self._sends is None else self._sends.waiting

    def _end(self, *, gives_up_name: bool) -> None:
        if self._closed:
            return
        self._closed = True
        self._stop_waiting()
        self._forget_queue()
        if self._sends is not None:
            self._sends.dropped()
        self._set_answered()
        self._around.perform_budget(self._around.budget.closed(self.key))
        self._around.over(self)
        self._around.tasks.start(self._close_port(gives_up_name), what=f"the end of a producer of {self.topic}")

    async def _close_port(self, gives_up_name: bool) -> None:
        if self._asking is not None and self._port is None:
            self._asking.cancel()
            await asyncio.wait([self._asking])
        if self._port is not None:
            await self._port.close(gives_up_name=gives_up_name)

    def _stop_waiting(self) -> None:
        if self._cancel_deadline is not None:
            self._cancel_deadline()
            self._cancel_deadline = None

    def _forget_queue(self) -> None:
        self._queue.clear()

    def _set_answered(self) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(None)

    def _addressee(self, token: int) -> Any:
        return addressee(str(self.topic), token, self.key.connection, self.producer_id)


def _prepared(port: ProducerPort, together: Sequence[_Queued]) -> list[Any | Rejected]:
    return [_prepare(port, each) for each in together]


def _rejection(sent: Send, ids: Ids) -> Rejected | None:
    return rejection_of_numbers(ids, sent.message_count) or rejection_of_kind(
        transaction=sent.txnid_most_bits != 0 or sent.txnid_least_bits != 0, marker=sent.marker
    )


def _prepare(port: ProducerPort, taken: _Queued) -> Any | Rejected:
    return port.prepare(taken.entry, taken.ids, taken.message_count, is_chunk=taken.is_chunk)
