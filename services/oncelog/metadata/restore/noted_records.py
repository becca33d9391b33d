"""What notes and copies say of records, by path: the newest of each that can be read (hazards late-note,
damaged-record-is-noted, note-of-a-former-era), as a restore needs it.

Pure: no I/O. Paths are below the root of an era. Sources are ordered as notes are; the copy of a record has the era of
its file, and the transaction and version that the walk has read.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from oncelog.core.era import ERA_JUMP_MAX, FIRST_ERA, Era
from oncelog.core.errors import CorruptEntry, WrongCluster
from oncelog.core.formats.ledger_page import ListPage, decode_page
from oncelog.core.formats.note import Note, NoteOrder
from oncelog.core.formats.topic_record import DEDUP_CURSOR, CursorRecord, TopicRecord, decode_cursor, decode_topic
from oncelog.core.ids import Incarnation, LedgerId, TopicId
from oncelog.core.ledger.metadata import LedgerMetadata, decode_ledger
from oncelog.core.process_version import FIRST_VERSION, PROCESS_VERSION
from oncelog.core.rebuild.restore_events import Knowledge
from oncelog.core.rebuild.result import CopiedRecords, NotedName, NotedRecords
from oncelog.core.rebuild.sources import CopiedEra
from oncelog.metadata_store.copies.copy_file import RecordCopy
from oncelog.metadata_store.notes.readable import damage_of
from oncelog.metadata_store.records.cluster_store import ClusterRecord, decode_cluster
from oncelog.metadata_store.records.registry import StorageCookie, decode_cookie
from oncelog.metadata_store.records.topic_store import NameRecord, decode_name
from oncelog.metadata_store.session import paths

#: Elements of the path of a topic's name: "", names, tenant, namespace, topic.
_NAME_ELEMENTS = 5
#: What notes are of, apart from CLUSTER.
_NOTED_FOLDERS = (paths.POLICIES, paths.NAMES, paths.TOMBSTONES, paths.STORAGE_COOKIES, paths.KEY_DATASET)


@dataclass(slots=True)
class NewestRecords:
    """The newest of each path. unreadable: {path: why}; such a record is left out, and told. inferred: {full name of a
    topic: what stands for its record, which cannot be read}. copied: whose copies decide about notes of former eras."""

    copied: CopiedEra = field(default_factory=CopiedEra)
    _newest: dict[str, Note] = field(default_factory=dict)
    _tombstones: dict[TopicId, None] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    inferred: dict[str, NameRecord] = field(default_factory=dict)
    _damaged: dict[str, tuple[NoteOrder, str]] = field(default_factory=dict)

    def add(self, notes: Iterable[Note]) -> None:
        for note in notes:
            if not self.copied.believes(note.path, note.order):
                continue
            known = self._newest.get(note.path)
            if known is None or known.order < note.order:
                damage = None if note.order.deleted else damage_of(note.path, note.value)
                if damage is None:
                    self._newest[note.path] = note
                elif note.path not in self._damaged or self._damaged[note.path][0] < note.order:
                    self._damaged[note.path] = note.order, damage
            if note.path.startswith(f"{paths.TOMBSTONES}/"):
                self._tombstones[TopicId(note.path.rpartition("/")[2])] = None

    @property
    def damaged(self) -> dict[str, str]:
        """{path: why} of the records whose newest source is damaged: an older one is taken, if there is one."""
        newest = self._newest
        return {
            path: why
            for path, (order, why) in sorted(self._damaged.items())
            if path not in newest or newest[path].order < order
        }

    @property
    def lost(self) -> dict[str, str]:
        """{path: why} of the damaged records of which no source can be read."""
        return {path: why for path, why in self.damaged.items() if self.value(path) is None}

    def below(self, folder: str) -> dict[str, bytes]:
        """{path: value} of the records below the folder that are not deleted, by path."""
        prefix = f"{folder}/"
        return {
            path: note.value
            for path, note in sorted(self._newest.items())
            if path.startswith(prefix) and not note.order.deleted
        }

    def value(self, path: str) -> bytes | None:
        """None: deleted, or never noted."""
        note = self._newest.get(path)
        return None if note is None or note.order.deleted else note.value

    def era(self, path: str) -> int:
        """In which the newest state was written; 0: there is none."""
        note = self._newest.get(path)
        return 0 if note is None else note.order.era

    def names(self) -> dict[str, NameRecord]:
        """{full name of a topic: its record}, without what cannot be read."""
        return names_in(self.below(paths.NAMES), self.unreadable) | self.inferred

    def noted(self) -> NotedRecords:
        """As JOIN takes it."""
        return NotedRecords(noted_names(self.names()), frozenset(self._tombstones))

    @property
    def tombstones(self) -> list[TopicId]:
        """All that were ever noted, in a fixed order."""
        return sorted(self._tombstones)

    def cluster(self) -> ClusterRecord | None:
        """Raises CorruptEntry, WrongCluster."""
        value = self.value(paths.CLUSTER)
        return None if value is None else decode_cluster(value)


def newest_of(
    copies: Sequence[RecordCopy], notes: Iterable[Note], unreadable: Mapping[str, str] | None = None, *, below: str = ""
) -> NewestRecords:
    """Of copies that can be used, and of notes. unreadable: what was found already. below: the folder of the records
    that are wanted; empty: all."""
    folder = f"{below}/"
    copied = [
        (copy.header.era.number, [note for note in notes_of_copy(copy) if note.path.startswith(folder)])
        for copy in copies
    ]
    number = max((number for number, _ in copied), default=FIRST_ERA.number)
    named = {note.path for era, some in copied if era == number for note in some}
    newest = NewestRecords(CopiedEra(number, named), unreadable=dict(unreadable or {}))
    for _, some in copied:
        newest.add(some)
    newest.add(note for note in notes if note.path.startswith(folder))
    return newest


def names_in(records: Mapping[str, bytes], unreadable: dict[str, str] | None = None) -> dict[str, NameRecord]:
    """{full name of a topic: its record}, of all records by path. What cannot be read goes to `unreadable`."""
    found: dict[str, NameRecord] = {}
    for path, value in records.items():
        elements = path.split("/")
        if len(elements) != _NAME_ELEMENTS or not path.startswith(f"{paths.NAMES}/"):
            continue  # the folder of a tenant or of a namespace
        try:
            found["/".join(elements[2:])] = decode_name(value, path)
        except CorruptEntry as error:
            if unreadable is None:
                raise
            unreadable[path] = error.message
    return found


def noted_names(names: Mapping[str, NameRecord]) -> dict[str, NotedName]:
    return {
        name: NotedName(record.topic_id, record.partitions_created_max > 0, record.deleted)
        for name, record in names.items()
    }


def noted_cookies(notes: Iterable[Note]) -> dict[Incarnation, StorageCookie]:
    """The newest cookie of each storage node. One that cannot be read is left out."""
    return _cookies(newest_of((), notes, below=paths.STORAGE_COOKIES))


def _cookies(newest: NewestRecords) -> dict[Incarnation, StorageCookie]:
    found: dict[Incarnation, StorageCookie] = {}
    for path, value in newest.below(paths.STORAGE_COOKIES).items():
        try:
            found[Incarnation(path.rpartition("/")[2])] = decode_cookie(value)
        except CorruptEntry:
            continue
    return found


def knowledge_of(notes: Sequence[Note], copies: Sequence[RecordCopy] = ()) -> Knowledge:
    """Which nodes notes and copies name, and how few acknowledgements an entry ever needed. A node whose cookie cannot
    be read counts. Raises CorruptEntry, WrongCluster for the cluster's record."""
    newest = newest_of(copies, notes, below=paths.STORAGE_COOKIES)
    cookies = _cookies(newest)
    named = (Incarnation(path.rpartition("/")[2]) for path in newest.below(paths.STORAGE_COOKIES) | newest.lost)
    nodes = {node: node not in cookies or cookies[node].may_return or cookies[node].is_replaced for node in named}
    copied = (note for copy in copies for note in notes_of_copy(copy))
    records = [note for note in (*notes, *copied) if note.path == paths.CLUSTER and not note.order.deleted]
    quorums = [record.ack_quorum for note in records if (record := decode_cluster(note.value)).ack_quorum]
    eras = (*(note.order.era for note in notes), *(copy.header.era.number for copy in copies))
    replaced = frozenset(node for node, cookie in cookies.items() if cookie.is_replaced)
    return Knowledge(nodes, min(quorums, default=0), max(eras, default=FIRST_ERA.number), replaced)


def notes_of_copy(copy: RecordCopy) -> list[Note]:
    """The records of a copy that notes have, too, so that the newest of both is found."""
    era = copy.header.era.number
    return [
        Note(record.path, NoteOrder(era, record.created, False, record.version), record.value)
        for record in copy.records.values()
        if record.path == paths.CLUSTER or record.path.startswith(_NOTED_FOLDERS)
    ]


def copy_fault(copy: RecordCopy, cluster_ids: set[str], era: int) -> str | None:
    """Why a restore does not use this copy; None: it does. cluster_ids: of the storage nodes. era: the highest of them.
    Records of topics that cannot be read are told one by one instead."""
    header = copy.header
    if cluster_ids != {header.cluster_id}:
        theirs = " and ".join(sorted(cluster_ids))
        return f"it is of cluster {header.cluster_id}, and storage nodes have data of cluster {theirs}"
    if header.level < FIRST_VERSION:
        return f"it is of level {header.level}, below {FIRST_VERSION}, the lowest that this program reads"
    if header.level > PROCESS_VERSION:
        return f"it is of level {header.level}, and this program knows level {PROCESS_VERSION}: use a newer version"
    if header.era.number >= era + ERA_JUMP_MAX:
        return f"it is of era {header.era.number}, and storage nodes are in era {era}: no restore takes such a jump"
    try:
        knowledge_of((), [copy])
    except (CorruptEntry, WrongCluster) as error:
        return error.message
    return None


def attempt_of(copy: RecordCopy) -> int | None:
    """Of a copy that a restore has made of what it was about to commit: the version of its claim, which rises with each
    attempt. No transaction of ZooKeeper had created them. None: the cluster served with these records."""
    records = copy.records.values()
    if copy.header.era.number == FIRST_ERA.number or any(record.created >= 0 for record in records):
        return None
    return max((record.version for record in records), default=-1)


def usable_copies(
    copies: Mapping[str, RecordCopy], committed: Collection[Era]
) -> tuple[list[RecordCopy], dict[str, str]]:
    """(The oldest first, {name: why one is not used}). A restore that did not get to its COMMIT had other answers, and
    what it left out, retired or closed is nothing that ever was (hazard copy-of-an-attempt).

    committed: the eras that a storage node, or ZooKeeper, knows to have served. An era between two of them may have had
    no COMMIT. Of two restores of one era only one had it, and their versions are those of two ZooKeepers.
    """
    unused: dict[str, str] = {}
    newest: dict[Era, int] = {}
    for copy in copies.values():
        era, attempt = copy.header.era, attempt_of(copy)
        if attempt is not None:
            newest[era] = max(attempt, newest.get(era, attempt))
    for name, copy in copies.items():
        era, attempt = copy.header.era, attempt_of(copy)
        if attempt is not None and (era not in committed or attempt < newest[era]):
            unused[name] = f"the attempt at a restore of era {era.number} that has made it was not committed"
    used = [copy for name, copy in copies.items() if name not in unused]
    # What a restore has written is older than all that the cluster wrote after it, whatever the clocks said.
    order = sorted(used, key=lambda each: (each.header.era.number, attempt_of(each) is None, each.header.created_ms))
    return order, unused


def copied_records(records: Mapping[str, bytes], unreadable: dict[str, str] | None = None) -> CopiedRecords:
    """The records of topics in a copy, by their paths. What cannot be read goes to `unreadable`; None: it raises
    CorruptEntry."""
    topics: dict[TopicId, TopicRecord] = {}
    cursors: dict[TopicId, CursorRecord] = {}
    ledgers: dict[LedgerId, LedgerMetadata] = {}
    pages: dict[TopicId, list[ListPage]] = {}
    for path, value in sorted(records.items()):
        try:
            match path.split("/")[1:]:
                case ["topics", topic_id]:
                    topics[TopicId(topic_id)] = decode_topic(value)
                case ["topics", topic_id, "cursors", name] if name == DEDUP_CURSOR:
                    cursors[TopicId(topic_id)] = decode_cursor(value)
                case ["ledgers", ledger_id] if ledger_id.isdecimal():
                    ledgers[LedgerId(int(ledger_id))] = decode_ledger(value)
                case ["pages", topic_id, _]:
                    pages.setdefault(TopicId(topic_id), []).append(decode_page(value))
        except CorruptEntry as error:
            if unreadable is None:
                raise CorruptEntry(f"{path}: {error.message}", path=path) from error
            unreadable[path] = error.message
    return CopiedRecords(topics, cursors, ledgers, pages)


def records_of(copies: Sequence[RecordCopy], unreadable: dict[str, str] | None = None) -> CopiedRecords:
    """The newest state of each record of a topic. copies: the oldest first. unreadable: as in `copied_records`.

    Each topic of an era is in its copies, so one that only those of a former era have was left out or deleted since.
    """
    records = {record.path: record.value for copy in copies for record in copy.records.values()}
    number = max((copy.header.era.number for copy in copies), default=FIRST_ERA.number)
    if number == FIRST_ERA.number:
        return copied_records(records, unreadable)
    newest = [copy for copy in copies if copy.header.era.number == number]
    topics = {path for copy in newest for path in copy.records if _is_topic(path)}
    kept = {path: value for path, value in records.items() if not _is_topic(path) or _topic_path(path) in topics}
    found = copied_records(kept, unreadable)
    whole = all(TopicId(path.rpartition("/")[2]) in found.topics for path in topics if path == _topic_path(path))
    return replace(found, complete_below=LedgerId(Era(number, "").first_id)) if whole else found


def _is_topic(path: str) -> bool:
    """Or what is below it."""
    return path.startswith(f"{paths.TOPICS}/")


def _topic_path(path: str) -> str:
    return "/".join(path.split("/")[:3])
