"""Storage nodes as a restore sees them: where they are, what they have noted, and what they hold.

A node is found by an address that the operator gives or a file names (host:port of its gRPC, or of its health port,
which answers GET /directory), by its registration, and by the notes of cookies that other nodes have. Each found node
may name further ones, so the survey goes on until none is new (hazard unnoted-member). At an address that only a record
or a note names another cluster may be now: what answers there counts only if it is of the cluster of the given nodes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from io import BytesIO
from typing import NamedTuple, Self, TypeVar

from oncelog.core.address import join_address
from oncelog.core.era import FIRST_ERA, Era
from oncelog.core.errors import CorruptEntry, InvariantViolated, OncelogError, ServiceUnavailable
from oncelog.core.formats.entry import peek_header
from oncelog.core.formats.note import Note
from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.placement.first_cluster import DirectorySeen
from oncelog.core.rebuild.restore_events import Knowledge, NodeSeen
from oncelog.core.rebuild.result import WantedLength
from oncelog.core.rebuild.sources import Inventory
from oncelog.core.rendezvous import ranked
from oncelog.metadata.restore.noted_records import copy_fault, knowledge_of, noted_cookies, usable_copies
from oncelog.metadata.restore.record_copies import holders_of
from oncelog.metadata_store.copies.copy_file import CopiedRecord, RecordCopy, read_copy
from oncelog.metadata_store.copies.copy_folder import created_of
from oncelog.metadata_store.copies.copy_keys import CopyKey
from oncelog.metadata_store.joining.directories import directory_at
from oncelog.metadata_store.records.registry import StorageCookie
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.restore_codec import RAISE_ERA
from oncelog.rpc.codecs.storage_codec import DESCRIBE, READ, ReadRequest
from oncelog.rpc.options import ERA
from oncelog.runtime.credentials import PLAIN, Credentials
from oncelog.storage_client.copy_calls import list_copies, put_copies, read_copy_bytes
from oncelog.storage_client.inventory_calls import look_at_inventory, read_inventory
from oncelog.storage_client.node_calls import CALL_TIMEOUT_MS, DISK_TIMEOUT_MS, require_ok
from oncelog.storage_client.note_calls import read_notes
from oncelog.wire import recovery_pb2 as pb
from oncelog.wire import storage_pb2

T = TypeVar("T")
KeyT = TypeVar("KeyT")

#: Entries whose headers are read at once.
_READS_MAX = 64


class NodeContents(NamedTuple):
    """Read behind the node's own record of the era."""

    inventory: Inventory
    notes: tuple[Note, ...]


@dataclass(slots=True)
class NodeReader:
    """Of one attempt. Use as a context. silent: {address or incarnation: why there was no answer}."""

    credentials: Credentials = PLAIN
    addresses: dict[Incarnation, str] = field(default_factory=dict)
    silent: dict[str, str] = field(default_factory=dict)
    #: {address: the node that ZooKeeper or a cookie says is there, or was}
    named: dict[str, Incarnation] = field(default_factory=dict)
    #: what each node had in the survey
    _eras: dict[Incarnation, Era] = field(default_factory=dict)
    _channels: dict[tuple[str, Era], Channel] = field(default_factory=dict)
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._stack.aclose()

    async def survey(
        self, given: Iterable[str], *, recorded: Iterable[str] = (), cluster_id: str = ""
    ) -> tuple[dict[Incarnation, NodeSeen], list[Note]]:
        """The nodes that answer, and their notes; those that only a note names, too. given: addresses; recorded: those
        that ZooKeeper names. cluster_id: empty: it is not known."""
        sure = dict.fromkeys(given)
        clusters = {cluster_id: None} if cluster_id else {}
        asked: dict[str, None] = {}
        found: dict[Incarnation, NodeSeen] = {}
        notes: list[Note] = []
        self.silent.clear()
        todo = sure | dict.fromkeys(recorded)
        while todo:
            asked |= todo
            looks = await self._each(todo, self._find)
            clusters |= {seen.cluster_id: None for each in sure for seen in looks.get(each, {}).values()}
            for address in looks.keys() - sure.keys():
                for seen in looks[address].values():
                    if clusters and seen.cluster_id not in clusters:
                        looks[address] = {}
                        self.silent[address] = f"a storage node of cluster {seen.cluster_id} is there now"
            new = {node: seen for look in looks.values() for node, seen in look.items() if node not in found}
            found |= new
            noted = await self._each(new, lambda node: self._notes(node, self._eras[node]))
            notes += [note for some in noted.values() for note in some]
            cookies = [one for one in noted_cookies(notes).values() if one.host]
            self.named |= {join_address(one.host, one.port): one.incarnation for one in cookies}
            addresses = [join_address(one.host, one.port) for one in cookies if one.incarnation not in found]
            todo = {address: None for address in addresses if address not in asked}
        return found, notes

    async def find(self, cookies: Iterable[StorageCookie]) -> None:
        """Learn the addresses of nodes that these cookies name, as far as they answer there."""
        unknown = [
            join_address(one.host, one.port) for one in cookies if one.host and one.incarnation not in self.addresses
        ]
        await self._each(dict.fromkeys(unknown), self._find)

    async def _find(self, address: str) -> dict[Incarnation, NodeSeen]:
        """The node with data at this address; none if its directory is empty. Raises OncelogError."""
        seen, grpc = await directory_at(address), address
        if isinstance(seen, DirectorySeen):
            if not seen.cluster_id:
                return {}
            if not seen.address:
                raise ServiceUnavailable(
                    "the storage node reads its directory yet, or starts: repeat this in a moment. If it stays so, it "
                    "runs a version before 8: start the new one"
                )
            grpc = seen.address
        described = await self._channel(grpc).call(DESCRIBE, storage_pb2.DescribeRequest(), timeout_ms=CALL_TIMEOUT_MS)
        if not described.cluster_id:
            return {}
        node = Incarnation(described.incarnation)
        self.addresses[node] = grpc
        seen_node = await self._look(node)
        self._eras[node] = seen_node.era
        return {node: seen_node}

    async def _look(self, node: Incarnation) -> NodeSeen:
        page = await look_at_inventory(self.channel_of(node), node)
        refuses = Era.parse(page.refuses) if page.refuses else None
        era = Era.checked(page.era, page.restore_id)
        return NodeSeen(page.cluster_id, era, page.limbo_below > 0, page.joined, refuses)

    async def raise_eras(
        self, nodes: Iterable[Incarnation], era: Era, cluster_id: str
    ) -> dict[Incarnation, Era | None]:
        """What each has stored now; None: no answer, or no known address."""

        async def raised(node: Incarnation) -> Era:
            request = pb.RaiseEraRequest(target=node, cluster_id=cluster_id, era=era.number, restore_id=era.restore_id)
            answer = await self.channel_of(node).call(RAISE_ERA, request, timeout_ms=DISK_TIMEOUT_MS)
            require_ok(node, answer.status)
            return Era.checked(answer.era, answer.restore_id)

        nodes = list(nodes)
        answers = await self._each(nodes, raised)
        return {node: answers.get(node) for node in nodes}

    async def collect(self, nodes: Iterable[Incarnation]) -> dict[Incarnation, NodeContents]:
        """Of the nodes that give all of it."""

        async def contents(node: Incarnation) -> NodeContents:
            inventory = await read_inventory(self.channel_of(node), node)
            return NodeContents(inventory, tuple(await self._notes(node, inventory.era)))

        return await self._each(list(nodes), contents)

    async def _notes(self, node: Incarnation, era: Era) -> list[Note]:
        """Raises OncelogError."""
        return [note async for note in read_notes(self.channel_of(node, era), node, timeout_ms=DISK_TIMEOUT_MS)]

    async def copies(
        self, nodes: Mapping[Incarnation, Era], cluster_id: str, keys: Sequence[CopyKey], *, committed: Collection[Era]
    ) -> tuple[list[RecordCopy], dict[str, str]]:
        """(The newest copy that these nodes keep and the pinned ones, the oldest first; {name: why one is not used}).
        nodes: with the era that each is in. committed: see `usable_copies`."""
        listed = await self._each(nodes, lambda node: list_copies(self.channel_of(node, nodes[node]), node))
        highest = max((era.number for era in nodes.values()), default=FIRST_ERA.number)
        holders: dict[str, list[Incarnation]] = {}
        for node, copies in listed.items():
            for stored in copies:
                holders.setdefault(stored.name, []).append(node)
        pinned = {stored.name for copies in listed.values() for stored in copies if stored.pinned}
        wanted = sorted({*pinned, *sorted(holders.keys() - pinned, key=created_of)[-1:]})
        found: dict[str, RecordCopy] = {}
        known: dict[str, CopiedRecord] = {}

        def decoded(data: bytes) -> RecordCopy:
            return read_copy(BytesIO(data), keys).sharing(known)

        unused: dict[str, str] = {}
        for name in wanted:
            for node in holders[name]:
                try:
                    data = await read_copy_bytes(self.channel_of(node, nodes[node]), node, name)
                    copy = await asyncio.to_thread(decoded, data)
                except InvariantViolated:
                    raise
                except OncelogError as error:
                    unused[name] = error.message
                    continue
                if (fault := copy_fault(copy, {cluster_id}, highest)) is not None:
                    unused[name] = fault
                    continue
                unused.pop(name, None)
                found[name] = copy
                break
        usable, outdated = usable_copies(found, committed)
        return usable, unused | outdated

    async def keep_copy(
        self, nodes: Mapping[Incarnation, NodeSeen], ack_quorum: int, name: str, file: bytes
    ) -> list[Incarnation]:
        """Store a copy of records, pinned, on as many of these nodes as keep copies: these. ack_quorum: 0: not known.
        Raises ServiceUnavailable."""
        wanted = min(holders_of(ack_quorum), len(nodes))
        # A restore reads no copy from a node in limbo while others answer.
        order = sorted(ranked(name, nodes), key=lambda node: nodes[node].limbo)
        return await put_copies(
            lambda node: self.channel_of(node, nodes[node].era), order, wanted, name, file, pinned=True
        )

    async def lengths(self, wanted: Iterable[WantedLength], era: Era) -> dict[LedgerId, int]:
        """Lengths of closed ledgers, from the headers of their last entries. One that no holder gives is left out."""

        async def length(one: WantedLength) -> int:
            for holder in one.holders:
                try:
                    return await self._length(holder, one.ledger_id, one.end, era)
                except InvariantViolated:
                    raise
                except OncelogError as error:
                    self.silent[f"ledger {one.ledger_id} at {holder}"] = error.message
            raise CorruptEntry(f"no storage node gives the header of entry {one.end} of ledger {one.ledger_id}")

        gate = asyncio.Semaphore(_READS_MAX)

        async def gated(one: WantedLength) -> int:
            async with gate:
                return await length(one)

        found = await self._each(dict.fromkeys(wanted), gated)
        return {one.ledger_id: length_bytes for one, length_bytes in found.items()}

    async def _length(self, node: Incarnation, ledger_id: LedgerId, end: EntryId, era: Era) -> int:
        request = ReadRequest(node, ledger_id, end, 1, headers_only=True)
        async for frame in self.channel_of(node, era).read(READ, request, timeout_ms=DISK_TIMEOUT_MS):
            for entry_id, entry in zip(frame.entry_ids, frame.entries, strict=True):
                if entry_id == end:
                    return peek_header(entry).length
        raise CorruptEntry(f"storage node {node} does not give entry {end} of ledger {ledger_id}")

    async def _each(self, keys: Iterable[KeyT], ask: Callable[[KeyT], Awaitable[T]]) -> dict[KeyT, T]:
        """The answers; whoever does not answer is in `silent`."""

        async def one(key: KeyT) -> tuple[KeyT, T] | None:
            try:
                answer = await ask(key)
            except InvariantViolated:
                raise
            except OncelogError as error:
                self.silent[str(key)] = error.message
                return None
            self.silent.pop(str(key), None)
            return key, answer

        answers = await asyncio.gather(*map(one, keys))
        return dict(each for each in answers if each is not None)

    def channel_of(self, node: Incarnation, era: Era = FIRST_ERA) -> Channel:
        """Raises ServiceUnavailable."""
        if node not in self.addresses:
            raise ServiceUnavailable(f"no cookie says where storage node {node} is: name its address by --nodes")
        return self._channel(self.addresses[node], era)

    def _channel(self, address: str, era: Era = FIRST_ERA) -> Channel:
        """Calls that are not for any era are of the first. Raises InvalidArgument."""
        channel = self._channels.get((address, era))
        if channel is None:
            metadata = () if era == FIRST_ERA else ((ERA, str(era)),)
            channel = Channel(address, credentials=self.credentials, metadata=metadata)
            self._stack.push_async_callback(channel.close)
            self._channels[address, era] = channel
        return channel


def knowledge_from(contents: Mapping[Incarnation, NodeContents], copies: Sequence[RecordCopy] = ()) -> Knowledge:
    """What notes and heads of collected nodes say, and copies."""
    knowledge = knowledge_of([note for each in contents.values() for note in each.notes], copies)
    heads = [
        held.head for each in contents.values() for held in each.inventory.ledgers.values() if held.head is not None
    ]
    members = dict.fromkeys(member for head in heads for member in head.members)
    quorums = [head.ack_quorum for head in heads if head.ack_quorum]
    era = max((head.era for head in heads), default=FIRST_ERA.number)
    return knowledge.with_further(Knowledge(dict.fromkeys(members, True), min(quorums, default=0), era))
