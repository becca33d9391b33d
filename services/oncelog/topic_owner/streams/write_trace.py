"""Spans of one batch of each frame on its way through this owner, made only while traces are exported.

receive   the frame is read and its batches are validated
check     the core checks the batches and numbers their entries
append    until the response arrives that completes the ack quorum
confirm   last_add_confirmed moves, and the fold with it
answer    until the answer is handed to the client's stream
"""

import time
from dataclasses import dataclass, field

from oncelog.core.ids import SessionNumber
from oncelog.runtime.telemetry import SpanName, Telemetry
from oncelog.topic_owner.shell.topic_runner import TopicRunner


@dataclass(slots=True)
class WriteTrace:
    telemetry: Telemetry
    #: {(session, request): when the core checked it, ns}, for the batches that are traced
    _traced: dict[tuple[SessionNumber, int], int] = field(default_factory=dict)

    def checked(
        self,
        runner: TopicRunner,
        session: SessionNumber,
        request: int,
        *,
        began_ns: int,
        validated_ns: int,
        waits: bool,
    ) -> None:
        """Call after the core has checked a batch. Its frame arrived at `began_ns` and was validated at `validated_ns`.

        waits: its answer follows later. A duplicate was answered already, and a refused batch gets no answer.
        """
        now_ns = time.time_ns()
        self._record(runner, SpanName.RECEIVE, began_ns, validated_ns)
        self._record(runner, SpanName.CHECK, validated_ns, now_ns)
        if waits:
            self._traced[session, request] = now_ns

    def answered(self, runner: TopicRunner, session: SessionNumber, request: int) -> None:
        """The batch's answer is handed to its stream now."""
        checked_at_ns = self._traced.pop((session, request), None)
        if checked_at_ns is not None:
            confirmed_ns = max(checked_at_ns, runner.progress.moved_ns)
            arrived_ns = min(max(checked_at_ns, runner.progress.event_ns), confirmed_ns)
            self._record(runner, SpanName.APPEND, checked_at_ns, arrived_ns)
            self._record(runner, SpanName.CONFIRM, arrived_ns, confirmed_ns)
            self._record(runner, SpanName.ANSWER, confirmed_ns, time.time_ns())

    def forget(self, session: SessionNumber) -> None:
        """The session has ended; its batches are not answered."""
        for key in [key for key in self._traced if key[0] == session]:
            del self._traced[key]

    def _record(self, runner: TopicRunner, name: SpanName, began_ns: int, ended_ns: int) -> None:
        attributes = {"oncelog.topic": runner.name}
        self.telemetry.record_span(name, began_ns=began_ns, ended_ns=ended_ns, attributes=attributes)
