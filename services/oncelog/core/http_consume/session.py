"""What one session of HTTP consume has given to its client, and when the session ends. Pure.

A delivery of a message:

    given -> outstanding --- acknowledged, durable --------> ACKNOWLEDGED: remembered, a repeat gets the same answer
                 |      --- given back by the client -----> forgotten: the topic owner delivers it again
                 |      --- the ack time-out is over -----> forgotten: the topic owner delivers it again
                 +--------- the message is given again ---> the new delivery takes its place

The session:

    open --- deleted, its consumer failed, its service stops, or it is silent ---> over

Rules
- Only an outstanding delivery can be acknowledged: an id that this session has not given out, or whose time is over,
  would acknowledge a message that nobody has processed, or that another consumer has (hazard foreign-delivery-id).
- The topic owner's clock decides when a message goes to another consumer. The clock here only bounds what is kept: what
  is over here cannot be acknowledged here, and what is outstanding here can be, also if the owner was faster.
- At most `window` deliveries are outstanding, so a client that acknowledges nothing gets no more.
- An acknowledgement is remembered only when it is durable. The newest REMEMBERED_MAX are: the id of an older one is
  unknown again, and its message does not come again either.
- A session is silent after its ack time-out without a request. Messages that wait for it in the service have no
  time-out of their own, so only its end returns them (hazard abandoned-http-session).
- An open stream is a request only while its client owes no answer. Who has got messages must acknowledge or give back
  one of them within the ack time-out: that the connection is open does not show that somebody reads it.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from oncelog.core.errors import InvariantViolated
from oncelog.core.http_consume.delivery_id import DeliveryId

#: Acknowledged deliveries that a session remembers.
REMEMBERED_MAX = 10_000
#: What the shell needs to acknowledge a delivery.
ReceiptT = TypeVar("ReceiptT")


class Standing(Enum):
    """Of an id that a client has sent."""

    OUTSTANDING = "outstanding"
    ACKNOWLEDGED = "acknowledged"
    #: never given out by this session, given back, over, or acknowledged long ago
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Outstanding(Generic[ReceiptT]):
    """number: deliveries of the session have ascending numbers. until_ms: when its ack time-out is over."""

    id: DeliveryId
    number: int
    until_ms: int
    receipt: ReceiptT


class ConsumeSession(Generic[ReceiptT]):
    """All times are of one monotonic clock, in ms."""

    def __init__(self, *, ack_timeout_ms: int, window: int, now_ms: int) -> None:
        self._ack_timeout_ms = ack_timeout_ms
        self._window = window
        self._last_number = 0
        #: {(partition, index): its delivery}, the oldest first
        self._outstanding: dict[tuple[int, int], Outstanding[ReceiptT]] = {}
        #: {acknowledged delivery: its number}, the oldest first
        self._acknowledged: dict[DeliveryId, int] = {}
        self._requests = 0
        self._streams = 0
        #: the last sign of its client
        self._heard_ms = now_ms
        #: whether messages were given since the client's last request, and some of them are not settled
        self._owes = False

    # --- messages -----------------------------------------------------------------------------------------------------

    def room(self, now_ms: int) -> int:
        """How many messages may be given now."""
        self._expire(now_ms)
        return self._window - len(self._outstanding)

    def room_at_ms(self, now_ms: int) -> int:
        """When the next outstanding delivery is over; now, if none is outstanding."""
        self._expire(now_ms)
        return next((each.until_ms for each in self._outstanding.values()), now_ms)

    def give(self, delivery: DeliveryId, receipt: ReceiptT, now_ms: int) -> None:
        """The message goes to the client."""
        if self.room(now_ms) <= 0:
            raise InvariantViolated(f"a session with a window of {self._window} has no room")
        if not self._owes:
            self._owes, self._heard_ms = True, now_ms
        self._last_number += 1
        place = (delivery.partition, delivery.index)
        self._outstanding.pop(place, None)  # so that the new one is the last
        self._outstanding[place] = Outstanding(delivery, self._last_number, now_ms + self._ack_timeout_ms, receipt)

    def standing(self, delivery: DeliveryId, now_ms: int) -> Standing:
        if self.find(delivery, now_ms) is not None:
            return Standing.OUTSTANDING
        return Standing.ACKNOWLEDGED if delivery in self._acknowledged else Standing.UNKNOWN

    def find(self, delivery: DeliveryId, now_ms: int) -> Outstanding[ReceiptT] | None:
        """The delivery, if it is outstanding."""
        self._expire(now_ms)
        found = self._outstanding.get((delivery.partition, delivery.index))
        return None if found is None or found.id != delivery else found

    def given_after(self, last: DeliveryId | None, now_ms: int) -> list[Outstanding[ReceiptT]]:
        """What is outstanding and was given after `last`; everything outstanding, if `last` is not known any more."""
        number = 0
        if last is not None:
            found = self.find(last, now_ms)
            number = self._acknowledged.get(last, 0) if found is None else found.number
        self._expire(now_ms)
        return [each for each in self._outstanding.values() if each.number > number]

    def acknowledged(self, settled: Outstanding[ReceiptT]) -> None:
        """Its acknowledgement is durable."""
        place = (settled.id.partition, settled.id.index)
        current = self._outstanding.get(place)
        if current is not None and current.id == settled.id:
            del self._outstanding[place]
        self._acknowledged[settled.id] = settled.number
        while len(self._acknowledged) > REMEMBERED_MAX:
            del self._acknowledged[next(iter(self._acknowledged))]

    def returned(self, settled: Outstanding[ReceiptT]) -> None:
        """The topic owner delivers it again."""
        place = (settled.id.partition, settled.id.index)
        if self._outstanding.get(place) is settled:  # else its time was over, or the message was given again
            del self._outstanding[place]

    def _expire(self, now_ms: int) -> None:
        """All have the same time-out, so the oldest are over first."""
        while self._outstanding:
            place = next(iter(self._outstanding))
            if self._outstanding[place].until_ms > now_ms:
                return
            del self._outstanding[place]

    # --- its client ---------------------------------------------------------------------------------------------------

    def request_began(self) -> None:
        self._requests += 1

    def request_ended(self, now_ms: int) -> None:
        self._requests -= 1
        self._expire(now_ms)
        self._owes, self._heard_ms = bool(self._outstanding), now_ms

    def stream_began(self) -> None:
        """Of a long answer, which says nothing of its client while it is open."""
        self._streams += 1

    def stream_ended(self, now_ms: int) -> None:
        self._streams -= 1
        if not self._owes:
            self._heard_ms = now_ms

    def is_silent(self, now_ms: int) -> bool:
        """Whether the session is over because its client has not been heard for the ack time-out."""
        if self._requests:
            return False
        if self._streams and not self._owes:
            self._heard_ms = now_ms
        return now_ms - self._heard_ms >= self._ack_timeout_ms

    def check_invariants(self) -> None:
        numbers = [each.number for each in self._outstanding.values()]
        if len(numbers) > self._window or numbers != sorted(numbers):
            raise InvariantViolated(f"{len(numbers)} deliveries in a window of {self._window}: {numbers}")
        if min(self._requests, self._streams) < 0:
            raise InvariantViolated("a request ended twice")
