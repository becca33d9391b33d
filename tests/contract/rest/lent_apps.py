"""Applications of the REST interface, each lent to one test after the other: to build one takes longer than most tests.

An application keeps nothing of a request. What it is built over forwards to what the borrower gives.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from fastapi import FastAPI

from oncelog.metadata.app import new_app
from oncelog.metadata.http_publish.http_publish_service import HttpPublishService
from oncelog.metadata.replica import Coordination
from oncelog.runtime.security import OPEN, Security


class _Given:
    """Has the attributes of `of`."""

    of: object = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.of, name)


class _LentApp:
    """The limits of a publisher are read when the application is built."""

    def __init__(self, publisher: HttpPublishService | None) -> None:
        self.limits = publisher and publisher.limits
        self._coordination, self._security, self._publisher = given = _Given(), _Given(), _Given()
        self._publisher.of = publisher
        coordination, security, publishes = cast("tuple[Coordination, Security, HttpPublishService]", given)
        self.app = new_app(coordination, security, publishes if publisher else None)

    def give(self, coordination: object, security: object, publisher: object) -> None:
        self._coordination.of, self._security.of, self._publisher.of = coordination, security, publisher


_free: list[_LentApp] = []


@contextmanager
def lent_app(
    coordination: Coordination, security: Security = OPEN, publisher: HttpPublishService | None = None
) -> Iterator[FastAPI]:
    """What `new_app` returns, inside the block. No two borrowers have the same one at a time."""
    limits = publisher and publisher.limits
    lent = next((each for each in _free if each.limits == limits), None)
    if lent is None:
        lent = _LentApp(publisher)
    else:
        _free.remove(lent)
    lent.give(coordination, security, publisher)
    try:
        yield lent.app
    finally:
        lent.give(None, None, None)
        _free.append(lent)
