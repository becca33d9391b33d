"""A claimer of ids that tests drive by `send`.

A crash is a claimer that is never resumed, and that is kept until the test ends.
"""

from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any, NamedTuple

from oncelog.core.ids import Incarnation
from oncelog.core.records.id_claim import CounterRecord, IdClaim
from oncelog.core.records.status import WriteStatus

#: as the cluster was created with it
UNCLAIMED = CounterRecord(1, Incarnation(""), "")


class Ask(NamedTuple):
    """A question to the counter. record: None: it is read. version: of a write."""

    record: CounterRecord | None = None
    version: int = 0


#: The counter is read.
READ = Ask()
#: No claim is under way.
IDLE = Ask(version=-1)


@coroutine
def _asked(ask: Ask) -> Generator[Ask, Any, Any]:
    return (yield ask)


class Claimer:
    """One process. asks: what its claim waits for. granted: {request: its id; None: there is none left}."""

    def __init__(self, claimer: Incarnation, **named: Any) -> None:
        self.core = IdClaim(claimer, **named)
        self.asks = IDLE
        self.granted: dict[int, int | None] = {}
        self._claim: Coroutine[Ask, Any, None]

    def request(self, number: int) -> None:
        if self.core.request(lambda granted: self._grant(number, granted)):
            self._claim = self.core.claim(self)
            self.answer(None)

    def _grant(self, request: int, granted: int | None) -> None:
        assert request not in self.granted
        self.granted[request] = granted

    def answer(self, answer: Any) -> None:
        """Resume the claim, to its next question."""
        try:
            self.asks = self._claim.send(answer)
        except StopIteration:
            self.asks = IDLE
        self.core.check_invariants()

    async def read(self) -> tuple[CounterRecord | None, int]:
        return await _asked(READ)  # type: ignore[no-any-return]

    async def write(self, record: CounterRecord, *, version: int) -> WriteStatus:
        return await _asked(Ask(record, version))  # type: ignore[no-any-return]
