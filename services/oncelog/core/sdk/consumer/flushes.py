"""Flushes of one consumer: each ends when the owner has answered everything that the consumer had sent before it.

An acknowledgement, negative or not, has an answer of its own. A report, of credit and of what the application has
received, has none, so a flush asks behind the reports: it acknowledges no message. An owner takes the requests of a
stream in their order, and answers this one as every other, whichever its version is. So the answer proves that the
reports before it have taken effect.

Rules
- A flush ends when no acknowledgement with a lower number is pending and, if it is one of reports, the question was
  answered (hazard flushed-before-applied).
- One question answers all flushes with lower numbers: they were wanted before it was sent.
- A new stream carries the question anew, behind what tells its owner what the consumer holds. An owner that cannot
  answer now is asked again later.
"""

from oncelog.core.delivery.events import AckRequested
from oncelog.core.errors import OncelogError
from oncelog.core.ids import ConsumerNumber, SeekEpoch
from oncelog.core.sdk.consumer.events import FlushEnded, FlushWanted


class Flushes:
    """Those that have not ended, by ascending numbers."""

    def __init__(self) -> None:
        #: {request: whether its reports may still be unanswered}
        self._open: dict[int, bool] = {}
        #: the questions that the present stream has carried, and that are unanswered
        self.asked: dict[int, None] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def add(self, flush: FlushWanted, *, reported: bool) -> None:
        """reported: whether the consumer was ever attached, so that there may be reports."""
        self._open[flush.request] = flush.reports and reported

    def abandon(self, request: int) -> None:
        """Nobody waits for it any more."""
        self._open.pop(request, None)

    def question(self, consumer: ConsumerNumber, seek_epoch: SeekEpoch) -> list[AckRequested]:
        """The question that the present stream has not carried. It counts as asked from now on."""
        newest = max((request for request, unanswered in self._open.items() if unanswered), default=0)
        if not newest or newest <= max(self.asked, default=0):
            return []
        self.asked[newest] = None
        return [AckRequested(consumer, newest, seek_epoch, ())]

    def answered(self, request: int) -> None:
        """The owner has answered a question, with an error of the request or without one."""
        self.asked.pop(request, None)
        for each in self._open:
            if each <= request:
                self._open[each] = False

    def ask_later(self, request: int) -> None:
        """The owner could not answer a question."""
        self.asked.pop(request, None)

    def stream_lost(self) -> None:
        self.asked.clear()

    def ended(self, oldest_pending: int | None) -> list[FlushEnded]:
        """Those that are over. oldest_pending: the lowest number of an acknowledgement that is not settled."""
        over = [
            request
            for request, unanswered in self._open.items()
            if not unanswered and (oldest_pending is None or request < oldest_pending)
        ]
        for request in over:
            del self._open[request]
        return [FlushEnded(request) for request in over]

    def drain(self, error: OncelogError) -> list[FlushEnded]:
        """The consumer is over."""
        over = [FlushEnded(request, error) for request in self._open]
        self._open.clear()
        self.asked.clear()
        return over
