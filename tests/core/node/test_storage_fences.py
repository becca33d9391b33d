"""Fences and reads of a storage node, including crashes."""

import random

import pytest

from oncelog.core.ids import EntryId
from oncelog.core.ledger.member_status import AppendStatus, FenceState, ReadStatus
from oncelog.core.node.answers import AnswerAppend, AnswerFence, AnswerRead, FenceReceived, ReadReceived
from oncelog.core.node.node import StorageEffect
from oncelog.core.node.node_ledger import RecordKind
from oncelog.core.node.review import CheckLedger, LedgerChecked
from tests.core.ledger.recovery_world import LEDGER, OPEN, A, entry
from tests.core.node.storage_disk import E0, E1, E2, NONE, OTHER, Disk, answer, append, read, read_answer, writable

# --- fences -----------------------------------------------------------------------------------------------------------


def test_fence_is_in_force_at_once_and_answered_when_durable() -> None:
    """Adds before it in the journal stand; none follows."""
    disk = writable()
    disk.handle(append(2, E2))
    assert disk.handle(FenceReceived(3, A, LEDGER)) == []
    assert disk.handle(append(4, E1)) == [answer(4, AppendStatus.FENCED, 1)]
    done = AnswerFence(3, LEDGER, EntryId(2), EntryId(0), ReadStatus.OK, OPEN.topic_id)
    assert disk.sync(1) == [answer(2, AppendStatus.OK, 2)]
    assert disk.sync() == [done]


def test_second_fence_waits_for_the_first() -> None:
    """Otherwise its answer would promise what a crash can still undo."""
    disk = writable()
    disk.handle(FenceReceived(2, A, LEDGER))
    assert disk.handle(FenceReceived(3, A, LEDGER)) == []
    answers = disk.sync()
    assert [type(a) for a in answers] == [AnswerFence, AnswerFence]
    assert disk.handle(FenceReceived(4, A, LEDGER)) == [
        AnswerFence(4, LEDGER, EntryId(0), NONE, ReadStatus.OK, OPEN.topic_id)
    ]
    assert sum(record.kind is RecordKind.FENCE for record in disk.synced) == 1


@pytest.mark.hazard("ledger-id-given-twice")
def test_fence_says_whose_entries_it_found() -> None:
    """Also before they are durable, and after a restart."""
    disk = writable()
    disk.handle(append(2, E2))
    disk.handle(FenceReceived(3, A, LEDGER))
    whole = [each for each in disk.sync() if isinstance(each, AnswerFence)]
    disk.start()
    again = disk.handle(FenceReceived(4, A, LEDGER))
    assert [each.topic_id for each in [*whole, *again] if isinstance(each, AnswerFence)] == [OPEN.topic_id] * 2


def test_unknown_ledger_is_fenced_and_remembered() -> None:
    """A fence needs no state of the ledger, and survives a restart without any entry."""
    disk = Disk()
    assert disk.handle(FenceReceived(1, A, LEDGER)) == []
    assert disk.sync() == [AnswerFence(1, LEDGER, NONE, NONE, ReadStatus.OK)]
    disk.start()
    assert disk.handle(append(2, E0)) == [answer(2, AppendStatus.FENCED, 0)]


def test_fence_state_is_reported_as_soon_as_the_fence_is_in_force() -> None:
    """A member that refuses an owner's adds must not report the owner as current."""
    disk = writable()
    assert (disk.node.ledgers.fence_state(LEDGER), disk.node.ledgers.fence_state(OTHER)) == (
        FenceState.HELD,
        FenceState.UNKNOWN,
    )
    disk.handle(FenceReceived(2, A, LEDGER))
    assert disk.node.ledgers.fence_state(LEDGER) is FenceState.FENCED
    disk.sync()
    disk.start()
    assert disk.node.ledgers.fence_state(LEDGER) is FenceState.FENCED


def test_unsynced_fence_is_lost_with_a_crash_and_was_never_answered() -> None:
    """So nothing relied on it."""
    disk = writable()
    assert disk.handle(FenceReceived(2, A, LEDGER)) == []
    disk.start()
    assert disk.handle(append(3, E1)) == []
    assert disk.sync() == [answer(3, AppendStatus.OK, 1)]


def test_recovery_adds_are_accepted_after_the_fence() -> None:
    """The recovering owner set the fence."""
    disk = writable()
    disk.handle(FenceReceived(2, A, LEDGER))
    disk.sync()
    assert disk.handle(append(3, E1, recovery=True)) == []
    assert disk.sync() == [answer(3, AppendStatus.OK, 1)]
    assert disk.synced[-1].data == E1


# --- reads ------------------------------------------------------------------------------------------------------------


def test_read_distinguishes_present_from_missing() -> None:
    """Only the index decides "missing". A read of an unknown ledger leaves no state behind."""
    disk = writable()
    assert disk.handle(read(2, 0, 3)) == [read_answer(2, [0], [1, 2], last=0)]
    unknown = ReadReceived(3, A, OTHER, EntryId(0), 1)
    assert disk.handle(unknown) == [AnswerRead(3, OTHER, (), (EntryId(0),), NONE, NONE, ReadStatus.OK)]
    assert disk.unsynced == []


def test_fencing_read_fences_durably_before_it_answers() -> None:
    """An unfenced "missing" can become an acknowledged entry (BookKeeper 2614)."""
    disk = writable()
    disk.handle(append(2, E2))
    assert disk.handle(read(3, 0, 4, fence=True)) == []
    assert disk.handle(append(4, E1)) == [answer(4, AppendStatus.FENCED, 1)]
    assert disk.sync() == [answer(2, AppendStatus.OK, 2), read_answer(3, [0, 2], [1, 3], last=2, lac=0)]
    assert disk.handle(read(5, 1, 1, fence=True)) == [read_answer(5, [], [1], last=2, lac=0)]


def test_read_of_an_unsynced_entry_waits_for_its_sync() -> None:
    """Such an entry is neither missing nor present yet."""
    disk = writable()
    disk.handle(append(2, E1))
    assert disk.handle(read(3, 0, 1)) == [read_answer(3, [0], [], last=0)]
    assert disk.handle(read(4, 0, 2)) == []
    assert disk.sync() == [answer(2, AppendStatus.OK, 1), read_answer(4, [0, 1], [], last=1)]


def test_long_reads_are_answered_partially() -> None:
    """The reader continues with the first id that the answer does not name."""
    disk = writable()
    (part,) = disk.handle(read(2, 0, 10**9))
    assert isinstance(part, AnswerRead)
    assert len(part.present) + len(part.missing) == 1024


def test_last_add_confirmed_is_the_highest_stored_and_survives_a_restart() -> None:
    """Entries arrive out of order; the highest header counts."""
    disk = writable()
    disk.handle(append(2, entry(9, last_add_confirmed=6), entry(8, last_add_confirmed=4)))
    disk.sync()
    disk.start()
    disk.handle(FenceReceived(3, A, LEDGER))
    assert disk.sync() == [AnswerFence(3, LEDGER, EntryId(9), EntryId(6), ReadStatus.OK, OPEN.topic_id)]


# --- at random --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_answers_stay_true_after_crashes(seed: int) -> None:
    """Acknowledged entries exist, answered fences hold, and no id reported missing under a fence is added later."""
    rng = random.Random(seed)
    disk = Disk()
    acked: set[int] = set()
    denied: set[int] = set()
    fenced = False
    checks: list[CheckLedger] = []
    for call in range(300):
        luck = rng.random()
        effects: list[StorageEffect] = []
        if luck < 0.5:
            entries = [entry(rng.randrange(30)) for _ in range(rng.randint(1, 3))]
            effects = disk.handle(append(call, *entries))
        elif luck < 0.53:
            effects = disk.handle(FenceReceived(call, A, LEDGER))
        elif luck < 0.56:
            effects = disk.handle(read(call, 0, 30, fence=call > 150))
        elif luck < 0.6:
            disk.start()
            checks.clear()
        elif luck < 0.7 and checks:
            check = checks.pop()
            effects = disk.handle(LedgerChecked(LEDGER, check.check, OPEN))
        else:
            effects = disk.sync(rng.randint(0, 3))
        for effect in effects:
            match effect:
                case CheckLedger():
                    checks.append(effect)
                case AnswerAppend(status=AppendStatus.OK):
                    assert not denied & set(effect.entry_ids)
                    acked.update(effect.entry_ids)
                case AnswerFence():
                    fenced = True
                case AnswerRead():
                    assert acked <= set(effect.present)
                    if call > 150 or fenced:
                        denied.update(effect.missing)
                case _:
                    pass
        assert all(disk.index.contains(LEDGER, EntryId(entry_id)) for entry_id in acked)
