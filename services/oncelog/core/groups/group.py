"""The requests of one group: what they are answered, by the rules of Kafka's classic group protocol.

As in Kafka 2.4, and where later versions have found that they must differ, as these:

- Heartbeats between JoinGroup and SyncGroup are accepted (2.7): a leader may need long for its assignments.
- A static member that has started again while the group waits for assignments begins a rebalance (2.8): the leader
  would give its assignment to the former member id.
- A member may change its protocols under its member id if it agrees with the others.
"""

from dataclasses import replace

from oncelog.core.groups.answers import (
    CommitAnswer,
    DescribeAnswer,
    DescribedMember,
    GroupError,
    GroupState,
    HeartbeatAnswer,
    JoinAnswer,
    LeaveAnswer,
    LeftMember,
    SyncAnswer,
)
from oncelog.core.groups.events import (
    CommitChecked,
    DescribeRequested,
    HeartbeatRequested,
    JoinRequested,
    LeaveRequested,
    LeavingMember,
    SyncRequested,
)
from oncelog.core.groups.limits import ASSIGNMENT_BYTES_MAX, CLAIMS_MS, MEMBERS_MAX, METADATA_BYTES_MAX
from oncelog.core.groups.members import Member, size_of
from oncelog.core.groups.membership import Membership, Refusal
from oncelog.core.groups.step import Step
from oncelog.core.ids import Generation


class Group:
    """Its requests are answered through `step`. `membership.end_step` is called after each of them."""

    def __init__(self, name: str, step: Step, *, highest: Generation, claims_until_ms: int) -> None:
        """highest, claims_until_ms: as of Membership."""
        self.name = name
        self.membership = Membership(name, step, highest=highest, claims_until_ms=claims_until_ms)
        self._members = self.membership.members
        self._generations = self.membership.generations
        self._step = step

    # --- JoinGroup ----------------------------------------------------------------------------------------------------

    def join(self, event: JoinRequested) -> None:
        if not event.member_id and self._joins_again(event):
            return
        holder = self._members.holder(event.instance_id)
        member = self._members.get(event.member_id) if event.member_id else holder
        refusal = (
            self._refuse_sender(event, member, holder)
            or self._refuse_protocols(event, member)
            or self._refuse_size(event, member)
        )
        if refusal is not None:
            self._step.answer(event.call, JoinAnswer(refusal.error, event.member_id, reason=refusal.reason))
        elif member is None:
            self._join_new(event)
        elif event.member_id:
            self._rejoin(member, event)
        else:
            self._restart(member, event)

    def _joins_again(self, event: JoinRequested) -> bool:
        """Whether the request came before, and its answer was lost on the way: the new id is the same. The client does
        not know it yet."""
        member = self._members.get(event.new_member_id)
        if event.new_member_id in self._members.pending:
            self._require_member_id(event)
        elif member is None:
            return False
        elif member.is_anonymous:
            self.membership.await_join(member, event.call)
        else:
            self._rejoin(member, replace(event, member_id=event.new_member_id))
        return True

    def _require_member_id(self, event: JoinRequested) -> None:
        reason = "join again with this member id"
        self._step.answer(event.call, JoinAnswer(GroupError.MEMBER_ID_REQUIRED, event.new_member_id, reason=reason))

    def _refuse_sender(self, event: JoinRequested, member: Member | None, holder: Member | None) -> Refusal | None:
        if not event.member_id:
            return None if event.new_member_id else Refusal(GroupError.INVALID_REQUEST, "new_member_id is empty")
        if holder is not None and holder is not member:
            return self.membership.fenced(holder, event.member_id)
        if member is None:
            is_expected = event.member_id in self._members.pending or self.membership.takes_claims
            return None if is_expected else self.membership.unknown(event.member_id)
        if event.instance_id not in (None, member.instance_id) and not member.is_claimed:
            return self.membership.unknown(event.member_id, f"not with instance id {event.instance_id!r}")
        return None

    def _refuse_protocols(self, event: JoinRequested, member: Member | None) -> Refusal | None:
        if self._members.agree_with(event, member):
            return None
        offered = ", ".join(each.name for each in event.protocols)
        reason = f"no protocol of type {event.protocol_type!r} in [{offered}] is common to all members of {self.name}"
        type_ = self._members.protocol_type
        return Refusal(GroupError.INCONSISTENT_GROUP_PROTOCOL, f"{reason}, which are of type {type_!r}")

    def _refuse_size(self, event: JoinRequested, member: Member | None) -> Refusal | None:
        count = len(self._members) + len(self._members.pending)
        if member is None and event.member_id not in self._members.pending and count >= MEMBERS_MAX:
            return Refusal(GroupError.GROUP_MAX_SIZE_REACHED, f"group {self.name} has {count} members, the limit")
        more = size_of(event) - (member.size if member is not None else 0)
        if more > 0 and self._members.size + more > METADATA_BYTES_MAX:
            reason = f"the metadata of group {self.name} would have {self._members.size + more} bytes"
            return Refusal(GroupError.GROUP_MAX_SIZE_REACHED, f"{reason}, at most {METADATA_BYTES_MAX} are allowed")
        if more > self._step.bytes_left:
            return Refusal(GroupError.GROUP_MAX_SIZE_REACHED, "the groups of this coordinator have no bytes left")
        return None

    def _join_new(self, event: JoinRequested) -> None:
        if not event.member_id and event.member_id_required and event.instance_id is None:
            self._members.expect(event.new_member_id, self._step.now_ms + event.session_timeout_ms)
            self._require_member_id(event)
            return
        self._members.expect_no_more(event.member_id)
        member = Member.of(event, self._step.now_ms)
        self.membership.add(member)
        self.membership.await_join(member, event.call)

    def _rejoin(self, former: Member, event: JoinRequested) -> None:
        """A known member, with what it offers now."""
        member = Member.of(replace(event, instance_id=event.instance_id or former.instance_id), self._step.now_ms)
        member.join_call, member.sync_call, member.owes_sync = former.join_call, former.sync_call, former.owes_sync
        self.membership.replace(former, member)
        state, leader = self.membership.state, self.membership.leader
        leads_stable = state is GroupState.STABLE and member.member_id == leader
        if state is GroupState.PREPARING or leads_stable or former.protocols != member.protocols:
            self.membership.await_join(member, event.call)
        else:
            self._step.answer(event.call, self.membership.joined(member, leader))

    def _restart(self, former: Member, event: JoinRequested) -> None:
        """A static member has started again: it has a new member id, and fences the former one."""
        self.membership.refuse_waiting(former, self.membership.fenced(former, former.member_id))
        member = Member.of(event, self._step.now_ms)
        leader = self.membership.leader
        self.membership.replace(former, member)
        if self.membership.state is GroupState.STABLE and former.protocols == member.protocols:
            # The leader's former id: a member that reads its own computes assignments, for which nobody waits.
            member.is_anonymous = False
            self._step.answer(event.call, self.membership.joined(member, leader))
        else:
            self.membership.await_join(member, event.call)

    # --- SyncGroup, Heartbeat, commits --------------------------------------------------------------------------------

    def sync(self, event: SyncRequested) -> None:
        found = self._find(event.member_id, event.instance_id, event.generation)
        refusal = self._refuse_sync(event, found) if isinstance(found, Member) else found
        if refusal is not None:
            self._step.answer(event.call, SyncAnswer(refusal.error, reason=refusal.reason))
            return
        assert isinstance(found, Member)
        if found.sync_call is not None:
            again = Refusal(GroupError.REBALANCE_IN_PROGRESS, f"member {found.member_id!r} has sent SyncGroup again")
            self.membership.refuse_waiting(found, again)
        found.sync_call, found.owes_sync = event.call, False
        if self.membership.state is GroupState.STABLE:
            self.membership.answer_sync(found)
        elif self._leads(found):
            self.membership.assigned(event.assignments)

    def _leads(self, member: Member) -> bool:
        return member.member_id == self.membership.leader

    def _refuse_sync(self, event: SyncRequested, member: Member) -> Refusal | None:
        if self.membership.state is GroupState.PREPARING:
            return self.membership.rebalancing()
        if event.protocol_type not in (None, self._members.protocol_type):
            return self._other_protocol(f"type {event.protocol_type!r}", self._members.protocol_type)
        if event.protocol not in (None, self.membership.protocol):
            return self._other_protocol(repr(event.protocol), self.membership.protocol)
        if self.membership.state is GroupState.STABLE or not self._leads(member):
            return None
        size = sum(len(each.assignment) for each in event.assignments)
        if size > min(ASSIGNMENT_BYTES_MAX, self._step.bytes_left):
            reason = (
                f"the assignments of group {self.name} have {size} bytes, at most {ASSIGNMENT_BYTES_MAX} are allowed"
            )
            return Refusal(GroupError.INVALID_REQUEST, reason)
        if event.highest_generation <= event.generation:
            return None
        self._generations.raise_floor(event.highest_generation)
        self.membership.begin_rebalance()
        return self.membership.rebalancing()

    def _other_protocol(self, given: str, current: str) -> Refusal:
        reason = f"the member has protocol {given}, its generation has {current!r}"
        return Refusal(GroupError.INCONSISTENT_GROUP_PROTOCOL, reason)

    def heartbeat(self, event: HeartbeatRequested) -> None:
        found = self._find(event.member_id, event.instance_id, event.generation)
        if isinstance(found, Member):
            found.heard_ms = self._step.now_ms
            if self.membership.state is not GroupState.PREPARING:
                self._step.answer(event.call, HeartbeatAnswer(GroupError.NONE))
                return
            found = self.membership.rebalancing()
        self._step.answer(event.call, HeartbeatAnswer(found.error, found.reason))

    def check_commit(self, event: CommitChecked) -> None:
        refusal = self._refuse_outsider() if event.generation < 0 else self._refuse_commit(event)
        if refusal is not None:
            self._step.answer(event.call, CommitAnswer(refusal.error, reason=refusal.reason))
            return
        generation = self._generations.highest if event.generation < 0 else event.generation
        self._step.answer(event.call, CommitAnswer(GroupError.NONE, generation))

    def _refuse_outsider(self) -> Refusal | None:
        """A client that is no member."""
        if self._members:
            return Refusal(GroupError.UNKNOWN_MEMBER_ID, f"group {self.name} has members: only they may commit")
        return self._refuse_as_loading()

    def _refuse_commit(self, event: CommitChecked) -> Refusal | None:
        found = self._find(event.member_id, event.instance_id, event.generation)
        if not isinstance(found, Member):
            return found
        found.heard_ms = self._step.now_ms
        return self.membership.rebalancing() if self.membership.state is GroupState.COMPLETING else None

    def _find(self, member_id: str, instance_id: str | None, generation: Generation) -> Member | Refusal:
        """The member of the current generation with this id; it is claimed if need be."""
        holder = self._members.holder(instance_id)
        if holder is not None and holder.member_id != member_id:
            return self.membership.fenced(holder, member_id)
        member = self._members.get(member_id)
        if member is None and not (self.membership.takes_claims and member_id):
            return self.membership.unknown(member_id)
        current = self._generations.current
        if generation != current:
            reason = f"generation {generation} of group {self.name} is not the current one, {current}"
            return Refusal(GroupError.ILLEGAL_GENERATION, reason)
        return self._claim(member_id, instance_id) if member is None else member

    def _claim(self, member_id: str, instance_id: str | None) -> Member | Refusal:
        member = Member(member_id, instance_id, "", "", "", (), CLAIMS_MS, 0, self._step.now_ms)
        room = min(METADATA_BYTES_MAX - self._members.size, self._step.bytes_left)
        if len(self._members) + len(self._members.pending) >= MEMBERS_MAX or member.size > room:
            return self.membership.unknown(member_id, "the group is at its limit of members or bytes")
        self._members.expect_no_more(member_id)
        self.membership.add(member)
        return member

    # --- the rest -----------------------------------------------------------------------------------------------------

    def leave(self, event: LeaveRequested) -> None:
        left = tuple(LeftMember(*each, self._leave(each)) for each in event.members)
        self._step.answer(event.call, LeaveAnswer(GroupError.NONE, left))

    def _leave(self, leaving: LeavingMember) -> GroupError:
        holder = self._members.holder(leaving.instance_id)
        if holder is not None and leaving.member_id not in ("", holder.member_id):
            return GroupError.FENCED_INSTANCE_ID
        if self._members.expect_no_more(leaving.member_id):
            return GroupError.NONE
        member = holder or self._members.get(leaving.member_id)
        if member is None:
            return GroupError.UNKNOWN_MEMBER_ID
        self.membership.remove(member, "it has left")
        return GroupError.NONE

    def describe(self, event: DescribeRequested) -> None:
        refusal = self._refuse_as_loading()
        if refusal is not None:
            self._step.answer(event.call, DescribeAnswer(refusal.error, reason=refusal.reason))
            return
        membership, highest = self.membership, self._generations.highest
        is_stable = membership.state is GroupState.STABLE
        protocol = membership.protocol if is_stable else ""
        members = tuple(
            DescribedMember(
                each.member_id, each.instance_id, each.client_id, each.client_host, each.metadata(protocol),
                each.assignment if is_stable else b"",
            )
            for each in self._members
        )  # fmt: skip
        state = GroupState.DEAD if not highest and membership.is_forgettable else membership.state
        type_ = self._members.last_type
        self._step.answer(event.call, DescribeAnswer(GroupError.NONE, state, highest, type_, protocol, members))

    def refuse_deletion(self) -> Refusal | None:
        """Why the group cannot be deleted now."""
        if self._members or self._generations.writing is not None:
            return Refusal(GroupError.NON_EMPTY_GROUP, f"group {self.name} has {len(self._members)} members")
        return self._refuse_as_loading()

    def _refuse_as_loading(self) -> Refusal | None:
        """While claims are taken, a group without members may have some."""
        if self._members or not self.membership.takes_claims:
            return None
        left_ms = self.membership.claims_until_ms - self._step.now_ms
        reason = f"whether group {self.name} has members is not known yet: ask again in {left_ms} ms"
        return Refusal(GroupError.COORDINATOR_LOAD_IN_PROGRESS, reason)
