"""What a simulated owner withholds from the consumers of a topic until it has proved itself (hazard
log-known-by-a-deposed-owner).

Only an answer about the log begins a proof. The product proves itself before it delivers, too, where the last proof is
old by its clock; here owners deliver without that, so that runs have more messages of deposed owners, which must do no
harm.

Chance comes from a separate generator, so that proofs change no other run.
"""

import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from oncelog.core.delivery import delivery_gate
from oncelog.core.delivery.delivery_gate import DeliveryGate, GateVerdict
from oncelog.core.delivery.events import DeliverMessages
from oncelog.core.ids import OwnerEpoch
from oncelog.core.sdk.consumer.events import OwnerReport
from tests.simulation.consumers.streams import ConsumerStream
from tests.simulation.servers.owners.ownership_proofs import Asked, Paths

if TYPE_CHECKING:
    from tests.simulation.servers.owners.topic_shell import TopicShell

#: for a whole proof; longer than a ZooKeeper session makes no difference
PROOF_TICKS = 300
NEVER_OLD_MS = 1 << 40

Send = Callable[[ConsumerStream, OwnerReport], None]


class WithheldReports:
    """Of one topic at one owner. send: performs what was withheld. refused: ends every consumer."""

    def __init__(self, shell: "TopicShell", send: Send, refused: Callable[[], None]) -> None:
        self._owner = owner = shell.owner
        self._send = send
        self._refused = refused
        rng = random.Random(f"{owner.world.seed}/{owner.incarnation} says what the log of {shell.topic_id} knows")
        self._paths = Paths(owner.parts.network, owner.parts.nodes, shell.topic_id, rng)
        self._gate = DeliveryGate[tuple[ConsumerStream, OwnerReport]](session_timeout_ms=NEVER_OLD_MS)
        #: (stream, bytes) of each report that waits
        self._held: deque[tuple[ConsumerStream, int]] = deque()

    @property
    def bytes(self) -> int:
        """On streams that have not ended."""
        return sum(size for stream, size in self._held if not stream.over)

    def report(self, stream: ConsumerStream, report: OwnerReport) -> None:
        verdict = self._gate.report((stream, report), delivery_gate.needs_of(report), proof_age_ms=0)
        if verdict is GateVerdict.SEND:
            self._send(stream, report)
            return
        self._held.append((stream, report.cost_bytes if isinstance(report, DeliverMessages) else 0))
        if verdict is GateVerdict.PROVE:
            self._prove()

    def _prove(self) -> None:
        asked = Asked(self._paths, self._owner, OwnerEpoch(0), lambda *_: self._ended(is_proved=True), self._fail)
        self._owner.post(PROOF_TICKS, "is not proved", lambda: None if asked.over else asked.give_up())
        asked.begin()

    def _fail(self) -> None:
        self._ended(is_proved=False)

    def _ended(self, *, is_proved: bool) -> None:
        self._owner.world.count("log known by a proved owner" if is_proved else "log not known without a proof")
        if not is_proved:
            self._refused()
        for stream, report in self._gate.release():
            self._held.popleft()
            self._send(stream, report)
        if self._gate.is_waiting:
            self._prove()
