"""Records in the store that cannot be read: counted by kind, and told once each.

What a record says wrongly is the trouble of that record. Whoever meets one goes on with what it knows of the others.
"""

import logging
from collections import Counter
from zlib import crc32

from oncelog.runtime.telemetry import Reading, Telemetry

logger = logging.getLogger(__name__)

#: Records told apart; more of them are counted, and told again.
TOLD_MAX = 10_000


class DamagedRecords:
    """Of one process."""

    def __init__(self) -> None:
        #: {what kind of record: how often one could not be read}
        self.counts: Counter[str] = Counter()
        self._told: set[tuple[str, int]] = set()

    def note(self, what: str, data: bytes, why: str) -> None:
        """what: the kind, such as "a policies record"."""
        self.counts[what.removeprefix("a ").removeprefix("an ").removeprefix("the ")] += 1
        key = (what, crc32(data))
        if key in self._told:
            return
        if len(self._told) >= TOLD_MAX:
            self._told.clear()
        self._told.add(key)
        fields = {"record": what, "bytes": len(data), "reason": why}
        logger.error("a record in ZooKeeper cannot be read, and is passed over", extra={"fields": fields})


DAMAGED = DamagedRecords()


def observe_damaged(telemetry: Telemetry) -> None:
    """The counts as a metric of this process."""
    telemetry.observe_count(
        "damaged_records",
        "Reads of records in ZooKeeper that could not be read, by kind",
        lambda: [Reading(count, {"record": what}) for what, count in DAMAGED.counts.items()],
    )
