"""Entries of Pulsar's clients before deduplication: units are judged as a whole, others by the id of each message."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import InvalidBatch, StaleSequence
from oncelog.core.formats.batch import decode_batch, deltas_of, payload_of, peek_batch
from oncelog.core.formats.entry import EntryKind, body_of
from oncelog.core.formats.outcome import ResultKind, ResultRange
from oncelog.core.formats.payload import read_columns
from oncelog.core.ids import EntryId, LedgerId, Position, SequenceId
from oncelog.core.publishing.dedup_state import DedupState
from oncelog.core.publishing.dedup_table import Accept, BatchVerdict, DedupTable, NothingNew, Refused
from oncelog.core.publishing.finding import FoundState, find, in_entry, trimmed
from oncelog.core.publishing.recent_batches import RecentBatch, RecentBatches
from oncelog.core.publishing.repeated_content import with_content
from tests.core.builders import CONTIGUOUS, PID, at, checksum, fold, plain
from tests.core.publishing.test_dedup import DedupWorld
from tests.core.pulsar_entries import Sent, as_batch, batched, encrypted, numbered, of_one_key

DUPLICATE, BELOW_MARK, STALE = ResultKind.DUPLICATE, ResultKind.BELOW_MARK, ResultKind.STALE_SEQUENCE


class EntryWorld(DedupWorld):
    """A table to which entries of Pulsar's clients are sent."""

    def judge(self, data: bytes) -> BatchVerdict:
        header = decode_batch(data, checksum)
        verdict = self.table.check(header, deltas_of(header, data))
        self.table.check_invariants()
        return verdict

    def store(self, data: bytes) -> Accept:
        verdict = self.judge(data)
        assert isinstance(verdict, Accept), verdict
        header = decode_batch(data, checksum)
        skip = verdict.skip_first
        entry = self.log.add(EntryKind.MESSAGES, data, count=header.count - skip, skip_first=skip)
        self.table.accepted(header, deltas_of(header, data), position=entry.position, skip_first=skip)
        self.table.check_invariants()
        return verdict

    def new_owner(self) -> None:
        """From a snapshot: packed, and without the ids of batches with holes."""
        state = fold(self.log.entries[: self.durable])
        state.producers.make_idle(before_ms=1 << 60)
        assert plain(state) == plain(self.table.state)
        self.table = DedupTable(state)


def of_key(*ids: int) -> bytes:
    """A batch of one key from Java."""
    return as_batch(of_one_key(numbered(ids)), [ids[-1]], unit=len(ids) > 1, count=len(ids))


def hidden(first: int, last: int, count: int) -> bytes:
    """An encrypted batch."""
    return as_batch(encrypted(first, last, count=count), [first, last], unit=True, count=count)


def open_batch(*ids: int) -> bytes:
    return as_batch(batched(numbered(ids)), list(ids))


def known(verdict: BatchVerdict) -> list[ResultRange]:
    assert isinstance(verdict, NothingNew), verdict
    return list(verdict.known)


def is_stale(verdict: BatchVerdict) -> bool:
    return isinstance(verdict, Refused) and type(verdict.error) is StaleSequence


@pytest.mark.hazard("batches-of-keys")
def test_batches_of_keys_are_stored_in_turn() -> None:
    """{0, 2, 4}, then {1, 3, 5}: by its highest id each one is above the mark. Sent again, each is a duplicate at its
    place."""
    world = EntryWorld()
    for ids in ((0, 2, 4), (1, 3, 5), (6,), (7, 9), (8, 10)):
        world.store(of_key(*ids))
    for durable in (False, True):
        assert known(world.judge(of_key(1, 3, 5))) == [ResultRange(DUPLICATE, 3, at(2), 0)]
        assert known(world.judge(of_key(0, 2, 4))) == [ResultRange(DUPLICATE, 3, at(1), 0)]
        if not durable:
            world.persist()
    world.new_owner()
    assert known(world.judge(of_key(1, 3, 5))) == [ResultRange(DUPLICATE, 3, at(2), 0)]


@pytest.mark.hazard("batches-of-keys")
@pytest.mark.parametrize(
    "again",
    [of_key(2, 4), of_key(1, 2, 3), hidden(12, 15, 3), hidden(10, 15, 3), hidden(10, 12, 3), hidden(14, 20, 7)],
)
def test_a_unit_that_is_not_remembered_is_refused_and_never_cut(again: bytes) -> None:
    """Other borders, another count, partly new: it is unknown which of its messages are stored. It fails, and is not
    lost. Control: as it was stored, it is a duplicate."""
    world = EntryWorld()
    world.store(of_key(0, 2, 4))
    world.store(hidden(10, 15, 4))
    world.persist()
    verdict = world.judge(again)
    assert is_stale(verdict)
    assert isinstance(verdict, Refused)
    assert "as a whole" in verdict.error.message
    assert verdict.error.details == {"high_water": 15}
    assert known(world.judge(hidden(10, 15, 4))) == [ResultRange(DUPLICATE, 4, at(2), 0)]


def test_a_unit_older_than_what_is_remembered_is_not_verified() -> None:
    """A success without a place, as for other batches; and refused, if it is not older as a whole."""
    world = EntryWorld()
    world.store(hidden(0, 9, 4))
    for number in range(10, 75):
        world.store(open_batch(number))
    world.persist()
    floor = world.table.state.producers[PID].recent_floor
    assert floor == 10
    assert known(world.judge(hidden(0, 9, 4))) == [ResultRange(BELOW_MARK, 4, None, 0)]
    assert known(world.judge(hidden(3, 10, 4))) == [ResultRange(BELOW_MARK, 4, None, 0)]
    assert is_stale(world.judge(hidden(3, 11, 4)))


@pytest.mark.hazard("overlapping-batches-of-keys")
def test_batches_known_by_their_lowest_id_are_refused_where_they_overlap() -> None:
    """C++ and Go: {0, 3, 4}, then {1, 2}. The second one is never stored, nor called a duplicate."""
    world = EntryWorld()
    world.store(open_batch(0, 3, 4))
    world.persist()
    assert is_stale(world.judge(open_batch(1, 2)))


@pytest.mark.hazard("entry-of-another-batch")
def test_a_known_prefix_of_an_entry_is_stored_and_not_delivered() -> None:
    """A source is sent again in other batches: {0, 1, 5}, then {1, 5, 7, 8}. The new messages are stored with the entry
    as it came, and its first two messages do not count."""
    world = EntryWorld()
    world.store(open_batch(0, 1, 5))
    data = open_batch(1, 5, 7, 8)
    verdict = world.store(data)
    assert verdict == Accept(2, (ResultRange(DUPLICATE, 2, at(1), 1),))
    header, entry = world.log.entries[-1]
    assert (header.skip_first, header.count, bytes(body_of(entry))) == (2, 2, data)
    batch = peek_batch(data)
    values = read_columns(batch, payload_of(batch, data)).values[header.skip_first :]
    assert [bytes(value) for value in values] == [b"value 7", b"value 8"]
    world.persist()
    world.new_owner()
    assert known(world.judge(open_batch(7, 8))) == [ResultRange(DUPLICATE, 2, at(2), 2)]


@pytest.mark.hazard("place-of-another-batch")
def test_only_the_same_batch_has_the_place_of_a_unit() -> None:
    """An id of another batch that lies within a unit may be one of its messages or not: it has no place, and is
    answered when the unit is durable."""
    world = EntryWorld()
    world.store(of_key(0, 2, 4))
    world.store(hidden(10, 15, 4))
    verdict = world.judge(open_batch(4, 12, 13))
    assert known(verdict) == [
        ResultRange(BELOW_MARK, 1, None, 0),
        ResultRange(BELOW_MARK, 2, None, 0),
    ]
    assert isinstance(verdict, NothingNew)
    assert verdict.settles_at == at(2)
    assert is_stale(world.judge(open_batch(5, 9))), "between the units"


def test_a_contiguous_producer_sends_no_units() -> None:
    world = EntryWorld(CONTIGUOUS)
    verdict = world.judge(hidden(0, 3, 4))
    assert isinstance(verdict, Refused)
    assert isinstance(verdict.error, InvalidBatch)


@pytest.mark.hazard("other-order-of-properties")
def test_other_bytes_of_the_same_message_are_no_other_content() -> None:
    """Go writes properties in a random order, and Java in that of its map. Control: the same bytes are known to be the
    same content."""
    world = EntryWorld()
    one, other = Sent(3, b"value", properties={"a": "1", "b": "2"}), Sent(3, b"value", properties={"b": "2", "a": "1"})
    stored, again = (as_batch(batched([each]), [3]) for each in (one, other))
    assert stored != again
    world.store(stored)
    world.persist()
    for data, differs in ((stored, False), (again, None)):
        verdict = world.judge(data)
        assert isinstance(verdict, NothingNew)
        (result,) = with_content(verdict.known, world.table, peek_batch(data), data, checksum)
        assert result.content_differs is differs


def test_units_stored_while_deduplication_is_off_are_older_than_what_is_remembered() -> None:
    """Which ids they have is not known. So no id up to their last one is called stale later; live and replayed."""
    world = EntryWorld(dedup_enabled=False)
    world.store(open_batch(5, 8))
    world.store(hidden(6, 20, 4))
    world.store(hidden(1, 3, 3))
    assert world.table.accepted_of(PID) == 20
    world.persist()
    world.new_owner()
    for data in (open_batch(7), hidden(6, 20, 4), open_batch(1, 20)):
        assert {each.kind for each in known(world.judge(data))} == {BELOW_MARK}
    assert world.judge(open_batch(21)) == Accept()


def test_a_message_within_a_unit_is_found_by_its_entry() -> None:
    """A batch of a key shows the ids of its messages; an encrypted one does not, and the answer is then not known."""
    world = EntryWorld()
    world.store(of_key(0, 2, 4))
    world.store(hidden(10, 15, 4))
    assert find(world.table, "p", SequenceId(4)).state is FoundState.IN_FLIGHT
    world.persist()
    found = find(world.table, "p", SequenceId(4))
    assert (found.state, found.position, found.batch_index) == (FoundState.STORED, at(1), None)
    read = in_entry(found, SequenceId(4), world.log.entries[1][1])
    assert (read.state, read.batch_index, read.index) == (FoundState.STORED, 2, 2)
    assert trimmed(found).state is FoundState.OLDER_THAN_REMEMBERED
    hid = in_entry(find(world.table, "p", SequenceId(12)), SequenceId(12), world.log.entries[2][1])
    assert hid.state is FoundState.UNKNOWN
    assert find(world.table, "p", SequenceId(9)).state is FoundState.NEVER_STORED


def test_units_keep_their_shape_in_every_form() -> None:
    """Open, packed as in a snapshot, replaced. A unit may count more messages than it has ids."""
    given = [
        RecentBatch(SequenceId(4), SequenceId(4), 3, at(1), 0, b"", 1, 5, 7, unit=True),
        RecentBatch(SequenceId(10), SequenceId(15), 4, at(2), 0, b"", unit=True),
        RecentBatch(SequenceId(16), SequenceId(16), 1, at(3), 0, b"", 2, 6, 8, unit=True),
        RecentBatch(SequenceId(17), SequenceId(21), 5, Position(LedgerId(9), EntryId(0)), 0, b"", 2, 6, 8, unit=True),
        RecentBatch(SequenceId(22), SequenceId(23), 2, Position(LedgerId(9), EntryId(1)), 3, b""),
    ]
    batches = RecentBatches(given)
    assert list(batches) == given
    assert list(RecentBatches.unpack(batches.packed())) == given
    batches.pack()
    assert list(batches) == given
    batches.replace(0, given[0]._replace(count=2))
    assert [each.unit for each in batches] == [True, True, True, True, False]
    assert next(iter(batches)).count == 2


#: (kind, ids): batches that a client sends in this order, any of them again at any time.
SENT = st.lists(
    st.tuples(st.booleans(), st.lists(st.integers(0, 12), min_size=1, max_size=4, unique=True).map(sorted)),
    min_size=1,
    max_size=25,
)


@given(sent=SENT, breaks=st.lists(st.integers(0, 24), max_size=4))
def test_no_unit_is_stored_twice_and_none_is_called_stored_that_is_not(
    sent: list[tuple[bool, list[int]]], breaks: list[int]
) -> None:
    """Against a model that is only the list of what is stored: failures, new owners, and every batch again."""
    world = EntryWorld()
    stored: dict[bytes, Position] = {}
    for number, (unit, ids) in enumerate(sent):
        data = hidden(ids[0], ids[-1], len(ids)) if unit else open_batch(*ids)
        verdict = world.judge(data)
        highest = world.table.accepted_of(PID)
        if not unit:
            if isinstance(verdict, Accept):
                world.store(data)
        elif isinstance(verdict, Accept):
            assert data not in stored
            assert ids[0] > highest
            stored[data] = at(len(world.log.entries))
            world.store(data)
        elif isinstance(verdict, NothingNew):
            (result,) = verdict.known
            same = world.table.remembered(PID, result.position) if result.position else None
            assert same is not None
            assert (same.first, same.last, same.count) == (ids[0], ids[-1], len(ids))
            assert stored.get(data, result.position) == result.position
        else:
            assert is_stale(verdict)
            assert data not in stored
        if number in breaks:
            world.persist(number % 3)
            world.fail()
            stored = {each: place for each, place in stored.items() if place <= world.table.state.position}
            world.new_owner()
    assert isinstance(world.table.state, DedupState)
