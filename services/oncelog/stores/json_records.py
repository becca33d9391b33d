"""Records in ZooKeeper as JSON with a format number, so that a later version can tell what it reads.

A record that cannot be read is counted by kind, and logged once. Its reader goes on with the other records.
"""

import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from zlib import crc32

from oncelog.core.errors import CorruptEntry
from oncelog.core.formats.record_fields import parse_json
from oncelog.runtime.telemetry import Reading, Telemetry

T = TypeVar("T")
logger = logging.getLogger(__name__)

FORMAT = 1
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


def encode_record(fields: Mapping[str, object]) -> bytes:
    return json.dumps({"format": FORMAT, **fields}, separators=(",", ":")).encode()


def decode_record(data: bytes, what: str, build: Callable[[dict[str, Any]], T]) -> T:
    """Return build(fields). Raises CorruptEntry naming `what` when the bytes are no such record of this format.

    Whatever goes wrong is the record's fault, for nothing but its bytes is looked at; it is counted.
    """
    try:
        fields = parse_json(data)
        if fields["format"] != FORMAT:
            raise CorruptEntry(f"{what} of format {fields['format']!r}: this version reads format {FORMAT}")
        return build(fields)
    except Exception as error:
        DAMAGED.note(what, data, str(error))
        if isinstance(error, CorruptEntry):
            raise
        raise CorruptEntry(f"{what} cannot be read: {type(error).__name__}: {str(error)[:200]}") from error


def noted(what: str, data: bytes, decode: Callable[[bytes], T]) -> T:
    """decode(data), of a record whose layout is the core's. Raises CorruptEntry, counted."""
    try:
        return decode(data)
    except CorruptEntry as error:
        DAMAGED.note(what, data, error.message)
        raise
