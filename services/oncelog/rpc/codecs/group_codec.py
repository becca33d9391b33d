"""The method of the GroupCoordinator service; groups.proto describes the fields, `core.groups` what they mean."""

from typing import Any

from oncelog.core.errors import InvalidArgument
from oncelog.core.groups.answers import (
    CommitAnswer,
    DeleteAnswer,
    DescribeAnswer,
    DescribedMember,
    GroupAnswer,
    GroupError,
    GroupState,
    HeartbeatAnswer,
    JoinAnswer,
    JoinedMember,
    LeaveAnswer,
    LeftMember,
    ListAnswer,
    ListedGroup,
    SyncAnswer,
)
from oncelog.core.groups.events import (
    Assignment,
    CommitChecked,
    DeleteRequested,
    DescribeRequested,
    GroupRequest,
    HeartbeatRequested,
    JoinRequested,
    LeaveRequested,
    LeavingMember,
    ListRequested,
    Protocol,
    SyncRequested,
)
from oncelog.rpc.codecs.layout import Field, Layout, tuple_inside
from oncelog.rpc.methods import unary_of
from oncelog.wire import groups_pb2 as pb

#: Of a request: what all members of a group are assigned.
REQUEST_BYTES_MAX = 4 * 1024 * 1024
ASK_GROUP = unary_of(
    "/oncelog.wire.v1.GroupCoordinator/AskGroup", pb.GroupRequest, pb.GroupAnswer, request_bytes_max=REQUEST_BYTES_MAX
)

#: What a coordinator can be asked.
GroupQuestion = GroupRequest | ListRequested


def _error(number: int) -> GroupError:
    """Of a later owner that knows more of them."""
    try:
        return GroupError(number)
    except ValueError:
        return GroupError.UNKNOWN_SERVER_ERROR


_ERROR = Field("", int, _error)
_STATE = Field("", lambda state: state.value, GroupState)
#: The shell of the owner numbers calls.
_CALL = {"call": 0}

#: {field of the message: its row}
_REQUESTS: dict[str, Layout[Any]] = {
    "join": Layout(
        JoinRequested, pb.JoinGroup, given=_CALL, protocols=tuple_inside(Layout(Protocol, pb.GroupProtocol))
    ),
    "sync": Layout(
        SyncRequested, pb.SyncGroup, given=_CALL, assignments=tuple_inside(Layout(Assignment, pb.GroupAssignment))
    ),
    "heartbeat": Layout(HeartbeatRequested, pb.GroupHeartbeat, given=_CALL),
    "leave": Layout(
        LeaveRequested, pb.LeaveGroup, given=_CALL, members=tuple_inside(Layout(LeavingMember, pb.LeavingMember))
    ),
    "check_commit": Layout(CommitChecked, pb.CheckGroupCommit, given=_CALL),
    "describe": Layout(DescribeRequested, pb.DescribeGroup, given=_CALL),
    "list": Layout(ListRequested, pb.ListGroups, given=_CALL),
    "delete": Layout(DeleteRequested, pb.DeleteGroup, given=_CALL),
}
_ANSWERS: dict[str, Layout[Any]] = {
    "joined": Layout(
        JoinAnswer, pb.GroupJoined, error=_ERROR, members=tuple_inside(Layout(JoinedMember, pb.JoinedGroupMember))
    ),
    "synced": Layout(SyncAnswer, pb.GroupSynced, error=_ERROR),
    "heartbeat": Layout(HeartbeatAnswer, pb.GroupHeartbeatAnswer, error=_ERROR),
    "left": Layout(
        LeaveAnswer, pb.GroupLeft, error=_ERROR,
        members=tuple_inside(Layout(LeftMember, pb.LeftGroupMember, error=_ERROR)),
    ),
    "commit": Layout(CommitAnswer, pb.GroupCommitAnswer, error=_ERROR),
    "described": Layout(
        DescribeAnswer, pb.DescribedGroup, error=_ERROR, state=_STATE,
        members=tuple_inside(Layout(DescribedMember, pb.DescribedGroupMember)),
    ),
    "listed": Layout(
        ListAnswer, pb.ListedGroups, groups=tuple_inside(Layout(ListedGroup, pb.ListedGroup, state=_STATE))
    ),
    "deleted": Layout(DeleteAnswer, pb.GroupDeleted, error=_ERROR),
}  # fmt: skip
_REQUEST_FIELDS = {layout.value: field for field, layout in _REQUESTS.items()}
_ANSWER_FIELDS = {layout.value: field for field, layout in _ANSWERS.items()}


def question_to_wire(question: GroupQuestion) -> dict[str, Any]:
    """The field of a GroupRequest."""
    field = _REQUEST_FIELDS[type(question)]
    return {field: _REQUESTS[field].to_wire(question)}


def question_from_wire(request: pb.GroupRequest) -> GroupQuestion:
    """With call 0. Raises InvalidArgument for a request of a later version."""
    field = request.WhichOneof("request")
    if field is None:
        raise InvalidArgument("a request to a group coordinator is of an unknown kind", field="request")
    question: GroupQuestion = _REQUESTS[field].from_wire(getattr(request, field))
    return question


def answer_to_wire(answer: GroupAnswer) -> dict[str, Any]:
    """The field of a GroupAnswer."""
    field = _ANSWER_FIELDS[type(answer)]
    return {field: _ANSWERS[field].to_wire(answer)}


def answer_from_wire(answer: pb.GroupAnswer) -> GroupAnswer:
    """Raises InvalidArgument for an answer of a later version."""
    field = answer.WhichOneof("answer")
    if field is None:
        raise InvalidArgument("an answer of a group coordinator is of an unknown kind", field="answer")
    found: GroupAnswer = _ANSWERS[field].from_wire(getattr(answer, field))
    return found
