"""Requests of groups of consumers, and what their coordinator answers (`core.groups` of the log).

The coordinator is the owner of one topic of the namespace. Clients see the one broker as the coordinator of each group.
Before the leader's assignments reach the coordinator, the generation of the group is durable at each assigned
partition. From then on a commit of a former holder is refused there (hazard former-member-commits).

A request whose coordinator is away waits for the next one. Then its code is NOT_COORDINATOR: every client looks for the
coordinator again and goes on with its member id.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from oncelog.core.access import Caller
from oncelog.core.errors import (
    Conflict,
    ConsumerBusy,
    InvalidArgument,
    InvalidName,
    NotFound,
    NotOwner,
    OncelogError,
    PermissionDenied,
    SubscriptionTypeMismatch,
    TopicNotFound,
)
from oncelog.core.groups import answers
from oncelog.core.groups.answers import GroupError, GroupState
from oncelog.core.groups.events import (
    Assignment,
    DeleteRequested,
    DescribeRequested,
    HeartbeatRequested,
    JoinRequested,
    LeaveRequested,
    LeavingMember,
    ListRequested,
    Protocol,
    SyncRequested,
)
from oncelog.core.groups.join_fields import refuse_fields
from oncelog.core.ids import Generation
from oncelog.core.names import NamespaceName, TopicName
from oncelog_doors.core.kafka.assignments import CONSUMER, partitions_in
from oncelog_doors.core.kafka.error_codes import ErrorCode, code_of
from oncelog_doors.kafka.asking import LOOKUPS_AT_ONCE, Asking, log_of
from oncelog_doors.kafka.codec import Body
from oncelog_doors.kafka.frames import Request
from oncelog_doors.kafka.ports import GroupQuestion, GroupsPort

_LOG = logging.getLogger(__name__)

GROUP_REQUESTS = frozenset(
    ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "DescribeGroups", "ListGroups", "DeleteGroups")
)

#: Of a request that its coordinator answers at once, and of what is done before a SyncGroup is passed on.
ASK_MS = 10_000
#: Of the newest commit of an offset that is not deleted by age: it came after the coordinator was asked.
_IN_USE_MS = 60_000
#: JoinGroup and SyncGroup wait for other members. Clients wait for the rebalance timeout and 5 s.
_LAPSE_MS = 10_000
_WAIT_MS_MIN, _WAIT_MS_MAX = 60_000, 1_800_000
#: As in Kafka, in front of addresses.
_HOST_PREFIX = "/"


class Groups:
    """Of one connection. joined: called with the namespace of each group that the client has joined."""

    def __init__(self, around: Asking, joined: Callable[[NamespaceName], None]) -> None:
        self._around = around
        self._joined = joined
        #: requests that wait for other members
        self._waiting: set[asyncio.Future[Any]] = set()
        self._hurries = False
        self._requests: Mapping[str, Callable[[Request, Body], Awaitable[Body]]] = {
            "JoinGroup": self._join,
            "SyncGroup": self._sync,
            "Heartbeat": self._heartbeat,
            "LeaveGroup": self._leave,
            "DescribeGroups": self._describe,
            "ListGroups": self._list,
            "DeleteGroups": self._delete,
        }

    async def answer(self, request: Request, body: Body) -> Body | None:
        """The body of the answer to a request of a group."""
        try:
            return await self._requests[request.api](request, body)
        except OncelogError as error:
            code = group_code_of(error)
            if code is not ErrorCode.NOT_COORDINATOR:
                _LOG.info("%s of group %.100r is refused: %s", request.api, body.get("group_id", ""), error)
            return {"error_code": code, "member_id": body.get("member_id", "")}

    def hurry(self) -> None:
        """Wait for no other members any more: the clients go on at another door."""
        self._hurries = True
        for waiting in self._waiting:
            waiting.cancel()

    # --- members ------------------------------------------------------------------------------------------------------

    async def _join(self, request: Request, body: Body) -> Body:
        rebalance_ms = body.get("rebalance_timeout_ms", -1)
        question = JoinRequested(
            0,
            body["group_id"],
            body["member_id"],
            f"{request.client_id or 'member'}-{uuid4()}",
            body["protocol_type"],
            tuple(Protocol(each["name"], bytes(each["metadata"])) for each in body["protocols"]),
            body["session_timeout_ms"],
            rebalance_ms,
            body.get("group_instance_id"),
            request.client_id,
            _HOST_PREFIX + self._around.address,
            # Clients of earlier versions cannot come again with an id.
            member_id_required=request.version >= 4,
        )
        if (refusal := refuse_fields(question)) is not None:
            self._refused(request, body, *refusal)
            return {"error_code": refusal.error, "member_id": body["member_id"]}
        wait_ms = max(rebalance_ms, body["session_timeout_ms"])
        answer: answers.JoinAnswer = await self._wait(question, wait_ms)
        self._refused(request, body, answer.error, answer.reason)
        if answer.error is GroupError.NONE:
            self._joined(self._around.namespace)
        return {
            "error_code": answer.error,
            "generation_id": answer.generation,
            "protocol_name": answer.protocol,
            "leader": answer.leader,
            "member_id": answer.member_id,
            "members": [
                {"member_id": each.member_id, "group_instance_id": each.instance_id, "metadata": each.metadata}
                for each in answer.members
            ],
        }

    async def _sync(self, request: Request, body: Body) -> Body:
        group, generation = body["group_id"], Generation(body["generation_id"])
        assigned = tuple(Assignment(each["member_id"], bytes(each["assignment"])) for each in body["assignments"])
        highest = Generation(0)
        if assigned:
            try:
                highest = await self._raise_generations(group, generation, [each.assignment for each in assigned])
            except OncelogError as error:
                if group_code_of(error) is not ErrorCode.NOT_COORDINATOR:
                    raise
                _LOG.warning("group %s is rebalanced again, because of its partitions: %s", group, error)
                return {"error_code": ErrorCode.REBALANCE_IN_PROGRESS}
        question = SyncRequested(
            0, group, body["member_id"], generation, assigned, highest, body.get("group_instance_id")
        )
        answer: answers.SyncAnswer = await self._wait(question, 0)
        self._refused(request, body, answer.error, answer.reason)
        return {"error_code": answer.error, "assignment": answer.assignment}

    async def _heartbeat(self, request: Request, body: Body) -> Body:
        question = HeartbeatRequested(
            0, body["group_id"], body["member_id"], Generation(body["generation_id"]), body.get("group_instance_id")
        )
        answer: answers.HeartbeatAnswer = await self._ask(question)
        if answer.error is not GroupError.REBALANCE_IN_PROGRESS:  # it is how members learn of a rebalance
            self._refused(request, body, answer.error, answer.reason)
        return {"error_code": answer.error}

    async def _leave(self, request: Request, body: Body) -> Body:
        listed = body.get("members")
        members = (
            (LeavingMember(body["member_id"]),)
            if listed is None
            else tuple(LeavingMember(each["member_id"], each["group_instance_id"]) for each in listed)
        )
        question = LeaveRequested(0, body["group_id"], members)
        answer: answers.LeaveAnswer = await self._ask(question)
        error = answer.error
        if listed is None and answer.members:
            error = error or answer.members[0].error
        self._refused(request, body, error, answer.reason)
        left = [
            {"member_id": each.member_id, "group_instance_id": each.instance_id, "error_code": each.error}
            for each in answer.members
        ]
        return {"error_code": error, "members": left}

    # --- administration -----------------------------------------------------------------------------------------------

    async def _describe(self, _request: Request, body: Body) -> Body:
        return {"groups": await self._of_each(body["groups"], self._describe_one)}

    async def _describe_one(self, group: str) -> Body:
        try:
            answer: answers.DescribeAnswer = await self._ask(DescribeRequested(0, group))
        except TopicNotFound:  # there are no groups yet
            answer = answers.DescribeAnswer(GroupError.NONE)
        return {
            "error_code": answer.error,
            "group_id": group,
            "group_state": answer.state.value,
            "protocol_type": answer.protocol_type,
            "protocol_data": answer.protocol,
            "members": [
                {
                    "member_id": each.member_id,
                    "group_instance_id": each.instance_id,
                    "client_id": each.client_id,
                    "client_host": each.client_host,
                    "member_metadata": each.metadata,
                    "member_assignment": each.assignment,
                }
                for each in answer.members
            ],
        }

    async def _list(self, _request: Request, _body: Body) -> Body:
        try:
            answer: answers.ListAnswer = await self._ask(ListRequested(0))
        except TopicNotFound:
            return {"groups": []}
        return {"groups": [{"group_id": each.group, "protocol_type": each.protocol_type} for each in answer.groups]}

    async def _delete(self, _request: Request, body: Body) -> Body:
        return {"results": await self._of_each(body["groups_names"], self._delete_one)}

    async def _delete_one(self, group: str) -> Body:
        around = self._around
        code = await delete_group(around.cluster.groups, around.namespace, around.caller, group)
        return {"group_id": group, "error_code": code}

    async def _of_each(self, groups: Sequence[str], one: Callable[[str], Awaitable[Body]]) -> list[Body]:
        places = asyncio.Semaphore(LOOKUPS_AT_ONCE)

        async def of(group: str) -> Body:
            async with places:
                try:
                    return await one(group)
                except OncelogError as error:
                    return {"group_id": group, "error_code": group_code_of(error)}

        return list(await asyncio.gather(*map(of, dict.fromkeys(groups))))

    # --- the partitions of a new generation ---------------------------------------------------------------------------

    async def _raise_generations(self, group: str, generation: Generation, assignments: Sequence[bytes]) -> Generation:
        """Have the assigned partitions refuse commits of former generations. Returns the highest generation that one of
        them has. Nothing is raised above the generation that the coordinator has made durable, whatever the client
        says."""
        described: answers.DescribeAnswer = await self._ask(DescribeRequested(0, group))
        if (
            described.state is not GroupState.COMPLETING
            or described.generation != generation
            or described.protocol_type != CONSUMER
        ):
            return Generation(0)
        wanted = {(name, index) for data in assignments for name, each in partitions_in(data).items() for index in each}
        around = self._around
        logs = await self._logs(sorted(wanted))
        return await around.cluster.groups.raise_generations(logs, around.caller, group, generation, timeout_ms=ASK_MS)

    async def _logs(self, partitions: Sequence[tuple[str, int]]) -> list[TopicName]:
        places = asyncio.Semaphore(LOOKUPS_AT_ONCE)

        async def one(name: str, index: int) -> TopicName | None:
            async with places:
                try:
                    return await log_of(self._around, name, index)
                except TopicNotFound:  # the leader's view is older than a deletion
                    return None

        found = await asyncio.gather(*(one(*each) for each in partitions))
        return [each for each in found if each is not None]

    # --- the coordinator ----------------------------------------------------------------------------------------------

    async def _ask(self, question: GroupQuestion, timeout_ms: int = ASK_MS) -> Any:
        """Raises TopicNotFound if the namespace never had a group, and OncelogError."""
        around = self._around
        return await around.cluster.groups.ask(around.namespace, around.caller, question, timeout_ms=timeout_ms)

    async def _wait(self, question: JoinRequested | SyncRequested, wait_ms: int) -> Any:
        """Ask what other members have to answer, too. Raises NotOwner if the door ends meanwhile."""
        timeout_ms = min(max(wait_ms, _WAIT_MS_MIN), _WAIT_MS_MAX) + _LAPSE_MS
        asking = asyncio.ensure_future(self._ask(question, timeout_ms))
        self._waiting.add(asking)
        if self._hurries:
            asking.cancel()
        try:
            await asyncio.wait((asking,))
        finally:
            self._waiting.discard(asking)
            asking.cancel()
        if asking.cancelled():
            raise NotOwner("the door ends")
        return asking.result()

    def _refused(self, request: Request, body: Body, error: GroupError, reason: str) -> None:
        if error not in (GroupError.NONE, GroupError.MEMBER_ID_REQUIRED):
            text = "%s of group %.100s by %s is answered %s: %s"
            _LOG.info(text, request.api, body["group_id"], self._around.address, error.name.lower(), reason)


async def delete_group(
    groups: GroupsPort, namespace: NamespaceName, caller: Caller, group: str, *, empty_for_ms: int = 0
) -> GroupError:
    """Delete a group and its offsets. empty_for_ms: only if it has had no members and no commits for so long, and of
    its offsets only those that a group has committed: subscriptions of the SDK with its name stay. Raises OncelogError.

    First it is sure that the group has no members; then its offsets go, and then the group. A group that forms
    meanwhile has a higher generation, and keeps its offsets."""

    async def step(generation: Generation | None) -> answers.DeleteAnswer:
        question = DeleteRequested(0, group, generation, empty_for_ms)
        answer = await groups.ask(namespace, caller, question, timeout_ms=ASK_MS)
        assert isinstance(answer, answers.DeleteAnswer), "it is the answer to this question"
        return answer

    try:
        found = await step(None)
    except TopicNotFound:
        found = answers.DeleteAnswer(GroupError.GROUP_ID_NOT_FOUND)
    is_unknown = found.error is GroupError.GROUP_ID_NOT_FOUND
    # Offsets of a group that the coordinator does not know have no age.
    if found.error is not GroupError.NONE and (empty_for_ms or not is_unknown):
        return found.error
    generation = max(found.generation, Generation(0))
    # The clock of the owners may differ from the coordinator's: all that is wanted is to keep what is used right now.
    unused_for_ms = min(empty_for_ms // 2, _IN_USE_MS)
    any_offsets = await groups.delete_offsets(
        namespace, caller, group, generation, unused_for_ms=unused_for_ms, timeout_ms=ASK_MS
    )
    if is_unknown:
        return GroupError.NONE if any_offsets else found.error
    deleted = await step(found.generation)
    # A repetition of this step finds nothing.
    return GroupError.NONE if deleted.error is GroupError.GROUP_ID_NOT_FOUND else deleted.error


def group_code_of(error: OncelogError) -> ErrorCode:
    """The code for an error of a question to a coordinator."""
    if isinstance(error, PermissionDenied):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if isinstance(error, TopicNotFound):  # no client is a member of anything
        return ErrorCode.UNKNOWN_MEMBER_ID
    if isinstance(error, InvalidName | NotFound):
        return ErrorCode.INVALID_GROUP_ID
    if isinstance(error, ConsumerBusy | SubscriptionTypeMismatch | Conflict):  # the subscription is used otherwise
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if error.retriable:
        return ErrorCode.NOT_COORDINATOR
    return ErrorCode.INVALID_REQUEST if isinstance(error, InvalidArgument) else code_of(error)
