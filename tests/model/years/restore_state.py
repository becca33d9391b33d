"""The state of the model of restores: storage nodes with eras, the owner whose ZooKeeper is lost, and restores that
run beside each other, each into a ZooKeeper of its own.

    ledger 1: one message, m. Its owner may give the ledger up, which ends it before m, and write ledger 2 with a head
    that says so, and m again. After a commit the owner of the new era writes one message of its own.

What a state leaves out
- The records in ZooKeeper. A restore either knows of a copy of a message or does not.
- Steps of a restore between which nobody else's step matters: its claim follows the survey at once, for no other
  restore shares its ZooKeeper; joining, writing and committing follow each other at once, for nodes that count are
  raised by then.
- Messages. An add is stored and answered in one step, at any later time or never.
"""

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from oncelog.core.era import Era
from oncelog.core.ids import Incarnation
from oncelog.core.node.era import StoredEra
from oncelog.core.rebuild.restore_events import (
    Claimed,
    ClaimEra,
    ClusterSeen,
    Collect,
    Collected,
    CommitEra,
    EraCommitted,
    ErasRaised,
    JoinRecords,
    Knowledge,
    NodeSeen,
    RaiseEras,
    RecordsJoined,
    RecordsWritten,
    RestoreEffect,
    RestoreEnded,
    RestoreRequest,
    Survey,
    Surveyed,
    WriteRecords,
)
from oncelog.core.rebuild.restore_plan import Restore
from oncelog.core.records.status import WriteStatus
from tests.model.state import NOBODY

CLUSTER = "c" * 32
#: Entries, as bits of what a node holds.
FIRST_COPY, HEAD_AND_COPY = 1, 2
#: Restores that outbid each other go on for ever: no further era is explored.
ERA_MAX = 3


def own_entry(restorer: int) -> int:
    """The message of the owner of this restore's era."""
    return 4 << restorer


class Node(NamedTuple):
    """turned_back: its disk went back. knows_last: it has the note of the node that joined last."""

    era: StoredEra = StoredEra()
    holds: int = 0
    turned_back: bool = False
    knows_last: bool = True

    @property
    def limbo(self) -> bool:
        return self.turned_back or self.era.limbo_below > 0


class Answers(NamedTuple):
    """Which nodes have answered the add of an entry."""

    entry: int
    nodes: int = 0


#: An event of a restore as the model keeps it, without its mappings.
Seen = tuple[tuple[int, Era, bool], ...]


class SurveyEvent(NamedTuple):
    era: Era | None
    nodes: Seen
    known: tuple[int, ...]
    ack_quorum: int


class RaisedEvent(NamedTuple):
    eras: tuple[tuple[int, Era | None], ...]


class CollectedEvent(NamedTuple):
    nodes: Seen
    known: tuple[int, ...]
    ack_quorum: int


class CommitEvent(NamedTuple):
    pass


Event = SurveyEvent | RaisedEvent | CollectedEvent | CommitEvent


class Restorer(NamedTuple):
    """reach: bits of the nodes that it reaches. events: what its machine was told. raised: of the nodes of the newest
    effect. early: what the nodes held at the survey. found: what the collected nodes held. committed: its era."""

    reach: int = 0
    events: tuple[Event, ...] = ()
    raised: tuple[tuple[int, Era | None], ...] = ()
    early: int = 0
    found: int = 0
    committed: Era | None = None


class State(NamedTuple):
    """answers: of each entry that was sent. gave_up: the owner has ended ledger 1 before m, which it
    may do once. turned_back: disks that may still go back. last: the node that has just joined, or NOBODY."""

    nodes: tuple[Node, ...]
    restorers: tuple[Restorer, ...]
    quorum: int
    reaches: tuple[int, ...]
    answers: tuple[Answers, ...]
    may_give_up: bool
    turned_back: int
    last: int
    gave_up: bool = False

    def with_node(self, number: int, node: Node) -> "State":
        return self._replace(nodes=(*self.nodes[:number], node, *self.nodes[number + 1 :]))

    def with_restorer(self, number: int, restorer: Restorer) -> "State":
        return self._replace(restorers=(*self.restorers[:number], restorer, *self.restorers[number + 1 :]))

    @property
    def acked(self) -> tuple[int, ...]:
        """An answer to m that comes after its ledger was ended counts for nothing."""
        sent = (each for each in self.answers if each.entry != FIRST_COPY or not self.gave_up)
        return tuple(each.entry for each in sent if each.nodes.bit_count() >= self.quorum)


@dataclass(frozen=True)
class Rules:
    """A variant lacks some."""

    #: N counts what any note names, and otherwise who answers
    noted_nodes_count: bool = True
    #: Qa of the bound is the lowest that was ever written with
    lowest_quorum_bounds: bool = True
    #: an inventory is read behind the node's era, and otherwise before
    inventory_behind_era: bool = True
    #: the end of a ledger is in the head of the next one, and otherwise what recovery finds
    ends_by_next_head: bool = True
    #: a node takes one restore of an era
    ballots_differ: bool = True
    #: the last node takes data when Qa others have its note
    member_is_noted: bool = True
    #: notes are read again behind each node's era
    notes_read_again: bool = True
    #: a disk that went back is missing
    limbo_is_missing: bool = True
    #: nodes compare the era of each call
    calls_have_eras: bool = True


class Scenario(NamedTuple):
    """reaches: bits of the nodes that a restore may reach, one of these; empty: of any nodes. joins: the last node has
    just joined, and no other one has its note. turned_back: disks that may go back before a restore begins. writes: the
    owner of the first era is alive. gives_up: it may give up its ledger."""

    name: str
    nodes: int
    quorum: int
    restorers: int = 1
    reaches: tuple[int, ...] = ()
    joins: bool = False
    turned_back: int = 0
    writes: bool = True
    gives_up: bool = False

    @property
    def start(self) -> State:
        nodes = [Node(knows_last=not self.joins) for _ in range(self.nodes)]
        if self.joins:
            nodes[-1] = Node()
        return State(
            tuple(nodes), (Restorer(),) * self.restorers, self.quorum, self.reaches or tuple(range(1, 1 << self.nodes)),
            (Answers(FIRST_COPY),) * self.writes, self.gives_up, self.turned_back,
            self.nodes - 1 if self.joins else NOBODY,
        )  # fmt: skip


def name_of(number: int) -> Incarnation:
    return Incarnation("abcdef"[number] * 32)


NUMBERS = {name_of(number): number for number in range(6)}


@cache
def pending(restorer: int, events: tuple[Event, ...]) -> tuple[RestoreEffect, Era]:
    """What the product's restore wants next after these events, and its ballot."""
    machine = Restore(RestoreRequest(f"{restorer + 1:032x}"))
    [effect] = machine.begin()
    version = 0
    for event in events:
        match event:
            case SurveyEvent():
                tree = None if event.era is None else ClusterSeen(CLUSTER, event.era, True, version, event.ack_quorum)
                knowledge = Knowledge(dict.fromkeys(map(name_of, event.known), True), event.ack_quorum)
                [effect] = machine.handle(Surveyed(tree, _seen(event.nodes), knowledge))
                if isinstance(effect, ClaimEra):
                    version += 1
                    [effect] = machine.handle(Claimed(WriteStatus.OK, version))
            case RaisedEvent():
                [effect] = machine.handle(ErasRaised({name_of(number): era for number, era in event.eras}))
            case CollectedEvent():
                knowledge = Knowledge(dict.fromkeys(map(name_of, event.known), True), event.ack_quorum)
                [effect] = machine.handle(Collected(_seen(event.nodes), knowledge))
            case CommitEvent():
                [effect] = machine.handle(RecordsJoined(()))
                assert isinstance(effect, WriteRecords)
                [effect] = machine.handle(RecordsWritten())
                assert isinstance(effect, CommitEra)
                [effect] = machine.handle(EraCommitted(WriteStatus.OK))
                assert isinstance(effect, RestoreEnded)
    assert isinstance(effect, Survey | RaiseEras | Collect | JoinRecords | RestoreEnded)
    return effect, machine.era


def _seen(nodes: Seen) -> dict[Incarnation, NodeSeen]:
    return {name_of(number): NodeSeen(CLUSTER, era, limbo) for number, era, limbo in nodes}
