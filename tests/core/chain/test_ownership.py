"""The ownership of a topic record: an owner relies only on what it read in the record."""

import pytest

from oncelog.core.chain.ownership import (
    AcksLinked,
    Deposed,
    Linked,
    LogTrim,
    Owned,
    Ownership,
    OwnershipConfirmed,
    OwnershipEffect,
    OwnershipState,
    Paged,
    Trimmed,
)
from oncelog.core.errors import InvariantViolated, NotOwner, OncelogError, TopicNotFound
from oncelog.core.formats.ledger_page import PageLink
from oncelog.core.formats.topic_record import LedgerLink, TopicRecord
from oncelog.core.ids import LedgerId, OwnerEpoch
from oncelog.core.records.records import ReadRecord, RecordRead, RecordWritten, TopicKey, WriteRecord
from oncelog.core.records.status import WriteStatus
from tests.core.builders import TOPIC, A, B

KEY = TopicKey(TOPIC)
READ: list[object] = [ReadRecord(KEY)]


def link(number: int) -> LedgerLink:
    return LedgerLink(LedgerId(number), 10 * number)


MINE = TopicRecord(TOPIC, "t", A, OwnerEpoch(3), (link(1), link(2), link(3)))
THEIRS = TopicRecord(TOPIC, "t", B, OwnerEpoch(4), MINE.ledgers)


Outcome = OwnershipEffect | Owned | OwnershipConfirmed | Linked | AcksLinked | Paged | Trimmed | Deposed


class Recorded:
    """An ownership, and what each call leads to: what it returns, and then its effects."""

    def __init__(self) -> None:
        self._effects: list[OwnershipEffect] = []
        self.core = Ownership(TOPIC, A, self._effects.append)

    @property
    def held(self) -> tuple[TopicRecord, int]:
        return self.core.record, self.core.version

    @property
    def state(self) -> OwnershipState:
        return self.core.state

    def lost(self, reason: str) -> OncelogError:
        return self.core.lost(reason)

    def _take(self) -> list[Outcome]:
        taken = list[Outcome](self._effects)
        self._effects.clear()
        return taken

    def read(self) -> list[Outcome]:
        begun = self.core.read()
        taken = self._take()
        assert begun is bool(taken)
        return taken

    def suspect(self) -> list[Outcome]:
        self.core.suspect()
        return self._take()

    def link(self, link: LedgerLink) -> list[Outcome]:
        self.core.link(link)
        return self._take()

    def trim(self, last_gone: int, page: PageLink | None = None, *paged: int) -> list[Outcome]:
        self.core.trim(LogTrim(LedgerId(last_gone), page, tuple(map(LedgerId, paged))))
        return self._take()

    def link_acks(self, number: int) -> list[Outcome]:
        self.core.link_acks(LedgerId(number))
        return self._take()

    def trim_acks(self, count: int) -> list[Outcome]:
        self.core.trim_acks(count)
        return self._take()

    def record_read(self, event: RecordRead[TopicKey, TopicRecord]) -> list[Outcome]:
        result = self.core.record_read(event)
        return [*([] if result is None else [result]), *self._take()]

    def record_written(self, event: RecordWritten[TopicKey, TopicRecord]) -> list[Outcome]:
        result = self.core.record_written(event)
        return [*([] if result is None else [result]), *self._take()]


def owning() -> Recorded:
    ownership = Recorded()
    assert ownership.read() == READ
    assert ownership.record_read(RecordRead(KEY, MINE, 7)) == [Owned()]
    return ownership


def written(status: WriteStatus, version: int = -1) -> RecordWritten[TopicKey, TopicRecord]:
    return RecordWritten(KEY, MINE, status, version)


def ok(version: int) -> RecordWritten[TopicKey, TopicRecord]:
    return written(WriteStatus.OK, version)


def test_ownership_needs_the_record() -> None:
    """A notification is no proof. If the record names another owner, or does not exist, ownership ends at once."""
    for record in (THEIRS, None):
        ownership = Recorded()
        ownership.read()
        (deposed,) = ownership.record_read(RecordRead(KEY, record, 7))
        assert isinstance(deposed, Deposed)


def test_write_is_from_the_version_that_was_read() -> None:
    """The next write names the version that this write returned."""
    ownership = owning()
    four, five = MINE.with_ledger(link(4)), MINE.with_ledger(link(4)).with_ledger(link(5))
    assert ownership.link(link(4)) == [WriteRecord(KEY, four, 7)]
    assert ownership.record_written(ok(8)) == [Linked(LedgerId(4))]
    assert ownership.link(link(5)) == [WriteRecord(KEY, five, 8)]


@pytest.mark.hazard("stale-record-after-conflict")
def test_record_is_read_after_a_conflict_before_any_write() -> None:
    """O2 took the topic over while O1 rolled: the write of O1 fails, and O1 must not try its next write."""
    ownership = owning()
    ownership.link(link(4))
    assert ownership.record_written(written(WriteStatus.CONFLICT)) == READ
    assert ownership.link(link(5)) == []
    assert ownership.trim(1) == []
    (deposed,) = ownership.record_read(RecordRead(KEY, THEIRS, 8))
    assert isinstance(deposed, Deposed)
    assert ownership.link(link(5)) == []


def test_conflict_with_its_own_write_restarts_the_takeover() -> None:
    """The first reply to a write of this owner was lost: the epoch is unchanged, so recovery starts with the last
    ledger."""
    ownership = owning()
    ownership.link(link(4))
    ownership.record_written(written(WriteStatus.UNKNOWN))
    applied = MINE.with_ledger(link(4))
    assert ownership.record_read(RecordRead(KEY, applied, 8)) == [Owned()]
    assert ownership.held == (applied, 8)


def test_another_epoch_of_the_same_owner_deposes_it() -> None:
    """The topic moved away and came back: the state of this owner is from the time before."""
    ownership = owning()
    ownership.suspect()
    again = TopicRecord(TOPIC, "t", A, OwnerEpoch(5), MINE.ledgers)
    (deposed,) = ownership.record_read(RecordRead(KEY, again, 9))
    assert isinstance(deposed, Deposed)


def test_deposed_owner_stays_deposed() -> None:
    """No record, response or suspicion can undo it."""
    ownership = owning()
    ownership.link(link(4))
    ownership.suspect()
    ownership.record_read(RecordRead(KEY, THEIRS, 8))
    assert ownership.record_read(RecordRead(KEY, MINE, 7)) == []
    assert ownership.record_written(ok(8)) == []
    assert (ownership.read(), ownership.suspect()) == ([], [])
    assert ownership.state is OwnershipState.DEPOSED
    assert isinstance(ownership.lost("another has it"), NotOwner)


@pytest.mark.hazard("recreated-topic")
def test_deleted_topic_ends_ownership() -> None:
    """A topic that is deleted and created again has another id; nothing is left under this one."""
    ownership = owning()
    ownership.read()
    (deposed,) = ownership.record_read(RecordRead(KEY, None, -1))
    assert isinstance(deposed, Deposed)
    assert ownership.state is OwnershipState.DELETED
    assert isinstance(ownership.lost(deposed.reason), TopicNotFound)
    assert (ownership.read(), ownership.suspect(), ownership.record_written(ok(8))) == ([], [], [])


def test_ownership_is_proved_by_a_read_that_names_the_owner() -> None:
    """It takes one read and no restart."""
    ownership = owning()
    assert ownership.read() == READ
    assert ownership.read() == []
    assert ownership.record_read(RecordRead(KEY, MINE, 7)) == [OwnershipConfirmed()]


def test_read_begun_before_a_suspicion_does_not_resolve_it() -> None:
    """Its result may be older than the suspicion, so the record is read again."""
    ownership = owning()
    ownership.read()
    assert ownership.suspect() == []
    assert ownership.record_read(RecordRead(KEY, MINE, 7)) == READ
    (deposed,) = ownership.record_read(RecordRead(KEY, THEIRS, 8))
    assert isinstance(deposed, Deposed)


def test_old_read_that_names_another_owner_deposes() -> None:
    """Epochs only grow, so lost ownership cannot come back."""
    ownership = owning()
    ownership.read()
    ownership.suspect()
    (deposed,) = ownership.record_read(RecordRead(KEY, THEIRS, 8))
    assert isinstance(deposed, Deposed)


def test_write_in_flight_during_a_suspicion_is_awaited() -> None:
    """Its late answer would be taken for the next link, and entries acknowledged in a ledger that no list names."""
    ownership = owning()
    ownership.link(link(4))
    assert ownership.suspect() == READ
    assert ownership.record_read(RecordRead(KEY, MINE, 7)) == []
    assert ownership.record_written(ok(8)) == READ
    applied = MINE.with_ledger(link(4))
    assert ownership.record_read(RecordRead(KEY, applied, 8)) == [Owned()]
    assert ownership.link(link(5)) == [WriteRecord(KEY, applied.with_ledger(link(5)), 8)]


def test_write_answered_before_the_read_causes_another_read() -> None:
    """The read in flight may have been served before the write."""
    ownership = owning()
    ownership.link(link(4))
    ownership.suspect()
    assert ownership.record_written(ok(8)) == []
    assert ownership.record_read(RecordRead(KEY, MINE, 7)) == READ
    assert ownership.record_read(RecordRead(KEY, MINE.with_ledger(link(4)), 8)) == [Owned()]


def test_trim_waits_for_the_link() -> None:
    """One write at a time, each based on the record that the last write left."""
    ownership = owning()
    ownership.link(link(4))
    assert ownership.trim(2) == []
    four = MINE.with_ledger(link(4))
    written = ownership.record_written(ok(8))
    assert written == [Linked(LedgerId(4)), WriteRecord(KEY, four.without(LedgerId(2)), 8)]
    assert ownership.record_written(ok(9)) == [Trimmed((LedgerId(1), LedgerId(2)))]


def test_link_requested_during_a_trim_follows_it() -> None:
    """The response in flight belongs to the trim, not to the link."""
    ownership = owning()
    assert ownership.trim(1) == [WriteRecord(KEY, MINE.without(LedgerId(1)), 7)]
    assert ownership.link(link(4)) == []
    trimmed = MINE.without(LedgerId(1))
    written = ownership.record_written(ok(8))
    assert written == [Trimmed((LedgerId(1),)), WriteRecord(KEY, trimmed.with_ledger(link(4)), 8)]


def test_wider_trim_during_a_trim_reports_only_removed_ledgers() -> None:
    """A ledger that is reported as trimmed is deleted, so it must have left the record."""
    ownership = owning()
    ownership.trim(1)
    ownership.trim(2)
    written = ownership.record_written(ok(8))
    assert written == [Trimmed((LedgerId(1),)), WriteRecord(KEY, MINE.without(LedgerId(2)), 8)]
    assert ownership.record_written(ok(9)) == [Trimmed((LedgerId(2),))]


def test_suspicion_drops_pending_writes() -> None:
    """The next writes are decided after the record was read."""
    ownership = owning()
    ownership.link(link(4))
    ownership.trim(1)
    ownership.suspect()
    ownership.record_written(ok(8))
    ownership.record_read(RecordRead(KEY, MINE, 7))
    assert ownership.record_read(RecordRead(KEY, MINE.with_ledger(link(4)), 8)) == [Owned()]
    assert ownership.record_written(ok(9)) == []


# --- both chains on one record ----------------------------------------------------------------------------------------


@pytest.mark.hazard("deposed-owner-acks")
def test_links_and_trims_of_both_chains_are_written_one_after_the_other() -> None:
    """Each write is based on the record that the last one left, and a link of the log waits for none that waits."""
    acks = MINE.with_ack_ledger(LedgerId(4)).with_ack_ledger(LedgerId(5))
    ownership = Recorded()
    ownership.read()
    ownership.record_read(RecordRead(KEY, acks, 7))
    first = acks.without(LedgerId(1))
    assert ownership.trim(1) == [WriteRecord(KEY, first, 7)]
    assert ownership.trim_acks(1) == ownership.link_acks(6) == ownership.link(link(7)) == []
    second = first.with_ledger(link(7))
    assert ownership.record_written(ok(8)) == [Trimmed((LedgerId(1),)), WriteRecord(KEY, second, 8)]
    third = second.with_ack_ledger(LedgerId(6))
    assert ownership.record_written(ok(9)) == [Linked(LedgerId(7)), WriteRecord(KEY, third, 9)]
    fourth = third.without_first_acks(1)
    assert ownership.record_written(ok(10)) == [AcksLinked(LedgerId(6)), WriteRecord(KEY, fourth, 10)]
    assert ownership.record_written(ok(11)) == [Trimmed((LedgerId(4),))]
    assert (fourth.acks, fourth.acks_deleted_below, fourth.deleted_below) == ((5, 6), 5, 2)


def test_trim_of_acks_requested_again_during_its_write_happens_once() -> None:
    """Each tick asks for what the record still lists."""
    acks = MINE.with_ack_ledger(LedgerId(4)).with_ack_ledger(LedgerId(5))
    ownership = Recorded()
    ownership.read()
    ownership.record_read(RecordRead(KEY, acks, 7))
    assert len(ownership.trim_acks(1)) == 1
    assert ownership.trim_acks(1) == []
    assert ownership.record_written(ok(8)) == [Trimmed((LedgerId(4),))]


def test_suspicion_drops_pending_writes_of_the_ack_log() -> None:
    """The next writes are decided after the record was read."""
    ownership = owning()
    ownership.link(link(4))
    ownership.link_acks(5)
    ownership.suspect()
    ownership.record_written(ok(8))
    ownership.record_read(RecordRead(KEY, MINE, 7))
    assert ownership.record_read(RecordRead(KEY, MINE.with_ledger(link(4)), 8)) == [Owned()]
    assert ownership.record_written(ok(9)) == []


@pytest.mark.hazard("oversized-ledger-list")
def test_link_takes_the_place_of_an_empty_ledger() -> None:
    """In the same write. Only the last one can be replaced."""
    ownership = owning()
    ownership.core.link(link(4), instead=LedgerId(3))
    four = MINE.with_ledger(link(4), instead=LedgerId(3))
    assert [each.ledger_id for each in four.ledgers] == [1, 2, 4]
    assert ownership._take() == [WriteRecord(KEY, four, 7)]
    assert ownership.record_written(ok(8)) == [Linked(LedgerId(4), LedgerId(3))]
    with pytest.raises(InvariantViolated):
        MINE.with_ledger(link(4), instead=LedgerId(2))
    acks = MINE.with_ack_ledger(LedgerId(5)).with_ack_ledger(LedgerId(7), instead=LedgerId(5))
    assert (acks.acks, acks.acks_deleted_below) == ((7,), 0)
