"""Clients of one group as Kafka's consumers behave, and what must be true of every answer that they get.

The oracles know nothing of the coordinator's state: they see requests, answers and which generations are durable.

- No member is answered a generation that is not durable.
- Of one generation, all members have the same protocol and leader, and one member gets the list of members.
- When a generation was answered, no request of an earlier one is accepted any more, by any coordinator.
- A member gets the assignment that the leader of its generation gave to it, or to its static predecessor.
- After the loss of a coordinator, commits of the generation that was answered last are accepted.
- A client outside of the group may not commit while a member is within its session.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Any

from oncelog.core.groups.answers import (
    CommitAnswer,
    GroupAnswer,
    GroupError,
    GroupState,
    HeartbeatAnswer,
    JoinAnswer,
    SyncAnswer,
)
from oncelog.core.groups.events import (
    Assignment,
    CommitChecked,
    HeartbeatRequested,
    JoinRequested,
    LeaveRequested,
    LeavingMember,
    Protocol,
    SyncRequested,
)
from oncelog.core.groups.limits import CLAIMS_MS
from oncelog.core.ids import Generation
from tests.core.groups.group_world import NONE, RANGE, STICKY, World

SESSION_MS, REBALANCE_MS = 10_000, 30_000
HEARTBEAT_MS = 3_000


@dataclass(eq=False)
class Client:
    """One process with a consumer. generation: of its last JoinGroup; 0: it has none and must join."""

    number: int
    instance_id: str | None
    member_id_required: bool
    member_id: str = ""
    generation: int = 0
    is_synced: bool = False
    protocols: tuple[Protocol, ...] = (RANGE, STICKY)
    #: the request that waits, and the assignments to give when it leads
    call: int | None = None
    members: tuple[str, ...] = ()
    is_dead: bool = False
    heard_ms: int = -(10**9)


@dataclass
class Given:
    """What members learned of one generation."""

    protocols: set[str] = field(default_factory=set)
    leaders: set[str] = field(default_factory=set)
    assignments: list[dict[str, bytes]] = field(default_factory=list)


class ModelWorld(World):
    """Members of the group `g`."""

    def __init__(self, seed: object) -> None:
        super().__init__()
        self.writes_at_once = False
        self.random = Random(str(seed))
        self.clients: list[Client] = []
        self.started = 0
        self.given: dict[int, Given] = {}
        #: the highest generation that anyone was answered
        self.newest = 0
        #: {call of a client: its request}, until the client has read the answer
        self.requests: dict[int, Any] = {}
        #: no more partitions with higher generations, and no lost answers
        self.is_calm = False
        #: {instance id: the member ids that it has asked for}; a restarted one gets what its predecessor was given
        self.instances: dict[str, set[str]] = {}
        self.taken_over_ms = -(10**9)
        self.durable_at_takeover = 0
        #: what happened, so that a run that never reaches something is noticed
        self.seen: set[str] = set()

    @property
    def live(self) -> list[Client]:
        return [each for each in self.clients if not each.is_dead]

    def answered(self, answer: GroupAnswer) -> None:
        if isinstance(answer, JoinAnswer) and answer.error is NONE:
            assert answer.generation <= self.durable["g"], f"generation {answer.generation} is not durable"
            self.newest = max(self.newest, answer.generation)

    # --- what clients do ----------------------------------------------------------------------------------------------

    def start(self, instance_id: str | None = None) -> Client:
        self.started += 1
        client = Client(self.started, instance_id, self.random.random() < 0.5)
        self.clients.append(client)
        return client

    def step(self, client: Client) -> None:
        """Its next request, unless one waits."""
        if client.is_dead or client.call is not None:
            return
        if not client.generation:
            self.ask(client, self.join_of(client))
        elif not client.is_synced:
            self.ask(client, self.sync_of(client))
        else:
            me = (client.member_id, Generation(client.generation), client.instance_id)
            if self.is_calm or self.random.random() < 0.3:
                self.ask(client, CommitChecked(self.next_call(), "g", *me))
            if client.generation and (self.is_calm or self.random.random() < 0.7):
                self.ask(client, HeartbeatRequested(self.next_call(), "g", *me))

    def join_of(self, client: Client) -> JoinRequested:
        new_id = "" if client.member_id else f"m{next(self._ids)}"
        if client.instance_id is not None:
            self.instances.setdefault(client.instance_id, set()).add(new_id)
        return JoinRequested(
            self.next_call(), "g", client.member_id, new_id, "consumer",
            client.protocols, SESSION_MS, REBALANCE_MS, client.instance_id,
            member_id_required=client.member_id_required,
        )  # fmt: skip

    def sync_of(self, client: Client) -> SyncRequested:
        assignments = tuple(Assignment(each, f"{client.generation} {each}".encode()) for each in client.members)
        if assignments:
            self.given[client.generation].assignments.append(dict(assignments))
        is_higher = not self.is_calm and self.random.random() < 0.1
        highest = client.generation + self.random.randrange(3) if is_higher else 0
        return SyncRequested(
            self.next_call(), "g", client.member_id, Generation(client.generation), assignments, Generation(highest),
            client.instance_id,
        )  # fmt: skip

    def ask(self, client: Client, event: Any) -> None:
        client.call = event.call
        self.requests[event.call] = event
        self.call(event)
        self.read_answers()

    def read_answers(self) -> None:
        for client in self.clients:
            if client.call is not None and client.call in self.answers:
                call, client.call = client.call, None
                event = self.requests.pop(call)
                if self.is_calm or self.random.random() > 0.03:  # else the answer is lost, and the client asks again
                    self.read(client, event, self.answers[call])

    def read(self, client: Client, event: Any, answer: GroupAnswer) -> None:
        match answer:
            case JoinAnswer(error=GroupError.NONE):
                self.read_join(client, answer)
            case JoinAnswer(error=GroupError.MEMBER_ID_REQUIRED):
                client.member_id = answer.member_id
            case SyncAnswer(error=GroupError.NONE):
                self.read_sync(client, event, answer)
            case CommitAnswer(error=error) | HeartbeatAnswer(error=error) if error is NONE:
                assert event.generation == self.newest, f"generation {event.generation} is over"
                client.heard_ms = self.now_ms
            case CommitAnswer():
                self.commit_refused(client, event, answer)
                self.refused(client, answer.error)
            case JoinAnswer() | SyncAnswer() | HeartbeatAnswer():
                self.refused(client, answer.error)

    def read_join(self, client: Client, answer: JoinAnswer) -> None:
        given = self.given.setdefault(answer.generation, Given())
        assert answer.generation == self.newest, f"generation {answer.generation} was given after {self.newest}"
        given.protocols.add(answer.protocol)
        assert len(given.protocols) == 1, f"generation {answer.generation} has protocols {given.protocols}"
        if answer.members:
            assert answer.leader == answer.member_id
            given.leaders.add(answer.member_id)
            assert len(given.leaders) == 1, f"generation {answer.generation} has leaders {given.leaders}"
        client.member_id, client.generation, client.is_synced = answer.member_id, answer.generation, False
        client.members = tuple(each.member_id for each in answer.members)

    def read_sync(self, client: Client, event: SyncRequested, answer: SyncAnswer) -> None:
        assert event.generation == self.newest, f"generation {event.generation} is over"
        names = {client.member_id} | self.instances.get(client.instance_id or "", set())
        given = [each.get(name, b"") for each in self.given[event.generation].assignments for name in names]
        assert answer.assignment in given, f"{names} got {answer.assignment!r} of {given}"
        client.is_synced, client.members, client.heard_ms = True, (), self.now_ms
        self.seen.add("synced")

    def commit_refused(self, client: Client, event: CommitChecked, answer: CommitAnswer) -> None:
        is_claim = event.generation == self.newest == self.durable_at_takeover == self.durable.get("g")
        if is_claim and self.now_ms - self.taken_over_ms < CLAIMS_MS:
            assert answer.error is GroupError.FENCED_INSTANCE_ID, f"the commit of {client} is lost: {answer}"

    def refused(self, client: Client, error: GroupError) -> None:
        self.seen.add(error.name)
        client.generation, client.is_synced, client.members = 0, False, ()
        if error is GroupError.UNKNOWN_MEMBER_ID:
            client.member_id = ""
        elif error is GroupError.FENCED_INSTANCE_ID:
            client.is_dead = True

    # --- what happens to clients --------------------------------------------------------------------------------------

    def leave_now(self, client: Client) -> None:
        if client.call is not None:
            self.lose_call(client)
        self.call(LeaveRequested(self.next_call(), "g", (LeavingMember(client.member_id, client.instance_id),)))
        client.is_dead = True

    def lose_call(self, client: Client) -> None:
        """The connection breaks, and the coordinator learns of it."""
        if client.call is not None:
            self.requests.pop(client.call, None)
            self.abandon(client.call)
            client.call = None

    def kill(self, client: Client, *, noticed: bool) -> None:
        if noticed:
            self.lose_call(client)
        client.is_dead, client.call = True, None

    def change(self, client: Client) -> None:
        """Its subscription changes: it joins again."""
        if client.call is None and client.is_synced:
            metadata = f"{self.random.randrange(100)}".encode()
            client.protocols = (RANGE._replace(metadata=metadata), STICKY)
            client.generation, client.is_synced = 0, False

    def outsider_commits(self) -> None:
        if self.commit().error is NONE:
            self.seen.add("outside")
            for each in self.live:
                # A static one may have been fenced by a client that has never read its answer.
                if each.is_synced and each.generation == self.newest and each.instance_id is None:
                    assert self.now_ms - each.heard_ms >= SESSION_MS, f"{each} is a member"

    def lose_coordinator(self) -> None:
        """A write in flight may be durable. Waiting requests are sent again, sooner or later."""
        if self.writes and self.random.random() < 0.5:
            self.durable["g"] = self.writes[0].generation
        for client in self.clients:
            if client.call is not None:
                self.requests.pop(client.call, None)
                client.call = None
        self.takes_over()
        self.requests.clear()
        self.taken_over_ms, self.durable_at_takeover = self.now_ms, self.durable.get("g", 0)

    # --- calm ---------------------------------------------------------------------------------------------------------

    def calm_down(self) -> None:
        """No more faults: within a bounded time the group is stable, with all living clients and no others."""
        self.is_calm = True
        self.writes_at_once = True
        while self.writes:
            self.write()
        self.read_answers()
        for _ in range(4 * REBALANCE_MS // 1_000):
            for client in self.live:
                self.step(client)
            self.elapse(1_000)
            self.read_answers()
            if self.is_whole:
                break
        assert self.is_whole, self.describe()
        assert not self.unanswered

    @property
    def is_whole(self) -> bool:
        """The group is stable, and its members are the living clients."""
        described = self.describe()
        members = sorted(each.member_id for each in described.members)
        return (
            described.state in (GroupState.STABLE, GroupState.EMPTY, GroupState.DEAD)
            and members == sorted(each.member_id for each in self.live)
            and all(each.is_synced and each.generation == self.newest for each in self.live)
        )
