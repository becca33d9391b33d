"""Rebalancing: which topics move after an owner joined or came back, so that owners have similar numbers of topics.

    OwnersCounted --balanced, or changed recently--> nothing     --unbalanced for some time--> ReadTopics
    TopicsRead --> MoveTopic for a few topics; each move is a clean hand-over by the current owner

Rules
- Rendezvous hashing assigns each topic to one of the owners. Only topics on another owner move, and only to that one.
- A topic moves only to an owner with at least two topics fewer. Each move makes the counts more even, so rebalancing
  terminates, and no move undoes another.
- Nothing moves until the set of owners has been the same for `settle_ms`. A topic whose owner changed within `rest_ms`
  does not move. So a restart, a drain and an operator's unload cause no rebalancing.
- One replica should run it. Safety does not depend on that: two replicas would move topics twice as fast.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from oncelog.core.ids import Incarnation, OwnerEpoch, TopicId
from oncelog.core.placement.topic_placement import pick_owner

#: Moves at a time: this many, or one of so many topics if that is more.
MOVES_MIN = 2
MOVES_OF_ALL = 50
#: Owners whose counts differ by less than this are balanced.
UNEVEN = 2
#: Counts for which no move was found are examined again after this many times `settle_ms`.
LOOK_AGAIN_SETTLES = 12

# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OwnersCounted:
    """{owner that takes topics: number of topics that it reports}."""

    counts: Mapping[Incarnation, int]
    now_ms: int


@dataclass(frozen=True, slots=True)
class TopicsRead:
    """The response to ReadTopics: {topic: owner and epoch in its record}."""

    topics: Mapping[TopicId, tuple[Incarnation, OwnerEpoch]]
    now_ms: int


BalanceEvent = OwnersCounted | TopicsRead

# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadTopics:
    """Read all topic records."""


@dataclass(frozen=True, slots=True)
class MoveTopic:
    """Let `owner` close the topic, and place it on another owner."""

    topic_id: TopicId
    owner: Incarnation


BalanceEffect = ReadTopics | MoveTopic

# --- the machine ------------------------------------------------------------------------------------------------------


class Balance:
    """The rebalancing of one replica, since it was elected."""

    def __init__(self, *, settle_ms: int, rest_ms: int) -> None:
        self._settle_ms = settle_ms
        self._rest_ms = rest_ms
        self._owners: tuple[Incarnation, ...] = ()
        self._same_since_ms = 0
        #: {topic: (epoch, when a change of the epoch was observed; None for the first observation)}
        self._seen: dict[TopicId, tuple[OwnerEpoch, int | None]] = {}
        #: the counts for which no move was found, and the time
        self._fruitless: tuple[dict[Incarnation, int], int] | None = None

    def handle(self, event: BalanceEvent) -> list[BalanceEffect]:
        match event:
            case OwnersCounted():
                return self._counted(event)
            case TopicsRead():
                return self._read(event)
            case _:
                assert_never(event)

    def _counted(self, event: OwnersCounted) -> list[BalanceEffect]:
        owners = tuple(sorted(event.counts))
        if owners != self._owners:
            self._owners, self._same_since_ms, self._fruitless = owners, event.now_ms, None
        if event.now_ms - self._same_since_ms < self._settle_ms:
            return []
        if not owners or max(event.counts.values()) - min(event.counts.values()) < UNEVEN:
            return []
        if self._fruitless is not None:
            counts, when_ms = self._fruitless
            if counts == event.counts and event.now_ms - when_ms < self._settle_ms * LOOK_AGAIN_SETTLES:
                return []
        self._fruitless = (dict(event.counts), event.now_ms)
        return [ReadTopics()]

    def _read(self, event: TopicsRead) -> list[BalanceEffect]:
        self._look(event)
        counts = Counter(owner for owner, _ in event.topics.values())
        moves: list[BalanceEffect] = []
        resting = False
        for topic_id, (owner, _) in sorted(event.topics.items(), key=lambda item: (-counts[item[1][0]], item[0])):
            home = pick_owner(topic_id, self._owners)
            if home is None or owner not in self._owners or counts[owner] - counts[home] < UNEVEN:
                continue
            if self._rests(topic_id, event.now_ms):
                resting = True
                continue
            counts[owner] -= 1
            counts[home] += 1
            moves.append(MoveTopic(topic_id, owner))
            if len(moves) >= max(MOVES_MIN, len(event.topics) // MOVES_OF_ALL):
                break
        if moves or resting:
            self._fruitless = None
        return moves

    def _look(self, event: TopicsRead) -> None:
        """Note which topics changed their owner since the last read. Forget the topics that are gone."""
        seen: dict[TopicId, tuple[OwnerEpoch, int | None]] = {}
        for topic_id, (_, epoch) in event.topics.items():
            known = self._seen.get(topic_id)
            changed = known is not None and known[0] != epoch
            seen[topic_id] = (epoch, event.now_ms if changed else known[1] if known else None)
        self._seen = seen

    def _rests(self, topic_id: TopicId, now_ms: int) -> bool:
        changed_ms = self._seen[topic_id][1]
        return changed_ms is not None and now_ms - changed_ms < self._rest_ms
