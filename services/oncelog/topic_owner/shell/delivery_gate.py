"""Withholds messages from consumers while nothing proves that this owner is still the current one (hazard 31).

    proof young enough -> reports go out at once
    proof too old      -> reports wait, in their order, for a new proof
        proved  -> all that waited goes out
        refused -> every consumer here ends with the error, and looks the topic up again

Why: a process that was stopped wakes up with a full cache and with consumers that are still connected. Other processes
may have taken the topic over meanwhile. A consumer that never acknowledges would never notice.

Rules
- A proof counts from the moment at which it began, on this process's own clock (`ownership_proofs`).
- Only a delivery begins a proof. Answers to acknowledgements need none, because they are durable; but while a delivery
  waits, what follows it waits, too.
- PROOF_AGE_MAX_MS is less than what a stopped owner has at least: its last heartbeat is at most a third of a ZooKeeper
  session old when it stops, and its topics are given to others at the earliest two thirds of a session later.
"""

import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Generic, TypeVar

from oncelog.core.errors import InvariantViolated, OncelogError
from oncelog.metadata_store.session.zookeeper import SESSION_TIMEOUT_MS
from oncelog.topic_owner.shell.ownership_proofs import OwnershipProofs

ReportT = TypeVar("ReportT")

PROOF_AGE_MAX_MS = SESSION_TIMEOUT_MS // 2


class DeliveryGate(Generic[ReportT]):
    """The gate of one topic, for all its consumers."""

    def __init__(
        self,
        proofs: OwnershipProofs,
        *,
        start: Callable[[Coroutine[None, None, None]], None],
        send: Callable[[ReportT], None],
        refused: Callable[[OncelogError], None],
    ) -> None:
        """start: begins work that ends with the topic. send: reports to a consumer. refused: ends every consumer."""
        self._proofs = proofs
        self._start = start
        self._send = send
        self._refused = refused
        #: what waits for the proof that is under way
        self._waiting: deque[ReportT] = deque()

    def report(self, report: ReportT, *, delivers: bool) -> None:
        """Send a report now, or when this owner has proved itself. delivers: whether it carries messages."""
        if not self._waiting:
            if not delivers or time.monotonic() - self._proofs.proved_at < PROOF_AGE_MAX_MS / 1000:
                self._send(report)
                return
            self._start(self._prove())
        self._waiting.append(report)

    def close(self) -> list[ReportT]:
        """The topic has ended here: nothing more is sent. Returns the reports that waited."""
        waiting, self._waiting = self._waiting, deque()
        return list(waiting)

    async def _prove(self) -> None:
        try:
            await self._proofs.prove()
        except InvariantViolated:
            raise
        except OncelogError as error:
            self._refused(error)  # what waits for these consumers goes nowhere then; answers to seeks do go out
        waiting, self._waiting = self._waiting, deque()
        for report in waiting:
            self._send(report)
