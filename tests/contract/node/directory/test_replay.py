"""The replay: the order of the files does not matter, only the numbers of the records (hazard compaction-order)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.ids import TopicId
from oncelog.core.node.node_ledger import DELETED, LedgerOrigin, RecordKind
from oncelog.log_storage.directory.replay import DirectoryReplay, Replayed
from oncelog.log_storage.directory.segment_format import ENTRY_KINDS, RecordLocation, StoredRecord

KINDS = (
    RecordKind.ADD,
    RecordKind.RECOVERY_ADD,
    RecordKind.REPAIR_ADD,
    RecordKind.FENCE,
    RecordKind.LEDGER_ERASED,
    RecordKind.LIMBO,
    RecordKind.LIMBO_CLEARED,
)


def stored(kind: RecordKind, ledger_id: int, entry_id: int, number: int) -> StoredRecord:
    """The record of this number, at a place of its own."""
    body = b"" if kind not in ENTRY_KINDS else b"entry"
    return StoredRecord(kind, ledger_id, entry_id, number, RecordLocation(1, number * 512, len(body)), body)


def state(replayed: Replayed) -> object:
    """All that a start knows."""
    index = replayed.index
    return (
        {ledger_id: list(index.entries(ledger_id)) for ledger_id in index.ledgers()},
        [writable for _, writable in replayed.heads],
        replayed.fenced,
        replayed.erased,
        replayed.deleted,
        replayed.limbo_below,
        replayed.limbo_cleared,
        sum(index.live_bytes.values()),
    )


def replayed_in_order(records: list[StoredRecord]) -> Replayed:
    replay = DirectoryReplay()
    for record in records:
        replay.take(record)
    return replay.result()


HISTORIES = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(1, 3), st.integers(0, 4)), max_size=30)


@pytest.mark.hazard("compaction-order")
@given(HISTORIES, st.randoms(use_true_random=False))
def test_order_of_the_files_does_not_matter(history: list[tuple[RecordKind, int, int]], random: object) -> None:
    """Compaction moves any record behind any other. The state stays that of the order of writing."""
    records = [stored(kind, ledger_id, entry_id, at) for at, (kind, ledger_id, entry_id) in enumerate(history, 1)]
    shuffled = list(records)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert state(replayed_in_order(shuffled)) == state(replayed_in_order(records))


@pytest.mark.hazard("missing-record-is-no-deletion")
def test_tombstone_of_a_copy_names_its_topic() -> None:
    """A node needs it to prove later that the ledger was deleted. Tombstones of older versions have no origin."""
    origin = LedgerOrigin(TopicId("ab" * 16), LedgerPurpose.DEDUP)
    named = stored(RecordKind.LEDGER_ERASED, 5, 0, 7)._replace(body=origin.encode())
    older = stored(RecordKind.LEDGER_ERASED, 6, 0, 8)
    records = [named, older, stored(RecordKind.LEDGER_ERASED, 5, 0, 3)]
    for order in (records, records[::-1]):
        assert replayed_in_order(order).erased == {5: origin, 6: None}
    deleted = stored(RecordKind.LEDGER_ERASED, 5, DELETED, 9)
    assert replayed_in_order([deleted, *records]).erased == {5: None, 6: None}


@pytest.mark.hazard("compaction-order")
def test_copied_tombstone_spares_the_ledger_that_came_back() -> None:
    """Ledger 5 was erased and came back by a repair. Its tombstone was copied into the newest file."""
    came_back = stored(RecordKind.REPAIR_ADD, 5, 0, 9)
    replayed = replayed_in_order([came_back, stored(RecordKind.LEDGER_ERASED, 5, 0, 7)])
    assert replayed.index.location(5, 0) == came_back.location
    assert replayed.erased.keys() == {5}


@pytest.mark.hazard("compaction-order")
def test_entry_copied_behind_its_tombstone_stays_erased() -> None:
    """A copy out of an old segment lands in a newer file than the tombstone of its ledger."""
    erased = stored(RecordKind.LEDGER_ERASED, 5, DELETED, 7)
    replayed = replayed_in_order([erased, stored(RecordKind.ADD, 5, 0, 3)])
    assert replayed.index.location(5, 0) is None
    assert list(replayed.index.ledgers()) == []
    assert replayed.deleted == {5}


def test_fence_survives_a_tombstone() -> None:
    """A zombie writer must stay refused after the copy was erased (hazard answer-of-a-former-member)."""
    replayed = replayed_in_order([stored(RecordKind.FENCE, 5, 0, 3), stored(RecordKind.LEDGER_ERASED, 5, 0, 7)])
    assert replayed.fenced == {5}


def test_ledger_is_writable_only_by_an_ordinary_add_that_is_not_erased() -> None:
    """Otherwise a writer that was paused could add to a ledger that this node has erased (hazard
    former-incarnation)."""
    records = [
        stored(RecordKind.ADD, 5, 0, 3),
        stored(RecordKind.LEDGER_ERASED, 5, 0, 7),
        stored(RecordKind.REPAIR_ADD, 5, 0, 9),
    ]
    assert [writable for _, writable in replayed_in_order(records).heads] == [False]
    assert [writable for _, writable in replayed_in_order([*records, stored(RecordKind.ADD, 5, 1, 10)]).heads] == [True]


def test_ledger_cleared_before_the_last_limbo_is_in_limbo_again() -> None:
    """What the second hole took was not known when the ledger was cleared of the first."""
    records = [
        stored(RecordKind.LIMBO, 50, 0, 1),
        stored(RecordKind.LIMBO_CLEARED, 5, 0, 2),
        stored(RecordKind.LIMBO, 60, 0, 3),
        stored(RecordKind.LIMBO_CLEARED, 6, 0, 4),
    ]
    replayed = replayed_in_order(records)
    assert (replayed.limbo_below, replayed.limbo_cleared) == (60, {6})
