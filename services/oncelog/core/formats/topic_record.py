"""The records of a topic in ZooKeeper: /oncelog/topics/<topic_id> and its cursors.

The topic record is the ownership fence. A metadata replica assigns an owner by a compare-and-set of owner and
owner_epoch + 1 (acquire). All later writes (open, roll, trim) are the owner's, on the version that it read when the
record named it, or that its last write returned. A cursor's record names its ledgers and the owner_epoch that may add
to them.

The topic record lists both chains of a topic: the log (messages and grants) and the ack log (entries of kind 7). A
ledger that was closed without an entry leaves its list when the next one is linked, in the same write. That is no proof
that its copies may go: of a CLOSED ledger above the floor, only the owner that never wrote to it deletes the record.

Of the log it lists the newest ledgers, and links the pages that list the older ones (`ledger_page`), so that it stays
small however long the log is. The ack log has no pages: it begins at the oldest kept snapshot, so it is short.

Formats: 1 until the first ledger is linked, 6 from then on. Formats 2 to 5 are of clusters below level 8, and are
refused.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from oncelog.core.errors import CorruptEntry, InvariantViolated
from oncelog.core.formats.ledger_page import PageLink
from oncelog.core.formats.record_fields import Further, no_fields, number, numbers, pairs, parse_json, rest, text
from oncelog.core.ids import EntryId, Incarnation, LedgerId, OwnerEpoch, Position, TopicId
from oncelog.core.process_version import FIRST_VERSION

#: Of a topic record without a ledger, and of a cursor.
FORMAT = 1
#: Of a topic record that lists ledgers, each of which begins with a head, or has listed one.
FORMAT_WITH_HEADS = 6
_TOPIC_FIELDS = frozenset(
    (
        "format",
        "topic_id",
        "name",
        "owner",
        "owner_epoch",
        "ledgers",
        "deleted_below",
        "acks",
        "acks_deleted_below",
        "pages",
        "given_up_behind",
    )
)
_CURSOR_FIELDS = frozenset(("format", "owner_epoch", "ledgers", "deleted_below"))
#: The cursor that holds the dedup snapshots.
DEDUP_CURSOR = "oncelog.dedup"


class LedgerLink(NamedTuple):
    """One ledger of a topic's log, and the index in the topic of its first message."""

    ledger_id: LedgerId
    base_index: int


class GivenUpBehind(NamedTuple):
    """A restore has missed storage nodes that may have had more than these last ledgers of both chains (0: the chain
    had none). So the owner writes GivenUp into each chain before anything else; it is owed as long as the chain ends in
    that ledger. The owner drops the field once all listed snapshots are of later. by: the operator."""

    log: LedgerId
    acks: LedgerId
    by: str = ""


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """ledgers: the newest of the log, ascending ids; all but the last are CLOSED. pages: with the older ones, in order.
    deleted_below: the log's ledgers below this id were deleted; it only rises, in the compare-and-set that trims
    (hazard missing-record-is-no-deletion).

    acks, acks_deleted_below: the same for the ack log, which has no ledger before the topic's first subscription.
    format: it only rises. given_up_behind: by a restore; None: nothing.
    further: see `record_fields`.
    """

    topic_id: TopicId
    name: str
    owner: Incarnation | None = None
    owner_epoch: OwnerEpoch = OwnerEpoch(0)
    ledgers: tuple[LedgerLink, ...] = ()
    deleted_below: LedgerId = LedgerId(0)
    acks: tuple[LedgerId, ...] = ()
    acks_deleted_below: LedgerId = LedgerId(0)
    format: int = FORMAT
    pages: tuple[PageLink, ...] = ()
    given_up_behind: GivenUpBehind | None = None
    further: Further = field(default_factory=no_fields, hash=False)

    @property
    def first(self) -> LedgerLink | None:
        """The oldest ledger of the log; None: the log has none."""
        if self.pages:
            return LedgerLink(self.pages[0].first, self.pages[0].base_index)
        return self.ledgers[0] if self.ledgers else None

    @property
    def ledger_count(self) -> int:
        """The ledgers of the log, with those in pages."""
        return sum(page.ledgers for page in self.pages) + len(self.ledgers)

    def placed_on(self, owner: Incarnation) -> "TopicRecord":
        """Acquire: the same chains under a new owner and a higher epoch."""
        return replace(self, owner=owner, owner_epoch=OwnerEpoch(self.owner_epoch + 1))

    def with_ledger(self, link: LedgerLink, *, instead: LedgerId | None = None) -> "TopicRecord":
        """instead: the last ledger, which is CLOSED without an entry and leaves the list."""
        if self.ledgers and link.ledger_id <= self.ledgers[-1].ledger_id:
            raise InvariantViolated(
                f"ledger {link.ledger_id} is not above the topic's last, {self.ledgers[-1].ledger_id}"
            )
        ledgers = _without_last([each.ledger_id for each in self.ledgers], instead)
        return replace(self, ledgers=(*self.ledgers[: len(ledgers)], link), format=FORMAT_WITH_HEADS)

    def with_page(self, page: PageLink) -> "TopicRecord":
        """The same log, its oldest ledgers outside of pages in a page."""
        moved = self.ledgers[: page.ledgers]
        if not moved or (moved[0].ledger_id, moved[-1].ledger_id) != (page.first, page.last):
            raise InvariantViolated(f"{page} does not list the topic's oldest ledgers outside of pages")
        if page.ledgers >= len(self.ledgers):
            raise InvariantViolated("the topic's last ledger is never in a page")
        return replace(self, ledgers=self.ledgers[page.ledgers :], pages=(*self.pages, page))

    def without(self, last_gone: LedgerId, page: PageLink | None = None) -> "TopicRecord":
        """The log without its ledgers up to `last_gone`. page: what is left of the page in which that one is."""
        ledgers = tuple(link for link in self.ledgers if link.ledger_id > last_gone)
        if not ledgers:
            raise InvariantViolated("a trim never takes a topic's last ledger")
        cut = [link for link in self.pages if link.first <= last_gone < link.last]
        if [link.name for link in cut] != ([] if page is None else [page.name]):
            raise InvariantViolated(f"a trim up to ledger {last_gone} leaves a part of {cut}, not {page}")
        kept = tuple(link for link in self.pages if link.first > last_gone)
        pages = kept if page is None else (page, *kept)
        floor = pages[0].first if pages else ledgers[0].ledger_id
        return replace(self, ledgers=ledgers, pages=pages, deleted_below=max(self.deleted_below, floor))

    def with_ack_ledger(self, ledger_id: LedgerId, *, instead: LedgerId | None = None) -> "TopicRecord":
        """instead: as in `with_ledger`."""
        if self.acks and ledger_id <= self.acks[-1]:
            raise InvariantViolated(f"ledger {ledger_id} is not above the last of the ack log, {self.acks[-1]}")
        return replace(self, acks=(*_without_last(self.acks, instead), ledger_id), format=FORMAT_WITH_HEADS)

    def without_first_acks(self, count: int) -> "TopicRecord":
        if count >= len(self.acks):
            raise InvariantViolated("a trim never takes the last ledger of an ack log")
        kept = self.acks[count:]
        return replace(self, acks=kept, acks_deleted_below=max(self.acks_deleted_below, kept[0]))


def _without_last(ledgers: Sequence[LedgerId], last: LedgerId | None) -> Sequence[LedgerId]:
    if last is None:
        return ledgers
    if not ledgers or ledgers[-1] != last:
        raise InvariantViolated(f"ledger {last} cannot be replaced: it is not the last one of its list")
    return ledgers[:-1]


class CursorLink(NamedTuple):
    """One ledger of the dedup cursor. base, acks: positions of its complete base snapshot in the log and in the ack
    log; None when unknown, and for a base without an ack log."""

    ledger_id: LedgerId
    base: Position | None
    acks: Position | None = None


@dataclass(frozen=True, slots=True)
class CursorRecord:
    """ledgers: ascending ids, each beginning with a base snapshot; at most the last is not CLOSED. deleted_below: as in
    TopicRecord, for the cursor's own ledgers."""

    owner_epoch: OwnerEpoch
    ledgers: tuple[CursorLink, ...] = ()
    deleted_below: LedgerId = LedgerId(0)
    further: Further = field(default_factory=no_fields, hash=False)

    def with_ledgers(self, ledgers: tuple[CursorLink, ...]) -> "CursorRecord":
        """The same cursor with this list. It may drop ledgers only at the front of the former list."""
        if not ledgers:
            raise InvariantViolated("a cursor never drops its last ledger")
        return replace(self, ledgers=ledgers, deleted_below=max(self.deleted_below, ledgers[0].ledger_id))


def encode_topic(record: TopicRecord) -> bytes:
    fields: dict[str, Any] = {
        **record.further,
        "format": record.format,
        "topic_id": record.topic_id,
        "name": record.name,
        "owner": record.owner,
        "owner_epoch": record.owner_epoch,
        "ledgers": [list(link) for link in record.ledgers],
        "deleted_below": record.deleted_below,
        "acks": list(record.acks),
        "acks_deleted_below": record.acks_deleted_below,
    }
    if record.given_up_behind is not None:
        fields["given_up_behind"] = record.given_up_behind._asdict()
    if record.format >= FORMAT_WITH_HEADS:
        fields["pages"] = [list(page) for page in record.pages]
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_topic(data: bytes) -> TopicRecord:
    """Raises CorruptEntry when the bytes are not such a record; details: lowest_level, if its cluster is below that."""
    try:
        fields = parse_json(data)
        form = number(fields, "format")
        if FORMAT < form < FORMAT_WITH_HEADS:
            raise CorruptEntry(
                f"topic record of format {form}, below level {FIRST_VERSION}, the lowest that this version reads",
                lowest_level=FIRST_VERSION,
            )
        if form not in (FORMAT, FORMAT_WITH_HEADS):
            raise CorruptEntry(
                f"topic record of format {form}: this version reads formats {FORMAT} and {FORMAT_WITH_HEADS}"
            )
        ledgers = tuple(LedgerLink(LedgerId(ledger), base_index) for ledger, base_index in pairs(fields, "ledgers"))
        owner = None if fields["owner"] is None else Incarnation(text(fields, "owner"))
        epoch = OwnerEpoch(number(fields, "owner_epoch"))
        topic_id, name = TopicId(text(fields, "topic_id")), text(fields, "name")
        acks = tuple(map(LedgerId, numbers({"acks": []} | fields, "acks")))
        floors = _floor(fields), _floor(fields, "acks_deleted_below")
        pages = tuple(_page_link(page) for page in fields["pages"]) if form >= FORMAT_WITH_HEADS else ()
        behind = None if fields.get("given_up_behind") is None else _behind(fields["given_up_behind"])
        further = rest(fields, _TOPIC_FIELDS)
        return TopicRecord(
            topic_id, name, owner, epoch, ledgers, floors[0], acks, floors[1], form, pages, behind, further
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptEntry(f"a topic record cannot be read: {error!r}") from error


def encode_cursor(record: CursorRecord) -> bytes:
    fields = {
        **record.further,
        "format": FORMAT,
        "owner_epoch": record.owner_epoch,
        "ledgers": [list(link if link.acks is not None else link[:2]) for link in record.ledgers],
        "deleted_below": record.deleted_below,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_cursor(data: bytes) -> CursorRecord:
    """Raises CorruptEntry when the bytes are not such a record."""
    try:
        fields = parse_json(data)
        if fields["format"] != FORMAT:
            raise CorruptEntry(f"cursor record of format {fields['format']}: this version reads format {FORMAT}")
        ledgers = tuple(_cursor_link(*link) for link in fields["ledgers"])
        further = rest(fields, _CURSOR_FIELDS)
        return CursorRecord(OwnerEpoch(number(fields, "owner_epoch")), ledgers, _floor(fields), further)
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptEntry(f"a cursor record cannot be read: {error!r}") from error


def _floor(fields: dict[str, Any], name: str = "deleted_below") -> LedgerId:
    """Raises ValueError."""
    return LedgerId(number({name: 0} | fields, name))


def _page_link(page: object) -> PageLink:
    """Raises ValueError, TypeError."""
    name, first, base_index, last, *rest = numbers({"page": page}, "page")
    return PageLink(LedgerId(name), LedgerId(first), base_index, LedgerId(last), *rest)


def _behind(fields: dict[str, Any]) -> GivenUpBehind:
    """Raises KeyError, ValueError."""
    return GivenUpBehind(LedgerId(number(fields, "log")), LedgerId(number(fields, "acks")), text(fields, "by"))


def _cursor_link(ledger: object, base: object, acks: object = None) -> CursorLink:
    """Raises ValueError, TypeError."""
    (ledger_id,) = numbers({"ledger": [ledger]}, "ledger")
    return CursorLink(LedgerId(ledger_id), _position(base), _position(acks))


def _position(value: object) -> Position | None:
    """Raises ValueError."""
    if value is None:
        return None
    ledger_id, entry_id = numbers({"position": value}, "position")
    return Position(LedgerId(ledger_id), EntryId(entry_id))
