"""Reads entries of one ledger and goes on behind those that are lost or that no member can read, for checks of whole
logs."""

from collections.abc import AsyncIterator
from typing import NamedTuple

from oncelog.core.errors import EntriesLost, UnreadableEntry
from oncelog.core.formats.batch import Buffer
from oncelog.core.ids import EntryId
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.rpc.entry_reader import READ_BYTES_MAX
from oncelog.storage_client.node_calls import NodeCalls
from oncelog.storage_client.reader import ReadRecord, read_entries

#: Consecutive unreadable entries of a ledger after which the rest of the ledger is not read.
LOST_MAX = 64


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
