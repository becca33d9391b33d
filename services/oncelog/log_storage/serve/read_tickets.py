"""Read tickets: signed permissions for a client that may read a topic to read one of its ledgers here.

    ticket = tickets.issue(ledger_id, last_entry, role, lifetime_ms=60_000)     # asked by the topic owner
    tickets.check(request, role)                                                # a read with this ticket

Rules
- The owner asks for a ticket after it has checked that the reader's role may read the topic. So storage nodes need not
  know topics or rights.
- A ticket is for one node, one ledger, its entries up to `last_entry`, one role, and at most `LIFETIME_MS_MAX`. It
  allows reads only, never a fence.
- The node signs with a key that it makes at its start and that never leaves it. No key is configured or renewed, and
  only this node's clock counts. After a restart its tickets are refused, and readers ask the owner for new ones.
"""

import hmac
import secrets
from collections.abc import Callable
from hashlib import sha256
from struct import Struct

from oncelog.core.errors import InvalidArgument, PermissionDenied
from oncelog.core.ids import EntryId, LedgerId
from oncelog.rpc.codecs.storage_codec import ReadRequest

LIFETIME_MS_MAX = 60_000
#: Format 1, ledger id, last entry, when it expires by the node's clock in ms. The signature follows.
_CLAIMS = Struct("<BQQQ")
_FORMAT = 1
_TICKET_BYTES = _CLAIMS.size + sha256().digest_size


class ReadTickets:
    """now_ms: a clock that never goes back."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._key = secrets.token_bytes(32)

    def drop_all(self) -> None:
        """No ticket of before is valid any more."""
        self._key = secrets.token_bytes(32)

    def issue(self, ledger_id: LedgerId, last_entry: EntryId, role: str, *, lifetime_ms: int) -> bytes:
        """Raises InvalidArgument."""
        if not 1 <= lifetime_ms <= LIFETIME_MS_MAX:
            message = f"lifetime_ms must be from 1 to {LIFETIME_MS_MAX}, not {lifetime_ms}"
            raise InvalidArgument(message, field="lifetime_ms", limit=LIFETIME_MS_MAX)
        claims = _CLAIMS.pack(_FORMAT, ledger_id, last_entry, self._now_ms() + lifetime_ms)
        return claims + self._signature(claims, role)

    def check(self, request: ReadRequest, role: str) -> None:
        """Raises PermissionDenied unless the request's ticket allows `role` this read."""
        ticket = request.ticket
        if not ticket:
            raise PermissionDenied("permission denied: without a ticket only superusers may read from a storage node")
        claims = ticket[: _CLAIMS.size]
        if len(ticket) != _TICKET_BYTES or not hmac.compare_digest(
            ticket[_CLAIMS.size :], self._signature(claims, role)
        ):
            raise PermissionDenied(
                "permission denied: this storage node has not issued the ticket to this role since its last start: "
                "get a new one from the topic owner"
            )
        _, ledger_id, last_entry, expires_ms = _CLAIMS.unpack(claims)
        if ledger_id != request.ledger_id:
            raise PermissionDenied(f"permission denied: the ticket is for ledger {ledger_id}, not {request.ledger_id}")
        if request.first_entry + request.entries_max - 1 > last_entry:
            raise PermissionDenied(f"permission denied: the ticket is for entries up to {ledger_id}:{last_entry}")
        if request.fence:
            raise PermissionDenied("permission denied: a ticket does not allow a fence")
        if self._now_ms() >= expires_ms:
            raise PermissionDenied("permission denied: the ticket has expired: get a new one from the topic owner")

    def _signature(self, claims: bytes, role: str) -> bytes:
        return hmac.digest(self._key, claims + role.encode(), "sha256")
