"""An operator ends an open ledger whose members are lost: the log goes on, and says what was given up."""

from dataclasses import replace

import pytest

from oncelog.core.chain.managed_ledger import SendAdds
from oncelog.core.errors import ProducerFenced
from oncelog.core.formats.entry import (
    GIVEN_UP_GENERATIONS,
    GIVEN_UP_INDEXES,
    EntryKind,
    GivenUp,
    body_of,
    decode_given_up,
    peek_header,
)
from oncelog.core.formats.opening import Granted
from oncelog.core.formats.topic_record import GivenUpBehind, decode_topic, encode_topic
from oncelog.core.ids import INSTANCE_ID_BYTES, EntryId, Incarnation, InstanceId, LedgerId
from oncelog.core.ledger.metadata import LedgerKey, LedgerState, decode_ledger, encode_ledger
from oncelog.core.ledger.recovery import RANGE_ENTRIES, FenceMember, RecoveryFailed, RecoveryPhase
from oncelog.core.records.records import ReadRecord
from oncelog.core.topic.topic import Phase
from oncelog.core.topic_events.effects import Served
from tests.core.builders import A, B, C, plain, received
from tests.core.ledger import recovery_world
from tests.core.ledger.recovery_world import OPEN, Run, entry
from tests.core.ledger.test_ledger_recovery import recovered
from tests.core.topic.test_fold_verification import Proof
from tests.core.topic.test_takeover import OFTEN
from tests.core.topic.test_topic_subscriptions import Consuming
from tests.core.topic.topic_world import Owner, World

E = [entry(i, last_add_confirmed=i - 1) for i in range(5)]
RA, RB, RC = recovery_world.A, recovery_world.B, recovery_world.C


# --- the recovery -----------------------------------------------------------------------------------------------------


def held(*ids: int) -> dict[int, bytes]:
    return {i: E[i] for i in ids}


def stuck(world: recovery_world.World) -> Run:
    """A recovery that only A answers."""
    run = Run(world)
    while run.core.phase is not RecoveryPhase.FENCING:
        run.step()
    run.step()
    run.open = []
    return run


def give_up(world: recovery_world.World, *gone: Incarnation) -> None:
    assert world.record is not None
    world.record, world.version = world.record.give_up(gone, by="ann"), world.version + 1


@pytest.mark.hazard("open-ledger-without-quorum")
def test_command_ends_a_ledger_at_what_the_survivor_holds() -> None:
    """The recovery looks at the record while nobody answers, and goes on without the members that are gone."""
    world = recovery_world.World({RA: held(0, 1, 2), RB: held(0, 1, 2, 3), RC: held(0, 1, 2, 3)})
    run = stuck(world)
    assert run.deliver_look() == [ReadRecord(recovery_world.KEY)]
    run.finish()
    assert world.outcomes == [], "two members are absent, and no command has ended the ledger"
    give_up(world, RB, RC)
    run.deliver_look()
    run.finish()
    closed = recovered(world)
    assert (closed.end, closed.length, closed.given_up_by, closed.given_up) == (2, 30, "ann", (RB, RC))
    assert world.fenced == {RA}


@pytest.mark.hazard("open-ledger-without-quorum")
def test_ledger_ends_before_the_first_entry_that_no_survivor_holds() -> None:
    """A replay needs every entry. An entry below the last confirmed one is surely lost, and so is what follows it."""
    world = recovery_world.World({RA: held(0, 2, 3), RB: held(3), RC: {}})
    world.damaged[RB].add(1)
    give_up(world, RC)
    Run(world).finish()
    assert recovered(world).end == 0
    world = recovery_world.World({RA: held(0, 2, 3), RB: held(1), RC: {}})
    give_up(world, RC)
    Run(world).finish()
    assert recovered(world).end == 3


@pytest.mark.hazard("open-ledger-without-quorum", "directory-went-back")
def test_ledger_ends_at_what_disks_of_the_past_hold() -> None:
    """All went back, to different times: no member says of any entry that it does not exist."""
    holds = {RA: held(0), RB: held(0, 1, 2), RC: held(0, 1)}
    world = recovery_world.World(holds)
    for member, ids in holds.items():
        world.damaged[member] |= set(range(RANGE_ENTRIES)) - ids.keys()
    Run(world).finish()
    (failed,) = world.outcomes
    assert isinstance(failed, RecoveryFailed)
    assert failed.entry_id == 3
    world.outcomes.clear()
    give_up(world)
    Run(world).finish()
    closed = recovered(world)
    assert (closed.end, closed.length, closed.given_up_by, closed.given_up) == (2, 30, "ann", ())


@pytest.mark.hazard("open-ledger-without-quorum")
def test_ledger_without_a_survivor_ends_empty() -> None:
    world = recovery_world.World({})
    give_up(world, RA, RB, RC)
    Run(world).finish()
    assert (recovered(world).end, world.fenced) == (-1, set())


def test_ledger_that_recovers_all_the_same_gives_nothing_up() -> None:
    """The members came back before the command, and the recovery was about to close the ledger."""
    world = recovery_world.World({RA: held(0, 1), RB: held(0, 1), RC: {}})
    run = Run(world)
    while run.core.phase is not RecoveryPhase.CLOSING:
        run.step()
    give_up(world, RB, RC)
    run.finish()
    closed = recovered(world)
    assert (closed.end, closed.given_up_by, closed.given_up) == (1, "", ())


def test_record_that_was_given_up_round_trips() -> None:
    metadata = OPEN.give_up((RB, RC), by="ann")
    assert decode_ledger(encode_ledger(metadata)) == metadata
    assert metadata.state is LedgerState.IN_RECOVERY
    assert metadata.survivors == (RA,)


# --- the log ----------------------------------------------------------------------------------------------------------


def lost_tail(lost: int = 2) -> tuple[World, Granted]:
    """Five acknowledged batches; then B and C are gone, A lacks the last `lost` of them, and an operator ends the
    ledger."""
    world = World()
    owner = Owner(world, "o1").take_over()
    granted = owner.open("p")
    pid, generation = granted.instance
    for i in range(5):
        owner.send(granted.session, received(i, [i], pid=pid, generation=generation))
        owner.run()
    ledger_id = world.record.ledgers[-1].ledger_id
    for member in (B, C):
        del world.nodes[member][ledger_id]
    for i in range(5 - lost, 5):
        del world.nodes[A][ledger_id][2 + i]
    metadata, version = world.ledgers[ledger_id]
    world.ledgers[ledger_id] = (metadata.give_up((B, C), by="ann"), version + 1)
    return world, granted


def given_up_of(world: World) -> list[GivenUp]:
    """What the log says was given up."""
    entries = [data for link in world.record.ledgers for data in world.entries_of(link.ledger_id).values()]
    return [decode_given_up(body_of(data)) for data in entries if peek_header(data).kind == EntryKind.GIVEN_UP]


@pytest.mark.hazard("index-given-twice")
def test_numbers_and_generations_jump_past_what_may_have_been_told() -> None:
    """Otherwise the next messages would get numbers that consumers have seen, and a lost grant's generation would be
    granted twice."""
    world, granted = lost_tail()
    owner = Owner(world, "o2").take_over()
    assert owner.core.phase is Phase.SERVING
    first = world.record.ledgers[0].ledger_id
    assert given_up_of(world) == [GivenUp(first, EntryId(5), "ann")]
    serving = owner.core.serving
    assert serving is not None
    state = serving.log.table.state
    assert state.next_index == 3 + GIVEN_UP_INDEXES
    again = owner.open("p")
    assert again.instance[1] == granted.instance[1] + GIVEN_UP_GENERATIONS + 1
    assert again.last_sequence_id == 2, "what is lost may be sent again, and is not taken for stored"
    assert plain(world.folded()) == plain(state)


@pytest.mark.hazard("index-given-twice")
def test_instance_from_before_the_loss_is_fenced() -> None:
    """It may have received acknowledgements of messages that are lost, so it must not continue without an error, which
    says what to do. It does not speak of a newer instance before there is one."""
    world, granted = lost_tail()
    owner = Owner(world, "o2").take_over()

    def refusal() -> str:
        call = owner.ask("p", resume=granted.instance)
        owner.run()
        error = owner.answers[call]
        assert isinstance(error, ProducerFenced)
        return error.message

    assert refusal().startswith("entries of this topic were given up")
    owner.open("p", instance_id=InstanceId(b"newer".ljust(INSTANCE_ID_BYTES, b".")))
    assert refusal().startswith("a newer instance has this producer name")


@pytest.mark.hazard("index-given-twice")
def test_log_says_once_what_was_given_up_after_every_interruption() -> None:
    """The entry is the first one behind the ledger. An owner that dies before it is durable leaves it to the next."""
    world, _ = lost_tail()
    for number in range(3):
        Owner(world, f"dies {number}").take_over(SendAdds)
        assert given_up_of(world) == []
    owner = Owner(world, "o2").take_over()
    owner.open("p")
    last = Owner(world, "o3").take_over()
    last.open("p")
    assert len(given_up_of(world)) == 1
    assert last.core.serving is not None
    assert plain(world.folded()) == plain(last.core.serving.log.table.state)


@pytest.mark.hazard("index-given-twice")
def test_nothing_is_granted_before_the_log_says_what_was_given_up() -> None:
    """A grant of an old generation would come before the jump in the log."""
    world, _ = lost_tail()
    owner = Owner(world, "o2").take_over(SendAdds)
    call = owner.ask("p", SendAdds)
    assert call not in owner.answers
    [send] = [effect for effect in owner.queue if isinstance(effect, SendAdds)]
    assert [add.header.kind for add in send.adds] == [EntryKind.HEAD_LOG, EntryKind.GIVEN_UP]
    owner.run()
    assert isinstance(owner.answers[call], Granted)


@pytest.mark.hazard("open-ledger-without-quorum")
def test_takeover_that_waits_for_members_looks_at_the_record() -> None:
    """The operator's command is a change of the ledger's record, and the owner is the one that closes the ledger."""
    world, _ = lost_tail()
    ledger_id = world.record.ledgers[-1].ledger_id
    given_up, version = world.ledgers[ledger_id]
    world.ledgers[ledger_id] = (replace(given_up, given_up=(), given_up_by=""), version)
    owner = Owner(world, "o2").take_over(FenceMember)
    owner.queue.clear()
    owner.tick().tick(60_000)
    owner.run()
    assert owner.emitted(Served) == []
    world.ledgers[ledger_id] = (given_up, version + 1)
    owner.tick(60_000)
    owner.run()
    assert len(owner.emitted(Served)) == 1
    assert [effect.value.end for effect in owner.writes(LedgerKey)][-1] == 4


# --- a restore that has missed nodes ----------------------------------------------------------------------------------


def restored(*, subscribed: bool) -> tuple[World, Granted]:
    """Five acknowledged batches; then ZooKeeper is restored without nodes that may have had more of both chains."""
    world = World()
    one = Consuming(world)
    granted = one.owner.open("p")
    pid, generation = granted.instance
    for i in range(5):
        one.owner.send(granted.session, received(i, [i], pid=pid, generation=generation))
        one.owner.run()
    if subscribed:
        one.subscribe()
        one.owner.run()
    record, version = world.topic
    behind = GivenUpBehind(record.ledgers[-1].ledger_id, record.acks[-1] if record.acks else LedgerId(0), "ann")
    world.topic = (decode_topic(encode_topic(replace(record, given_up_behind=behind))), version)
    return world, granted


def given_up_in_acks(world: World) -> list[GivenUp]:
    entries = [data for ledger_id in world.record.acks for data in world.entries_of(ledger_id).values()]
    return [decode_given_up(body_of(data)) for data in entries if peek_header(data).kind == EntryKind.GIVEN_UP]


@pytest.mark.hazard("restore-beyond-the-bound")
@pytest.mark.parametrize("subscribed", [True, False])
def test_topic_of_a_restore_beyond_the_bound_jumps_in_both_chains(subscribed: bool) -> None:
    """The missing nodes may have had a sixth message, a grant, a subscription. Also a topic that had no ack log jumps
    there: the missing nodes may have had its first ledger."""
    world, granted = restored(subscribed=subscribed)
    last, last_acks = world.record.ledgers[-1].ledger_id, world.record.acks[-1] if subscribed else LedgerId(0)
    owner = Owner(world, "o2").take_over()
    owner.run()
    assert owner.core.serving is not None
    assert owner.core.serving.log.table.state.next_index == 5 + GIVEN_UP_INDEXES
    again = owner.open("p")
    assert again.instance[1] == granted.instance[1] + GIVEN_UP_GENERATIONS + 1
    assert again.last_sequence_id == 4
    [log], [acks] = given_up_of(world), given_up_in_acks(world)
    assert (log.ledger_id, acks.ledger_id) == (last, last_acks)
    assert (log.by, acks.by) == ("ann", "ann")
    assert owner.core.serving.acks.state.next_number > GIVEN_UP_GENERATIONS


@pytest.mark.hazard("restore-beyond-the-bound")
def test_topic_of_a_restore_jumps_once_whatever_interrupts_it() -> None:
    """The field stays in the record; the chain that goes on in a later ledger owes nothing."""
    world, _ = restored(subscribed=True)
    for number in range(3):
        Owner(world, f"dies {number}").take_over(SendAdds)
        assert given_up_of(world) == []
    for name in ("o2", "o3", "o4"):
        owner = Owner(world, name).take_over()
        owner.open("p")
        owner.run()
        assert world.record.given_up_behind is not None
        assert (len(given_up_of(world)), len(given_up_in_acks(world))) == (1, 1)
    owner = Owner(world, "o5").take_over()
    assert owner.core.serving is not None
    assert plain(world.folded()) == plain(owner.core.serving.log.table.state)


def missing(world: World, *places: int, cursor: bool = False) -> None:
    """ZooKeeper is restored without nodes that had these ledgers of the log, and perhaps all snapshots, too."""
    record, version = world.topic
    ledgers = [link for place, link in enumerate(record.ledgers) if place not in places]
    behind = GivenUpBehind(ledgers[-1].ledger_id, record.acks[-1] if record.acks else LedgerId(0), "ann")
    floor = ledgers[0].ledger_id if cursor else LedgerId(0)
    acks_floor = record.acks[0] if cursor and record.acks else LedgerId(0)
    listed = replace(record, ledgers=tuple(ledgers), deleted_below=floor, acks_deleted_below=acks_floor)
    world.topic = (replace(listed, given_up_behind=behind), version)
    if cursor and world.cursor[0] is not None:
        world.cursor = (replace(world.cursor[0], ledgers=()), world.cursor[1])


@pytest.mark.hazard("restore-beyond-the-bound")
@pytest.mark.parametrize(("places", "cursor"), [((-1,), False), ((1,), False), ((1,), True), ((0,), True)])
def test_snapshot_and_log_may_lack_what_missing_nodes_had(places: tuple[int, ...], cursor: bool) -> None:
    """The newest snapshot is of a ledger that is lost, a ledger in the middle is lost, or all snapshots are: the topic
    is served all the same, and jumps once."""
    world = World()
    for number in range(3):
        one = Consuming(world, f"o{number}", OFTEN).publish(2 * number, 2)
        one.owner.run()
    ledgers = len(world.record.ledgers)
    assert ledgers >= 3
    missing(world, *(place % ledgers for place in places), cursor=cursor)
    Owner(world, "dies").take_over(SendAdds)
    for name in ("o7", "o8", "o9"):
        owner = Owner(world, name).take_over()
        owner.run()
        assert owner.core.serving is not None
        known = 5 if -1 in places else 6  # the newest snapshot does not have the last message
        assert owner.core.serving.log.table.state.next_index == known + GIVEN_UP_INDEXES
        assert len(given_up_of(world)) == 1


def owes(world: World) -> bool:
    return world.record.given_up_behind is not None


def with_new_bases(world: World, name: str) -> Consuming:
    """Messages of a later owner, until the cursor lists no snapshot of before it any more."""
    one = Consuming(world, name, OFTEN)
    for number in range(100, 400, 20):
        one.publish(number, 20)
        one.owner.tick(5_000).run()
        if not owes(world):
            break
    return one


@pytest.mark.hazard("restore-beyond-the-bound")
def test_record_forgets_what_was_given_up_once_no_takeover_needs_it() -> None:
    """Both chains say it, and no listed snapshot is of before. From then on a ledger that is missing in the list is
    noticed."""
    world = World()
    for number in range(3):
        Consuming(world, f"o{number}", OFTEN).publish(2 * number, 2).owner.run()
    missing(world, 1)
    owner = Owner(world, "o7", OFTEN).take_over()
    owner.tick(5_000).run()
    assert (len(given_up_of(world)), len(given_up_in_acks(world))) == (1, 1)
    assert owes(world), "the listed snapshots are of before the jump"
    with_new_bases(world, "o8")
    assert not owes(world)
    assert world.cursor[0] is not None
    assert len(world.cursor[0].ledgers) >= 2
    owner = Owner(world, "o9", OFTEN).take_over()
    assert owner.core.serving is not None
    assert (len(given_up_of(world)), len(given_up_in_acks(world))) == (1, 1)
    owner.open("q")
    newest = owner.core.serving.cursor.newest
    assert newest is not None
    record, version = world.topic
    kept = tuple(link for link in record.ledgers if link.ledger_id != newest.position.ledger_id)
    assert len(kept) == len(record.ledgers) - 1
    world.topic = (replace(record, ledgers=kept), version + 1)
    refused = Owner(world, "o10", OFTEN).take_over()
    assert refused.core.serving is None


@pytest.mark.hazard("restore-beyond-the-bound")
@pytest.mark.parametrize(("places", "cursor"), [((), True), ((1,), False), ((1,), True), ((0,), True)])
def test_fold_of_a_restored_topic_is_verified_before_its_first_snapshot(places: tuple[int, ...], cursor: bool) -> None:
    """What the takeover passes over, the verification passes over, too."""
    world = World()
    for number in range(3):
        Consuming(world, f"o{number}", OFTEN).publish(2 * number, 2).owner.run()
    missing(world, *places, cursor=cursor)
    owner = Consuming(world, "o7").publish(100, 3).owner
    proof = Proof(owner).run()
    assert (proof.found, proof.core.ack_differences) == ([], [])
