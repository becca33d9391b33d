"""Forms: what a browser sends with POST, and why it is believed.

Rules
- The request must come from a page of this console: `Origin` names the host that the request is for, or, without it,
  `Sec-Fetch-Site` is `same-origin`.
- It carries a token that only a page rendered for this viewer and this form has: HMAC-SHA256 of method, URL, time and a
  random number, under the hash of the viewer's token; without authentication, under random bytes of this process. So a
  token of another form, or of another role, is refused.
- A token ends after 10 minutes: what its page said would be lost is old by then. One process takes it once, for double
  clicks. Other replicas, and this one after a restart, do not know that: `Action.seen` is for them.
- A form has at most 8 fields and 8 KiB. It is UTF-8.
"""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from functools import cache
from urllib.parse import parse_qsl

from starlette.datastructures import Headers

from oncelog.core.errors import Conflict, InvalidArgument, PermissionDenied

FIELDS_MAX = 8
BYTES_MAX = 8 << 10
FIELD = "csrf"
TYPED = "typed"
SEEN = "seen"
VALID_S = 600
#: How long a page may tell that an action was done.
TOLD_S = 60
#: Characters of a token before its signature: the time and the random number.
_HEAD = 26


@cache
def _process_key() -> bytes:
    """Of this process alone: a module may be imported before a fork."""
    return secrets.token_bytes(32)


def csrf_of(authorization: str) -> Callable[[str], str]:
    """A function from the path and query that a form is sent to, to a new token, for the viewer with this header."""
    return lambda url: _signed(authorization, url, f"{int(time.time()):010x}{secrets.token_hex(8)}")


def _signed(authorization: str, url: str, head: str) -> str:
    key = hashlib.sha256(authorization.encode()).digest() if authorization else _process_key()
    return head + hmac.new(key, f"POST {url} {head}".encode(), hashlib.sha256).hexdigest()


def told_of(authorization: str, name: str) -> str:
    """What a redirect carries after the action of this name, so that the next page tells of it."""
    return f"{name}.{csrf_of(authorization)('done ' + name)}"


def told(authorization: str, text: str) -> str | None:
    """The name of the action; None: nobody has just done it, or an unknown replica has."""
    name, _, token = text.partition(".")
    if not _is_of(token, authorization, "done " + name):
        return None
    return name if int(token[:10], 16) > time.time() - TOLD_S else None


def _is_of(token: str, authorization: str, url: str) -> bool:
    return hmac.compare_digest(token.encode(), _signed(authorization, url, token[:_HEAD]).encode())


def check_origin(headers: Headers, *, scheme: str) -> None:
    """Raises PermissionDenied if the request does not come from a page of this console."""
    origin = headers.get("origin")
    if origin is None:
        if headers.get("sec-fetch-site") == "same-origin":
            return
        raise PermissionDenied("the request names no origin: send the form from a page of the console")
    origin_scheme, _, netloc = origin.partition("://")
    # A proxy may speak TLS for this process, so https is right in front of http, and not the other way round.
    if origin_scheme not in {"https", scheme} or netloc != headers.get("host"):
        raise PermissionDenied(f"the form was sent from {origin[:100]}, which is not this console")


def fields_of(body: bytes) -> dict[str, str]:
    """The fields of a form. Raises InvalidArgument."""
    if len(body) > BYTES_MAX:
        raise InvalidArgument(f"the form has more than {BYTES_MAX} bytes, the maximum", field="body", limit=BYTES_MAX)
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX)
    except UnicodeDecodeError as error:
        raise InvalidArgument("the form is not application/x-www-form-urlencoded in UTF-8", field="body") from error
    except ValueError as error:
        message = f"the form has more than {FIELDS_MAX} fields, the maximum"
        raise InvalidArgument(message, field="body", limit=FIELDS_MAX) from error
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise InvalidArgument("the form has a field twice", field="body")
    if any("\0" in value for value in fields.values()):
        raise InvalidArgument("a field of the form contains a NUL character", field="body")
    return fields


class FormTokens:
    """Those that this replica has taken."""

    def __init__(self, now_s: Callable[[], float] = time.time) -> None:
        self._now_s = now_s
        #: {token: when it was made, in s}
        self._taken: dict[str, int] = {}

    def check(self, fields: dict[str, str], authorization: str, url: str) -> str:
        """The token of a form that was sent to this URL. Raises PermissionDenied."""
        token = fields.get(FIELD, "")
        if not _is_of(token, authorization, url):
            older = "your login" if authorization else "the last start of this metadata service"
            raise PermissionDenied(
                f"nothing was done: the form is not one of yours, or is older than {older}; look at the figures of "
                "now, and confirm again"
            )
        return token

    def take(self, token: str) -> None:
        """Before the action is done. Raises Conflict if the token is too old, or was taken."""
        now_s, made_s = self._now_s(), int(token[:10], 16)
        self._taken = {each: at for each, at in self._taken.items() if at > now_s - VALID_S}
        if made_s <= now_s - VALID_S:
            minutes = VALID_S // 60
            raise Conflict(
                f"nothing was done: the form is older than {minutes} minutes; look again at what would be lost"
            )
        if token in self._taken:
            raise Conflict(
                "the form was sent twice, and is carried out once: look at the result before you send it again"
            )
        self._taken[token] = made_s
