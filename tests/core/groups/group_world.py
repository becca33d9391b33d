"""One coordinator without a topic: its writes of generations are kept until a test ends them, and each call has one
answer. After each step the invariants of the coordinator are checked.

`takes_over` puts a new coordinator on the durable generations: what was in flight has no answer any more.
"""

from itertools import count
from typing import Any, TypeVar

from oncelog.core.errors import ServiceUnavailable
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
    SyncAnswer,
)
from oncelog.core.groups.coordinator import Coordinator
from oncelog.core.groups.events import (
    Answer,
    Assignment,
    CallAbandoned,
    CommitChecked,
    DeleteGeneration,
    DeleteRequested,
    DescribeRequested,
    GenerationFailed,
    GenerationWritten,
    GroupEffect,
    GroupEvent,
    HeartbeatRequested,
    JoinRequested,
    LeaveRequested,
    LeavingMember,
    ListRequested,
    Protocol,
    SyncRequested,
    WriteGeneration,
)
from oncelog.core.groups.limits import INITIAL_DELAY_MS
from oncelog.core.ids import Generation

AnswerOf = TypeVar("AnswerOf")
NONE = GroupError.NONE
SESSION_MS, REBALANCE_MS = 10_000, 60_000
RANGE, STICKY = Protocol("range", b"of range"), Protocol("sticky", b"of sticky")


class World:
    """now_ms: begins anywhere, as monotonic clocks do."""

    def __init__(self, generations: dict[str, int] | None = None) -> None:
        self.now_ms = 5_000_000
        self.durable = {name: Generation(each) for name, each in (generations or {}).items()}
        self.coordinator = Coordinator(self.durable, self.now_ms)
        #: {call: its answer}, and the calls without one
        self.answers: dict[int, GroupAnswer] = {}
        self.unanswered: dict[int, GroupEvent] = {}
        #: in flight
        self.writes: list[WriteGeneration] = []
        self.deletions: list[DeleteGeneration] = []
        #: whether writes of generations succeed at once
        self.writes_at_once = True
        #: whether invariants are checked after each step; a group of 1,000 members takes long
        self.checks = True
        self._calls = count(1)
        self._ids = count(1)

    # --- steps --------------------------------------------------------------------------------------------------------

    def handle(self, event: GroupEvent) -> None:
        self._perform(self.coordinator.handle(event, self.now_ms))

    def _perform(self, effects: list[GroupEffect]) -> None:
        for effect in effects:
            match effect:
                case Answer(call, answer):
                    del self.unanswered[call]
                    self.answers[call] = answer
                    self.answered(answer)
                case WriteGeneration():
                    assert all(each.group != effect.group for each in self.writes)
                    self.writes.append(effect)
                case DeleteGeneration():
                    self.deletions.append(effect)
        if self.checks:
            self.coordinator.check_invariants()
        while self.writes_at_once and self.writes:
            self.write()

    def answered(self, answer: GroupAnswer) -> None:
        """For checks of a subclass."""

    def call(self, event: Any) -> int:
        self.unanswered[event.call] = event
        self.handle(event)
        return int(event.call)

    def next_call(self) -> int:
        return next(self._calls)

    def elapse(self, ms: int) -> None:
        """Time passes; the coordinator is called when it wants to be."""
        until = self.now_ms + ms
        while (due := self.coordinator.next_due_ms) is not None and due <= until:
            self.now_ms = max(self.now_ms, due)
            self._perform(self.coordinator.tick(self.now_ms))
            again = self.coordinator.next_due_ms
            assert again is None or again > self.now_ms, "a coordinator that is due again at once never rests"
        self.now_ms = until

    def write(self) -> None:
        """The oldest write becomes durable."""
        effect = self.writes.pop(0)
        self.durable[effect.group] = max(effect.generation, self.durable.get(effect.group, Generation(0)))
        self.handle(GenerationWritten(effect.group, self.durable[effect.group]))

    def fail_write(self, *, durable: bool = False) -> None:
        """The outcome of the oldest write is unknown to the coordinator. durable: it has become durable."""
        effect = self.writes.pop(0)
        if durable:
            self.durable[effect.group] = effect.generation
        self.handle(GenerationFailed(effect.group, effect.generation, ServiceUnavailable("no answer")))

    def takes_over(self) -> None:
        self.unanswered.clear()
        self.writes.clear()
        self.deletions.clear()
        self.coordinator = Coordinator(self.durable, self.now_ms)

    # --- requests -----------------------------------------------------------------------------------------------------

    def join(self, member_id: str = "", group: str = "g", **more: Any) -> int:
        """A dynamic member as of version 3, unless `more` says otherwise."""
        fields: dict[str, Any] = {
            "new_member_id": "" if member_id else f"m{next(self._ids)}",
            "protocol_type": "consumer",
            "protocols": (RANGE,),
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "member_id_required": False,
        }
        return self.call(JoinRequested(self.next_call(), group, member_id, **{**fields, **more}))

    def sync(self, member_id: str, generation: int, group: str = "g", **more: Any) -> int:
        return self.call(SyncRequested(self.next_call(), group, member_id, Generation(generation), **more))

    def heartbeat(
        self, member_id: str, generation: int, group: str = "g", instance_id: str | None = None
    ) -> GroupError:
        event = HeartbeatRequested(self.next_call(), group, member_id, Generation(generation), instance_id)
        return self.answer(self.call(event), HeartbeatAnswer).error

    def commit(
        self, member_id: str = "", generation: int = -1, group: str = "g", instance_id: str | None = None
    ) -> CommitAnswer:
        event = CommitChecked(self.next_call(), group, member_id, Generation(generation), instance_id)
        return self.answer(self.call(event), CommitAnswer)

    def leave(self, *members: LeavingMember | str, group: str = "g") -> list[GroupError]:
        leaving = tuple(LeavingMember(each) if isinstance(each, str) else each for each in members)
        answer = self.answer(self.call(LeaveRequested(self.next_call(), group, leaving)), LeaveAnswer)
        assert [(each.member_id, each.instance_id) for each in answer.members] == list(leaving)
        return [each.error for each in answer.members]

    def describe(self, group: str = "g") -> DescribeAnswer:
        return self.answer(self.call(DescribeRequested(self.next_call(), group)), DescribeAnswer)

    def listed(self) -> dict[str, tuple[str, GroupState]]:
        answer = self.answer(self.call(ListRequested(self.next_call())), ListAnswer)
        return {each.group: (each.protocol_type, each.state) for each in answer.groups}

    def empty_for_ms(self, group: str = "g") -> int:
        answer = self.answer(self.call(ListRequested(self.next_call())), ListAnswer)
        return next(each.empty_for_ms for each in answer.groups if each.group == group)

    def ask_deletion(self, group: str = "g", empty_for_ms: int = 0) -> DeleteAnswer:
        """The first step."""
        return self.answer(self.call(DeleteRequested(self.next_call(), group, None, empty_for_ms)), DeleteAnswer)

    def delete(self, generation: int, group: str = "g", empty_for_ms: int = 0) -> int:
        """The second step."""
        return self.call(DeleteRequested(self.next_call(), group, Generation(generation), empty_for_ms))

    def abandon(self, call: int) -> None:
        self.unanswered.pop(call, None)
        self.handle(CallAbandoned(call))

    # --- answers ------------------------------------------------------------------------------------------------------

    def answer(self, call: int, kind: type[AnswerOf]) -> AnswerOf:
        answer = self.answers[call]
        assert isinstance(answer, kind)
        return answer

    def joined(self, call: int) -> JoinAnswer:
        answer = self.answer(call, JoinAnswer)
        assert answer.error is NONE, answer
        return answer

    def join_error(self, call: int) -> GroupError:
        answer = self.answer(call, JoinAnswer)
        assert answer.error is not NONE
        assert answer.reason
        return answer.error

    def synced(self, call: int) -> bytes:
        answer = self.answer(call, SyncAnswer)
        assert answer.error is NONE, answer
        return answer.assignment

    def sync_error(self, call: int) -> GroupError:
        answer = self.answer(call, SyncAnswer)
        assert answer.error is not NONE
        assert answer.reason
        return answer.error

    def waits(self, *calls: int) -> bool:
        return all(call in self.unanswered for call in calls)

    # --- whole rounds -------------------------------------------------------------------------------------------------

    def gather(self, *calls: int) -> list[JoinAnswer]:
        """The first rebalance of a group that had no members."""
        assert self.waits(*calls)
        self.elapse(INITIAL_DELAY_MS)
        return [self.joined(call) for call in calls]

    def assign(self, answers: list[JoinAnswer], group: str = "g") -> None:
        """Each member gets its own id as its assignment; the leader syncs last."""
        generation = answers[0].generation
        leader = next(each for each in answers if each.members)
        calls = {each.member_id: self.sync(each.member_id, generation, group) for each in answers if each is not leader}
        given = tuple(Assignment(each.member_id, each.member_id.encode()) for each in leader.members)
        calls[leader.member_id] = self.sync(leader.member_id, generation, group, assignments=given)
        for member_id, call in calls.items():
            assert self.synced(call) == member_id.encode()

    def stable(self, size: int = 2, **more: Any) -> list[JoinAnswer]:
        """A stable group of members m1, m2, ...; the first one leads."""
        answers = self.gather(*(self.join(**more) for _ in range(size)))
        self.assign(answers)
        assert self.describe().state is GroupState.STABLE
        return answers
