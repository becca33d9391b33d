"""Live pages: what changes arrives, and a stream ends with the right to it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from starlette.types import ASGIApp, Message

from oncelog.core.access import UNCHECKED
from oncelog.metadata.console.live import Hub
from oncelog.metadata.console.page import Page, View
from oncelog.metadata.console.rendering import Rendered
from oncelog.metadata.console.rest_reading import Asker, Block, Reading
from oncelog.runtime.security import OPEN
from oncelog.wire import owner_pb2
from tests.cluster.until import until
from tests.contract.process.security_world import ROOT, bearer, secured, token
from tests.contract.rest.admin.admin_world import FLIGHTS
from tests.contract.rest.console.console_world import Browser, serving, text_of

pytestmark = pytest.mark.asyncio

DEADLINE_S = 60.0
HOME = {"page": "/console/"}


async def nothing(view: View) -> dict[str, Any]:
    return {}


PAGE = Page("/console/", "Overview", "overview.html", nothing, interval_s=0.01)


@asynccontextmanager
async def live(console: Browser, page: str = "/console/", **options: Any) -> AsyncIterator[AsyncIterator[Any]]:
    """The events of a live page: (name, JSON)."""
    async with console.http.stream("GET", "/console/live", params={"page": page}, **options) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")

        async def events() -> AsyncIterator[Any]:
            name = ""
            async for line in answer.aiter_lines():
                field, _, value = line.partition(": ")
                if field == "event":
                    name = value
                elif field == "data":
                    yield name, json.loads(value)
                    name = ""

        yield events()


async def text_in(events: AsyncIterator[Any], block: str, text: str) -> None:
    """Return when the block contains the text."""
    async for name, data in events:
        assert name == "", data
        if data["id"] == block and text in text_of(data["html"]):
            return
    pytest.fail(f"the stream ended before {block} had {text}")


async def test_viewers_see_what_changes() -> None:
    """A new owner, in each window that is open."""
    async with serving() as console, live(console) as one, live(console) as other:
        owner = await console.admin.world.owner()
        await text_in(one, "owners", owner.address)
        await text_in(other, "owners", owner.address)


async def test_viewers_learn_which_blocks_the_page_has() -> None:
    """A block that is gone would say for ever what is not known any more, and one that has come would be missing."""

    async def blocks(events: AsyncIterator[Any]) -> list[str]:
        async for _, data in events:
            if "blocks" in data:
                found: list[str] = data["blocks"]
                return found
        pytest.fail("the stream ended")

    name = "public/default/flights"
    async with serving() as console:
        owner = await console.admin.owner()
        await console.admin.change("PUT", FLIGHTS)
        await console.admin.replica.look_up(name)
        topic_id = (await console.admin.world.record()).topic_id
        owner.states = [owner_pb2.TopicState(topic_id=topic_id, phase="serving", stats_json="{}")]
        async with live(console, f"/console/topics/{name}") as events:
            before = await blocks(events)
            assert "producers" in before
            owner.states = [owner_pb2.TopicState(topic_id=topic_id, phase="recovering", stats_json="{}")]
            after = await blocks(events)
            assert "producers" not in after
            assert set(after) < set(before)


async def test_viewers_are_told_that_their_topic_was_deleted() -> None:
    """The stream ends, and says why."""
    async with serving() as console:
        await console.admin.change("PUT", FLIGHTS)
        async with live(console, "/console/topics/public/default/flights") as events:
            await anext(events)
            await console.admin.change("DELETE", FLIGHTS)
            *_, last = [event async for event in events]
        assert (last[0], last[1]["code"]) == ("end", "topic_not_found")


@pytest.mark.hazard("login-outlives-its-right")
async def test_stream_ends_when_its_token_expires(tmp_path: Path) -> None:
    """A token that is still valid for some seconds. The viewer is told why; the page leads to the login."""
    async with serving(secured(tmp_path)) as console:
        short = {"Cookie": f"oncelog_console={token(ROOT, expires_s=-7)}"}
        async with live(console, headers=short) as events:
            *before, last = [event async for event in events]
        assert before
        assert (last[0], last[1]["code"]) == ("end", "unauthenticated")


@pytest.mark.hazard("login-outlives-its-right")
async def test_stream_ends_when_the_key_is_replaced(tmp_path: Path) -> None:
    """One viewer's token is checked each time, also if another viewer's rendering is shared."""
    async with serving(secured(tmp_path)) as console:
        await console.log_in(ROOT)
        async with live(console) as events:
            await anext(events)
            (tmp_path / "token.key").write_bytes(b"another secret of the tests, which is long enough, too")
            *_, last = [event async for event in events]
        assert (last[0], last[1]["code"]) == ("end", "unauthenticated")


@pytest.mark.hazard("login-outlives-its-right")
async def test_block_is_hidden_when_its_right_is_revoked(tmp_path: Path) -> None:
    """While the page is open, and its token goes on to be valid: what it showed is not kept."""
    async with serving(secured(tmp_path)) as console:
        await console.admin.change("PUT", FLIGHTS, headers=bearer(ROOT))
        rights = "/admin/v2/namespaces/public/default/permissions/shop"
        await console.admin.change("POST", rights, headers=bearer(ROOT), json=["consume"])
        await console.log_in("shop")
        async with live(console, "/console/topics?namespace=public/default") as events:
            await text_in(events, "unowned", "public/default/flights")
            await console.admin.change("DELETE", rights, headers=bearer(ROOT))
            await text_in(events, "topics", "○ hidden permission denied: role shop")


async def test_streams_are_limited_and_the_page_is_not() -> None:
    """The 101st is refused; the page can still be read, and a place that becomes free can be taken."""
    async with serving(pace=1.0) as console, AsyncExitStack() as open_pages:
        first = AsyncExitStack()
        await first.enter_async_context(live(console))
        for _ in range(99):
            await open_pages.enter_async_context(live(console))
        refused = await console.http.get("/console/live", params=HOME)
        assert refused.status_code == 429
        assert "100 in all" in text_of(refused.text)
        await console.page("/console/")
        await first.aclose()

        async def taken() -> bool:
            async with console.http.stream("GET", "/console/live", params=HOME) as again:
                return again.status_code == 200

        await until(taken, DEADLINE_S)


async def test_one_role_cannot_take_all_streams(tmp_path: Path) -> None:
    """Half of them; another role still sees its pages live."""
    async with serving(secured(tmp_path), pace=1.0) as console, AsyncExitStack() as open_pages:
        await console.log_in(ROOT)
        for _ in range(50):
            await open_pages.enter_async_context(live(console))
        refused = await console.http.get("/console/live", params=HOME)
        assert refused.status_code == 429
        assert "50 of one role" in text_of(refused.text)
        async with live(console, headers={"Cookie": f"oncelog_console={token('other')}"}) as events:
            await anext(events)


@pytest.mark.parametrize(
    "page", ["", "/console/absent", "/admin/v2/brokers", "https://attacker.example/console/", "/console/live"]
)
async def test_stream_of_another_page_is_refused(page: str) -> None:
    async with serving() as console:
        assert (await console.http.get("/console/live", params={"page": page})).status_code == 404


class Watching:
    """A client of one stream of a hub. text: what it got so far."""

    def __init__(self, hub: Hub) -> None:
        self.text = ""
        self._gone = asyncio.Event()
        asker = Asker(cast("ASGIApp", None), UNCHECKED, "", "", "http://localhost")
        unknown = Block(None, None, None, "")
        view = View("/console/", {}, {}, asker, Reading(), unknown, lambda url: url)
        self.running = asyncio.ensure_future(hub.open(PAGE, view)({}, self._receive, self._send))

    async def _receive(self) -> Message:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        self.text += message.get("body", b"").decode()

    def go(self) -> None:
        self._gone.set()


async def test_streams_end_when_the_service_stops() -> None:
    """At once, so that the stop of the REST port need not cut them off; the page connects to another replica."""

    async def render(page: Page, view: View) -> Rendered:
        return Rendered("", {"a": "<p>1</p>"})

    hub = Hub(OPEN, render, streams_max=10)
    watching = [Watching(hub) for _ in range(3)]
    await until(lambda: all('"<p>1</p>"' in each.text for each in watching), DEADLINE_S)
    hub.close()
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(*(each.running for each in watching))
    assert all('event: end\ndata: {"type": "urn:oncelog:problem:service_unavailable"' in each.text for each in watching)


async def test_page_is_rendered_only_while_it_is_watched_and_only_changes_are_sent() -> None:
    """However many watch it, and it is rendered again for those who come later."""
    rendered = 0

    async def render(page: Page, view: View) -> Rendered:
        nonlocal rendered
        rendered += 1
        return Rendered("", {"same": "<p>s</p>", "new": f"<p>{rendered}</p>"})

    hub = Hub(OPEN, render, streams_max=10)
    watching = [Watching(hub) for _ in range(5)]
    await until(lambda: all('"<p>3</p>"' in each.text for each in watching), DEADLINE_S)
    assert all(each.text.count("<p>s</p>") == 1 for each in watching)
    for each in watching:
        each.go()
    await until(lambda: not hub.streams and not hub.pages, DEADLINE_S)
    before = rendered
    later = Watching(hub)
    await until(lambda: f'"<p>{before + 1}</p>"' in later.text, DEADLINE_S)
    hub.close()
    await later.running


async def test_bug_in_a_page_ends_its_streams_with_a_reason(caplog: pytest.LogCaptureFixture) -> None:
    """And is in the log; other pages go on."""

    async def render(page: Page, view: View) -> Rendered:
        raise ZeroDivisionError

    hub = Hub(OPEN, render, streams_max=10)
    watching = Watching(hub)
    async with asyncio.timeout(DEADLINE_S):
        await watching.running
    assert "the page cannot be rendered: reload it" in watching.text
    assert "could not render a live page" in caplog.text
