"""All groups of one coordinator topic, at the owner of the topic.

    JoinRequested, ... --> Answer, at once or when the group has come so far
    a group's next generation --> WriteGeneration --> GenerationWritten or GenerationFailed
    DeleteRequested, second step --> DeleteGeneration --> GenerationDeleted or DeletionFailed

Rules
- Members live in memory; only generations are durable. The next coordinator begins with these, and takes the members
  that show themselves (`membership`).
- A group without members is a number, its highest generation. In memory there are also the protocol type of its last
  members and the time since when it is empty, which begins again with each coordinator: how long the group was empty
  before is not known.
- While a group is being deleted, its requests are answered COORDINATOR_NOT_AVAILABLE.
- The clock of the groups stands still while this process does not run: a call that comes more than STALL_MS after it
  was due shows that. Heartbeats wait in sockets meanwhile, so no session may end because of it.
"""

import heapq
from collections.abc import Mapping
from typing import assert_never

from oncelog.core.errors import InvalidName, InvariantViolated
from oncelog.core.groups.answers import (
    CommitAnswer,
    DeleteAnswer,
    DescribeAnswer,
    GroupAnswer,
    GroupError,
    GroupState,
    HeartbeatAnswer,
    JoinAnswer,
    LeaveAnswer,
    ListAnswer,
    ListedGroup,
    SyncAnswer,
)
from oncelog.core.groups.events import (
    CallAbandoned,
    CommitChecked,
    DeleteGeneration,
    DeleteRequested,
    DeletionFailed,
    DescribeRequested,
    GenerationDeleted,
    GenerationFailed,
    GenerationWritten,
    GroupEffect,
    GroupEvent,
    GroupRequest,
    HeartbeatRequested,
    JoinRequested,
    LeaveRequested,
    ListRequested,
    SyncRequested,
)
from oncelog.core.groups.group import Group
from oncelog.core.groups.join_fields import refuse_fields
from oncelog.core.groups.limits import (
    CLAIMS_MS,
    COORDINATOR_BYTES_MAX,
    GROUPS_MAX,
    STALL_MS,
)
from oncelog.core.groups.membership import Refusal
from oncelog.core.groups.step import Step
from oncelog.core.ids import Generation
from oncelog.core.names import check_part

#: The heap may hold so many entries that are not due any more, and one for each that is.
_PAST_ENTRIES = 100


class Coordinator:
    """Lives as long as this owner serves the topic. All times are of one monotonic clock, in ms."""

    def __init__(self, generations: Mapping[str, Generation], now_ms: int) -> None:
        """generations: {group: its durable generation}, of all subscriptions of the topic."""
        self._step = Step(now_ms)
        #: {known group: no generation above it was given to anyone}; 0: its first one is not written yet
        self._highest = dict(generations)
        #: those of the start: a group that has no higher one yet takes claims
        self._at_start = dict(generations)
        self._claims_until_ms = now_ms + CLAIMS_MS
        #: those with members, pending ids or a write in flight
        self._groups: dict[str, Group] = {}
        #: {known group that is not in `_groups`: since when, or the time of the last commit since then}
        self._empty_since_ms = dict.fromkeys(generations, now_ms)
        #: {known group: the protocol type of its last members}
        self._types: dict[str, str] = {}
        #: {group that is being deleted: the call that waits for it; None: it was abandoned}
        self._deleting: dict[str, int | None] = {}
        #: {group: when it has something to do}, and a heap of these, which may also hold earlier ones
        self._due: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []
        #: {group: bytes that its members hold}, and their sum
        self._bytes: dict[str, int] = {}
        self._bytes_sum = 0
        #: how far the clock of the groups is behind
        self._stalled_ms = 0

    def handle(self, event: GroupEvent, now_ms: int) -> list[GroupEffect]:
        """Take one event; return what to do, in any order. Raises InvariantViolated: a bug."""
        self._begin(now_ms)
        match event:
            case CallAbandoned():
                self._abandon(event.call)
            case ListRequested():
                self._list(event.call)
            case GenerationWritten() | GenerationFailed():
                self._write_ended(event)
            case GenerationDeleted() | DeletionFailed():
                self._deletion_ended(event)
            case _:
                self._request(event)
        return self._step.take()

    def tick(self, now_ms: int) -> list[GroupEffect]:
        """End what has run out of time. Call it at `next_due_ms`; earlier is harmless. If the call comes more than a
        second late, this process did not run, and no member's session ends because of that."""
        self._begin(now_ms)
        while (due := self._next_due()) is not None and due <= self._step.now_ms:
            group = self._groups[self._heap[0][1]]
            group.membership.expire()
            self._end(group)
            if self._due.get(group.name, due + 1) <= due:
                raise InvariantViolated(f"group {group.name} has nothing to do, and is due again")
        return self._step.take()

    @property
    def next_due_ms(self) -> int | None:
        """When `tick` has something to do, unless an event comes first; None: never."""
        due = self._next_due()
        return None if due is None else due + self._stalled_ms

    # --- time ---------------------------------------------------------------------------------------------------------

    def _begin(self, now_ms: int) -> None:
        due = self._next_due()
        now_ms -= self._stalled_ms
        if due is not None and now_ms - due > STALL_MS:
            # Those who are due get STALL_MS more.
            until = max(due - STALL_MS, self._step.now_ms)
            self._stalled_ms += now_ms - until
            now_ms = until
        self._step.now_ms = max(now_ms, self._step.now_ms)
        self._step.bytes_left = COORDINATOR_BYTES_MAX - self._bytes_sum

    def _schedule(self, name: str, due: int | None) -> None:
        if due is None:
            self._due.pop(name, None)
        elif due != self._due.get(name):
            self._due[name] = due
            heapq.heappush(self._heap, (due, name))
        if len(self._heap) > 2 * len(self._due) + _PAST_ENTRIES:
            self._heap = [(due, name) for name, due in self._due.items()]
            heapq.heapify(self._heap)

    def _next_due(self) -> int | None:
        while self._heap:
            due, name = self._heap[0]
            if self._due.get(name) == due:
                return due
            heapq.heappop(self._heap)
        return None

    # --- requests -----------------------------------------------------------------------------------------------------

    def _request(self, event: GroupRequest) -> None:
        self._step.ask(event.call, event.group)
        refusal = self._refuse(event)
        if refusal is not None:
            self._step.answer(event.call, refused(event, refusal))
            return
        group = self._groups.get(event.group) or self._recall(event.group)
        count = len(group.membership.members)
        match event:
            case JoinRequested():
                group.join(event)
            case SyncRequested():
                group.sync(event)
            case HeartbeatRequested():
                group.heartbeat(event)
            case LeaveRequested():
                group.leave(event)
            case CommitChecked():
                group.check_commit(event)
                if event.generation < 0 and event.group in self._empty_since_ms:
                    self._empty_since_ms[event.group] = self._step.now_ms
            case DescribeRequested() if event.group in self._deleting:
                self._step.answer(event.call, DescribeAnswer(GroupError.NONE))
                return
            case DescribeRequested():
                group.describe(event)
                return
            case DeleteRequested():
                self._delete(group, event)
                return
            case _:
                assert_never(event)
        is_heartbeat = isinstance(event, HeartbeatRequested | CommitChecked)
        if is_heartbeat and count == len(group.membership.members) and event.group in self._groups:
            return  # what is due moves later, and is looked at when it was due
        self._end(group)

    def _refuse(self, event: GroupRequest) -> Refusal | None:
        if event.group in self._deleting and not isinstance(event, DescribeRequested):
            return Refusal(GroupError.COORDINATOR_NOT_AVAILABLE, f"group {event.group} is being deleted")
        is_known = event.group in self._highest
        if isinstance(event, DescribeRequested | DeleteRequested) or (
            is_known and not isinstance(event, JoinRequested)
        ):
            return None
        try:
            check_part(event.group, field="group")
        except InvalidName as error:
            return Refusal(GroupError.INVALID_GROUP_ID, str(error))
        if not isinstance(event, JoinRequested):
            return None
        if not is_known and len(self._highest) >= GROUPS_MAX:
            reason = f"there are {len(self._highest)} groups, at most {GROUPS_MAX} are allowed: delete some"
            return Refusal(GroupError.GROUP_MAX_SIZE_REACHED, reason)
        return refuse_fields(event)

    def _recall(self, name: str) -> Group:
        """A group without members."""
        highest = self._highest.get(name, Generation(0))
        takes_claims = self._at_start.get(name) == highest
        group = Group(name, self._step, highest=highest, claims_until_ms=self._claims_until_ms if takes_claims else 0)
        group.membership.members.last_type = self._types.get(name, "")
        return group

    def _end(self, group: Group) -> None:
        """The step is over for this group: remember of it what must be remembered."""
        membership, name = group.membership, group.name
        membership.end_step()
        self._highest[name] = membership.generations.highest
        if not membership.is_forgettable:
            self._groups[name] = group
            self._empty_since_ms.pop(name, None)
        elif membership.generations.highest:
            self._groups.pop(name, None)
            self._empty_since_ms.setdefault(name, self._step.now_ms)
            self._types[name] = membership.members.last_type
        else:
            self._groups.pop(name, None)
            del self._highest[name]
        self._bytes_sum += membership.size - self._bytes.pop(name, 0)
        if membership.size:
            self._bytes[name] = membership.size
        self._schedule(name, membership.due_ms())

    def _abandon(self, call: int) -> None:
        name = self._step.waiting.pop(call, None)
        if name is None:
            return
        if self._deleting.get(name) == call:
            self._deleting[name] = None
            return
        group = self._groups[name]
        group.membership.abandon(call)
        self._end(group)

    def _write_ended(self, event: GenerationWritten | GenerationFailed) -> None:
        group = self._groups.get(event.group)
        if group is None:
            return
        if isinstance(event, GenerationWritten):
            group.membership.generations.written(event.generation)
        else:
            group.membership.write_failed(event.generation, event.error)
        self._end(group)

    # --- all groups ---------------------------------------------------------------------------------------------------

    def _list(self, call: int) -> None:
        self._step.ask(call, "")
        listed = []
        for name in sorted(self._highest):
            group = self._groups.get(name)
            state = GroupState.EMPTY if group is None else group.membership.state
            state = GroupState.DEAD if name in self._deleting else state
            type_ = self._types.get(name, "") if group is None else group.membership.members.last_type
            listed.append(ListedGroup(name, type_, state, self._empty_for_ms(name)))
        self._step.answer(call, ListAnswer(tuple(listed)))

    def _empty_for_ms(self, name: str) -> int:
        """0: the group is not empty."""
        return self._step.now_ms - self._empty_since_ms.get(name, self._step.now_ms)

    def _delete(self, group: Group, event: DeleteRequested) -> None:
        highest = self._highest.get(event.group)
        if not highest:
            reason = f"group {event.group} never had a generation"
            self._step.answer(event.call, DeleteAnswer(GroupError.GROUP_ID_NOT_FOUND, reason=reason))
            return
        refusal = group.refuse_deletion()
        if refusal is None and event.generation not in (None, highest):
            reason = f"generation {highest} of group {event.group} has ended since {event.generation}"
            refusal = Refusal(GroupError.NON_EMPTY_GROUP, reason)
        if refusal is None and (empty_for_ms := self._empty_for_ms(event.group)) < event.empty_for_ms:
            reason = f"group {event.group} has been empty for {empty_for_ms} ms, not for {event.empty_for_ms}"
            refusal = Refusal(GroupError.NON_EMPTY_GROUP, reason)
        if refusal is not None:
            self._step.answer(event.call, DeleteAnswer(refusal.error, reason=refusal.reason))
        elif event.generation is None:
            self._step.answer(event.call, DeleteAnswer(GroupError.NONE, highest))
        else:
            self._deleting[event.group] = event.call
            self._step.effects.append(DeleteGeneration(event.group))

    def _deletion_ended(self, event: GenerationDeleted | DeletionFailed) -> None:
        if event.group not in self._deleting:
            return
        call = self._deleting.pop(event.group)
        answer = DeleteAnswer(GroupError.NONE, self._highest[event.group])
        if isinstance(event, DeletionFailed):
            reason = f"group {event.group} was not deleted: {event.error}"
            answer = DeleteAnswer(GroupError.COORDINATOR_NOT_AVAILABLE, reason=reason)
        else:
            self._forget(event.group)
        if call is not None:
            self._step.answer(call, answer)

    def _forget(self, name: str) -> None:
        """Also ids of the group that were given and not used."""
        self._groups.pop(name, None)
        self._due.pop(name, None)
        self._bytes_sum -= self._bytes.pop(name, 0)
        del self._highest[name]
        self._at_start.pop(name, None)
        self._empty_since_ms.pop(name, None)
        self._types.pop(name, None)

    def check_invariants(self) -> None:
        """Of every state, after each step."""
        waiting = {call: name for name, call in self._deleting.items() if call is not None}
        for name, group in self._groups.items():
            group.membership.check_invariants()
            if group.membership.is_forgettable or name not in self._highest:
                raise InvariantViolated(f"group {name} should be forgotten, or is not known")
            for member in group.membership.members:
                waiting |= {call: name for call in (member.join_call, member.sync_call) if call is not None}
        if waiting != self._step.waiting:
            raise InvariantViolated(f"calls {self._step.waiting} have no answer, groups hold {waiting}")
        held = {name: group.membership.size for name, group in self._groups.items() if group.membership.size}
        if self._bytes != held or self._bytes_sum != sum(held.values()):
            raise InvariantViolated(f"groups hold {held} bytes, counted are {self._bytes}")
        if len(self._heap) > 2 * len(self._due) + _PAST_ENTRIES:
            raise InvariantViolated(f"{len(self._heap)} times for {len(self._due)} groups")
        if any(name not in self._groups for name in self._due):
            raise InvariantViolated("a group without members is due")
        if self._empty_since_ms.keys() != self._highest.keys() - self._groups.keys():
            raise InvariantViolated(f"empty are said to be {self._empty_since_ms}, with members {list(self._groups)}")
        if not self._types.keys() <= self._highest.keys():
            raise InvariantViolated(f"types {self._types} of groups that are not known")


def refused(event: GroupRequest, refusal: Refusal) -> GroupAnswer:
    """The answer to a request that no group has seen."""
    error, reason = refusal
    match event:
        case JoinRequested():
            return JoinAnswer(error, event.member_id, reason=reason)
        case SyncRequested():
            return SyncAnswer(error, reason=reason)
        case HeartbeatRequested():
            return HeartbeatAnswer(error, reason)
        case LeaveRequested():
            return LeaveAnswer(error, reason=reason)
        case CommitChecked():
            return CommitAnswer(error, reason=reason)
        case DescribeRequested():
            return DescribeAnswer(error, reason=reason)
        case DeleteRequested():
            return DeleteAnswer(error, reason=reason)
        case _:
            assert_never(event)
