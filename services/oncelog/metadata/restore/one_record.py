"""What one record in ZooKeeper must be, from what storage nodes hold and from the records around it. Pure.

    /topics/ID  /topics/ID/cursors/NAME  /ledgers/ID     JOIN of that topic (`core.rebuild.join`)
    /pages/ID/LEDGER                                     a copy of it, or JOIN between the ledgers that its link names
    /tombstones/ID                                       empty, if a note says that the topic was deleted
    /deletions/ID                                        what is left of the topic at storage nodes
    /names/…  /policies/…  /storage_cookies/…  …         the newest note; a name that has none: the heads of its topic
    /ids/ledger  /ids/producer                           above all ids that were ever given
    /storage_ends/NODE                                   that the node's starts are unknown, so it starts in limbo

Rules
- The topic goes on without an owner, in an epoch 2^16 above all that was seen: the owner's next compare-and-set fails,
  and the takeover fences its last ledger. A cursor, and the last ledger of a chain, are written together with that.
- While its record cannot be read no owner links a ledger, so inventories have every ledger with an acknowledged entry.
  But the owner may still write to the last one. So the record of the last ledger is never closed here, and not written
  with that of its topic: its recovery finds the end.
- Without its record of a node's starts, ZooKeeper may be one of before them. It is not if all other storage nodes that
  answer serve with it: each has compared it with its own directory.
- Ids of producers are in no inventory. Each write of their counter claims one block, and ZooKeeper counts writes.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.era import Era
from oncelog.core.errors import Conflict, IdsExhausted, NotFound
from oncelog.core.formats.ledger_page import ListPage, PagedLedger, encode_page
from oncelog.core.formats.topic_record import (
    DEDUP_CURSOR,
    CursorRecord,
    LedgerLink,
    TopicRecord,
    encode_cursor,
    encode_topic,
)
from oncelog.core.ids import Incarnation, LedgerId, OwnerEpoch, TopicId
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState, encode_ledger
from oncelog.core.node.starts import REBUILT, JournalEnd, StorageEnd
from oncelog.core.rebuild.evidence import Evidence
from oncelog.core.rebuild.join import join_topic
from oncelog.core.rebuild.result import RebuiltTopic, Review, ReviewReason, WantedLength
from oncelog.core.rebuild.sources import Chain
from oncelog.core.records.id_claim import BLOCK_MAX, Counter, CounterRecord, encode_counter
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.retention.paging import PageSettings
from oncelog.metadata.restore.new_tree import topic_of
from oncelog.metadata.restore.noted_records import NewestRecords
from oncelog.metadata.restore.record_kinds import Kind, RecordPlace
from oncelog.metadata_store.records.deletion_store import Deletion, encode_deletion
from oncelog.metadata_store.records.registry import encode_end
from oncelog.metadata_store.records.topic_store import NameRecord, encode_name
from oncelog.metadata_store.session import paths

#: Above the highest epoch, and the highest ledger id, that was seen: for those that were given and left no trace.
EPOCHS_MARGIN = 1 << 16
IDS_MARGIN = 1 << 20


@dataclass(frozen=True, slots=True)
class Gathered:
    """What is known. evidence: with the records of the topic in ZooKeeper that can be read, beside those of a copy.
    topic: the topic's record and version in ZooKeeper; None: it cannot be read. bad: {path: version} of records of its
    cursor, its pages and of its ledgers that are missing or cannot be read. pages: the others, by name. lengths: of
    closed ledgers, as far as they were read. highest_ledger: that has a record in ZooKeeper. members: storage nodes
    that have a cookie and may return. serving, refusing: those that answer, by whether they have joined the cluster
    with this ZooKeeper. by: the operator."""

    evidence: Evidence
    newest: NewestRecords
    era: Era
    now_ms: int
    by: str
    topic: tuple[TopicRecord, int] | None = None
    bad: Mapping[str, int] = field(default_factory=dict)
    pages: Mapping[LedgerId, ListPage] = field(default_factory=dict)
    lengths: Mapping[LedgerId, int] = field(default_factory=dict)
    highest_ledger: LedgerId = LedgerId(0)
    members: Collection[Incarnation] = ()
    serving: Collection[Incarnation] = ()
    refusing: Collection[Incarnation] = ()


@dataclass(slots=True)
class Draft:
    """records: {path: (value, the version that it replaces; None: whatever is there)}, in the order in which they are
    written; `together`: in one transaction. unreadable: records of the same topic that must be rebuilt, too."""

    records: dict[str, tuple[bytes, int | None]] = field(default_factory=dict)
    together: tuple[str, ...] = ()
    reviews: tuple[Review, ...] = ()
    unreadable: tuple[str, ...] = ()
    wanted: tuple[WantedLength, ...] = ()
    owner_epoch: OwnerEpoch = OwnerEpoch(0)


def topic_ledgers(evidence: Evidence, topic_id: TopicId) -> list[LedgerId]:
    """Every ledger of which an asked node shows anything."""
    return sorted(each for purpose in LedgerPurpose for each in evidence.shown(Chain(topic_id, purpose)))


def topic_of_ledger(evidence: Evidence, ledger_id: LedgerId) -> TopicId:
    """Raises NotFound."""
    for copy in evidence.copies(ledger_id):
        if copy.held.chain is not None:
            return copy.held.chain.topic_id
    raise NotFound(f"no storage node that was asked has an entry of ledger {ledger_id}")


def draft(place: RecordPlace, version: int, known: Gathered) -> Draft:
    """version: of the record; ABSENT_VERSION: it is missing.

    Raises NotFound if nothing says what the record was, Conflict if it cannot be rebuilt now, IdsExhausted.
    """
    match place.kind:
        case Kind.TOPIC:
            return _topic(place, version, known)
        case Kind.CURSOR:
            return _cursor(place, version, known)
        case Kind.PAGE:
            return _page(place, version, known)
        case Kind.DELETION:
            return _deletion(place, version, known)
        case Kind.TOMBSTONE:
            if place.topic_id not in known.evidence.noted.tombstones:
                raise NotFound(f"no storage node has noted that topic {place.topic_id} was deleted", path=place.path)
            return Draft({place.path: (b"", version)})
        case Kind.LEDGER:
            return _ledger(place, version, known)
        case Kind.COUNTER:
            return _counter(place, version, known)
        case Kind.NAME | Kind.NOTED:
            return _noted(place, version, known)
        case Kind.STARTS:
            return _starts(place, version, known)


# --- topics -----------------------------------------------------------------------------------------------------------


def _rebuilt(topic_id: TopicId, known: Gathered) -> RebuiltTopic:
    """Raises Conflict, NotFound."""
    if topic_id in known.evidence.noted.tombstones:
        raise Conflict(f"topic {topic_id} was deleted", topic_id=topic_id)
    rebuilt = join_topic(known.evidence, topic_id, known.era, PageSettings(), known.now_ms)
    if not rebuilt.record.name:
        raise NotFound(f"no storage node, note or copy names topic {topic_id}", topic_id=topic_id)
    return rebuilt


def _topic(place: RecordPlace, version: int, known: Gathered) -> Draft:
    rebuilt = _rebuilt(place.topic_id, known)
    copied = known.evidence.copied
    cursor = copied.cursors.get(place.topic_id, CursorRecord(OwnerEpoch(0)))
    former = copied.topics.get(place.topic_id, TopicRecord(place.topic_id, ""))
    epoch = _epoch_above(place.topic_id, known, cursor.owner_epoch, former.owner_epoch)
    record = replace(topic_of(rebuilt, known.by), owner=None, owner_epoch=epoch)
    done = Draft(reviews=rebuilt.reviews, owner_epoch=epoch)
    for page in rebuilt.pages:
        if known.pages.get(page.name) != page:
            done.records[paths.page(place.topic_id, page.name)] = (encode_page(page), None)
    last = _last_ledgers(rebuilt)
    for ledger in rebuilt.ledgers:
        path = paths.ledger(ledger.ledger_id)
        if path in known.bad and ledger.ledger_id not in last:
            whole, wanted = _with_length(ledger, rebuilt, known)
            done.wanted += wanted
            done.records[path] = (encode_ledger(whole), known.bad[path])
    done.records[place.path] = (encode_topic(record), version)
    cursor_path = paths.cursor(place.topic_id, DEDUP_CURSOR)
    done.unreadable = tuple(path for each in sorted(last) if (path := paths.ledger(each)) in known.bad)
    if cursor_path in known.bad and rebuilt.cursor is not None and rebuilt.cursor.ledgers:
        done.unreadable += (cursor_path,)
    return done


def _page(place: RecordPlace, version: int, known: Gathered) -> Draft:
    """The page that its link in the topic's record asks for, from a copy of it, or from the heads of its ledgers: their
    number, the first and the last of them are in the link. The owner keeps the topic: it never writes a page anew.

    The time at which each ledger ended is in no head: that of the link, the highest, is taken, so nothing is deleted
    too early. A page that begins with trimmed ledgers keeps its name by its first one. Raises Conflict, NotFound.
    """
    topic_path = paths.topic(place.topic_id)
    if known.topic is None:
        raise Conflict(
            f"the record of the topic, {topic_path}, cannot be read either: rebuild it, and its pages with it",
            path=topic_path,
        )
    link = next((each for each in known.topic[0].pages if each.name == place.ledger_id), None)
    if link is None:
        raise NotFound(f"{topic_path} links no page of this name: it was trimmed, or never there", path=place.path)
    for copied in known.evidence.copied.pages.get(place.topic_id, ()):
        if copied.name == link.name and copied.link_behind(LedgerId(link.first - 1)) == link:
            return Draft({place.path: (encode_page(copied), version)})
    rebuilt = _rebuilt(place.topic_id, known)
    all_links = [LedgerLink(each.ledger_id, each.base_index) for page in rebuilt.pages for each in page.ledgers]
    all_links += rebuilt.record.ledgers
    links = [each for each in all_links if link.first <= each.ledger_id <= link.last]
    found = len(links), *(each.ledger_id for each in (*links[:1], *links[-1:]))
    if found != (link.ledgers, link.first, link.last) or links[0].base_index != link.base_index:
        raise Conflict(
            f"the topic's record says that this page has {link.ledgers} ledgers, {link.first} to {link.last}, and "
            f"storage nodes show {len(links)} of them: start the nodes that are missing, and repeat",
            path=place.path,
        )
    done, records = Draft(), {each.ledger_id: each for each in rebuilt.ledgers}
    behind = [each.base_index for each in all_links if each.ledger_id > link.last][:1]
    indexes = [*(each.base_index for each in links[1:]), *(behind or [links[-1].base_index + 1])]
    ledgers = [] if link.first == link.name else [PagedLedger(link.name, link.base_index, 0, 0)]
    for (ledger_id, base_index), following in zip(links, indexes, strict=True):
        whole, wanted = _with_length(records[ledger_id], rebuilt, known)
        done.wanted += wanted
        size_bytes = whole.length if following > base_index else 0
        ledgers.append(PagedLedger(ledger_id, base_index, size_bytes, link.ended_ms))
    done.records[place.path] = (encode_page(ListPage(tuple(ledgers))), version)
    return done


def _deletion(place: RecordPlace, version: int, known: Gathered) -> Draft:
    """The work that is left, with the ledgers of which storage nodes have anything: repair removes the records of
    others once the deletion has ended. The last ones are fenced, so nothing waits for an owner. Raises Conflict,
    NotFound."""
    topic_id, evidence = place.topic_id, known.evidence
    if version == ABSENT_VERSION:
        raise Conflict(
            f"no deletion of topic {topic_id} goes on: its record is missing once it has ended", path=place.path
        )
    named = {name: record for name, record in known.newest.names().items() if record.topic_id == topic_id}
    heads = [head.name for each in topic_ledgers(evidence, topic_id) if (head := evidence.head(each)) is not None]
    copied = evidence.copied.topics.get(topic_id)
    names = [*named, *heads, *([] if copied is None else [copied.name])]
    if not names:
        raise NotFound(f"no storage node, note or copy names topic {topic_id}", topic_id=topic_id)
    partitions = max((record.partitions_created_max for record in named.values()), default=0)
    last, last_acks = (
        max(evidence.shown(Chain(topic_id, purpose)), default=None)
        for purpose in (LedgerPurpose.LOG, LedgerPurpose.ACKS)
    )
    ledgers = tuple(topic_ledgers(evidence, topic_id))
    deletion = Deletion(topic_id, names[0], partitions, None, ledgers, last, last_acks)
    return Draft({place.path: (encode_deletion(deletion), version)})


def _with_length(
    ledger: LedgerMetadata, rebuilt: RebuiltTopic, known: Gathered
) -> tuple[LedgerMetadata, tuple[WantedLength, ...]]:
    """(The record, what is to be read for its length)."""
    if ledger.ledger_id in known.lengths:
        return replace(ledger, length=known.lengths[ledger.ledger_id]), ()
    return ledger, tuple(each for each in rebuilt.wanted if each.ledger_id == ledger.ledger_id)


def _epoch_above(topic_id: TopicId, known: Gathered, *others: OwnerEpoch) -> OwnerEpoch:
    held = [
        copy.held.owner_epoch
        for ledger_id in topic_ledgers(known.evidence, topic_id)
        for copy in known.evidence.copies(ledger_id)
    ]
    return OwnerEpoch(max(known.era.first_epoch, *others, *held) + EPOCHS_MARGIN)


def _deposed(known: Gathered, topic_id: TopicId) -> tuple[TopicRecord, int]:
    """The topic's record without its owner, and the version that it replaces. Raises Conflict."""
    if known.topic is None:
        path = paths.topic(topic_id)
        raise Conflict(f"the record of the topic, {path}, cannot be read either: rebuild it first", path=path)
    record, version = known.topic
    epoch = _epoch_above(topic_id, known, record.owner_epoch)
    return replace(record, owner=None, owner_epoch=epoch), version


def _cursor(place: RecordPlace, version: int, known: Gathered) -> Draft:
    topic, topic_version = _deposed(known, place.topic_id)
    rebuilt = _rebuilt(place.topic_id, known)
    cursor = replace(rebuilt.cursor or CursorRecord(OwnerEpoch(0)), owner_epoch=topic.owner_epoch)
    topic_path = paths.topic(place.topic_id)
    return Draft(
        {place.path: (encode_cursor(cursor), version), topic_path: (encode_topic(topic), topic_version)},
        together=(place.path, topic_path), reviews=rebuilt.reviews, owner_epoch=topic.owner_epoch,
        unreadable=tuple(path for each in cursor.ledgers if (path := paths.ledger(each.ledger_id)) in known.bad),
    )  # fmt: skip


def _ledger(place: RecordPlace, version: int, known: Gathered) -> Draft:
    topic_id = topic_of_ledger(known.evidence, place.ledger_id)
    topic, topic_version = _deposed(known, topic_id)
    rebuilt = _rebuilt(topic_id, known)
    record = next((each for each in rebuilt.ledgers if each.ledger_id == place.ledger_id), None)
    if record is None:
        raise NotFound(
            f"ledger {place.ledger_id} is in no list of topic {topic.name}: it was trimmed, or nothing in it was "
            "acknowledged",
            topic_id=topic_id,
        )
    reviews = tuple(each for each in rebuilt.reviews if each.purpose is None or _is_about(each, place.ledger_id))
    if place.ledger_id not in _last_ledgers(rebuilt, topic):
        record, wanted = _with_length(record, rebuilt, known)
        return Draft({place.path: (encode_ledger(record), version)}, reviews=reviews, wanted=wanted)
    if record.state is LedgerState.CLOSED:
        raise Conflict(
            f"ledger {place.ledger_id} is the last one of its chain, and repair has moved copies of it: only a "
            "restore, which stops its owner first, can say where it ends (`oncelog admin backup restore`)",
            ledger_id=place.ledger_id,
        )
    topic_path = paths.topic(topic_id)
    return Draft(
        {place.path: (encode_ledger(record), version), topic_path: (encode_topic(topic), topic_version)},
        together=(place.path, topic_path), reviews=reviews, owner_epoch=topic.owner_epoch,
    )  # fmt: skip


def _is_about(review: Review, ledger_id: LedgerId) -> bool:
    sides = [side for side in (review.before, review.behind) if side is not None]
    return not sides or any(side.first <= ledger_id <= side.last for side in sides)


def _last_ledgers(rebuilt: RebuiltTopic, *others: TopicRecord) -> set[LedgerId]:
    """Of each chain, by the rebuild and by other records of the topic: its owner may write to them."""
    last = {each.ledgers[-1].ledger_id for each in (rebuilt.record, *others) if each.ledgers}
    last |= {each.acks[-1] for each in (rebuilt.record, *others) if each.acks}
    if rebuilt.cursor is not None and rebuilt.cursor.ledgers:
        last.add(rebuilt.cursor.ledgers[-1].ledger_id)
    return last


def _noted(place: RecordPlace, version: int, known: Gathered) -> Draft:
    """Raises NotFound; Conflict if only a newer version can read the note."""
    value, damage = known.newest.value(place.path), known.newest.damaged.get(place.path)
    if value is None and place.kind is Kind.NAME:
        value = encode_name(_name(place, known))
    if value is None:
        why = f"its notes are damaged ({damage})" if damage else "or the newest one says that it was deleted"
        raise NotFound(f"no storage node has a note of {place.path} that can be read, {why}", path=place.path)
    if (fault := place.fault(value)) is not None:
        raise Conflict(f"only the version that wrote the note of {place.path} can rebuild it: {fault}", path=place.path)
    if damage is None:
        return Draft({place.path: (value, version)})
    message = f"its newest note is damaged: {damage}; accepted: what is known from before, or from heads, is written"
    review = Review(place.topic_id, place.path, ReviewReason.DAMAGED, message)
    return Draft({place.path: (value, version)}, reviews=(review,))


# --- names, counters --------------------------------------------------------------------------------------------------


def _name(place: RecordPlace, known: Gathered) -> NameRecord:
    """Of a topic that was created by use: the topic with the newest head of this name. Raises NotFound."""
    name = place.path.removeprefix(f"{paths.NAMES}/")
    evidence = known.evidence
    newest = {
        topic_id: max(ledgers)
        for topic_id in evidence.topic_ids
        if topic_id not in evidence.noted.tombstones and (ledgers := _ledgers_named(evidence, topic_id, name))
    }
    if not newest:
        raise NotFound(f"no storage node has a note of {place.path}, or a ledger of a topic with this name")
    return NameRecord(max(newest, key=lambda each: newest[each]))


def _ledgers_named(evidence: Evidence, topic_id: TopicId, name: str) -> list[LedgerId]:
    heads = ((each, evidence.head(each)) for each in topic_ledgers(evidence, topic_id))
    return [each for each, head in heads if head is not None and head.name == name]


def counter_fault(record: CounterRecord, place: RecordPlace, known: Gathered) -> str | None:
    """Why the number of a counter that can be read is wrong; None: it may be right."""
    if record.next >= Era(known.era.number + 1, "").first_id:
        return f"its number, {record.next}, is beyond the ids of era {known.era.number}"
    if place.counter is Counter.LEDGER and record.next <= _highest_ledger(known):
        return f"its number, {record.next}, is not above ledger {_highest_ledger(known)}"
    return None


def _highest_ledger(known: Gathered) -> LedgerId:
    return max([known.highest_ledger, *known.evidence.ledger_ids])


def _counter(place: RecordPlace, version: int, known: Gathered) -> Draft:
    """Raises Conflict, IdsExhausted."""
    if place.counter is Counter.LEDGER:
        following = max(known.era.first_id, _highest_ledger(known)) + IDS_MARGIN
    elif version == ABSENT_VERSION:
        raise Conflict(
            f"{place.path} is missing, so nothing says which ids were given: only a restore, whose era has ids of its "
            "own, can go on (`oncelog admin backup restore`)",
            path=place.path,
        )
    else:
        following = known.era.first_id + (version + 1) * BLOCK_MAX
    if following >= Era(known.era.number + 1, "").first_id:
        raise IdsExhausted(
            f"{place.path} would begin at {following}, beyond the ids of era {known.era.number}: only a restore, whose "
            "era has ids of its own, can go on (`oncelog admin backup restore`)",
            counter=place.counter.value,
        )
    record = CounterRecord(following, Incarnation("0" * 32), f"rebuilt-{known.now_ms}-{version}")
    return Draft({place.path: (encode_counter(record), version)})


# --- storage nodes ----------------------------------------------------------------------------------------------------


def _starts(place: RecordPlace, version: int, known: Gathered) -> Draft:
    """Raises NotFound, Conflict."""
    if place.node not in known.members:
        raise NotFound(f"no storage node {place.node} that may start has joined this cluster", path=place.path)
    others = sorted({*known.refusing} - {place.node})
    if others or not {*known.serving} - {place.node}:
        found = f"storage nodes {', '.join(others[:10])} do not serve" if others else "no other storage node serves"
        raise Conflict(
            f"{found}, so nothing shows that ZooKeeper is not older than the data: start them, or restore all records "
            "(`oncelog admin backup restore`)",
            path=place.path,
        )
    return Draft({place.path: (encode_end(StorageEnd(0, REBUILT, JournalEnd(0, 0))), version)})
