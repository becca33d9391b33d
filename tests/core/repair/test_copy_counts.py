"""How many entries have how many copies, and what is left to copy."""

from oncelog.core.ids import EntryId, LedgerId
from oncelog.core.ledger.metadata import EntryRange, LedgerState
from oncelog.core.repair.queue_events import DamageReported, LedgerRemoved
from tests.core.repair.queue_world import QueueWorld, record
from tests.core.repair.repair_world import A, B, C


def test_entries_are_counted_by_their_copies() -> None:
    """Also those that are lost, and the bytes of the copies that are to be made; open ledgers are not counted."""
    lost = record(2, lost=(EntryRange(EntryId(3), EntryId(4)),), length=50)
    world = QueueWorld(record(1, length=100), lost, record(3, state=LedgerState.OPEN, verified=False))
    copies = world.queue.copies
    assert ({n: count for n, count in copies.entries.items() if count}, copies.left_bytes) == ({3: 18, 0: 2}, 0)
    world.change(C, registered=False)
    assert (copies.entries[2], copies.entries[3], copies.left_bytes) == (18, 0, 150)
    world.queue.handle(DamageReported(B, (LedgerId(1),)))
    assert (copies.entries[1], copies.entries[2], copies.left_bytes) == (10, 8, 250)
    world.change(C, registered=True)
    world.queue.handle(DamageReported(B, ()))
    assert (copies.entries[3], copies.left_bytes) == (18, 0)
    world.change(A, draining=True)
    assert (copies.entries[3], copies.left_bytes) == (18, 150), "the node's copies are moved"
    world.queue.handle(LedgerRemoved(LedgerId(1)))
    assert (copies.entries[3], copies.left_bytes) == (8, 50)
