"""The oracle of ack logs: every takeover has the fold of the whole chain, and what was settled is in it, in order.

The entries of a ledger are kept when its record becomes CLOSED, because it may be trimmed later. Source of the rules:
hazards failed-ack-write and deposed-owner-acks.
"""

from copy import deepcopy

from oncelog.core.acks.ack_format import decode_changes
from oncelog.core.acks.ack_state import SubscriptionsState
from oncelog.core.acks.changes import Change
from oncelog.core.formats.entry import EntryKind, body_of, peek_header
from oncelog.core.formats.head import decode_head
from oncelog.core.formats.topic_record import TopicRecord
from oncelog.core.ids import LedgerId
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.topic.serving import Serving
from oncelog.verify.violation import Violation
from tests.oracles.ack_model import AckModel
from tests.oracles.fold import check_former
from tests.simulation.clients.ack_workload import AckHistory

#: The model and the owner are compared for these messages; the workload acknowledges among them.
INDEXES = range(0, 2100, 3)
Closed = dict[LedgerId, tuple[LedgerMetadata, list[bytes]]]


class AckLogWatch:
    """The ack log of one topic, as its record lists it."""

    def __init__(self) -> None:
        #: every ledger that was ever in the list, in order; those of them that left it; those that are folded
        self.ledgers: list[LedgerId] = []
        self.trimmed: dict[LedgerId, None] = {}
        #: those that a restore has listed although they were trimmed
        self.listed_again: dict[LedgerId, None] = {}
        self._folded = 0
        self.fold = SubscriptionsState()
        self._model = AckModel()
        #: ledgers that a restore has opened again, and the changes in them: the owner that said of one of these that it
        #: was not written, and to send it again, has written nothing since
        self.reopened: dict[LedgerId, None] = {}
        self._found: list[Change] = []
        #: the changes of the folded ledgers, in order
        self.changes: list[Change] = []

    def record_changed(self, before: TopicRecord, record: TopicRecord, closed: Closed) -> None:
        if record.acks_deleted_below < before.acks_deleted_below or record.format < before.format:
            raise Violation("floors", f"the record went from {before} to {record}")
        if record.acks and record.format < 2:
            raise Violation("formats", f"the record lists an ack log and has format {record.format}")
        for ledger_id in record.acks:
            if not self.ledgers or ledger_id > self.ledgers[-1]:
                if self.ledgers and self.ledgers[-1] not in closed:
                    raise Violation("chaining", f"ack ledger {ledger_id} opens and {self.ledgers[-1]} is not CLOSED")
                self.ledgers.append(ledger_id)
        for ledger_id in self.ledgers:
            if ledger_id not in record.acks and ledger_id not in self.trimmed:
                if ledger_id >= record.acks_deleted_below and closed[ledger_id][0].end >= 0:
                    raise Violation("chaining", f"ack ledger {ledger_id} left the list above its floor")
                self.trimmed[ledger_id] = None
        kept = [ledger_id for ledger_id in self.ledgers if ledger_id not in self.trimmed]
        if list(record.acks) != kept:
            raise Violation("chaining", f"the record lists the ack ledgers {record.acks}, it should list {kept}")

    def compare(self, listed: tuple[LedgerId, ...], serving: Serving, closed: Closed) -> None:
        """A takeover has ended, by an owner whose record listed these ledgers."""
        last = listed[-1] if listed else LedgerId(-1)
        self._fold_closed(last, closed)
        if self.fold.position.ledger_id > last:
            return  # a deposed owner that does not know it; another has gone on since
        mine, whole, model = serving.acks.state, self.fold, self._model
        if serving.acks.given_up:  # the chain says it next
            whole, model = deepcopy((whole, model))
            whole.gave_up()
            model.gave_up()
        model.compare(mine, INDEXES)
        if (mine.position, mine.next_number, mine.subscriptions) != (
            whole.position, whole.next_number, whole.subscriptions
        ):  # fmt: skip
            raise Violation("fold of the acks", f"{mine.position} was taken over, {whole.position} is durable")

    def folded(self, closed: Closed) -> SubscriptionsState:
        """The fold of the whole chain, when every ledger is CLOSED."""
        self._fold_closed(LedgerId(1 << 62), closed)
        return self.fold

    def check(self, history: AckHistory, closed: Closed) -> None:
        """At the end, when every ledger is CLOSED. Raises Violation."""
        self._fold_closed(LedgerId(1 << 62), closed)
        at = {(type(change), change): number for number, change in enumerate(self.changes)}
        if len(at) != len(self.changes):
            raise Violation("acks once", "the ack log holds a change twice")
        for change in (change for life in history.settled for change in life):
            if (type(change), change) not in at:
                raise Violation("acks durable", f"{change} was settled, and the ack log lacks it")
        for change in history.dropped:
            if (type(change), change) in at and change not in self._found:
                raise Violation("acks dropped", f"{change} was dropped, and is in the ack log")
        orders = [[at[type(change), change] for change in life] for life in history.settled]
        if any(order != sorted(order) for order in orders):
            raise Violation("order of acks", "changes were settled in another order than the chain holds them")

    def _fold_closed(self, last: LedgerId, closed: Closed) -> None:
        while self._folded < len(self.ledgers) and self.ledgers[self._folded] <= last:
            ledger_id = self.ledgers[self._folded]
            if ledger_id not in closed:
                raise Violation("closed ledgers", f"ack ledger {ledger_id} was taken over and is not CLOSED")
            for data in closed[ledger_id][1]:
                header = peek_header(data)
                if header.kind == EntryKind.HEAD_ACKS:
                    check_former(decode_head(body_of(data)), header, self.fold.position)
                    continue
                if header.kind == EntryKind.GIVEN_UP:
                    self.fold.fold(header, body_of(data))
                    self._model.gave_up()
                    continue
                if header.kind != EntryKind.ACK_STATE:
                    raise Violation("ack log", f"entry {header.position} is of kind {header.kind}")
                self.fold.fold(header, body_of(data))
                for change in decode_changes(body_of(data)):
                    self.changes.append(change)
                    if ledger_id in self.reopened:
                        self._found.append(change)
                    self._model.apply(change)
            self._folded += 1
