"""A topic's log at its owner: appends batches and grants as entries, and folds them in when they are durable.

Each entry in flight remembers the answers that wait for it. Entries become durable in order; with each the fold moves
on, and the answers that waited for it are due. When the ledger fails, everything in flight is dropped: none of it was
answered.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from oncelog.core.chain.managed_ledger import ManagedLedger
from oncelog.core.errors import InvariantViolated
from oncelog.core.formats.batch import Buffer, deltas_of
from oncelog.core.formats.entry import (
    GIVEN_UP_INDEXES,
    EntryHeader,
    EntryKind,
    GivenUp,
    ProducerOpened,
    encode_given_up,
    encode_opened,
)
from oncelog.core.formats.opening import GatewayClient, ProducerOpening
from oncelog.core.formats.outcome import Outcome
from oncelog.core.formats.producers_aged import ProducersAged, encode_aged
from oncelog.core.ids import EntryId, Position, SessionNumber
from oncelog.core.publishing.dedup_table import DedupTable
from oncelog.core.topic_events.events import ReceivedBatch


class PendingBatchAnswer(NamedTuple):
    """An answer that is due once an entry is durable."""

    session: SessionNumber
    request: int
    outcome: Outcome


@dataclass(slots=True)
class InFlight:
    """One entry handed to the ledger. batch, chunk, grant or aged is set, except for a GivenUp; call: the request that
    a grant or a renewal answers. peer, client: as in its ProducerOpening."""

    header: EntryHeader
    position: Position
    batch: ReceivedBatch | None = None
    chunk: ReceivedBatch | None = None
    grant: ProducerOpened | None = None
    aged: ProducersAged | None = None
    call: int | None = None
    peer: str = ""
    client: GatewayClient | None = None
    waiting: list[PendingBatchAnswer] = field(default_factory=list)


class TopicLog:
    """Appends to the managed ledger's open ledger and keeps what is in flight."""

    def __init__(self, ledgers: ManagedLedger, table: DedupTable, given_up: tuple[GivenUp, ...] = ()) -> None:
        """given_up: what the log must say before anything else is appended."""
        self.given_up = given_up
        self.ledgers = ledgers
        self.table = table
        #: base_index of the next entry appended
        self.next_index = table.state.next_index
        #: how much time has passed in the log, with the entries in flight
        self.time_ms = table.state.time_ms
        #: entries in flight, in log order
        self.in_flight: deque[InFlight] = deque()

    @property
    def open(self) -> bool:
        """Whether batches and grants can be appended."""
        return self.ledgers.open and not self.given_up

    def append_batch(self, batch: ReceivedBatch, *, skip_first: int) -> InFlight:
        header = batch.header
        entry = self._append(EntryKind.MESSAGES, batch.data, skip_first=skip_first, count=header.count - skip_first)
        entry.batch = batch
        deltas = deltas_of(header, batch.data)
        self.table.accepted(header, deltas, position=entry.position, skip_first=skip_first)
        return entry

    def append_chunk(self, chunk: ReceivedBatch) -> InFlight:
        """A part of a message: the entry takes no index, and the producer's mark stays where it is."""
        entry = self._append(EntryKind.CHUNK, chunk.data, skip_first=0, count=0)
        entry.chunk = chunk
        return entry

    def append_grant(self, grant: ProducerOpened, event: ProducerOpening) -> InFlight:
        """event: the request that it answers."""
        entry = self._append(EntryKind.PRODUCER_OPENED, encode_opened(grant), skip_first=0, count=0)
        entry.grant, entry.call, entry.peer, entry.client = grant, event.call, event.peer, event.client
        self.table.granting(grant, position=entry.position)
        return entry

    def append_aged(self, aged: ProducersAged, *, call: int | None = None) -> InFlight:
        entry = self._append(EntryKind.PRODUCERS_AGED, encode_aged(aged), skip_first=0, count=0)
        entry.aged, entry.call = aged, call
        self.time_ms += aged.passed_ms
        self.table.ageing(aged, position=entry.position)
        return entry

    def append_given_up(self) -> None:
        """Say what was given up. The log opens for batches and grants when that is durable."""
        for given_up in self.given_up:
            self._append(EntryKind.GIVEN_UP, encode_given_up(given_up), skip_first=0, count=GIVEN_UP_INDEXES)

    def _append(self, kind: EntryKind, body: Buffer, *, skip_first: int, count: int) -> InFlight:
        header = self.ledgers.append(kind, body, base_index=self.next_index, skip_first=skip_first, count=count)
        self.next_index += count
        entry = InFlight(header, header.position)
        self.in_flight.append(entry)
        return entry

    def at(self, position: Position) -> InFlight:
        """The entry in flight at `position`."""
        entry = self.in_flight[position.entry_id - self.in_flight[0].header.entry_id]
        if entry.position != position:
            raise InvariantViolated(f"entry {position} is not in flight where it should be")
        return entry

    def confirmed(self, last_add_confirmed: EntryId) -> list[InFlight]:
        """Fold every entry up to last_add_confirmed in; returns them in order, with the answers that wait for them."""
        done: list[InFlight] = []
        while self.in_flight and self.in_flight[0].header.entry_id <= last_add_confirmed:
            entry = self.in_flight.popleft()
            if entry.batch is not None:
                header = entry.batch.header
                self.table.persisted_batch(entry.header, header, deltas_of(header, entry.batch.data))
            elif entry.chunk is not None:
                self.table.state.fold_chunk(entry.header)
            elif entry.grant is not None:
                self.table.persisted_grant(entry.header, entry.grant)
            elif entry.aged is not None:
                self.table.persisted_ages(entry.header, entry.aged)
            else:
                self.table.state.fold_given_up(entry.header)
                self.given_up = self.given_up[1:]
            done.append(entry)
        return done

    def rollback(self) -> list[InFlight]:
        """The ledger failed: the whole state returns to the fold of the log up to its real end. Returns the entries
        that were in flight."""
        dropped = list(self.in_flight)
        self.in_flight.clear()
        self.table.rollback()
        self.next_index, self.time_ms = self.table.state.next_index, self.table.state.time_ms
        return dropped

    def check_invariants(self) -> None:
        self.ledgers.check_invariants()
        self.table.check_invariants()
        index = self.table.state.next_index
        for entry in self.in_flight:
            if entry.header.base_index != index:
                raise InvariantViolated(f"entry {entry.position} in flight does not begin at message {index}")
            index = entry.header.next_index
        if index != self.next_index:
            raise InvariantViolated(f"the next entry would begin at message {self.next_index}, not {index}")
