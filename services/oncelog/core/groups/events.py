"""What a group coordinator is asked, and the effects that it orders.

`call` identifies a request for the shell: unique among the requests of one coordinator that are not answered yet.
Strings and bytes are the client's own, checked by nothing but the codec: the coordinator checks names and limits.
"""

from dataclasses import dataclass
from typing import NamedTuple

from oncelog.core.errors import OncelogError
from oncelog.core.groups.answers import NO_GENERATION, GroupAnswer
from oncelog.core.ids import Generation

# --- requests ---------------------------------------------------------------------------------------------------------


class Protocol(NamedTuple):
    """One way to assign partitions that a member offers, with what the leader needs to know of the member."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinRequested:
    """JoinGroup. Answered by JoinAnswer, when the next generation of the group is durable.

    member_id: empty: the client has none. new_member_id: the id that a client without one gets, unique for ever, such
    as CLIENT_ID-UUID; not empty. instance_id None: a dynamic member. member_id_required: a dynamic client without a
    member id is answered MEMBER_ID_REQUIRED with its new one, and joins with that (from version 4 on). protocols: the
    preferred one first. rebalance_timeout_ms: negative: the session timeout (version 0 has none)."""

    call: int
    group: str
    member_id: str
    new_member_id: str
    protocol_type: str
    protocols: tuple[Protocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    member_id_required: bool = True


class Assignment(NamedTuple):
    member_id: str
    assignment: bytes


@dataclass(frozen=True, slots=True)
class SyncRequested:
    """SyncGroup. Answered by SyncAnswer, when the leader's assignments are known.

    assignments: those of the leader; ignored from others. protocol_type, protocol: None: not given.
    highest_generation: the highest generation that the assigned partitions have now; if it is above `generation`, the
    group is rebalanced into a generation above it, and the answer is REBALANCE_IN_PROGRESS."""

    call: int
    group: str
    member_id: str
    generation: Generation
    assignments: tuple[Assignment, ...] = ()
    highest_generation: Generation = Generation(0)
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatRequested:
    """Heartbeat. Answered by HeartbeatAnswer, at once."""

    call: int
    group: str
    member_id: str
    generation: Generation
    instance_id: str | None = None


class LeavingMember(NamedTuple):
    """member_id empty: whoever has the instance id."""

    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class LeaveRequested:
    """LeaveGroup. Answered by LeaveAnswer, at once."""

    call: int
    group: str
    members: tuple[LeavingMember, ...]


@dataclass(frozen=True, slots=True)
class CommitChecked:
    """May this member commit offsets? Answered by CommitAnswer, at once. It counts as a heartbeat. generation -1: a
    client outside of the group, which may commit while the group has no members."""

    call: int
    group: str
    member_id: str = ""
    generation: Generation = NO_GENERATION
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class DescribeRequested:
    """DescribeGroups, for one group. Answered by DescribeAnswer, at once."""

    call: int
    group: str


@dataclass(frozen=True, slots=True)
class ListRequested:
    """ListGroups. Answered by ListAnswer, at once."""

    call: int


@dataclass(frozen=True, slots=True)
class DeleteRequested:
    """DeleteGroups, for one group, in two steps. Answered by DeleteAnswer.

    generation None: the first step, which changes nothing: has the group no members, and which generation? Then offsets
    of this and lower generations may be deleted at the partitions. generation: the second step, after that: forgets the
    group durably if it still has no members and this generation, else NON_EMPTY_GROUP.

    empty_for_ms: each step is refused with NON_EMPTY_GROUP unless the group has had no members and no commits for so
    long, see ListedGroup.

    GROUP_ID_NOT_FOUND: the group never had a generation; there may be offsets of clients without a group."""

    call: int
    group: str
    generation: Generation | None = None
    empty_for_ms: int = 0


GroupRequest = (
    JoinRequested | SyncRequested | HeartbeatRequested | LeaveRequested | CommitChecked | DescribeRequested
    | DeleteRequested
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class CallAbandoned:
    """The client, or the door between, is gone: the call needs no answer. Ignored if it is answered already."""

    call: int


# --- outcomes of effects ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GenerationWritten:
    """WriteGeneration is durable. generation: what the log has now, which may be more than was asked for."""

    group: str
    generation: Generation


@dataclass(frozen=True, slots=True)
class GenerationFailed:
    """WriteGeneration failed, or its outcome is unknown."""

    group: str
    generation: Generation
    error: OncelogError


@dataclass(frozen=True, slots=True)
class GenerationDeleted:
    """DeleteGeneration is durable."""

    group: str


@dataclass(frozen=True, slots=True)
class DeletionFailed:
    """DeleteGeneration failed, or its outcome is unknown."""

    group: str
    error: OncelogError


GroupOutcome = GenerationWritten | GenerationFailed | GenerationDeleted | DeletionFailed
GroupEvent = GroupRequest | ListRequested | CallAbandoned | GroupOutcome


# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WriteGeneration:
    """Make this generation of the group durable: raise subscription `group` of the coordinator's topic to it, and
    create the subscription if it is missing. Comes back as GenerationWritten or GenerationFailed. At most one of a
    group is in flight."""

    group: str
    generation: Generation


@dataclass(frozen=True, slots=True)
class DeleteGeneration:
    """Delete subscription `group` of the coordinator's topic; it may be missing. Comes back as GenerationDeleted or
    DeletionFailed."""

    group: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The one answer to this call."""

    call: int
    answer: GroupAnswer


GroupEffect = WriteGeneration | DeleteGeneration | Answer
