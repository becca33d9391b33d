"""A ledger record is read from the store until it is CLOSED, and then from memory, until repair may have changed it."""

from dataclasses import dataclass, field

import pytest

from oncelog.core.ids import EntryId, Incarnation, LedgerId, TopicId
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.metadata.topics.lookup_service import COPY_AGE_S, COPY_AGE_WITH_ABSENT_MEMBER_S, ClosedLedgers
from oncelog.metadata_store.session.store_session import Versioned

TOPIC = TopicId("1" * 32)


@dataclass
class Records:
    """A store that counts its reads."""

    known: dict[int, LedgerMetadata] = field(default_factory=dict)
    read_ids: list[int] = field(default_factory=list)

    async def read(self, ledger_id: LedgerId) -> Versioned[LedgerMetadata] | None:
        self.read_ids.append(ledger_id)
        found = self.known.get(ledger_id)
        return None if found is None else Versioned(found, 0)


def opened(number: int) -> LedgerMetadata:
    return LedgerMetadata(LedgerId(number), TOPIC, (Incarnation("a" * 32),), 1)


def closed(number: int) -> LedgerMetadata:
    return opened(number).closed(end=EntryId(9), length=100)


@pytest.mark.asyncio
async def test_closed_record_is_read_from_the_store_once() -> None:
    """Spark plans each micro-batch over all ledgers of a topic."""
    records = Records({number: closed(number) for number in range(3)})
    ledgers = ClosedLedgers(records)
    for _ in range(4):
        assert [await ledgers.read(TOPIC, LedgerId(number)) for number in range(3)] == list(records.known.values())
    assert records.read_ids == [0, 1, 2]


@pytest.mark.asyncio
async def test_records_that_are_not_closed_are_read_each_time() -> None:
    """These records can change."""
    records = Records({0: opened(0), 1: opened(1).in_recovery()})
    ledgers = ClosedLedgers(records)
    for _ in range(2):
        found = [await ledgers.read(TOPIC, LedgerId(number)) for number in range(3)]
        assert found == [records.known[0], records.known[1], None]
    assert records.read_ids == [0, 1, 2] * 2
    records.known[0] = closed(0)
    assert [await ledgers.read(TOPIC, LedgerId(0)) for _ in range(3)] == [closed(0)] * 3
    assert records.read_ids == [0, 1, 2] * 2 + [0]


@pytest.mark.asyncio
async def test_copies_are_limited_and_the_least_recently_used_is_dropped() -> None:
    """The memory must not grow with the number of topics."""
    records = Records({number: closed(number) for number in range(4)})
    ledgers = ClosedLedgers(records, ledgers_max=2)
    for number in (0, 1, 0, 2, 0, 1):
        await ledgers.read(TOPIC, LedgerId(number))
    assert records.read_ids == [0, 1, 2, 1]


@pytest.mark.asyncio
async def test_copies_are_separate_for_each_topic() -> None:
    """A restored store may reuse a ledger id."""
    records = Records({0: closed(0)})
    ledgers = ClosedLedgers(records)
    await ledgers.read(TOPIC, LedgerId(0))
    await ledgers.read(TopicId("2" * 32), LedgerId(0))
    assert records.read_ids == [0, 0]


@pytest.mark.asyncio
@pytest.mark.hazard("answer-of-a-former-member")
async def test_copy_whose_member_is_not_registered_is_soon_read_again() -> None:
    """Repair replaces that member. A reader with the old members finds nothing on them."""
    now_s = 1_000.0
    records = Records({0: closed(0)})
    ledgers = ClosedLedgers(records, clock=lambda: now_s)
    member = Incarnation("a" * 32)
    for registered, after_s, reads in (
        ({member}, COPY_AGE_WITH_ABSENT_MEMBER_S, 1), (set(), 0, 2), (set(), 1, 2),
        (set(), COPY_AGE_WITH_ABSENT_MEMBER_S, 3), ({member}, COPY_AGE_S, 4),
    ):  # fmt: skip
        now_s += after_s
        await ledgers.read(TOPIC, LedgerId(0), registered)
        if (registered, after_s) == ({member}, COPY_AGE_WITH_ABSENT_MEMBER_S):
            now_s += after_s
        assert len(records.read_ids) == reads
