"""When an open ledger is replaced by the next one: by its size, by its age, and for a member that is missing."""

from dataclasses import dataclass

#: A limit that no ledger reaches.
NO_LIMIT = 1 << 62
#: What counts as a small ledger: by the defaults of the log, under 1,000 entries and 20 MiB.
SMALL_PART = 50


@dataclass(frozen=True, slots=True)
class RollRule:
    """When an open ledger is replaced by the next one: at the first of these limits. Bytes, counts and milliseconds."""

    ledger_bytes_max: int = NO_LIMIT
    ledger_entries_max: int = NO_LIMIT
    #: of a ledger with at least one entry
    ledger_age_max_ms: int = NO_LIMIT
    #: a small ledger, with less than 1 / SMALL_PART of both limits, gets so many times as old
    small_patience: int = 1
    #: how long a live node waits for the place of a member that is absent or gets nothing new
    replace_after_ms: int = NO_LIMIT

    def due(self, entries: int, length: int, age_ms: int) -> bool:
        """Whether a ledger with so many entries and bytes is replaced at this age.

        Each ledger costs a record for ever, so a topic with a message now and then has one a day. But a ledger with an
        entry does not stay open for ever, because repair touches no open ledger (hazard members-lost-in-turn).
        """
        if length >= self.ledger_bytes_max or entries >= self.ledger_entries_max:
            return True
        small = SMALL_PART * entries < self.ledger_entries_max and SMALL_PART * length < self.ledger_bytes_max
        return entries > 0 and age_ms >= self.ledger_age_max_ms * (self.small_patience if small else 1)


#: The rule of a ledger that stays open.
NEVER_ROLLS = RollRule()
