"""Offers of a topic owner to a reader: read these entries from storage nodes, with tickets of these nodes.

    offer = await storage_offer(links, entries, role)      # None: no member of the ledger issues a ticket now

The owner makes an offer only to a reader that it has admitted. The reader gets nothing that the owner would not send:
confirmed entries, up to the last one of the offer, for a minute.
"""

import asyncio
import logging
from collections import Counter

from oncelog.core.errors import InvariantViolated, OncelogError
from oncelog.core.ids import Incarnation
from oncelog.rpc.codecs.reader_codec import OfferedMember, OfferEnd, StorageOffer
from oncelog.storage_client.client import StorageClient
from oncelog.topic_owner.shell.log_view import ReadableRange
from oncelog.wire.storage_pb2 import ReadTicketRequest

#: A reader asks for another offer before this time is over.
TICKET_LIFETIME_MS = 60_000
#: A node that issues no ticket within this time is left out.
_TICKET_TIMEOUT_MS = 500

logger = logging.getLogger(__name__)


class OfferCounts:
    """Of one owner, since its start.

    made: by result: made, no_ticket (no member issued one), no_right (the reader's right was revoked). ended: offers by
    the reader's answer, an `OfferEnd` in lower case, or disconnected.
    """

    def __init__(self) -> None:
        self.made: Counter[str] = Counter({"made": 0, "no_ticket": 0, "no_right": 0})
        self.ended: Counter[str] = Counter({**{end.name.lower(): 0 for end in OfferEnd}, "disconnected": 0})


async def storage_offer(links: StorageClient, entries: ReadableRange, role: str) -> StorageOffer | None:
    """role: of the reader; empty without authentication."""
    metadata = entries.metadata

    async def member_with_ticket(member: Incarnation) -> OfferedMember | None:
        request = ReadTicketRequest(
            target=member,
            ledger_id=metadata.ledger_id,
            last_entry=entries.last,
            role=role,
            lifetime_ms=TICKET_LIFETIME_MS,
        )
        try:
            address, ticket = await links.read_ticket(member, request, timeout_ms=_TICKET_TIMEOUT_MS)
        except InvariantViolated:
            raise
        except OncelogError as error:
            # Also a node of an older version, which knows no tickets.
            logger.info("storage node %s is not offered to a reader: %s", member, error.message)
            return None
        return OfferedMember(member, address, ticket)

    # As in `storage_client.reader`, the readers of different ledgers begin with different members.
    at = metadata.ledger_id % len(metadata.members)
    members = (*metadata.members[at:], *metadata.members[:at])
    found = await asyncio.gather(*map(member_with_ticket, members))
    offered = [member for member in found if member is not None]
    if not offered:
        return None
    return StorageOffer(metadata.ledger_id, entries.first, entries.last, offered, TICKET_LIFETIME_MS)
