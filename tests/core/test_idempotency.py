"""A key is published once: whatever is interrupted where, whoever repeats it, whatever the store loses of replies."""

import random

import pytest

from oncelog.core.errors import (
    CorruptEntry,
    IdempotencyKeyReused,
    IdempotencyUnavailable,
    InvariantViolated,
    MessageTooLarge,
    ProducerFenced,
    PublishInProgress,
)
from oncelog.core.http_publish.idempotency import (
    ROUNDS_MAX,
    Answer,
    AnswerWritten,
    AskHolder,
    Begin,
    ClaimWritten,
    Effect,
    FenceProducer,
    GiveBack,
    HolderTold,
    KeyedPublish,
    KeyRead,
    PlaceReserved,
    Publish,
    Published,
    PublishFailed,
    ReadKey,
    Refuse,
    ReservePlace,
    RetireLane,
    State,
    StepFailed,
    WriteAnswer,
    WriteClaim,
)
from oncelog.core.http_publish.key_record import FoundKey, KeyRecord, decode_key_record, encode_key_record
from oncelog.core.http_publish.keyed_producer import Claim, Lane
from oncelog.core.ids import SequenceId
from oncelog.core.store_status import WriteStatus
from tests.core.idempotency_world import Run, World, repeat_until_answered, unavailable

CLAIM = Claim("lane", SequenceId(7), 2)
PENDING = KeyRecord("body", CLAIM)
FOUND = FoundKey(PENDING, encode_key_record(PENDING))


def refusal(effects: list[Effect]) -> Refuse:
    (refused,) = (effect for effect in effects if isinstance(effect, Refuse))
    return refused


def claiming() -> KeyedPublish:
    core = KeyedPublish("body")
    assert core.handle(Begin()) == [ReadKey()]
    assert core.handle(KeyRead(None)) == [ReservePlace()]
    assert core.handle(PlaceReserved(CLAIM)) == [WriteClaim(PENDING, None)]
    return core


# --- the steps --------------------------------------------------------------------------------------------------------


def test_claim_is_written_before_the_message_is_published() -> None:
    """The way of a new key, step by step."""
    core = claiming()
    assert core.handle(ClaimWritten(WriteStatus.OK)) == [Publish(CLAIM)]
    done = KeyRecord("body", CLAIM, "it is stored")
    assert core.handle(Published("it is stored")) == [WriteAnswer(done, FOUND.stored)]
    assert core.handle(AnswerWritten(WriteStatus.OK)) == [Answer("it is stored", replayed=False)]
    assert core.state is State.OVER


def test_repeat_gets_the_original_answer() -> None:
    """From the record alone."""
    done = KeyRecord("body", CLAIM, "it is stored")
    core = KeyedPublish("body")
    assert core.handle(KeyRead(FoundKey(done, encode_key_record(done)))) == [Answer("it is stored", replayed=True)]


@pytest.mark.parametrize("answer", [None, "it is stored"])
def test_other_body_under_the_same_key_is_refused(answer: str | None) -> None:
    """Whether the first is answered or not."""
    record = KeyRecord("another body", CLAIM, answer)
    effects = KeyedPublish("body").handle(KeyRead(FoundKey(record, encode_key_record(record))))
    assert isinstance(refusal(effects).error, IdempotencyKeyReused)


def test_pending_key_of_a_living_holder_is_in_progress() -> None:
    """Nobody is fenced who works on it."""
    core = KeyedPublish("body")
    assert core.handle(KeyRead(FOUND)) == [AskHolder("lane")]
    assert isinstance(refusal(core.handle(HolderTold(lives=True))).error, PublishInProgress)


def test_pending_key_of_a_dead_holder_is_fenced_before_anything_is_concluded() -> None:
    """Hazard 22: a look without fencing proves nothing."""
    core = KeyedPublish("body")
    core.handle(KeyRead(FOUND))
    assert core.handle(HolderTold(lives=False)) == [FenceProducer("lane")]


def test_repeat_that_is_fenced_while_it_settles_a_claim_looks_again() -> None:
    """Repeats of one key that settle it at the same time fence each other; their sender has no such producer."""
    core = KeyedPublish("body")
    fenced = StepFailed(ProducerFenced("another repeat opened it"))
    core.handle(KeyRead(FOUND))
    for _ in range(ROUNDS_MAX - 1):
        core.handle(HolderTold(lives=False))
        assert core.handle(fenced) == [ReadKey()]
        assert core.handle(KeyRead(FOUND)) == [AskHolder("lane")]
    core.handle(HolderTold(lives=False))
    assert isinstance(refusal(core.handle(fenced)).error, PublishInProgress)


def test_unknown_claim_publishes_nothing_and_retires_the_lane() -> None:
    """Its id may be in the store: it must never be published under this name."""
    core = claiming()
    retire, refused = core.handle(ClaimWritten(WriteStatus.UNKNOWN))
    assert retire == RetireLane("lane")
    assert isinstance(refused, Refuse)
    assert isinstance(refused.error, IdempotencyUnavailable)


def test_claim_that_was_not_written_gives_its_ids_back() -> None:
    """The store said so, or was not asked: the lane goes on without a hole."""
    assert claiming().handle(unavailable())[0] == GiveBack(CLAIM)
    other = KeyRecord("body", Claim("other", SequenceId(0), 2))
    found = FoundKey(other, encode_key_record(other))
    assert claiming().handle(ClaimWritten(WriteStatus.CONFLICT, found)) == [GiveBack(CLAIM), AskHolder("other")]


def test_own_claim_is_recognised_behind_a_conflict() -> None:
    """The first reply was lost on the way."""
    assert claiming().handle(ClaimWritten(WriteStatus.CONFLICT, FOUND)) == [Publish(CLAIM)]


def test_answer_that_cannot_be_recorded_is_given_all_the_same() -> None:
    """The message is stored; the lane is retired, so that the next repeat asks the log."""
    for failure in (AnswerWritten(WriteStatus.UNKNOWN), unavailable()):
        core = claiming()
        core.handle(ClaimWritten(WriteStatus.OK))
        core.handle(Published("it is stored"))
        assert core.handle(failure) == [RetireLane("lane"), Answer("it is stored", replayed=False)]


def test_wrong_messages_are_refused_and_end_the_lane() -> None:
    """A contiguous producer cannot leave an id out."""
    core = claiming()
    core.handle(ClaimWritten(WriteStatus.OK))
    retire, refused = core.handle(PublishFailed(MessageTooLarge("too large", field="messages")))
    assert retire == RetireLane("lane")
    assert isinstance(refused, Refuse)
    assert isinstance(refused.error, MessageTooLarge)


def test_record_survives_its_bytes() -> None:
    """And what is none is said to be corrupt."""
    for record in (PENDING, KeyRecord("f", Claim("ü", SequenceId(0), 1), '{"a": 1}')):
        assert decode_key_record(encode_key_record(record)) == record
    for data in (b"", b"{}", b'{"format":2}', b"[]"):
        with pytest.raises(CorruptEntry):
            decode_key_record(data)


def test_lane_uses_ids_in_order_and_none_after_its_end() -> None:
    """Given back, an id is handed out again; after a doubt the lane hands out none."""
    lane = Lane("lane")
    first = lane.reserve(2)
    with pytest.raises(InvariantViolated):
        lane.reserve(1)
    lane.give_back(first)
    assert lane.reserve(2) == first
    lane.use(first)
    assert lane.reserve(1) == Claim("lane", SequenceId(2), 1)
    lane.retire()
    for act in (lambda: lane.reserve(1), lambda: lane.use(first)):
        with pytest.raises(InvariantViolated):
            act()


# --- interrupted anywhere ---------------------------------------------------------------------------------------------


def interrupted(steps: int, *, applied: bool, world: World) -> Run:
    """A request whose process crashes after so many steps; applied: the next effect still happens, unheard."""
    run = Run(world, world.process(), "key", "body")
    for _ in range(steps):
        if run.result is None:
            run.step()
    if applied and run.result is None and run.in_flight is None:
        run.perform(run._waiting[0])
    run.process.crashed, run.process.awake = True, False
    return run


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("arrives", ["before", "during", "after", "never"])
@pytest.mark.parametrize("steps", range(8))
def test_process_that_dies_at_any_step_leaves_a_key_that_is_published_once(
    steps: int, arrives: str, *, applied: bool
) -> None:
    """Its batch, if any was on its way, arrives before the key is repeated, during that, after it, or never."""
    world = World()
    dead = interrupted(steps, applied=applied, world=world)
    if arrives == "before" and dead.in_flight:
        dead.arrive()
    repeated = Run(world, world.process(), "key", "body")
    while repeated.result is None:
        repeated.step()
        if arrives == "during" and dead.in_flight:
            dead.arrive()
    if arrives == "after" and dead.in_flight:
        dead.arrive()
    assert isinstance(repeated.result, Answer), repeated.result
    assert world.log.copies("body") == 1
    assert repeat_until_answered(world, world.process(), "key", "body").answer == repeated.result.answer
    assert world.log.copies("body") == 1


def sweep(seed: int, *, fences: bool = True) -> World:
    """Three processes, four keys, each request several times at once; crashes, sleepers, lost and late writes."""
    chance = random.Random(seed)
    world = World(chance)
    world.fences = fences
    world.unknown = lambda: chance.random() < 0.15
    for _ in range(3):
        world.process()
    runs = [Run(world, chance.choice(world.processes), f"key{n % 4}", f"body{n % 4}") for n in range(12)]
    acknowledged = set()
    for _ in range(400):
        ready = [run for run in runs if run.can_step]
        if not ready:
            break
        run = chance.choice(ready)
        run.step()
        if isinstance(run.result, Answer):
            acknowledged.add(run.body)
        fault = chance.random()
        if fault < 0.03:
            sleeper = chance.choice(world.processes)
            sleeper.awake = not sleeper.awake
        elif fault < 0.05:
            world.late_write_arrives()
        elif fault < 0.06:
            dying = chance.choice(world.processes[:2])
            dying.crashed, dying.awake = True, False
    for run in runs:
        if run.in_flight is not None and chance.random() < 0.5:
            run.arrive()
    for process in world.processes:
        process.awake = False
    rescuer = world.process()
    world.unknown = lambda: False
    for number in range(4):
        answer = repeat_until_answered(world, rescuer, f"key{number}", f"body{number}")
        while world.late_writes:
            world.late_write_arrives()
        for run in runs:
            if run.in_flight is not None:
                run.arrive()
        assert repeat_until_answered(world, rescuer, f"key{number}", f"body{number}").answer == answer.answer
    return world


def test_no_seed_loses_or_doubles_a_key() -> None:
    """Answered means stored, repeated means once, in every order of every fault."""
    for seed in range(200):
        world = sweep(seed)
        copies = [world.log.copies(f"body{number}") for number in range(4)]
        assert copies == [1, 1, 1, 1], f"seed {seed}: {copies}"


def test_mapping_anew_without_fencing_is_found() -> None:
    """The control: the same sweep with the rule taken out doubles a key."""

    def keeps(seed: int) -> bool:
        world = sweep(seed, fences=False)
        return all(world.log.copies(f"body{number}") == 1 for number in range(4))

    assert not all(keeps(seed) for seed in range(200))
