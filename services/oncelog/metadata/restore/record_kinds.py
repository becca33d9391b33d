"""Which records in ZooKeeper can be rebuilt one by one, and whether one can be read. Pure."""

import re
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import NamedTuple

from oncelog.core.errors import CorruptEntry, InvalidArgument
from oncelog.core.formats.ledger_page import decode_page
from oncelog.core.formats.topic_record import DEDUP_CURSOR, decode_cursor, decode_topic
from oncelog.core.ids import Incarnation, LedgerId, TopicId
from oncelog.core.ledger.metadata import decode_ledger
from oncelog.core.records.id_claim import Counter, decode_counter
from oncelog.metadata_store.notes.readable import noted_decoder
from oncelog.metadata_store.records.deletion_store import decode_deletion
from oncelog.metadata_store.records.registry import decode_end
from oncelog.metadata_store.records.topic_store import decode_name
from oncelog.metadata_store.session import paths

#: A topic in its namespace with the longest names has less.
PATH_CHARACTERS_MAX = 1_000
_TOPIC_ID = _INCARNATION = re.compile(r"[0-9a-f]{32}")


class Kind(Enum):
    TOPIC = "topic"
    CURSOR = "cursor"
    PAGE = "page of a list of ledgers"
    DELETION = "deletion of a topic"
    TOMBSTONE = "tombstone"
    LEDGER = "ledger"
    COUNTER = "counter"
    NAME = "name"
    NOTED = "noted record"
    STARTS = "starts of a storage node"


class RecordPlace(NamedTuple):
    """A record by its path below the root of the era. topic_id: of a topic, its cursor, a page or a deletion.
    ledger_id: of a ledger, or the name of a page. node: whose starts. decode: raises CorruptEntry for bytes that are no
    such record."""

    path: str
    kind: Kind
    decode: Callable[[bytes], object]
    topic_id: TopicId = TopicId("")
    ledger_id: LedgerId = LedgerId(0)
    counter: Counter = Counter.LEDGER
    node: Incarnation = Incarnation("")

    def fault(self, data: bytes) -> str | None:
        """Why the record cannot be read; None: it can."""
        try:
            self.decode(data)
        except CorruptEntry as error:
            return error.message
        return None


def place_of(path: str) -> RecordPlace:
    """Raises InvalidArgument for a path that is not of such a record."""
    found = _place_of(path) if len(path) <= PATH_CHARACTERS_MAX else None
    if found is None:
        raise InvalidArgument(
            f"path: {path[:100]!r} is no record that can be rebuilt alone: give /topics/ID, "
            f"/topics/ID/cursors/{DEDUP_CURSOR}, /pages/ID/LEDGER, /ledgers/ID, /deletions/ID, /tombstones/ID, "
            "/names/TENANT/NAMESPACE/TOPIC, /ids/ledger, /ids/producer, /storage_ends/NODE, or the path of policies, "
            "of a storage cookie or of /idempotency; all records at once: `oncelog admin backup restore`",
            field="path",
        )
    return found


def _place_of(path: str) -> RecordPlace | None:
    match path.split("/"):
        case ["", "topics", topic_id] if _TOPIC_ID.fullmatch(topic_id):
            return RecordPlace(path, Kind.TOPIC, decode_topic, TopicId(topic_id))
        case ["", "topics", topic_id, "cursors", name] if _TOPIC_ID.fullmatch(topic_id) and name == DEDUP_CURSOR:
            return RecordPlace(path, Kind.CURSOR, decode_cursor, TopicId(topic_id))
        case ["", "pages", topic_id, number] if _TOPIC_ID.fullmatch(topic_id) and _is_ledger(number):
            return RecordPlace(path, Kind.PAGE, decode_page, TopicId(topic_id), LedgerId(int(number)))
        case ["", "deletions", topic_id] if _TOPIC_ID.fullmatch(topic_id):
            return RecordPlace(path, Kind.DELETION, partial(decode_deletion, TopicId(topic_id)), TopicId(topic_id))
        case ["", "tombstones", topic_id] if _TOPIC_ID.fullmatch(topic_id):
            return RecordPlace(path, Kind.TOMBSTONE, bytes, TopicId(topic_id))
        case ["", "ledgers", number] if _is_ledger(number):
            return RecordPlace(path, Kind.LEDGER, decode_ledger, ledger_id=LedgerId(int(number)))
        case ["", "storage_ends", node] if _INCARNATION.fullmatch(node):
            return RecordPlace(path, Kind.STARTS, decode_end, node=Incarnation(node))
        case ["", "policies", "namespaces", tenant] if tenant:
            return RecordPlace(path, Kind.NOTED, bytes)  # it has no content
        case ["", "ids", name] if name in [each.value for each in Counter]:
            return RecordPlace(path, Kind.COUNTER, decode_counter, counter=Counter(name))
    if not paths.is_noted(path) or "" in path.split("/")[1:] or path == paths.CLUSTER:
        return None
    decode = noted_decoder(path)
    return None if decode is None else RecordPlace(path, Kind.NAME if decode is decode_name else Kind.NOTED, decode)


def _is_ledger(number: str) -> bool:
    return number.isascii() and number.isdecimal() and 0 < int(number) < 2**63
