"""Sequence ids of a keyed producer: a contiguous producer whose name one process generated and uses once.

    open -> reserved -> open ...    ids are reserved for a claim, then used or released
      |         |
      +---------+--> retired        final: the process publishes no further id under this name

Rules (hazard key-without-message)
- At most one claim is reserved at a time, so ids are used in the order of their claims and without gaps.
- Ids are used only when their claim is known to be written, and released only when it is known not to be written.
- If it is unknown whether a claim was written, the producer is retired. Its ids are then never published under this
  name, whatever the store shows later: the process that opens the producer finds its last stored id below the claim,
  and knows that the claim will never be published.
"""

from dataclasses import dataclass

from oncelog.core.errors import InvariantViolated
from oncelog.core.ids import SequenceId


@dataclass(frozen=True, slots=True)
class Claim:
    """The sequence ids that an idempotency key is mapped to: `count` ids of one producer, starting at `first`."""

    producer_name: str
    first: SequenceId
    count: int

    @property
    def last(self) -> SequenceId:
        """Inclusive."""
        return SequenceId(self.first + self.count - 1)


class KeyedProducer:
    """next_id: the first id that no claim has used."""

    def __init__(self, producer_name: str, next_id: SequenceId = SequenceId(0)) -> None:
        self.producer_name = producer_name
        self.next_id = next_id
        self.reserved: Claim | None = None
        self.retired = False

    def reserve(self, count: int) -> Claim:
        """Reserve the next `count` ids for one claim; `use`, `release` or `retire` must follow."""
        if self.retired or self.reserved is not None or count < 1:
            raise InvariantViolated("a keyed producer reserves for one claim at a time, and never after it was retired")
        self.reserved = Claim(self.producer_name, self.next_id, count)
        return self.reserved

    def use(self, claim: Claim) -> None:
        """The claim is written, and its messages are handed to the producer now."""
        self._end(claim)
        self.next_id = SequenceId(claim.last + 1)

    def release(self, claim: Claim) -> None:
        """The claim was not written and never will be: its ids are free again, unless the producer is retired."""
        if not self.retired:
            self._end(claim)

    def retire(self) -> None:
        """Idempotent."""
        self.retired = True
        self.reserved = None

    def _end(self, claim: Claim) -> None:
        if self.retired or claim != self.reserved:
            raise InvariantViolated("only the reserved claim of a keyed producer in use can be used or released")
        self.reserved = None
