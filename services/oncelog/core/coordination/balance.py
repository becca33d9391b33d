"""Which topics move so that owners carry alike: after one joined, or came back after its topics went to others.

    OwnersCounted --even, or changed of late--> nothing        --uneven for a while--> ReadTopics
    TopicsRead --> MoveTopic, a few; each is a clean hand-over by its present owner

Rules
- Rendezvous hashing says where a topic belongs among the owners; only topics that are elsewhere move, and only there.
- A topic moves only from an owner to one that has at least two fewer: each move makes the counts more even, so moves
  come to an end and none is ever undone by another.
- Nothing moves before the owners have been the same for `settle_ms`, nor a topic that changed its owner within
  `rest_ms`: a restart, a drain and an operator's unload are left in peace.
- It needs one replica alone to run it, and no safety rests on that: two of them would move topics twice as fast.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from oncelog.core.coordination.placement import pick_owner
from oncelog.core.ids import Incarnation, OwnerEpoch, TopicId

#: At a time: as many as this, or one of so many if that is more.
MOVES_MIN = 2
MOVES_OF_ALL = 50
#: Owners with fewer topics between them than this are even.
UNEVEN = 2
#: Counts for which no move was found are looked at again after so many times `settle_ms`.
LOOK_AGAIN_SETTLES = 12

# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OwnersCounted:
    """{owner that takes topics: topics that it holds, by its own word}."""

    counts: Mapping[Incarnation, int]
    now_ms: int


@dataclass(frozen=True, slots=True)
class TopicsRead:
    """The answer to ReadTopics: {topic: owner and epoch by its record}."""

    topics: Mapping[TopicId, tuple[Incarnation, OwnerEpoch]]
    now_ms: int


BalanceEvent = OwnersCounted | TopicsRead

# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadTopics:
    """Read all topic records."""


@dataclass(frozen=True, slots=True)
class MoveTopic:
    """Have `owner` close the topic, and place it on another."""

    topic_id: TopicId
    owner: Incarnation


BalanceEffect = ReadTopics | MoveTopic

# --- the machine ------------------------------------------------------------------------------------------------------


class Balance:
    """One replica's view, from when it was elected."""

    def __init__(self, *, settle_ms: int, rest_ms: int) -> None:
        self._settle_ms = settle_ms
        self._rest_ms = rest_ms
        self._owners: tuple[Incarnation, ...] = ()
        self._same_since_ms = 0
        #: {topic: (epoch, when another was seen, None for the first)}
        self._seen: dict[TopicId, tuple[OwnerEpoch, int | None]] = {}
        #: the counts for which no move was found, and when
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
        """Note which topics changed their owner since the last look; those that are gone are forgotten."""
        seen: dict[TopicId, tuple[OwnerEpoch, int | None]] = {}
        for topic_id, (_, epoch) in event.topics.items():
            known = self._seen.get(topic_id)
            changed = known is not None and known[0] != epoch
            seen[topic_id] = (epoch, event.now_ms if changed else known[1] if known else None)
        self._seen = seen

    def _rests(self, topic_id: TopicId, now_ms: int) -> bool:
        changed_ms = self._seen[topic_id][1]
        return changed_ms is not None and now_ms - changed_ms < self._rest_ms
