"""Errors as RFC 9457 problem bodies. Clients should rely on `code`, the stable name of the error.

Invalid names are 412, as in Pulsar, and so is an If-Match that does not match. Other invalid input is 422. Errors that
a retry may solve are 503 with Retry-After.
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
from starlette.routing import Match
from starlette.types import Scope

from oncelog.core import errors, format_errors
from oncelog.core.errors import InvalidArgument, InvariantViolated, OncelogError

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
_CODE = "oncelog_problem_code"
#: Path prefix of publish and consume requests; those of consume go on behind the topic.
PUBLISH_PREFIX = "/topics/"
CONSUME_PART = "/subscription/"
RETRY_AFTER_S = 1
_METHODS = ("DELETE", "GET", "POST", "PUT")
_DETAIL_CHARACTERS_MAX = 1_000
#: Of a value that is refused.
_SHOWN_CHARACTERS_MAX = 60
_NOT_JSON = InvalidArgument("the body is not valid JSON", field="body")

#: {class: (status, title)}; the nearest base class decides.
_STATUSES: dict[type[OncelogError], tuple[int, str]] = {
    OncelogError: (500, "The request failed"),
    errors.Retriable: (503, "Service unavailable"),
    errors.DeadlineExceeded: (504, "Timeout"),
    errors.TooManyRequests: (429, "Too many requests"),
    errors.PublishInProgress: (409, "Request in progress"),
    errors.SequenceGap: (409, "Sequence gap"),
    errors.ConsumerBusy: (409, "Consumer busy"),
    errors.Fatal: (500, "The request failed"),
    errors.InvalidArgument: (422, "Invalid input"),
    errors.InvalidName: (412, "Invalid name"),
    errors.MessageTooLarge: (413, "Too large"),
    errors.IdempotencyKeyRequired: (400, "Idempotency key or producer name required"),
    errors.StaleSequence: (409, "Stale sequence id"),
    errors.UnverifiedSequence: (409, "Unverified sequence id"),
    errors.ContentDiffers: (409, "Other content under the same id"),
    errors.ProducerFenced: (409, "Producer fenced"),
    errors.SessionSuperseded: (409, "Session superseded"),
    errors.BacklogQuotaExceeded: (507, "Backlog quota exceeded"),
    errors.ProducerExpired: (410, "Producer expired"),
    errors.ProducerClosed: (409, "Producer closed"),
    errors.ReaderClosed: (409, "Reader closed"),
    errors.ConsumerClosed: (409, "Consumer closed"),
    errors.ConsumerFenced: (409, "Consumer fenced"),
    errors.SubscriptionGone: (410, "Subscription gone"),
    errors.SessionGone: (410, "Session gone"),
    errors.SubscriptionTypeMismatch: (409, "Subscription type mismatch"),
    errors.EffectsError: (409, "Effects contradict the log"),
    errors.StaleSeekEpoch: (409, "Subscription sought"),
    errors.ClientClosed: (409, "Client closed"),
    errors.LimitReached: (409, "Limit reached"),
    errors.ModeMismatch: (409, "Sequence mode mismatch"),
    errors.NotFound: (404, "Not found"),
    errors.Conflict: (409, "Conflict"),
    errors.PreconditionFailed: (412, "Precondition failed"),
    errors.WrongCluster: (409, "Wrong cluster"),
    errors.StaleEra: (409, "Stale era"),
    errors.Unauthenticated: (401, "Not authenticated"),
    errors.PermissionDenied: (403, "Permission denied"),
    errors.LedgerFenced: (409, "Ledger fenced"),
    # Server-side failures that need an operator. Each has its own code.
    errors.StorageDirectoryRefused: (500, "Storage directory refused"),
    errors.JournalFailed: (500, "Journal failed"),
    errors.CompressionUnavailable: (500, "Compression unavailable"),
    format_errors.UnknownFormat: (409, "Unknown format"),
    format_errors.MessageEncrypted: (409, "Message is encrypted"),
    errors.ChunkedMessage: (409, "Message in chunks"),
    errors.CorruptEntry: (500, "Corrupt data"),
    errors.UnreadableEntry: (500, "Unreadable entry"),
    errors.EntriesLost: (500, "Entries lost"),
    errors.LogHole: (500, "Gap in the log"),
    errors.IdsExhausted: (500, "Ids exhausted"),
    errors.InvariantViolated: (500, "Server bug"),
}
#: {status: (code, title)} of errors that the HTTP layer itself reports.
_HTTP = {
    400: ("invalid_request", "Invalid request"),
    404: ("not_found", "Not found"),
    405: ("method_not_allowed", "Method not allowed"),
    408: ("request_timeout", "Request timeout"),
    415: ("unsupported_encoding", "Unsupported encoding"),
}


class ProblemBody(BaseModel):
    """An error (RFC 9457). `code` is stable; `detail` is for people and says what to do."""

    type: str = Field(description="urn:oncelog:problem:<code>")
    title: str
    status: int
    detail: str
    code: str = Field(description="Stable name of the error, the same as in gRPC, the SDK and metrics.")
    field: str | None = Field(default=None, description="The invalid field, header or parameter.")
    limit: int | None = Field(default=None, description="The limit that the request exceeds.")
    expected: int | None = Field(default=None, description="With `sequence_gap`: the sequence id to continue from.")
    high_water: int | None = Field(
        default=None, description="With `stale_sequence`: the producer's highest stored sequence id."
    )
    index: int | None = Field(
        default=None, description="Consume only, with `message_too_large`: of the message that is not returned."
    )
    message_id: str | None = Field(default=None, description="The same message: ledger:entry:batch index.")
    request_id: str | None = Field(
        default=None, description="With server failures: the id under which the server logged the failure."
    )
    stored: bool | None = Field(
        default=None, description="Publish only. false: the request stored nothing and never will; null: unknown."
    )
    messages: list[dict[str, Any]] | None = Field(
        default=None,
        description="Publish only, if some messages are stored: each message with `stored` and `code`.",
    )


def problem(error: OncelogError, *, publishing: bool = False) -> JSONResponse:
    """The response for `error`. publishing: it also has the field `stored`."""
    headers = {"Retry-After": str(error.details.get("retry_after_s") or RETRY_AFTER_S)} if error.retriable else {}
    body = body_of(error)
    if body.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return _response(body, headers, _fate(error) if publishing else {})


def note_code(scope: Scope, code: str) -> None:
    """The error of an answer whose body is a page, for the audit log."""
    scope[_CODE] = code


def noted_code(scope: Scope) -> str | None:
    """As `note_code` has noted; None: nothing was noted."""
    return scope.get(_CODE)


def body_of(error: OncelogError) -> ProblemBody:
    """Of a response, or of one part of it."""
    status, title = _STATUSES[status_class(type(error))]
    names = ("field", "message_id", "request_id")
    texts: dict[str, Any] = {name: str(text) for name in names if (text := error.details.get(name)) is not None}
    given = {name: error.details.get(name) for name in ("limit", "expected", "high_water", "index")}
    numbers: dict[str, Any] = {name: number for name, number in given.items() if isinstance(number, int)}
    return ProblemBody(
        type=_type(error.code),
        title=title,
        status=status,
        detail=error.message[:_DETAIL_CHARACTERS_MAX],
        code=error.code,
        **texts,
        **numbers,
    )


def _fate(error: OncelogError) -> dict[str, Any]:
    """The fields about the messages; `stored` is present also if it is null."""
    rows = [row.model_dump() for row in error.result or () if isinstance(row, BaseModel)]
    return {"stored": error.stored, **({"messages": rows} if rows else {})}


def status_class(kind: type[OncelogError]) -> type[OncelogError]:
    """The nearest class in the error's hierarchy that has a status."""
    return next(cls for cls in kind.__mro__ if cls in _STATUSES)


def http_problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The response for a request that reached no handler."""
    code, title = _HTTP.get(status, ("error", "The request failed"))
    body = ProblemBody(type=_type(code), title=title, status=status, detail=detail, code=code)
    return _response(body, headers)


def install(app: FastAPI) -> None:
    """Register the handlers that turn every error into a problem body."""
    app.add_exception_handler(OncelogError, _oncelog_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _bug)


async def _oncelog_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, OncelogError)
    if isinstance(error, InvariantViolated):
        asyncio.get_running_loop().call_exception_handler({"message": str(error), "exception": error})
        return await _bug(request, error)
    return problem(error, publishing=publishes(request.url.path))


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = [str(part) for part in first["loc"]]
    if first["type"] == "json_invalid":
        return problem(_NOT_JSON, publishing=publishes(request.url.path))
    content_type = request.headers.get("content-type", "")
    if where[0] == "body" and "json" not in content_type and await request.body():
        error = InvalidArgument("the body must be JSON with Content-Type: application/json", field="body")
        return problem(error, publishing=publishes(request.url.path))
    # The field's name without "body" or "query" before it, unless there is nothing else, as for an element of a list.
    field = ".".join(where if where[1:] and where[1].isdecimal() else where[1:]) or where[0]
    return problem(InvalidArgument(f"{field}: {_reason(first)}", field=field), publishing=publishes(request.url.path))


def publishes(path: str) -> bool:
    """Whether the problem of a request to this path has the field `stored`."""
    return path.startswith(PUBLISH_PREFIX) and CONSUME_PART not in path


def _reason(error: Mapping[str, Any]) -> str:
    if error["type"] == "int_parsing":
        return f"must be a whole number, not {str(error['input'])[:_SHOWN_CHARACTERS_MAX]!r}"
    return str(error["msg"]).removeprefix("Value error, ")[:200]


async def _http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    if error.status_code == 400:
        # FastAPI answers 400 if the body is not text, or is nested too deeply.
        return problem(_NOT_JSON)
    path = request.url.path[:200]
    details = {404: f"no such path: {path}", 405: f"{path} does not support {request.method}"}
    headers = dict(error.headers or {})
    if error.status_code == 405 and (methods := _methods_at(request)):
        headers["Allow"] = ", ".join(methods)
    return http_problem(error.status_code, details.get(error.status_code, str(error.detail)), headers)


def _methods_at(request: Request) -> list[str]:
    """The methods of all routes at the path, sorted; the framework returns those of the first route only."""
    scopes: list[Scope] = [{**request.scope, "method": method} for method in _METHODS]
    return [
        scope["method"]
        for scope in scopes
        if any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)
    ]


async def _bug(request: Request, error: Exception) -> JSONResponse:
    request_id = secrets.token_hex(8)
    fields = {"method": request.method, "path": request.url.path[:200], "request_id": request_id}
    logger.error("a request failed", extra={"fields": fields}, exc_info=error)
    message = f"the server failed; search its log for request {request_id}"
    return problem(InvariantViolated(message, request_id=request_id))


def _type(code: str) -> str:
    return f"urn:oncelog:problem:{code}"


def _response(
    body: ProblemBody, headers: Mapping[str, str] | None, further: Mapping[str, Any] | None = None
) -> JSONResponse:
    content = {**body.model_dump(exclude_none=True), **(further or {})}
    return JSONResponse(content, body.status, headers=dict(headers or {}), media_type=MEDIA_TYPE)


def document(responses: Sequence[dict[str, Any]]) -> None:
    """Add the problem body to the responses of the operations in an OpenAPI document."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for response in responses:
        response["default"] = {"description": "An error; see its `code`.", "content": content}
