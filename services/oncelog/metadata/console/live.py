"""Live pages: one task renders a page for all its viewers of one role, and sends them the blocks that have changed.

Rules
- A page is rendered while it has a viewer, each second; every two seconds when more than ten are.
- A viewer gets the newest content of a block, however slowly it reads: what was not sent yet is replaced.
- Which blocks the page has is sent like a block, named "": a page with others reloads itself. So no block stays that
  says what is not known any more, and none is missing that has come.
- Each viewer's own token is checked before each rendering. A stream whose token is not valid any more ends with 401.
- The number of streams is limited, and one role has at most half of them, so that none can take all.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.types import Receive, Scope, Send

from oncelog.core.errors import OncelogError, ServiceUnavailable, TooManyRequests
from oncelog.metadata.console.page import Page, View
from oncelog.metadata.console.rendering import Rendered
from oncelog.metadata.http_consume.bodies import Event
from oncelog.metadata.http_consume.event_stream import EventStream
from oncelog.runtime.security import Security

logger = logging.getLogger(__name__)

MANY_PAGES = 10
SLOWER = 2

Render = Callable[[Page, View], Awaitable[Rendered]]
_Key = tuple[str, str, bool, str]


class Viewer:
    """One stream."""

    def __init__(self, view: View) -> None:
        self.view = view
        self._waiting: dict[str, Event] = {}
        self._problem: OncelogError | None = None
        self._told = asyncio.Event()

    def show(self, event: Event, block: str) -> None:
        self._waiting[block] = event
        self._told.set()

    def end(self, problem: OncelogError) -> None:
        self._problem = problem
        self._told.set()

    async def take(self, wait_s: float, gone: "asyncio.Future[None]") -> list[Event]:
        """What is new; nothing after `wait_s` seconds, or when the client has gone. Raises what ended the stream."""
        told = asyncio.ensure_future(self._told.wait())
        waits: list[asyncio.Future[Any]] = [told, gone]
        try:
            await asyncio.wait(waits, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            told.cancel()
        if self._problem is not None:
            raise self._problem
        self._told.clear()
        events = list(self._waiting.values())
        self._waiting.clear()
        return events


class _LivePage:
    """A page that is being watched. sent: {block: its newest content}; the event's id is its digest."""

    def __init__(self) -> None:
        self.viewers: list[Viewer] = []
        self.sent: dict[str, Event] = {}


class Hub:
    """All live pages of this replica. Tasks are its own, and end with `close`."""

    def __init__(self, security: Security, render: Render, *, streams_max: int, pace: float = 1.0) -> None:
        """pace: the interval of a page is multiplied by it."""
        self._security = security
        self._render = render
        self._streams_max = streams_max
        self._pace = pace
        self._pages: dict[_Key, _LivePage] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def streams(self) -> int:
        return sum(len(page.viewers) for page in self._pages.values())

    @property
    def pages(self) -> int:
        return len(self._pages)

    def open(self, page: Page, view: View) -> EventStream:
        """The answer for one viewer. Raises TooManyRequests when it is sent."""
        key = view.url(), view.caller.role, view.caller.superuser, view.asker.base
        viewer = Viewer(view)
        return _Stream(viewer, lambda: self._join(key, page, viewer), lambda: self._leave(key, viewer))

    def close(self) -> None:
        """End all streams; a client connects again, to another replica."""
        stopping = ServiceUnavailable("this metadata service is stopping: the page connects again by itself")
        for live in self._pages.values():
            for viewer in live.viewers:
                viewer.end(stopping)
        for task in self._tasks:
            task.cancel()

    def _join(self, key: _Key, page: Page, viewer: Viewer) -> None:
        role = viewer.view.caller.role
        own = sum(each.view.caller.role == role for live in self._pages.values() for each in live.viewers)
        # Without authentication nobody can be told from another.
        own_max = max(1, self._streams_max // 2) if role else self._streams_max
        full = self.streams >= self._streams_max
        if full or own >= own_max:
            most = f"{self._streams_max} in all" if full else f"{own_max} of one role"
            message = f"the maximum of live pages is open, {most}: close some; this page shows one moment"
            raise TooManyRequests(message, limit=self._streams_max if full else own_max)
        live = self._pages.get(key)
        if live is None:
            live = self._pages[key] = _LivePage()
            task = asyncio.create_task(self._run(key, page, live))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        live.viewers.append(viewer)
        for block, event in live.sent.items():
            viewer.show(event, block)

    def _leave(self, key: _Key, viewer: Viewer) -> None:
        live = self._pages.get(key)
        if live is not None and viewer in live.viewers:
            live.viewers.remove(viewer)

    async def _run(self, key: _Key, page: Page, live: _LivePage) -> None:
        assert page.interval_s is not None, "only live pages are watched"
        try:
            while self._checked(live):
                await self._tick(page, live)
                slower = SLOWER if self.pages > MANY_PAGES else 1
                await asyncio.sleep(page.interval_s * self._pace * slower)
        except OncelogError as error:
            self._end(live, error)
        except Exception:
            logger.exception("could not render a live page", extra={"fields": {"page": page.path}})
            self._end(live, ServiceUnavailable("the page cannot be rendered: reload it"))
        finally:
            del self._pages[key]

    def _checked(self, live: _LivePage) -> bool:
        """End the streams whose token is not valid any more. Whether a viewer is left."""
        for viewer in list(live.viewers):
            try:
                self._security.caller(viewer.view.asker.authorization)
            except OncelogError as error:
                viewer.end(error)
                live.viewers.remove(viewer)
        return bool(live.viewers)

    async def _tick(self, page: Page, live: _LivePage) -> None:
        rendered = await self._render(page, live.viewers[0].view)
        digests = rendered.digests()
        live.sent = {block: event for block, event in live.sent.items() if block in digests or not block}
        for block, digest in digests.items():
            self._show(live, block, digest, {"id": block, "html": rendered.fragments[block]})
        self._show(live, "", " ".join(digests), {"id": "", "blocks": list(digests)})

    def _show(self, live: _LivePage, block: str, digest: str, content: dict[str, object]) -> None:
        """To all viewers, if it is new."""
        if block in live.sent and live.sent[block].id == digest:
            return
        live.sent[block] = event = Event(digest, json.dumps(content).encode())
        for viewer in live.viewers:
            viewer.show(event, block)

    def _end(self, live: _LivePage, error: OncelogError) -> None:
        for viewer in live.viewers:
            viewer.end(error)


class _Stream(EventStream):
    """Joins when it is sent, and leaves when it ends, however it ends."""

    def __init__(self, viewer: Viewer, join: Callable[[], None], leave: Callable[[], None]) -> None:
        super().__init__([], viewer.take)
        self._join = join
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._join()
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()
