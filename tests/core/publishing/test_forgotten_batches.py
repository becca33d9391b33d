"""Forgotten batches: ids below them are answered as not verified, and nothing above them changes."""

from dataclasses import replace

import pytest

from oncelog.core.formats.entry import SequenceMode
from oncelog.core.formats.outcome import Outcome, ResultKind
from oncelog.core.ids import EntryId, Generation, LedgerId, Position, ProducerId, SequenceId
from oncelog.core.publishing.producer_state import ProducerState
from oncelog.core.publishing.recent_batches import RecentBatch, locate
from oncelog.core.publishing.sessions import BlockedOn
from oncelog.core.snapshots.snapshot_writer import SnapshotSettings
from oncelog.core.topic_events.effects import ReadEntryIds
from oncelog.core.topic_events.events import EntryIdsRead, TrimRequested
from tests.core.builders import received
from tests.core.topic.topic_world import SETTINGS, Owner, World

#: Each snapshot is a base, so that the log may be trimmed up to it.
BASES = replace(SETTINGS, snapshot=SnapshotSettings(entries_max=1, gap_ms=0, deltas_max=0))


def at(entry_id: int) -> Position:
    return Position(LedgerId(1), EntryId(entry_id))


def recent(first: int, last: int, entry_id: int, *, deltas: bytes | None) -> RecentBatch:
    count = 2 if deltas is None else last - first + 1
    return RecentBatch(SequenceId(first), SequenceId(last), count, at(entry_id), 0, deltas)


def test_ids_of_a_trimmed_entry_are_not_verified() -> None:
    """Found by the simulation: a batch restored from a snapshot without its ids pointed into a trimmed ledger, and the
    producer that sent them again waited for ever."""
    producer = ProducerState("p", ProducerId(1), Generation(1), SequenceMode.MONOTONIC)
    for each in (recent(0, 3, 0, deltas=b""), recent(5, 9, 1, deltas=None), recent(10, 11, 2, deltas=b"")):
        producer.remember(each)
    producer.forget_until(at(1))
    assert (producer.recent_floor, [r.first for r in producer.recent_batches], producer.persisted) == (9, [10], 11)
    parts = locate(range(7, 12), producer.recent_batches, floor=producer.recent_floor, mode=producer.mode)
    assert isinstance(parts, tuple)
    assert [(p.kind, p.count) for p in parts] == [(ResultKind.BELOW_MARK, 3), (ResultKind.DUPLICATE, 2)]


class Resending:
    """A producer has stored three batches with holes, each in a ledger of its own, and an owner has taken over that
    knows their ids by their entries only. The producer sends an id of the second one again."""

    def __init__(self) -> None:
        world = World()
        former = Owner(world, "o1", BASES).take_over()
        granted = former.open("p")
        self.places: list[Position] = []
        for number in range(3):
            former.send(granted.session, received(number, [10 * number, 10 * number + 5, 10 * number + 9]))
            former.run()
            (part,) = self.outcome(former, number)
            assert part.position is not None
            self.places.append(part.position)
            former.roll()
            former.run()
        self.owner = Owner(world, "o2", BASES).take_over()
        assert self.owner.core.serving is not None
        self.sessions = self.owner.core.serving.sessions
        self.sessions.table.state.producers.make_idle(before_ms=1 << 60)
        self.instance = granted.instance
        self._write_bases()
        self.granted = self.owner.open(None, resume=granted.instance)

    def _write_bases(self) -> None:
        """Snapshots of later, so that a trim may take all the batches."""
        other = self.owner.open("q")
        pid, generation = other.instance
        for number in range(4):
            batch = received(100 + number, [number], pid=pid, generation=generation)
            self.owner.send(other.session, batch)
            self.owner.run()

    @staticmethod
    def outcome(owner: Owner, request: int) -> Outcome:
        found = owner.result(request)
        assert isinstance(found, tuple)
        return found

    def resend(self, request: int, number: int) -> None:
        """An id of the batch of this number."""
        pid, generation = self.instance
        self.owner.send(self.granted.session, received(request, [10 * number + 5], pid=pid, generation=generation))

    def trim(self, below: int) -> None:
        """The batches below this number."""
        self.owner.handle(TrimRequested(Position(self.places[below].ledger_id, EntryId(0))))
        self.owner.run(ReadEntryIds)
        assert self.owner.world.record.ledgers[0].ledger_id == self.places[below].ledger_id

    @property
    def waits(self) -> bool:
        session = self.sessions.session_of(self.instance.producer_id)
        assert session is not None
        return session.blocked_on is BlockedOn.IDS

    def kinds(self, request: int) -> list[ResultKind]:
        return [part.kind for part in self.outcome(self.owner, request)]

    def answer_reads(self) -> "Resending":
        """Perform everything, the reads of ids included."""
        self.owner.run()
        return self


@pytest.mark.hazard("missing-record-is-no-deletion")
def test_ids_of_a_trimmed_entry_are_answered_without_a_look_at_it() -> None:
    """Found by the simulation: a backup brought the record of a trimmed ledger back, and its storage nodes had erased
    their copies. The owner asked them for the ids again and again, and the producer waited for ever."""
    own = Resending()
    own.trim(below=2)
    own.resend(7, 1)
    own.answer_reads()
    assert own.owner.emitted(ReadEntryIds) == []
    assert own.kinds(7) == [ResultKind.BELOW_MARK]
    own.resend(8, 2)
    own.answer_reads()
    assert own.kinds(8) == [ResultKind.DUPLICATE], "the log begins with this one"


@pytest.mark.hazard("missing-record-is-no-deletion")
def test_trim_answers_the_session_that_waits_for_ids_of_what_it_takes() -> None:
    """No storage node has answered until then. One that waits for an entry that stays goes on waiting."""
    own = Resending()
    own.resend(7, 1)
    own.trim(below=1)
    assert own.waits
    own.trim(below=2)
    assert own.kinds(7) == [ResultKind.BELOW_MARK]
    assert own.owner.emitted(ReadEntryIds) == [ReadEntryIds(own.places[1])], "one is asked for, and only once"
    own.answer_reads()
    assert own.kinds(7) == [ResultKind.BELOW_MARK]


@pytest.mark.hazard("missing-record-is-no-deletion")
@pytest.mark.parametrize("has_record", [True, False])
def test_ids_that_cannot_be_read_now_are_asked_for_again(has_record: bool) -> None:
    """Storage nodes are away, or the record of a listed ledger is lost, which may come back: nothing is forgotten."""
    own = Resending()
    own.resend(7, 1)
    (asked,) = own.owner.emitted(ReadEntryIds)
    own.owner.queue.remove(asked)
    own.owner.handle(EntryIdsRead(asked.position, None, b"", has_record))
    assert own.waits
    assert own.owner.emitted(ReadEntryIds) == [asked, asked]
    own.answer_reads()
    assert own.kinds(7) == [ResultKind.DUPLICATE]
    own.owner.handle(EntryIdsRead(asked.position, None, b"", has_record))
    assert own.owner.emitted(ReadEntryIds) == [asked, asked], "nobody waits for it any more"


def test_ids_in_a_ledger_that_no_list_names_are_not_verified() -> None:
    """A restore has left the ledger out, so that its record is in no list and does not come back."""
    own = Resending()
    own.resend(7, 1)
    record = own.owner.world.record
    left = tuple(link for link in record.ledgers if link.ledger_id != own.places[1].ledger_id)
    own.owner.core.ownership.record = replace(record, ledgers=left)
    own.owner.handle(EntryIdsRead(own.places[1], None, b"", has_record=False))
    own.owner.run(ReadEntryIds)
    assert own.kinds(7) == [ResultKind.BELOW_MARK]
