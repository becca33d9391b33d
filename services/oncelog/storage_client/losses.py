"""Reads entries of one ledger for checks of whole logs: goes on behind those that are lost or that no member can read,
or reads a whole ledger of which the end may not be known."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import NamedTuple

from oncelog.core.errors import CorruptEntry, EntriesLost, LedgerUnavailable, UnreadableEntry
from oncelog.core.formats.batch import Buffer
from oncelog.core.ids import EntryId, LedgerId
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.rpc.entry_reader import READ_BYTES_MAX
from oncelog.storage_client.node_calls import NodeCalls
from oncelog.storage_client.reader import ReadRecord, read_entries

#: Consecutive unreadable entries of a ledger after which the rest of the ledger is not read.
LOST_MAX = 64
#: Entries that are requested of a ledger whose end is found by reading.
_ENTRIES_MAX = 2**31
#: How long to ask members for an entry that probably does not exist.
END_PATIENCE_MS = 3_000


class LostEntry(NamedTuple):
    """An entry that no member gives, though it was acknowledged."""

    entry_id: EntryId
    reason: str


async def read_with_losses(
    nodes: NodeCalls,
    metadata: LedgerMetadata,
    first: EntryId,
    last: EntryId,
    *,
    timeout_ms: int,
    record: ReadRecord | None,
    headers_only: bool = False,
    call_bytes_max: int = READ_BYTES_MAX,
) -> AsyncIterator[list[tuple[EntryId, Buffer]] | LostEntry]:
    """As `read_entries`; an entry that cannot be read comes as a LostEntry. Raises LedgerUnavailable and LogHole."""
    following, lost = first, 0
    while following <= last:
        try:
            pages = read_entries(
                nodes, metadata, following, last, headers_only=headers_only, timeout_ms=timeout_ms, record=record,
                call_bytes_max=call_bytes_max,
            )  # fmt: skip
            async for page in pages:
                yield page
                if page:
                    following, lost = EntryId(page[-1][0] + 1), 0
        except (EntriesLost, UnreadableEntry) as error:
            yield LostEntry(following, error.message)
            following, lost = EntryId(following + 1), lost + 1
            if lost == LOST_MAX and following <= last:
                yield LostEntry(last, f"entries from {following} on were not read either")
                return


async def read_whole_ledger(
    nodes: NodeCalls,
    ledger: LedgerMetadata,
    take: Callable[[EntryId, Buffer], None],
    *,
    timeout_ms: int,
    record: ReadRecord,
    end_timeout_ms: int = END_PATIENCE_MS,
) -> str:
    """Give `take` each entry in order. Returns why an entry of a CLOSED ledger cannot be read; empty: all were read.

    The end of an open ledger is only found by reading. While a member is away it cannot be found, and it is not waited
    for: what was read until then counts. The end of a CLOSED one is in its record: an unreadable entry before it is
    damage. Raises LedgerUnavailable for a CLOSED ledger, and LogHole if its record is gone.
    """
    closed = ledger.state is LedgerState.CLOSED
    last = ledger.end if closed else EntryId(_ENTRIES_MAX)
    whole = replace(ledger, state=LedgerState.CLOSED, end=last)

    async def present(ledger_id: LedgerId) -> LedgerMetadata | None:
        found = await record(ledger_id)
        return None if found is None else replace(found, state=LedgerState.CLOSED, end=last)

    try:
        pages = read_entries(
            nodes, whole, EntryId(0), last, timeout_ms=timeout_ms if closed else end_timeout_ms, record=present
        )
        async for page in pages:
            for entry_id, data in page:
                take(entry_id, data)
    except (CorruptEntry, EntriesLost, UnreadableEntry) as error:
        return error.message if closed else ""
    except LedgerUnavailable:
        if closed:
            raise
    return ""
