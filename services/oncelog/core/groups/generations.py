"""The generations of one group: which one is current, and which one may be the next.

    current --begin_write--> writing --written--> ready --begin--> current
                                     --failed---> (unknown whether it is durable: the next one is above it)

Rules
- A generation is current only after it is durable, so that no two coordinators give the same one to members (hazard
  coordinator-is-lost).
- No generation is tried twice: a write whose outcome is unknown may be durable, and a former coordinator may have given
  it to members.
"""

from oncelog.core.errors import InvariantViolated
from oncelog.core.ids import Generation


class Generations:
    """current: of the members; after a takeover, the durable one."""

    def __init__(self, durable: Generation) -> None:
        self.current = durable
        self._durable = durable
        #: no generation up to this one may begin
        self._floor = durable
        #: in flight
        self.writing: Generation | None = None

    @property
    def highest(self) -> Generation:
        """No generation above it has been given to anyone, or written."""
        return max(self._durable, self._floor)

    @property
    def is_ready(self) -> bool:
        """Whether a durable generation is there that may begin."""
        return self._durable > self._floor

    @property
    def next(self) -> Generation:
        return Generation(self.highest + 1)

    def begin_write(self) -> Generation:
        if self.writing is not None or self.is_ready:
            raise InvariantViolated(f"generation {self.writing} is in flight, or {self._durable} is ready")
        self.writing = self.next
        return self.writing

    def written(self, generation: Generation) -> None:
        """More than was written: someone else may have got it, so it does not begin here."""
        if self.writing is None or generation < self.writing:
            return
        if generation > self.writing:
            self._floor = generation
        self._durable, self.writing = generation, None

    def failed(self, generation: Generation) -> bool:
        """Whether this was the write in flight."""
        if self.writing != generation:
            return False
        self._floor, self.writing = max(self._floor, generation), None
        return True

    def begin(self) -> Generation:
        if not self.is_ready:
            raise InvariantViolated(f"generation {self._durable} is not ready, {self._floor} was given")
        self.current = self._floor = self._durable
        return self.current

    def raise_floor(self, generation: Generation) -> None:
        """The next one must be above it."""
        self._floor = max(self._floor, generation)
