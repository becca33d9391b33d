"""Producer sessions: their order, what blocks them, and that the end of one does not affect the others."""

from collections.abc import Sequence

from oncelog.core.chain.managed_ledger import EntriesAnswered, SendAdds
from oncelog.core.errors import InvalidArgument, NotOwner, OncelogError, SequenceGap, SessionEnded, StaleSequence
from oncelog.core.formats.batch import decode_batch
from oncelog.core.formats.compression import Compression
from oncelog.core.formats.opening import Granted
from oncelog.core.formats.outcome import ResultKind, ResultRange
from oncelog.core.ids import EntryId, Incarnation, LedgerId, Position, SessionNumber
from oncelog.core.ledger.member_status import AppendStatus
from oncelog.core.publishing.sessions import BlockedOn
from oncelog.core.records.records import RecordRead, TopicKey, kind_of
from oncelog.core.topic_events.effects import AnswerBatches, EndSession, ReadEntryIds
from oncelog.core.topic_events.events import ReceivedBatch, SessionClosed
from tests.core.builders import CONTIGUOUS, PID, TOPIC, A, B, batch, checksum, received
from tests.core.topic.test_topic import serving, stored
from tests.core.topic.topic_world import READ_TOPIC, Owner


def parked(owner: Owner, session: SessionNumber) -> tuple[BlockedOn | None, int]:
    """What a session waits for, and how many batches wait with it."""
    assert owner.core.serving is not None
    found = owner.core.serving.sessions.open_sessions[session]
    return found.blocked_on, len(found.received)


def duplicate(
    entry: int, count: int, *, ledger_id: int = 1, offset: int = 0, differs: bool | None = None
) -> tuple[ResultRange, ...]:
    """entry: as in `stored`."""
    position = Position(LedgerId(ledger_id), EntryId(1 + entry))
    return (ResultRange(ResultKind.DUPLICATE, count, position, offset, differs),)


def ended(owner: Owner) -> list[tuple[SessionNumber, type[OncelogError]]]:
    return [(effect.session, type(effect.error)) for effect in owner.emitted(EndSession)]


def test_batches_of_one_event_are_appended_in_one_frame() -> None:
    """One frame carries many batches."""
    _, owner = serving()
    granted = owner.open()
    owner.effects.clear()
    owner.send(granted.session, received(1, [0]), received(2, [1]), received(3, [2]))
    (send,) = owner.emitted(SendAdds)
    assert len(send.adds) == 3
    owner.run()
    answers = [answer.request for effect in owner.emitted(AnswerBatches) for answer in effect.answers]
    assert sorted(answers) == [1, 2, 3]


def test_retry_in_flight_joins_the_write() -> None:
    """It is stored once, and answered with its position when it is durable."""
    world, owner = serving()
    granted = owner.open()
    owner.send(granted.session, received(1, [0, 1]))
    again = owner.answers[owner.ask(None, SendAdds, resume=granted.instance)]
    assert isinstance(again, Granted)
    owner.send(again.session, received(2, [0, 1]))
    assert [answer.request for answer in owner.batches] == []
    owner.run()
    assert [(answer.session, answer.request, answer.result) for answer in owner.batches] == [
        (again.session, 2, duplicate(1, 2, differs=False))
    ]
    assert max(world.entries_of(LedgerId(1))) == 2


def test_partly_duplicate_batch_is_answered_per_message() -> None:
    """Durable, in flight and new in one batch: the parts in the order of the batch."""
    world, owner = serving()
    granted = owner.open()
    owner.send(granted.session, received(1, [0, 1]))
    owner.run()
    world.silent = {A, B}
    owner.send(granted.session, received(2, [4]))
    owner.send(granted.session, received(3, [1, 4, 6]))
    owner.run()
    assert [answer.request for answer in owner.batches] == [1]
    owner.handle(EntriesAnswered(LedgerId(1), A, [EntryId(3), EntryId(4)], AppendStatus.OK))
    owner.run()
    assert owner.result(2) == stored(2, 1, index=2)
    assert owner.result(3) == duplicate(1, 1, offset=1) + duplicate(2, 1) + stored(3, 1, index=3, offset=2)


def test_refused_batch_ends_its_session_and_no_other() -> None:
    """Batches behind it are dropped, because the client resends them in order. The other session continues."""
    world, owner = serving()
    one, two = owner.open("p", mode=CONTIGUOUS), owner.open("q")
    pid, generation = two.instance
    owner.send(one.session, received(1, [0]), received(2, [5]), received(3, [1]))
    owner.run()
    assert ended(owner) == [(one.session, SequenceGap)]
    assert isinstance(owner.result(2), SequenceGap)
    assert sorted(answer.request for answer in owner.batches) == [1, 2]
    owner.send(one.session, received(4, [1]))
    owner.send(two.session, received(5, [7], pid=pid, generation=generation))
    owner.run()
    assert owner.result(5) == stored(3, 1, index=1)
    assert max(world.entries_of(LedgerId(1))) == 4


def test_batch_of_another_producer_is_refused() -> None:
    """A session belongs to one instance."""
    _, owner = serving()
    granted = owner.open()
    owner.send(granted.session, received(1, [0], generation=2))
    owner.run()
    assert ended(owner) == [(granted.session, InvalidArgument)]


def test_batch_without_deduplication_is_stored_every_time() -> None:
    """Producer id 0 in any session."""
    _, owner = serving()
    granted = owner.open()
    owner.send(granted.session, received(1, [0], pid=0), received(2, [0], pid=0))
    owner.run()
    assert (owner.result(1), owner.result(2)) == (stored(1, 1, index=0), stored(2, 1, index=1))


def test_session_waits_for_the_next_ledger() -> None:
    """A planned roll ends no session. Batches that arrived meanwhile are checked in order."""
    world, owner = serving()
    granted = owner.open()
    owner.send(granted.session, received(1, [0]))
    owner.roll()
    owner.send(granted.session, received(2, [1]), received(3, [0]))
    assert parked(owner, granted.session) == (BlockedOn.ROLL, 2)
    owner.run()
    assert len(world.record.ledgers) == 2
    assert owner.result(1) == stored(1, 1, index=0)
    assert owner.result(2) == stored(0, 1, index=1, ledger_id=2)
    assert owner.result(3) == duplicate(1, 1, differs=False)
    assert ended(owner) == []


def packed(request: int, ids: Sequence[int], codec: Compression, *, generation: int = 1) -> ReceivedBatch:
    data = batch(ids, compression=codec, generation=generation)
    return ReceivedBatch(request, decode_batch(data, checksum), data)


def test_old_instance_waits_for_a_grant_in_flight() -> None:
    """Nothing of it goes into the log behind the grant; when that is durable, it is fenced."""
    world, owner = serving()
    granted = owner.open()
    owner.ask("p", SendAdds)
    owner.send(granted.session, received(1, [0]))
    assert parked(owner, granted.session) == (BlockedOn.GRANT, 1)
    owner.run()
    assert [number for number, _ in ended(owner)] == [granted.session]
    assert max(world.entries_of(LedgerId(1))) == 2


def test_refusal_waits_until_the_record_was_read() -> None:
    """The batches behind it wait, too."""
    _, owner = serving()
    granted = owner.open()
    owner.send(granted.session, received(1, [0, 2]))
    owner.run()
    owner.send(granted.session, received(2, [1]))
    owner.run(READ_TOPIC)
    owner.send(granted.session, received(3, [5]))
    assert parked(owner, granted.session) == (BlockedOn.OWNERSHIP, 2)
    owner.run()
    assert ended(owner) == [(granted.session, StaleSequence)]


def test_read_begun_before_the_refusal_proves_nothing() -> None:
    """The record was being read for one session when another was to be refused: it waits for the next read."""
    world, owner = serving()
    one, two = owner.open("p", mode=CONTIGUOUS), owner.open("q", mode=CONTIGUOUS)
    for granted in (one, two):
        pid, generation = granted.instance
        owner.send(granted.session, received(1, [5], pid=pid, generation=generation))
    (read,) = [effect for effect in owner.queue if kind_of(effect) == READ_TOPIC]
    owner.queue.remove(read)
    owner.handle(RecordRead(TopicKey(TOPIC), *world.topic))
    assert ended(owner) == [(one.session, SequenceGap)]
    world.place(Incarnation("o2"))
    owner.run()
    assert ended(owner)[1:] == [(two.session, NotOwner)]


def test_ids_are_read_for_the_session_that_needs_them() -> None:
    """Two sessions wait, each for its own entry: an answer wakes one, and asks for nothing again."""
    world, first = serving()
    one, two = first.open("p"), first.open("q")
    for granted, request in ((one, 1), (two, 2)):
        pid, generation = granted.instance
        first.send(granted.session, received(request, [0, 5, 9], pid=pid, generation=generation))
    first.run()
    owner = Owner(world, "o2").take_over()
    assert owner.core.serving is not None
    owner.core.serving.log.table.state.producers.make_idle(before_ms=1 << 60)
    sessions = [owner.open(None, resume=granted.instance) for granted in (one, two)]
    for granted in sessions:
        pid, generation = granted.instance
        owner.send(granted.session, received(3, [5], pid=pid, generation=generation))
    assert [parked(owner, granted.session)[0] for granted in sessions] == [BlockedOn.IDS, BlockedOn.IDS]
    owner.run()
    assert len(owner.emitted(ReadEntryIds)) == 2
    assert [answer.result for answer in owner.batches] == [duplicate(2, 1, offset=1), duplicate(3, 1, offset=1)]


def test_session_closed_by_its_client_gets_no_answer() -> None:
    """Its writes go on; the name is free for one that asks not to fence."""
    world, owner = serving()
    granted = owner.open()
    owner.send(granted.session, received(1, [0]))
    owner.handle(SessionClosed(granted.session))
    owner.run()
    assert owner.batches == []
    assert max(world.entries_of(LedgerId(1))) == 2
    assert owner.core.serving is not None
    assert not owner.core.serving.sessions.connected(PID)


def test_new_session_of_the_same_instance_replaces_the_old_one() -> None:
    """One session a producer; the old one's batches are resent on the new one."""
    _, owner = serving()
    granted = owner.open()
    again = owner.open(None, resume=granted.instance)
    assert ended(owner) == [(granted.session, SessionEnded)]
    assert again.session > granted.session
    owner.send(granted.session, received(1, [0]))
    owner.run()
    assert owner.batches == []


def test_verdicts_are_counted_by_message() -> None:
    """Duplicates never count as stored."""
    _, owner = serving()
    granted = owner.open()
    owner.send(granted.session, received(1, [0, 1, 3]), received(2, [0, 1]), received(3, [3, 4]), received(4, [2]))
    owner.run()
    assert owner.core.serving is not None
    assert owner.core.serving.sessions.counters == {"stored": 4, "duplicate": 3, "stale_sequence": 1}
