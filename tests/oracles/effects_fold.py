"""The reference of ordered effects: which messages must have taken effect, by the changes of the ack log alone."""

from oncelog.core.acks.changes import Change, Evicted, MessagesSkipped, Sought, SubscriptionCreated


class EffectsFold:
    """Of one subscription name. era: (subscription number, seek epoch) of the newest redo; (0, 0): none was asked
    for; None: that of the store, for a recreated subscription knows of no redo."""

    def __init__(self) -> None:
        self.era: tuple[int, int] | None = (0, 0)
        #: nobody needs their effects: skipped, evicted, sought over, or before a redo
        self.exempt: set[int] = set()
        self._created = False

    def apply(self, change: Change, acked: set[int], acked_before: set[int], end: int) -> None:
        """A change that had an effect. acked, acked_before: messages of the subscription. end: of the topic."""
        match change:
            case SubscriptionCreated():
                if self._created:
                    self.era = None
                    self.exempt |= set(range(end))
                self.exempt |= set(range(change.first_index))
                self._created = True
            case Evicted() | MessagesSkipped():
                self.exempt |= acked - acked_before
            case Sought(redo=True):
                self.era = (change.number, change.seek_epoch)
                self.exempt = set(range(change.mark_delete))
            case Sought():
                self.exempt |= set(range(change.mark_delete)) - acked_before
            case _:
                pass

    def lacks(self, store_era: tuple[int, int], applied: frozenset[tuple[tuple[int, int], int]], end: int) -> list[int]:
        """The messages whose effects are missing in a store."""
        era = store_era if self.era is None else self.era
        return [index for index in range(end) if index not in self.exempt and (era, index) not in applied]
