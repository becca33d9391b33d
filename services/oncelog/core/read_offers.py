"""When a reader is offered to read older entries from the storage nodes itself.

    entries from storage nodes, `after_bytes` of them --> an offer: the rest of the range up to the cache
    --the reader answers where it stands and whether it takes further offers--> go on there

Rules
- Bytes count from the beginning of the stream, and again from 0 when no node issues a ticket, or when the reader breaks
  an offer off: what stands against it may last.
- The entries of an offer are worth it if they have `after_bytes` again, at the average size of those that were read.
"""

from oncelog.core.errors import InvalidArgument
from oncelog.core.ids import EntryId, LedgerId, Position


class ReadOffers:
    """Of one read stream."""

    def __init__(self, after_bytes: int | None) -> None:
        """after_bytes: None: no offers on this stream."""
        self._after_bytes = after_bytes
        #: what was read from storage nodes
        self._bytes = self._entries = 0

    def read(self, sizes: list[int]) -> None:
        """Entries of these sizes, in bytes, were read from storage nodes."""
        self._entries += len(sizes)
        self._bytes += sum(sizes)

    def is_due(self, entry_count: int) -> bool:
        """Whether so many more entries are worth an offer."""
        least = self._after_bytes
        if least is None or self._bytes < max(least, 1):
            return False
        return entry_count * self._bytes >= least * self._entries

    def start_over(self) -> None:
        """No storage node issued a ticket."""
        self._bytes = self._entries = 0

    def stop(self) -> None:
        """No offers any more."""
        self._after_bytes = None

    def answered(
        self, at: Position, *, takes_more: bool, ledger_id: LedgerId, first: EntryId, last: EntryId
    ) -> EntryId:
        """The reader goes on at `at` after it was offered these entries, and says whether it takes further offers.

        Returns the next entry to send. Raises InvalidArgument for a position outside of the offer.
        """
        if at.ledger_id != ledger_id or not first <= at.entry_id <= last + 1:
            message = f"the reader was offered entries {ledger_id}:{first} to {ledger_id}:{last}, and cannot go on at "
            raise InvalidArgument(f"{message}{at.ledger_id}:{at.entry_id}", field="resume")
        if not takes_more:
            self.stop()
        if at.entry_id <= last:
            self.start_over()
        return at.entry_id
