"""The lists of ledgers as the records say them, of a log with the ledgers in pages."""

from dataclasses import replace

from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.formats.topic_record import CursorRecord, LedgerLink, TopicRecord
from oncelog.core.ids import Incarnation, LedgerId, OwnerEpoch, TopicId
from oncelog.core.repair.queue_events import ChainRecorded
from oncelog.verify.violation import Violation
from tests.simulation.servers.store.decoding import decode_cursor, decode_page, decode_topic
from tests.simulation.servers.store.store import Store


def page_path(topic_id: TopicId, name: LedgerId) -> str:
    return f"pages/{topic_id}/{name}"


def links_of(store: Store, record: TopicRecord) -> list[LedgerLink]:
    """All ledgers of the log, oldest first. Raises Violation for a link to a page that is not as the link says."""
    found: list[LedgerLink] = []
    for link in record.pages:
        data, _ = store.get(page_path(record.topic_id, link.name))
        if data is None:
            raise Violation("pages", f"the record of the topic links page {link.name}, which does not exist")
        ledgers = link.listed(decode_page(data))
        if (ledgers[0].ledger_id, ledgers[0].base_index, ledgers[-1].ledger_id) != link[1:4]:
            raise Violation("pages", f"page {link.name} has {ledgers}, its link is {link}")
        found += [LedgerLink(each.ledger_id, each.base_index) for each in ledgers]
    return [*found, *record.ledgers]


def ids_of(store: Store, record: TopicRecord) -> list[LedgerId]:
    return [link.ledger_id for link in links_of(store, record)]


def ids_known_to(store: Store, record: TopicRecord) -> list[LedgerId]:
    """The same for an owner that may be deposed and not know it. Pages may be trimmed then: the log begins later."""
    if not record.pages:
        return [link.ledger_id for link in record.ledgers]
    there = [link for link in record.pages if store.get(page_path(record.topic_id, link.name))[0] is not None]
    return ids_of(store, replace(record, pages=tuple(there)))


def chains_of(store: Store, topic_id: TopicId, topic: bytes | None, cursor: bytes | None) -> list[ChainRecorded]:
    """All lists of a topic, from its record and its cursor's, as the repairer reads them."""
    record = TopicRecord(topic_id, "") if topic is None else decode_topic(topic)
    snapshots = CursorRecord(OwnerEpoch(0)) if cursor is None else decode_cursor(cursor)
    dedup = tuple(link.ledger_id for link in snapshots.ledgers)
    log, owner, epoch = tuple(ids_known_to(store, record)), record.owner, record.owner_epoch
    floors = record.deleted_below, record.acks_deleted_below
    return [
        ChainRecorded(topic_id, LedgerPurpose.LOG, log, owner, floors[0], epoch),
        ChainRecorded(topic_id, LedgerPurpose.DEDUP, dedup, owner, snapshots.deleted_below, snapshots.owner_epoch),
        ChainRecorded(topic_id, LedgerPurpose.ACKS, record.acks, owner, floors[1], epoch),
    ]


def chain_of(
    store: Store, topic_id: TopicId, purpose: LedgerPurpose
) -> tuple[tuple[LedgerId, ...], Incarnation | None]:
    """(the listed ledgers, the owner) of a log, an ack log or a cursor, as of now."""
    if purpose is LedgerPurpose.DEDUP:
        data, _ = store.get(f"cursors/{topic_id}")
        return (() if data is None else tuple(link.ledger_id for link in decode_cursor(data).ledgers)), None
    data, _ = store.get(f"topics/{topic_id}")
    if data is None:
        return (), None
    record = decode_topic(data)
    ledgers = tuple(ids_of(store, record))
    return (ledgers if purpose is LedgerPurpose.LOG else record.acks), record.owner


def listed_ledgers_of(store: Store) -> dict[LedgerId, None]:
    """Every ledger that a topic or a cursor names now."""
    listed: dict[LedgerId, None] = {}
    for name in store.children("topics"):
        for purpose in (LedgerPurpose.LOG, LedgerPurpose.ACKS):
            listed.update(dict.fromkeys(chain_of(store, TopicId(name), purpose)[0]))
    for name in store.children("cursors"):
        listed.update(dict.fromkeys(chain_of(store, TopicId(name), LedgerPurpose.DEDUP)[0]))
    return listed
