"""The record of a ledger that no list names goes once no owner can link the ledger any more, and never before."""

from dataclasses import replace

import pytest

from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.ids import EntryId, LedgerId, OwnerEpoch
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.repair.queue_events import ChainRecorded
from oncelog.core.repair.unlisted import can_go
from tests.core.builders import TOPIC, A, B, C

pytestmark = pytest.mark.hazard("prepared-ledger-is-left")

#: Prepared by the owner of epoch 3.
LEFT = LedgerMetadata(LedgerId(7), TOPIC, (A, B, C), 2, owner_epoch=OwnerEpoch(3))
LOG, DEDUP, ACKS = LedgerPurpose.LOG, LedgerPurpose.DEDUP, LedgerPurpose.ACKS
CLOSED = LEFT.closed(end=EntryId(-1), length=0)


def lists(
    *, epochs: tuple[int, int] = (4, 4), log: tuple[int, ...] = (2,), dedup: tuple[int, ...] = (),
    acks: tuple[int, ...] = (), floor: int = 0,
) -> list[ChainRecorded]:  # fmt: skip
    """epochs: of the topic's record and of the cursor's."""
    return [
        ChainRecorded(
            TOPIC, purpose, tuple(map(LedgerId, ids)), A, LedgerId(floor), OwnerEpoch(epochs[purpose is DEDUP])
        )
        for purpose, ids in ((LOG, log), (DEDUP, dedup), (ACKS, acks))
    ]


@pytest.mark.parametrize("record", [LEFT, LEFT.in_recovery()], ids=["open", "in recovery"])
def test_record_goes_once_both_records_have_a_higher_epoch(record: LedgerMetadata) -> None:
    """Until then its owner may be only paused, and link the ledger: a takeover claims the cursor last, and a cursor of
    which there is no record can still be created by the former owner."""
    assert can_go(record, lists())
    for epochs in ((3, 3), (4, 3), (4, 0), (3, 4)):
        assert not can_go(record, lists(epochs=epochs))


@pytest.mark.parametrize("record", [LEFT, CLOSED], ids=["open", "closed"])
def test_listed_ledger_stays(record: LedgerMetadata) -> None:
    """Of whichever list, and however high the epochs and floors are."""
    for named in (lists(log=(7,), floor=9), lists(dedup=(7,), floor=9), lists(acks=(7,), floor=9)):
        assert not can_go(record, named)


@pytest.mark.parametrize("epoch", [None, OwnerEpoch(3)])
def test_record_goes_once_each_list_ends_in_a_higher_ledger(epoch: OwnerEpoch | None) -> None:
    """Ids in a list ascend, so this owner, which may be alive, and each other one link higher ledgers only. Older
    records do not say whose they are."""
    record = replace(LEFT, owner_epoch=epoch)
    assert can_go(record, lists(epochs=(3, 3), log=(2, 8), dedup=(9,), acks=(1, 11)))
    for lower in (lists(epochs=(3, 3), log=(2, 8), dedup=(9,)), lists(epochs=(3, 3), log=(2,), dedup=(9,), acks=(11,))):
        assert not can_go(record, lower)
    assert can_go(record, lists(epochs=(4, 3), dedup=(9,))) is (epoch is not None), "each list by itself"


def test_record_of_unknown_origin_stays_while_a_list_is_lower() -> None:
    """The owner of any epoch may have prepared it."""
    assert not can_go(replace(LEFT, owner_epoch=None), lists(epochs=(9, 9)))


@pytest.mark.hazard("missing-record-is-no-deletion")
def test_closed_ledger_goes_below_a_floor_only() -> None:
    """It was listed once: epochs prove nothing of what it holds."""
    assert not can_go(CLOSED, lists(epochs=(9, 9), log=(8,), dedup=(9,), acks=(11,)))
    assert can_go(CLOSED, lists(floor=8))


def test_lists_that_cannot_be_read_prove_nothing() -> None:
    """A record of the topic is corrupt, or missing: then all lists are empty, and of no epoch."""
    missing = [ChainRecorded(TOPIC, purpose, ()) for purpose in LedgerPurpose]
    for record in (LEFT, CLOSED):
        assert not can_go(record, [])
        assert not can_go(record, missing)
