"""The commands of stories about rebuilt records, and what is rebuilt, in words.

    ledger 2 former=1:4 index=5 abc=0-3 d=limbo:0,2    nodes a, b, c and d have these entries, of 10 bytes each
    record topic log=1,2@5                             the records of ZooKeeper, of which there is a copy
    note orders 7                                      storage nodes have noted the name of topic 7
    rebuild absent=c                                   what is rebuilt while c does not answer

The docstrings of the methods `do_…` say more. Nodes are letters, `2@5` is ledger 2, whose first message has index 5.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.era import FIRST_ERA, Era
from oncelog.core.formats.head import LedgerHead
from oncelog.core.formats.ledger_page import ListPage, PageLink
from oncelog.core.formats.note import NoteOrder
from oncelog.core.formats.topic_record import CursorLink, CursorRecord, LedgerLink, TopicRecord
from oncelog.core.ids import EntryId, Incarnation, LedgerId, OwnerEpoch, Position, TopicId
from oncelog.core.ledger.member_status import CopyState
from oncelog.core.ledger.metadata import EntryRange, LedgerMetadata, LedgerState
from oncelog.core.rebuild.difference import difference
from oncelog.core.rebuild.join import join
from oncelog.core.rebuild.result import Asked, CopiedRecords, NotedName, NotedRecords, Rebuilt, RebuiltTopic, Review
from oncelog.core.rebuild.sources import Chain, CopiedEra, HeldLedger, Inventory
from oncelog.core.retention.paging import PageSettings

TOPIC, NAME, FOLDER = TopicId("7" * 32), "public/default/orders", "public/default/"
TWO, PAGES = Era(2, "f" * 32), PageSettings(ledgers=2, inline_max=3)
ABC = tuple(Incarnation(letter * 32) for letter in "abc")
_CHAINS = {"log": LedgerPurpose.LOG, "acks": LedgerPurpose.ACKS, "snapshots": LedgerPurpose.DEDUP}


class JoinWorld:
    def __init__(self) -> None:
        self.held: dict[Incarnation, dict[LedgerId, HeldLedger]] = {node: {} for node in ABC}
        self.floors: dict[Incarnation, dict[Chain, LedgerId]] = {}
        self.committed: dict[Incarnation, Era] = {}
        self.noted = NotedRecords()
        #: in ZooKeeper, or in the copy
        self.topics: dict[TopicId, TopicRecord] = {}
        self.cursors: dict[TopicId, CursorRecord] = {}
        self.ledgers: dict[LedgerId, LedgerMetadata] = {}
        self.pages: dict[TopicId, Sequence[ListPage]] = {}
        self.names: dict[str, NotedName] = {}
        self.complete_below = LedgerId(0)
        self.copied_era = CopiedEra()
        self.happened: list[str] = []

    def do_ledger(
        self, ledger_id: str, chain: str = "log", *, topic: str = "7", former: str = "", index: str = "0",
        floor: str = "0", members: str = "abc", ack_quorum: str = "2", head: str = "", **copies: str,
    ) -> None:  # fmt: skip
        """chain: also acks, snapshots. former ... ack_quorum: what its head says, which is entry 0; `head=none`: it
        is lost. Copies: entries, also behind `limbo:`, `damaged:` or `refilled:` (a copy was erased here before);
        `erased`; `deleted`: erased, since the ledger was deleted; `fenced`: no entry."""
        position = _position(former) if former else None
        written = LedgerHead(NAME, nodes(members), int(ack_quorum), 1, nodes("a")[0], LedgerId(int(floor)), position)
        for names, text in copies.items():
            *words, entries = text.split(":")
            runs = () if text in ("erased", "deleted", "fenced") else _runs(entries)
            states = [each for each in CopyState if each.name.lower() in (*words, text)]
            held = HeldLedger(
                LedgerId(int(ledger_id)),
                None if text in ("deleted", "fenced") else Chain(TopicId(topic * 32), _CHAINS[chain]),
                CopyState.ERASED if text == "deleted" else states[0] if states else CopyState.HELD,
                runs,
                head=written if runs and runs[0].first == 0 and head != "none" else None,
                base_index=int(index),
                last_length=10 * (runs[-1].last + 1) if runs else 0,
                deleted=text == "deleted",
                erased_before=text in ("deleted", "erased") or "refilled" in words,
            )
            for node in nodes(names):
                self.held.setdefault(node, {})[held.ledger_id] = held

    def do_lose(self, *ledger_ids: str) -> None:
        """No node has anything of these ledgers."""
        lost = tuple(map(int, ledger_ids))
        for node, ledgers in self.held.items():
            self.held[node] = {each: held for each, held in ledgers.items() if each not in lost}

    def do_trimmed(self, node: str, floor: str) -> None:
        """The node has erased ledgers of the log below this one."""
        self.floors[nodes(node)[0]] = {Chain(TOPIC, LedgerPurpose.LOG): LedgerId(int(floor))}

    def do_know_era_2(self, names: str) -> None:
        """These nodes know that a restore has begun era 2."""
        self.committed |= dict.fromkeys(nodes(names), TWO)

    def do_note(self, name: str, topic: str, kind: str = "") -> None:
        self.noted = replace(self.noted, names={**self.noted.names, FOLDER + name: _point(topic, kind)})

    def do_tombstone(self, topic: str) -> None:
        self.noted = replace(self.noted, tombstones=self.noted.tombstones | {TopicId(topic * 32)})

    # --- records ------------------------------------------------------------------------------------------------------

    def do_record(self, what: str, *words: str, **fields: str) -> None:
        """`topic`, `cursor`, `ledger ID STATE`, `name NAME TOPIC`, with fields; those of before stay. `complete`: what
        has no record here was not there when era 2 began."""
        named = [(_FIELDS.get(name, (name, int)), text) for name, text in fields.items()]
        given: dict[str, Any] = {name: read(text) for (name, read), text in named}
        match what, words:
            case "topic", ():
                topic_id = given.pop("topic_id", TOPIC)
                self.topics[topic_id] = replace(self.topics.get(topic_id, TopicRecord(topic_id, NAME)), **given)
            case "cursor", ():
                self.cursors[TOPIC] = replace(self.cursors.get(TOPIC, CursorRecord(OwnerEpoch(0))), **given)
            case "ledger", (number, *state):
                ledger = self.ledgers.get(LedgerId(int(number)), LedgerMetadata(LedgerId(int(number)), TOPIC, ABC, 2))
                given |= {"state": LedgerState[state[0].upper()]} if state else {}
                self.ledgers[ledger.ledger_id] = replace(ledger, **given)
            case "name", (name, topic, *kind):
                self.names[FOLDER + name] = _point(topic, *kind)
            case "complete", ():
                self.complete_below = LedgerId(TWO.first_id)
            case _:
                raise ValueError(f"record {what} {words}")

    def do_no_record(self, what: str, which: str) -> None:
        """Remove that of a topic, a ledger or a name."""
        if what == "topic":
            del self.topics[TopicId(which * 32)]
        elif what == "ledger":
            del self.ledgers[LedgerId(int(which))]
        else:
            del self.names[FOLDER + which]

    def do_tree(self) -> None:
        """ZooKeeper has the records and the names that a restore would write."""
        topics = self._rebuilt(None).topics.values()
        self.topics = {topic.record.topic_id: topic.record for topic in topics}
        self.cursors = {topic.record.topic_id: topic.cursor for topic in topics if topic.cursor is not None}
        self.ledgers = {record.ledger_id: record for topic in topics for record in topic.ledgers}
        self.pages = {topic.record.topic_id: topic.pages for topic in topics}
        self.names = {topic.record.name: NotedName(topic.record.topic_id) for topic in topics}

    @property
    def records(self) -> CopiedRecords:
        return CopiedRecords(self.topics, self.cursors, self.ledgers, self.pages, self.complete_below)

    # --- what is said -------------------------------------------------------------------------------------------------

    def do_rebuild(self, **given: str) -> None:
        """absent: nodes that do not answer. limbo: nodes that have lost records of ledgers below 100. by: an operator,
        who gives up all of both, or those of `given_up`. emptied: nodes that count no more. owed_below: the first
        ledger of the era whose restore gave up something."""
        rebuilt = self._rebuilt(self.records, **given)
        head = " ".join(f"{name}={value}" for name, value in given.items())
        self.happened.append(f"{head}{': ' if head else ''}{'; '.join(_parts(rebuilt)) or 'nothing'}")
        self.happened += map(_review, rebuilt.reviews)

    def do_compare(self) -> None:
        """What a drill shows: how the tree differs from what is rebuilt without its copy."""
        found = difference(self._rebuilt(None), self.records, self.names)
        self.happened += [shortened(each.message) for each in found] or ["no difference"]

    def do_show_topic(self) -> None:
        """Say what the records of a rebuilt topic have besides ledgers."""
        rebuilt = self._rebuilt(self.records)
        record, cursor = rebuilt.topics[TOPIC].record, rebuilt.topics[TOPIC].cursor
        epochs = " ".join(hex(each.owner_epoch) for each in (record, cursor) if each is not None)
        said = f"{record.name}, format {record.format}, owner {record.owner}, epochs {epochs}"
        self.happened.append(f"{said}; next id {rebuilt.next_id:#x}")

    def do_copy_of_era(self, number: str, *paths: str) -> None:
        """There is a copy of this era, which has records at these paths."""
        self.copied_era = CopiedEra(int(number), paths)

    def do_believe(self, path: str, what: str = "", *, era: str) -> None:
        """Whether a note of that era about this record is believed. what: `deleted`, if it says so."""
        believed = self.copied_era.believes(path, NoteOrder(int(era), 9, what == "deleted", 4))
        self.happened.append(f"note of era {era} about {path}: {'' if believed else 'not '}believed")

    def _rebuilt(
        self, records: CopiedRecords | None, *, absent: str = "", limbo: str = "", by: str = "",
        given_up: str | None = None, emptied: str = "", owed_below: str = "0", ack_quorum: str = "2",
    ) -> Rebuilt:  # fmt: skip
        inventories = [
            Inventory(
                node, "cluster", FIRST_ERA, self.held[node], LedgerId(100 if node in nodes(limbo) else 0),
                self.floors.get(node, {}), frozenset({FIRST_ERA, self.committed.get(node, FIRST_ERA)}),
            )
            for node in sorted(self.held)
            if node not in nodes(absent)
        ]  # fmt: skip
        missing = nodes(absent + limbo)
        gone = missing if given_up is None else nodes(given_up)
        asked = Asked(
            missing, int(ack_quorum), by, gone if by else (), LedgerId(int(owed_below)), frozenset(nodes(emptied))
        )  # fmt: skip
        return join(inventories, self.noted, records, asked, TWO, PAGES, now_ms=1)


# --- in words ---------------------------------------------------------------------------------------------------------


def _parts(rebuilt: Rebuilt) -> Iterator[str]:
    alone = list(rebuilt.topics) == [TOPIC]
    for topic_id, topic in rebuilt.topics.items():
        said = list(_topic(topic))
        name = "" if topic.record.name == NAME else f", {topic.record.name.removeprefix(FOLDER)}"
        yield from said if alone else [f"topic {topic_id[0]}{name}: {'; '.join(said) or 'no ledger'}"]
    if not alone or rebuilt.names != {NAME: TOPIC}:
        names = [f"{name.removeprefix(FOLDER)} is topic {topic_id[0]}" for name, topic_id in rebuilt.names.items()]
        yield from names
    if rebuilt.deleted:
        yield f"{rebuilt.deleted} deleted"
    if rebuilt.beyond_bound:
        yield "beyond the bound"


def _topic(topic: RebuiltTopic) -> Iterator[str]:
    wanted = {each.ledger_id: f"length in entry {each.end} at {letters(each.holders)}" for each in topic.wanted}
    records = {record.ledger_id: record for record in topic.ledgers}
    paged = {each.ledger_id: each.base_index for page in topic.pages for each in page.ledgers}
    cursor = topic.cursor or CursorRecord(OwnerEpoch(0))
    chains = (
        ("log", {**paged, **dict(topic.record.ledgers)}, topic.record.deleted_below),
        ("acks", dict.fromkeys(topic.record.acks, 0), topic.record.acks_deleted_below),
        ("snapshots", {link.ledger_id: 0 for link in cursor.ledgers}, cursor.deleted_below),
    )
    for name, ledgers, floor in chains:
        said = [
            f"{number}{f'@{index}' if index else ''} {_record(records[number], wanted.get(number))}"
            for number, index in ledgers.items()
        ]
        if said or floor:
            yield f"{name} {f'from {floor} on: ' if floor else ''}{', '.join(said)}"
    if topic.cursor is not None and not topic.ledgers:
        yield "a cursor"
    for link in topic.record.pages:
        yield f"{link.first}-{link.last} in a page, {link.message_bytes} bytes"
    if topic.passed_over:
        yield f"left out {', '.join(map(str, topic.passed_over))}"
    if topic.without_holder:
        yield f"{topic.without_holder} entries without a holder"
    if topic.given_up is not None:
        by = f" by {topic.given_up.by}" if topic.given_up.by else ""
        yield f"gives up behind log {topic.given_up.log}, acks {topic.given_up.acks}{by}"


def _record(record: LedgerMetadata, wanted: str | None) -> str:
    """`closed at 4 (50 bytes, abc)`: its state and members."""
    said = [letters(record.members)]
    state = record.state.name.lower().replace("_", " ")
    if record.state is LedgerState.CLOSED:
        state += f" at {record.end}"
        said.insert(0, wanted or f"{record.length} bytes")
    if record.lost:
        said.append("lost " + ", ".join(f"{first}-{last}" for first, last in record.lost))
    if record.given_up or record.given_up_by:
        said.append(f"without {letters(record.given_up)} by {record.given_up_by or 'no operator'}")
    said += [word for word in ("joining", "verified") if getattr(record, word)]
    return f"{state} ({', '.join([*said, *record.further])})"


def _review(review: Review) -> str:
    of = "" if review.purpose in (None, LedgerPurpose.LOG) else f" {review.purpose.name}"
    found, _, _ = review.message.partition("; accepted: ")
    sides = [
        f"; {word} {side.first}-{side.last}: {side.ledgers} ledgers, {side.size_bytes} bytes"
        for word, side in (("before", review.before), ("behind", review.behind))
        if side is not None
    ]
    return f"  {review.reason.name}{of}: {shortened(found)}{''.join(sides)}"


# --- from words -------------------------------------------------------------------------------------------------------


def nodes(names: str) -> tuple[Incarnation, ...]:
    return tuple(Incarnation(letter * 32) for letter in names)


def letters(names: Iterable[Incarnation]) -> str:
    short = [shortened(name).rstrip("0") for name in names]
    return ("" if all(len(name) == 1 for name in short) else " ").join(short)


def shortened(text: str) -> str:
    """With one letter or digit for an id of 32 equal ones."""
    return re.sub(r"(\w)\1{31}", r"\1", text)


def _runs(text: str) -> tuple[EntryRange, ...]:
    spans = [part.partition("-") for part in text.split(",")]
    return tuple(EntryRange(EntryId(int(first)), EntryId(int(last or first))) for first, _, last in spans)


def _position(text: str) -> Position:
    ledger_id, _, entry_id = text.partition(":")
    return Position(LedgerId(int(ledger_id)), EntryId(int(entry_id)))


def _point(topic: str, kind: str = "") -> NotedName:
    """kind: `partitioned`, or `deleted`: a tombstone."""
    assert kind in ("", "partitioned", "deleted"), kind
    return NotedName(TopicId(topic * 32), kind == "partitioned", kind == "deleted")


def _ids(text: str) -> tuple[LedgerId, ...]:
    return tuple(LedgerId(int(each)) for each in text.split(","))


def _links(text: str) -> tuple[LedgerLink, ...]:
    listed = [each.partition("@") for each in text.split(",")]
    return tuple(LedgerLink(LedgerId(int(ledger_id)), int(index or 0)) for ledger_id, _, index in listed)


def _page(text: str) -> tuple[PageLink, ...]:
    first, last = (LedgerId(int(each)) for each in text.split("-"))
    return (PageLink(first, first, 0, last, last - first + 1, 12, 0),)


#: {a word of `record`: the field of the record, what reads its value}; others are numbers, under their own name.
_FIELDS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "topic": ("topic_id", lambda text: text * 32), "name": ("name", lambda text: FOLDER + text),
    "owner": ("owner", lambda text: text * 32), "joining": ("joining", lambda text: text * 32),
    "era": ("owner_epoch", lambda text: int(text) << 32), "floor": ("deleted_below", int),
    "log": ("ledgers", _links), "acks": ("acks", _ids), "page": ("pages", _page),
    "snapshots": ("ledgers", lambda text: tuple(CursorLink(each, None) for each in _ids(text))),
    "members": ("members", nodes), "lost": ("lost", _runs), "verified": ("verified", lambda text: text == "yes"),
    "given_up": ("given_up", nodes), "by": ("given_up_by", str), "more": ("further", lambda text: {text: 1}),
}  # fmt: skip
