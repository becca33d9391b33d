"""The records of a topic in ZooKeeper: /oncelog/topics/<topic_id> and its cursors.

The topic record is the ownership fence. A metadata replica assigns an owner by a compare-and-set of owner and
owner_epoch + 1 (acquire). All later writes (open, roll, trim) are the owner's, on the version that it read when the
record named it, or that its last write returned. A cursor's record names its ledgers and the owner_epoch that may add
to them.
"""

import json
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from oncelog.core.errors import CorruptEntry, InvariantViolated
from oncelog.core.formats.record_fields import number, numbers, pairs, parse_json, text
from oncelog.core.ids import EntryId, Incarnation, LedgerId, OwnerEpoch, Position, TopicId

FORMAT = 1
#: The cursor that holds the dedup snapshots.
DEDUP_CURSOR = "oncelog.dedup"


class LedgerLink(NamedTuple):
    """One ledger of a topic's log, and the index in the topic of its first message."""

    ledger_id: LedgerId
    base_index: int


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """ledgers: ascending ids; all but the last are CLOSED. deleted_below: the log's ledgers below this id were deleted;
    it only rises, in the compare-and-set that trims (hazard 67)."""

    topic_id: TopicId
    name: str
    owner: Incarnation | None = None
    owner_epoch: OwnerEpoch = OwnerEpoch(0)
    ledgers: tuple[LedgerLink, ...] = ()
    deleted_below: LedgerId = LedgerId(0)

    def placed_on(self, owner: Incarnation) -> "TopicRecord":
        """Acquire: the same log under a new owner and a higher epoch."""
        return replace(self, owner=owner, owner_epoch=OwnerEpoch(self.owner_epoch + 1))

    def with_ledger(self, link: LedgerLink) -> "TopicRecord":
        if self.ledgers and link.ledger_id <= self.ledgers[-1].ledger_id:
            raise InvariantViolated(
                f"ledger {link.ledger_id} is not above the topic's last, {self.ledgers[-1].ledger_id}"
            )
        return replace(self, ledgers=(*self.ledgers, link))

    def without_first(self, count: int) -> "TopicRecord":
        if count >= len(self.ledgers):
            raise InvariantViolated("a trim never takes a topic's last ledger")
        kept = self.ledgers[count:]
        return replace(self, ledgers=kept, deleted_below=max(self.deleted_below, kept[0].ledger_id))


class CursorLink(NamedTuple):
    """One ledger of the dedup cursor. base: position of its complete base snapshot; None when unknown."""

    ledger_id: LedgerId
    base: Position | None


@dataclass(frozen=True, slots=True)
class CursorRecord:
    """ledgers: ascending ids, each beginning with a base snapshot; at most the last is not CLOSED. deleted_below: as in
    TopicRecord, for the cursor's own ledgers."""

    owner_epoch: OwnerEpoch
    ledgers: tuple[CursorLink, ...] = ()
    deleted_below: LedgerId = LedgerId(0)

    def with_ledgers(self, ledgers: tuple[CursorLink, ...]) -> "CursorRecord":
        """The same cursor with this list. It may drop ledgers only at the front of the former list."""
        if not ledgers:
            raise InvariantViolated("a cursor never drops its last ledger")
        return replace(self, ledgers=ledgers, deleted_below=max(self.deleted_below, ledgers[0].ledger_id))


def encode_topic(record: TopicRecord) -> bytes:
    fields: dict[str, Any] = {
        "format": FORMAT,
        "topic_id": record.topic_id,
        "name": record.name,
        "owner": record.owner,
        "owner_epoch": record.owner_epoch,
        "ledgers": [list(link) for link in record.ledgers],
        "deleted_below": record.deleted_below,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_topic(data: bytes) -> TopicRecord:
    """Raises CorruptEntry when the bytes are not such a record."""
    try:
        fields = parse_json(data)
        if fields["format"] != FORMAT:
            raise CorruptEntry(f"topic record of format {fields['format']}: this version reads format {FORMAT}")
        ledgers = tuple(LedgerLink(LedgerId(ledger), base_index) for ledger, base_index in pairs(fields, "ledgers"))
        owner = None if fields["owner"] is None else Incarnation(text(fields, "owner"))
        epoch = OwnerEpoch(number(fields, "owner_epoch"))
        topic_id, name = TopicId(text(fields, "topic_id")), text(fields, "name")
        return TopicRecord(topic_id, name, owner, epoch, ledgers, _floor(fields))
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptEntry(f"a topic record cannot be read: {error!r}") from error


def encode_cursor(record: CursorRecord) -> bytes:
    fields = {
        "format": FORMAT,
        "owner_epoch": record.owner_epoch,
        "ledgers": [[link.ledger_id, link.base] for link in record.ledgers],
        "deleted_below": record.deleted_below,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_cursor(data: bytes) -> CursorRecord:
    """Raises CorruptEntry when the bytes are not such a record."""
    try:
        fields = parse_json(data)
        if fields["format"] != FORMAT:
            raise CorruptEntry(f"cursor record of format {fields['format']}: this version reads format {FORMAT}")
        ledgers = tuple(_cursor_link(ledger, base) for ledger, base in fields["ledgers"])
        return CursorRecord(OwnerEpoch(number(fields, "owner_epoch")), ledgers, _floor(fields))
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptEntry(f"a cursor record cannot be read: {error!r}") from error


def _floor(fields: dict[str, Any]) -> LedgerId:
    """Raises ValueError."""
    return LedgerId(number({"deleted_below": 0} | fields, "deleted_below"))


def _cursor_link(ledger: object, base: object) -> CursorLink:
    """Raises ValueError, TypeError."""
    found = {"link": [ledger, *(base if isinstance(base, list) else ())]}
    ledger_id, *position = numbers(found, "link")
    if base is None:
        return CursorLink(LedgerId(ledger_id), None)
    base_ledger, base_entry = position
    return CursorLink(LedgerId(ledger_id), Position(LedgerId(base_ledger), EntryId(base_entry)))
