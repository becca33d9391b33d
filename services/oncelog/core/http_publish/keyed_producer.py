"""The ids of one lane: a contiguous producer under a name that one process made up for itself and uses once.

    open -> reserved -> open …      an id is handed out, then used or given back
      |         |
      +---------+--> retired        for good: the name never publishes another id

Rules (hazard 22)
- At most one claim is reserved at a time, so ids are used in the order in which they were claimed, without a hole.
- An id is used only when its claim is known to be written, and given back only when it is known not to be.
- A claim whose fate is unknown retires the lane. Its id is then never published under this name, whatever the store
  shows later: whoever opens the name finds it below that id, and knows that it never will be.
"""

from dataclasses import dataclass

from oncelog.core.errors import InvariantViolated
from oncelog.core.ids import SequenceId


@dataclass(frozen=True, slots=True)
class Claim:
    """The place in the log that a key stands for: `count` ids of one producer, from `first` on."""

    producer_name: str
    first: SequenceId
    count: int

    @property
    def last(self) -> SequenceId:
        """Inclusive."""
        return SequenceId(self.first + self.count - 1)


class Lane:
    """next_id: the first id that no claim has used."""

    def __init__(self, producer_name: str, next_id: SequenceId = SequenceId(0)) -> None:
        self.producer_name = producer_name
        self.next_id = next_id
        self.reserved: Claim | None = None
        self.retired = False

    def reserve(self, count: int) -> Claim:
        """The next ids, for one claim; `use`, `give_back` or `retire` follows."""
        if self.retired or self.reserved is not None or count < 1:
            raise InvariantViolated("a lane reserves for one claim at a time, and never after its end")
        self.reserved = Claim(self.producer_name, self.next_id, count)
        return self.reserved

    def use(self, claim: Claim) -> None:
        """The claim is written: its messages are handed to the producer now."""
        self._end(claim)
        self.next_id = SequenceId(claim.last + 1)

    def give_back(self, claim: Claim) -> None:
        """The claim was not written, and never will be: its ids are free, if the lane still lives."""
        if not self.retired:
            self._end(claim)

    def retire(self) -> None:
        """May be said again."""
        self.retired = True
        self.reserved = None

    def _end(self, claim: Claim) -> None:
        if self.retired or claim != self.reserved:
            raise InvariantViolated("only the reserved claim of a lane in use can be used or given back")
        self.reserved = None
