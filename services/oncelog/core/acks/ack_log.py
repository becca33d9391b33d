"""A topic's ack log at its owner: appends the changes of subscriptions, and folds them in when they are durable.

    IDLE     no ledger is open --append | open--> OPENING
    OPENING  the next ledger is prepared and linked into the topic record --linked--> READY
    READY    nothing is in flight --end of a step in which changes wait--> WRITING
    WRITING  one entry is in flight, and changes that arrive meanwhile wait
             --durable--> the entry is folded, its tokens are `settled`; READY, or WRITING with the next entry
    READY | WRITING --roll--> OPENING, once the entry in flight is durable and the ledger is closed
    READY | WRITING --ack quorum out of reach, the ledger is closed--> everything in flight and waiting is `dropped`;
                                                                       OPENING
    any      --finish--> no further change is taken; when nothing is in flight or waits, the ledger is closed, and
             `finished` is called
    any      --another owner may have the topic--> nothing is settled any more; the topic reads its record

Rules
- Group commit: one entry is in flight at a time, of all subscriptions of the topic. An entry takes effect as a whole
  (hazard oversized-ack-entry) and has at most ACK_ENTRY_BYTES_MAX bytes; a larger change is split by its ranges, and
  its token is settled with the last part. The order of the changes is kept.
- There are two layers, as for deduplication (hazard failed-ack-write). `state` is the durable fold. What is in flight
  or waits is the other layer. When a ledger fails, that layer is dropped as a whole: the ledger was closed before its
  entry, so no part of it is in the chain. A change may depend on the changes before it, so those that wait are dropped,
  too.
- A failed ledger of the ack log ends no producer's session, and publishing never waits for the ack log (hazard
  deposed-owner-acks).
- What an operator has given up of the chain is said before anything else is appended. The takeover has applied it to
  the state already, so the entry only moves the position; until it is durable no snapshot is taken (hazard
  index-given-twice).
- The chain begins with the first change. From then on each owner opens a ledger when it begins to serve.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from oncelog.core.acks.ack_format import ACK_CHANGE_BYTES_MAX, encode_changes, split_change
from oncelog.core.acks.ack_state import SubscriptionsState
from oncelog.core.acks.changes import Change
from oncelog.core.chain.managed_ledger import LedgerStep, ManagedLedger, ManagedLedgerState
from oncelog.core.chain.next_ledger import NextLedger
from oncelog.core.errors import InvariantViolated
from oncelog.core.formats.entry import EntryHeader, EntryKind, GivenUp, encode_given_up
from oncelog.core.formats.head import LedgerHead
from oncelog.core.ids import EntryId, LedgerId, Position
from oncelog.core.ledger.metadata import LedgerMetadata

#: The chain cannot be written when nothing has become durable for so many ticks; a roll takes less.
STUCK_TICKS = 8
#: Acknowledgements are refused above so many bytes of changes that are not durable: a chain that cannot be written must
#: not fill the owner's memory. Far above what a writable chain lets wait.
WAITING_BYTES_MAX = 16 * 1024 * 1024
#: Identifies a change for the caller that appended it.
Token = object


class AckLogUser(Protocol):
    """The part of the topic that appends changes."""

    def settled(self, tokens: list[Token]) -> None:
        """These changes are durable and folded, in this order."""

    def dropped(self, tokens: list[Token]) -> None:
        """These changes are not in the chain, and neither is any change appended after them so far."""


class _Waiting(NamedTuple):
    """One part of a change. tokens: of the change, with its last part; otherwise empty."""

    encoded: bytes
    tokens: list[Token]


@dataclass(slots=True)
class _InFlight:
    """The entry handed to the ledger."""

    header: EntryHeader
    body: bytes
    tokens: list[Token] = field(default_factory=list)


class AckLog:
    """Appends to the managed ledger of the ack log, and keeps what is in flight."""

    def __init__(
        self,
        step: LedgerStep,
        next_ledger: NextLedger,
        state: SubscriptionsState,
        *,
        link: Callable[[LedgerId], None],
        suspect: Callable[[], None],
        finished: Callable[[], None],
        given_up: tuple[GivenUp, ...] = (),
        head: Callable[[LedgerMetadata], LedgerHead | None] = lambda _metadata: None,
    ) -> None:
        """link: writes a ledger into the topic record; then `linked` is called. suspect: another owner may have the
        topic. finished: called when nothing more will be written. given_up: what the chain must say, and `state` has
        applied. head: of the open ledger."""
        self.ledgers = ManagedLedger(next_ledger, self, step)
        #: the durable fold
        self.state = state
        self.user: AckLogUser | None = None
        #: bytes of entries folded since the newest snapshot
        self.bytes_since = 0
        self._link = link
        self.head = head
        self._suspect = suspect
        self._finished = finished
        self.given_up = given_up
        self._in_flight: _InFlight | None = None
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        #: tokens of changes that were appended after `finish`
        self._refused: list[Token] = []
        self._finishing = False
        self._ended = False
        #: whether changes become durable now (hazard dispatch-paused-for-ever)
        self.writable = True
        #: ticks in a row at which nothing had become durable, and the entry in flight at the last one
        self._stuck_ticks = 0
        self._seen: _InFlight | None = None

    # --- appending ----------------------------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether everything that was appended is settled or dropped."""
        return self._in_flight is None and not self._waiting

    @property
    def at_rest(self) -> bool:
        """Whether nothing is to be written, and could be."""
        return self.idle and self.writable and not self.given_up and (self.ledgers.open or not self.state.ever_used)

    @property
    def has_room(self) -> bool:
        """Whether more acknowledgements may wait. Other changes are few and are always taken."""
        return self._waiting_bytes < WAITING_BYTES_MAX

    def append(self, change: Change, token: Token) -> None:
        """Write a change. The token comes back by `settled` or `dropped`, never within this call."""
        if self._finishing:
            self._refused.append(token)
            return
        parts = [_Waiting(encoded, []) for encoded in split_change(change)]
        parts[-1].tokens.append(token)
        self._waiting += parts
        self._waiting_bytes += sum(len(part.encoded) for part in parts)
        self.open()

    def open(self) -> None:
        """Open a ledger, unless one is open or being opened."""
        if self.ledgers.state is ManagedLedgerState.IDLE and not self._ended:
            self.ledgers.open_next()

    @property
    def due(self) -> bool:
        """Whether `flush` has something to do."""
        return bool(self._refused) or self._may_write

    @property
    def _may_write(self) -> bool:
        waiting = bool(self._waiting or self.given_up) and self._in_flight is None
        return waiting and self.ledgers.open

    def flush(self) -> None:
        """At the end of a step: write the changes that wait, unless an entry is in flight."""
        if self._refused:
            refused, self._refused = self._refused, []
            self._tell_dropped(refused)
        if self._may_write:
            self._write()

    def _write(self) -> None:
        if self.given_up:
            self._send(EntryKind.GIVEN_UP, encode_given_up(self.given_up[0]), [])
            return
        parts = [self._waiting.popleft()]
        size = len(parts[0].encoded)
        while self._waiting and size + len(self._waiting[0].encoded) <= ACK_CHANGE_BYTES_MAX:
            parts.append(self._waiting.popleft())
            size += len(parts[-1].encoded)
        self._waiting_bytes -= size
        body = encode_changes([part.encoded for part in parts])
        self._send(EntryKind.ACK_STATE, body, [token for part in parts for token in part.tokens])

    def _send(self, kind: EntryKind, body: bytes, tokens: list[Token]) -> None:
        self._in_flight = _InFlight(self.ledgers.append(kind, body), body, tokens)
        self.ledgers.flush()

    # --- the managed ledger (LedgerUser) ------------------------------------------------------------------------------

    def link_ledger(self, ledger_id: LedgerId) -> None:
        """The next ledger of the chain exists: write it into the topic record."""
        self._link(ledger_id)

    def linked(self) -> None:
        """The topic record names the next ledger."""
        self.ledgers.linked()
        self._end_if_idle()

    def confirmed(self, ledger_id: LedgerId, last_add_confirmed: EntryId) -> None:
        """The entry in flight is durable: fold it in, and settle its changes."""
        entry = self._in_flight
        if entry is None or entry.header.position > Position(ledger_id, last_add_confirmed):
            return
        self._in_flight = None
        if entry.header.kind == EntryKind.GIVEN_UP:
            self.state.pass_over(entry.header.position)
            self.given_up = self.given_up[1:]
        else:
            self.state.fold(entry.header, entry.body)
        self.bytes_since += len(entry.body)
        if entry.tokens and self.user is not None:
            self.user.settled(entry.tokens)
        self._end_if_idle()

    def ledger_closed(self, *, failed: bool) -> None:
        """The ledger is CLOSED: open the next one, unless it was the last."""
        if failed:
            self.drop()
        if self._finishing and self.idle:
            self._end()
        else:
            self.open()  # unless what was dropped was written again at once, which opens a ledger

    def ledger_lost(self) -> None:
        self._suspect()

    def drop(self) -> None:
        """Drop the layer of changes that are not durable. What waits may depend on what was in flight."""
        tokens = [] if self._in_flight is None else self._in_flight.tokens
        tokens = [*tokens, *(token for part in self._waiting for token in part.tokens), *self._refused]
        self._in_flight = None
        self._waiting.clear()
        self._waiting_bytes = 0
        self._refused.clear()
        self._tell_dropped(tokens)

    def _tell_dropped(self, tokens: list[Token]) -> None:
        if tokens and self.user is not None:
            self.user.dropped(tokens)

    # --- time ---------------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Time has passed: see whether changes become durable, and roll."""
        begun = self.state.ever_used or not self.idle
        stuck = begun and (not self.ledgers.open or (self._in_flight is not None and self._in_flight is self._seen))
        self._seen = self._in_flight
        self._stuck_ticks = self._stuck_ticks + 1 if stuck else 0
        self.writable = self._stuck_ticks < STUCK_TICKS
        if not self._finishing:
            self.ledgers.roll_if_due()

    # --- the end ------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Take no further change. When everything is durable, close the ledger and call `finished`.

        Changes that wait for a ledger which is not listed yet are dropped: a hand-over does not wait for storage nodes.
        """
        self._finishing = True
        if self.ledgers.state is ManagedLedgerState.OPENING:
            self.ledgers.next.drop()
            self.drop()
            self._end()
        else:
            self._end_if_idle()

    def _end_if_idle(self) -> None:
        if not self._finishing or not self.idle:
            return
        if self.ledgers.open:
            self.ledgers.finish()
        elif self.ledgers.state is ManagedLedgerState.IDLE:
            self._end()

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self._finished()

    def check_invariants(self) -> None:
        """After each step."""
        self.ledgers.check_invariants()
        if self.due and not self._ended:
            raise InvariantViolated("changes of subscriptions wait beside an open ledger of the ack log")
        if self._waiting_bytes != sum(len(part.encoded) for part in self._waiting):
            raise InvariantViolated(f"{self._waiting_bytes} bytes of changes are counted as waiting")
        if self._in_flight is not None and self._in_flight.header.position <= self.state.position:
            raise InvariantViolated(f"entry {self._in_flight.header.position} of the ack log is folded already")
