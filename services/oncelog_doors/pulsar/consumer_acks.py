"""The acknowledgements of one consumer: from ACK to ACK_RESPONSE.

    ACK ──▶ table ──▶ the log ──▶ table ──▶ ACK_RESPONSE
     └──▶ the topic's policy, if the client could not decode the messages

A consumer that ends waits until all of them are settled.
"""

import logging
from asyncio import Event
from collections.abc import Callable, Sequence
from functools import partial

from oncelog.core.errors import OncelogError
from oncelog.core.ids import Position
from oncelog_doors.core.pulsar.consuming.acknowledgements import UNREADABLE_DELAY_MS, AckAnswer, AckAsked, NamedId
from oncelog_doors.core.pulsar.consuming.outstanding import Outstanding
from oncelog_doors.core.pulsar.server_errors import Refusal, ServerError
from oncelog_doors.pulsar import replies
from oncelog_doors.pulsar.entry_sender import ConsumerSurroundings
from oncelog_doors.pulsar.named_ids import named_ids
from oncelog_doors.pulsar.ports import ConsumerPort, TakenEntry
from oncelog_doors.wire.pulsar_commands_pb2 import Ack

_LOG = logging.getLogger(__name__)

#: ACKs of undecodable messages that wait for the policy. Those above it get the default.
WAITING_MAX = 100


class ConsumerAcks:
    """silent: the client is gone, so nothing is answered."""

    def __init__(
        self,
        around: ConsumerSurroundings,
        consumer_id: int,
        table: Outstanding[TakenEntry],
        changed: Callable[[], None],
    ) -> None:
        """changed: called when a message may go now, or fewer than before."""
        self._around = around
        self._consumer_id = consumer_id
        self._table = table
        self._changed = changed
        self.silent = False
        #: requests to the log, and ACKs that wait for the policy
        self._open = 0
        self._waiting = 0
        self._settles = Event()

    async def settled(self) -> None:
        """Return when the log has decided about all of them."""
        while self._open:
            self._settles.clear()
            await self._settles.wait()

    def take(self, port: ConsumerPort | None, ack: Ack, *, ended: bool) -> None:
        """port: None: the consumer is being opened. ended: it is not open any more."""
        request_id = ack.request_id if ack.HasField("request_id") else None
        if ended:
            self._around.counts.acks_ignored += len(ack.message_ids)
            self._refuse(request_id, replies.not_open(self._consumer_id))
            return
        if ack.HasField("txnid_most_bits") or ack.HasField("txnid_least_bits"):
            sentence = "transactions are not offered here: acknowledge without one"
            self._refuse(request_id, Refusal(ServerError.NOT_ALLOWED_ERROR, sentence))
            return
        asked = AckAsked(
            named_ids(ack.message_ids),
            ack.type == Ack.CUMULATIVE,
            request_id,
            ack.HasField("validation_error"),
        )
        if asked.unreadable and port is not None and self._waiting < WAITING_MAX:
            self._open += 1
            self._waiting += 1
            task = self._around.tasks.start(self._by_policy(port, asked), what="the policy for undecodable messages")
            task.add_done_callback(lambda _: self._asked_policy())
        else:
            self._decide(port, asked)

    async def _by_policy(self, port: ConsumerPort, asked: AckAsked) -> None:
        acknowledges = await port.acks_undecodable()
        if acknowledges:
            _LOG.warning("%s acknowledges messages that it cannot decode: %s", self._around.peer, asked.ids)
        self._decide(port, asked._replace(acks_unreadable=acknowledges))

    def _asked_policy(self) -> None:
        self._waiting -= 1
        self._one_over()

    def _one_over(self) -> None:
        self._open -= 1
        self._settles.set()

    def taken_before(self, port: ConsumerPort, position: Position) -> None:
        """The client has acknowledged this entry before it arrived (`Arrival.ACKNOWLEDGED`)."""
        self._decide(port, AckAsked([NamedId(*position)]))

    def _decide(self, port: ConsumerPort | None, asked: AckAsked) -> None:
        decision = self._table.acknowledge(asked)
        counts = self._around.counts
        counts.acks_ignored += decision.ignored
        counts.undeliverable += decision.unreadable
        self._answer(decision.answers)
        if port is None:
            return
        if decision.nack:
            port.nack(decision.nack, delay_ms=UNREADABLE_DELAY_MS)
        if decision.acknowledge:
            self._open += 1
            port.ack(decision.acknowledge, decision.seek_epoch, partial(self._settled, decision.ticket))
        self._changed()

    def _settled(self, ticket: int, error: OncelogError | None, durable: bool) -> None:
        self._one_over()
        self._answer(self._table.settled(ticket, error, durable=durable))
        self._changed()

    def _refuse(self, request_id: int | None, refusal: Refusal) -> None:
        if request_id is not None:
            self._answer([AckAnswer(request_id, refusal)])

    def _answer(self, answers: Sequence[AckAnswer]) -> None:
        if not self.silent:
            for answer in answers:
                self._around.write(replies.ack_response(self._consumer_id, answer.request_id, answer.refusal))
