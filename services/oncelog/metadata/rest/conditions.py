"""Changes that rest on what their sender has read (RFC 9110): an answer has an ETag, a change may name it in If-Match.

Two people who read, think and write would else undo each other's change without a word. A tag is of all policies of one
level, which are one record. Calls without that header change whatever is there, and calls that do not know it refuse
it: whoever sends it must not believe that it was looked at.
"""

import re
from typing import Annotated, Any

from fastapi import Header, Request, Response
from fastapi.routing import APIRoute

from oncelog.core.errors import InvalidArgument
from oncelog.stores.policy_store import Policies, mark_of
from oncelog.stores.store_session import Versioned

_NAME = "If-Match"
_ABOUT = (
    "The ETag of what the change rests on, or several with commas. When the policies of this level are others by now, "
    "it is `precondition_failed` (412), and nothing is changed. `*` or none: they may be any."
)
IfMatch = Annotated[str | None, Header(alias=_NAME, description=_ABOUT)]

_TAG = r'(?:W/)?"[\x21\x23-\x7e]*"'
_TAGS = re.compile(rf"[ \t]*{_TAG}(?:[ \t]*,[ \t]*{_TAG})*[ \t]*")
_STRONG = re.compile(r'(?<!W/)"([\x21\x23-\x7e]*)"')
_SAFE_METHODS = {"GET", "HEAD"}


def show_tag(response: Response, stored: Versioned[Policies]) -> None:
    """Tell which state of the policies the answer is of."""
    response.headers["ETag"] = f'"{mark_of(stored)}"'


def marks_of(if_match: str | None) -> frozenset[str] | None:
    """The marks of which one must be there; None: it may be anything. A weak tag is well-formed and matches nothing.

    Raises InvalidArgument.
    """
    if if_match is None or if_match.strip() == "*":
        return None
    if _TAGS.fullmatch(if_match) is None:
        raise InvalidArgument(f'{_NAME} must be an ETag as it was answered, in its quotes: "3-0a1b2c3d"', field=_NAME)
    return frozenset(_STRONG.findall(if_match))


async def refuse_unread(request: Request) -> None:
    """Of every route: one that does not declare `IfMatch` takes no such header with a change."""
    route = request.scope.get("route")
    if request.method in _SAFE_METHODS or _NAME not in request.headers or not isinstance(route, APIRoute):
        return
    if not any(field.alias == _NAME for field in route.dependant.header_params):
        raise InvalidArgument(f"this call knows no {_NAME}: only changes of policies and rights do", field=_NAME)


def answers_tag(status: int) -> dict[int | str, dict[str, Any]]:
    """For the description of a route: its answer has an ETag."""
    about = "Of all policies of this level, for If-Match. Not with `applied`."
    return {status: {"headers": {"ETag": {"description": about, "schema": {"type": "string"}}}}}
