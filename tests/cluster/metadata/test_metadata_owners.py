"""Owners that die, become unreachable, drain or join: topics move at once, and never because of silence alone."""

import asyncio
from dataclasses import dataclass, field
from itertools import count

import pytest

from oncelog.core.errors import ServiceUnavailable
from oncelog.core.ids import OwnerEpoch, TopicId
from oncelog.core.names import parse_topic
from oncelog.core.placement.topic_placement import BACKOFF_MS
from oncelog.metadata.owners.connected_owner import Assignment
from oncelog.metadata.placement.placements import HAND_OVERS_MAX
from oncelog.rpc.reachability import Reachability, reach
from oncelog.runtime.observing.events import EventKind
from tests.cluster.metadata.metadata_world import DEADLINE_S, FakeOwner, Replica, World
from tests.cluster.until import until
from tests.contract.noted import noted

pytestmark = pytest.mark.asyncio


@dataclass
class Prober:
    """Probes with real connections, or responds like a network that loses all packets or has no route."""

    always: Reachability | None = None
    answers: list[Reachability] = field(default_factory=list)

    async def __call__(self, address: str) -> Reachability:
        answer = self.always or await reach(address, timeout_ms=30_000)
        self.answers.append(answer)
        return answer


def loop_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)


async def placed(replica: Replica, owners: list[FakeOwner], topic: str = "flights") -> tuple[FakeOwner, FakeOwner]:
    """The topic's owner, and the other owner."""
    await replica.sees(*owners)
    answer = await replica.look_up(topic)
    one, other = owners
    return (one, other) if answer.owner_incarnation == one.incarnation else (other, one)


async def test_topics_of_a_killed_owner_move_without_a_look_up() -> None:
    """Its stream closed and its port refuses connections: the topics move before its session ends."""
    async with World.running() as world:
        replica = await world.replica()
        dying, heir = await placed(replica, [await world.owner(replica), await world.owner(replica)])
        await dying.die()
        record = await world.moved_to(heir)
        assert record.owner_epoch == 2
        assert replica.coordination.owners.find(dying.incarnation) is not None
        await until(lambda: (record.topic_id, 2) in heir.assigned, DEADLINE_S)
        assert (await replica.look_up(epoch=1)).owner_incarnation == heir.incarnation


async def test_all_topics_of_a_killed_owner_move_and_no_other() -> None:
    """The rest of the cluster is not affected."""
    async with World.running() as world:
        replica = await world.replica()
        owners = [await world.owner(replica), await world.owner(replica)]
        await replica.sees(*owners)
        names = [f"t{number}" for number in range(30)]
        await asyncio.gather(*(replica.look_up(name) for name in names))
        before = {name: await world.record(name) for name in names}
        dying, heir = owners
        assert {record.owner for record in before.values()} == {dying.incarnation, heir.incarnation}
        await dying.die()
        for name in names:
            after = await world.moved_to(heir, name)
            assert after.owner_epoch == (2 if before[name].owner == dying.incarnation else 1)
        messages = {one.message[:24] for one in noted(replica.coordination.events, EventKind.OWNER)}
        assert "a topic owner is suspect" in messages


async def test_owner_whose_stream_broke_keeps_its_topics() -> None:
    """The owner still listens, so it is alive."""
    async with World.running() as world:
        prober = Prober()
        replica = await world.replica(reach=prober)
        owner, _ = await placed(replica, [await world.owner(replica), await world.owner(replica)])
        owner.break_streams()
        await until(lambda: len(prober.answers) > 3, DEADLINE_S)
        assert set(prober.answers) == {Reachability.ACCEPTED}
        assert (await replica.look_up(epoch=1)).owner_incarnation == owner.incarnation
        assert (await world.record()).owner_epoch == 1


async def test_owner_that_reconnects_keeps_its_topics() -> None:
    """The late end of the old stream proves nothing."""
    async with World.running() as world:
        prober = Prober()
        replica = await world.replica(reach=prober)
        owner, _ = await placed(replica, [await world.owner(replica), await world.owner(replica)])
        former = owner.streams.pop(replica)
        await owner.connect(replica)
        former.cancel()
        owner.streams.pop(replica).cancel()
        await until(lambda: prober.answers, DEADLINE_S)
        await owner.connect(replica)
        assert (await replica.look_up(epoch=1)).owner_incarnation == owner.incarnation
        assert (await world.record()).owner_epoch == 1


@pytest.mark.hazard("living-owner-suspected")
async def test_silent_owner_keeps_its_topics_until_its_session_ends() -> None:
    """A network partition looks like a death from one side. Then only the session decides."""
    async with World.running() as world:
        prober = Prober(Reachability.SILENT)
        replica = await world.replica(reach=prober)
        owner, heir = await placed(replica, [await world.owner(replica), await world.owner(replica)])
        await owner.die()
        await until(lambda: len(prober.answers) > 3, DEADLINE_S)
        assert (await world.record()).owner == owner.incarnation
        owner.session.faults.expire()
        assert (await world.moved_to(heir)).owner_epoch == 2


async def test_topics_move_before_the_session_ends_if_the_host_is_unreachable() -> None:
    """A deleted pod: its heartbeats were answered until the stream ended, and then there is no route."""
    async with World.running() as world:
        replica = await world.replica(reach=Prober(Reachability.UNREACHABLE))
        dying, heir = await placed(replica, [await world.owner(replica), await world.owner(replica)])
        await until(lambda: dying.beats_answered, DEADLINE_S)
        await dying.die()
        assert (await world.moved_to(heir)).owner_epoch == 2
        assert replica.coordination.owners.find(dying.incarnation) is not None


async def test_pending_probe_does_not_delay_the_next_one() -> None:
    """A probe sent while a pod's address disappears is never answered; the next one is answered at once."""
    async with World.running() as world:
        attempts, ends = count(1), asyncio.Event()

        async def stuck_at_first(address: str) -> Reachability:
            if next(attempts) == 1:
                await ends.wait()
            return Reachability.REFUSED

        replica = await world.replica(reach=stuck_at_first)
        dying, heir = await placed(replica, [await world.owner(replica), await world.owner(replica)])
        await dying.die()
        assert (await world.moved_to(heir)).owner_epoch == 2
        ends.set()


@pytest.mark.hazard("living-owner-suspected")
async def test_silent_owner_without_a_route_keeps_its_topics() -> None:
    """In a network partition no heartbeat is answered before the stream ends: only the session decides (hazard
    living-owner-suspected)."""
    async with World.running() as world:
        prober = Prober(Reachability.UNREACHABLE)
        replica = await world.replica(reach=prober)
        owners = [await world.owner(replica), await world.owner(replica)]
        for owner in owners:
            owner.topic_count = None
        owner, _ = await placed(replica, owners)
        link = replica.coordination.owners.link(owner.incarnation)
        assert link is not None
        await until(lambda: not link.heartbeats.answered_recently(loop_ms()), DEADLINE_S)
        await owner.die()
        await until(lambda: len(prober.answers) > 3, DEADLINE_S)
        assert (await world.record()).owner == owner.incarnation


@pytest.mark.hazard("living-owner-suspected")
async def test_refused_connection_of_an_owner_never_seen_connected_moves_nothing() -> None:
    """Otherwise a restarted replica would move all topics while owners reconnect one by one (hazard
    living-owner-suspected)."""
    async with World.running() as world:
        first = await world.replica()
        owner, _ = await placed(first, [await world.owner(first), await world.owner(first)])
        restarted = await world.replica()
        await owner.stop_listening()
        answer = await restarted.look_up(epoch=1)
        assert (answer.owner_incarnation, answer.owner_epoch) == (owner.incarnation, 1)


async def test_new_replica_places_no_topic_on_an_owner_without_a_stream() -> None:
    """Its session has not ended and it is not suspected here, but it has no stream, and others have one."""
    async with World.running() as world:
        first = await world.replica()
        living, dead = await world.owner(first), await world.owner(first)
        await first.sees(living, dead)
        await dead.die()
        restarted = await world.replica()
        await living.connect(restarted)
        await restarted.sees(living, dead)
        answers = [await restarted.look_up(f"t{number}") for number in range(20)]
        assert {answer.owner_incarnation for answer in answers} == {living.incarnation}


async def test_stopping_replica_suspects_no_owner() -> None:
    """The replica closes all streams itself."""
    async with World.running() as world:
        prober = Prober()
        replica = await world.replica(reach=prober)
        owner = await world.owner(replica)
        await replica.sees(owner)
        await replica.look_up()
        await replica.coordination.close()
        await replica.server.stop(grace_ms=0)
        await until(lambda: replica.coordination.owners.link(owner.incarnation) is None, DEADLINE_S)
        assert prober.answers == []
        assert (await world.record()).owner_epoch == 1


async def test_new_owner_takes_no_topic_of_a_live_owner() -> None:
    """Joining must not cause takeovers; new topics are also placed on the new owner."""
    async with World.running() as world:
        replica = await world.replica()
        old = await world.owner(replica)
        await replica.sees(old)
        names = [f"t{number}" for number in range(20)]
        await asyncio.gather(*(replica.look_up(name) for name in names))
        new = await world.owner(replica)
        await replica.sees(old, new)
        again = await asyncio.gather(*(replica.look_up(name, epoch=1) for name in names))
        assert {(answer.owner_incarnation, answer.owner_epoch) for answer in again} == {(old.incarnation, 1)}
        further = await asyncio.gather(*(replica.look_up(f"further{number}") for number in range(20)))
        assert {answer.owner_incarnation for answer in further} == {old.incarnation, new.incarnation}


async def test_topics_that_another_replica_placed_move_too() -> None:
    """The replica that sees the death first acts for all, and reads the records of the others' placements."""
    async with World.running() as world:
        first, second = await world.replica(), await world.replica()
        dying, heir = await placed(first, [await world.owner(second), await world.owner(second)])
        await second.sees(dying, heir)
        await dying.die()
        assert (await world.moved_to(heir)).owner_epoch == 2


async def test_replicas_that_race_place_a_topic_once() -> None:
    """The topic record orders them, and the loser uses the winner's placement."""
    async with World.running() as world:
        replicas = [await world.replica() for _ in range(3)]
        owners = [await world.owner(*replicas), await world.owner(*replicas)]
        for replica in replicas:
            await replica.sees(*owners)
        answers = await asyncio.gather(*(replica.look_up() for replica in replicas for _ in range(5)))
        assert {(answer.owner_epoch, answer.owner_incarnation) for answer in answers} == {
            (1, answers[0].owner_incarnation)
        }
        dying, heir = await placed(replicas[0], owners)
        await dying.die()
        await world.moved_to(heir)
        for replica in replicas:
            await until(lambda one=replica: one.coordination.owners.is_lost(dying.incarnation), DEADLINE_S)  # type: ignore[misc]
            assert (await replica.look_up(epoch=1)).owner_epoch == 2


async def test_new_owner_on_the_same_port_proves_the_death_of_the_old_one() -> None:
    """A process that restarts within milliseconds takes over the port of the dead one."""
    async with World.running() as world:
        prober = Prober(Reachability.SILENT)
        replica = await world.replica(reach=prober)
        owner, heir = await placed(replica, [await world.owner(replica), await world.owner(replica)])
        await owner.die()
        await until(lambda: prober.answers, DEADLINE_S)
        assert (await world.record()).owner == owner.incarnation
        successor = await world.owner(replica, port=owner.port)

        async def moved() -> bool:
            return (await world.record()).owner in {heir.incarnation, successor.incarnation}

        await until(moved, DEADLINE_S)


async def test_topics_of_the_only_owner_move_to_the_next_one_that_joins() -> None:
    """Look-ups wait for it, and none returns the dead owner."""
    async with World.running() as world:
        replica = await world.replica()
        owner = await world.owner(replica)
        await replica.sees(owner)
        await replica.look_up()
        await owner.die()
        await until(lambda: replica.coordination.owners.is_lost(owner.incarnation), DEADLINE_S)
        asking = asyncio.ensure_future(replica.look_up(epoch=1))
        successor = await world.owner(replica)
        answer = await asking
        assert (answer.owner_incarnation, answer.owner_epoch) == (successor.incarnation, 2)


async def test_second_death_within_the_backoff_is_handled_after_it() -> None:
    """Disagreeing replicas must not move a topic back and forth; a real second death costs only the back-off."""
    async with World.running() as world:
        replica = await world.replica()
        owners = [await world.owner(replica), await world.owner(replica)]
        dying, heir = await placed(replica, owners)
        began_s = asyncio.get_running_loop().time()
        await dying.die()
        await world.moved_to(heir)
        last = await world.owner(replica)
        await heir.die()
        await until(lambda: replica.coordination.owners.is_lost(heir.incarnation), DEADLINE_S)
        answer = await replica.look_up(epoch=2)
        assert (answer.owner_incarnation, answer.owner_epoch) == (last.incarnation, 3)
        assert asyncio.get_running_loop().time() - began_s > BACKOFF_MS / 1000


async def test_draining_owner_hands_its_topics_over_one_by_one() -> None:
    """Each topic is closed first, so that no recovery is needed; and the owner gets no new topics."""
    async with World.running() as world:
        replica = await world.replica()
        leaving, heir = await placed(replica, [await world.owner(replica), await world.owner(replica)])
        await leaving.streams[replica].write(leaving.hello(draining=True))
        record = await world.moved_to(heir)
        assert leaving.unloaded == [record.topic_id]
        answers = await asyncio.gather(*(replica.look_up(f"new{number}") for number in range(10)))
        assert {answer.owner_incarnation for answer in answers} == {heir.incarnation}


async def test_draining_owner_closes_few_topics_at_a_time_and_requested_ones_first() -> None:
    """Each topic pauses only for its own hand-over; a topic that a client waits for goes first."""
    async with World.running() as world:
        replica = await world.replica()
        leaving = await world.owner(replica)
        await replica.sees(leaving)
        names = [f"t{number}" for number in range(12)]
        for name in names:
            await replica.look_up(name)
        heir = await world.owner(replica)
        await replica.sees(leaving, heir)
        leaving.hold_unloads = asyncio.Event()
        await leaving.streams[replica].write(leaving.hello(draining=True))
        await until(lambda: len(leaving.unloading) == HAND_OVERS_MAX, DEADLINE_S)
        records = {name: (await world.record(name)).topic_id for name in names}
        last = next(name for name, topic_id in records.items() if topic_id not in leaving.unloading)
        waited_for = asyncio.create_task(replica.look_up(last, epoch=1))
        await until(lambda: len(leaving.unloading) == HAND_OVERS_MAX + 1, DEADLINE_S)
        assert leaving.unloading[-1] == records[last]
        leaving.hold_unloads.set()
        assert (await waited_for).owner_incarnation == heir.incarnation
        for name in names:
            await world.moved_to(heir, name)


async def test_topics_of_another_replica_are_also_handed_over_few_at_a_time() -> None:
    """The replica that learns of the drain finds them in the records."""
    async with World.running() as world:
        replica, other = await world.replica(), await world.replica()
        leaving = await world.owner(replica)
        await asyncio.gather(replica.sees(leaving), other.sees(leaving))
        names = [f"t{number}" for number in range(3 * HAND_OVERS_MAX)]
        for name in names:
            await other.look_up(name)
        heir = await world.owner(replica)
        await replica.sees(leaving, heir)
        leaving.hold_unloads = asyncio.Event()
        await leaving.streams[replica].write(leaving.hello(draining=True))
        await until(lambda: len(leaving.unloading) >= HAND_OVERS_MAX, DEADLINE_S)
        await replica.look_up("a-call-later")
        assert len(leaving.unloading) == HAND_OVERS_MAX
        leaving.hold_unloads.set()
        for name in names:
            await world.moved_to(heir, name)


async def test_draining_owner_keeps_its_topics_without_another_owner() -> None:
    """There is no other owner; the topics move when the owner stops."""
    async with World.running() as world:
        replica = await world.replica()
        owner = await world.owner(replica)
        await replica.sees(owner)
        await replica.look_up()
        await owner.streams[replica].write(owner.hello(draining=True))
        await until(lambda: not replica.coordination.owners.usable, DEADLINE_S)
        assert (await replica.look_up()).owner_epoch == 1
        assert owner.unloaded == []


async def test_unloaded_topic_goes_to_another_owner() -> None:
    """The first owner closes the topic, and the record names the second one."""
    async with World.running() as world:
        replica = await world.replica()
        owner, other = await placed(replica, [await world.owner(replica), await world.owner(replica)])
        topic_id = (await world.record()).topic_id
        await replica.coordination.placements.unload(topic_id)
        assert owner.unloaded == [topic_id]
        assert (await world.record()).owner == other.incarnation
        assert (await replica.look_up()).owner_epoch == 2


async def test_unloaded_topic_returns_to_the_only_owner() -> None:
    """At a higher epoch, so that it is taken over again."""
    async with World.running() as world:
        replica = await world.replica()
        owner = await world.owner(replica)
        await replica.sees(owner)
        topic_id = TopicId((await replica.look_up()).topic_id)
        await replica.coordination.placements.unload(topic_id)
        await until(lambda: (topic_id, 2) in owner.assigned, DEADLINE_S)
        assert (await world.record()).owner_epoch == 2


async def test_stopping_replica_refuses_requests_that_it_cannot_finish() -> None:
    """The client retries with another replica at once."""
    async with World.running() as world:
        replica = await world.replica()
        asking = asyncio.ensure_future(replica.look_up())
        await until(lambda: world.topics.find(parse_topic("flights")), DEADLINE_S)
        await replica.server.stop(grace_ms=0)
        with pytest.raises(ServiceUnavailable):
            await asking


@pytest.mark.parametrize("takes_lists", [True, False])
async def test_assignments_of_the_same_time_go_out_in_one_message(takes_lists: bool) -> None:
    """The clients whose look-ups placed the topics come at once; one message each would come after them."""
    async with World.running() as world:
        replica = await world.replica()
        owner = await world.owner()
        owner.takes_lists = takes_lists
        await owner.connect(replica)
        await replica.sees(owner)
        link = replica.coordination.owners.link(owner.incarnation)
        assert link is not None
        wanted = [(TopicId(f"{number:032x}"), OwnerEpoch(number)) for number in range(5)]
        for topic_id, owner_epoch in wanted:
            link.assignments.put_nowait(Assignment(topic_id, owner_epoch))
        await until(lambda: len(owner.assigned) == 5, DEADLINE_S)
        assert (owner.assigned, owner.lists) == (wanted, [5] if takes_lists else [1] * 5)
