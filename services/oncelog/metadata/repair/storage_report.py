"""Reports of storage nodes about themselves, for REST: descriptions, and entries that they read back."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from oncelog.core.errors import InvariantViolated, OncelogError, ServiceUnavailable
from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.core.repair.events import ReviewLedger
from oncelog.metadata.repair.copy_requests import CopyRequests
from oncelog.metadata.repair.reading_back import read_back
from oncelog.storage_client.node_calls import NodeCalls
from oncelog.wire import storage_pb2 as pb

#: Entries of one verification request, and the time after which it returns what it has.
VERIFY_ENTRIES = 20_000
VERIFY_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class VerifiedPart:
    """What the nodes of a ledger read back: the entries first .. next_entry - 1. parts: of each node that is named."""

    first: EntryId
    next_entry: EntryId
    differing: EntryId | None
    parts: dict[Incarnation, "VerifiedCounts"]


@dataclass(slots=True)
class VerifiedCounts:
    """Of one node. answered False: it gave no answer for some entries."""

    sound: int = 0
    missing: int = 0
    unreadable: int = 0
    answered: bool = True
    erased: bool = False


class StorageReport:
    """What the storage nodes say themselves."""

    def __init__(self, calls: NodeCalls, requests: CopyRequests) -> None:
        self._calls = calls
        self._requests = requests

    async def descriptions(
        self, nodes: Sequence[Incarnation], ledgers: Sequence[LedgerId] = ()
    ) -> dict[Incarnation, pb.DescribeAnswer]:
        """The description of each node, with the last verification of these ledgers; nodes that do not answer are left
        out."""

        async def of(node: Incarnation) -> tuple[Incarnation, pb.DescribeAnswer | None]:
            try:
                return node, await self._calls.describe(node, ledgers)
            except InvariantViolated:
                raise
            except OncelogError:
                return node, None

        answers = await asyncio.gather(*map(of, nodes))
        return {node: answer for node, answer in answers if answer is not None}

    async def verify(self, record: LedgerMetadata, first: EntryId) -> VerifiedPart:
        """Let the nodes that the record names read their copies back, from `first` on. One part of a closed ledger.

        Raises ServiceUnavailable for a ledger that is still open.
        """
        if record.state is not LedgerState.CLOSED:
            raise ServiceUnavailable(
                f"ledger {record.ledger_id} is {record.state.value}: it can be verified once it is closed",
                ledger_id=record.ledger_id,
            )
        named = [*record.members, *([record.joining] if record.joining else [])]
        counts = {node: VerifiedCounts() for node in named}
        ends_s = time.monotonic() + VERIFY_SECONDS
        following, differing = first, None
        last = EntryId(min(record.end, first + VERIFY_ENTRIES - 1))
        async for found in read_back(self._requests.verify, record, named, first, last):
            copies = found.copies
            differing = copies.differing() if differing is None else differing
            for node, count in counts.items():
                count.missing += len(found.missing.get(node, ()))
                count.unreadable += len(found.unreadable.get(node, ()))
                count.sound += len(copies.sound.get(node, {}))
                count.erased = count.erased or node in copies.erased
                count.answered = count.answered and (node in copies.answered or node in copies.erased)
            following = EntryId(copies.span.last + 1)
            if time.monotonic() > ends_s:
                break
        if record.verified and not record.lost:
            # A node that has attested its copy before reviews it, and reports what it lacks as damage (hazard
            # verified-copy-is-missing).
            lacking = [node for node in record.members if counts[node].missing]
            await asyncio.gather(*(self._requests.review(ReviewLedger(node, record.ledger_id)) for node in lacking))
        return VerifiedPart(first, following, differing, counts)
