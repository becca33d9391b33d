"""One stream at work: whether it is open and compared, and its numbered rows on their way into the log.

    CLOSED -> OPENING -> READING -> READY        READING only if the log has more than is confirmed
       ^         |          |         |
       |         v          v         v
       +------ FAILED: tried again later; FENCED: tried again once the claim was renewed

Rules
- Rows are sent in the order of their numbers, a bounded number at a time, and only after their numbers are committed.
- A row is confirmed after its message and those of all lower numbers are answered.
"""

from collections import deque
from enum import Enum
from itertools import islice

from oncelog_effects.core.outbox.events import ConfirmRows, SendRows
from oncelog_effects.core.outbox.rows import NumberedRow
from oncelog_effects.core.outbox.streams import Stream

#: Of one SendRows; a single row may be larger.
SEND_ROWS_MAX = 1_000
SEND_BYTES_MAX = 1024 * 1024
#: SendRows of one stream that are under way.
SENDS_MAX = 2
#: Rows of one stream that are numbered and not confirmed, and their bytes, above which no more rows are numbered.
NUMBERED_MAX = 4_000
NUMBERED_BYTES_MAX = 16 * 1024 * 1024


class StreamStage(Enum):
    CLOSED = "closed"
    OPENING = "opening"
    READING = "reading"
    READY = "ready"
    FAILED = "failed"
    FENCED = "fenced"


class StreamState:
    """topic: with the suffix of a partition. rows_max: of one SendRows."""

    def __init__(
        self, topic: str, stream: Stream | None, numbered: tuple[NumberedRow, ...] = (), *, rows_max: int
    ) -> None:
        self.topic = topic
        self._rows_max = rows_max
        #: its row; None: the table has none yet
        self.stream = stream
        self.stage = StreamStage.CLOSED
        #: of its producer's openings
        self.attempt = 0
        self.value_bytes_max = 0
        #: committed numbers above `confirmed`, ascending
        self.numbered = deque(numbered)
        self.numbered_bytes = sum(row.size_bytes for row in numbered)
        #: the highest number in the log as of the opening
        self.opened_at = -1
        #: up to here rows were sent, and answered; what is confirmed is in `stream`
        self.sent = self.stored = stream.confirmed if stream is not None else -1
        self._stored_message = ""
        #: the last number of each SendRows without an answer
        self._sends: deque[int] = deque()
        #: of the ConfirmRows under way: number and id of the last message
        self._confirming: tuple[int, str] | None = None

    @property
    def full(self) -> bool:
        return len(self.numbered) >= NUMBERED_MAX or self.numbered_bytes >= NUMBERED_BYTES_MAX

    def close(self, stage: StreamStage) -> None:
        """What was sent and not answered is unknown."""
        self.stage = stage
        self._sends.clear()
        self.sent = self.stored

    def number(self, rows: list[NumberedRow]) -> None:
        """The numbers are committed."""
        assert self.stream is not None
        self.numbered.extend(rows)
        self.numbered_bytes += sum(row.size_bytes for row in rows)
        self.stream = self.stream._replace(next_number=rows[-1].number + 1)

    def ready(self, stored: int, message_id: str) -> None:
        """The comparison is over: the log has the rows up to this number."""
        self.stage = StreamStage.READY
        self.sent = max(self.sent, stored)
        self._answered(stored, message_id)

    def to_send(self, claim: str) -> list[SendRows]:
        effects: list[SendRows] = []
        if self.stage is not StreamStage.READY or self.stream is None or not self.numbered:
            return effects
        end = self.numbered[-1].number
        while len(self._sends) < SENDS_MAX and self.sent < end:
            first, last, size = self.sent + 1, self.sent, 0
            # The numbers have no gaps.
            for row in islice(self.numbered, first - self.numbered[0].number, None):
                if last >= first and (size + row.size_bytes > SEND_BYTES_MAX or row.number - first >= self._rows_max):
                    break
                last, size = row.number, size + row.size_bytes
            self._sends.append(last)
            self.sent = last
            effects.append(SendRows(claim, self.stream.number, self.topic, self.attempt, first, last))
        return effects

    def answered(self, last: int, message_id: str) -> bool:
        """A SendRows was stored. Returns whether it is one of those that are under way."""
        if not self._sends or self._sends[0] != last:
            return False
        self._sends.popleft()
        self._answered(last, message_id)
        return True

    def _answered(self, last: int, message_id: str) -> None:
        if last > self.stored:
            self.stored, self._stored_message = last, message_id

    def to_confirm(self, claim: str) -> list[ConfirmRows]:
        """At most one at a time: more rows are answered meanwhile."""
        if self.stream is None or self._confirming is not None or self.stored <= self.stream.confirmed:
            return []
        self._confirming = self.stored, self._stored_message
        return [ConfirmRows(claim, self.stream.number, self.topic, self.stored, self._stored_message)]

    def confirmed(self) -> None:
        assert self.stream is not None
        assert self._confirming is not None
        number, message_id = self._confirming
        self.stream, self._confirming = self.stream._replace(confirmed=number, confirmed_message=message_id), None
        while self.numbered and self.numbered[0].number <= self.stream.confirmed:
            self.numbered_bytes -= self.numbered.popleft().size_bytes
