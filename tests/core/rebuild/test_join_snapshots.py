"""Which snapshots JOIN lists, and where they end."""

import pytest

from oncelog.core.formats.topic_record import CursorLink, CursorRecord, LedgerLink, TopicRecord
from oncelog.core.ids import EntryId, LedgerId, OwnerEpoch
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.rebuild.result import (
    CopiedRecords,
    ReviewReason,
)
from tests.core.rebuild.join_world import (
    ABC,
    CLOSED,
    DEDUP,
    NAME,
    OPEN,
    TOPIC,
    A,
    B,
    C,
    Holding,
    everywhere,
    held,
    joined,
    reasons,
    record,
    topic_of,
)


@pytest.mark.hazard("snapshot-that-was-never-acknowledged")
def test_snapshot_ends_where_it_may_have_been_acknowledged() -> None:
    """What one node alone has behind that may be gone before it is copied. A node that is missing may have had it."""
    snapshots = held(4, 3, purpose=DEDUP), held(4, 6, purpose=DEDUP), held(5, 1, purpose=DEDUP)
    log = held(1, 4)
    holding: Holding = {A: (log, snapshots[0], snapshots[2]), B: (log, snapshots[1]), C: log}
    assert record(joined(holding), 4).end == 3
    assert record(joined(holding, absent=[C]), 4).end == 6
    assert record(joined({A: (log, snapshots[2]), B: (log, snapshots[1])}), 4).end == 6, (
        "no entry of it is at two nodes"
    )


@pytest.mark.hazard("snapshot-that-was-never-acknowledged")
def test_snapshot_that_no_node_has_is_left_out() -> None:
    """The copy of the records lists it; its log needs no other node. Where the log's front is gone, the operator is
    asked, unless another snapshot is left."""
    cursor = CursorRecord(OwnerEpoch(1), (CursorLink(LedgerId(4), None), CursorLink(LedgerId(5), None)))
    closed = LedgerMetadata(LedgerId(4), TOPIC, ABC, 2, CLOSED, EntryId(0), 10)
    trimmed = TopicRecord(
        TOPIC, NAME, owner_epoch=OwnerEpoch(1), ledgers=(LedgerLink(LedgerId(6), 5),), deleted_below=LedgerId(6)
    )
    copied = CopiedRecords({TOPIC: trimmed}, {TOPIC: cursor}, {LedgerId(4): closed})
    other = held(5, 1, purpose=DEDUP)
    rebuilt = joined(everywhere(held(6, 4, base_index=5), other), copied=copied)
    assert rebuilt.reviews == ()
    assert [link.ledger_id for link in (topic_of(rebuilt).cursor or cursor).ledgers] == [5]
    assert reasons(joined(everywhere(held(6, 4, base_index=5)), copied=copied)) == [ReviewReason.NO_SNAPSHOT]


def test_snapshots_end_where_nodes_have_them_without_a_hole() -> None:
    """Each of their ledgers begins with a base, so no head names the end of the one before it."""
    newer = held(5, 1, purpose=DEDUP)
    older = (held(3, 3, purpose=DEDUP), held(3, 6, first=4, purpose=DEDUP))
    rebuilt = joined({A: (held(1, 4), older[0], newer), B: (held(1, 4), older[1], newer)})
    cursor = topic_of(rebuilt).cursor or CursorRecord(OwnerEpoch(0))
    assert [link.ledger_id for link in cursor.ledgers] == [3, 5]
    assert (record(rebuilt, 3).end, record(rebuilt, 5).state) == (6, OPEN)
