"""The live topic owners, storage nodes and metadata services, and every storage directory that ever joined.

A live record is a hint where to connect (`ephemerals` has the rules). A storage cookie is lasting: its directory must
never come back under another incarnation, and one that is retired is never chosen for a new ledger
(hazard members-lost-in-turn).
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum

from oncelog.core.address import join_address
from oncelog.core.errors import CorruptEntry
from oncelog.core.formats.record_fields import FURTHER, Further, built, no_fields, number, rest, text
from oncelog.core.ids import Incarnation
from oncelog.core.ledger.storage_nodes import NodeView
from oncelog.core.node.starts import REBUILT, JournalEnd, StorageEnd
from oncelog.core.placement.level import KnownProcess
from oncelog.core.process_version import FIRST_VERSION, PROCESS_VERSION
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.metadata_store.records.json_records import decode_record, encode_record, is_of_newer_format
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.ephemerals import EphemeralFolder, Registration
from oncelog.metadata_store.session.store_session import StoreSession, Versioned, WriteResult, Znode, create_or_write
from oncelog.metadata_store.session.watch import PathsWatch


@dataclass(frozen=True, slots=True)
class LiveOwner:
    """host, ports: where other services connect to it. ports: {protocol: port}, for example {"grpc": 6651}.

    since_ms: wall clock at its start, for display. ack_quorum: storage nodes that it needs to serve a topic.
    write_quorum: members of its new ledgers.
    advertised: "host:port" of its gRPC for clients; empty: the same as for services.
    version: see core.process_version.
    """

    incarnation: Incarnation
    host: str
    ports: Mapping[str, int]
    since_ms: int
    ack_quorum: int = 1
    advertised: str = ""
    version: int = PROCESS_VERSION
    write_quorum: int = 1


@dataclass(frozen=True, slots=True)
class LiveStorageNode:
    """joining: a fresh directory at the address of another one. It is no member and gets no copies until its
    predecessor was absent for a while, or an operator has said so (hazard unmounted-volume)."""

    incarnation: Incarnation
    host: str
    port: int
    free_bytes: int
    read_only: bool = False
    joining: bool = False
    version: int = PROCESS_VERSION


@dataclass(frozen=True, slots=True)
class LiveMetadata:
    """A replica of the metadata service. The one with the lowest number rebalances and repairs."""

    host: str
    ports: Mapping[str, int]
    version: int = PROCESS_VERSION


class Decommission(Enum):
    """Whether an operator removes the directory from the cluster (hazard removed-cookie)."""

    NO = ""
    #: its copies are moved to other nodes
    DRAINING = "draining"
    #: no ledger names it; a process that starts with it is refused
    DONE = "done"


@dataclass(frozen=True, slots=True)
class StorageCookie:
    """host, port: the address of the directory. retired: replaced or removed, for ever.

    read_only: an operator wants no new ledger there. It stays set through restarts until an operator clears it.
    replaced_by: the directory that came to its address. debt: ledgers of a retired or draining directory that live
    nodes could copy and have not copied yet; None: not counted since its successor registered. own_filesystem: the
    directory is on a volume, so an empty directory on the disk of the machine is not its replacement
    (log_storage/directory/volume_mount.py). emptied: it is retired, and no ledger needs it any more, for ever
    (core/repair/emptied.py). further: see `core.formats.record_fields`.
    """

    incarnation: Incarnation
    host: str
    port: int
    retired: bool = False
    read_only: bool = False
    replaced_by: Incarnation | None = None
    debt: int | None = None
    decommission: Decommission = Decommission.NO
    own_filesystem: bool = False
    emptied: bool = False
    further: Further = field(default_factory=no_fields, hash=False)

    @property
    def may_return(self) -> bool:
        """Whether a process may serve the directory again."""
        return not self.retired and self.decommission is not Decommission.DONE

    @property
    def is_replaced(self) -> bool:
        """Whether it is retired, and may have what no other node has: a restore without it may lack that."""
        return self.retired and not self.emptied and self.decommission is not Decommission.DONE


def node_view(
    incarnation: Incarnation, live: LiveStorageNode | None, cookie: StorageCookie | None, *, silent: bool = False
) -> NodeView:
    """What both records of a storage node say. silent: it counts only if the node is registered."""
    return NodeView(
        incarnation,
        registered=live is not None,
        silent=live is not None and silent,
        draining=cookie is not None and cookie.decommission is not Decommission.NO,
        retired=cookie is not None and cookie.retired,
        read_only=(live is not None and live.read_only) or (cookie is not None and cookie.read_only),
        joining=live is not None and live.joining,
    )


def _grpc_address(process: LiveOwner | LiveMetadata) -> str:
    """As other services see it; the host alone if its registration names no port."""
    port = process.ports.get("grpc")
    return process.host if port is None else join_address(process.host, port)


class Registry:
    """One per process. Records are listed and watched by `owners`, `storage_nodes` and `metadata`."""

    def __init__(self, session: StoreSession) -> None:
        self._session = session
        self.owners = EphemeralFolder(session, paths.OWNERS, encode=_encode_live, decode=_decode_owner)
        self.storage_nodes = EphemeralFolder(session, paths.STORAGE, encode=_encode_live, decode=_decode_node)
        #: The names are ascending numbers of ten digits.
        self.metadata = EphemeralFolder(session, paths.METADATA, encode=_encode_live, decode=_decode_metadata)

    def register_owner(self, owner: LiveOwner) -> Registration[LiveOwner]:
        return self.owners.registration(owner.incarnation, owner)

    def register_storage_node(self, node: LiveStorageNode) -> Registration[LiveStorageNode]:
        return self.storage_nodes.registration(node.incarnation, node)

    def register_metadata(self, replica: LiveMetadata) -> Registration[LiveMetadata]:
        return self.metadata.sequential_registration(replica)

    async def processes(self) -> list[KnownProcess]:
        """All that take part: those that are registered, and the storage nodes that are away and may come back.

        After a sync. A level is raised only if this shows that every process knows it (hazard
        away-node-of-an-older-version). Raises StoreUnavailable.
        """
        owners, nodes, replicas, cookies = await asyncio.gather(
            self.owners.live(), self.storage_nodes.live(), self.metadata.live(), self.cookies()
        )
        away = [cookie for cookie in cookies.values() if cookie.may_return and cookie.incarnation not in nodes]
        versions = await asyncio.gather(*(self._noted_version(cookie.incarnation) for cookie in away))
        return known_processes(owners, nodes, replicas) + [
            KnownProcess("storage node", f"{one.host}:{one.port}", version, away=True)
            for one, version in zip(away, versions, strict=True)
        ]

    async def _noted_version(self, incarnation: Incarnation) -> int:
        """Of the process that served this directory last, as far as it says."""
        try:
            end = await self.read_end_unsynced(incarnation)
        except CorruptEntry:
            return FIRST_VERSION
        return FIRST_VERSION if end is None else end.value.version

    async def read_cookie(self, incarnation: Incarnation) -> Versioned[StorageCookie] | None:
        path = paths.storage_cookie(incarnation)
        node = await self._session.read(path)
        return None if node is None else Versioned(decode_cookie(node.data, path), node.version)

    async def write_cookie(self, cookie: StorageCookie, *, version: int) -> WriteResult:
        """One compare-and-set; ABSENT_VERSION creates. CONFLICT then means that the directory has joined before."""
        path = paths.storage_cookie(cookie.incarnation)
        return await create_or_write(self._session, path, encode_cookie(cookie), version=version)

    async def watch_cookie(self, incarnation: Incarnation) -> AsyncGenerator[StorageCookie, None]:
        """The cookie now, and again whenever it may have changed. No item while there is no cookie."""
        path = paths.storage_cookie(incarnation)
        async for nodes in PathsWatch(self._session, (path,)):
            try:
                if path in nodes:
                    yield decode_cookie(nodes[path].data, path)
            except CorruptEntry:
                continue  # counted and logged; the cookie before it stays valid

    async def read_end(self, incarnation: Incarnation) -> Versioned[StorageEnd] | None:
        """Raises StoreUnavailable, CorruptEntry."""
        path = paths.storage_end(incarnation)
        return _stored_end(await self._session.read(path), path)

    async def read_end_unsynced(self, incarnation: Incarnation) -> Versioned[StorageEnd] | None:
        """Possibly an older one. Raises StoreUnavailable, CorruptEntry."""
        path = paths.storage_end(incarnation)
        return _stored_end(await self._session.read_unsynced(path), path)

    async def end_version(self, incarnation: Incarnation) -> int | None:
        """Of that record after a sync; ABSENT_VERSION without one. None: it was lost, and was written anew, so its
        version says nothing. Raises StoreUnavailable."""
        node = await self._session.read(paths.storage_end(incarnation))
        with contextlib.suppress(CorruptEntry):  # its version counts all the same
            stored = _stored_end(node)
            if stored is not None and stored.value.start_id == REBUILT:
                return None
        return ABSENT_VERSION if node is None else node.version

    async def damaged_end(self, incarnation: Incarnation) -> int | None:
        """The version of that record if it is damaged, after a sync. None: it is not, or a newer process wrote it.
        Raises StoreUnavailable."""
        node = await self._session.read(paths.storage_end(incarnation))
        try:
            _stored_end(node)
        except CorruptEntry:
            return None if node is None or is_of_newer_format(node.data) else node.version
        return None

    async def write_end(self, incarnation: Incarnation, end: StorageEnd, *, version: int) -> WriteResult:
        """One compare-and-set; ABSENT_VERSION creates, also the folder, which an older cluster lacks.

        Raises StoreUnavailable.
        """
        if version == ABSENT_VERSION:
            await self._session.ensure_path(paths.STORAGE_ENDS)
        return await create_or_write(self._session, paths.storage_end(incarnation), encode_end(end), version=version)

    async def cookies(self) -> dict[Incarnation, StorageCookie]:
        """All cookies after a sync. One that cannot be read counts as retired, so that it gets no new ledger."""
        return await self._cookies(await self._session.children(paths.STORAGE_COOKIES))

    async def absent(self) -> dict[Incarnation, StorageCookie] | None:
        """The cookies of the nodes that are not registered; as `cookies`. None: ZooKeeper names no node at all."""
        registered, names = await asyncio.gather(
            self._session.children(paths.STORAGE), self._session.children(paths.STORAGE_COOKIES)
        )
        return await self._cookies(set(names).difference(registered)) if names else None

    async def _cookies(self, names: Iterable[str]) -> dict[Incarnation, StorageCookie]:
        async def read(name: Incarnation) -> StorageCookie | None:
            try:
                stored = await self.read_cookie(name)
            except CorruptEntry:
                return StorageCookie(name, "", 0, retired=True)
            return None if stored is None else stored.value

        found = await asyncio.gather(*map(read, map(Incarnation, names)))
        return {cookie.incarnation: cookie for cookie in found if cookie is not None}


def known_processes(
    owners: Mapping[str, LiveOwner], nodes: Mapping[str, LiveStorageNode], replicas: Mapping[str, LiveMetadata]
) -> list[KnownProcess]:
    """Those that are registered."""
    found = [KnownProcess("owner", _grpc_address(one), one.version) for one in owners.values()]
    found += [KnownProcess("storage node", f"{one.host}:{one.port}", one.version) for one in nodes.values()]
    found += [KnownProcess("metadata service", _grpc_address(one), one.version) for one in replicas.values()]
    return found


def _stored_end(node: Znode | None, path: str = "") -> Versioned[StorageEnd] | None:
    return None if node is None else Versioned(decode_end(node.data, path), node.version)


def encode_end(end: StorageEnd) -> bytes:
    """version_start: the start of which `version` is, which is this one. No reader needs it."""
    noted = {"starts": end.starts, "start_id": end.start_id, "version": end.version, "version_start": end.start_id}
    return encode_record({**end.further, **noted, **end.end._asdict()})


def decode_end(data: bytes, path: str = "") -> StorageEnd:
    """Raises CorruptEntry."""
    return decode_record(
        data,
        "the end of a storage node's journal",
        lambda f: StorageEnd(
            number(f, "starts"),
            text(f, "start_id"),
            JournalEnd(number(f, "segment_id"), number(f, "offset")),
            number(f, "version"),
            rest(f, ("format", "starts", "start_id", "segment_id", "offset", "version", "version_start")),
        ),
        path=path,
    )


def _decode_owner(name: str, data: bytes) -> LiveOwner:
    return decode_record(data, "an owner's record", lambda f: built(LiveOwner, f, incarnation=Incarnation(name)))


def _encode_live(record: LiveOwner | LiveStorageNode | LiveMetadata) -> bytes:
    """The name of the node says which incarnation it is."""
    return encode_record({name: value for name, value in asdict(record).items() if name != "incarnation"})


def _decode_node(name: str, data: bytes) -> LiveStorageNode:
    return decode_record(
        data,
        "a storage node's record",
        lambda f: built(LiveStorageNode, f, incarnation=Incarnation(name)),
    )


def _decode_metadata(_name: str, data: bytes) -> LiveMetadata:
    return decode_record(data, "a metadata service's record", lambda f: built(LiveMetadata, f))


def encode_cookie(cookie: StorageCookie) -> bytes:
    fields = {**cookie.further, **asdict(cookie), "decommission": cookie.decommission.value}
    del fields[FURTHER]
    return encode_record(fields)


def decode_cookie(data: bytes, path: str = "") -> StorageCookie:
    """Raises CorruptEntry."""
    return decode_record(data, "a storage cookie", lambda f: built(StorageCookie, f), path=path)


def without_debt(cookie: bytes) -> bytes:
    """Of an encoded cookie: the debt is not noted when it changes, and the repairer counts it again. Raises
    CorruptEntry."""
    return encode_cookie(replace(decode_cookie(cookie), debt=None))
