"""The state of the model: one ledger, its record, storage nodes, a writer, recoverers, repairers and a reader.

What a state leaves out, and why nothing is lost by that
- Versions of the record. A compare-and-set succeeds if and only if the record was not written since its actor read it,
  so a write by one actor marks what all others have read as stale.
- Messages. A request is delivered, executed and answered in one step, at any later time or never. A late answer only
  makes its receiver slower; what a receiver does with an old answer is part of its own state.
- Time. An absent node may count as absent at any time, and any step may come late.
- Addresses. A node is a directory with its incarnation. A wiped directory comes back as another node.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

#: members of the ledger, and copies that an acknowledgement needs
WRITE_QUORUM, ACK_QUORUM = 3, 2
#: nodes that must be fenced, or must not hold an entry, before a recovery may decide
COVERAGE = WRITE_QUORUM - ACK_QUORUM + 1

NOBODY = -1


class Violated(Exception):
    """A promise of the design is broken; the text names it."""


class _Named(IntEnum):
    """Hashed as its number, which is much faster: a state is hashed at each step."""

    __hash__ = int.__hash__


class Ledger(_Named):
    OPEN = 0
    IN_RECOVERY = 1
    CLOSED = 2


class Presence(_Named):
    UP = 0
    DOWN = 1
    #: the directory is lost for ever; its incarnation is retired and not registered
    GONE = 2


class Erasing(_Named):
    NO = 0
    #: has read a record that allows it
    DECIDED = 1
    #: the record was written since
    DECIDED_STALE = 2
    #: its own compare-and-set succeeded
    CLAIMED = 3


class Record(NamedTuple):
    """end: the last entry, valid when CLOSED. lost: entry 0 is written as lost."""

    ledger: Ledger
    members: tuple[int, ...]
    end: int = -1
    joining: int = NOBODY
    whole: bool = False
    lost: bool = False

    @property
    def named(self) -> tuple[int, ...]:
        return self.members if self.joining == NOBODY else (*self.members, self.joining)

    @property
    def entries(self) -> int:
        """The bits of the entries 0..end."""
        return (1 << (self.end + 1)) - 1


class Node(NamedTuple):
    """holds: bits of the entries that it can read. hurt: bits of those that a fault has destroyed there (for the
    promises only: no step depends on it). erased: it has a tombstone of the ledger. quiet: it refuses
    every call for the ledger, because it is about to erase it."""

    holds: int = 0
    hurt: int = 0
    presence: Presence = Presence.UP
    fenced: bool = False
    limbo: bool = False
    erased: bool = False
    erasing: Erasing = Erasing.NO
    quiet: bool = False

    @property
    def serves(self) -> bool:
        """Whether it takes calls for this ledger."""
        return self.presence is Presence.UP and not self.quiet

    @property
    def bad(self) -> bool:
        """Whether repair may replace it: gone, absent, or with damage."""
        return self.presence is not Presence.UP or self.limbo


class Recoverer(NamedTuple):
    """fenced, missing, confirmed: bits of members. entry: the one that is being recovered. found: it has its bytes."""

    active: bool = False
    fenced: int = 0
    entry: int = 0
    found: bool = False
    missing: int = 0
    confirmed: int = 0


class Repairer(NamedTuple):
    """What it knows since it has read the record. attested, denied: bits of nodes; denied: entry 0 is not there.

    again: bits of nodes that have denied it a second time, after all had done so once.
    target, seen: only where a broken variant fills a node that is not in the record, or swaps without a version.
    """

    fresh: bool = False
    attested: int = 0
    denied: int = 0
    again: int = 0
    target: int = NOBODY
    seen: Record | None = None


class Reader(NamedTuple):
    """It looks for entry 0 by a record that it has read at some time. refused: bits of the members that lack it."""

    seen: Record
    fresh: bool = True
    refused: int = 0


class Budget(NamedTuple):
    """How many faults may still happen. down: nodes that are down at the same time."""

    wipes: int = 0
    damages: int = 0
    restarts: int = 0
    down: int = 0
    restores: int = 0


class State(NamedTuple):
    record: Record
    nodes: tuple[Node, ...]
    #: of each entry, the bits of the members that have confirmed it to the writer
    confirmed: tuple[int, ...]
    recoverers: tuple[Recoverer, ...] = ()
    repairers: tuple[Repairer, ...] = ()
    reader: Reader | None = None
    budget: Budget = Budget()

    @property
    def acked(self) -> int:
        """How many entries are acknowledged: in order, each by a quorum."""
        count = 0
        for members in self.confirmed:
            if members.bit_count() < ACK_QUORUM:
                break
            count += 1
        return count


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of the design. A broken variant lacks one of them."""

    recovery_reads_fence: bool = True
    end_needs_coverage: bool = True
    write_back_needs_quorum: bool = True
    fence_survives_restart: bool = True
    wiped_node_is_another: bool = True
    damage_is_limbo: bool = True
    limbo_refuses_adds: bool = True
    limbo_ends_with_fence: bool = True
    joining_is_recorded: bool = True
    swap_names_version: bool = True
    copies_every_entry: bool = True
    erasing_needs_whole: bool = True
    erasing_needs_claim: bool = True
    erasing_refuses_calls: bool = True
    erased_proves_nothing: bool = True
    tombstone_keeps_fence: bool = True
    lost_needs_answers: bool = True
    lost_is_asked_twice: bool = True
    reader_reads_again: bool = True


def bits(mask: int) -> tuple[int, ...]:
    return tuple(number for number in range(mask.bit_length()) if mask >> number & 1)


def written(state: State, record: Record, *, node: int = NOBODY, repairer: int = NOBODY) -> State:
    """The record was written by `node`, by `repairer`, or by another actor: what all others have read is stale.

    A stale repairer can only begin again, so it forgets everything; one that swaps without a version does not.
    """
    return state._replace(
        record=record,
        nodes=tuple(
            each._replace(erasing=Erasing.DECIDED_STALE) if each.erasing is Erasing.DECIDED and number != node else each
            for number, each in enumerate(state.nodes)
        ),
        repairers=tuple(
            each if number == repairer else Repairer() if each.seen is None else each._replace(fresh=False)
            for number, each in enumerate(state.repairers)
        ),
        reader=None if state.reader is None else state.reader._replace(fresh=False),
    )


def with_node(state: State, number: int, node: Node) -> State:
    return state._replace(nodes=(*state.nodes[:number], node, *state.nodes[number + 1 :]))
