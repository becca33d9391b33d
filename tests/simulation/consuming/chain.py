"""What is durable: the messages, the ack log, and the record that orders owners. Faults lose none of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from oncelog.core.acks.changes import (
    Acked,
    AckedBelow,
    Change,
    DeadLettered,
    Evicted,
    Redelivered,
    SubscriptionCreated,
)
from oncelog.core.delivery.events import StoredEntry
from oncelog.core.formats.columns import encode_keys, encode_values
from oncelog.core.formats.entry import EntryKind
from oncelog.core.ids import OwnerEpoch, TopicId
from oncelog.verify.violation import Violation
from tests.core.builders import LogOf, batch
from tests.oracles.ack_model import AckModel
from tests.oracles.consumption import ConsumptionHistory, Place

KEYS = (b"a", b"b", b"c", b"d")


class MessageLog:
    """Entries of messages, each with a key."""

    def __init__(self) -> None:
        self.entries: list[StoredEntry] = []
        self.keys: list[bytes] = []
        self.first_index = 0
        self._log = LogOf()

    @property
    def next_index(self) -> int:
        return len(self.keys)

    def store(self, keys: Sequence[bytes]) -> None:
        first, payload = self.next_index, encode_values([b"v"] * len(keys)) + encode_keys(list(keys))
        header = self._log.add(
            EntryKind.MESSAGES, batch(range(first + 1, first + 1 + len(keys)), payload=payload), count=len(keys)
        )
        self.entries.append(StoredEntry(header.position, first, len(keys), 0, self._log.entries[-1][1]))
        self.keys += keys

    def read(self, first_index: int, count: int) -> tuple[StoredEntry, ...]:
        """Consecutive entries, from the one that holds first_index on."""
        found = (e for e in self.entries if e.base_index + e.count > max(first_index, self.first_index))
        return tuple(entry for entry, _ in zip(found, range(count), strict=False))


class ModelAckLog:
    """The entries of the ack log, and the epoch of the owner that may add to it."""

    def __init__(self, log: MessageLog, history: ConsumptionHistory, moment: Callable[[], int]) -> None:
        self.log = log
        self.history = history
        self._moment = moment
        self.entries: list[tuple[Change, ...]] = []
        #: checks what is evicted: (change, what was acknowledged before)
        self.check_change: Callable[[Change, set[int]], None] = lambda *_: None
        #: {subscription: max_deliveries of its consumers}
        self.max_deliveries: dict[str, int] = {}
        self.epoch = OwnerEpoch(0)
        self.model = AckModel()
        #: {number: every subscription that ever was}
        self.created: dict[int, SubscriptionCreated] = {}

    def fence(self, epoch: OwnerEpoch) -> None:
        """Owners of lower epochs add nothing from now on."""
        self.epoch = max(self.epoch, epoch)

    def add(self, epoch: OwnerEpoch, changes: tuple[Change, ...]) -> bool:
        """Returns whether the entry was added."""
        if epoch < self.epoch:
            return False
        self.entries.append(changes)
        for change in changes:
            self._add(change, epoch)
        self.check_kept()
        return True

    def _add(self, change: Change, epoch: OwnerEpoch) -> None:
        known = self.model.subscriptions.get(change.number)
        before = set() if known is None else set(known.acked)
        self.model.apply(change)
        self.check_change(change, before)
        match change:
            case SubscriptionCreated():
                if change.number in self.created:
                    raise Violation("subscription numbers", f"{change.number} is given twice")
                self.created[change.number] = change
            case Redelivered() if known is not None and change.seek_epoch == known.seek_epoch:
                for index, deliveries, _ in change.messages:
                    self.history.counted(self.place(change.number), index, deliveries, self._moment(), epoch)
            case Acked() | AckedBelow() if known is not None:
                self.history.recorded(self.place(change.number), known.acked - before)
            case Evicted() if known is not None:
                self.history.evicted(self.place(change.number), known.acked - before)
            case DeadLettered() if known is not None:
                if known.dead_letters.get(change.index) is None:
                    raise Violation("dead letters", f"{change} has the number of another message")
                self.history.dead_letter(self.place(change.number), change.index, self.max_deliveries[known.name])

    def lost(self, number: int) -> None:
        """The stream of a consumer of this subscription broke."""
        if number in self.model.subscriptions:
            self.history.lost(self.place(number))

    def place(self, number: int) -> Place:
        return Place(self.created[number].subscription_id, self.model.subscriptions[number].seek_epoch)

    def lacks(self) -> dict[str, list[int]]:
        """{subscription: the messages that are not acknowledged}"""
        end = self.log.next_index
        return {s.name: [i for i in range(end) if i not in s.acked] for s in self.model.subscriptions.values()}

    def check_kept(self) -> None:
        """Nothing that a subscription has not acknowledged is trimmed (hazards failed-ack-write and
        seek-below-a-trim)."""
        for name, lacks in self.lacks().items():
            if lacks and lacks[0] < self.log.first_index:
                raise Violation("trim", f"{name!r} lacks {lacks[0]}, and the log begins at {self.log.first_index}")


@dataclass
class TopicRecord:
    """Who owns the topic."""

    owner: str = ""
    epoch: OwnerEpoch = OwnerEpoch(0)
    #: former owners, for stale routes
    former: list[tuple[str, OwnerEpoch]] = field(default_factory=list)


class DeadLetterTopic:
    """Stores each (subscription, sequence) once; a later one of the same number is a duplicate."""

    def __init__(self, topic_id: TopicId) -> None:
        self.topic_id = topic_id
        #: {subscription id: the index of each sequence}
        self.stored: dict[str, list[int]] = {}

    def publish(self, subscription_id: str, topic_id: TopicId, sequence: int, index: int) -> None:
        stored = self.stored.setdefault(subscription_id, [])
        if topic_id != self.topic_id or sequence > len(stored):
            raise Violation("dead letters", f"sequence {sequence} of {index} leaves a gap behind {len(stored)}")
        if sequence < len(stored) and stored[sequence] != index:
            raise Violation("dead letters", f"{index} is number {sequence}, which {stored[sequence]} has")
        if sequence == len(stored):
            stored.append(index)
