"""What a change of a ledger's record means for its copies: the events of repair.

Routine is no event: every closed ledger is read back and then marked whole, and events of that would push takeovers and
lost copies out of the list.
"""

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from oncelog.core.ids import Incarnation
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.runtime.observing.events import EventKind


class RecordChange(NamedTuple):
    """level, message, node, fields: as of `EventRing.note`."""

    kind: EventKind
    level: str
    message: str
    node: str = ""
    fields: dict[str, Any] = {}  # noqa: RUF012 (never changed)


def record_changes(
    former: LedgerMetadata, record: LedgerMetadata, damaged: Collection[Incarnation]
) -> Iterator[RecordChange]:
    """What repair has changed between two versions of a CLOSED ledger's record: a copy is added, damaged, lost, found,
    or frozen. damaged: members that have reported damage."""
    if record.frozen and not former.frozen:
        yield RecordChange(EventKind.REPAIR, "error", "sound copies of a ledger differ: nothing is repaired there")
    if record.lost != former.lost:
        lost, ranges = _entries(record), {"lost": [list(each) for each in record.lost[:20]]}
        if lost > _entries(former):
            yield RecordChange(
                EventKind.COPY_LOST, "error", f"no storage node has {lost} entries of a ledger: they are lost",
                fields=ranges,
            )  # fmt: skip
        else:
            message = f"lost entries of a ledger are there again; {lost} are still lost"
            yield RecordChange(EventKind.COPY_FOUND, "warning", message, fields=ranges)
    lacking = [member for member in record.members if member in damaged]
    if former.verified and not record.verified and lacking:
        shown = ", ".join(map(_short, lacking))
        yield RecordChange(
            EventKind.REPAIR, "warning", f"storage node {shown} lacks entries of a ledger: repair copies them to it",
            lacking[0],
        )  # fmt: skip
    if record.joining is not None and record.joining != former.joining:
        message = f"storage node {_short(record.joining)} gets a copy of a ledger"
        yield RecordChange(EventKind.REPAIR, "info", message, record.joining)
    for old, new in zip(former.members, record.members, strict=True):
        if old != new:
            message = f"storage node {_short(new)} has replaced {_short(old)} as a member of a ledger"
            yield RecordChange(EventKind.REPAIR, "info", message, new, {"replaced": old})


def _entries(record: LedgerMetadata) -> int:
    return sum(last - first + 1 for first, last in record.lost)


def _short(node: Incarnation) -> str:
    return f"{node[:8]}…{node[-4:]}"
