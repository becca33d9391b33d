"""What a restore asks for and is told: its request, its events and its effects (`restore_plan`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from oncelog.core.era import FIRST_ERA, Era
from oncelog.core.ids import Incarnation
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.records.status import WriteStatus


class RestoreStep(Enum):
    """COMPARE: of a drill, with the records in ZooKeeper."""

    PLAN = "plan"
    CLAIM = "claim"
    RAISE = "raise"
    COLLECT = "collect"
    JOIN = "join"
    REVIEW = "review"
    WRITE = "write"
    COMMIT = "commit"
    COMPARE = "compare"
    DONE = "done"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """restore_id: 32 random hexadecimal digits; a restore that is resumed keeps its own. absent: see above; unique
    prefixes. accepted: names of topics in the review, or ACCEPT_ALL. ends_era: the era that serves.
    dry_run: raise and write nothing."""

    restore_id: str
    absent: tuple[Incarnation, ...] = ()
    accepted: tuple[str, ...] = ()
    take_over: bool = False
    dry_run: bool = False
    ends_era: int = 0


class ClusterSeen(NamedTuple):
    """The cluster's record in ZooKeeper, with its version. registered: its storage nodes. is_damaged:
    folders of its era are missing."""

    cluster_id: str
    era: Era
    restoring: bool
    version: int
    ack_quorum: int = 0
    registered: tuple[Incarnation, ...] = ()
    is_damaged: bool = False


class NodeSeen(NamedTuple):
    """What a storage node answers. limbo: its directory has lost records. joined: it serves its cluster, so it found
    its ZooKeeper to be as new as its data. refuses: the era of the record that it waits before, since its records are
    older than the data."""

    cluster_id: str
    era: Era
    limbo: bool
    joined: bool = False
    refuses: Era | None = None


class Knowledge(NamedTuple):
    """What notes, copies and heads say. nodes: {storage node: whether it counts}; False: it is removed, or retired and
    emptied. ack_quorum: the lowest of any owner; 0: unknown. era: the highest number. replaced: nodes that are retired;
    those of them that count may have what no other node has."""

    nodes: Mapping[Incarnation, bool] = {}
    ack_quorum: int = 0
    era: int = FIRST_ERA.number
    replaced: frozenset[Incarnation] = frozenset()

    def with_further(self, other: "Knowledge") -> "Knowledge":
        """A node is retired, or emptied, if any source says so: neither ever ends."""
        nodes = dict(self.nodes)
        for node, counts in other.nodes.items():
            nodes[node] = counts and nodes.get(node, True)
        quorums = [quorum for quorum in (self.ack_quorum, other.ack_quorum) if quorum]
        return Knowledge(nodes, min(quorums, default=0), max(self.era, other.era), self.replaced | other.replaced)

    def corrected_by(self, later: "Knowledge") -> "Knowledge":
        """later: of copies, too. What it says of a node holds: a note that was surveyed may be of a former era (hazard
        note-of-a-former-era)."""
        unnamed = {node: counts for node, counts in self.nodes.items() if node not in later.nodes}
        replaced = self.replaced - later.nodes.keys()
        return Knowledge(unnamed, self.ack_quorum, self.era, replaced).with_further(later)


# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Surveyed:
    """tree None: ZooKeeper has no record of a cluster that can be read. owners: addresses of registered owners that
    answer. version: of the record, also of one that cannot be read; ABSENT_VERSION: there is none."""

    tree: ClusterSeen | None
    nodes: Mapping[Incarnation, NodeSeen]
    knowledge: Knowledge
    owners: tuple[str, ...] = ()
    version: int = ABSENT_VERSION


@dataclass(frozen=True, slots=True)
class Claimed:
    status: WriteStatus
    version: int = ABSENT_VERSION


@dataclass(frozen=True, slots=True)
class ErasRaised:
    """What each asked node has stored now. None: it did not answer."""

    eras: Mapping[Incarnation, Era | None]


@dataclass(frozen=True, slots=True)
class Collected:
    """The nodes whose inventory and notes were read to their end, and what these and copies say."""

    nodes: Mapping[Incarnation, NodeSeen]
    knowledge: Knowledge


@dataclass(frozen=True, slots=True)
class RecordsJoined:
    """review: what cannot be proved; names of topics, or other texts. topics: all that were found, by name and id."""

    review: tuple[str, ...]
    topics: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RecordsWritten:
    """fenced: the cluster's record has another version: another performer goes on."""

    fenced: bool = False


@dataclass(frozen=True, slots=True)
class EraCommitted:
    status: WriteStatus


RestoreEvent = Surveyed | Claimed | ErasRaised | Collected | RecordsJoined | RecordsWritten | EraCommitted

# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Survey:
    """Read the tree, and ask all nodes that are known or given."""


@dataclass(frozen=True, slots=True)
class ClaimEra:
    """Compare-and-set the cluster's record to `era`, RESTORING. version: ABSENT_VERSION creates it."""

    cluster_id: str
    era: Era
    version: int


@dataclass(frozen=True, slots=True)
class RaiseEras:
    nodes: tuple[Incarnation, ...]
    era: Era


@dataclass(frozen=True, slots=True)
class Collect:
    """Read inventories and notes. Of a dry run, which raises nothing, they are a look and no proof."""

    nodes: tuple[Incarnation, ...]


@dataclass(frozen=True, slots=True)
class JoinRecords:
    """missing: nodes that count and were not collected, or are in limbo. gives_up: more of them than the bound."""

    missing: tuple[Incarnation, ...]
    gives_up: bool


@dataclass(frozen=True, slots=True)
class WriteRecords:
    """Below the root of the era. Each transaction checks that the cluster's record has this version."""

    era: Era
    version: int
    gives_up: bool
    absent: tuple[Incarnation, ...]


@dataclass(frozen=True, slots=True)
class CommitEra:
    era: Era
    version: int
    rights_closed: bool


@dataclass(frozen=True, slots=True)
class RestoreEnded:
    """refusal: why the restore does not go on, and what to do; empty: it is done. A claimed restore is resumed by the
    next request. remark: why it is done without its work; of a dry run, why a restore would not begin."""

    refusal: str = ""
    remark: str = ""


RestoreEffect = Survey | ClaimEra | RaiseEras | Collect | JoinRecords | WriteRecords | CommitEra | RestoreEnded
