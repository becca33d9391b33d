"""Every verdict on a batch, in flight and durable, and what is left of it when a write fails."""

import pytest

from oncelog.core.errors import (
    InvalidBatch,
    InvariantViolated,
    NotOwner,
    ProducerFenced,
    SequenceGap,
    StaleSequence,
    UnknownProducer,
)
from oncelog.core.formats.batch import deltas_of, peek_batch
from oncelog.core.formats.entry import EntryKind, SequenceMode, body_of, decode_opened
from oncelog.core.formats.outcome import ResultKind, ResultRange
from oncelog.core.ids import NO_SEQUENCE, ProducerId
from oncelog.core.publishing.dedup_state import DedupState
from oncelog.core.publishing.dedup_table import (
    ACCEPT,
    Accept,
    BatchVerdict,
    DedupTable,
    NothingNew,
    Refused,
    Wait,
)
from oncelog.core.publishing.recent_batches import RECENT_BATCHES_MAX, NeedIds
from tests.core.builders import CONTIGUOUS, MONOTONIC, PID, LogOf, at, grant, parts, plain

DUPLICATE, BELOW_MARK, STALE = ResultKind.DUPLICATE, ResultKind.BELOW_MARK, ResultKind.STALE_SEQUENCE


class DedupWorld:
    """A dedup table over a log. The tests decide when batches are checked, written and durable."""

    def __init__(self, mode: SequenceMode = MONOTONIC, *, dedup_enabled: bool = True) -> None:
        self.log = LogOf()
        self.durable = 0
        self.table = DedupTable(DedupState(), dedup_enabled=dedup_enabled)
        self.grant(mode=mode)
        self.persist()

    def check(self, ids: list[int] | range, *, generation: int = 1, pid: int = PID) -> BatchVerdict:
        verdict = self.table.check(*parts(ids, generation=generation, pid=pid))
        self.table.check_invariants()
        return verdict

    def write(self, ids: list[int] | range, *, generation: int = 1) -> BatchVerdict:
        """Check the batch, and append it when it was accepted."""
        verdict = self.check(ids, generation=generation)
        assert isinstance(verdict, Accept), verdict
        header = self.log.stored(ids, generation=generation, skip_first=verdict.skip_first)
        batch, deltas = parts(ids, generation=generation)
        self.table.accepted(batch, deltas, position=header.position, skip_first=verdict.skip_first)
        self.table.check_invariants()
        return verdict

    def grant(self, name: str = "p", *, pid: int = PID, generation: int = 1, mode: SequenceMode = MONOTONIC) -> None:
        opened = grant(name, pid=pid, generation=generation, mode=mode)
        header = self.log.granted(opened)
        self.table.granting(opened, position=header.position)

    def persist(self, count: int = 1000) -> None:
        for header, data in self.log.entries[self.durable : self.durable + count]:
            body = body_of(data)
            if header.kind == EntryKind.MESSAGES:
                batch = peek_batch(body)
                self.table.persisted_batch(header, batch, deltas_of(batch, body))
            else:
                self.table.persisted_grant(header, decode_opened(body))
            self.durable += 1
            self.table.check_invariants()
            self.table.state.check_invariants()

    def stored(self, *batches: list[int] | range) -> "DedupWorld":
        for ids in batches:
            self.write(ids)
        self.persist()
        return self

    def fail(self) -> None:
        """The write of everything in flight fails."""
        self.table.rollback()
        del self.log.entries[self.durable :]
        self.log.next_index = self.table.state.next_index


def refused(verdict: BatchVerdict, error: type[Exception]) -> Refused:
    assert isinstance(verdict, Refused), verdict
    assert type(verdict.error) is error
    return verdict


def known(verdict: BatchVerdict) -> list[ResultRange]:
    assert isinstance(verdict, NothingNew), verdict
    return list(verdict.known)


# --- generations ------------------------------------------------------------------------------------------------------


def test_older_generation_is_fenced() -> None:
    """No batch of the older instance is written. The error names the newer generation."""
    world = DedupWorld()
    world.grant(generation=2)
    world.persist()
    assert refused(world.check([0]), ProducerFenced).error.details == {"current": 2}


def test_unknown_producer_is_refused() -> None:
    """If it counted as new, batches stored before it was forgotten would be stored again."""
    refused(DedupWorld().check([0], pid=9), UnknownProducer)


@pytest.mark.hazard("incomplete-grant")
def test_higher_generation_means_that_this_owner_is_deposed() -> None:
    """Another owner granted that generation; the producer made no error."""
    assert refused(DedupWorld().check([0], generation=2), NotOwner).suspect


def test_batches_without_a_producer_id_are_never_checked() -> None:
    """Producer id 0 may send any batch again."""
    world = DedupWorld()
    assert world.check([5], pid=0) == world.check([5], pid=0) == ACCEPT


@pytest.mark.hazard("marks-of-a-failed-write")
def test_old_generation_waits_for_a_grant_in_flight() -> None:
    """If it were fenced, the grant could still fail. If it were accepted, it would be in the log behind the fence."""
    world = DedupWorld()
    world.grant(generation=2)
    assert isinstance(world.check([0]), Wait)
    world.persist()
    refused(world.check([0]), ProducerFenced)


def test_failed_grant_fences_no_instance() -> None:
    """The older instance continues."""
    world = DedupWorld()
    world.grant(generation=2)
    world.fail()
    assert world.check([0]) == ACCEPT


def test_name_in_flight_is_bound_until_its_write_fails() -> None:
    """A second opening must find the binding. After the failure there is none."""
    world = DedupWorld()
    world.grant("q", pid=2, mode=CONTIGUOUS)
    table = world.table
    assert table.producer_id_of("q") == 2
    assert (table.generation_of(ProducerId(2)), table.mode_of(ProducerId(2))) == ((1, False), CONTIGUOUS)
    assert table.accepted_of(ProducerId(2)) == NO_SEQUENCE
    world.fail()
    assert (table.producer_id_of("q"), table.knows(ProducerId(2))) == (None, False)


@pytest.mark.hazard("block-claimed-twice")
def test_producer_id_is_never_bound_to_two_names() -> None:
    """Binding an id again is an internal error, whether the first binding is durable or in flight."""
    world = DedupWorld()
    world.grant("q", pid=2)
    for name, pid in (("r", 1), ("r", 2), ("p", 3)):
        with pytest.raises(InvariantViolated):
            world.table.granting(grant(name, pid=pid), position=at(9))


# --- new batches ------------------------------------------------------------------------------------------------------


def test_monotonic_accepts_holes_of_any_size() -> None:
    """The application chooses the ids."""
    world = DedupWorld()
    world.write([0])
    world.write([2, 5, 10**15])
    world.write(range(10**17, 10**17 + 3))


def test_contiguous_accepts_only_the_next_id() -> None:
    """A gap is refused, so that a later batch never overtakes a failed one."""
    world = DedupWorld(CONTIGUOUS)
    assert refused(world.check([1]), SequenceGap).error.details == {"expected": 0}
    world.write(range(3))
    assert refused(world.check(range(4, 6)), SequenceGap).error.details == {"expected": 3}
    world.write([3])


@pytest.mark.hazard("id-between-stored-ids")
def test_contiguous_batch_has_no_holes() -> None:
    """Otherwise 11 would be accepted as the next after 10, and 12 be reported as stored."""
    refused(DedupWorld(CONTIGUOUS).check([0, 2]), InvalidBatch)


# --- duplicates -------------------------------------------------------------------------------------------------------


def test_stored_batch_is_a_duplicate_with_its_position() -> None:
    """The whole batch, a part of it, and ids across several recent batches."""
    world = DedupWorld().stored(range(3), range(3, 6), [8, 9])
    assert known(world.check(range(3))) == [ResultRange(DUPLICATE, 3, at(1), 0)]
    assert known(world.check([4, 5])) == [ResultRange(DUPLICATE, 2, at(2), 1)]
    assert known(world.check([1, 2, 3, 5, 9])) == [
        ResultRange(DUPLICATE, 2, at(1), 1),
        ResultRange(DUPLICATE, 1, at(2), 0),
        ResultRange(DUPLICATE, 1, at(2), 2),
        ResultRange(DUPLICATE, 1, at(3), 1),
    ]


def test_batch_in_flight_is_joined() -> None:
    """Answered with the write's own result: neither "duplicate" now nor "cannot determine"."""
    world = DedupWorld()
    world.write(range(3))
    verdict = world.check(range(3))
    assert verdict == NothingNew((ResultRange(DUPLICATE, 3, at(1), 0),), at(1))
    assert verdict.settles_at > world.table.state.position


def test_duplicate_is_answered_after_the_last_of_its_writes() -> None:
    """One part durable, the next in flight: both are answered when both are durable."""
    world = DedupWorld().stored(range(3))
    world.write(range(3, 6))
    verdict = world.check(range(6))
    assert isinstance(verdict, NothingNew)
    assert verdict.settles_at == at(2)


def test_partly_duplicate_batch_stores_only_its_new_tail() -> None:
    """The answer is exact per message: the head is a duplicate, the tail is new."""
    world = DedupWorld().stored(range(3))
    assert world.check(range(5)) == Accept(3, (ResultRange(DUPLICATE, 3, at(1), 0),))


def test_batch_may_contain_durable_in_flight_and_new_ids() -> None:
    """The prefix spans a durable batch, one in flight with holes, and the next write is only the rest."""
    world = DedupWorld().stored(range(3))
    world.write([4, 6])
    verdict = world.write([1, 2, 4, 6, 9, 11])
    assert verdict == Accept(4, (ResultRange(DUPLICATE, 2, at(1), 1), ResultRange(DUPLICATE, 2, at(2), 0)))
    world.persist()
    assert known(world.check([9, 11])) == [ResultRange(DUPLICATE, 2, at(3), 4)]


# --- older than the recent batches ------------------------------------------------------------------------------------


@pytest.mark.hazard("id-between-stored-ids")
def test_monotonic_below_the_recent_batches_is_not_verified() -> None:
    """Answered as BELOW_MARK: a success that stores no message. Also in a batch with remembered and new ids."""
    world = DedupWorld().stored(*([2 * i] for i in range(RECENT_BATCHES_MAX + 2)))
    assert world.table.state.producers[PID].recent_floor == 2
    assert known(world.check([1])) == [ResultRange(BELOW_MARK, 1, None, 0)]
    assert known(world.check([0, 2, 4])) == [ResultRange(BELOW_MARK, 2, None, 0), ResultRange(DUPLICATE, 1, at(3), 0)]
    assert known(world.check([0, 2, 5])) == [ResultRange(BELOW_MARK, 2, None, 0), ResultRange(STALE, 1, None, 0)]
    top = 2 * RECENT_BATCHES_MAX + 2
    verdict = world.check([0, top, top + 1])
    assert verdict == Accept(
        2, (ResultRange(BELOW_MARK, 1, None, 0), ResultRange(DUPLICATE, 1, at(RECENT_BATCHES_MAX + 2), 0))
    )


def test_contiguous_below_the_recent_batches_is_an_exact_duplicate() -> None:
    """Without holes every id below the mark was stored; only the position is forgotten."""
    world = DedupWorld(CONTIGUOUS).stored(*([i] for i in range(RECENT_BATCHES_MAX + 2)))
    assert known(world.check(range(3))) == [ResultRange(DUPLICATE, 2, None, 0), ResultRange(DUPLICATE, 1, at(3), 0)]


def test_batch_below_the_recent_batches_is_answered_at_once() -> None:
    """There is no position to wait for, so it is answered now, whatever is in flight."""
    world = DedupWorld().stored(*([i] for i in range(RECENT_BATCHES_MAX + 1)))
    world.write([1000])
    verdict = world.check([0])
    assert isinstance(verdict, NothingNew)
    assert verdict.settles_at <= world.table.state.position


# --- ids that only the entry contains ---------------------------------------------------------------------------------


def test_ids_that_are_not_in_memory_are_read_from_the_entry() -> None:
    """A batch with holes from a snapshot: read the entry, learn, check again."""
    world = DedupWorld().stored([0, 5, 9])
    recent = world.table.state.producers[PID].recent_batches[0]
    world.table.state.producers[PID].recent_batches.replace(0, recent._replace(deltas=None))
    assert world.check([5]) == NeedIds(at(1))
    assert world.check([9, 12]) == NeedIds(at(1))
    world.table.state.learn_deltas(at(1), *parts([0, 5, 9]))
    assert known(world.check([5])) == [ResultRange(DUPLICATE, 1, at(1), 1)]
    refused(world.check([4]), StaleSequence)


def test_ids_in_flight_are_always_in_memory() -> None:
    """Their entry is not in the log yet, so it cannot be read."""
    ids = list(range(0, 40_000, 2))
    world = DedupWorld()
    world.write(ids)
    assert known(world.check([4])) == [ResultRange(DUPLICATE, 1, at(1), 2)]
    world.persist()
    assert world.check([4]) == NeedIds(at(1))


# --- failure ----------------------------------------------------------------------------------------------------------


@pytest.mark.hazard("marks-of-a-failed-write")
def test_failed_write_rolls_everything_back() -> None:
    """Accepted marks, recent batches and grants: what is left is the fold, and the retry is new, not a duplicate."""
    world = DedupWorld().stored(range(3))
    before = plain(world.table.state)
    world.write(range(3, 6))
    world.grant(generation=2)
    world.grant("q", pid=2)
    world.fail()
    assert plain(world.table.state) == before
    assert world.table.accepted_of(PID) == 2
    world.write(range(3, 6))


def test_failure_rolls_back_only_entries_that_are_not_durable() -> None:
    """Entries become durable from the front; a failure then drops only the rest."""
    world = DedupWorld(CONTIGUOUS)
    world.write(range(2))
    world.write(range(2, 4))
    world.persist(1)
    world.fail()
    assert known(world.check(range(2))) == [ResultRange(DUPLICATE, 2, at(1), 0)]
    world.write(range(2, 4))


# --- disabled ---------------------------------------------------------------------------------------------------------


@pytest.mark.hazard("dedup-toggled")
def test_disabled_dedup_skips_only_the_check_of_sequence_ids() -> None:
    """Grants, fencing and the fold continue, so dedup can be enabled again by one event without a replay."""
    world = DedupWorld(dedup_enabled=False)
    world.write(range(3))
    world.write(range(3))
    refused(world.check([0], pid=9), UnknownProducer)
    world.grant(generation=2)
    world.persist()
    refused(world.check([9]), ProducerFenced)
    world.table.dedup_enabled = True
    assert known(world.check(range(3), generation=2)) == [ResultRange(DUPLICATE, 3, at(1), 0)]
    assert world.check([3], generation=2) == ACCEPT


@pytest.mark.hazard("output-without-deduplication")
def test_reserved_names_are_checked_while_dedup_is_disabled() -> None:
    """What is stored under such a name says what its producer has done."""
    world = DedupWorld(dedup_enabled=False)
    world.grant("effects/c/t/-1/e", pid=PID + 1)
    world.persist()
    assert world.check([0, 1], pid=PID + 1) == ACCEPT
    header = world.log.stored([0, 1], pid=PID + 1)
    batch, deltas = parts([0, 1], pid=PID + 1)
    world.table.accepted(batch, deltas, position=header.position, skip_first=0)
    for _ in ("in flight", "durable"):
        assert known(world.check([0, 1], pid=PID + 1)) == [ResultRange(DUPLICATE, 2, header.position, 0)]
        world.persist()


def test_enabling_dedup_counts_the_writes_in_flight() -> None:
    """Unchecked batches in flight count like any others."""
    world = DedupWorld(dedup_enabled=False)
    world.write([5])
    world.write([3, 5])
    world.table.dedup_enabled = True
    assert known(world.check([5])) == [ResultRange(DUPLICATE, 1, at(1), 0)]
    world.persist()
    assert known(world.check([5])) == [ResultRange(DUPLICATE, 1, at(1), 0)]


def test_id_stored_while_dedup_is_disabled_is_never_stale() -> None:
    """Found by the simulation: 4 was stored while dedup was disabled, and its resend was refused as never stored."""
    world = DedupWorld()
    world.write([2, 3, 5])
    world.write([8])
    world.persist()
    world.table.dedup_enabled = False
    world.write([4])
    world.table.dedup_enabled = True
    for _ in ("in flight", "durable"):
        assert known(world.check([4])) == [ResultRange(BELOW_MARK, 1, None, 0)]
        assert known(world.check([8])) == [ResultRange(DUPLICATE, 1, at(2), 0)]
        refused(world.check([7]), StaleSequence)
        world.persist()


def test_zero_is_a_legal_id() -> None:
    """A mark of -1 is none, 0 is one."""
    world = DedupWorld(CONTIGUOUS)
    assert world.table.accepted_of(PID) == -1
    world.stored([0])
    assert world.table.state.producers[PID].persisted == 0
    assert known(world.check([0])) == [ResultRange(DUPLICATE, 1, at(1), 0)]
