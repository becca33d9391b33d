"""What a rebuild knows beside inventories, and what it gives: records, and a list of what an operator must decide.

    join(inventories, noted, copied, asked, era, pages, now_ms) -> Rebuilt        all topics
    join_topic(evidence, topic_id, era, pages, now_ms) -> RebuiltTopic            one of them

Nothing here is written as long as `reviews` is not empty and not accepted. The records are those that an acceptance
would write: where a chain has a gap, they list both sides.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.formats.ledger_page import ListPage
from oncelog.core.formats.topic_record import CursorRecord, GivenUpBehind, TopicRecord
from oncelog.core.ids import EntryId, Incarnation, LedgerId, TopicId
from oncelog.core.ledger.metadata import LedgerMetadata


class NotedName(NamedTuple):
    """What a name points to. partitioned: a topic without ledgers, of which each partition is a topic of its own.
    deleted: a tombstone, until the last partition is deleted."""

    topic_id: TopicId
    partitioned: bool = False
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class NotedRecords:
    """The newest of each path in notes and copies, as far as it concerns topics. All other noted records need no
    rebuild.

    names: {full name of a topic: what it points to}, without those whose newest note is a deletion. tombstones: topics
    whose deletion any note names, also where the note says that the tombstone itself is no more.
    """

    names: Mapping[str, NotedName] = field(default_factory=dict)
    tombstones: frozenset[TopicId] = frozenset()


@dataclass(frozen=True, slots=True)
class CopiedRecords:
    """The records of topics in copies. Absent ones mean nothing: a copy is a walk, and may have missed them. But a
    topic that is absent, and that no note names, has no ledger below complete_below: the era that begins there did not
    have it. 0: of that nothing is known."""

    topics: Mapping[TopicId, TopicRecord] = field(default_factory=dict)
    cursors: Mapping[TopicId, CursorRecord] = field(default_factory=dict)
    ledgers: Mapping[LedgerId, LedgerMetadata] = field(default_factory=dict)
    pages: Mapping[TopicId, Sequence[ListPage]] = field(default_factory=dict)
    complete_below: LedgerId = LedgerId(0)


@dataclass(frozen=True, slots=True)
class Asked:
    """absent: nodes that ever joined, are not removed, and gave no inventory. ack_quorum: the lowest of any ledger that
    was ever written, 0 if not known: fewer missing nodes have no acknowledged entry for themselves. given_up_by: the
    operator who has named `given_up`, nodes that never return; empty: nobody. Then a last ledger of which too few
    members are left is ended without these, and what only they had is lost. owed_below: the first ledger id of the
    newest era whose restore was beyond the bound, 0: none was. Owners that have not taken a topic over since still owe
    it GivenUp, and the absent nodes of that restore are not counted any more. emptied: nodes that count no more,
    because they were removed, or retired and emptied."""

    absent: tuple[Incarnation, ...]
    ack_quorum: int
    given_up_by: str = ""
    given_up: tuple[Incarnation, ...] = ()
    owed_below: LedgerId = LedgerId(0)
    emptied: frozenset[Incarnation] = frozenset()

    @property
    def may_return(self) -> list[Incarnation]:
        """The absent nodes that nobody has given up."""
        return [node for node in self.absent if node not in self.given_up]


class ReviewReason(Enum):
    """Why an operator must decide."""

    GAP = "a ledger of the chain is missing"
    NO_HEAD = "a ledger has no head, and no copy of the records lists it"
    ENDS_DIFFER = "two sources give a ledger different ends"
    NO_END = "no source tells where a ledger ends"
    NAME_TAKEN = "two topics have the same name"
    NO_SNAPSHOT = "the front of the log was deleted, and no snapshot is left"
    DAMAGED = "a record was damaged, and no source that can be read has its newest state"
    TOO_FEW_MEMBERS = "too few members of the last ledger can answer"


class Side(NamedTuple):
    """One side of a gap: its first and last ledger, how many ledgers, and the bytes that nodes hold of them."""

    first: LedgerId
    last: LedgerId
    ledgers: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Review:
    """message: what was found, and what the records say if an operator accepts it. before, behind: the sides of a
    gap. purpose: of the chain; None: of the topic as a whole."""

    topic_id: TopicId
    name: str
    reason: ReviewReason
    message: str
    purpose: LedgerPurpose | None = None
    before: Side | None = None
    behind: Side | None = None


class WantedLength(NamedTuple):
    """The length of a closed ledger is in the header of its entry `end`, which one of these nodes gives."""

    ledger_id: LedgerId
    end: EntryId
    holders: tuple[Incarnation, ...]


@dataclass(frozen=True, slots=True)
class RebuiltTopic:
    """The records of one topic, without an owner. cursor: None if the topic has no ledger. wanted: ledgers whose length
    no inventory tells; they have length 0 here. without_holder: entries that no asked node gives. passed_over: ledgers
    with nothing but a head, or with what was never acknowledged: the head of the next one says so.
    """

    record: TopicRecord
    cursor: CursorRecord | None = None
    ledgers: tuple[LedgerMetadata, ...] = ()
    pages: tuple[ListPage, ...] = ()
    reviews: tuple[Review, ...] = ()
    given_up: GivenUpBehind | None = None
    wanted: tuple[WantedLength, ...] = ()
    without_holder: int = 0
    passed_over: tuple[LedgerId, ...] = ()

    @property
    def last_ledger(self) -> LedgerId:
        """The newest of all chains; 0: there is none."""
        return max((each.ledger_id for each in self.ledgers), default=LedgerId(0))


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """topics: without deleted ones. names: of all topics with ledgers, or noted, but not of partitioned topics and of
    tombstones: notes have these, complete. next_id: of ledgers and of producers. deleted: how many topics have a
    tombstone, and ledgers still. beyond_bound: so many nodes are missing that any topic may have lost something."""

    topics: Mapping[TopicId, RebuiltTopic]
    names: Mapping[str, TopicId]
    reviews: tuple[Review, ...]
    next_id: int
    deleted: int = 0
    beyond_bound: bool = False

    @property
    def ledgers(self) -> int:
        return sum(len(topic.ledgers) for topic in self.topics.values())

    @property
    def given_up(self) -> dict[TopicId, GivenUpBehind]:
        return {each: topic.given_up for each, topic in self.topics.items() if topic.given_up is not None}
