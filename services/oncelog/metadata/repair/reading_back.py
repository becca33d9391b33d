"""Lets storage nodes read their copies of a ledger back from their disks, some entries at a time."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import NamedTuple

from oncelog.core.ids import EntryId, Incarnation
from oncelog.core.ledger.metadata import EntryRange, LedgerMetadata
from oncelog.core.repair.copies import RangeCopies
from oncelog.core.repair.events import CopyVerified, VerifyCopy

#: Entries that are compared at a time.
STEP = 2_000

Verify = Callable[[VerifyCopy], Awaitable[CopyVerified]]


class ReadBack(NamedTuple):
    """What the nodes said about some entries. missing, unreadable: {node: ids}, of the nodes that answered."""

    copies: RangeCopies
    missing: dict[Incarnation, list[EntryId]]
    unreadable: dict[Incarnation, list[EntryId]]


async def read_back(
    verify: Verify, record: LedgerMetadata, nodes: Sequence[Incarnation], first: EntryId, last: EntryId
) -> AsyncIterator[ReadBack]:
    """Entries first .. last, STEP at a time: each of the nodes reads them from its disk."""
    for start in range(first, last + 1, STEP):
        asked: deque[VerifyCopy] = deque()
        span = EntryRange(EntryId(start), EntryId(min(start + STEP - 1, last)))
        found = ReadBack(RangeCopies(record, span, asked.append), {}, {})
        for node in nodes:
            found.copies.ask(node)
        while asked:
            orders = list(asked)
            asked.clear()
            for answer in await asyncio.gather(*map(verify, orders)):
                found.missing.setdefault(answer.node, []).extend(answer.missing)
                found.unreadable.setdefault(answer.node, []).extend(answer.unreadable)
                found.copies.note(answer)
        yield found
