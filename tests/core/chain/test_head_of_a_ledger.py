"""When a managed ledger writes the head of its ledger, and what it does not change."""

from dataclasses import replace

import pytest

from oncelog.core.chain.managed_ledger import SendAdds
from oncelog.core.chain.next_ledger import LedgerIdClaimed, LedgerPurpose
from oncelog.core.chain.roll_rule import RollRule
from oncelog.core.formats.entry import EntryKind
from oncelog.core.formats.head import LedgerHead, decode_head
from oncelog.core.ids import LedgerId
from oncelog.core.ledger.member_selection import StorageNodesUpdated
from oncelog.core.ledger.metadata import LedgerMetadata
from tests.core.builders import TOPIC, A, B, C
from tests.core.chain.test_managed_ledger import LOG, SETTINGS, Recorded, append, managed_ledger, opened


@pytest.mark.parametrize(
    ("purpose", "kind"),
    [
        (LedgerPurpose.LOG, EntryKind.HEAD_LOG),
        (LedgerPurpose.DEDUP, EntryKind.HEAD_SNAPSHOTS),
        (LedgerPurpose.ACKS, EntryKind.HEAD_ACKS),
    ],
)
def test_head_is_in_front_of_the_first_entry_in_the_same_frame(purpose: LedgerPurpose, kind: EntryKind) -> None:
    """Never alone: a ledger that gets no entry stays empty. The head has the number of the first message."""
    core = Recorded(StorageNodesUpdated((A, B, C)), 4, replace(SETTINGS, purpose=purpose))
    core.heads = True
    metadata = core_opened(core, purpose, 5)
    assert core.core.writer is not None
    assert core.core.writer.next_entry == 0
    core.core.append(EntryKind.MESSAGES, b"body", base_index=7, count=2)
    core.core.append(EntryKind.MESSAGES, b"body", base_index=9, count=1)
    core.core.flush()
    (sent,) = core.take()
    assert isinstance(sent, SendAdds)
    head, first, second = (add.header for add in sent.adds)
    assert [(add.entry_id, add.header.kind) for add in sent.adds] == [
        (0, kind), (1, EntryKind.MESSAGES), (2, EntryKind.MESSAGES),
    ]  # fmt: skip
    assert (head.base_index, head.count, head.topic_id, head.owner_epoch) == (7, 0, TOPIC, 1)
    assert (first.base_index, second.base_index) == (7, 9)
    assert decode_head(sent.adds[0].parts[1]) == LedgerHead("t", metadata.members, 2, 1, A)
    assert append(core).adds[0].entry_id == 3


def core_opened(core: Recorded, purpose: LedgerPurpose, number: int) -> LedgerMetadata:
    core.open_next()
    core.handle(LedgerIdClaimed(purpose, LedgerId(number)))
    core.handle(core.created(number))
    core.linked()
    writer = core.core.writer
    assert writer is not None
    return writer.metadata


def test_ledger_that_began_without_a_head_gets_none() -> None:
    """It would be in the middle."""
    core = managed_ledger()
    opened(core)
    append(core)
    core.heads = True
    assert [add.header.kind for add in append(core).adds] == [EntryKind.MESSAGES]


def rolls(core: Recorded) -> bool:
    return core.core.rolls_soon


@pytest.mark.parametrize("heads", [False, True])
def test_head_counts_for_no_limit(heads: bool) -> None:
    """A ledger holds as many entries and bytes of its user as one without a head."""
    rule = RollRule(ledger_bytes_max=1000, ledger_entries_max=3, ledger_age_max_ms=10)
    core = Recorded(StorageNodesUpdated((A, B, C)), 4, replace(SETTINGS, rule=rule))
    core.heads = heads
    core_opened(core, LOG, 5)
    append(core, 2)
    assert not rolls(core)
    append(core)
    assert rolls(core)
    large = Recorded(StorageNodesUpdated((A, B, C)), 4, replace(SETTINGS, rule=rule))
    large.heads = heads
    core_opened(large, LOG, 5)
    large.core.append(EntryKind.MESSAGES, bytes(999), count=1)
    assert not rolls(large)
    large.core.append(EntryKind.MESSAGES, bytes(1), count=1)
    assert rolls(large)
