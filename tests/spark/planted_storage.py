"""A storage node over real gRPC that serves a planted log, and is the metadata service that names its members; and the
plan of an audit of it.

The loop of the pipeline serves it: code that waits for something else meanwhile must use a thread.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from oncelog.core.ids import EntryId, Incarnation, Position
from oncelog.core.ledger.member_status import ReadStatus
from oncelog.rpc.codecs.metadata_codec import LEDGERS
from oncelog.rpc.codecs.storage_codec import READ, ReadFrame, ReadRequest
from oncelog.rpc.server import Server
from oncelog.verify.owner_report import NOT_REPORTED, LiveMap, OwnerReport, SnapshotDue
from oncelog.verify.snapshots import ReportedSnapshot
from oncelog.verify.subscriptions import SubscriptionsComparison
from oncelog.wire import metadata_pb2 as pb
from oncelog_spark.audit.ledger_ranges import AuditedLedger, AuditRange, cut, remembered_in
from oncelog_spark.audit.topic_plan import TopicPlan
from oncelog_spark.cluster import Members
from oncelog_spark.options import ConnectionOptions
from tests.contract.proof.planted_log import TOPIC_ID, PlantedLog, searched

NODE = Incarnation("a" * 32)
FLIGHTS = "public/default/flights"


class PlantedStorage:
    """A member of every ledger of the log, the only one unless the plan names others.

    spoiled: entries whose bytes it gives with a bit turned. present: the members of every ledger now; None: as planned.
    swapped_after: the number of entries that it gives before it has erased its copies, because it was swapped out.
    """

    def __init__(self, log: PlantedLog, *spoiled: Position, node: Incarnation = NODE) -> None:
        self.node = node
        self._log = log
        self._spoiled = spoiled
        self.address = ""
        self._planned: Members = ()
        self.present: Members | None = None
        self.swapped_after: int | None = None
        self.lost: tuple[tuple[int, int], ...] = ()

    async def ledgers(self, request: pb.LedgersRequest) -> pb.LedgersAnswer:
        """As the metadata service names them."""
        members = self._planned if self.present is None else self.present
        listed = [
            pb.TopicLedger(
                ledger_id=ledger_id,
                members=[pb.LedgerMember(incarnation=member, address=address) for member, address in members],
                lost=[pb.LostEntries(first=first, last=last) for first, last in self.lost],
            )
            for ledger_id in request.ledger_ids
        ]
        snapshots = listed if request.with_snapshots else []
        return pb.LedgersAnswer(topic_id=TOPIC_ID, ledgers=listed, snapshot_ledgers=snapshots)

    async def read(self, request: ReadRequest) -> AsyncIterator[ReadFrame]:
        if self.swapped_after is not None:
            if self.swapped_after <= 0:
                yield ReadFrame(ReadStatus.ERASED, [], [], ())
                return
            request = request._replace(entries_max=min(request.entries_max, self.swapped_after))
            self.swapped_after -= request.entries_max
        held: dict[EntryId, bytes] = {}
        for position, data in self._log.entries.items():
            if position.ledger_id == request.ledger_id and position.entry_id >= request.first_entry:
                spoiled = data[:-1] + bytes([data[-1] ^ 1])
                held[position.entry_id] = spoiled if position in self._spoiled else data
        last = max((request.first_entry, *held))
        wanted = range(request.first_entry, min(last + 1, request.first_entry + request.entries_max))
        found = [EntryId(number) for number in wanted if number in held]
        missing = [EntryId(number) for number in wanted if number not in held]
        every = [place.entry_id for place in self._log.entries if place.ledger_id == request.ledger_id]
        end = EntryId(max(every, default=-1))
        yield ReadFrame(ReadStatus.OK, found, missing, (), end, entries=[held[entry_id] for entry_id in found])

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        server = Server()
        server.read(READ, self.read)
        server.unary(LEDGERS, self.ledgers)
        self.address = f"127.0.0.1:{await server.start()}"
        try:
            yield
        finally:
            await server.stop(grace_ms=0)

    @property
    def connection(self) -> ConnectionOptions:
        return ConnectionOptions(f"oncelog://{self.address}")

    def plan(
        self,
        *,
        live: LiveMap | None = None,
        snapshot: ReportedSnapshot | None = None,
        entries_max: int = 3,
        others: "Sequence[PlantedStorage]" = (),
        all_copies: bool = False,
        due: SnapshotDue = NOT_REPORTED,
        **stats: object,
    ) -> TopicPlan:
        """The plan of an audit. others: further members. stats: of the topic owner."""
        members = ((self.node, self.address), *((other.node, other.address) for other in others))
        self._planned = members
        ledgers = tuple(
            AuditedLedger(
                fact.ledger_id, fact.first_index, fact.last, fact.whole, fact.length, members,
                len(members) // 2 + 1 if fact.whole else 0,
            )
            for fact in self._log.facts()
        )  # fmt: skip
        pieces = cut(ledgers, entries_max=entries_max, behind=snapshot.position if snapshot else None)
        connection = self.connection
        told = OwnerReport(self._log.epoch, live or self._log.live(), stats, snapshot.number if snapshot else 0, due)
        remembered = snapshot.remembered if snapshot else ()
        ranges = tuple(
            AuditRange(connection, FLIGHTS, TOPIC_ID, slices, remembered_in(slices, remembered), all_copies)
            for slices in pieces
        )
        none = SubscriptionsComparison()
        return TopicPlan(FLIGHTS, TOPIC_ID, told, ledgers, searched(snapshot), none, ranges, all_copies)


def without_start(plan: TopicPlan, first_index: int) -> TopicPlan:
    """The same with the beginning of its log trimmed away, for what is told of it."""
    first = plan.ledgers[0]._replace(first_index=first_index)
    return replace(plan, ledgers=(first, *plan.ledgers[1:]))
