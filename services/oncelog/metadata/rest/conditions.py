"""Conditional changes (RFC 9110): a response has an ETag, and a change may require it with If-Match.

Without this, two users who read, edit and write at the same time would silently overwrite each other's changes. The
policies of one level are one record with one ETag. A change without If-Match is unconditional. Routes that do not
support If-Match reject it, so that no client believes that its condition was checked.
"""

import re
from typing import Annotated, Any

from fastapi import Header, Request, Response
from fastapi.routing import APIRoute

from oncelog.core.errors import InvalidArgument
from oncelog.metadata_store.records.policies import Policies
from oncelog.metadata_store.records.policy_store import tag_of
from oncelog.metadata_store.session.store_session import Versioned

_NAME = "If-Match"
_ABOUT = (
    "ETag of the policies that the change is based on, or several, separated by commas. If the policies of this level "
    "have changed since, the answer is `precondition_failed` (412) and nothing changes. `*` or none: unconditional."
)
IfMatch = Annotated[str | None, Header(alias=_NAME, description=_ABOUT)]

_TAG = r'(?:W/)?"[\x21\x23-\x7e]*"'
_TAGS = re.compile(rf"[ \t]*{_TAG}(?:[ \t]*,[ \t]*{_TAG})*[ \t]*")
_STRONG = re.compile(r'(?<!W/)"([\x21\x23-\x7e]*)"')
_SAFE_METHODS = {"GET", "HEAD"}


def show_tag(response: Response, stored: Versioned[Policies]) -> None:
    """Set the ETag of the policies in the response."""
    response.headers["ETag"] = f'"{tag_of(stored)}"'


def tags_of(if_match: str | None) -> frozenset[str] | None:
    """The tags of which one must match; None: unconditional. A weak tag is valid, but matches nothing.

    Raises InvalidArgument.
    """
    if if_match is None or if_match.strip() == "*":
        return None
    if _TAGS.fullmatch(if_match) is None:
        raise InvalidArgument(f'{_NAME} must be an ETag from a response, with its quotes: "3-0a1b2c3d"', field=_NAME)
    return frozenset(_STRONG.findall(if_match))


async def refuse_unread(request: Request) -> None:
    """Applies to every route: a change is rejected if it has If-Match and its route does not declare `IfMatch`."""
    route = request.scope.get("route")
    if request.method in _SAFE_METHODS or _NAME not in request.headers or not isinstance(route, APIRoute):
        return
    if not any(field.alias == _NAME for field in route.dependant.header_params):
        raise InvalidArgument(
            f"this request does not support {_NAME}: only changes of policies and rights do", field=_NAME
        )


def answers_tag(status: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI description of a response that has an ETag."""
    about = "ETag of all policies of this level, for If-Match. Absent with `applied`."
    return {status: {"headers": {"ETag": {"description": about, "schema": {"type": "string"}}}}}
