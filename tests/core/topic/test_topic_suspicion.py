"""A topic whose owner may be deposed, or whose write failed: which answers it may still give."""

import pytest

from oncelog.core.errors import NotOwner, ProducerBusy, SessionEnded
from oncelog.core.formats.opening import Granted, OnConflict
from oncelog.core.ids import BEFORE_ALL, NO_ENTRY, EntryId, Incarnation, LedgerId, OwnerEpoch, Position, ProducerId
from oncelog.core.ledger.metadata import LedgerKey
from oncelog.core.records.records import ReadRecord, RecordRead, TopicKey, WriteRecord
from oncelog.core.records.status import WriteStatus
from oncelog.core.topic.topic import Phase
from oncelog.core.topic_events.effects import AllocateProducerId, EndSession, TopicDeposed
from oncelog.core.topic_events.events import EntryIdsRead, HigherEpochReported, ProducerIdAllocated, TrimRequested
from tests.core.builders import TOPIC, A, B, parts, received
from tests.core.topic.test_takeover import state_of, truth
from tests.core.topic.test_topic import serving, stored
from tests.core.topic.topic_world import READ_TOPIC, WRITE_TOPIC, Owner, World

# --- deposed ----------------------------------------------------------------------------------------------------------


def test_deposed_owner_answers_not_owner() -> None:
    """Once it has read the record, it answers nothing else."""
    world, owner = serving()
    granted = owner.open()
    world.place(Incarnation("o2"))
    owner.handle(HigherEpochReported())
    owner.run()
    assert owner.core.phase is Phase.DEPOSED
    (end,) = owner.emitted(EndSession)
    assert (end.session, type(end.error)) == (granted.session, NotOwner)
    assert isinstance(owner.answers[owner.ask("p")], NotOwner)
    assert len(owner.emitted(TopicDeposed)) == 1


@pytest.mark.hazard("stale-record-after-conflict")
def test_fenced_owner_reads_its_record_and_opens_no_ledger() -> None:
    """A fenced owner does not roll: it would keep rolling before a slow new owner has opened its ledger."""
    world, owner = serving()
    granted = owner.open()
    second = Owner(world, "o2").take_over()
    owner.send(granted.session, received(1, [0]))
    owner.run()
    assert owner.core.phase is Phase.DEPOSED
    assert owner.batches == []
    assert [link.ledger_id for link in world.record.ledgers] == [LedgerId(1), LedgerId(2)]
    assert second.core.phase is Phase.SERVING


@pytest.mark.hazard("stale-record-after-conflict")
def test_slow_takeover_finds_the_ledger_that_was_rolled_meanwhile() -> None:
    """O2 reads the record, O1 rolls and acks in the new ledger: the placement comes after, and O2 reads what is."""
    world, owner = serving()
    granted = owner.open()
    world.silent = {A, B}
    owner.send(granted.session, received(1, [0]))
    owner.run()
    world.silent = set()
    owner.tick(6000).run()
    granted = owner.open()
    owner.send(granted.session, received(2, [0], generation=2))
    owner.run()
    assert owner.result(2) == stored(1, 1, index=0, ledger_id=2)
    second = Owner(world, "o2").take_over()
    assert state_of(second) == truth(world)
    assert second.open().last_sequence_id == 0


@pytest.mark.hazard("deposed-owner-refuses")
def test_refusal_waits_for_the_record() -> None:
    """An owner that does not know that it is deposed would answer ProducerBusy forever."""
    world, owner = serving()
    owner.open()
    call = owner.ask("p", READ_TOPIC, on_conflict=OnConflict.REFUSE)
    assert call not in owner.answers
    world.place(Incarnation("o2"))
    owner.run()
    assert isinstance(owner.answers[call], NotOwner)


def test_refusal_is_sent_when_the_record_names_this_owner() -> None:
    """The same case, but the record still names this owner."""
    _, owner = serving()
    owner.open()
    call = owner.ask("p", on_conflict=OnConflict.REFUSE)
    assert isinstance(owner.answers[call], ProducerBusy)


def test_read_begun_before_the_opening_proves_nothing() -> None:
    """The record was read for one; another's refusal, asked for meanwhile, waits for the next read."""
    world, owner = serving()
    owner.open()
    first = owner.ask("p", READ_TOPIC, on_conflict=OnConflict.REFUSE)
    second = owner.ask("p", READ_TOPIC, on_conflict=OnConflict.REFUSE)
    owner.queue.remove(ReadRecord(TopicKey(TOPIC)))

    owner.handle(RecordRead(TopicKey(TOPIC), *world.topic))
    assert isinstance(owner.answers[first], ProducerBusy)
    assert second not in owner.answers
    world.place(Incarnation("o2"))
    owner.run()
    assert isinstance(owner.answers[second], NotOwner)


@pytest.mark.hazard("deposed-owner-refuses")
def test_higher_epoch_in_an_opening_makes_the_owner_read_its_record() -> None:
    """The client has seen a newer owner."""
    _, owner = serving()
    call = owner.ask("p", READ_TOPIC, owner_epoch_seen=OwnerEpoch(9))
    assert call not in owner.answers
    owner.run()
    assert isinstance(owner.answers[call], Granted)


# --- suspicion --------------------------------------------------------------------------------------------------------


def test_unfounded_suspicion_repeats_the_takeover() -> None:
    """Every phase is repeated: fence, recover, replay, and a new ledger. Clients resend."""
    world, owner = serving()
    granted = owner.open()
    owner.send(granted.session, received(1, [0]))
    owner.run()
    owner.handle(HigherEpochReported())
    owner.run()
    assert owner.core.phase is Phase.SERVING
    assert [link.ledger_id for link in world.record.ledgers] == [LedgerId(1), LedgerId(2)]
    (end,) = owner.emitted(EndSession)
    assert isinstance(end.error, SessionEnded)
    again = owner.open(None, resume=granted.instance)
    assert again.session > granted.session
    assert (again.last_sequence_id, again.final) == (0, False)


def test_takeover_ignores_late_completions_of_the_time_before() -> None:
    """An id, an entry's ids, a close: all of them were asked for before the suspicion."""
    _, owner = serving()
    owner.ask("p", AllocateProducerId)
    owner.handle(HigherEpochReported())
    while owner.core.takeover is None:
        owner.step(AllocateProducerId)
    header, deltas = parts([0, 2])
    close = WriteRecord(LedgerKey(LedgerId(1)), owner.world.ledgers[LedgerId(1)][0].closed(end=NO_ENTRY, length=0), 0)
    for event in (
        ProducerIdAllocated(1, ProducerId(7)),
        EntryIdsRead(Position(LedgerId(1), EntryId(0)), header, deltas),
        close.answered(WriteStatus.OK, 1),
        TrimRequested(BEFORE_ALL),
    ):
        assert owner.handle(event) == []
    owner.run()
    assert owner.core.phase is Phase.SERVING


def test_write_of_the_record_with_a_lost_reply_starts_again() -> None:
    """It was applied or not: the record shows which, and the takeover begins with that record."""
    for applied in (True, False):
        world = World()
        owner = Owner(world, "o1").take_over(WRITE_TOPIC)
        (write,) = owner.writes(TopicKey, owner.queue)
        owner.queue.remove(write)
        if applied:
            world.topic = (write.value, write.version + 1)

        owner.handle(write.answered(WriteStatus.UNKNOWN))
        owner.run()
        assert owner.core.phase is Phase.SERVING
        # What was linked then has no entry, so the next one takes its place.
        assert len(world.record.ledgers) == 1
        assert world.record.ledgers[0].ledger_id > write.value.ledgers[0].ledger_id


# --- the failure of a write -------------------------------------------------------------------------------------------


@pytest.mark.hazard("marks-of-a-failed-write")
def test_failed_write_ends_every_session_and_rolls_everything_back() -> None:
    """6 is in flight, then the write fails: 7 must not be accepted on top of an id that was not stored."""
    world, owner = serving()
    one, two = owner.open("p"), owner.open("q")
    owner.send(one.session, received(1, [5]))
    owner.run()
    world.silent = {A, B}
    owner.send(one.session, received(2, [6]))
    call = owner.ask("new")
    owner.run()
    resumed = owner.open(None, resume=one.instance)
    owner.send(resumed.session, received(3, [6]), received(4, [7]))
    owner.run()
    assert [answer.request for answer in owner.batches] == [1]
    owner.tick(6000)
    world.silent = set()
    owner.run()
    ends = {effect.session for effect in owner.emitted(EndSession)}
    assert ends == {one.session, two.session, resumed.session}
    assert isinstance(owner.answers[call], SessionEnded)
    assert world.ledgers[LedgerId(1)][0].end == 3
    assert state_of(owner) == truth(world)
    table = owner.core.serving.log.table if owner.core.serving else None
    assert table is not None
    assert table.producer_id_of("new") is None
    again = owner.open(None, resume=one.instance)
    owner.send(again.session, received(5, [6]), received(6, [7]))
    owner.run()
    assert owner.result(5) == stored(0, 1, index=1, ledger_id=2)
    assert owner.result(6) == stored(1, 1, index=2, ledger_id=2)


def test_close_that_finds_another_state_stops_the_owner() -> None:
    """Another process changed the ledger. The record decides, and no other ledger is opened before."""
    world, owner = serving()
    granted = owner.open()
    world.silent = {A, B}
    owner.send(granted.session, received(1, [0]))
    owner.run()
    owner.tick(6000)
    metadata, version = world.ledgers[LedgerId(1)]
    world.ledgers[LedgerId(1)] = (metadata.in_recovery(), version + 1)
    world.place(Incarnation("o2"))
    owner.run()
    assert owner.core.phase is Phase.DEPOSED
    assert len(world.record.ledgers) == 1
