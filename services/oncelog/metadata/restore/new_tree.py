"""The records of a new era, from what JOIN has rebuilt and what notes and copies say of all others. Pure.

Rules
- Live records, ends of storage nodes and the progress of repair are not taken along: they are of processes of the lower
  era.
- What belongs to a deleted topic is left out. The deletion of a partitioned topic that may not have ended begins again.
- A node that was given up beyond the bound is emptied in effect: what only it had is told in every topic. One that was
  given up within the bound is like a replaced disk until repair has made the copies (hazard replaced-disk-is-missing).
- The namespace of a topic that is there must be there, also if no note has it: the topic had one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from oncelog.core.era import Era
from oncelog.core.formats.ledger_page import encode_page
from oncelog.core.formats.topic_record import DEDUP_CURSOR, GivenUpBehind, TopicRecord, encode_cursor, encode_topic
from oncelog.core.ids import Incarnation, TopicId
from oncelog.core.ledger.metadata import encode_ledger
from oncelog.core.names import DEFAULT_NAMESPACE, DEFAULT_TENANT, NamespaceName, parse_topic
from oncelog.core.rebuild.result import Rebuilt, RebuiltTopic
from oncelog.core.records.id_claim import Counter, CounterRecord, encode_counter
from oncelog.metadata.restore.noted_records import NewestRecords
from oncelog.metadata.restore.rights import closed
from oncelog.metadata_store.records.cluster_store import Rights
from oncelog.metadata_store.records.deletion_store import Deletion, encode_deletion
from oncelog.metadata_store.records.policies import Policies, decode_policies, encode_policies
from oncelog.metadata_store.records.registry import StorageCookie, decode_cookie, encode_cookie, without_debt
from oncelog.metadata_store.records.topic_store import NameRecord, encode_name
from oncelog.metadata_store.session import paths


@dataclass(slots=True)
class NewTree:
    """records: {path below the root of the era: value}, with all folders. namespaces: those that no note has."""

    records: dict[str, bytes] = field(default_factory=dict)
    namespaces: list[str] = field(default_factory=list)

    def put(self, path: str, value: bytes = b"") -> None:
        self.records[path] = value
        parent = path.rpartition("/")[0]
        while parent and parent not in self.records:
            self.records[parent] = b""
            parent = parent.rpartition("/")[0]

    def by_depth(self) -> list[dict[str, bytes]]:
        """Parents are in an earlier element than their children."""
        levels: dict[int, dict[str, bytes]] = {}
        for path, value in self.records.items():
            levels.setdefault(path.count("/"), {})[path] = value
        return [levels[depth] for depth in sorted(levels)]


def new_tree(
    rebuilt: Rebuilt,
    newest: NewestRecords,
    *,
    era: Era,
    retired: tuple[Incarnation, ...],
    rights: Rights,
    by: str,
    gives_up: bool = False,
) -> NewTree:
    """retired: nodes that never come back. gives_up: more nodes than the bound are missing. rights: CLOSED: no grant is
    effective yet. by: the operator. Raises CorruptEntry for policies that cannot be read while rights are closed."""
    tree = NewTree()
    for folder in paths.FOLDERS:
        tree.put(folder)
    for counter in Counter:
        record = CounterRecord(max(era.first_id, rebuilt.next_id), Incarnation(era.restore_id), f"restore-{era}")
        tree.put(f"{paths.IDS}/{counter.value}", encode_counter(record))
    _put_noted(tree, newest, dict.fromkeys(newest.tombstones), rights)
    _put_cookies(tree, newest, retired, gives_up=gives_up)
    _put_names(tree, rebuilt, newest)
    for topic in rebuilt.topics.values():
        _put_topic(tree, topic, by)
    return tree


def _put_noted(tree: NewTree, newest: NewestRecords, deleted: Mapping[TopicId, None], rights: Rights) -> None:
    """Policies, rights, deletions and the valid data set of keys, as they were noted."""
    for path, value in newest.below(paths.POLICIES).items():
        folder, _, name = path.rpartition("/")
        if folder == paths.TOPIC_POLICIES and TopicId(name) in deleted:
            continue
        closes = rights is Rights.CLOSED and value and folder.startswith(f"{paths.NAMESPACES}/")
        tree.put(path, encode_policies(closed(decode_policies(value))) if closes else value)
        if folder.startswith(paths.NAMESPACES):
            tree.put(paths.NAMES + path.removeprefix(paths.NAMESPACES))
    for topic_id in deleted:
        tree.put(paths.tombstone(topic_id))
    for path in newest.lost:
        if path.startswith(f"{paths.NAMESPACES}/"):
            tenant, namespace = path.split("/")[-2:]
            _put_namespace(tree, NamespaceName(tenant, namespace))
    keys = newest.value(paths.KEY_DATASET)
    if keys is not None:
        tree.put(paths.KEY_DATASET, keys)
    _put_namespace(tree, NamespaceName(DEFAULT_TENANT, DEFAULT_NAMESPACE))


def _put_namespace(tree: NewTree, name: NamespaceName) -> None:
    """With default policies, if it is not there."""
    if paths.namespace_policies(name) in tree.records:
        return
    tree.namespaces.append(str(name))
    tree.put(paths.namespace_policies(name), encode_policies(Policies()))
    tree.put(paths.namespace_names(name))


def _put_cookies(tree: NewTree, newest: NewestRecords, retired: tuple[Incarnation, ...], *, gives_up: bool) -> None:
    # A node that has replaced one would be ready by an old debt of 0, before the repairer has counted.
    for path, value in newest.below(paths.STORAGE_COOKIES).items():
        tree.put(path, without_debt(value))
    for path in newest.lost:
        if path.startswith(f"{paths.STORAGE_COOKIES}/"):
            tree.put(path, encode_cookie(StorageCookie(Incarnation(path.rpartition("/")[2]), "", 0)))
    for node in retired:
        path = f"{paths.STORAGE_COOKIES}/{node}"
        known = newest.value(path)
        cookie = StorageCookie(node, "", 0) if known is None else decode_cookie(known)
        tree.put(path, encode_cookie(replace(cookie, retired=True, debt=None, emptied=cookie.emptied or gives_up)))


def _put_names(tree: NewTree, rebuilt: Rebuilt, newest: NewestRecords) -> None:
    deleted = dict.fromkeys(newest.tombstones)
    for name, record in newest.names().items():
        if record.partitions_created_max == 0 and not record.deleted:
            continue  # a topic of its own: the rebuild says what it points to
        if record.topic_id in deleted and not record.deleted:
            continue  # its deletion has ended, and the nodes that noted that are not there any more
        _put_name(tree, name, record)
        if record.deleted:
            deletion = Deletion(record.topic_id, name, record.partitions_created_max)
            tree.put(paths.deletion(record.topic_id), encode_deletion(deletion))
            tree.put(paths.tombstone(record.topic_id))
        else:
            tree.put(paths.topic(record.topic_id), encode_topic(TopicRecord(record.topic_id, name)))
            tree.put(paths.cursors(record.topic_id))
    noted = newest.names()
    for name, topic_id in rebuilt.names.items():
        known = noted.get(name)
        _put_name(tree, name, known if known is not None and known.topic_id == topic_id else NameRecord(topic_id))


def _put_name(tree: NewTree, name: str, record: NameRecord) -> None:
    topic = parse_topic(name)
    _put_namespace(tree, topic.namespace_name)
    tree.put(paths.topic_name(topic), encode_name(record))


def _put_topic(tree: NewTree, topic: RebuiltTopic, by: str) -> None:
    topic_id = topic.record.topic_id
    tree.put(paths.topic(topic_id), encode_topic(topic_of(topic, by)))
    tree.put(paths.cursors(topic_id))
    if topic.cursor is not None:
        tree.put(paths.cursor(topic_id, DEDUP_CURSOR), encode_cursor(topic.cursor))
    for page in topic.pages:
        tree.put(paths.page(topic_id, page.name), encode_page(page))
    for ledger in topic.ledgers:
        tree.put(paths.ledger(ledger.ledger_id), encode_ledger(ledger))


def topic_of(topic: RebuiltTopic, by: str) -> TopicRecord:
    """The record of a topic, with what its owner must give up in its chains."""
    if topic.given_up is None:
        return topic.record
    return replace(topic.record, given_up_behind=GivenUpBehind(topic.given_up.log, topic.given_up.acks, by))
