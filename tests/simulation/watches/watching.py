"""The oracles that are checked after each step, besides the cores' own invariants.

The entries of every ledger are kept when its record becomes CLOSED, because it may be trimmed later. Each topic's log
is folded as its ledgers close, and every takeover is compared with that fold.
"""

from oncelog.core.formats.batch import Checksum
from oncelog.core.formats.entry import EntryKind, body_of, peek_header
from oncelog.core.formats.head import decode_head
from oncelog.core.formats.topic_record import LedgerLink, TopicRecord
from oncelog.core.ids import EntryId, Incarnation, LedgerId, OwnerEpoch, Position, TopicId
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.core.records.id_claim import decode_counter
from oncelog.core.topic.serving import Serving
from oncelog.core.topic.topic import Phase
from oncelog.verify.stored_log import check_copies, parse_entry
from oncelog.verify.violation import Violation
from tests.oracles.fold import LogFold
from tests.simulation.servers.nodes.storage_server import StorageServer
from tests.simulation.servers.owners.owner_server import OwnerServer
from tests.simulation.servers.owners.topic_shell import TopicShell
from tests.simulation.servers.store.decoding import decode_cursor, decode_ledger, decode_topic
from tests.simulation.servers.store.ledger_lists import ids_of, links_of
from tests.simulation.servers.store.store import Store
from tests.simulation.watches.ack_log_watch import AckLogWatch
from tests.simulation.watches.copies_watch import CopyWatch
from tests.simulation.watches.unlisted_watch import check_linked

HEADS = (EntryKind.HEAD_LOG, EntryKind.HEAD_SNAPSHOTS, EntryKind.HEAD_ACKS)
Closed = dict[LedgerId, tuple[LedgerMetadata, list[bytes]]]
Copies = dict[Incarnation, dict[EntryId, bytes]]


def durable_copies(nodes: dict[Incarnation, StorageServer], ledger_id: LedgerId) -> Copies:
    """{incarnation: {entry: bytes}} that no crash can take, and those that a fault took, or its directory."""
    copies: Copies = {}
    for server in nodes.values():
        for incarnation, disk in server.disks.items():
            held = disk.ever_held(ledger_id)
            if server.beside is not None and incarnation == server.incarnation:
                held |= server.beside[0].disk.ever_held(ledger_id)
            if held:
                copies[incarnation] = held
    return copies


def _may_leave(metadata: LedgerMetadata) -> bool:
    """Whether the ledger may leave its list above the floor: it was closed without an entry."""
    return metadata.end < 0 and not metadata.given_up_by


def _check_outbid(owner: OwnerServer, shell: TopicShell) -> None:
    """Storage nodes are of a higher era than this owner's: they answer its reads, and nothing else. So it takes over no
    list with a ledger that it has to end, and stores nothing."""
    record, (ledger_id, entry_id) = shell.core.ownership.record, shell.confirmed
    store = owner.store
    listed = [*(link.ledger_id for link in record.ledgers), *record.acks]
    ends = any(each < store.era.first_id and not _listed_closed(store, each) for each in listed)
    if (ends and shell.core.serving is not None) or (ledger_id >= store.era.first_id and entry_id >= 0):
        raise Violation("outbid eras", f"{owner.incarnation} serves {shell.topic_id} in era {store.era}")


def _listed_closed(store: Store, ledger_id: LedgerId) -> bool:
    """Whether the restore has listed the ledger as CLOSED, with which an owner has nothing to do but to read it."""
    records = store.past(f"ledgers/{ledger_id}")
    return bool(records) and decode_ledger(records[0]).state is LedgerState.CLOSED


class TopicWatch:
    """One topic's records and takeovers, as they happen."""

    def __init__(self, topic_id: TopicId) -> None:
        self.topic_id = topic_id
        self.fold = LogFold()
        self.record = TopicRecord(topic_id, "")
        #: {epoch: the place of its owner}
        self.owners: dict[OwnerEpoch, str] = {}
        #: every ledger that was ever in the list, in order; those of them that left it; those that are folded
        self.ledgers: list[LedgerId] = []
        self.trimmed: dict[LedgerId, None] = {}
        #: {ledger that had left it and that a restore listed again: the first ledger of that era}
        self.listed_again: dict[LedgerId, LedgerId] = {}
        #: ledgers with nothing but a head that a restore has left out
        self.left_out: dict[LedgerId, None] = {}
        #: the first ledger of the newest era whose restore may have missed a ledger of this topic; 0: none may
        self.owed_from = LedgerId(0)
        #: {ledger: the message with which it was linked}
        self.begins: dict[LedgerId, int] = {}
        self.folded = 0
        self.acks = AckLogWatch()
        #: {ledger: highest last_add_confirmed that an owner told}
        self.confirmed: dict[LedgerId, EntryId] = {}
        #: {owner: the last `Serving` that was compared at its beginning}
        self.compared: dict[Incarnation, Serving] = {}

    def record_changed(self, record: TopicRecord, links: list[LedgerLink], closed: Closed) -> None:
        """links: the whole list, with the ledgers in pages."""
        before, self.record = self.record, record
        if record.owner_epoch < before.owner_epoch:
            raise Violation("owner epochs", f"the record went from {before.owner_epoch} to {record.owner_epoch}")
        if record.owner is not None:
            self.owners[record.owner_epoch] = record.owner.split(".")[0]
        self.acks.record_changed(before, record, closed)
        listed = [link.ledger_id for link in links]
        for link in links:
            if not self.ledgers or link.ledger_id > self.ledgers[-1]:
                if self.ledgers and self.ledgers[-1] not in closed:
                    raise Violation("chaining", f"ledger {link.ledger_id} opens and {self.ledgers[-1]} is not CLOSED")
                self.ledgers.append(link.ledger_id)
                self.begins[link.ledger_id] = link.base_index
            if self.begins[link.ledger_id] != link.base_index:
                raise Violation("list", f"{link} was linked with message {self.begins[link.ledger_id]}")
        for ledger_id in self.ledgers:
            if ledger_id not in listed and ledger_id not in self.trimmed:
                if ledger_id >= record.deleted_below and not _may_leave(closed[ledger_id][0]):
                    raise Violation("list", f"ledger {ledger_id} left the list above its floor {record.deleted_below}")
                self.trimmed[ledger_id] = None
        kept = [ledger_id for ledger_id in self.ledgers if ledger_id not in self.trimmed]
        if listed != kept:
            raise Violation("chaining", f"the record lists {listed}, it should list {kept}")


class Watch:
    """All topics of a cluster."""

    def __init__(self, store: Store, nodes: dict[Incarnation, StorageServer], checksum: Checksum) -> None:
        self.store = store
        self.nodes = nodes
        self.checksum = checksum
        self.topics: dict[TopicId, TopicWatch] = {}
        #: {topic whose deletion has begun: whether that was answered}; they are not in `topics`
        self.deleted: dict[TopicId, bool] = {}
        #: topics that only heads of ledgers name
        self.unnoted: dict[TopicId, None] = {}
        #: {ledger: (its CLOSED record, its entries)}
        self.closed: Closed = {}
        #: cursor ledgers that a takeover left unrecovered; the next one may follow them, for each begins with a base
        self.passed_over: dict[LedgerId, None] = {}
        self.copies = CopyWatch(store, nodes)
        store.observers.append(self.changed)

    def follow(self, store: Store) -> None:
        """A new era begins. What processes of the former one do with their records is of no account from now on."""
        self.store.observers.remove(self.changed)
        self.store = self.copies.store = store
        store.observers.append(self.changed)

    def begin_deletion(self, topic_id: TopicId) -> None:
        del self.topics[topic_id]
        self.deleted[topic_id] = False

    # --- records ------------------------------------------------------------------------------------------------------

    def changed(self, path: str, before: bytes | None, after: bytes | None) -> None:
        kind, _, name = path.partition("/")
        if kind in ("topics", "cursors") and after is not None and TopicId(name) not in self.deleted:
            check_linked(self.store, path, before, after)
        if kind == "topics" and after is not None:
            topic_id = TopicId(name)
            if topic_id in self.deleted:
                return
            watch = self.topics.setdefault(topic_id, TopicWatch(topic_id))
            record = decode_topic(after)
            watch.record_changed(record, links_of(self.store, record), self.closed)
        elif kind == "cursors" and after is not None and TopicId(name) not in self.deleted:
            for link in decode_cursor(after).ledgers[:-1]:
                if link.ledger_id not in self.closed and link.ledger_id not in self.passed_over:
                    raise Violation("chaining", f"cursor ledger {link.ledger_id} is followed and not CLOSED")
        elif kind == "ledgers":
            self._ledger_changed(before, after)
        elif kind == "storage" and after is not None:
            self._registered(Incarnation(name))

    def _registered(self, node: Incarnation) -> None:
        """A node never registers while the store would give the id of one of its ledgers a first time (hazard
        ledger-id-given-twice)."""
        server, (data, _) = self.copies.existing(node), self.store.get("ids/ledger")
        following = 1 if data is None else decode_counter(data).next
        newest = max(server.index.entries, default=0) if server is not None else 0
        if newest >= following:
            raise Violation("older store", f"{node} has ledger {newest} and registers; the next id is {following}")

    def _ledger_changed(self, before: bytes | None, after: bytes | None) -> None:
        if any(data is not None and decode_ledger(data).topic_id in self.deleted for data in (before, after)):
            return
        if before is not None and decode_ledger(before).state is LedgerState.CLOSED and after is not None:
            self.copies.record_changed(decode_ledger(before), decode_ledger(after))
            return
        if after is None:
            assert before is not None
            gone = decode_ledger(before)
            record = self.topics[gone.topic_id].record
            if gone.ledger_id in record.acks or gone.ledger_id in ids_of(self.store, record):
                raise Violation("trim", f"ledger {gone.ledger_id} is deleted and in its topic's list")
            return
        metadata = decode_ledger(after)
        if metadata.state is not LedgerState.CLOSED:
            return
        confirmed = self.topics[metadata.topic_id].confirmed.get(metadata.ledger_id, -1)
        if confirmed > metadata.end:
            raise Violation("end", f"ledger {metadata.ledger_id} ends at {metadata.end}, {confirmed} was confirmed")
        entries = self.check_copies(metadata)
        for data in entries:
            if peek_header(data).topic_id != metadata.topic_id:
                raise Violation("topics", f"ledger {metadata.ledger_id} has an entry of another topic")
        self._check_head(decode_ledger(before) if before is not None else metadata, entries)
        self.closed[metadata.ledger_id] = (metadata, entries)

    def check_copies(self, metadata: LedgerMetadata) -> list[bytes]:
        """The entries of a CLOSED ledger. A restore may name its first members, although repair had filled others, or
        those that repair had filled. Copies that nodes outside have of a former era do not count, and are equal."""
        copies = durable_copies(self.nodes, metadata.ledger_id)
        if metadata.ledger_id >= self.store.era.first_id:
            return check_copies(metadata, copies)
        entries = check_copies(metadata, {one: held for one, held in copies.items() if one in metadata.members})
        for holder in [one for one in copies if one not in metadata.members]:
            self.store.world.count("copy of a former repair")
            if any(data != entries[each] for each, data in copies[holder].items() if each <= metadata.end):
                raise Violation("equal copies", f"{holder} has another copy of ledger {metadata.ledger_id}")
        return entries

    def _check_head(self, metadata: LedgerMetadata, entries: list[bytes]) -> None:
        """It says what the records say: a restore has nothing else. Where its chain ended before it is compared with
        the fold."""
        if not entries:
            return
        if peek_header(entries[0]).kind not in HEADS:
            raise Violation("heads", f"ledger {metadata.ledger_id} has no head")
        self.store.world.count("ledger with a head")
        head, record = decode_head(body_of(entries[0])), self.topics[metadata.topic_id].record
        said = (head.name, head.members, head.ack_quorum, head.owner.split(".")[0])
        owner = self.topics[metadata.topic_id].owners[peek_header(entries[0]).owner_epoch]
        if said != (record.name, metadata.members, metadata.ack_quorum, owner):
            raise Violation("heads", f"the head of ledger {metadata.ledger_id} says {said}")

    def erased(self, node: Incarnation, ledger_id: LedgerId) -> None:
        """A storage node has erased what it held of this ledger (hazards copy-erased-before-joining,
        replaced-member-erased-early and missing-record-is-no-deletion)."""
        if self.copies.has_another(node, ledger_id):
            raise Violation("erasing", f"{node} erased ledger {ledger_id} of a topic that the store does not know")
        server = self.copies.existing(node)
        if server is not None and server.core.durable_era < self.store.era:
            # Its ZooKeeper still answers, where the ledger was trimmed. The restore did without this node, so the copy
            # is one of those that are missing.
            self.store.world.count("erased in a former era")
            self.copies.spoiled.setdefault(ledger_id, {})[node] = None
            return
        if self.copies.may_go(node, ledger_id):
            return
        lists = [
            (path, data) for path, (data, _) in self.store.records.items() if path.startswith(("topics/", "cursors/"))
        ]
        for path, data in lists:
            if path.startswith("topics/"):
                record = decode_topic(data)
                listed = [*ids_of(self.store, record), *record.acks]
            else:
                listed = [link.ledger_id for link in decode_cursor(data).ledgers]
            if ledger_id in listed:
                raise Violation("erasing", f"a node erased ledger {ledger_id}, which {path} lists")

    # --- owners -------------------------------------------------------------------------------------------------------

    def stepped(self, owner: OwnerServer, shell: TopicShell) -> None:
        """A topic's core has taken one event."""
        if shell.topic_id in self.deleted:
            return
        watch = self.topics[shell.topic_id]
        if shell.passed_over_cursor is not None:
            self.passed_over[shell.passed_over_cursor] = None
        ledger_id, entry_id = shell.confirmed
        if ledger_id >= 0 and entry_id > watch.confirmed.get(ledger_id, -1):
            watch.confirmed[ledger_id] = entry_id
            if ledger_id in self.closed and entry_id > self.closed[ledger_id][0].end:
                raise Violation("fencing", f"{owner.incarnation} confirmed {shell.confirmed}, beyond the CLOSED end")
        if owner.store.outbid:
            _check_outbid(owner, shell)
        if owner.store is not self.store:
            return
        phase, serving = shell.core.phase, shell.core.serving
        given_up = owner.gave_up_at(shell.topic_id)
        if given_up and phase in (Phase.RECOVERING, Phase.OPENING, Phase.SERVING) and shell.epoch <= given_up:
            raise Violation("given-up epochs", f"{owner.incarnation} takes epoch {shell.epoch} again, which it gave up")
        if phase is not Phase.OPENING or serving is None or watch.compared.get(owner.incarnation) is serving:
            return
        watch.compared[owner.incarnation] = serving
        record = shell.core.ownership.record
        watch.acks.compare(record.acks, serving, self.closed)
        # After a restore there may be none, although some were trimmed.
        last = record.ledgers[-1].ledger_id if record.ledgers else LedgerId(record.deleted_below - 1)
        self.fold_closed(watch, last)
        if watch.fold.position.ledger_id <= last:
            # A deposed owner that does not know it may be behind what another has taken over since.
            watch.fold.compare(serving.log.table.state)

    def fold_closed(self, watch: TopicWatch, last: LedgerId) -> None:
        """Bring the topic's fold up to the ledger `last`."""
        while watch.folded < len(watch.ledgers) and watch.ledgers[watch.folded] <= last:
            ledger_id = watch.ledgers[watch.folded]
            if ledger_id not in self.closed:
                raise Violation("closed ledgers", f"ledger {ledger_id} was taken over and is not CLOSED")
            for number, data in enumerate(self.closed[ledger_id][1]):
                watch.fold.add(parse_entry(data, Position(ledger_id, EntryId(number)), self.checksum))
            watch.folded += 1
