"""The answers of a group coordinator. Each request gets exactly one of them, at once or later.

`error` is a code of Kafka's protocol. `reason` says for logs why a request was refused: Kafka's answers have no room
for it.
"""

from enum import Enum, IntEnum
from typing import NamedTuple

from oncelog.core.ids import Generation

#: The generation in an answer that has none, and of requests of clients that are no members.
NO_GENERATION = Generation(-1)


class GroupError(IntEnum):
    """Names and numbers are Kafka's."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_REQUEST = 42
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82


class GroupState(Enum):
    """The values are the names that DescribeGroups answers."""

    #: no members
    EMPTY = "Empty"
    #: waits for JoinGroup of its members, or for its next generation to be durable
    PREPARING = "PreparingRebalance"
    #: waits for the assignments of its leader
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    #: unknown, or being deleted
    DEAD = "Dead"


class JoinedMember(NamedTuple):
    """One member, for the leader. metadata: of the chosen protocol. instance_id None: a dynamic member."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinAnswer(NamedTuple):
    """member_id: the id to go on with; with MEMBER_ID_REQUIRED the new one. members: for the leader alone, in the order
    in which they came. leader: its member id. Without NONE only error, member_id and reason mean anything."""

    error: GroupError
    member_id: str
    generation: Generation = NO_GENERATION
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    reason: str = ""


class SyncAnswer(NamedTuple):
    """assignment: as the leader gave it; empty if it gave none."""

    error: GroupError
    assignment: bytes = b""
    protocol_type: str = ""
    protocol: str = ""
    reason: str = ""


class HeartbeatAnswer(NamedTuple):
    error: GroupError
    reason: str = ""


class LeftMember(NamedTuple):
    """As it was named in the request."""

    member_id: str
    instance_id: str | None
    error: GroupError


class LeaveAnswer(NamedTuple):
    """members: in the order of the request; empty unless error is NONE."""

    error: GroupError
    members: tuple[LeftMember, ...] = ()
    reason: str = ""


class CommitAnswer(NamedTuple):
    """Whether the member may commit offsets now; the owners of the partitions check the generation once more.

    generation: with NONE, that of the request; for a request without one (-1), the highest generation that the group
    has had, 0: none. If the group gets members after the check, they have a higher generation, and their partitions
    must refuse what was checked before."""

    error: GroupError
    generation: Generation = NO_GENERATION
    reason: str = ""


class DescribedMember(NamedTuple):
    """metadata: of the chosen protocol. It and the assignment are empty unless the group is STABLE."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribeAnswer(NamedTuple):
    """An unknown group is DEAD, without an error. generation: the highest
    that it has had; 0: none."""

    error: GroupError
    state: GroupState = GroupState.DEAD
    generation: Generation = Generation(0)
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()
    reason: str = ""


class ListedGroup(NamedTuple):
    """protocol_type: that of its members, or of its last ones; empty: this coordinator has seen none. empty_for_ms: how
    long the group has had no members and no commits, at most since this coordinator began; 0: it has members, or a
    client that joins."""

    group: str
    protocol_type: str
    state: GroupState
    empty_for_ms: int = 0


class ListAnswer(NamedTuple):
    """In the order of their names."""

    groups: tuple[ListedGroup, ...]


class DeleteAnswer(NamedTuple):
    """generation: with NONE, the one up to which offsets may be deleted (the first step of DeleteRequested)."""

    error: GroupError
    generation: Generation = NO_GENERATION
    reason: str = ""


GroupAnswer = (
    JoinAnswer | SyncAnswer | HeartbeatAnswer | LeaveAnswer | CommitAnswer | DescribeAnswer | ListAnswer | DeleteAnswer
)  # fmt: skip
