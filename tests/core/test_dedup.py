"""Every verdict on a batch, in flight and durable, and what is left of it when a write fails."""

import pytest

from oncelog.core.dedup.state import RUNS_MAX, DedupState
from oncelog.core.dedup.table import ACCEPT, Accept, DedupTable, Known, NeedIds, Refused, Verdict, Wait
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
from oncelog.core.formats.outcome import Part, PartKind
from oncelog.core.ids import NO_SEQUENCE, ProducerId
from tests.core.builders import CONTIGUOUS, MONOTONIC, PID, LogOf, at, grant, parts, plain

DUPLICATE, BELOW_MARK, STALE = PartKind.DUPLICATE, PartKind.BELOW_MARK, PartKind.STALE_SEQUENCE


class Judged:
    """A table over a log: batches are judged, written, and become durable when the test says so."""

    def __init__(self, mode: SequenceMode = MONOTONIC, *, judging: bool = True) -> None:
        self.log = LogOf()
        self.durable = 0
        self.table = DedupTable(DedupState(), judging=judging)
        self.grant(mode=mode)
        self.persist()

    def judge(self, ids: list[int] | range, *, generation: int = 1, pid: int = PID) -> Verdict:
        verdict = self.table.judge(*parts(ids, generation=generation, pid=pid))
        self.table.check_invariants()
        return verdict

    def write(self, ids: list[int] | range, *, generation: int = 1) -> Verdict:
        """Judge, and append what was accepted."""
        verdict = self.judge(ids, generation=generation)
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

    def stored(self, *batches: list[int] | range) -> "Judged":
        for ids in batches:
            self.write(ids)
        self.persist()
        return self

    def fail(self) -> None:
        """The write of everything in flight fails."""
        self.table.rollback()
        del self.log.entries[self.durable :]
        self.log.next_index = self.table.state.next_index


def refused(verdict: Verdict, error: type[Exception]) -> Refused:
    assert isinstance(verdict, Refused), verdict
    assert type(verdict.error) is error
    return verdict


def known(verdict: Verdict) -> list[Part]:
    assert isinstance(verdict, Known), verdict
    return list(verdict.known)


# --- who --------------------------------------------------------------------------------------------------------------


def test_older_generation_is_fenced() -> None:
    """Nothing of a zombie is written, and it is told who came."""
    judged = Judged()
    judged.grant(generation=2)
    judged.persist()
    assert refused(judged.judge([0]), ProducerFenced).error.details == {"current": 2}


def test_unknown_producer_is_refused() -> None:
    """Taking it as new would store again what was stored before it was forgotten."""
    refused(Judged().judge([0], pid=9), UnknownProducer)


def test_generation_above_mine_means_that_i_am_deposed() -> None:
    """Another owner granted it; the producer is not at fault."""
    assert refused(Judged().judge([0], generation=2), NotOwner).suspect


def test_producer_without_deduplication_is_never_judged() -> None:
    """Producer id 0 may send anything again."""
    judged = Judged()
    assert judged.judge([5], pid=0) == judged.judge([5], pid=0) == ACCEPT


def test_old_generation_waits_for_a_grant_in_flight() -> None:
    """Fenced by a grant that fails, it is refused for nothing; accepted, it is in the log behind the fence."""
    judged = Judged()
    judged.grant(generation=2)
    assert isinstance(judged.judge([0]), Wait)
    judged.persist()
    refused(judged.judge([0]), ProducerFenced)


def test_grant_that_failed_fences_nobody() -> None:
    """The older instance goes on."""
    judged = Judged()
    judged.grant(generation=2)
    judged.fail()
    assert judged.judge([0]) == ACCEPT


def test_new_name_in_flight_is_known_and_vanishes_with_its_write() -> None:
    """A second opener must find the binding; after the failure there is none."""
    judged = Judged()
    judged.grant("q", pid=2, mode=CONTIGUOUS)
    table = judged.table
    assert table.producer_id_of("q") == 2
    assert (table.generation_of(ProducerId(2)), table.mode_of(ProducerId(2))) == ((1, False), CONTIGUOUS)
    assert table.accepted_of(ProducerId(2)) == NO_SEQUENCE
    judged.fail()
    assert (table.producer_id_of("q"), table.knows(ProducerId(2))) == (None, False)


def test_one_id_never_stands_for_two_names() -> None:
    """Binding an id that the topic knows is an error of ours, whether it is durable or in flight."""
    judged = Judged()
    judged.grant("q", pid=2)
    for name, pid in (("r", 1), ("r", 2), ("p", 3)):
        with pytest.raises(InvariantViolated):
            judged.table.granting(grant(name, pid=pid), position=at(9))


# --- new --------------------------------------------------------------------------------------------------------------


def test_monotonic_accepts_holes_of_any_size() -> None:
    """Ids are the application's."""
    judged = Judged()
    judged.write([0])
    judged.write([2, 5, 10**15])
    judged.write(range(10**17, 10**17 + 3))


def test_contiguous_accepts_exactly_the_next() -> None:
    """A gap is refused, so that a later batch never overtakes a failed one."""
    judged = Judged(CONTIGUOUS)
    assert refused(judged.judge([1]), SequenceGap).error.details == {"expected": 0}
    judged.write(range(3))
    assert refused(judged.judge(range(4, 6)), SequenceGap).error.details == {"expected": 3}
    judged.write([3])


def test_contiguous_batch_has_no_holes() -> None:
    """Else 11 would pass as the next after 10 and 12 be called stored."""
    refused(Judged(CONTIGUOUS).judge([0, 2]), InvalidBatch)


# --- known ------------------------------------------------------------------------------------------------------------


def test_stored_batch_is_a_duplicate_with_its_position() -> None:
    """Whole, a piece, and across several runs."""
    judged = Judged().stored(range(3), range(3, 6), [8, 9])
    assert known(judged.judge(range(3))) == [Part(DUPLICATE, 3, at(1), 0)]
    assert known(judged.judge([4, 5])) == [Part(DUPLICATE, 2, at(2), 1)]
    assert known(judged.judge([1, 2, 3, 5, 9])) == [
        Part(DUPLICATE, 2, at(1), 1),
        Part(DUPLICATE, 1, at(2), 0),
        Part(DUPLICATE, 1, at(2), 2),
        Part(DUPLICATE, 1, at(3), 1),
    ]


def test_batch_in_flight_is_joined() -> None:
    """Answered with the write's own result: neither "duplicate" now nor "cannot determine"."""
    judged = Judged()
    judged.write(range(3))
    verdict = judged.judge(range(3))
    assert verdict == Known((Part(DUPLICATE, 3, at(1), 0),), at(1))
    assert verdict.settles_at > judged.table.state.position


def test_duplicate_settles_with_the_last_of_its_writes() -> None:
    """One part durable, the next in flight: both are answered when both are durable."""
    judged = Judged().stored(range(3))
    judged.write(range(3, 6))
    verdict = judged.judge(range(6))
    assert isinstance(verdict, Known)
    assert verdict.settles_at == at(2)


def test_straddling_batch_is_stored_behind_its_known_prefix() -> None:
    """Exact per message: the head is told as duplicate, the tail is new."""
    judged = Judged().stored(range(3))
    assert judged.judge(range(5)) == Accept(3, (Part(DUPLICATE, 3, at(1), 0),))


def test_straddle_of_durable_in_flight_and_new() -> None:
    """The prefix spans a durable run, one in flight with holes, and the next write is only the rest."""
    judged = Judged().stored(range(3))
    judged.write([4, 6])
    verdict = judged.write([1, 2, 4, 6, 9, 11])
    assert verdict == Accept(4, (Part(DUPLICATE, 2, at(1), 1), Part(DUPLICATE, 2, at(2), 0)))
    judged.persist()
    assert known(judged.judge([9, 11])) == [Part(DUPLICATE, 2, at(3), 4)]


# --- older than the runs ----------------------------------------------------------------------------------------------


def test_monotonic_below_the_runs_is_not_verified() -> None:
    """Success, not stored now, and told as what it is; beside a remembered run and new ids too."""
    judged = Judged().stored(*([2 * i] for i in range(RUNS_MAX + 2)))
    assert judged.table.state.producers[PID].runs_floor == 2
    assert known(judged.judge([1])) == [Part(BELOW_MARK, 1, None, 0)]
    assert known(judged.judge([0, 2, 4])) == [Part(BELOW_MARK, 2, None, 0), Part(DUPLICATE, 1, at(3), 0)]
    assert known(judged.judge([0, 2, 5])) == [Part(BELOW_MARK, 2, None, 0), Part(STALE, 1, None, 0)]
    top = 2 * RUNS_MAX + 2
    verdict = judged.judge([0, top, top + 1])
    assert verdict == Accept(2, (Part(BELOW_MARK, 1, None, 0), Part(DUPLICATE, 1, at(RUNS_MAX + 2), 0)))


def test_contiguous_below_the_runs_is_an_exact_duplicate() -> None:
    """Without holes every id below the mark was stored; only the position is forgotten."""
    judged = Judged(CONTIGUOUS).stored(*([i] for i in range(RUNS_MAX + 2)))
    assert known(judged.judge(range(3))) == [Part(DUPLICATE, 2, None, 0), Part(DUPLICATE, 1, at(3), 0)]


def test_verdict_on_what_is_below_needs_no_waiting() -> None:
    """No position to wait for: answered now, whatever is in flight."""
    judged = Judged().stored(*([i] for i in range(RUNS_MAX + 1)))
    judged.write([1000])
    verdict = judged.judge([0])
    assert isinstance(verdict, Known)
    assert verdict.settles_at <= judged.table.state.position


# --- ids that only the entry knows ------------------------------------------------------------------------------------


def test_ids_that_are_not_remembered_are_asked_for() -> None:
    """A run with holes from a snapshot: read the entry, learn, judge again."""
    judged = Judged().stored([0, 5, 9])
    run = judged.table.state.producers[PID].runs[0]
    judged.table.state.producers[PID].runs.replace(0, run._replace(deltas=None))
    assert judged.judge([5]) == NeedIds(at(1))
    assert judged.judge([9, 12]) == NeedIds(at(1))
    judged.table.state.learn_deltas(at(1), *parts([0, 5, 9]))
    assert known(judged.judge([5])) == [Part(DUPLICATE, 1, at(1), 1)]
    refused(judged.judge([4]), StaleSequence)


def test_ids_in_flight_are_always_remembered() -> None:
    """Their entry is not in the log yet: nobody could read it."""
    ids = list(range(0, 40_000, 2))
    judged = Judged()
    judged.write(ids)
    assert known(judged.judge([4])) == [Part(DUPLICATE, 1, at(1), 2)]
    judged.persist()
    assert judged.judge([4]) == NeedIds(at(1))


# --- failure ----------------------------------------------------------------------------------------------------------


def test_failed_write_rolls_everything_back() -> None:
    """Accepted marks, runs and grants: what is left is the fold, and the retry is new, not a duplicate."""
    judged = Judged().stored(range(3))
    before = plain(judged.table.state)
    judged.write(range(3, 6))
    judged.grant(generation=2)
    judged.grant("q", pid=2)
    judged.fail()
    assert plain(judged.table.state) == before
    assert judged.table.accepted_of(PID) == 2
    judged.write(range(3, 6))


def test_part_of_what_is_in_flight_becomes_durable() -> None:
    """Entries become durable from the front; a failure then drops only the rest."""
    judged = Judged(CONTIGUOUS)
    judged.write(range(2))
    judged.write(range(2, 4))
    judged.persist(1)
    judged.fail()
    assert known(judged.judge(range(2))) == [Part(DUPLICATE, 2, at(1), 0)]
    judged.write(range(2, 4))


# --- off --------------------------------------------------------------------------------------------------------------


def test_off_skips_only_the_judging_by_sequence() -> None:
    """Grants, fencing and the fold go on, so on again is one event and knows everything."""
    judged = Judged(judging=False)
    judged.write(range(3))
    judged.write(range(3))
    refused(judged.judge([0], pid=9), UnknownProducer)
    judged.grant(generation=2)
    judged.persist()
    refused(judged.judge([9]), ProducerFenced)
    judged.table.judging = True
    assert known(judged.judge(range(3), generation=2)) == [Part(DUPLICATE, 3, at(1), 0)]
    assert judged.judge([3], generation=2) == ACCEPT


def test_switched_on_with_writes_in_flight() -> None:
    """Unjudged batches in flight count like any others."""
    judged = Judged(judging=False)
    judged.write([5])
    judged.write([3, 5])
    judged.table.judging = True
    assert known(judged.judge([5])) == [Part(DUPLICATE, 1, at(1), 0)]
    judged.persist()
    assert known(judged.judge([5])) == [Part(DUPLICATE, 1, at(1), 0)]


def test_id_stored_unjudged_below_the_mark_is_never_called_unstored() -> None:
    """Found by the simulation: 4 was stored while dedup was off, and its resend was refused as never stored."""
    judged = Judged()
    judged.write([2, 3, 5])
    judged.write([8])
    judged.persist()
    judged.table.judging = False
    judged.write([4])
    judged.table.judging = True
    for _ in ("in flight", "durable"):
        assert known(judged.judge([4])) == [Part(BELOW_MARK, 1, None, 0)]
        assert known(judged.judge([8])) == [Part(DUPLICATE, 1, at(2), 0)]
        refused(judged.judge([7]), StaleSequence)
        judged.persist()


def test_zero_is_a_legal_id() -> None:
    """A mark of -1 is none, 0 is one."""
    judged = Judged(CONTIGUOUS)
    assert judged.table.accepted_of(PID) == -1
    judged.stored([0])
    assert judged.table.state.producers[PID].persisted == 0
    assert known(judged.judge([0])) == [Part(DUPLICATE, 1, at(1), 0)]
