"""Who is a member of one group, and how its generations follow each other.

    EMPTY --a member joins, or is claimed--> PREPARING
    PREPARING --all members wait in JoinGroup, or the rebalance timeout is over, and the next generation is durable-->
              COMPLETING (JoinGroup is answered)
    COMPLETING --the leader's assignments--> STABLE (SyncGroup is answered)
    COMPLETING, STABLE --a member joins, leaves, falls silent or changes; the leader joins--> PREPARING
    any --its last member is gone--> EMPTY

Rules
- The current generation, with its leader and protocol, is that of the last JoinGroup that was answered, until the next
  one begins. The next one is made durable while joins and leaves go on: who belongs to it is decided when it begins.
- A member that waits for an answer cannot be silent. Others are removed after their session timeout.
- Dynamic members that have not joined when the rebalance timeout is over are removed. Static ones keep their place
  until their session ends.
- A member that was answered JoinGroup and sends no SyncGroup within the rebalance timeout is removed, as in Kafka 3:
  a leader that only sends heartbeats would stop its group for ever.
- Claims: after a takeover, who was a member is not known. For a while a request with the durable generation claims that
  its sender is one, and its answer sends it to JoinGroup. What it has consumed it may commit meanwhile: no member has a
  newer generation. Claims end when the next generation begins.
"""

from typing import NamedTuple

from oncelog.core.errors import InvariantViolated, OncelogError, Retriable
from oncelog.core.groups.answers import GroupError, GroupState, JoinAnswer, JoinedMember, SyncAnswer
from oncelog.core.groups.events import Assignment, WriteGeneration
from oncelog.core.groups.generations import Generations
from oncelog.core.groups.limits import (
    CLAIM_DELAY_MS,
    GENERATION_MAX,
    INITIAL_DELAY_MS,
    SESSION_TIMEOUT_MS_MIN,
)
from oncelog.core.groups.members import Member, Members
from oncelog.core.groups.step import Step
from oncelog.core.ids import Generation

_ACTIVE = (GroupState.COMPLETING, GroupState.STABLE)


class Refusal(NamedTuple):
    error: GroupError
    reason: str


class Membership:
    """`end_step` is called after each event that concerns the group."""

    def __init__(self, name: str, step: Step, *, highest: Generation, claims_until_ms: int) -> None:
        """highest: no generation above it was given to anyone. claims_until_ms: of the coordinator's clock."""
        self.name = name
        self.state = GroupState.EMPTY
        self.members = Members()
        self.generations = Generations(highest)
        #: of the current generation; empty while there is none
        self.leader = ""
        self.protocol = ""
        self.claims_until_ms = claims_until_ms if highest else 0
        self._step = step
        #: PREPARING: since when
        self._since_ms = 0
        #: PREPARING of a group that had no members: until when it waits for more
        self._gather_until_ms: int | None = None
        #: COMPLETING, STABLE: until when members must send SyncGroup
        self._sync_until_ms = 0

    @property
    def is_forgettable(self) -> bool:
        """Whether its highest generation is all that must be known of it."""
        return not self.members and not self.members.pending and self.generations.writing is None

    @property
    def size(self) -> int:
        """Bytes of its metadata and assignments."""
        return self.members.size + self.members.assignment_bytes

    @property
    def takes_claims(self) -> bool:
        return self._step.now_ms < self.claims_until_ms

    # --- members ------------------------------------------------------------------------------------------------------

    def add(self, member: Member) -> None:
        """A new member. Into a group that had none, it has others wait for more, up to the rebalance timeout."""
        self.members.add(member)
        self.begin_rebalance()
        self._gather()

    def replace(self, former: Member, member: Member) -> None:
        """The member takes the place of the former one, also as the leader."""
        member.assignment = former.assignment
        self.members.add(member, instead_of=former)
        if self.leader == former.member_id:
            self.leader = member.member_id
        if former.is_claimed:
            self._gather()

    def await_join(self, member: Member, call: int) -> None:
        """The member joins the next generation."""
        self.begin_rebalance()
        if member.join_call is not None:
            reason = f"member {member.member_id!r} has sent JoinGroup again"
            answer = JoinAnswer(GroupError.REBALANCE_IN_PROGRESS, member.member_id, reason=reason)
            self._step.answer(member.join_call, answer)
        member.join_call = call

    def remove(self, member: Member, why: str) -> None:
        self.refuse_waiting(member, self.unknown(member.member_id, why))
        self.members.remove(member)
        if member.member_id == self.leader:
            self.leader = ""
        self.begin_rebalance()

    def abandon(self, call: int) -> None:
        """The client that waits for this answer is gone. It may come back with its member id, if it knows it."""
        member = next(each for each in self.members if call in (each.join_call, each.sync_call))
        member.heard_ms = self._step.now_ms
        if call == member.sync_call:
            member.sync_call = None
        else:
            member.join_call = None
            if member.cannot_return:
                self.remove(member, "its client is gone")

    def refuse_waiting(self, member: Member, refusal: Refusal) -> None:
        """Answer what the member waits for."""
        if member.is_waiting:
            member.heard_ms = self._step.now_ms
        if member.join_call is not None:
            answer = JoinAnswer(refusal.error, member.member_id, reason=refusal.reason)
            self._step.answer(member.join_call, answer)
        if member.sync_call is not None:
            self._step.answer(member.sync_call, SyncAnswer(refusal.error, reason=refusal.reason))
        member.join_call = member.sync_call = None

    # --- rebalance ----------------------------------------------------------------------------------------------------

    def begin_rebalance(self) -> None:
        """All members must join again; nothing happens if they must already."""
        if self.state is GroupState.PREPARING:
            return
        for member in self.members:
            member.owes_sync = False
            self.refuse_waiting(member, self.rebalancing())
        was_empty = self.state is GroupState.EMPTY
        self.state, self._since_ms = GroupState.PREPARING, self._step.now_ms
        self._gather_until_ms = self._step.now_ms if was_empty else None

    def _gather(self) -> None:
        if self._gather_until_ms is None:
            return
        until = self._step.now_ms + (CLAIM_DELAY_MS if self.takes_claims else INITIAL_DELAY_MS)
        deadline = self._deadline_ms()
        self._gather_until_ms = until if deadline is None else min(until, deadline)

    def end_step(self) -> None:
        """Begin the next generation, as soon as that may be."""
        if not self.members:
            self._become_empty()
        if self.state is not GroupState.PREPARING or not self._may_begin():
            return
        if self.generations.is_ready:
            self._begin_generation()
        elif self.generations.writing is None:
            if self.generations.next > GENERATION_MAX:
                self._end_exhausted()
            else:
                self._step.effects.append(WriteGeneration(self.name, self.generations.begin_write()))

    def _become_empty(self) -> None:
        self.state = GroupState.EMPTY
        self.leader = self.protocol = ""

    def _may_begin(self) -> bool:
        """Whether all members that the next generation will have wait for it."""
        now = self._step.now_ms
        if self._gather_until_ms is not None:
            if now < self._gather_until_ms:
                return False
            self._gather_until_ms = None
        if not self.members.pending and all(each.join_call is not None for each in self.members):
            return True
        deadline = self._deadline_ms()
        if deadline is None or now < deadline:
            return False
        absent = [each for each in self.members if each.join_call is None]
        if len(absent) == len(self.members):
            self._since_ms = now  # no member waits, and their sessions end
            return False
        for member in absent:
            if member.instance_id is None or member.is_claimed:
                self.remove(member, "it did not join within the rebalance timeout")
        return True

    def _deadline_ms(self) -> int | None:
        """None: no member has said how long it needs."""
        timeout = self.members.rebalance_timeout_ms
        return None if timeout is None else self._since_ms + timeout

    def _begin_generation(self) -> None:
        self.generations.begin()
        self.claims_until_ms = 0
        self.state = GroupState.COMPLETING
        joined = [each for each in self.members if each.join_call is not None]
        if all(each.member_id != self.leader for each in joined):
            self.leader = joined[0].member_id
        self.protocol = self.members.choose_protocol()
        # A rebalance timeout of 0 is legal, and nobody could answer in time.
        self._sync_until_ms = self._step.now_ms + max(self.members.rebalance_timeout_ms or 0, SESSION_TIMEOUT_MS_MIN)
        self.members.assign({})
        for member in joined:
            assert member.join_call is not None
            self._step.answer(member.join_call, self.joined(member, self.leader))
            member.join_call, member.heard_ms = None, self._step.now_ms
            member.owes_sync, member.is_anonymous = True, False

    def joined(self, member: Member, leader: str) -> JoinAnswer:
        """The current generation. leader: the member id that the member is told; it gets all members if it is its
        own."""
        members: tuple[JoinedMember, ...] = ()
        if member.member_id == leader:
            members = tuple(
                JoinedMember(each.member_id, each.instance_id, each.metadata(self.protocol)) for each in self.members
            )
        return JoinAnswer(
            GroupError.NONE, member.member_id, self.generations.current, self.members.protocol_type, self.protocol,
            leader, members,
        )  # fmt: skip

    def assigned(self, assignments: tuple[Assignment, ...]) -> None:
        """By the leader: SyncGroup is answered."""
        self.members.assign({each.member_id: each.assignment for each in assignments})
        self.state = GroupState.STABLE
        for member in self.members:
            self.answer_sync(member)

    def answer_sync(self, member: Member) -> None:
        """If the member waits for its assignment."""
        if member.sync_call is not None:
            answer = SyncAnswer(GroupError.NONE, member.assignment, self.members.protocol_type, self.protocol)
            self._step.answer(member.sync_call, answer)
            member.sync_call, member.heard_ms = None, self._step.now_ms

    # --- the durable generation ---------------------------------------------------------------------------------------

    def write_failed(self, generation: Generation, error: OncelogError) -> None:
        """Members that wait are sent away to join again: it is unknown whether the generation is durable, so the next
        one is above it."""
        if not self.generations.failed(generation):
            return
        code = GroupError.COORDINATOR_NOT_AVAILABLE if isinstance(error, Retriable) else GroupError.UNKNOWN_SERVER_ERROR
        self._since_ms = self._step.now_ms
        self._fail_joins(Refusal(code, f"generation {generation} of group {self.name} was not written: {error}"))

    def _fail_joins(self, refusal: Refusal) -> None:
        for member in list(self.members):
            if member.join_call is not None:
                self.refuse_waiting(member, refusal)
                if member.cannot_return:
                    self.members.remove(member)

    def _end_exhausted(self) -> None:
        reason = (
            f"group {self.name} has used up its generations, the last one is {GENERATION_MAX}: use another group id"
        )
        self._fail_joins(Refusal(GroupError.UNKNOWN_SERVER_ERROR, reason))
        for member in list(self.members):
            self.members.remove(member)
        self._become_empty()

    # --- time ---------------------------------------------------------------------------------------------------------

    def expire(self) -> None:
        """Remove the members that are silent, and ids that were given and not used."""
        now = self._step.now_ms
        for member_id, until_ms in list(self.members.pending.items()):
            if now >= until_ms:
                self.members.expect_no_more(member_id)
        silent = [
            each for each in self.members if not each.is_waiting and now >= each.heard_ms + each.session_timeout_ms
        ]
        owing = [each for each in self.members if each.owes_sync and each not in silent and now >= self._sync_until_ms]
        for member in silent:
            self.remove(member, "its session timeout is over")
        for member in owing:
            self.remove(member, "it has sent no SyncGroup within the rebalance timeout")

    def due_ms(self) -> int | None:
        """When `expire` or `end_step` has something to do, unless an event comes first."""
        times = list(self.members.pending.values())
        owed = False
        for member in self.members:
            if member.join_call is None and member.sync_call is None:
                times.append(member.heard_ms + member.session_timeout_ms)
                owed = owed or member.owes_sync
        if self.state is GroupState.PREPARING:
            until = self._deadline_ms() if self._gather_until_ms is None else self._gather_until_ms
            if until is not None and until > self._step.now_ms:
                times.append(until)
        elif owed:
            times.append(self._sync_until_ms)
        return min(times, default=None)

    # --- refusals -----------------------------------------------------------------------------------------------------

    def unknown(self, member_id: str, why: str = "it never joined, or was removed") -> Refusal:
        return Refusal(GroupError.UNKNOWN_MEMBER_ID, f"{member_id!r} is no member of group {self.name}: {why}")

    def fenced(self, holder: Member, member_id: str) -> Refusal:
        reason = f"instance id {holder.instance_id!r} of group {self.name} belongs to another member than {member_id!r}"
        return Refusal(GroupError.FENCED_INSTANCE_ID, reason)

    def rebalancing(self) -> Refusal:
        return Refusal(GroupError.REBALANCE_IN_PROGRESS, f"group {self.name} is being rebalanced")

    def check_invariants(self) -> None:
        """Of every state, after each step."""
        self.members.check_invariants()
        if (self.state is GroupState.EMPTY) != (not self.members):
            raise InvariantViolated(f"{self.state} with {len(self.members)} members")
        if self.state in _ACTIVE and self.members.get(self.leader) is None:
            raise InvariantViolated(f"leader {self.leader!r} is no member")
        if self.state is not GroupState.PREPARING and any(each.join_call is not None for each in self.members):
            raise InvariantViolated(f"a member waits in JoinGroup, and the group is {self.state}")
        if self.state is not GroupState.COMPLETING and any(each.sync_call is not None for each in self.members):
            raise InvariantViolated(f"a member waits in SyncGroup, and the group is {self.state}")
