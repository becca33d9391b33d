"""The consumers of one connection, readers and those of subscriptions: their commands, by the consumer's number.

A seek ends the consumer at the client: CLOSE_CONSUMER first, then SUCCESS, so that the client gives its permits again
and nothing old comes behind the seek (hazard seek-behind-old-messages). The client then sends SUBSCRIBE again, on this
connection, perhaps before it knows that the seek has succeeded. A subscription then begins at the sought place, which
its topic knows. A reader has nothing in the cluster, and after a seek by time it names the first message. So its sought
place is kept here until a SUBSCRIBE of this reader succeeds. If the connection ends before that, the reader begins
where the client says: it may get messages again, and skips none.
"""

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from oncelog.core.names import TopicName
from oncelog_doors.core.pulsar.message_ids import Start, names_chunk, start_at_id, start_at_time
from oncelog_doors.core.pulsar.names import topic_of
from oncelog_doors.core.pulsar.server_errors import Refusal, ServerError
from oncelog_doors.core.pulsar.subscribing import (
    ReaderRequest,
    SubscriptionRequest,
    SubscriptionType,
    reader_start,
    subscription_of,
)
from oncelog_doors.pulsar import replies
from oncelog_doors.pulsar.consumer_slot import ConsumerSlot
from oncelog_doors.pulsar.entry_sender import ConsumerSurroundings
from oncelog_doors.pulsar.reader_slot import ReaderSlot
from oncelog_doors.wire.pulsar_commands_pb2 import Ack, Flow, KeyShared, Redeliver, Seek, Subscribe

CONSUMERS_MAX = 1000
#: Requests of one connection that the cluster has not answered; more are refused.
LOOKS_MAX = 100

_TYPES: dict[int, SubscriptionType] = {
    Subscribe.EXCLUSIVE: "exclusive",
    Subscribe.SHARED: "shared",
    Subscribe.FAILOVER: "failover",
    Subscribe.KEY_SHARED: "key_shared",
}
Slot = ReaderSlot | ConsumerSlot


class Sought(NamedTuple):
    topic: TopicName
    subscription: str
    start: Start


class Consumers:
    """Has the forms of `reader_slot.Over` and `consumer_slot.ConsumerOver`."""

    def __init__(self, around: ConsumerSurroundings) -> None:
        self._around = around
        self._slots: dict[int, Slot] = {}
        #: {number of a reader: where its client has sought it}
        self._sought: dict[int, Sought] = {}
        self._looks = 0
        self._handlers: dict[str, Callable[[Any], None]] = {
            "subscribe": self._subscribe,
            "flow": self._flow,
            "ack": self._acknowledge,
            "redeliver": self._redeliver,
            "seek": self._seek,
            "get_last_message_id": self._look_at_end,
            "get_consumer_stats": self._tell_stats,
            "unsubscribe": self._unsubscribe,
            "close_consumer": self._close,
        }

    def handles(self, name: str) -> bool:
        """Whether the command of this name is a consumer's."""
        return name in self._handlers

    def handle(self, name: str, body: Any) -> None:
        self._handlers[name](body)

    # --- commands -----------------------------------------------------------------------------------------------------

    def _subscribe(self, asked: Subscribe) -> None:
        topic = topic_of(asked.topic)
        if isinstance(topic, Refusal):
            self._refuse(asked.request_id, topic)
            return
        former = self._slots.get(asked.consumer_id)
        if former is None and len(self._slots) >= CONSUMERS_MAX:
            sentence = f"a connection has at most {CONSUMERS_MAX} consumers: close some, or open another connection"
            self._refuse(asked.request_id, Refusal(ServerError.NOT_ALLOWED_ERROR, sentence))
            return
        slot = self._slot_of(asked, topic, former)
        if isinstance(slot, Refusal):
            self._refuse(asked.request_id, slot)
            return
        if former is not None:
            former.disconnected()
        self._slots[asked.consumer_id] = slot
        slot.begin()

    def _slot_of(self, asked: Subscribe, topic: TopicName, former: Slot | None) -> Slot | Refusal:
        now_ms = self._around.timers.wall_ms()
        if asked.type not in _TYPES:
            sentence = f"subscriptions of type {asked.type} are not offered here"
            return Refusal(ServerError.NOT_ALLOWED_ERROR, sentence)
        if asked.durable:
            wanted = subscription_of(_subscription_request(asked), now_ms)
            if isinstance(wanted, Refusal):
                return wanted
            return ConsumerSlot(self._around, topic, asked, wanted, former=former, over=self)
        start = reader_start(_reader_request(asked), self._sought_place(asked, topic), now_ms)
        return start if isinstance(start, Refusal) else ReaderSlot(self._around, topic, asked, start, over=self)

    def _sought_place(self, asked: Subscribe, topic: TopicName) -> Start | None:
        sought = self._sought.get(asked.consumer_id)
        same = sought is not None and (sought.topic, sought.subscription) == (topic, asked.subscription)
        return sought.start if sought is not None and same else None

    def _flow(self, flow: Flow) -> None:
        slot = self._slots.get(flow.consumer_id)
        if slot is not None:
            slot.flow(flow.permits)

    def _acknowledge(self, ack: Ack) -> None:
        slot = self._slots.get(ack.consumer_id)
        if slot is not None:
            slot.acknowledge(ack)
            return
        self._around.counts.acks_ignored += len(ack.message_ids)
        if ack.HasField("request_id"):
            refusal = replies.not_open(ack.consumer_id)
            self._around.write(replies.ack_response(ack.consumer_id, ack.request_id, refusal))

    def _redeliver(self, asked: Redeliver) -> None:
        slot = self._slots.get(asked.consumer_id)
        if slot is not None:
            slot.redeliver(asked)

    def _seek(self, seek: Seek) -> None:
        slot = self._open_slot(seek)
        if slot is None:
            return
        if names_chunk(seek.message_id.entry_id) and not self._around.family.seeks_to_chunks:
            sentence = "this client would pass over what follows a message in chunks: seek to its publish time instead"
            self._refuse(seek.request_id, Refusal(ServerError.NOT_ALLOWED_ERROR, sentence))
        elif seek.HasField("message_id"):
            slot.seek(start_at_id(seek.message_id.ledger_id, seek.message_id.entry_id), seek.request_id)
        elif seek.HasField("publish_time"):
            slot.seek(start_at_time(seek.publish_time), seek.request_id)
        else:
            sentence = "a seek names neither a message_id nor a publish_time: send one of them"
            self._refuse(seek.request_id, Refusal(ServerError.NOT_ALLOWED_ERROR, sentence))

    def _look_at_end(self, asked: Any) -> None:
        slot = self._open_slot(asked)
        if slot is not None and self._may_look(asked, "the last message"):
            self._look(slot.answer_last_id(asked.request_id), f"the end of {slot.topic}")

    def _tell_stats(self, asked: Any) -> None:
        slot = self._open_slot(asked)
        if slot is not None and self._may_look(asked, "statistics"):
            self._look(slot.answer_stats(asked.request_id), f"statistics of a consumer of {slot.topic}")

    def _may_look(self, asked: Any, what: str) -> bool:
        if self._looks < LOOKS_MAX:
            return True
        sentence = f"{self._looks} requests of this connection wait, and this one for {what} is too many: try it again"
        self._refuse(asked.request_id, Refusal(ServerError.PERSISTENCE_ERROR, sentence))
        return False

    def _look(self, answering: Coroutine[Any, Any, None], what: str) -> None:
        self._looks += 1
        self._around.tasks.start(answering, what=what).add_done_callback(self._looked)

    def _looked(self, _task: object) -> None:
        self._looks -= 1

    def _unsubscribe(self, asked: Any) -> None:
        slot = self._open_slot(asked)
        if slot is not None:
            slot.unsubscribe(asked.request_id)

    def _close(self, asked: Any) -> None:
        """A sought place stays: a client also sends this when SUBSCRIBE was not answered in time."""
        slot = self._slots.get(asked.consumer_id)
        if slot is None:
            self._around.write(replies.success(asked.request_id))
        else:
            slot.close(asked.request_id)

    def _open_slot(self, asked: Any) -> Slot | None:
        """The consumer that a request is for. Refuses the request if there is none."""
        slot = self._slots.get(asked.consumer_id)
        if slot is not None and slot.is_open:
            return slot
        self._refuse(asked.request_id, replies.not_open(asked.consumer_id))
        return None

    def _refuse(self, request_id: int, refusal: Refusal) -> None:
        self._around.write(replies.error(request_id, refusal))

    # --- life ---------------------------------------------------------------------------------------------------------

    def opened(self, slot: Slot) -> None:
        """Its client is where it has sought."""
        self._sought.pop(slot.consumer_id, None)

    def sought(self, slot: ReaderSlot, start: Start) -> None:
        if len(self._sought) >= CONSUMERS_MAX:
            del self._sought[next(iter(self._sought))]  # its client did not come back
        self._sought[slot.consumer_id] = Sought(slot.topic, slot.subscription, start)

    def ended(self, slot: Slot) -> None:
        if self._slots.get(slot.consumer_id) is slot:
            del self._slots[slot.consumer_id]

    def read_again(self) -> None:
        """The client reads what it is sent."""
        for slot in self._slots.values():
            slot.reads_again()

    def disconnected(self, *, client_lost: bool) -> None:
        """The connection is gone. client_lost: not by the door."""
        for slot in list(self._slots.values()):
            slot.disconnected(client_lost=client_lost)

    def __len__(self) -> int:
        return len(self._slots)


def _reader_request(asked: Subscribe) -> ReaderRequest:
    start = start_at_id(asked.start.ledger_id, asked.start.entry_id) if asked.HasField("start") else None
    return ReaderRequest(
        exclusive=asked.type == Subscribe.EXCLUSIVE,
        start=start,
        from_first=asked.initial_position == Subscribe.EARLIEST,
        rollback_s=asked.start_rollback,
    )


def _subscription_request(asked: Subscribe) -> SubscriptionRequest:
    return SubscriptionRequest(
        type=_TYPES[asked.type],
        sticky=asked.key_shared.mode == KeyShared.STICKY,
        from_first=asked.initial_position == Subscribe.EARLIEST,
        rollback_s=asked.start_rollback,
        priority=asked.priority_level,
        properties={each.key: each.value for each in asked.subscription_properties},
    )
