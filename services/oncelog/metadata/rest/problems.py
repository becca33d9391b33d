"""Errors as RFC 9457 problems: one body for everything that goes wrong, told apart by `code`, the error's stable name.

Bad names are 412, as in Pulsar, and so is an If-Match that does not match; other bad input is 422; what is worth trying
again is 503 with Retry-After.
"""

import asyncio
import logging
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from oncelog.core import errors
from oncelog.core.errors import InvalidArgument, InvariantViolated, OncelogError

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
#: where messages are published
PUBLISH_PREFIX = "/topics/"
RETRY_AFTER_S = 1
_DETAIL_CHARACTERS_MAX = 1_000
_NOT_JSON = InvalidArgument("the body is not JSON", field="body")

#: {class: (status, title)}; the nearest base class decides.
_STATUSES: dict[type[OncelogError], tuple[int, str]] = {
    OncelogError: (500, "The request failed"),
    errors.Retriable: (503, "Not now"),
    errors.DeadlineExceeded: (504, "No answer in time"),
    errors.TooManyRequests: (429, "Too many requests"),
    errors.PublishInProgress: (409, "In progress"),
    errors.SequenceGap: (409, "A sequence id is missing"),
    errors.Fatal: (500, "The request failed"),
    errors.InvalidArgument: (422, "Bad input"),
    errors.InvalidName: (412, "Bad name"),
    errors.MessageTooLarge: (413, "Too large"),
    errors.IdempotencyKeyRequired: (400, "No key and no producer"),
    errors.StaleSequence: (409, "A sequence id came too late"),
    errors.UnverifiedSequence: (409, "A sequence id is too old to be verified"),
    errors.ProducerFenced: (409, "Another instance has the producer"),
    errors.ProducerExpired: (410, "The producer's state is gone"),
    errors.ProducerClosed: (409, "The producer was closed"),
    errors.ReaderClosed: (409, "The reader was closed"),
    errors.ClientClosed: (409, "The client was closed"),
    errors.ModeMismatch: (409, "Another sequence mode"),
    errors.NotFound: (404, "Not found"),
    errors.Conflict: (409, "Conflict"),
    errors.PreconditionFailed: (412, "Changed meanwhile"),
    errors.WrongCluster: (409, "Another cluster"),
    errors.Unauthenticated: (401, "Not authenticated"),
    errors.PermissionDenied: (403, "Not allowed"),
    errors.LedgerFenced: (409, "Another owner came"),
    # The server's own trouble, that no other request cures: each has its code, and people look at it.
    errors.StorageDirectoryRefused: (500, "A storage directory is refused"),
    errors.DamagedSegment: (500, "A segment is damaged"),
    errors.JournalFailed: (500, "A journal has failed"),
    errors.CorruptEntry: (500, "A record or an entry is damaged"),
    errors.UnreadableEntry: (500, "An entry cannot be read"),
    errors.LogHole: (500, "Something that must exist is missing"),
    errors.IdsExhausted: (500, "A counter of ids is used up"),
    errors.InvariantViolated: (500, "A bug of the server"),
}
#: {status: (code, title)} of what the HTTP layer itself refuses.
_HTTP = {
    404: ("not_found", "Not found"),
    405: ("method_not_allowed", "Method not allowed"),
    408: ("request_timeout", "The request came too slowly"),
}


class ProblemBody(BaseModel):
    """What went wrong (RFC 9457). `code` is stable; `detail` is for people and says what to do next."""

    type: str = Field(description="urn:oncelog:problem:<code>")
    title: str
    status: int
    detail: str
    code: str = Field(description="The error's stable name, the same as in gRPC, the SDK and metrics.")
    field: str | None = Field(default=None, description="The part of the request that is wrong.")
    limit: int | None = Field(default=None, description="The bound that the request exceeds.")
    expected: int | None = Field(default=None, description="Of `sequence_gap`: the id to resend from.")
    high_water: int | None = Field(default=None, description="Of `stale_sequence`: the producer's highest stored id.")
    request_id: str | None = Field(default=None, description="To be found in the server's log, for failures of ours.")
    stored: bool | None = Field(
        default=None, description="Of a publish. false: it stored nothing and never will; null: that is not known."
    )
    messages: list[dict[str, Any]] | None = Field(
        default=None,
        description="Of a publish of which some is stored: each message with `stored`, as above, and `code`.",
    )


def problem(error: OncelogError, *, publishing: bool = False) -> JSONResponse:
    """The answer that tells of `error`. publishing: it also tells whether anything is stored."""
    status, title = _STATUSES[status_class(type(error))]
    field, request_id = (error.details.get(name) for name in ("field", "request_id"))
    given = {name: error.details.get(name) for name in ("limit", "expected", "high_water")}
    numbers: dict[str, Any] = {name: number for name, number in given.items() if isinstance(number, int)}
    headers = {"Retry-After": str(error.details.get("retry_after_s") or RETRY_AFTER_S)} if error.retriable else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return _response(
        ProblemBody(
            type=_type(error.code),
            title=title,
            status=status,
            detail=error.message[:_DETAIL_CHARACTERS_MAX],
            code=error.code,
            field=str(field) if field is not None else None,
            request_id=str(request_id) if request_id is not None else None,
            **numbers,
        ),
        headers,
        _fate(error) if publishing else {},
    )


def _fate(error: OncelogError) -> dict[str, Any]:
    """What is known of the messages; null is said, too."""
    rows = [row.model_dump() for row in error.result or () if isinstance(row, BaseModel)]
    return {"stored": error.stored, **({"messages": rows} if rows else {})}


def status_class(kind: type[OncelogError]) -> type[OncelogError]:
    """The nearest class above, or itself, that has a status of its own."""
    return next(cls for cls in kind.__mro__ if cls in _STATUSES)


def http_problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The answer to what never reached a handler."""
    code, title = _HTTP.get(status, ("error", "The request failed"))
    body = ProblemBody(type=_type(code), title=title, status=status, detail=detail, code=code)
    return _response(body, headers)


def install(app: FastAPI) -> None:
    """Have every error of `app` answered by a problem."""
    app.add_exception_handler(OncelogError, _oncelog_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _bug)


async def _oncelog_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, OncelogError)
    if isinstance(error, InvariantViolated):
        asyncio.get_running_loop().call_exception_handler({"message": str(error), "exception": error})
        return await _bug(request, error)
    return problem(error, publishing=_publishes(request))


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = [str(part) for part in first["loc"]]
    if first["type"] == "json_invalid":
        return problem(_NOT_JSON, publishing=_publishes(request))
    content_type = request.headers.get("content-type", "")
    if where[0] == "body" and "json" not in content_type and await request.body():
        error = InvalidArgument("send the body as JSON, with Content-Type: application/json", field="body")
        return problem(error, publishing=_publishes(request))
    # The name of the field, without where it was looked for unless that is all there is; an element of a list has none.
    field = ".".join(where if where[1:] and where[1].isdecimal() else where[1:]) or where[0]
    return problem(InvalidArgument(f"{field}: {_said(first)}", field=field), publishing=_publishes(request))


def _publishes(request: Request) -> bool:
    return request.url.path.startswith(PUBLISH_PREFIX)


def _said(error: Mapping[str, Any]) -> str:
    return f"{str(error['msg'])[:200]} ({error['type']})"


async def _http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    if error.status_code == 400:
        # FastAPI's word for bytes that its JSON reader gives up on: no text, or nested too deep.
        return problem(_NOT_JSON)
    path = request.url.path[:200]
    details = {404: f"there is nothing at {path}", 405: f"{path} does not know {request.method}"}
    headers = dict(error.headers or {})
    if error.status_code == 405 and (methods := _methods_at(request)):
        headers["Allow"] = ", ".join(methods)
    return http_problem(error.status_code, details.get(error.status_code, str(error.detail)), headers)


def _methods_at(request: Request) -> list[str]:
    """Of every route at the path, sorted: the framework names those of the first one alone."""
    paths: Mapping[str, Mapping[str, Any]] = request.app.openapi()["paths"]
    found = [operations for path, operations in paths.items() if compile_path(path)[0].match(request.url.path)]
    return sorted({method.upper() for operations in found for method in operations})


async def _bug(request: Request, error: Exception) -> JSONResponse:
    request_id = secrets.token_hex(8)
    fields = {"method": request.method, "path": request.url.path[:200], "request_id": request_id}
    logger.error("a request failed", extra={"fields": fields}, exc_info=error)
    message = f"the server failed; its log has request {request_id}"
    return problem(InvariantViolated(message, request_id=request_id))


def _type(code: str) -> str:
    return f"urn:oncelog:problem:{code}"


def _response(
    body: ProblemBody, headers: Mapping[str, str] | None, further: Mapping[str, Any] | None = None
) -> JSONResponse:
    content = {**body.model_dump(exclude_none=True), **(further or {})}
    return JSONResponse(content, body.status, headers=dict(headers or {}), media_type=MEDIA_TYPE)


def document(responses: Sequence[dict[str, Any]]) -> None:
    """Add the problem to the responses of operations in an OpenAPI document."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for response in responses:
        response["default"] = {"description": "A problem; its `code` says which.", "content": content}
