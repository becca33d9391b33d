"""Producers in mode EPOCHED, against a model that is only what the log has of each epoch: a set of (epoch, number).

A client sends batches of any epoch, also late copies; writes become durable or fail, owners change, recent batches are
forgotten. Nothing is called stored that is not, and a client that goes on in its epoch, or in a higher one, gets on.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import InvalidBatch, SequenceGap, StaleSequence
from oncelog.core.formats.batch import decode_ids, deltas_of, peek_batch
from oncelog.core.formats.entry import EntryKind, body_of
from oncelog.core.formats.epoched_ids import epoch_of, first_of, last_of, number_of
from oncelog.core.formats.outcome import ResultKind, ResultRange
from oncelog.core.ids import NO_SEQUENCE, SequenceId
from oncelog.core.publishing.dedup_state import DedupState
from oncelog.core.publishing.dedup_table import ACCEPT, Accept, BatchVerdict, DedupTable, NothingNew, Refused
from oncelog.core.publishing.finding import FoundState, find
from oncelog.core.publishing.recent_batches import RECENT_BATCHES_MAX
from tests.core.builders import EPOCHED, PID, at, fold, grant
from tests.core.publishing.test_dedup import DedupWorld, known, refused

DUPLICATE = ResultKind.DUPLICATE


def ids_of(epoch: int, number: int, count: int) -> range:
    first = first_of(epoch) + number
    return range(first, first + count)


class EpochedWorld(DedupWorld):
    def __init__(self) -> None:
        super().__init__(EPOCHED)

    @property
    def stored_ids(self) -> set[int]:
        found: set[int] = set()
        for header, data in self.log.entries:
            if header.kind == EntryKind.MESSAGES:
                batch = peek_batch(body := body_of(data))
                ids = decode_ids(batch, deltas_of(batch, body))[header.skip_first :]
                assert found.isdisjoint(ids)
                found.update(ids)
        return found

    def new_owner(self) -> None:
        state = fold(self.log.entries[: self.durable])
        state.producers.make_idle(before_ms=1 << 60)
        self.table = DedupTable(state)

    def send(self, ids: range) -> BatchVerdict:
        """Judge a batch against the model, and write it if it is accepted."""
        stored = self.stored_ids
        mark = max(stored, default=NO_SEQUENCE)
        epoch, number, current = epoch_of(ids[0]), number_of(ids[0]), epoch_of(mark)
        verdict = self.check(ids)
        match verdict:
            case Accept(skip, parts):
                assert set(ids[:skip]) <= stored
                assert stored.isdisjoint(ids[skip:])
                assert sum(part.count for part in parts) == skip
                assert number == 0 if epoch > current else ids[skip] == mark + 1
                self.write(ids)
            case NothingNew(parts, _):
                assert set(ids) <= stored
                assert all(part.kind is DUPLICATE for part in parts)
            case Refused(StaleSequence()):
                assert epoch < current
            case Refused(SequenceGap()):
                assert number > 0 if epoch > current else ids[0] > mark + 1
            case _:
                raise AssertionError(verdict)
        return verdict

    def do(self, step: tuple[str, int, int, int]) -> None:
        kind, epoch, number, count = step
        match kind:
            case "send":
                self.send(ids_of(epoch, number, count))
            case "next":
                mark = self.table.accepted_of(PID)
                assert self.send(range(mark + 1, mark + 1 + count)) == ACCEPT
            case "higher":
                begin = first_of(epoch_of(self.table.accepted_of(PID)) + 1 + epoch)
                assert self.send(range(begin, begin + count)) == ACCEPT
            case "persist":
                self.persist(count)
            case "fail":
                self.fail()
            case "owner":
                self.fail()
                self.new_owner()
            case "forget":
                self.persist()
                self.table.state.producers[PID].forget_all()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["send", "send", "send", "next", "next", "higher", "persist", "fail", "owner", "forget"]),
        st.integers(0, 3),
        st.integers(0, 12),
        st.integers(1, 5),
    ),
    max_size=40,
)


@pytest.mark.hazard("copy-of-an-older-epoch")
@given(steps=STEPS)
def test_nothing_is_called_stored_that_is_not(steps: list[tuple[str, int, int, int]]) -> None:
    world = EpochedWorld()
    for step in steps:
        world.do(step)


@pytest.mark.hazard("copy-of-an-older-epoch")
@pytest.mark.parametrize("forgotten", [False, True])
def test_late_copy_of_an_older_epoch_is_stale_unless_it_is_remembered(*, forgotten: bool) -> None:
    """Epoch 0 has ended at 4. Its batch 3..4 is a duplicate while it is remembered. What the client had sent as 5, and
    sends under epoch 1, was never stored under epoch 0."""
    world = EpochedWorld()
    world.stored(ids_of(0, 0, 3), ids_of(0, 3, 2), ids_of(1, 0, 1))
    if forgotten:
        world.table.state.producers[PID].forget_all()
        refused(world.check(ids_of(0, 3, 2)), StaleSequence)
    else:
        assert known(world.check(ids_of(0, 3, 2))) == [ResultRange(DUPLICATE, 2, at(2), 0)]
    stale = refused(world.check(ids_of(0, 5, 1)), StaleSequence)
    assert "of epoch 0" in stale.error.message
    assert "epoch 1" in stale.error.message
    refused(world.check(ids_of(0, 4, 2)), StaleSequence)
    assert world.check(ids_of(1, 1, 2)) == ACCEPT


def test_duplicate_of_the_epoch_that_goes_on_needs_no_memory() -> None:
    """Its ids have no gaps, so all up to the mark are stored. A batch with a known prefix is stored without it."""
    world = EpochedWorld()
    world.stored(ids_of(7, 0, 2), *(ids_of(8, number, 1) for number in range(RECENT_BATCHES_MAX + 2)))
    assert known(world.check(ids_of(8, 0, 2))) == [ResultRange(DUPLICATE, 2, None, 0)]
    last = RECENT_BATCHES_MAX + 1
    verdict = world.check(ids_of(8, last, 3))
    assert isinstance(verdict, Accept)
    assert verdict.skip_first == 1
    refused(world.check(ids_of(7, 0, 2)), StaleSequence)


@pytest.mark.parametrize("durable", [False, True])
def test_only_the_first_number_begins_a_higher_epoch(*, durable: bool) -> None:
    world = EpochedWorld()
    expected = refused(world.check(ids_of(3, 1, 1)), SequenceGap).error.details["expected"]
    assert expected == 0
    assert world.write(ids_of(3, 0, 2)) == ACCEPT
    if durable:
        world.persist()
    refused(world.check(ids_of(3, 3, 1)), SequenceGap)
    refused(world.check(ids_of(5, 1, 1)), SequenceGap)
    assert world.write(ids_of(5, 0, 1)) == ACCEPT
    world.fail()
    assert world.check(ids_of(3, 2, 1) if durable else ids_of(3, 0, 1)) == ACCEPT


def test_ids_of_two_epochs_or_with_holes_are_no_batch() -> None:
    world = EpochedWorld()
    refused(world.check([0, 2]), InvalidBatch)
    refused(world.check(range(last_of(0), last_of(0) + 2)), InvalidBatch)


@pytest.mark.parametrize("number", [0, 1, 9])
def test_an_epoch_whose_numbers_were_forgotten_takes_none_and_calls_none_a_duplicate(number: int) -> None:
    """A name is granted with the last id of epoch 4 as its mark: the log does not know any more what it stored."""
    world = EpochedWorld()
    world.table = DedupTable(DedupState())
    world.log.entries.clear()
    world.log.next_index = world.durable = 0
    opened = grant("kafka/9", mode=EPOCHED)._replace(persisted=last_of(4))
    world.table.granting(opened, position=world.log.granted(opened).position)
    world.persist()
    refused(world.check(ids_of(4, number, 1)), StaleSequence)
    refused(world.check(ids_of(3, number, 1)), StaleSequence)
    assert world.write(ids_of(5, 0, 2)) == ACCEPT
    world.persist()
    refused(world.check(ids_of(4, number, 1)), StaleSequence)


def test_a_look_says_never_stored_only_of_what_is_known() -> None:
    world = EpochedWorld()
    world.stored(ids_of(0, 0, 2), ids_of(1, 0, 2), ids_of(2, 0, 1))

    def state(epoch: int, number: int) -> FoundState:
        return find(world.table, "p", SequenceId(first_of(epoch) + number)).state

    assert (state(0, 1), state(0, 2), state(1, 1), state(1, 5)) == (
        FoundState.STORED, FoundState.NEVER_STORED, FoundState.STORED, FoundState.NEVER_STORED,
    )  # fmt: skip
    world.table.state.producers[PID].forget_all()
    assert state(0, 2) is state(1, 1) is FoundState.OLDER_THAN_REMEMBERED
    assert (state(2, 0), state(2, 1)) == (FoundState.OLDER_THAN_REMEMBERED, FoundState.NOT_STORED)
