"""Forms: what a browser sends with POST, and why it is believed.

Rules
- The request must come from a page of this console: `Origin` names the host that the request is for, or, without it,
  `Sec-Fetch-Site` is `same-origin`.
- It carries a token that only a page rendered for this viewer and this form has: HMAC-SHA256 of method and URL, under
  the hash of the viewer's token; without authentication, under random bytes of this process. So a token of another
  form, or of another role, is refused.
- A form has at most 8 fields and 8 KiB. It is UTF-8.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import Headers

from oncelog.core.errors import InvalidArgument, PermissionDenied

FIELDS_MAX = 8
BYTES_MAX = 8 << 10
FIELD = "csrf"
TYPED = "typed"

_PROCESS_KEY = secrets.token_bytes(32)


def csrf_of(authorization: str) -> Callable[[str], str]:
    """A function from the path and query that a form is sent to, to its token, for the viewer with this header."""
    key = hashlib.sha256(authorization.encode()).digest() if authorization else _PROCESS_KEY
    return lambda url: hmac.new(key, f"POST {url}".encode(), hashlib.sha256).hexdigest()


def check_origin(headers: Headers, *, scheme: str) -> None:
    """Raises PermissionDenied if the request does not come from a page of this console."""
    origin = headers.get("origin")
    if origin is None:
        if headers.get("sec-fetch-site") == "same-origin":
            return
        raise PermissionDenied("the request names no origin: send the form from a page of the console")
    found = urlsplit(origin)
    # A proxy may speak TLS for this process, so https is right in front of http, and not the other way round.
    if found.scheme not in {"https", scheme} or found.netloc != headers.get("host"):
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


def check_csrf(fields: dict[str, str], expected: str) -> None:
    """Raises PermissionDenied."""
    if not hmac.compare_digest(fields.get(FIELD, "").encode(), expected.encode()):
        raise PermissionDenied("the form is not one of yours, or is older than your login: open its page again")


def check_typed(fields: dict[str, str], expected: str) -> None:
    """Raises InvalidArgument unless the viewer typed the name of what the action is about."""
    if fields.get(TYPED, "").strip() != expected:
        raise InvalidArgument(f"nothing was done: type {expected} to confirm", field=TYPED)
