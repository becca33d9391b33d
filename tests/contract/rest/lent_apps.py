"""Applications of the REST interface, each lent to one test after the other: to build one takes longer than most tests.

An application keeps nothing of a request. What it is built over forwards to what the borrower gives.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from fastapi import FastAPI

from oncelog.metadata.app import new_app
from oncelog.metadata.console.routes import Console
from oncelog.metadata.dead_letters.redrive import Redrive
from oncelog.metadata.http_consume.http_consume_service import HttpConsumeService
from oncelog.metadata.http_publish.http_publish_service import HttpPublishService
from oncelog.metadata.replica import Coordination
from oncelog.runtime.observing.audit_log import AuditLog
from oncelog.runtime.observing.events import EventRing
from oncelog.runtime.security import OPEN, Security


class _Given:
    """Has the attributes of `of`."""

    of: object = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.of, name)


class _LentApp:
    """The limits of a publisher, and the options of the console, are read when the application is built."""

    def __init__(self, publisher: HttpPublishService | None, console: Mapping[str, Any] | None) -> None:
        self.limits = publisher and publisher.limits
        self.options = console
        self._given = given = [_Given() for _ in range(6)]
        given[2].of = publisher
        coordination, security, publishes, consumes, redrives, audit = cast(
            "tuple[Coordination, Security, HttpPublishService, HttpConsumeService, Redrive, AuditLog]", given
        )
        self.console = None if console is None else Console(security, **console)
        publishing = publishes if publisher else None
        self.app = new_app(coordination, security, publishing, consumes, redrives, self.console, audit=audit)

    def give(self, *borrowed: object) -> None:
        """In the order of `new_app`."""
        for given, of in zip(self._given, borrowed, strict=True):
            given.of = of


_free: list[_LentApp] = []


@contextmanager
def lent_app(
    coordination: Coordination,
    security: Security = OPEN,
    publisher: HttpPublishService | None = None,
    consumer: HttpConsumeService | None = None,
    redrive: Redrive | None = None,
    console: Mapping[str, Any] | None = None,
    audit: AuditLog | None = None,
) -> Iterator[FastAPI]:
    """What `new_app` returns, inside the block. No two borrowers have the same one at a time. console: the options of
    one; None: without it.
    """
    limits = publisher and publisher.limits
    lent = next((each for each in _free if (each.limits, each.options) == (limits, console)), None)
    if lent is None:
        lent = _LentApp(publisher, console)
    else:
        _free.remove(lent)
    lent.give(coordination, security, publisher, consumer, redrive, audit or AuditLog(EventRing("metadata")))
    try:
        yield lent.app
    finally:
        if lent.console is not None:
            lent.console.close()
        lent.give(None, None, None, None, None, None)
        _free.append(lent)
