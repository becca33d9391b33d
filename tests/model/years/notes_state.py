"""The state of the model of notes: a record in ZooKeeper, its notes at storage nodes, and services that change it.

What a state leaves out
- The loss of ZooKeeper. What a restore would find is judged in each state, for each set of nodes that it may ask.
- The era. A note of a higher era is the newer one, like one of a record that was created later.
- Messages. A note is stored and answered in one step, at any later time or never.
"""

from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import NamedTuple

from oncelog.core.formats.note import Note, NoteOrder
from oncelog.core.node.notes import HeldNotes

NODES, ACK_QUORUM = 3, 2
MISSING_MAX = ACK_QUORUM - 1


class Record(NamedTuple):
    """What ZooKeeper has at one time, and what a note says. created: the transaction that created it."""

    created: int
    version: int
    value: int
    deleted: bool = False

    @property
    def order(self) -> NoteOrder:
        return NoteOrder(1, self.created, self.deleted, self.version)


FIRST = Record(1, 0, value=0)


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    CREATE = 2


class Phase(IntEnum):
    BEGINS = 0
    WRITTEN = 1
    NOTES = 2
    DONE = 3


class Service(NamedTuple):
    """A metadata service with one change. intent: what it has written, if the write was applied. note: what it sends;
    None: nothing. stored: bits of the nodes that have stored it."""

    operation: Operation
    phase: Phase = Phase.BEGINS
    intent: Record | None = None
    note: Record | None = None
    stored: int = 0


class Node(NamedTuple):
    """joining: it is no member yet, and no holder."""

    note: Record | None = FIRST
    joining: bool = False


class Budget(NamedTuple):
    """How often a write may have no definite answer, a disk be replaced, and a copy of the records be made."""

    unknown: int = 0
    replaced: int = 0
    copies: int = 0


class State(NamedTuple):
    """history: all that the record ever was, in order. answered: the place there of the newest answer. copy: the record
    as of the copy."""

    services: tuple[Service, ...]
    nodes: tuple[Node, ...] = (Node(),) * NODES
    history: tuple[Record, ...] = (FIRST,)
    answered: int = 0
    copy: Record | None = None
    budget: Budget = Budget()

    @property
    def record(self) -> Record:
        return self.history[-1]

    def with_service(self, number: int, service: Service) -> "State":
        return self._replace(services=(*self.services[:number], service, *self.services[number + 1 :]))

    def with_node(self, number: int, node: Node) -> "State":
        return self._replace(nodes=(*self.nodes[:number], node, *self.nodes[number + 1 :]))


@dataclass(frozen=True)
class Rules:
    """A variant lacks some."""

    #: of two notes of a path a node keeps the higher one, and the last one to arrive otherwise
    highest_stays: bool = True
    #: a record that was created later is higher, whatever its version is
    created_counts: bool = True
    #: a deletion is sent like a change; otherwise the note is left
    deletion_is_a_note: bool = True
    #: a note is what a synced read has shown, and otherwise what was to be written
    note_is_read: bool = True
    #: an answer waits for Qa nodes
    answer_waits_for_notes: bool = True
    #: a node is no member before it has all notes
    member_has_notes: bool = True
    #: a node may be replaced only if another member has its notes
    replacement_counts_holders: bool = True
    #: a restore takes the newest of note and copy, and otherwise the copy
    newest_of_both: bool = True
    #: a restore that has asked too few nodes leaves rights closed
    too_few_is_closed: bool = True


class Scenario(NamedTuple):
    name: str
    operations: tuple[Operation, ...]
    budget: Budget

    @property
    def start(self) -> State:
        return State(tuple(Service(each) for each in self.operations), budget=self.budget)


@cache
def kept(former: Record | None, arrived: Record) -> Record:
    """Which of two notes stays at a storage node, in either order: the product's own decision."""
    notes = HeldNotes[Record]()
    for note in (former, arrived):
        if note is not None:
            notes.put(Note("/policies/topic", note.order, str(note.value).encode()).encode(), note)
    held = notes.get("/policies/topic")
    assert held is not None
    return held.place
