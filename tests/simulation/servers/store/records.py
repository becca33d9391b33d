"""The simulation's shell for reads and writes of records: their paths and bytes in the simulated store."""

from collections.abc import Callable
from typing import Any

from oncelog.core.formats.ledger_page import encode_page
from oncelog.core.formats.topic_record import encode_cursor, encode_topic
from oncelog.core.ledger.metadata import LedgerKey, encode_ledger
from oncelog.core.records.id_claim import Counter, decode_counter, encode_counter
from oncelog.core.records.records import CursorKey, PageKey, ReadRecord, RecordRead, TopicKey, WriteRecord
from tests.simulation.servers.store.decoding import decode_cursor, decode_ledger, decode_page, decode_topic
from tests.simulation.servers.store.ledger_lists import page_path
from tests.simulation.servers.store.store import Store
from tests.simulation.world import Process

#: {type of a key: folder of its records, and their codec}
_KINDS: dict[type, tuple[str, Callable[[Any], bytes], Callable[[bytes], Any]]] = {
    TopicKey: ("topics", encode_topic, decode_topic),
    CursorKey: ("cursors", encode_cursor, decode_cursor),
    LedgerKey: ("ledgers", encode_ledger, decode_ledger),
    PageKey: ("pages", encode_page, decode_page),
    Counter: ("ids", encode_counter, decode_counter),
}


def _path(key: TopicKey | CursorKey | LedgerKey | PageKey | Counter) -> str:
    match key:
        case TopicKey(name) | CursorKey(name):
            return f"{_KINDS[type(key)][0]}/{name}"
        case LedgerKey(ledger_id):
            return f"ledgers/{ledger_id}"
        case PageKey(topic_id, name):
            return page_path(topic_id, name)
        case Counter():
            return f"ids/{key.value}"


def read_record(store: Store, process: Process, effect: ReadRecord[Any], done: Callable[[Any], None]) -> None:
    """done: takes the RecordRead."""
    key, decode = effect.key, _KINDS[type(effect.key)][2]

    def answer(data: bytes | None, version: int) -> None:
        if isinstance(key, PageKey):
            store.world.count("page read")
        done(RecordRead(key, None if data is None else decode(data), version))

    store.read(process, _path(key), answer)


def write_record(store: Store, process: Process, effect: WriteRecord[Any, Any], done: Callable[[Any], None]) -> None:
    """done: takes the RecordWritten."""
    key, page = effect.key, effect.page
    created: tuple[tuple[str, bytes], ...] = ()
    if isinstance(key, TopicKey):
        store.world.count("page written", page is not None)
    if page is not None:
        created = ((page_path(key.topic_id, page.name), encode_page(page)),)
    store.write(
        process, _path(key), _KINDS[type(key)][1](effect.value), effect.version,
        lambda status, after: done(effect.answered(status, after)), created=created,
    )  # fmt: skip
