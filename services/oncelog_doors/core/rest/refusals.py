"""Errors as Pulsar's REST has them: a status, and `{"reason": …}` for people."""

from collections.abc import Mapping
from typing import Any

from oncelog.core import errors
from oncelog.core.errors import OncelogError
from oncelog_doors.core.pulsar.schemas import IncompatibleSchema

NOT_OFFERED = 501
RETRY_AFTER_S = 1
#: {status of this cluster's REST: that of Pulsar}; the others are the same.
_STATUSES = {410: 404, 422: 400, 507: 409}
#: (error of a call that no service answered, that was refused in front of REST, or of the log; status); the first that
#: fits.
_OF_ERRORS: tuple[tuple[type[OncelogError], int], ...] = (
    (errors.Unauthenticated, 401),
    (errors.PermissionDenied, 403),
    (errors.InvalidName, 412),
    (errors.MessageTooLarge, 413),
    (errors.InvalidArgument, 400),
    (errors.NotFound, 404),
    (errors.LimitReached, 409),
    (errors.ChunkedMessage, 409),
    (IncompatibleSchema, 409),
    (errors.TooManyRequests, 429),
    (errors.DeadlineExceeded, 504),
    (errors.Retriable, 503),
)


class Refused(Exception):
    """The answer is an error. retry_after_s: a repeated request may succeed after that; None: it will not."""

    def __init__(self, status: int, reason: str, retry_after_s: int | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.retry_after_s = status, reason, retry_after_s


def refused_field(field: str, what: str) -> Refused:
    """A field, header or parameter of the request is wrong."""
    return Refused(400, f"{field}: {what}")


def not_offered(what: str, instead: str) -> Refused:
    """instead: what to do, as a clause."""
    return Refused(NOT_OFFERED, f"{what} not offered here: {instead}")


def refused_by(status: int, problem: Any) -> Refused:
    """The error of this cluster's REST. problem: the body of its answer, as JSON; anything else if it had none."""
    detail = problem.get("detail") if isinstance(problem, Mapping) else None
    reason = str(detail or f"the cluster has answered with status {status}")
    again = RETRY_AFTER_S if status in (429, 503, 504) else None
    return Refused(_STATUSES.get(status, status), reason, again)


def refused_for(error: OncelogError) -> Refused:
    """The error of a request that did not reach REST, or of the log."""
    status = next((status for kind, status in _OF_ERRORS if isinstance(error, kind)), 500)
    again = None
    if error.retriable:
        again = int(error.details.get("retry_after_s") or RETRY_AFTER_S)
    return Refused(status, error.message, again)
