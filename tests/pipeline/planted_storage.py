"""A storage node over real gRPC that serves a planted log, and the plan of an audit of it.

It is served by the loop of the pipeline: whoever waits for something else meanwhile does so in a thread.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from oncelog.core.ids import EntryId, Incarnation, Position
from oncelog.core.storage_answers import ReadStatus
from oncelog.pipeline.audit.ledger_ranges import AuditRange, StoredLedger, cut, range_behind
from oncelog.pipeline.audit.topic_plan import OwnerTold, TopicPlan
from oncelog.pipeline.connection import Connection
from oncelog.rpc.server import Server
from oncelog.rpc.storage_codec import READ, ReadFrame, ReadRequest
from oncelog.verify.topic_judge import LiveMap, SnapshotTold
from tests.pipeline.planted_log import TOPIC_ID, PlantedLog

NODE = Incarnation("a" * 32)
FLIGHTS = "public/default/flights"


class PlantedStorage:
    """The only member of every ledger of the log. spoiled: entries whose bytes it gives with a bit turned."""

    def __init__(self, log: PlantedLog, *spoiled: Position) -> None:
        self._log = log
        self._spoiled = spoiled
        self.address = ""

    async def read(self, request: ReadRequest) -> AsyncIterator[ReadFrame]:
        held: dict[EntryId, bytes] = {}
        for position, data in self._log.entries.items():
            if position.ledger_id == request.ledger_id and position.entry_id >= request.first_entry:
                spoiled = data[:-1] + bytes([data[-1] ^ 1])
                held[position.entry_id] = spoiled if position in self._spoiled else data
        last = max((request.first_entry, *held))
        wanted = range(request.first_entry, min(last + 1, request.first_entry + request.entries_max))
        found = [EntryId(number) for number in wanted if number in held]
        missing = [EntryId(number) for number in wanted if number not in held]
        yield ReadFrame(ReadStatus.OK, found, missing, (), entries=[held[entry_id] for entry_id in found])

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        server = Server()
        server.read(READ, self.read)
        self.address = f"127.0.0.1:{await server.start()}"
        try:
            yield
        finally:
            await server.stop(grace_ms=0)

    def plan(
        self,
        *,
        live: LiveMap | None = None,
        snapshot: SnapshotTold | None = None,
        entries_max: int = 3,
        **stats: object,
    ) -> TopicPlan:
        """As the cluster would tell it, if it has not told otherwise. stats: of the owner."""
        members = ((NODE, self.address),)
        ledgers = tuple(
            StoredLedger(fact.ledger_id, fact.first_index, fact.last, fact.whole, fact.length, members)
            for fact in self._log.facts()
        )
        pieces = cut(ledgers, entries_max=entries_max, behind=snapshot.position if snapshot else None)
        if snapshot is not None:
            snapshot = replace_after(snapshot, range_behind(pieces, snapshot.position))
        connection = Connection("oncelog://127.0.0.1:1")
        told = OwnerTold(self._log.epoch, live or self._log.live(), stats, snapshot.number if snapshot else 0)
        ranges = tuple(AuditRange(connection, TOPIC_ID, slices) for slices in pieces)
        return TopicPlan(FLIGHTS, TOPIC_ID, told, ledgers, snapshot, None, False, ranges)


def replace_after(snapshot: SnapshotTold, after: int | None) -> SnapshotTold:
    return snapshot._replace(after=after)


def without_start(plan: TopicPlan, first_index: int) -> TopicPlan:
    """The same with the beginning of its log trimmed away, for what is told of it."""
    first = plan.ledgers[0]._replace(first_index=first_index)
    return replace(plan, ledgers=(first, *plan.ledgers[1:]))
