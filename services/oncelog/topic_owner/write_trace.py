"""Spans of the way of a message through this owner, marks 2 to 6; one batch of each frame, and only while traces leave.

2 receive   the frame is read and its batches are checked
3 judge     the core judges them and numbers their entries
4 append    until the answer that completes the ack quorum arrives
5 confirm   last_add_confirmed moves, the fold with it
6 persist   until the answer is handed to the client's stream
"""

import time
from dataclasses import dataclass, field

from opentelemetry.trace import NoOpTracer

from oncelog.core.ids import SessionNumber
from oncelog.runtime.telemetry import Mark, Telemetry
from oncelog.topic_owner.topic_runner import TopicRunner


@dataclass(slots=True)
class WriteTrace:
    telemetry: Telemetry
    #: {(session, request): when it was judged, ns} of the batches followed
    _followed: dict[tuple[SessionNumber, int], int] = field(default_factory=dict)

    @property
    def on(self) -> bool:
        return not isinstance(self.telemetry.tracer, NoOpTracer)

    def judged(
        self,
        runner: TopicRunner,
        session: SessionNumber,
        request: int,
        *,
        began_ns: int,
        checked_ns: int,
        waits: bool,
    ) -> None:
        """The batch was received from `began_ns` on, checked by `checked_ns`, and is judged now.

        waits: its answer is still to come. A known batch is answered by its judging, and a refused one never is.
        """
        now_ns = time.time_ns()
        self._record(runner, Mark.RECEIVE, began_ns, checked_ns)
        self._record(runner, Mark.JUDGE, checked_ns, now_ns)
        if waits:
            self._followed[session, request] = now_ns

    def answered(self, runner: TopicRunner, session: SessionNumber, request: int) -> None:
        """The batch's answer is handed to its stream now."""
        judged_ns = self._followed.pop((session, request), None)
        if judged_ns is not None:
            confirmed_ns = max(judged_ns, runner.progress.moved_ns)
            arrived_ns = min(max(judged_ns, runner.progress.event_ns), confirmed_ns)
            self._record(runner, Mark.APPEND, judged_ns, arrived_ns)
            self._record(runner, Mark.CONFIRM, arrived_ns, confirmed_ns)
            self._record(runner, Mark.PERSIST, confirmed_ns, time.time_ns())

    def forget(self, session: SessionNumber) -> None:
        """The session has ended; its batches are not answered."""
        for key in [key for key in self._followed if key[0] == session]:
            del self._followed[key]

    def _record(self, runner: TopicRunner, mark: Mark, began_ns: int, ended_ns: int) -> None:
        attributes = {"oncelog.topic": runner.name}
        self.telemetry.record_span(mark, began_ns=began_ns, ended_ns=ended_ns, attributes=attributes)
