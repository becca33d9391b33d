"""Errors of REST: the problem body of a response as the error that the server raised."""

import json

from oncelog.core.errors import BY_CODE, Fatal, OncelogError, Retriable

#: Fields of a problem that are details of its error.
_DETAILS = ("field", "limit", "expected", "high_water")
_RETRIABLE_STATUSES = frozenset({429, 503, 504})


def error_of_problem(status: int, body: bytes, *, retry_after: str | None = None) -> OncelogError | None:
    """None if the body is no problem. An unknown code becomes Retriable or Fatal. retry_after: the header."""
    try:
        problem = json.loads(body)
    except ValueError:
        return None
    if not isinstance(problem, dict) or "code" not in problem:
        return None
    kind = BY_CODE.get(str(problem["code"]), Retriable if status in _RETRIABLE_STATUSES else Fatal)
    details = {name: problem[name] for name in _DETAILS if isinstance(problem.get(name), int | str)}
    if retry_after is not None and retry_after.isdecimal():
        details["retry_after_s"] = int(retry_after)
    error = kind(str(problem.get("detail", "")), **details)
    if "stored" in problem:
        error.stored = problem["stored"] if isinstance(problem["stored"], bool) else None
    return error
