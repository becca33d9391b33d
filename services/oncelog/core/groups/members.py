"""The members of one group: by member id, by instance id, and what they have in common.

A member is *claimed* while only its heartbeats are known, after a coordinator was lost: it offers no protocols, and has
no vote. A *pending* member is an id that was given with MEMBER_ID_REQUIRED, and nothing else.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from oncelog.core.errors import InvariantViolated
from oncelog.core.groups.events import JoinRequested, Protocol
from oncelog.core.groups.limits import MEMBER_BYTES, PROTOCOL_BYTES

KeyOf = TypeVar("KeyOf")


@dataclass(slots=True)
class Member:
    """Times are ms of the coordinator's clock. join_call, sync_call: its request that waits for an answer."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    #: the preferred one first; empty: the member is claimed
    protocols: tuple[Protocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    #: when the member showed last that it lives
    heard_ms: int
    join_call: int | None = None
    sync_call: int | None = None
    #: as the leader of the current generation gave it
    assignment: bytes = b""
    #: the client does not know its member id: no request of it was answered yet
    is_anonymous: bool = False
    #: it was answered the current generation, and has not sent SyncGroup
    owes_sync: bool = False
    #: what counts against METADATA_BYTES_MAX
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = _size(self.member_id, self.instance_id, self.client_id, self.client_host, self.protocols)

    @classmethod
    def of(cls, event: JoinRequested, now_ms: int) -> "Member":
        timeout_ms = event.rebalance_timeout_ms if event.rebalance_timeout_ms >= 0 else event.session_timeout_ms
        return cls(
            event.member_id or event.new_member_id, event.instance_id, event.client_id, event.client_host,
            event.protocol_type, event.protocols, event.session_timeout_ms, timeout_ms, now_ms,
            is_anonymous=not event.member_id,
        )  # fmt: skip

    @property
    def is_claimed(self) -> bool:
        return not self.protocols

    def offers(self) -> tuple[str, ...]:
        """The names of its protocols, each once."""
        return tuple(dict.fromkeys(each.name for each in self.protocols))

    @property
    def is_waiting(self) -> bool:
        """Its request has no answer yet: it cannot be silent."""
        return self.join_call is not None or self.sync_call is not None

    @property
    def cannot_return(self) -> bool:
        """Its client would come back as another member."""
        return self.is_anonymous and self.instance_id is None

    def metadata(self, protocol: str) -> bytes:
        """Of this protocol; empty if the member does not offer it."""
        return next((each.metadata for each in self.protocols if each.name == protocol), b"")


def size_of(event: JoinRequested) -> int:
    """What the member will count against METADATA_BYTES_MAX."""
    member_id = event.member_id or event.new_member_id
    return _size(member_id, event.instance_id, event.client_id, event.client_host, event.protocols)


def _size(
    member_id: str, instance_id: str | None, client_id: str, client_host: str, protocols: tuple[Protocol, ...]
) -> int:
    names = (member_id, instance_id or "", client_id, client_host, *(each.name for each in protocols))
    own = MEMBER_BYTES + PROTOCOL_BYTES * len(protocols)
    return own + sum(len(each.encode()) for each in names) + sum(len(each.metadata) for each in protocols)


def _pending_size(member_id: str) -> int:
    return PROTOCOL_BYTES + len(member_id.encode())


def _uncount_one(counts: Counter[KeyOf], key: KeyOf) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


class Members:
    """In the order in which they came."""

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        #: {instance id: its member}
        self._instances: dict[str, Member] = {}
        #: {id of a pending member: until when it may join}
        self.pending: dict[str, int] = {}
        #: {protocol: how many members offer it}
        self._offers: Counter[str] = Counter()
        #: {rebalance timeout: how many members have it}, without those that are claimed
        self._timeouts: Counter[int] = Counter()
        #: members that are not claimed
        self._voters = 0
        #: what counts against METADATA_BYTES_MAX
        self.size = 0
        self.assignment_bytes = 0
        #: of all members that are not claimed; empty without them
        self.protocol_type = ""
        #: the same, also after they have left: as in Kafka, a group keeps its type
        self.last_type = ""

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        """Members must not be added or removed meanwhile."""
        return iter(self._members.values())

    def get(self, member_id: str) -> Member | None:
        return self._members.get(member_id)

    def holder(self, instance_id: str | None) -> Member | None:
        """The member that has this instance id."""
        return None if instance_id is None else self._instances.get(instance_id)

    @property
    def rebalance_timeout_ms(self) -> int | None:
        """The largest of the members; None: it is known of none."""
        return max(self._timeouts, default=None)

    # --- changes ------------------------------------------------------------------------------------------------------

    def expect(self, member_id: str, until_ms: int) -> None:
        """The id is pending."""
        self.pending[member_id] = until_ms
        self.size += _pending_size(member_id)

    def expect_no_more(self, member_id: str) -> bool:
        """Whether the id was pending until now."""
        if self.pending.pop(member_id, None) is None:
            return False
        self.size -= _pending_size(member_id)
        return True

    def add(self, member: Member, *, instead_of: Member | None = None) -> None:
        """instead_of: the member goes, and the new one has its place in the order if it has its id."""
        if instead_of is not None:
            self._uncount(instead_of)
            if instead_of.member_id != member.member_id:
                del self._members[instead_of.member_id]
        elif member.member_id in self._members:
            raise InvariantViolated(f"member {member.member_id} is added twice")
        self._members[member.member_id] = member
        if member.instance_id is not None:
            self._instances[member.instance_id] = member
        self.size += member.size
        self.assignment_bytes += len(member.assignment)
        if not member.is_claimed:
            self._voters += 1
            self._offers.update(member.offers())
            self._timeouts[member.rebalance_timeout_ms] += 1
            self.protocol_type = self.last_type = member.protocol_type

    def remove(self, member: Member) -> None:
        self._uncount(member)
        del self._members[member.member_id]

    def _uncount(self, member: Member) -> None:
        if member.instance_id is not None:
            del self._instances[member.instance_id]
        self.size -= member.size
        self.assignment_bytes -= len(member.assignment)
        if not member.is_claimed:
            self._voters -= 1
            for name in member.offers():
                _uncount_one(self._offers, name)
            _uncount_one(self._timeouts, member.rebalance_timeout_ms)
        if not self._voters:
            self.protocol_type = ""

    def assign(self, assignments: Mapping[str, bytes]) -> None:
        """assignments: {member id: its assignment}; others have an empty one."""
        for member in self._members.values():
            member.assignment = assignments.get(member.member_id, b"")
        self.assignment_bytes = sum(len(each.assignment) for each in self._members.values())

    # --- protocols ----------------------------------------------------------------------------------------------------

    def agree_with(self, event: JoinRequested, member: Member | None) -> bool:
        """Whether the others have a protocol in common with the one that joins. member: the one that it is, or
        replaces."""
        if not event.protocol_type or not event.protocols:
            return False
        counts = member is not None and not member.is_claimed
        others = self._voters - counts
        if not others:
            return True
        own = member.offers() if member is not None else ()
        return event.protocol_type == self.protocol_type and any(
            self._offers[each.name] - (each.name in own) == others for each in event.protocols
        )

    def choose_protocol(self) -> str:
        """Each member votes for the first of its protocols that all offer. Of several with the most votes, the one that
        the first member prefers."""
        voters = [each for each in self._members.values() if not each.is_claimed]
        common = {name for name, count in self._offers.items() if count == len(voters)}
        votes = Counter(next(each.name for each in member.protocols if each.name in common) for member in voters)
        most = max(votes.values())
        return next(each.name for each in voters[0].protocols if votes[each.name] == most)

    def check_invariants(self) -> None:
        voters = [each for each in self._members.values() if not each.is_claimed]
        offers = Counter(name for each in voters for name in each.offers())
        if self._voters != len(voters) or self._offers != offers:
            raise InvariantViolated(f"{self._voters} voters offer {self._offers}, members {offers}")
        if self._timeouts != Counter(each.rebalance_timeout_ms for each in voters):
            raise InvariantViolated(f"rebalance timeouts are counted as {self._timeouts}")
        if self.size != sum(each.size for each in self._members.values()) + sum(map(_pending_size, self.pending)):
            raise InvariantViolated(f"members are counted as {self.size} bytes")
        if self.assignment_bytes != sum(len(each.assignment) for each in self._members.values()):
            raise InvariantViolated(f"assignments are counted as {self.assignment_bytes} bytes")
        instances = {each.instance_id: each for each in self._members.values() if each.instance_id is not None}
        if self._instances != instances or any(member_id in self._members for member_id in self.pending):
            raise InvariantViolated("instance ids or pending ids differ from the members")
