"""The starts of a simulated storage node, as `log_storage.directory_starts` and `node_registration` do them.

A start notes its id in the directory and then in the store, and up to where the journal is synced every NOTE_TICKS. A
process that may not start ends, and starts again some time later.
"""

from typing import TYPE_CHECKING

from oncelog.core.ids import EntryId, LedgerId
from oncelog.core.node import starts
from oncelog.core.node.node_ledger import JournalRecord, RecordKind
from oncelog.core.node.starts import JournalEnd, StorageEnd
from oncelog.core.records.id_claim import decode_counter
from oncelog.verify.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.servers.nodes.storage_server import StorageServer
    from tests.simulation.servers.store.store import Store

NOTE_TICKS = 100
RETRY_TICKS = 150


class NodeStart:
    """One start of one node."""

    def __init__(self, server: "StorageServer") -> None:
        self.server = server
        self._path = f"storage_ends/{server.incarnation}"
        self._noted = self._read()
        self._begun: StorageEnd | None = None

    @property
    def store(self) -> "Store":
        return self.server.store

    def join_era(self) -> None:
        """The store of a new era knows no end of this directory."""
        if self._begun is not None and self._read() is None:
            self._write(self._begun)

    def _read(self) -> StorageEnd | None:
        if self.store.lost:
            return None
        data, _ = self.store.get(self._path)
        if data is None:
            return None
        count, start_id, offset = data.decode().split()
        return StorageEnd(int(count), start_id, JournalEnd(0, int(offset)))

    def _write(self, end: StorageEnd) -> None:
        _, version = self.store.get(self._path)
        self.store.put(self._path, f"{end.starts} {end.start_id} {end.end.offset}".encode(), version)
        self._begun = end

    def is_refused(self) -> bool:
        """Whether a copy of the directory, or the directory of which it is a copy, is served."""
        registered, _ = self.store.get(f"storage/{self.server.incarnation}")
        return starts.served_elsewhere(None if registered is None else registered.decode(), self.server.name)

    def look(self) -> None:
        """A start of the past begins in limbo."""
        disk, noted = self.server.disk, self._noted
        past = starts.why_past(disk.last_start, noted) or (noted and starts.lost_end(disk.end, noted.end))
        if not past:
            return
        if not disk.went_back:
            raise Violation("starts", f"{self.server.incarnation} takes its directory for an older one: {past}")
        self.server.world.count("start of the past")
        below = max(self.following_ledger(), *(record.ledger_id for record in disk.records), LedgerId(1))
        disk.records.append(JournalRecord(0, RecordKind.LIMBO, below, EntryId(0), b""))
        disk.synced = len(disk.records)

    def begin(self) -> None:
        """Limbo, if there is any, is durable."""
        server, disk = self.server, self.server.disk
        start_id = f"{server.name}/{server.life}"
        disk.last_start, begun = starts.next_start(disk.last_start, self._noted, start_id, disk.end)
        if server.interrupted:
            server.interrupted = False
            server.world.count("start interrupted")
            server.end_and_retry()
            return
        self._write(begun)
        disk.went_back = False
        server.post(NOTE_TICKS, "notes its end", self._note)

    def _note(self) -> None:
        server, store = self.server, self.store
        server.post(NOTE_TICKS, "notes its end", self._note)
        away = store.stalled_until > server.world.now or server.parts.network.cut(server.name, "store")
        if away or self._begun is None:
            return
        if starts.is_superseded(self._begun, self._read()):
            server.world.count("process ended because a copy was started")
            server.end_and_retry()
        elif server.disk.synced_end != self._begun.end:
            self._write(StorageEnd(self._begun.starts, self._begun.start_id, server.disk.synced_end))

    def knows_more_than(self, end: JournalEnd, start_id: str) -> bool:
        """Whether a directory that ends there is known to be one of the past."""
        noted = self._read()
        return noted is not None and (end < noted.end or start_id != noted.start_id)

    # --- an older store -----------------------------------------------------------------------------------------------

    def following_ledger(self) -> LedgerId:
        """The ledger id that the store gives next."""
        data, _ = self.store.get("ids/ledger")
        return LedgerId(1 if data is None else decode_counter(data).next)

    def newest_ledger(self) -> LedgerId | None:
        """The highest id of a ledger with an entry or a fence on this node."""
        fenced = (ledger_id for ledger_id, ledger in self.server.core.ledgers.items() if ledger.fenced)
        return max((*self.server.index.entries, *fenced), default=None)

    def refuses_older_store(self) -> bool:
        return starts.is_newer(self.newest_ledger(), self.following_ledger())
