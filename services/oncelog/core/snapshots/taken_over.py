"""Where a takeover has arrived, and the newest snapshot of a topic."""

from dataclasses import dataclass, field
from typing import NamedTuple

from oncelog.core.acks.ack_state import SubscriptionsState
from oncelog.core.formats.entry import GivenUp
from oncelog.core.formats.topic_record import CursorRecord
from oncelog.core.ids import LedgerId, Position
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.publishing.dedup_state import DedupState


class NewestSnapshot(NamedTuple):
    """The newest durable snapshot: its position in the log, and when its manifest was written, ms since 1970."""

    position: Position
    taken_ms: int


class ReplaySize(NamedTuple):
    """Entries of the log that a takeover would fold behind the newest durable snapshot, and the bytes of their
    bodies."""

    entries: int
    bytes: int


NOTHING = ReplaySize(0, 0)


@dataclass(frozen=True, slots=True)
class LoadedSnapshot:
    """The snapshot from which a takeover started: its number, its ledger, and the positions of that ledger's base in
    the log and in the ack log. newest: that snapshot itself."""

    number: int
    ledger_id: LedgerId
    base: Position
    acks: Position
    newest: NewestSnapshot


@dataclass(frozen=True, slots=True)
class TakenOver:
    """Where a takeover has arrived: the whole state, up to the ends of both chains. loaded: the snapshot it began from.

    given_up, acks_given_up: what an operator has given up before the end of the log, or of the ack log, and the chain
    does not say yet. replayed_ack_bytes: of the entries of the ack log behind that snapshot. ends: the last ledgers
    of both chains, as they were recovered. replayed_bytes: of the bodies of the replayed entries of the log.
    """

    state: DedupState
    cursor: CursorRecord
    cursor_version: int
    loaded: LoadedSnapshot | None
    replayed_entries: int
    given_up: tuple[GivenUp, ...] = ()
    subscriptions: SubscriptionsState = field(default_factory=SubscriptionsState)
    replayed_ack_bytes: int = 0
    acks_given_up: tuple[GivenUp, ...] = ()
    ends: tuple[LedgerMetadata, ...] = ()
    replayed_bytes: int = 0
