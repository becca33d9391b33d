"""The oracles of ledgers that no list names: which of their records the repairer may remove.

The simulation removes none, so that every run shows what would have come of each: no owner ever links a ledger whose
record may be gone, and at the end nothing is left of owners that were killed before they linked a ledger.
"""

from oncelog.core.ids import LedgerId, TopicId
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.core.repair import unlisted
from oncelog.verify.violation import Violation
from tests.simulation.servers.store.decoding import decode_ledger
from tests.simulation.servers.store.ledger_lists import chains_of
from tests.simulation.servers.store.store import Store


def check_linked(store: Store, path: str, before: bytes | None, after: bytes) -> None:
    """The record of a topic or of its cursor has changed."""
    kind, _, name = path.partition("/")
    topic_id, others = TopicId(name), {"topics": "cursors", "cursors": "topics"}
    other, _ = store.get(f"{others[kind]}/{topic_id}")
    former, now = ((data, other) if kind == "topics" else (other, data) for data in (before, after))
    lists = chains_of(store, topic_id, *former)
    listed = {ledger_id for chain in lists for ledger_id in chain.ledgers}
    linked = [each for chain in chains_of(store, topic_id, *now) for each in chain.ledgers if each not in listed]
    for ledger_id in linked:
        record = _record(store, ledger_id)
        if record is not None and unlisted.can_go(record, lists):
            raise Violation("unlisted records", f"ledger {ledger_id} is linked, and its record might be gone")


def check_left(store: Store) -> None:
    """At the end, when the last owners of all topics serve."""
    for name in store.children("ledgers"):
        record = _record(store, LedgerId(int(name)))
        if record is None or record.state is LedgerState.CLOSED or record.owner_epoch is None:
            continue
        topic, _ = store.get(f"topics/{record.topic_id}")
        cursor, _ = store.get(f"cursors/{record.topic_id}")
        lists = chains_of(store, record.topic_id, topic, cursor)
        listed = any(record.ledger_id in chain.ledgers for chain in lists)
        if topic is None or listed or record.owner_epoch == max(chain.owner_epoch for chain in lists):
            continue
        store.world.count("ledger that a former owner has left")
        if not unlisted.can_go(record, lists):
            raise Violation("unlisted records", f"ledger {record.ledger_id} of a former owner is left for ever")


def _record(store: Store, ledger_id: LedgerId) -> LedgerMetadata | None:
    data, _ = store.get(f"ledgers/{ledger_id}")
    return None if data is None else decode_ledger(data)
