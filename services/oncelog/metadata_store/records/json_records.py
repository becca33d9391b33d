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
#: Unreadable records remembered, so that each is logged once. Beyond this number they are logged again.
LOGGED_MAX = 10_000
#: Every kind of record, without its article. Their counts are exported at 0 too, so that the first failure is a rise.
KINDS = (
    "counter record",
    "cursor record",
    "end of a storage node's journal",
    "ledger record",
    "metadata service's record",
    "owner's record",
    "page of ledgers",
    "policies record",
    "progress of repair",
    "proof of a topic",
    "record of a deletion",
    "record of a topic name",
    "record of the keys' data",
    "storage cookie",
    "storage node's record",
    "topic record",
)


class DamagedRecords:
    """The unreadable records of one process."""

    def __init__(self) -> None:
        #: {kind of record: number of failed reads}
        self.counts: Counter[str] = Counter()
        self._logged: set[tuple[str, int]] = set()

    def note(self, what: str, data: bytes, why: str, *, path: str = "") -> None:
        """what: the kind, for example "a policies record". path: of the record, below the root of its era."""
        self.counts[kind_of(what)] += 1
        key = (path or what, crc32(data))
        if key in self._logged:
            return
        if len(self._logged) >= LOGGED_MAX:
            self._logged.clear()
        self._logged.add(key)
        fields = {"record": what, "path": path or None, "bytes": len(data), "reason": why}
        logger.error("cannot read a record in ZooKeeper; ignoring it", extra={"fields": fields})


def kind_of(what: str) -> str:
    """Without the article."""
    return what.removeprefix("a ").removeprefix("an ").removeprefix("the ")


DAMAGED = DamagedRecords()


def observe_damaged(telemetry: Telemetry) -> None:
    """Register the counts as a metric."""
    telemetry.observe_count(
        "damaged_records",
        "Failed reads of damaged records in ZooKeeper, by kind of record",
        lambda: [
            Reading(count, {"record": what}) for what, count in {**dict.fromkeys(KINDS, 0), **DAMAGED.counts}.items()
        ],
    )


def encode_record(fields: Mapping[str, object]) -> bytes:
    return json.dumps({"format": FORMAT, **fields}, separators=(",", ":")).encode()


def decode_record(data: bytes, what: str, build: Callable[[dict[str, Any]], T], *, path: str = "") -> T:
    """Return build(fields). Raises CorruptEntry naming `what` unless the bytes are a record of this format; counted.

    Every exception means a damaged record, because `build` uses nothing but the record. path: of the record, below the
    root of its era, so that the log and the error name what to rebuild.
    """
    try:
        fields = parse_json(data)
        if fields["format"] != FORMAT:
            raise CorruptEntry(f"{what} has format {fields['format']!r}; this version reads format {FORMAT}")
        return build(fields)
    except Exception as error:
        DAMAGED.note(what, data, str(error), path=path)
        why = error.message if isinstance(error, CorruptEntry) else _why(what, error)
        raise _corrupt(path, why) from error


def is_of_newer_format(data: bytes) -> bool:
    """Whether this is an intact record that only a newer version can read."""
    try:
        form = parse_json(data)["format"]
    except (ValueError, KeyError, TypeError, IndexError):
        return False
    return type(form) is int and form > FORMAT


def decoded(what: str, data: bytes, decode: Callable[[bytes], T], *, path: str = "") -> T:
    """decode(data), for a record whose layout is defined in the core. path: as of `decode_record`. Raises CorruptEntry;
    counted. But a record of a cluster below the lowest level is not damaged, and there is nothing to rebuild."""
    try:
        return decode(data)
    except CorruptEntry as error:
        if "lowest_level" in error.details:
            raise CorruptEntry(f"{path}: {error.message}", path=path) from error
        DAMAGED.note(what, data, error.message, path=path)
        raise _corrupt(path, error.message) from error


def _why(what: str, error: Exception) -> str:
    return f"{what} cannot be read: {type(error).__name__}: {str(error)[:200]}"


def _corrupt(path: str, why: str) -> CorruptEntry:
    if not path:
        return CorruptEntry(why)
    return CorruptEntry(f"{path}: {why}. Rebuild it: `oncelog admin backup rebuild {path}`", path=path)
