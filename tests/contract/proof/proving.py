"""A topic whose log is planted on storage nodes in memory, its owner, and a replica that proves it."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

from crc32c import crc32c

from oncelog.core.formats.entry import EntryKind, peek_header
from oncelog.core.formats.topic_record import DEDUP_CURSOR, CursorLink, CursorRecord, LedgerLink
from oncelog.core.ids import BEFORE_ALL, EntryId, Incarnation, LedgerId, OwnerEpoch, Position, ProducerId
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.names import TopicName, parse_topic
from oncelog.core.publishing.dedup_state import DedupState
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.snapshots.dedup_format import SnapshotManifest, encode_chunks, encode_manifest
from oncelog.metadata.replica import Coordination
from oncelog.metadata_store.records.cursor_store import CursorStore
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.rpc.codecs.deduplication_codec import VERIFY_FOLD
from oncelog.rpc.codecs.owner_codec import TOPIC_STATES
from oncelog.runtime.tasks import start
from oncelog.verify.producer_marks import ReportedProducer
from oncelog.verify.proof import Part, TopicProof
from oncelog.wire import deduplication_pb2, owner_pb2
from tests.cluster.metadata.metadata_world import FakeOwner, Replica, World
from tests.cluster.until import until
from tests.contract.proof.planted_log import TOPIC_ID, PlantedLog
from tests.contract.repair.fake_storage_node import FakeStorageNode

DEADLINE_S = 30.0
FLIGHTS = parse_topic("flights")
FAST = 1 << 30
NAMES = "abc"
#: The ledger of the planted snapshots.
CURSOR_LEDGER = 100


def verified(**changes: Any) -> dict[str, Any]:
    """What an owner answers whose state is the fold of snapshot and log."""
    equal = {
        "id": "v", "state": "equal", "snapshot": {"number": 3, "position": "1:2"}, "newest_snapshot_number": 3,
        "position": "1:4", "producers_compared": 2, "producer_count": 2, "differences_count": 0, "differences": [],
        "error": None, "subscriptions": {"compared": 1, "count": 1, "position": "2:0", "differences_count": 0,
        "differences": []},
    }  # fmt: skip
    return equal | changes


def a_log() -> PlantedLog:
    """Three ledgers, the last one open: two grants and eight batches of three messages."""
    log = PlantedLog()
    log.open("p")
    log.open("q")
    for number in range(4):
        log.store("p", range(3 * number, 3 * number + 3))
        log.store("q", range(3 * number, 3 * number + 3))
        if number % 2 == 0:
            log.roll()
    return log


def folded(log: PlantedLog, end: Position | None = None) -> DedupState:
    """What a snapshot at this position has; None: at the end of the log."""
    state = DedupState()
    for position, data in log.entries.items():
        if end is None or position <= end:
            state.fold(peek_header(data), data)
    return state


@dataclass
class Proving:
    """nodes: a, b, c; each ledger is on all of them. verified: what the owner answers to VERIFY_FOLD.

    producers: what it has, in pages of `page`; 0: it knows no pages, and lists all. snapshot: what it says of its
    snapshots.
    """

    world: World
    stack: AsyncExitStack
    nodes: list[FakeStorageNode] = field(default_factory=list)
    verified: dict[str, Any] = field(default_factory=verified)
    producers: dict[ProducerId, ReportedProducer] = field(default_factory=dict)
    page: int = 1_000
    snapshot: dict[str, int] = field(default_factory=lambda: {"number": 0})
    #: requests to begin and to cancel the verification at the owner
    begun: int = 0
    cancelled: int = 0
    #: each answer is of another owner
    moving: bool = False

    @classmethod
    @asynccontextmanager
    async def of(cls, log: PlantedLog) -> AsyncIterator["Proving"]:
        async with World.running() as world, AsyncExitStack() as stack:
            proving = cls(world, stack)
            proving.topics = TopicStore(await world.session(), new_topic_id=lambda: TOPIC_ID)
            await proving.topics.create(FLIGHTS)
            for name in NAMES:
                await proving.node(name)
            proving.replica = await world.replica()
            proving.owner = await world.owner(proving.replica)
            await proving.replica.sees(proving.owner)
            proving.owner.server.unary(VERIFY_FOLD, proving._verify)
            proving.owner.server.unary(TOPIC_STATES, proving._states)
            await proving.plant(log)
            yield proving

    topics: TopicStore = field(init=False)
    replica: Replica = field(init=False)
    owner: FakeOwner = field(init=False)

    @property
    def coordination(self) -> Coordination:
        return self.replica.coordination

    async def _verify(self, request: deduplication_pb2.VerifyFoldRequest) -> deduplication_pb2.DeduplicationAnswer:
        action = request.WhichOneof("action")
        self.cancelled += action == "cancel"
        self.begun += action == "begin_bytes_per_s"
        if self.moving:
            self.verified["id"] = uuid4().hex
        return deduplication_pb2.DeduplicationAnswer(state_json=json.dumps(self.verified if self.begun else None))

    async def _states(self, request: owner_pb2.TopicStatesRequest) -> owner_pb2.TopicStatesAnswer:
        answer = owner_pb2.TopicStatesAnswer(states=self.owner.states)
        for state in answer.states if request.internal else ():
            behind = [each for each in sorted(self.producers) if each > request.producers_after or not self.page]
            listed = behind[: self.page or len(behind)]
            producers = [
                {
                    "producer_id": each, "name": self.producers[each].name, "mode": self.producers[each].mode.name,
                    "generation": self.producers[each].generation, "persisted": self.producers[each].mark,
                }
                for each in listed
            ]  # fmt: skip
            internal: dict[str, Any] = {"snapshot": self.snapshot, "producers": producers}
            if self.page:
                internal["producers_next_after"] = listed[-1] if len(listed) < len(behind) else None
            state.internal_stats_json = json.dumps(internal)
        return answer

    async def node(self, name: str) -> FakeStorageNode:
        """One more, without any copy."""
        node = FakeStorageNode(Incarnation(name * 32), await self.world.session())
        await self.stack.enter_async_context(node.serving())
        await node.register()
        self.nodes.append(node)
        return node

    async def plant(self, log: PlantedLog) -> None:
        """Store the log, and let the owner say that it ends there."""
        members = tuple(node.incarnation for node in self.nodes)
        ledgers = LedgerStore(await self.world.session())
        last = log.ledgers[-1][0] if log.ledgers else None
        for number, _, entries, size in log.ledgers:
            record = LedgerMetadata(LedgerId(number), TOPIC_ID, members, 2)
            if number != last:
                record = record.closed(end=EntryId(entries - 1), length=size)
            await ledgers.write(record, version=ABSENT_VERSION)
        for position, data in log.entries.items():
            for node in self.nodes:
                node.copies.setdefault(position.ledger_id, {})[position.entry_id] = data
        stored = await self.topics.read(TOPIC_ID)
        assert stored is not None
        links = tuple(LedgerLink(LedgerId(number), index) for number, index, _, _ in log.ledgers)
        await self.topics.write(replace(stored.value, ledgers=links), version=stored.version)
        self.says(log)

    def says(self, log: PlantedLog) -> None:
        stats = {
            "last_position": str(list(log.entries)[-1] if log.entries else BEFORE_ALL),
            "message_count": log.next_index,
            "producer_count": len(log.producers),
        }
        self.producers = log.reported_producers()
        state = owner_pb2.TopicState(topic_id=TOPIC_ID, phase="serving", owner_epoch=1, stats_json=json.dumps(stats))
        self.owner.states = [state]

    async def take_snapshot(self, state: DedupState, *, number: int = 1, closed: bool = False) -> None:
        """One that the owner has taken: a base, in a ledger of its own."""
        producers = state.producers
        [chunk] = encode_chunks(number, [producers.record(pid) for pid in producers])
        manifest = SnapshotManifest(number, -1, state.position, state.next_index, len(producers), 1, crc32c(chunk))
        cursor = PlantedLog(ledger_id=CURSOR_LEDGER, ledgers=[[CURSOR_LEDGER, 0, 0, 0]])
        cursor.append(EntryKind.SNAPSHOT_CHUNK, chunk)
        cursor.append(EntryKind.SNAPSHOT_MANIFEST, encode_manifest(manifest))
        members = tuple(node.incarnation for node in self.nodes)
        record = LedgerMetadata(LedgerId(CURSOR_LEDGER), TOPIC_ID, members, 2)
        if closed:
            record = record.closed(end=EntryId(1), length=cursor.ledgers[0][3])
        session = await self.world.session()
        await LedgerStore(session).write(record, version=ABSENT_VERSION)
        link = CursorLink(LedgerId(CURSOR_LEDGER), state.position)
        await CursorStore(session).write(
            TOPIC_ID, DEDUP_CURSOR, CursorRecord(OwnerEpoch(1), (link,)), version=ABSENT_VERSION
        )
        for position, data in cursor.entries.items():
            for node in self.nodes:
                node.copies.setdefault(position.ledger_id, {})[position.entry_id] = data
        self.snapshot = {"number": number}

    async def trim(self) -> None:
        """Retention deletes the first ledger."""
        stored = await self.topics.read(TOPIC_ID)
        assert stored is not None
        await self.topics.write(replace(stored.value, ledgers=stored.value.ledgers[1:]), version=stored.version)

    async def change(self, ledger_id: int, **changes: Any) -> None:
        """Change the record of a ledger."""
        ledgers = LedgerStore(await self.world.session())
        stored = await ledgers.read(LedgerId(ledger_id))
        assert stored is not None
        await ledgers.write(replace(stored.value, **changes), version=stored.version)

    def elect(self, names: Sequence[str] = ("m-1",)) -> None:
        """The replica proves until the end of the test, under the first of the names."""
        running = start(self.coordination.proofs.run(lambda: names[0]), what="proofs")
        self.stack.callback(running.cancel)

    async def ask(self, topic: TopicName = FLIGHTS, *, by: str = "ann", bytes_per_second: int = FAST) -> TopicProof:
        return await self.coordination.proofs.ask(topic, by=by, bytes_per_second=bytes_per_second, cpu_percent=100)

    async def reaches(self, part: Part, *, replica: str = "m-1") -> None:
        """Return when the record of the proof says that this part goes on, at this replica."""
        store = self.coordination.proofs.store

        async def reached() -> bool:
            proof = await store.proof(TOPIC_ID)
            return proof is not None and (proof.value.next_part, proof.value.replica) == (part, replica)

        await until(reached, DEADLINE_S, waiting_for=f"part {part.value}")

    async def verdict(self) -> TopicProof:
        """Of the proof that is asked for now."""
        await self.ask()
        return await self.ended()

    async def ended(self) -> TopicProof:
        store = self.coordination.proofs.store

        async def over() -> TopicProof | None:
            return await store.verdict(TOPIC_ID) if await store.proof(TOPIC_ID) is None else None

        found = await until(over, DEADLINE_S, waiting_for="the proof to end")
        assert found is not None
        return found


def findings(proof: TopicProof, part: Part) -> list[tuple[str, str]]:
    """(position, message)"""
    return [(each.position, each.message) for each in proof.part(part).findings]


def done(proof: TopicProof) -> dict[str, tuple[int, int]]:
    return {each.part.value: (each.done, each.of) for each in proof.parts}
