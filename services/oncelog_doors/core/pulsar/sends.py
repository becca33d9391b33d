"""The SENDs of one opening of a producer: answers in their order, and how a client learns that one failed.

    taken    in the order of the connection
    decided  by the log, or by a check before it; in any order
    ended    the session of the producer is over: fenced, continued elsewhere, without rights, topic deleted, …

Receipts leave in the order of the SENDs, because a client takes one that comes too early for a fault of the connection,
or waits for ever (hazard receipt-out-of-order). An error is in this order, too.

A failed batch is answered in one of two ways (see `families`). Java fails the batch that SEND_ERROR 22 names by its
highest id. In all other families no SEND_ERROR fails one batch. There the producer is closed, and its next PRODUCER is
answered with 8, which fails all pending batches; the PRODUCER after that succeeds. A batch that was handed to the log
before may be stored: as always, the outcome of a failed message is unknown. After the refusal nothing more of this
opening is handed over.
"""

from collections import deque
from dataclasses import dataclass

from oncelog.core.errors import BacklogQuotaExceeded, InvariantViolated, OncelogError
from oncelog.core.ids import Position
from oncelog_doors.core.pulsar.families import ClientFamily
from oncelog_doors.core.pulsar.server_errors import Refusal, ServerError
from oncelog_doors.core.pulsar.verdicts import Accepted, Ids, Verdict


@dataclass(frozen=True, slots=True)
class WriteReceipt:
    """It repeats the ids as they were sent: Java closes the connection for another highest id."""

    ids: Ids
    place: Position | None


@dataclass(frozen=True, slots=True)
class WriteSendError:
    """sequence_id: the highest one of the batch. Any other code than this one would close or silence something."""

    sequence_id: int
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class CloseProducer:
    """The client opens it again. due: the answer to its next PRODUCER; None: what the log then says."""

    due: Refusal | None = None


SendEffect = WriteReceipt | WriteSendError | CloseProducer


class Sends:
    """From PRODUCER_SUCCESS to the end of that opening."""

    def __init__(self, family: ClientFamily) -> None:
        self._family = family
        self._next = 0
        #: [ids, its verdict or None]; the first one has the number `_next - len`
        self._waiting: deque[tuple[Ids, Verdict | None]] = deque()
        #: whether a SEND that comes now is handed to the log. If not, it is ignored: the client sends it again.
        self.takes = True
        #: whether CLOSE_PRODUCER was sent
        self.closed = False

    def taken(self, ids: Ids) -> int:
        """Its number in this opening. Only if `takes`."""
        if not self.takes:
            raise InvariantViolated("a SEND was taken after the end of its opening")
        self._waiting.append((ids, None))
        self._next += 1
        return self._next - 1

    def decided(self, number: int, verdict: Verdict) -> list[SendEffect]:
        """The log, or a check before it, has decided about a SEND. Returns the answers that are due now."""
        if self.closed:
            return []
        at = number - (self._next - len(self._waiting))
        if at < 0 or self._waiting[at][1] is not None:
            raise InvariantViolated(f"SEND {number} was judged twice")
        self._waiting[at] = (self._waiting[at][0], verdict)
        if not isinstance(verdict, Accepted) and not self._family.fails_one_message:
            self.takes = False
        return self._due()

    def _due(self) -> list[SendEffect]:
        effects: list[SendEffect] = []
        while self._waiting and not self.closed:
            ids, verdict = self._waiting[0]
            if verdict is None:
                break
            self._waiting.popleft()
            if isinstance(verdict, Accepted):
                effects.append(WriteReceipt(ids, verdict.place))
            elif self._family.fails_one_message:
                effects.append(WriteSendError(ids.last, Refusal(ServerError.NOT_ALLOWED_ERROR, verdict.sentence)))
            else:
                effects += self._close(_failing_all(verdict.sentence))
        return effects

    def ended(self, error: OncelogError) -> list[SendEffect]:
        """The session is over, so nothing that waits is decided any more. What the next PRODUCER is answered follows
        from the log: fenced 25, without rights 4, deleted 11. Only a quota may be free again by then, so its error is
        due."""
        due = _failing_all(str(error)) if isinstance(error, BacklogQuotaExceeded) else None
        return self._close(due)

    def dropped(self) -> list[SendEffect]:
        """The door cannot keep what this producer sends (see `send_budget`)."""
        return self._close(None)

    def _close(self, due: Refusal | None) -> list[SendEffect]:
        if self.closed:
            return []
        self.closed, self.takes = True, False
        self._waiting.clear()
        return [CloseProducer(due)]

    @property
    def waiting(self) -> int:
        """SENDs without an answer."""
        return len(self._waiting)


def _failing_all(sentence: str) -> Refusal:
    """The only code with which clients of all families fail their pending batches and then go on."""
    return Refusal(ServerError.PRODUCER_BLOCKED_QUOTA_EXCEEDED_EXCEPTION, sentence)
