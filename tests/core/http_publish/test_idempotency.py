"""A key is published once, wherever a request is interrupted, whoever repeats it, and whichever replies are lost."""

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
    ATTEMPTS_MAX,
    AnswerWritten,
    CheckHolder,
    ClaimPublished,
    ClaimWritten,
    FenceProducer,
    HolderChecked,
    IdsReserved,
    KeyedPublish,
    KeyedPublishEffect,
    KeyedPublishRequested,
    KeyedPublishState,
    KeyRead,
    PublishClaim,
    PublishFailed,
    ReadKey,
    RejectRequest,
    ReleaseClaim,
    ReserveIds,
    RetireProducer,
    ReturnAnswer,
    StepFailed,
    WriteAnswer,
    WriteClaim,
)
from oncelog.core.http_publish.key_record import FoundKey, KeyRecord, decode_key_record, encode_key_record
from oncelog.core.http_publish.keyed_producer import Claim, KeyedProducer
from oncelog.core.ids import SequenceId
from oncelog.core.records.status import WriteStatus
from tests.core.http_publish.idempotency_world import Run, World, repeat_until_answered, unavailable

CLAIM = Claim("http-1", SequenceId(7), 2)
PENDING = KeyRecord("body", CLAIM)
FOUND = FoundKey(PENDING, encode_key_record(PENDING))


def refusal(effects: list[KeyedPublishEffect]) -> RejectRequest:
    (refused,) = (effect for effect in effects if isinstance(effect, RejectRequest))
    return refused


def claiming() -> KeyedPublish:
    core = KeyedPublish("body")
    assert core.handle(KeyedPublishRequested()) == [ReadKey()]
    assert core.handle(KeyRead(None)) == [ReserveIds()]
    assert core.handle(IdsReserved(CLAIM)) == [WriteClaim(PENDING, None)]
    return core


# --- the steps --------------------------------------------------------------------------------------------------------


def test_claim_is_written_before_the_message_is_published() -> None:
    """The steps for a new key."""
    core = claiming()
    assert core.handle(ClaimWritten(WriteStatus.OK)) == [PublishClaim(CLAIM)]
    done = KeyRecord("body", CLAIM, "it is stored")
    assert core.handle(ClaimPublished("it is stored")) == [WriteAnswer(done, FOUND.stored)]
    assert core.handle(AnswerWritten(WriteStatus.OK)) == [ReturnAnswer("it is stored", replayed=False)]
    assert core.state is KeyedPublishState.ENDED


def test_repeat_gets_the_original_answer() -> None:
    """It is taken from the record; the log is not involved."""
    done = KeyRecord("body", CLAIM, "it is stored")
    core = KeyedPublish("body")
    assert core.handle(KeyRead(FoundKey(done, encode_key_record(done)))) == [
        ReturnAnswer("it is stored", replayed=True)
    ]


@pytest.mark.parametrize("answer", [None, "it is stored"])
def test_other_messages_under_the_same_key_are_refused(answer: str | None) -> None:
    """Whether or not the first request was answered."""
    record = KeyRecord("another body", CLAIM, answer)
    effects = KeyedPublish("body").handle(KeyRead(FoundKey(record, encode_key_record(record))))
    assert isinstance(refusal(effects).error, IdempotencyKeyReused)


def test_record_without_a_role_is_taken_from_an_older_service() -> None:
    """A repeat during an update gets its answer, and is not stored again."""
    record = KeyRecord("body", CLAIM, "it is stored")
    effects = KeyedPublish("role and body", without_role="body").handle(
        KeyRead(FoundKey(record, encode_key_record(record)))
    )
    assert effects == [ReturnAnswer("it is stored", replayed=True)]


def test_pending_key_with_a_live_holder_is_in_progress() -> None:
    """A process that still works on the key is not fenced."""
    core = KeyedPublish("body")
    assert core.handle(KeyRead(FOUND)) == [CheckHolder("http-1")]
    assert isinstance(refusal(core.handle(HolderChecked(alive=True))).error, PublishInProgress)


def test_pending_key_with_a_dead_holder_fences_its_producer_first() -> None:
    """The last stored id proves nothing before the producer is fenced."""
    core = KeyedPublish("body")
    core.handle(KeyRead(FOUND))
    assert core.handle(HolderChecked(alive=False)) == [FenceProducer("http-1")]


def test_request_that_is_fenced_while_settling_a_claim_reads_the_key_again() -> None:
    """Requests that settle the same key at the same time fence each other; the error must not reach their clients."""
    core = KeyedPublish("body")
    fenced = StepFailed(ProducerFenced("another request opened it"))
    core.handle(KeyRead(FOUND))
    for _ in range(ATTEMPTS_MAX - 1):
        core.handle(HolderChecked(alive=False))
        assert core.handle(fenced) == [ReadKey()]
        assert core.handle(KeyRead(FOUND)) == [CheckHolder("http-1")]
    core.handle(HolderChecked(alive=False))
    assert isinstance(refusal(core.handle(fenced)).error, PublishInProgress)


def test_unknown_claim_publishes_nothing_and_retires_the_producer() -> None:
    """The claim may be in the store, so its ids must never be published under this name."""
    core = claiming()
    retire, refused = core.handle(ClaimWritten(WriteStatus.UNKNOWN))
    assert retire == RetireProducer("http-1")
    assert isinstance(refused, RejectRequest)
    assert isinstance(refused.error, IdempotencyUnavailable)


def test_claim_that_was_not_written_releases_its_ids() -> None:
    """The keyed producer continues without a gap."""
    assert claiming().handle(unavailable())[0] == ReleaseClaim(CLAIM)
    other = KeyRecord("body", Claim("other", SequenceId(0), 2))
    found = FoundKey(other, encode_key_record(other))
    assert claiming().handle(ClaimWritten(WriteStatus.CONFLICT, found)) == [ReleaseClaim(CLAIM), CheckHolder("other")]


def test_own_claim_found_after_a_conflict_is_published() -> None:
    """The reply to the first attempt was lost, and the write was repeated below."""
    assert claiming().handle(ClaimWritten(WriteStatus.CONFLICT, FOUND)) == [PublishClaim(CLAIM)]


def test_answer_that_cannot_be_recorded_is_still_returned() -> None:
    """The messages are stored. The producer is retired, so that the next repeat settles the key by the log."""
    for failure in (AnswerWritten(WriteStatus.UNKNOWN), unavailable()):
        core = claiming()
        core.handle(ClaimWritten(WriteStatus.OK))
        core.handle(ClaimPublished("it is stored"))
        assert core.handle(failure) == [RetireProducer("http-1"), ReturnAnswer("it is stored", replayed=False)]


def test_invalid_messages_are_refused_and_retire_the_producer() -> None:
    """A contiguous producer cannot skip an id."""
    core = claiming()
    core.handle(ClaimWritten(WriteStatus.OK))
    retire, refused = core.handle(PublishFailed(MessageTooLarge("too large", field="messages")))
    assert retire == RetireProducer("http-1")
    assert isinstance(refused, RejectRequest)
    assert isinstance(refused.error, MessageTooLarge)


def test_key_record_round_trips_through_bytes() -> None:
    """Bytes that are not a record raise CorruptEntry."""
    for record in (PENDING, KeyRecord("f", Claim("ü", SequenceId(0), 1), '{"a": 1}')):
        assert decode_key_record(encode_key_record(record)) == record
    for data in (b"", b"{}", b'{"format":2}', b"[]"):
        with pytest.raises(CorruptEntry):
            decode_key_record(data)


@pytest.mark.hazard("key-without-message")
def test_keyed_producer_uses_ids_in_order_and_none_after_it_is_retired() -> None:
    """Released ids are reserved again; a retired producer reserves none."""
    keyed = KeyedProducer("http-1")
    first = keyed.reserve(2)
    with pytest.raises(InvariantViolated):
        keyed.reserve(1)
    keyed.release(first)
    assert keyed.reserve(2) == first
    keyed.use(first)
    assert keyed.reserve(1) == Claim("http-1", SequenceId(2), 1)
    keyed.retire()
    for act in (lambda: keyed.reserve(1), lambda: keyed.use(first)):
        with pytest.raises(InvariantViolated):
            act()


# --- interrupted anywhere ---------------------------------------------------------------------------------------------


def interrupted(steps: int, *, applied: bool, world: World) -> Run:
    """A request whose process crashes after `steps` steps. applied: the next effect is still performed."""
    run = Run(world, world.process(), "key", "body")
    for _ in range(steps):
        if run.result is None:
            run.step()
    if applied and run.result is None and run.in_flight is None:
        run.perform(run._waiting[0])
    run.process.crashed, run.process.awake = True, False
    return run


@pytest.mark.hazard("key-without-message")
@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("arrives", ["before", "during", "after", "never"])
@pytest.mark.parametrize("steps", range(8))
def test_process_that_dies_at_any_step_leaves_a_key_that_is_published_once(
    steps: int, arrives: str, *, applied: bool
) -> None:
    """Its batch in flight, if any, arrives before the key is repeated, during the repeat, after it, or never."""
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
    assert isinstance(repeated.result, ReturnAnswer), repeated.result
    assert world.log.copies("body") == 1
    assert repeat_until_answered(world, world.process(), "key", "body").answer == repeated.result.answer
    assert world.log.copies("body") == 1


def sweep(seed: int, *, fences: bool = True) -> World:
    """Three processes, four keys, concurrent repeats of each request; crashes, pauses, lost replies and late writes."""
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
        if isinstance(run.result, ReturnAnswer):
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


@pytest.mark.hazard("key-without-message")
def test_no_seed_loses_or_duplicates_a_key() -> None:
    """An answered key is stored, and a repeated one only once, in every order of faults."""
    for seed in range(200):
        world = sweep(seed)
        copies = [world.log.copies(f"body{number}") for number in range(4)]
        assert copies == [1, 1, 1, 1], f"seed {seed}: {copies}"


@pytest.mark.hazard("key-without-message")
def test_new_claim_without_fencing_is_found() -> None:
    """Control: without the rule, the same sweep stores a key twice."""

    def keeps(seed: int) -> bool:
        world = sweep(seed, fences=False)
        return all(world.log.copies(f"body{number}") == 1 for number in range(4))

    assert not all(keeps(seed) for seed in range(200))
