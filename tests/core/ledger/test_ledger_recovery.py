"""Recovery closes a ledger once, loses nothing acknowledged, and waits for no more members than it needs."""

from dataclasses import replace

import pytest

from oncelog.core.ids import EntryId, Incarnation, LedgerId, TopicId
from oncelog.core.ledger.metadata import LedgerKey, LedgerMetadata, LedgerState
from oncelog.core.ledger.recovery import (
    FenceMember,
    LedgerRecovered,
    LedgerRecovery,
    MemberErased,
    MemberFenced,
    RecoveryAdd,
    RecoveryAdded,
    RecoveryFailed,
    RecoveryPhase,
    RecoveryRead,
    RecoveryReadAnswered,
)
from oncelog.core.records.records import ReadRecord, RecordRead, RecordWritten, WriteRecord
from oncelog.core.records.status import WriteStatus
from tests.core.ledger.recovery_world import KEY, LEDGER, OPEN, A, B, C, Run, World, check_log, checksum, entry

E0, E1, E2, E3 = (entry(i, last_add_confirmed=max(-1, i - 2)) for i in range(4))
IN_RECOVERY = OPEN.in_recovery()


def recovered(world: World) -> LedgerMetadata:
    (outcome,) = world.outcomes
    assert isinstance(outcome, LedgerRecovered), outcome
    assert outcome.metadata == world.record
    return outcome.metadata


def failure(world: World) -> str:
    (outcome,) = world.outcomes
    assert isinstance(outcome, RecoveryFailed), outcome
    assert world.record is None or world.record.state is LedgerState.IN_RECOVERY
    return outcome.reason


# --- the protocol, effect by effect -----------------------------------------------------------------------------------


def test_recovery_step_by_step() -> None:
    """The whole protocol once, with every effect."""
    core = LedgerRecovery(LEDGER, checksum, range_entries=2)
    assert core.start() == [ReadRecord(KEY)]
    marking = WriteRecord(KEY, IN_RECOVERY, 0)
    assert core.handle(RecordRead(KEY, OPEN, 0)) == [marking]
    assert core.handle(marking.answered(WriteStatus.OK, 1)) == [FenceMember(LEDGER, m) for m in (A, B, C)]
    assert core.handle(MemberFenced(LEDGER, A, EntryId(0), EntryId(-1))) == []
    reads = core.handle(MemberFenced(LEDGER, C, EntryId(-1), EntryId(-1)))
    assert reads == [RecoveryRead(LEDGER, m, EntryId(0), 2) for m in (A, B, C)]
    no, one = frozenset[EntryId](), frozenset([EntryId(1)])
    both = frozenset([EntryId(0), EntryId(1)])
    assert core.handle(RecoveryReadAnswered(LEDGER, A, EntryId(0), {EntryId(0): E0}, one, no)) == []
    adds = core.handle(RecoveryReadAnswered(LEDGER, C, EntryId(0), {}, both, no))
    assert adds == [RecoveryAdd(LEDGER, m, ((EntryId(0), E0),)) for m in (A, B, C)]
    assert core.handle(RecoveryAdded(LEDGER, A, (EntryId(0),), ok=True)) == []
    closing = WriteRecord(KEY, IN_RECOVERY.closed(end=EntryId(0), length=10), 1)
    assert core.handle(RecoveryAdded(LEDGER, C, (EntryId(0),), ok=True)) == [closing]
    assert core.handle(closing.answered(WriteStatus.OK, 2)) == [LedgerRecovered(LEDGER, closing.value, 2)]
    assert core.phase is RecoveryPhase.RECOVERED


def test_empty_ledger_is_closed_empty() -> None:
    """Members that do not know the ledger are fenced, too, and hold nothing."""
    world = World({})
    Run(world).finish()
    assert recovered(world) == OPEN.closed(end=EntryId(-1), length=0)
    assert len(world.fenced) == 3


def test_closed_ledger_is_left_alone() -> None:
    """CLOSED is final: no fence, no write."""
    closed = OPEN.closed(end=EntryId(4), length=50)
    world = World({}, closed)
    Run(world).finish()
    assert recovered(world) == closed
    assert (world.version, world.fenced) == (0, set())


def test_ledger_in_recovery_is_fenced_without_a_write() -> None:
    """An earlier recovery died: this one continues from its mark in the record."""
    world = World({A: {0: E0}, B: {0: E0}}, IN_RECOVERY)
    Run(world).finish()
    assert recovered(world).end == 0
    assert world.version == 1


def test_missing_record_fails_the_recovery() -> None:
    """A ledger that a list names but that has no record is a hole, not an empty ledger."""
    world = World({}, None)
    Run(world).finish()
    assert "no record" in failure(world)


def test_entries_before_lac_are_not_read_again() -> None:
    """They have their ack quorum. The entry at LAC is read only for its length."""
    entries = {i: entry(i, last_add_confirmed=i - 1) for i in range(100)}
    world = World({A: entries, B: entries, C: {}})
    run = Run(world)
    seen: list[RecoveryRead | RecoveryAdd] = []
    while run.open:
        seen += [e for e in run.open if isinstance(e, RecoveryRead | RecoveryAdd)]
        run.step()
    assert min(e.first for e in seen if isinstance(e, RecoveryRead)) == 98
    assert min(e.entries[0][0] for e in seen if isinstance(e, RecoveryAdd)) == 99
    assert recovered(world) == OPEN.closed(end=EntryId(99), length=1000)


def test_end_at_lac_takes_its_length_from_the_entry_there() -> None:
    """LAC may come from the header of an entry that was never acknowledged and is dropped."""
    world = World({A: {0: E0, 1: E1}, B: {0: E0, 1: E1}, C: {0: E0, 1: E1, 2: entry(2, last_add_confirmed=1)}})
    run = Run(world)
    while RecoveryRead not in map(type, run.open):
        run.step(len(run.open) - 1)  # C answers its fence first, so LAC is known
    run.finish(hung=C)
    assert recovered(world) == OPEN.closed(end=EntryId(1), length=20)


def test_tail_longer_than_a_range_is_read_in_ranges() -> None:
    """Ranges limit memory; the ledger may continue after a range."""
    entries = {i: entry(i) for i in range(11)}
    for count in (8, 11):  # 8: the end falls on the border of a range
        tail = {i: entries[i] for i in range(count)}
        world = World({A: tail, B: tail, C: {}})
        Run(world).finish()
        assert recovered(world).end == count - 1
        check_log(world)


def test_rest_of_a_partial_answer_is_requested() -> None:
    """A node limits its answers by bytes. Ids that it does not name are neither present nor missing."""
    entries = {i: entry(i) for i in range(6)}
    world = World({A: entries, B: {}, C: entries})
    world.answer_entries_max = 1
    Run(world).finish()
    assert recovered(world).end == 5
    check_log(world)


def test_copies_are_verbatim() -> None:
    """LAC and checksum are copied with the bytes, so that replicas stay identical."""
    odd = {i: entry(i, body=bytes([i]) * 9) for i in range(3)}
    world = World({A: odd})
    Run(world).finish(hung=B)
    assert world.copies[C] == odd


# --- members that recovery waits for ----------------------------------------------------------------------------------


@pytest.mark.parametrize("hung", [A, B, C])
def test_hung_member_blocks_nothing(hung: Incarnation) -> None:
    """The quorums decide, not the number of answers (BookKeeper 1067)."""
    world = World({m: {0: E0, 1: E1} for m in (A, B, C)})
    Run(world).finish(hung=hung)
    assert recovered(world).end == 1
    check_log(world)


def test_one_negative_is_not_the_end() -> None:
    """With Qa 2 of 3, one member without the entry proves nothing: the two others may have acknowledged it."""
    world = World({A: {}, B: {0: E0}, C: {0: E0}})
    run = Run(world)
    for _ in range(4):  # record, mark, fences of A and B
        run.step()
    order = [e for e in run.open if isinstance(e, RecoveryRead)]
    run.step(run.open.index(order[0]))
    assert run.core.phase is RecoveryPhase.COPYING
    assert not any(isinstance(e, WriteRecord | RecoveryAdd) for e in run.open)
    run.finish(hung=C)
    assert recovered(world).end == 0


def test_wiped_member_does_not_answer_for_its_former_incarnation() -> None:
    """B was wiped and is another incarnation, so B never answers. The negative of A alone must not end the ledger."""
    world = World({A: {}, B: {}, C: {0: E0}})
    Run(world).finish(hung=B)
    assert recovered(world).end == 0


@pytest.mark.hazard("members-lost-in-turn")
def test_two_lost_members_leave_a_recovery_waiting() -> None:
    """With too few members nothing may be decided: no answer is better than a lost acknowledged entry."""
    world = World({A: {}, B: {0: E0}, C: {0: E0}})
    run = Run(world)
    run.step()
    run.step()
    run.step()  # A alone is fenced
    assert run.core.phase is RecoveryPhase.FENCING
    run.deliver(MemberFenced(LEDGER, A, EntryId(-1), EntryId(-1)))
    run.deliver(MemberFenced(LEDGER, Incarnation("b again"), EntryId(-1), EntryId(-1)))
    assert run.core.phase is RecoveryPhase.FENCING


@pytest.mark.hazard("open-ledger-without-quorum")
def test_recovery_that_too_few_members_can_answer_cannot_end() -> None:
    """The topic says so instead of waiting in silence. A member that is fenced has answered the step of the fence, but
    its entries are still to be read."""
    world = World({A: {}, B: {0: E0}, C: {0: E0}})
    run = Run(world)
    assert not run.core.cannot_end({A})
    run.step()
    run.step()
    run.step()  # A alone is fenced
    assert run.core.cannot_end({A})
    assert not run.core.cannot_end({B})
    run.deliver(MemberFenced(LEDGER, B, EntryId(0), EntryId(-1)))
    assert run.core.cannot_end({C})
    assert not run.core.cannot_end({A, C})


# --- damage ---------------------------------------------------------------------------------------------------------


def test_damaged_copy_is_unknown_not_missing() -> None:
    """A has nothing, and B cannot read its copy: C decides."""
    world = World({A: {}, B: {0: E0}, C: {0: E0}})
    world.damaged[B].add(0)
    Run(world).finish()
    assert recovered(world).end == 0


def test_entry_neither_readable_nor_missing_fails_the_recovery() -> None:
    """It may have been acknowledged by B and C. Ending the ledger before it would lose it, so an operator decides."""
    world = World({A: {}, B: {0: E0}, C: {0: E0}})
    world.damaged[B].add(0)
    world.copies[C][0] = E0[:-1] + b"?"
    Run(world).finish()
    assert "entry 7:0 is neither readable nor certainly missing" in failure(world)


def test_entry_of_another_ledger_is_not_a_copy() -> None:
    """A copy must be the requested entry, not merely intact."""
    world = World({A: {0: entry(1)}, B: {}, C: {}})
    Run(world).finish()
    assert recovered(world).end == -1


def test_copies_that_differ_fail_the_recovery() -> None:
    """A correct writer cannot write two payloads under one id, so no choice between them is right."""
    world = World({A: {0: E0}, B: {0: entry(0, body=b"9876543210")}, C: {}})
    Run(world).finish()
    assert "two valid copies of entry 7:0 differ" in failure(world)


@pytest.mark.hazard("ledger-id-given-twice")
def test_entries_of_another_topic_are_not_recovered() -> None:
    """Their ledger had the same id before ZooKeeper was restored. What they hide is unknown, so nothing is ended."""
    foreign = entry(0, topic_id=TopicId("f0" * 16))
    world = World({A: {0: foreign}, B: {0: foreign}, C: {}})
    Run(world).finish()
    assert "entry 7:0 is neither readable nor certainly missing" in failure(world)


@pytest.mark.hazard("ledger-id-given-twice")
def test_last_add_confirmed_of_another_topic_is_not_believed() -> None:
    """Entry 0 has one copy. Taken for acknowledged, it would not be written back before the record is CLOSED."""
    foreign = {number: entry(number, last_add_confirmed=number - 1, topic_id=TopicId("f0" * 16)) for number in range(2)}
    world = World({A: foreign, B: {0: E0}, C: {}})
    Run(world).finish()
    assert recovered(world).end == 0
    assert world.copies[C] == {0: E0}


def test_acknowledged_entry_on_no_member_fails_the_recovery() -> None:
    """LAC 1 proves that entry 1 was acknowledged. Ending the ledger before it would hide a loss."""
    world = World({A: {2: entry(2, last_add_confirmed=1)}, B: {}, C: {}})
    Run(world).finish()
    assert "entry 7:1 was acknowledged" in failure(world)


def test_answer_that_names_no_id_is_not_requested_for_ever() -> None:
    """It counts as unknown, which is never "missing"."""
    run = Run(World({}, IN_RECOVERY), range_entries=1)
    for _ in range(3):
        run.step()
    none = frozenset[EntryId]()
    run.open.clear()
    for member in (A, B):
        run.deliver(RecoveryReadAnswered(LEDGER, member, EntryId(0), {}, none))
    assert run.open == []
    (failed,) = run.deliver(RecoveryReadAnswered(LEDGER, C, EntryId(0), {}, none))
    assert isinstance(failed, RecoveryFailed)


def test_every_entry_needs_its_own_ack_quorum_before_the_close() -> None:
    """Members answer in parts. The confirmation of one entry says nothing about the next."""
    run = Run(World({A: {0: E0, 1: E1}, B: {0: E0}, C: {}}))
    while not any(isinstance(e, RecoveryAdd) for e in run.open):
        run.step()
    run.open.clear()
    zero, one = (EntryId(0),), (EntryId(1),)
    assert run.deliver(RecoveryAdded(LEDGER, A, zero, ok=True)) == []
    assert run.deliver(RecoveryAdded(LEDGER, B, one, ok=True)) == []
    assert run.deliver(RecoveryAdded(LEDGER, C, zero, ok=True)) == []
    assert [type(e) for e in run.deliver(RecoveryAdded(LEDGER, A, one, ok=True))] == [WriteRecord]


def test_write_back_below_the_ack_quorum_fails_the_recovery() -> None:
    """A closed entry with one copy is one fault away from being lost."""
    run = Run(World({A: {0: E0}, B: {0: E0}, C: {}}))
    while not any(isinstance(e, RecoveryAdd) for e in run.open):
        run.step()
    run.open.clear()
    run.deliver(RecoveryAdded(LEDGER, A, (EntryId(0),), ok=True))
    run.deliver(RecoveryAdded(LEDGER, B, (EntryId(0),), ok=False))
    (failed,) = run.deliver(RecoveryAdded(LEDGER, C, (EntryId(0),), ok=False))
    assert isinstance(failed, RecoveryFailed)
    assert "refused by 2 members" in failed.reason


# --- late, repeated and lost answers --------------------------------------------------------------------------------


def test_repeated_answers_count_once() -> None:
    """The network duplicates messages; two answers of one member are not two members."""
    run = Run(World({A: {}, B: {0: E0}, C: {0: E0}}, IN_RECOVERY))
    run.step()
    run.open.clear()
    for _ in range(3):
        run.deliver(MemberFenced(LEDGER, A, EntryId(-1), EntryId(-1)))
    assert run.core.phase is RecoveryPhase.FENCING
    run.deliver(MemberFenced(LEDGER, B, EntryId(0), EntryId(-1)))
    empty = RecoveryReadAnswered(LEDGER, A, EntryId(0), {}, frozenset(map(EntryId, range(4))))
    run.open.clear()
    for _ in range(3):
        run.deliver(empty)
    assert run.open == []
    here = RecoveryReadAnswered(LEDGER, B, EntryId(0), {EntryId(0): E0}, frozenset(map(EntryId, range(1, 4))))
    assert [type(e) for e in run.deliver(here)] == [RecoveryAdd] * 3
    for _ in range(3):
        assert run.deliver(RecoveryAdded(LEDGER, A, (EntryId(0),), ok=True)) == []
    assert [type(e) for e in run.deliver(RecoveryAdded(LEDGER, B, (EntryId(0),), ok=True))] == [WriteRecord]


def test_answers_of_another_ledger_are_ignored() -> None:
    """One shell runs several recoveries."""
    core = LedgerRecovery(LEDGER, checksum)
    core.start()
    other = replace(OPEN, ledger_id=LedgerId(8))
    assert core.handle(RecordRead(LedgerKey(other.ledger_id), other, 0)) == []


def test_late_answer_to_the_first_write_is_not_taken_for_the_close() -> None:
    """An answer repeats the value of its write."""
    run = Run(World({}))
    while run.core.phase is not RecoveryPhase.CLOSING:
        run.step()
    assert run.deliver(WriteRecord(KEY, IN_RECOVERY, 0).answered(WriteStatus.OK, 1)) == []
    assert run.core.phase is RecoveryPhase.CLOSING


def test_late_answer_to_the_writers_close_is_not_taken_for_a_write_of_the_recovery() -> None:
    """One process closed the ledger, had to take its topic over again, and gets the answer then. Its end stands."""
    run = Run(World({A: {0: E0}, B: {0: E0}, C: {}}))
    run.step()
    close = WriteRecord(KEY, OPEN.closed(end=EntryId(0), length=10), 0)
    assert isinstance(run.world.perform(close), RecordWritten)
    assert run.deliver(close.answered(WriteStatus.OK, 1)) == []
    assert run.core.phase is RecoveryPhase.MARKING
    assert run.finish().world.record == close.value


@pytest.mark.parametrize("status", [WriteStatus.CONFLICT, WriteStatus.UNKNOWN])
@pytest.mark.parametrize("applied", [True, False])
def test_record_is_read_again_after_a_write_that_is_not_ok(status: WriteStatus, applied: bool) -> None:
    """Both writes of a recovery, applied or not, with either status: the record decides how to continue."""
    for nth in (0, 1):
        world = World({A: {0: E0}, B: {0: E0}, C: {}})
        run = Run(world)
        writes = 0
        while run.open:
            effect = run.open[0]
            if isinstance(effect, WriteRecord) and (writes := writes + 1) == nth + 1:
                run.open.pop(0)
                if applied:
                    world.perform(effect)
                assert run.deliver(effect.answered(status)) == [ReadRecord(KEY)]
            else:
                run.step()
        assert recovered(world).end == 0
        assert world.version == 2


def test_close_of_the_writer_takes_precedence() -> None:
    """The writer closed its own ledger first: its end stands."""
    world = World({A: {0: E0}, B: {0: E0}, C: {}})
    run = Run(world)
    run.step()
    world.record, world.version = OPEN.closed(end=EntryId(0), length=10), 1
    run.finish()
    assert recovered(world).end == 0
    assert world.fenced == set()


def test_record_deleted_while_closing_fails_the_recovery() -> None:
    """A newer owner dropped the ledger: this process does not own the topic any more."""
    world = World({})
    run = Run(world)
    while run.core.phase is not RecoveryPhase.CLOSING:
        run.step()
    world.record = None
    run.finish()
    assert "no record" in failure(world)


@pytest.mark.hazard("answer-of-a-former-member")
@pytest.mark.parametrize("phase", [RecoveryPhase.FENCING, RecoveryPhase.COPYING])
def test_erased_member_makes_the_recovery_read_the_record_again(phase: RecoveryPhase) -> None:
    """Another recovery closed the ledger, repair replaced B and C, and both erased their copies. Two negatives of them
    would have cut off the entry, which was acknowledged."""
    world = World({A: {}, B: {}, C: {}})
    run = Run(world)
    while run.core.phase is not phase:
        run.step()
    world.record = replace(IN_RECOVERY.closed(end=EntryId(0), length=10), members=(A, Incarnation("d")))
    world.version += 2
    run.open = []
    assert run.deliver(MemberErased(LEDGER, B)) == [ReadRecord(KEY)]
    run.finish()
    assert recovered(world).end == 0


@pytest.mark.hazard("answer-of-a-former-member")
def test_erased_member_is_no_negative() -> None:
    """While the record is not CLOSED nothing follows from it: the other members decide."""
    world = World({A: {0: E0}, B: {}, C: {0: E0}})
    run = Run(world)
    while run.core.phase is not RecoveryPhase.COPYING:
        run.step()
    run.deliver(MemberErased(LEDGER, A))
    run.deliver(MemberErased(LEDGER, B))
    run.finish(hung=A)
    assert recovered(world).end == 0


def test_late_erased_answer_changes_nothing() -> None:
    world = World({A: {0: E0}, B: {0: E0}, C: {0: E0}})
    run = Run(world).finish()
    assert run.deliver(MemberErased(LEDGER, A)) == []
    assert recovered(world).end == 0
