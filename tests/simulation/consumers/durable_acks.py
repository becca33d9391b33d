"""The oracle of what becomes durable of subscriptions: each change, as soon as an owner has folded it."""

from typing import TYPE_CHECKING

from oncelog.core.acks.ack_format import decode_changes
from oncelog.core.acks.changes import (
    Acked,
    AckedBelow,
    Change,
    DeadLettered,
    Evicted,
    EvictionReason,
    Redelivered,
    Sought,
    SubscriptionCreated,
)
from oncelog.core.formats.entry import EntryKind, body_of, peek_header
from oncelog.core.ids import OwnerEpoch, Position
from oncelog.core.policies.retention_rules import CLOCK_SKEW_MS_MAX
from oncelog.core.policies.topic_policies import TopicPolicies
from oncelog.verify.violation import Violation
from tests.oracles.ack_model import AckModel
from tests.oracles.consumption import ConsumptionHistory, Place
from tests.oracles.effects_fold import EffectsFold
from tests.simulation.consumers.messages import StoredMessages, sound_entries

if TYPE_CHECKING:
    from tests.simulation.servers.owners.owner_server import OwnerParts
    from tests.simulation.watches.watching import Closed, TopicWatch

#: A quota evicts down to 90 %, with the last message that goes; this much stays in any case.
QUOTA_PERCENT_LEFT = 60


class DurableAcks:
    """The ack log of one topic, in order. Raises Violation."""

    def __init__(
        self, parts: "OwnerParts", watch: "TopicWatch", closed: "Closed", log: StoredMessages,
        history: ConsumptionHistory, policies: TopicPolicies,
    ) -> None:  # fmt: skip
        self._parts = parts
        self._watch = watch
        self._closed = closed
        self._log = log
        self._history = history
        self._policies = policies
        #: {subscription: max_deliveries of its consumers}
        self.max_deliveries: dict[str, int] = {}
        self.model = AckModel()
        #: {subscription: what must have taken effect in its store}
        self.effects: dict[str, EffectsFold] = {}
        #: {number: every subscription that ever was}
        self._created: dict[int, SubscriptionCreated] = {}
        #: the ledger of the chain that is looked at, and its next entry
        self._at, self._next = 0, 0
        self._first_index = 0
        #: clocks differ: what is decided by them may be wrong by so much
        self._skew_ms = CLOCK_SKEW_MS_MAX if any(parts.skews.values()) else 0

    def durable(self, position: Position) -> None:
        """An owner has folded the ack log up to here."""
        ledgers = self._watch.acks.ledgers
        while self._at < len(ledgers) and ledgers[self._at] <= position.ledger_id:
            ledger_id = ledgers[self._at]
            if ledger_id < position.ledger_id:
                for data in self._closed[ledger_id][1][self._next :]:
                    self._fold(data)
                self._at, self._next = self._at + 1, 0
                continue
            if self._next <= position.entry_id:
                entries = sound_entries(self._parts, ledger_id, self._next, position.entry_id)
                for _, data in entries:
                    self._fold(data)
                self._next += len(entries)
                if self._next <= position.entry_id:
                    raise Violation("acks durable", f"entry {self._next} of {ledger_id} is folded, and nowhere durable")
            return

    def _fold(self, data: bytes) -> None:
        header = peek_header(data)
        if header.kind == EntryKind.ACK_STATE:
            for change in decode_changes(body_of(data)):
                self._add(change, header.owner_epoch)
            self.check_kept()

    def _add(self, change: Change, epoch: OwnerEpoch) -> None:
        known = self.model.subscriptions.get(change.number)
        before, epoch_before = (set(), -1) if known is None else (set(known.acked), known.seek_epoch)
        self.model.apply(change)
        self._expect(change, before, epoch_before)
        match change:
            case SubscriptionCreated():
                if change.number in self._created:
                    raise Violation("subscription numbers", f"{change.number} is given twice")
                self._created[change.number] = change
            case Redelivered() if known is not None and change.seek_epoch == known.seek_epoch:
                place, moment, limit = (
                    self.place(change.number),
                    self._parts.world.steps - 1,
                    self.max_deliveries[known.name],
                )
                for index, deliveries, _ in change.messages:
                    self._history.counted(place, index, deliveries, moment, epoch, max_deliveries=limit)
            case Acked() | AckedBelow() if known is not None:
                self._history.recorded(self.place(change.number), known.acked - before)
            case Evicted() if known is not None:
                self._check_evicted(change, known.acked - before)
                self._history.evicted(self.place(change.number), known.acked - before)
            case DeadLettered() if known is not None:
                if known.dead_letters.get(change.index) is None:
                    raise Violation("dead letters", f"{change} has the number of another message")
                self._history.dead_letter(self.place(change.number), change.index, self.max_deliveries[known.name])

    def _expect(self, change: Change, acked_before: set[int], epoch_before: int) -> None:
        """What the change means for the subscription's effects."""
        known = self.model.subscriptions.get(change.number)
        if known is None or known.name not in self.effects:
            return
        if not isinstance(change, Sought) or known.seek_epoch != epoch_before:
            self.effects[known.name].apply(change, known.acked, acked_before, self._log.next_index)

    def lost(self, number: int) -> None:
        """The stream of a consumer of this subscription broke."""
        if number in self.model.subscriptions:
            self._history.lost(self.place(number))

    def place(self, number: int) -> Place:
        return Place(self._created[number].subscription_id, self.model.subscriptions[number].seek_epoch)

    def lacks(self) -> dict[str, list[int]]:
        """{subscription: the messages that are not acknowledged}"""
        end = self._log.next_index
        return {s.name: [i for i in range(end) if i not in s.acked] for s in self.model.subscriptions.values()}

    # --- retention ----------------------------------------------------------------------------------------------------

    def record_changed(self) -> None:
        """The topic record has changed, and perhaps the log begins later."""
        before, self._first_index = self._first_index, self._log.first_index
        if self._first_index == before:
            return
        self._parts.world.count("trimmed")
        self.check_kept()
        time_ms = self._policies.retention.time_ms
        if time_ms is not None:
            self._parts.world.count("trimmed by retention")
            for index in range(before, self._first_index):
                age_ms = self._parts.true_ms - self._log.appended_ms[index]
                if age_ms < time_ms - self._skew_ms:
                    raise Violation("retention", f"message {index} is deleted at the age of {age_ms} ms")

    def check_kept(self) -> None:
        """Nothing that a subscription has not acknowledged is trimmed (hazards failed-ack-write and
        seek-below-a-trim)."""
        first_index = self._log.first_index
        for subscription in self.model.subscriptions.values():
            lacks = next((i for i in range(first_index) if i not in subscription.acked), None)
            if lacks is not None:
                raise Violation("trim", f"{subscription.name!r} lacks {lacks}, and the log begins at {first_index}")

    def _check_evicted(self, change: Evicted, indexes: set[int]) -> None:
        """What is evicted is old enough, or leaves the quota's part. Ages are from the append time, which the clock of
        the former owner gave, to the true time."""
        if not indexes:
            return
        youngest, quota = max(indexes), self._policies.quota
        if change.reason is EvictionReason.TTL:
            age_ms = self._parts.true_ms - self._log.appended_ms[youngest]
            if age_ms < (self._policies.ttl_ms or 0) - self._skew_ms:
                raise Violation("time to live", f"message {youngest} expires at the age of {age_ms} ms")
        elif quota is not None and quota.bytes_max is not None:
            bytes_from = self._log.bytes_from(youngest)
            if bytes_from < quota.bytes_max * QUOTA_PERCENT_LEFT // 100:
                raise Violation("backlog quota", f"message {youngest} is evicted, and {bytes_from} bytes follow")
