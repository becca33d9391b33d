"""The Inventory call: which ledgers this node has, for a rebuild of ZooKeeper's records (`core.rebuild`).

Rules
- Only what is synced is listed. What the node answered before the era of the restore was durable here is synced then.
- The first and the last entry of a copy are read back and verified. An entry that cannot be read is damage, and no part
  of a run.
- One page is made at a time, whoever asks, so one thread reads the disk. The event loop only collects places.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

from crc32c import crc32c

from oncelog.core.era import Era
from oncelog.core.errors import CorruptEntry, InvalidArgument, ServiceUnavailable
from oncelog.core.formats.entry import decode_entry
from oncelog.core.formats.head import HEAD_KINDS
from oncelog.core.ids import EntryId, LedgerId
from oncelog.core.ledger.member_status import CopyState, ReadStatus
from oncelog.core.node.node_ledger import PURPOSES, LedgerOrigin
from oncelog.log_storage.directory.segment_format import RecordLocation
from oncelog.log_storage.directory.segment_reader import SegmentPin
from oncelog.log_storage.serve.node_runner import NodeRunner
from oncelog.rpc.codecs.restore_codec import INVENTORY, INVENTORY_LEDGERS_MAX
from oncelog.rpc.codecs.storage_codec import wire_status
from oncelog.rpc.server import Server
from oncelog.wire import recovery_pb2 as pb
from oncelog.wire import storage_pb2

#: Each attempt at a page may find one more damaged entry at each end of a run. A page with more is asked for again.
ATTEMPTS_MAX = 8
#: States in which the entries that are found are listed.
_LISTED = (CopyState.HELD, CopyState.LIMBO, CopyState.DAMAGED)


class _Copy(NamedTuple):
    """One ledger of a page. places: of the first and the last listed entry; none if there is none."""

    ledger: pb.InventoryLedger
    places: tuple[tuple[EntryId, RecordLocation], ...] = ()


class InventoryService:
    """The inventory of one node."""

    def __init__(
        self,
        runner: NodeRunner,
        cluster_id: str,
        era: Callable[[], Era],
        *,
        joined: Callable[[], bool] = lambda: False,
        refuses: Callable[[], Era | None] = lambda: None,
    ) -> None:
        """era: what is durable here now. joined: whether the node serves its cluster. refuses: the era of the record
        that it waits before, since its records are older than the data."""
        self._joined = joined
        self._refuses = refuses
        self._runner = runner
        self._cluster_id = cluster_id
        self._era = era
        self._turn = asyncio.Lock()

    def add_to(self, server: Server) -> None:
        server.unary(INVENTORY, self.inventory, any_era=True)

    async def inventory(self, request: pb.InventoryRequest) -> pb.InventoryAnswer:
        """One page. Raises InvalidArgument, and ServiceUnavailable if the disk does not give it now."""
        core, reader = self._runner.core, self._runner.journal.reader
        if request.target != self._runner.incarnation:
            return pb.InventoryAnswer(status=wire_status(ReadStatus.WRONG_INCARNATION))
        if not 1 <= request.ledgers_max <= INVENTORY_LEDGERS_MAX:
            raise InvalidArgument(
                f"ledgers_max is {request.ledgers_max}: ask for 1 to {INVENTORY_LEDGERS_MAX} ledgers",
                field="ledgers_max",
            )
        async with self._turn:
            era = self._era()
            known = [*core.ledgers, *core.ledgers.tombstones]
            ids = await asyncio.to_thread(_following, known, request.after_ledger)
            for _ in range(ATTEMPTS_MAX):
                copies = [self._copy(ledger_id) for ledger_id in ids[: request.ledgers_max]]
                pins = reader.pins(place for copy in copies for _, place in copy.places)
                if await asyncio.to_thread(self._complete, copies, pins):
                    break
            else:
                raise ServiceUnavailable(
                    "this storage node found more damage while it read its ledgers: retry, and it goes on from there"
                )
            more = len(ids) > request.ledgers_max
            floors = {} if more else self._floors()
            return pb.InventoryAnswer(
                status=wire_status(ReadStatus.OK),
                cluster_id=self._cluster_id,
                era=era.number,
                restore_id=era.restore_id,
                limbo_below=self._runner.limbo_below,
                joined=self._joined(),
                refuses=str(self._refuses() or ""),
                committed_eras=map(str, sorted(self._runner.journal.control.committed_eras)),
                ledgers=[copy.ledger for copy in copies],
                floors=[
                    pb.InventoryFloor(topic_id=chain.topic_id, purpose=PURPOSES.index(chain.purpose), below=below)
                    for chain, below in floors.items()
                ],
                more=more,
            )

    def _copy(self, ledger_id: LedgerId) -> _Copy:
        """What memory has of a ledger."""
        runner, journal = self._runner, self._runner.journal
        ledgers = runner.core.ledgers
        ledger = ledgers.peek(ledger_id)
        state = runner.core.copy_state(ledger_id)
        if runner.in_limbo(ledger_id):
            state = CopyState.LIMBO
        damaged = {*ledger.damaged, *journal.damage.of(ledger_id)}
        runs = journal.index.runs(ledger_id) if state in _LISTED else []
        if damaged:
            state = CopyState.DAMAGED if state is CopyState.HELD else state
            runs = [part for run in runs for part in _without(run, damaged)]
        found = pb.InventoryLedger(
            ledger_id=ledger_id,
            state=storage_pb2.CopyState.ValueType(state),
            fenced=ledger.fenced,
            runs=[end for run in runs for end in run],
            last_add_confirmed=ledger.last_add_confirmed,
            deleted=journal.control.was_deleted(ledger_id),
            erased_before=ledger_id in ledgers.tombstones,
        )
        if ledger.origin is not None:
            found.topic_id, found.purpose = ledger.origin.topic_id, PURPOSES.index(ledger.origin.purpose)
        ends = {runs[0][0], runs[-1][1]} if runs else set()
        places = ((EntryId(each), journal.index.location(ledger_id, each)) for each in sorted(ends))
        return _Copy(found, tuple((each, place) for each, place in places if place is not None))

    def _floors(self) -> dict[LedgerOrigin, LedgerId]:
        control = self._runner.journal.control
        return {chain: LedgerId(below) for chain, (below, number) in control.floors.items() if control.proves(number)}

    def _complete(self, copies: list[_Copy], _: tuple[SegmentPin, ...]) -> bool:
        """Add what the entries say, on a thread that holds the pins. False: an entry is damaged, which is noted now.

        Raises ServiceUnavailable.
        """
        journal, sound = self._runner.journal, True
        for ledger, places in copies:
            for entry_id, place in places:
                ledger_id = LedgerId(ledger.ledger_id)
                try:
                    data = journal.reader.read(place, ledger_id=ledger_id, entry_id=entry_id)
                    header = decode_entry(data, ledger_id=ledger_id, entry_id=entry_id, checksum=crc32c)
                except CorruptEntry as error:
                    if "offset" not in error.details:  # the record is sound, but not the entry in it
                        journal.damage.note(ledger_id, entry_id)
                    if entry_id not in journal.damage.of(ledger_id):
                        raise ServiceUnavailable(f"{error.message}; retry") from error
                    sound = False
                    continue
                if entry_id == places[0][0]:
                    ledger.base_index = header.base_index
                if entry_id == 0 and header.kind in HEAD_KINDS:
                    ledger.head = data
                ledger.last_length, ledger.owner_epoch = header.length, header.owner_epoch
        return sound


def _following(known: Iterable[LedgerId], after: int) -> list[LedgerId]:
    return sorted({ledger_id for ledger_id in known if ledger_id > after})


def _without(run: tuple[int, int], damaged: Iterable[int]) -> list[tuple[int, int]]:
    """What is left of a run."""
    parts, (first, last) = list[tuple[int, int]](), run
    for entry_id in sorted(each for each in damaged if first <= each <= last):
        if entry_id > first:
            parts.append((first, entry_id - 1))
        first = entry_id + 1
    return [*parts, (first, last)] if first <= last else parts
